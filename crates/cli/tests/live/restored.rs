//! What corewise has written into programs: restored however it ends, in all that descends from them, and
//! nowhere else.

use crate::common::{Running, corewise, wait_for};
use crate::waits::{Team, compiled_study, crowd, is_idle, spins_as_by_default};
use corewise_binding::runtimes::libgomp;
use corewise_sys::task::Task;
use corewise_testing::needs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The guardian of a corewise: its child of that name.
fn guardian(corewise: u32) -> u32 {
    let children = format!("/proc/{corewise}/task/{corewise}/children");
    let is_it = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "guardian\n")
    };
    wait_for(|| {
        let children = std::fs::read_to_string(&children).unwrap();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_it)
    })
}

fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).unwrap();
}

/// Waits until a process has ended, whichever process has to read its status.
fn await_end(pid: u32) {
    let is_over = || std::fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |words| words.is_empty());
    wait_for(|| is_over().then_some(()));
}

/// Kills both; neither does anything any more before it ends.
fn kill_with_guardian(team: &mut Team) {
    let guardian = guardian(team.corewise.id());
    send(guardian, Signal::SIGSTOP);
    send(team.corewise.id(), Signal::SIGKILL);
    send(guardian, Signal::SIGKILL);
    team.corewise.wait().unwrap();
    await_end(guardian);
}

#[test]
fn a_spin_count_that_corewise_and_its_guardian_leave_is_restored_by_the_next_start() {
    needs!(TwoPes);
    let runtime = tempfile::tempdir().unwrap();
    let in_runtime = |command: &mut Command, _: &Path| {
        command.arg("-q").env("XDG_RUNTIME_DIR", runtime.path());
    };
    let mut team = Team::start_as(false, in_runtime, &[]);
    let crowd = crowd();
    team.await_waits(false);
    let input = team.corewise.stdin.take();
    kill_with_guardian(&mut team);
    drop(crowd);
    let mut next = corewise();
    let next = next.args(["run", "-q", "true"]).env("XDG_RUNTIME_DIR", runtime.path()).output().unwrap();
    let said = String::from_utf8_lossy(&next.stderr);
    assert!(said.contains("its changes have been restored now"), "{said}");
    assert!(spins_as_by_default(team.pid), "{said}");
    drop(input);
}

/// The processes that run the same program as this one, without it.
fn others_of(pid: u32) -> Vec<u32> {
    let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&other| other != pid && program(other) == program(pid)).collect()
}

/// Lets the team's program start daemons while its spin count is lowered; those.
fn start_daemons(team: &mut Team, count: usize) -> Vec<u32> {
    let program = team.pid;
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let is_daemon = |pid: &u32| {
        parent(*pid).is_some_and(|above| above != program && !others_of(program).contains(&above))
    };
    (0..count).for_each(|_| team.order(b'd'));
    wait_for(|| {
        let daemons: Vec<u32> = others_of(program).into_iter().filter(is_daemon).collect();
        (daemons.len() == count).then_some(daemons)
    })
}

/// How a run ends.
#[derive(Debug, PartialEq)]
enum End {
    Normal,
    Killed,
    KilledWithGuardian,
}

#[test]
fn daemons_spin_as_their_program_wants_it_however_the_run_ends() {
    needs!(TwoPes);
    for discovery in ["auto", "poll"] {
        for end in [End::Normal, End::Killed, End::KilledWithGuardian] {
            daemons_are_restored(discovery, end);
        }
    }
}

fn daemons_are_restored(discovery: &str, end: End) {
    let runtime = tempfile::tempdir().unwrap();
    let options = |command: &mut Command, _: &Path| {
        command.args(["-q", "--discovery", discovery]).env("XDG_RUNTIME_DIR", runtime.path());
    };
    let mut team = Team::start_as(false, options, &[]);
    let crowd = crowd();
    team.await_waits(false);
    let guardian = guardian(team.corewise.id());
    let daemons = start_daemons(&mut team, 8);
    // The daemons live on: their standard input stays open.
    let input = team.corewise.stdin.take();
    match end {
        End::Normal => {
            send(team.pid, Signal::SIGKILL);
            team.corewise.wait().unwrap();
        }
        End::Killed => {
            send(team.corewise.id(), Signal::SIGKILL);
            team.corewise.wait().unwrap();
        }
        End::KilledWithGuardian => {
            kill_with_guardian(&mut team);
            let next = corewise().args(["run", "-q", "true"]).env("XDG_RUNTIME_DIR", runtime.path()).status();
            assert!(next.unwrap().success());
        }
    }
    await_end(guardian);
    drop(crowd);
    let lowered = daemons.iter().filter(|pid| !spins_as_by_default(**pid)).count();
    assert_eq!(lowered, 0, "of {}; {discovery}, {end:?}", daemons.len());
    if end != End::Normal {
        send(team.pid, Signal::SIGKILL);
    }
    drop(input);
}

/// A program that closes its OpenMP library and has an array of the lowered spin count in its place.
#[test]
fn nothing_is_written_where_a_library_was() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../binding/tests/reusing.c");
    let (program, library) = (directory.path().join("reusing"), directory.path().join("library.so"));
    let compile = |options: &[&str], output: &Path| {
        let status = Command::new("cc").args(options).arg(source).arg("-o").arg(output).status();
        assert!(status.unwrap().success());
    };
    compile(&["-O2"], &program);
    compile(&["-O2", "-DPLUGIN", "-shared", "-fPIC", "-fopenmp"], &library);
    let crowd = crowd();
    let mut command = corewise();
    command.args(["run", "-q", "--waits", "spin", "--", "sh", "-c", "echo $$; exec \"$0\" \"$1\""]);
    command.arg(&program).arg(&library).env_remove("OMP_WAIT_POLICY").env_remove(libgomp::VARIABLE);
    let mut run = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(run.0.stdout.take().unwrap());
    let mut input = run.0.stdin.take().unwrap();
    let mut line = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    };
    let pid: u32 = line().parse().unwrap();
    assert_eq!(line(), "begins");
    wait_for(|| (!spins_as_by_default(pid)).then_some(()));
    let guardian = guardian(run.0.id());
    input.write_all(b"x").unwrap();
    assert_eq!(line(), "filled");
    send(run.0.id(), Signal::SIGKILL);
    run.0.wait().unwrap();
    await_end(guardian);
    drop(crowd);
    input.write_all(b"x").unwrap();
    assert_eq!(line(), "0 words changed");
}

#[test]
fn programs_that_take_turns_are_normal_while_corewise_alone_is_stopped() {
    needs!(TwoPes, Perf, Root);
    let directory = tempfile::tempdir().unwrap();
    let binary = compiled_study(directory.path(), "cc", "pipeline");
    let script = "for i in 1 2; do \"$0\" 1000000000 & echo $!; done; wait";
    let mut command = corewise();
    command.args(["run", "-q", "--waits", "turns", "--interval", "100ms", "--report"]);
    command.arg(directory.path().join("report.json")).args(["--", "sh", "-c", script]).arg(binary);
    let mut run = Running(command.env_remove("OMP_WAIT_POLICY").stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(run.0.stdout.take().unwrap()).lines();
    let programs = [(), ()].map(|()| lines.next().unwrap().unwrap().parse::<u32>().unwrap());
    let is_any_idle = || programs.into_iter().any(is_idle);
    let corewise = run.0.id();
    for _ in 0..3 {
        wait_for(|| is_any_idle().then_some(()));
        send(corewise, Signal::SIGSTOP);
        wait_for(|| (Task::of(corewise).unwrap().unwrap().state().unwrap() == Some('T')).then_some(()));
        wait_for(|| (!is_any_idle()).then_some(()));
        let is_idle_again = (0..30).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            is_any_idle()
        });
        assert!(!is_idle_again, "nobody changes them");
        send(corewise, Signal::SIGCONT);
    }
}
