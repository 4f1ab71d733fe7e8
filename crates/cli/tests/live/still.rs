//! A corewise that is there but does nothing, as it hangs or is stopped, or as nobody reads what it says: it
//! holds nothing for longer than some seconds, and ends when it is asked to.

use crate::attach::{Program, bound};
use crate::common::{Running, burn, corewise, masks_of, wait_for};
use crate::daemon::{Daemon, answer};
use corewise_testing::{Capability, is_refusal, needs, or_skip};
use freezer::Freezer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, Stdio};

#[path = "../../examples/campaign/freezer.rs"]
mod freezer;

fn freezer(name: &str) -> std::io::Result<Freezer> {
    Freezer::create(&format!("corewise-test-{}-{name}", std::process::id()), None)
}

fn no_freezer(error: &std::io::Error) -> Option<Capability> {
    let is_missing = is_refusal(error) || error.kind() == ErrorKind::ReadOnlyFilesystem;
    is_missing.then_some(Capability::Freezer)
}

/// Rules by which what is placed is not taken back for a trial.
const NO_GUARD: &str = "[daemon]\nguard = \"off\"\n";

/// Waits until corewise or its guardian says this; returns the reader of the rest.
fn await_line(log: ChildStderr, text: &str) -> BufReader<ChildStderr> {
    let mut log = BufReader::new(log);
    let mut lines = log.by_ref().lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(text)), "nobody says: {text}");
    log
}

/// Fills a pipe that nobody reads.
fn fill(pipe: &PipeWriter) {
    // A file of its own: the other writers may wait.
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let mut own = File::options().write(true).custom_flags(nix::libc::O_NONBLOCK).open(path).unwrap();
    while own.write(b"x").is_ok() {}
}

#[test]
fn a_daemon_whose_log_nobody_reads_goes_on_ends_when_asked_to_and_gives_back() {
    needs!(TwoPes);
    let program = Program::start(&["60", "int", "int"]);
    let before = masks_of(program.pid());
    let (_reader, log) = std::io::pipe().unwrap();
    fill(&log);
    let mut daemon = Daemon::start_saying(program.pid(), NO_GUARD, &[], log.into());
    wait_for(|| (bound(program.pid()) > 0).then_some(()));
    for _ in 0..3 {
        assert!(daemon.reload(NO_GUARD).status.success());
    }
    assert_eq!(answer(&daemon.socket(), &[])["bound"], 1, "it goes on");
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
    assert_eq!(masks_of(program.pid()), before);
}

#[test]
fn what_a_stopped_daemon_has_changed_is_given_back_and_taken_up_again_when_it_goes_on() {
    needs!(TwoPes);
    let program = Program::start(&["600", "int", "int"]);
    let before = masks_of(program.pid());
    let mut daemon = Daemon::start_as(program.pid(), NO_GUARD, &[]);
    for _ in 0..2 {
        wait_for(|| (bound(program.pid()) > 0).then_some(()));
        let corewise = Pid::from_raw(daemon.child().id() as i32);
        kill(corewise, Signal::SIGSTOP).unwrap();
        wait_for(|| (masks_of(program.pid()) == before).then_some(()));
        kill(corewise, Signal::SIGCONT).unwrap();
    }
    wait_for(|| (bound(program.pid()) > 0).then_some(()));
    let threads = answer(&daemon.socket(), &[&program.pid().to_string()]);
    let placed = |thread: &&Value| thread["bound"] == "0";
    assert_eq!(threads["threads"].as_array().unwrap().iter().filter(placed).count(), 1, "{threads}");
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
    assert_eq!(masks_of(program.pid()), before);
}

#[test]
fn a_daemon_that_hangs_is_ended_and_what_it_has_changed_is_given_back() {
    needs!(TwoPes);
    let freezer = or_skip!(freezer("daemon"), no_freezer);
    let program = Program::start(&["600", "int", "int"]);
    let before = masks_of(program.pid());
    let mut daemon = Daemon::start_saying(program.pid(), NO_GUARD, &[], Stdio::piped());
    let log = daemon.child().stderr.take().unwrap();
    wait_for(|| (bound(program.pid()) > 0).then_some(()));
    freezer.freeze(daemon.child().id()).unwrap();
    let _log = await_line(log, "hangs and was killed: what it had changed was given back");
    assert_eq!(masks_of(program.pid()), before);
    freezer.thaw();
    assert_eq!(daemon.child().wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
}

#[test]
fn a_run_that_hangs_gives_back_keeps_the_status_of_its_command_and_changes_nothing_more() {
    needs!(TwoPes);
    let freezer = or_skip!(freezer("run"), no_freezer);
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let mut run = corewise();
    run.args(["run", "-q", "--interval", "100ms", "--policy", "rr:stay=1h", "--fast", "0", "--guard", "off"]);
    run.arg("--report").arg(&report).args(["--", "sh", "-c", "echo $$; \"$0\" 600 2*int; exit 7"]);
    let mut run = Running(run.arg(burn()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(run.0.stdout.take().unwrap());
    let mut shell = String::new();
    output.read_line(&mut shell).unwrap();
    let shell: u32 = shell.trim().parse().unwrap();
    let program = || -> Option<u32> {
        let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).ok()?;
        children.trim().parse().ok()
    };
    let program = wait_for(|| program().filter(|pid| bound(*pid) > 0));
    freezer.freeze(run.0.id()).unwrap();
    // The shell writes there, too.
    let _log = await_line(run.0.stderr.take().unwrap(), "hangs: what it had changed was given back");
    assert_eq!(bound(program), 0);
    freezer.thaw();
    let looks = |pid: u32| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    };
    // It goes on, and looks at its command again and again.
    let before = looks(run.0.id());
    wait_for(|| (looks(run.0.id()) > before + 20).then_some(()));
    assert_eq!(bound(program), 0);
    kill(Pid::from_raw(program as i32), Signal::SIGKILL).unwrap();
    assert_eq!(run.0.wait().unwrap().code(), Some(7));
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let notes = report["notes"].to_string();
    assert!(notes.contains("corewise hung for some seconds"), "{notes}");
}

#[test]
fn a_run_whose_messages_nobody_reads_ends_with_its_command_once_somebody_reads() {
    let (mut reader, log) = std::io::pipe().unwrap();
    fill(&log);
    let start = || {
        let mut run = corewise();
        run.args(["run", "--policy", "spread", "--", "sh", "-c", "exit 7"]).stderr(log);
        Running(run.spawn().unwrap())
    };
    let mut run = start();
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!(run.0.wait().unwrap().code(), Some(7));
    let said = said.trim_start_matches('x');
    assert!(said.starts_with("corewise: "), "{said}");
}
