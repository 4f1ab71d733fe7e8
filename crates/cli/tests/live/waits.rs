//! How idle threads of a real OpenMP program wait, while others need their PEs and when they no longer do.

use crate::common::{Running, burn, corewise, threads_of, wait_for};
use corewise_binding::runtimes::libgomp;
use corewise_binding::runtimes::loaded::{Files, Loaded};
use corewise_binding::shared::board::SharedBoard;
use corewise_core::board::{Agreed, Ask, Board, Note};
use corewise_core::guard::waits::{EPOCH, TAKEN_BACK};
use corewise_testing::needs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A program with a team of two threads under corewise, which ends when its standard input does.
pub struct Team {
    pub corewise: Child,
    pub pid: u32,
    directory: TempDir,
}

impl Team {
    /// With `-q` there is no report, and the program is a shell's child.
    pub fn start(options: &[&str], variables: &[(&str, &str)]) -> Team {
        Team::start_with(options, variables, &[])
    }

    pub fn start_with(options: &[&str], variables: &[(&str, &str)], arguments: &[&str]) -> Team {
        let with_report = |command: &mut Command, directory: &Path| {
            command.args(options);
            if !options.contains(&"-q") {
                command.arg("--report").arg(directory.join("report.json"));
            }
            command.envs(variables.iter().copied());
        };
        Team::start_as(options.contains(&"-q"), with_report, arguments)
    }

    /// With what `prepare` adds to the command; the program may be a shell's child.
    pub fn start_as(is_child: bool, prepare: impl Fn(&mut Command, &Path), arguments: &[&str]) -> Team {
        let directory = tempfile::tempdir().unwrap();
        let binary = compiled_team(directory.path());
        let mut command = corewise();
        for name in [libgomp::VARIABLE, "OMP_WAIT_POLICY", "KMP_BLOCKTIME"] {
            command.env_remove(name);
        }
        command.arg("run");
        prepare(&mut command, directory.path());
        let script = if is_child { "echo $$; \"$0\" \"$@\"; true" } else { "echo $$; exec \"$0\" \"$@\"" };
        command.args(["--", "sh", "-c", script]).arg(binary).args(arguments);
        let mut corewise = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(corewise.stdout.take().unwrap());
        let mut pid = String::new();
        output.read_line(&mut pid).unwrap();
        // One region has begun: the library is there. Nobody needs to read of the others.
        output.read_line(&mut String::new()).unwrap();
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Team { corewise, pid: pid.trim().parse().unwrap(), directory }
    }

    /// Waits until its threads spin as long as by default, or shorter.
    pub fn await_waits(&self, own: bool) {
        self.await_waits_of(self.pid, own);
    }

    pub fn await_waits_of(&self, pid: u32, own: bool) {
        wait_for(|| (spins_as_by_default(pid) == own).then_some(()));
    }

    /// Gives it an order (`waiting.c`).
    pub fn order(&mut self, order: u8) {
        self.corewise.stdin.as_mut().unwrap().write_all(&[order]).unwrap();
    }

    /// Lets it fork a child.
    fn fork(&mut self) -> u32 {
        self.order(b'f');
        let children = format!("/proc/{0}/task/{0}/children", self.pid);
        wait_for(|| std::fs::read_to_string(&children).unwrap().trim().parse().ok())
    }

    /// Ends it; the report.
    fn end(mut self) -> Value {
        drop(self.corewise.stdin.take());
        assert!(self.corewise.wait().unwrap().success());
        serde_json::from_slice(&std::fs::read(self.report()).unwrap()).unwrap()
    }

    fn report(&self) -> PathBuf {
        self.directory.path().join("report.json")
    }
}

/// The program of a [`Team`].
pub fn compiled_team(directory: &Path) -> PathBuf {
    let binary = directory.join("waiting");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../binding/tests/waiting.c");
    let mut compiler = Command::new("cc");
    assert!(compiler.args(["-O2", "-fopenmp", source, "-o"]).arg(&binary).status().unwrap().success());
    binary
}

/// The spin count of a process.
pub fn spin_count(pid: u32) -> u64 {
    spin_counts(pid)[0]
}

/// The spin counts of all libraries of a process.
fn spin_counts(pid: u32) -> Vec<u64> {
    let mut files = Files::default();
    let loaded = Loaded::in_process(pid, &mut files).unwrap();
    libgomp::find(&loaded, &mut files).into_iter().map(|found| found.unwrap().own()).collect()
}

pub fn spins_as_by_default(pid: u32) -> bool {
    spin_count(pid) == libgomp::UNDECIDED
}

/// Twice as many busy threads as the machine has PEs.
pub fn crowd() -> Running {
    let threads = 2 * std::thread::available_parallelism().unwrap().get();
    let mut command = Command::new(burn());
    Running(command.args(["600", &format!("{threads}*int")]).stdout(Stdio::null()).spawn().unwrap())
}

/// A run of a program that never ends, and outlives a corewise that is killed; both end with the test.
struct Endless {
    corewise: Running,
    pid: u32,
}

impl Endless {
    /// Starts the command, which tells its process's id in its first line.
    fn start(mut command: Command) -> Endless {
        let mut corewise = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut pid = String::new();
        BufReader::new(corewise.0.stdout.as_mut().unwrap()).read_line(&mut pid).unwrap();
        Endless { corewise, pid: pid.trim().parse().unwrap() }
    }

    fn kill_corewise(&mut self) {
        self.corewise.0.kill().unwrap();
        self.corewise.0.wait().unwrap();
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        // It has not ended before, so its number is nobody else's.
        let _ = kill(Pid::from_raw(self.pid as i32), Signal::SIGKILL);
    }
}

#[test]
fn idle_threads_spin_shortly_while_others_need_their_pes_and_the_report_says_so() {
    needs!(TwoPes);
    let mut team = Team::start(&[], &[]);
    let crowd = crowd();
    team.await_waits(false);
    let child = team.fork();
    team.await_waits_of(child, true);
    drop(crowd);
    let report = team.end();
    let decisions = report["decisions"].as_array().unwrap();
    let reasons = decisions.iter().filter(|decision| !decision["setting"].is_null());
    let reasons: Vec<&str> = reasons.filter_map(|decision| decision["reason"].as_str()).collect();
    assert!(reasons[0].starts_with("its threads waited for a PE for "), "{decisions:?}");
}

/// As wheels bring copies of the library. Their teams take the PEs from each other, so nobody else is needed.
#[test]
fn both_libraries_of_a_program_that_has_two_are_changed_and_restored() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../binding/tests/two_libraries.c");
    let [loaded, binary] = ["loaded.so", "two"].map(|name| directory.path().join(name));
    for (output, options) in [(&loaded, &["-fPIC", "-shared", "-DLOADED"][..]), (&binary, &["-ldl"])] {
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-fopenmp", source, "-o"]).arg(output).args(options);
        assert!(compiler.status().unwrap().success());
    }
    let mut command = corewise();
    command.env_remove("OMP_WAIT_POLICY").env_remove(libgomp::VARIABLE).stdin(Stdio::piped());
    command.args(["run", "-q", "--", "sh", "-c", "echo $$; exec \"$0\" \"$1\""]).args([&binary, &loaded]);
    let mut run = Endless::start(command);
    let _input = run.corewise.0.stdin.take();
    let pid = run.pid;
    let are = |own: bool| {
        let is_one = |count: &u64| (*count == libgomp::UNDECIDED) == own;
        let all = spin_counts(pid);
        (all.len() == 2 && all.iter().all(is_one)).then_some(())
    };
    wait_for(|| are(false));
    run.kill_corewise();
    wait_for(|| are(true));
}

#[test]
fn the_summary_says_so_too_whether_all_is_watched_by_then_or_not() {
    needs!(TwoPes);
    let crowd = crowd();
    let with_summary = |command: &mut Command, _: &Path| {
        command.stderr(Stdio::piped());
    };
    let mut team = Team::start_as(false, with_summary, &[]);
    team.await_waits(false);
    drop(crowd);
    drop(team.corewise.stdin.take());
    let mut summary = String::new();
    team.corewise.stderr.take().unwrap().read_to_string(&mut summary).unwrap();
    assert!(team.corewise.wait().unwrap().success());
    let first = "corewise: let idle threads of waiting sleep instead of spin while others needed a CPU";
    assert!(summary.starts_with(first), "{summary}");
}

/// Without a report, waits are changed before everything is watched, and watching goes on. A stopped process
/// waits for no PE, whatever else the machine does.
#[test]
fn early_changes_are_restored_for_processes_that_are_no_longer_delayed() {
    needs!(TwoPes, Perf, Root);
    let crowd = crowd();
    let mut team = Team::start(&["-q"], &[]);
    // The shell's child; if the shell itself were stopped, corewise would stop, too.
    let children = format!("/proc/{0}/task/{0}/children", team.pid);
    team.pid = wait_for(|| std::fs::read_to_string(&children).unwrap().trim().parse().ok());
    team.await_waits(false);
    let descriptors = format!("/proc/{}/fd", team.corewise.id());
    wait_for(|| {
        let links = std::fs::read_dir(&descriptors).unwrap().flatten();
        let mut opened = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        opened.any(|file| file.as_os_str() == "anon_inode:[perf_event]").then_some(())
    });
    let program = Pid::from_raw(team.pid as i32);
    kill(program, Signal::SIGSTOP).unwrap();
    drop(crowd);
    team.await_waits(true);
    kill(program, Signal::SIGCONT).unwrap();
    drop(team.corewise.stdin.take());
    assert!(team.corewise.wait().unwrap().success());
}

#[test]
fn after_a_kill_9_threads_spin_as_their_program_wants_it() {
    needs!(TwoPes);
    let mut team = Team::start(&[], &[]);
    let crowd = crowd();
    team.await_waits(false);
    // The program lives on: its standard input stays open.
    let input = team.corewise.stdin.take();
    team.corewise.kill().unwrap();
    team.corewise.wait().unwrap();
    team.await_waits(true);
    drop(input);
    drop(crowd);
}

/// Two programs that spin for each other in code of their own, each under its own corewise.
#[test]
fn programs_that_spin_take_turns_also_under_two_runs_and_are_normal_again_after_a_kill_9() {
    needs!(TwoPes, Perf, Root);
    two_take_turns_until_a_kill_9("cc", PIPELINE, false, is_idle);
}

/// They wait so often that short waits waste their time. Nothing says that turns are wanted.
#[test]
fn programs_that_wait_all_the_time_take_turns_too() {
    needs!(TwoPes, Perf, Root);
    two_take_turns_until_a_kill_9("cc", ("cg", "auto"), false, is_idle);
}

/// Idle threads of LLVM's OpenMP yield; the program's own waits do not.
#[test]
fn programs_of_a_yielding_runtime_take_turns_where_their_own_code_spins() {
    needs!(TwoPes, Perf, Root);
    two_take_turns_until_a_kill_9("clang-19", PIPELINE, false, is_idle);
}

#[test]
fn sessions_whose_programs_take_turns_have_their_part_again_after_a_kill_9() {
    needs!(TwoPes, Perf, Root, SessionGroups);
    two_take_turns_until_a_kill_9("cc", PIPELINE, true, |pid| {
        let group = std::fs::read_to_string(format!("/proc/{pid}/autogroup")).unwrap();
        !group.trim().ends_with(" nice 0")
    });
}

/// A program of the study of waits, and what may be done about its waits.
const PIPELINE: (&str, &str) = ("pipeline", "turns");

/// A program of the study of waits.
pub fn compiled_study(directory: &Path, compiler: &str, name: &str) -> PathBuf {
    let binary = directory.join(name);
    let source = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/waits/{}.c"), name);
    let mut compiler = Command::new(compiler);
    assert!(
        compiler.args(["-O2", "-fopenmp", &source, "-lm", "-o"]).arg(&binary).status().unwrap().success()
    );
    binary
}

/// Two runs of such a program, each perhaps in a session of its own; `has_no_turn` tells by a process's id.
fn two_take_turns_until_a_kill_9(
    compiler: &str,
    (name, waits): (&str, &str),
    in_sessions: bool,
    has_no_turn: fn(u32) -> bool,
) {
    let directory = tempfile::tempdir().unwrap();
    let binary = compiled_study(directory.path(), compiler, name);
    let mut runs = [(), ()].map(|()| {
        let mut command = corewise();
        if in_sessions {
            let program = command.get_program().to_owned();
            command = Command::new("setsid");
            command.arg(program);
        }
        command.env("XDG_RUNTIME_DIR", directory.path()).args(["run", "-q", "--waits", waits, "--"]);
        command.args(["sh", "-c", "echo $$; exec \"$0\" 1000000000"]).arg(&binary);
        command.env_remove("OMP_WAIT_POLICY");
        Endless::start(command)
    });
    for run in &runs {
        wait_for(|| has_no_turn(run.pid).then_some(()));
        wait_for(|| (!has_no_turn(run.pid)).then_some(()));
    }
    runs.iter_mut().for_each(Endless::kill_corewise);
    for run in &runs {
        wait_for(|| (!has_no_turn(run.pid)).then_some(()));
    }
    // Nobody changes them any more.
    let still_idle = (0..50).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        runs.iter().any(|run| has_no_turn(run.pid))
    });
    assert!(!still_idle);
}

/// Whether a thread of the process gets only what others leave over (proc_pid_stat(5), field 41).
pub fn is_idle(pid: u32) -> bool {
    const SCHED_IDLE: &str = "5";
    threads_of(pid).into_iter().any(|(tid, _)| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        fields.split_whitespace().nth(41 - 3) == Some(SCHED_IDLE)
    })
}

/// Another run, played by the test, asks for an epoch, then takes all changes back, then ends.
#[test]
fn waits_are_changed_and_undone_as_all_runs_have_agreed() {
    needs!(TwoPes, Perf, Root);
    let directory = tempfile::tempdir().unwrap();
    let with_report = |command: &mut Command, own: &Path| {
        command.env("XDG_RUNTIME_DIR", directory.path()).arg("--report").arg(own.join("report.json"));
    };
    let team = Team::start_as(false, with_report, &["busy"]);
    let crowd = crowd();
    team.await_waits(false);
    let path = directory.path().join("corewise/waits");
    let open = |path: &PathBuf| std::fs::File::options().read(true).write(true).open(path).ok();
    let mut board = SharedBoard::of(wait_for(|| open(&path))).unwrap();
    wait_for(|| {
        let Board { clock, notes } = board.read();
        let seconds = [1, 2].map(|ahead| clock.0 / 1_000_000_000 + ahead);
        let asks = seconds.map(|second| Ask { second, off_ms: 100 }).to_vec();
        board.write(&Note { asks, ..Note::default() });
        let is_shown = |note: &Note| note.changes && note.results.iter().any(|(_, log)| log.is_some());
        notes.iter().any(|(_, note)| is_shown(note)).then_some(())
    });
    let verdict = Agreed { second: board.read().clock.0 / 1_000_000_000, is_off: true };
    board.write(&Note { verdict, ..Note::default() });
    // It follows, and may have found since that its progress fell.
    let follows = |note: &Note| note.verdict.second >= verdict.second;
    wait_for(|| board.read().notes.iter().all(|(_, note)| follows(note)).then_some(()));
    drop(board);
    team.await_waits(false);
    drop(crowd);
    let report = team.end();
    let of_waits = |decision: &&Value| !decision["setting"].is_null();
    let decisions = report["decisions"].as_array().unwrap().iter().filter(of_waits);
    let reasons: HashSet<&str> = decisions.filter_map(|decision| decision["reason"].as_str()).collect();
    assert!(reasons.contains(EPOCH) && reasons.contains(TAKEN_BACK), "{reasons:?}");
    assert!(report["waits"]["guard"]["taken_back_after_seconds"].is_number(), "{report:#}");
}

#[test]
fn the_users_choice_of_waits_is_kept() {
    needs!(TwoPes);
    for (options, variables, said) in [
        (&["--waits", "off"][..], &[][..], None),
        (&[], &[("OMP_WAIT_POLICY", "passive")], Some("OMP_WAIT_POLICY")),
        (&[], &[("GOMP_SPINCOUNT", "77777")], Some("GOMP_SPINCOUNT")),
    ] {
        let team = Team::start(options, variables);
        let own = variables.iter().find(|(name, _)| *name == libgomp::VARIABLE).map(|(_, value)| *value);
        let own = own.map_or(libgomp::UNDECIDED, |value| value.parse().unwrap());
        if cfg!(target_arch = "x86_64") && !variables.iter().any(|(_, value)| *value == "passive") {
            assert_eq!(spin_count(team.pid), own);
        }
        let report = team.end();
        let notes: Vec<&str> = report["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let says = |word: &str| {
            notes.iter().any(|note| note.starts_with("waits are not changed") && note.contains(word))
        };
        assert!(said.is_none_or(says), "{notes:?}");
    }
}

/// A program that was started without corewise, attached twice: ended by Ctrl-C, and killed.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_running_program_spins_shortly_while_attached_and_delayed_and_then_as_before() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(compiled_team(directory.path()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    libgomp::WISHES.iter().for_each(|wish| _ = command.env_remove(wish));
    let mut program = Running(command.spawn().unwrap());
    let mut output = BufReader::new(program.0.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    let pid = program.0.id();
    let own = spin_count(pid);
    let crowd = crowd();
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let attached = corewise().args(["run", "-q", "--pid", &pid.to_string()]).spawn();
        let mut attached = Running(attached.unwrap());
        wait_for(|| (spin_count(pid) < own).then_some(()));
        kill(Pid::from_raw(attached.0.id() as i32), signal).unwrap();
        attached.0.wait().unwrap();
        wait_for(|| (spin_count(pid) == own).then_some(()));
    }
    drop(crowd);
}
