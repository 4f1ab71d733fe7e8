//! The samplers of branches on real programs: what they record, and that the programs do not notice.
#![cfg(target_arch = "x86_64")]

use corewise_linux::branches::{Backend, BranchError, Options, Recorded, Target, record, verify};
use corewise_linux::launch::Output;
use corewise_paths::window::{End, Recording};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;

/// Commands are started one at a time: starting one changes the environment.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The ways to hold a thread up for emulation.
const SHADOWS: [Backend; 2] = [Backend::Shadow, Backend::ShadowPtrace];

struct Program {
    directory: tempfile::TempDir,
}

static PROGRAM: LazyLock<Program> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("branches");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/branches.c");
    let status = Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(program).arg(source).status();
    assert!(status.expect("the C compiler runs").success());
    Program { directory }
});

fn program() -> PathBuf {
    PROGRAM.directory.path().join("branches")
}

fn options(backend: Backend, hz: f64) -> Options {
    let period = Duration::from_secs_f64(1.0 / hz);
    Options { backend, period, output: Output::ToStandardError, ..Options::default() }
}

/// `None`, with a word why, where the kernel refuses the event or ptrace.
fn allowed(result: Result<Recorded, BranchError>) -> Option<Recorded> {
    match result {
        Ok(recorded) => Some(recorded),
        Err(refused @ (BranchError::Clock(_) | BranchError::Follow { .. })) => {
            println!("skipped: {refused}");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

fn recorded(arguments: &[&str], options: &Options) -> Option<Recorded> {
    let words = std::iter::once(program().into_os_string()).chain(arguments.iter().map(OsString::from));
    let command: Vec<OsString> = words.collect();
    allowed(record(Target::Command(&command), options, &mut |_| {}))
}

/// Between the transfers of a window there is straight code.
fn check(recording: &Recording) {
    for window in &recording.windows {
        let mut here = window.start;
        for transfer in &window.transfers {
            assert_eq!(transfer.from.module, here.module, "{window:?}");
            assert!((here.address..here.address + 0x1_0000).contains(&transfer.from.address), "{window:?}");
            here = transfer.to;
        }
        assert!(window.transfers.len() as u32 <= window.branches.unwrap(), "{window:?}");
        assert!(window.branches <= window.instructions && window.instructions.unwrap() > 0, "{window:?}");
        assert_eq!(window.ended == End::Full, window.branches == Some(recording.branches_max), "{window:?}");
    }
}

#[test]
fn all_threads_and_processes_of_a_command_are_recorded() {
    let _alone = alone();
    let backends =
        [(Backend::Shadow, "shadow"), (Backend::ShadowPtrace, "shadow-ptrace"), (Backend::Step, "step")];
    for (backend, name) in backends {
        let Some(recorded) = recorded(&["tree", "15000000"], &options(backend, 200.0)) else { return };
        assert_eq!(recorded.exit_status, Some(42), "{name}");
        let recording = recorded.recording;
        check(&recording);
        // Where preempting is not permitted, threads are stopped instead.
        assert!(recording.backend.starts_with(name), "{} by {name}", recording.backend);
        let threads: BTreeSet<u32> = recording.windows.iter().map(|window| window.tid).collect();
        assert!(threads.len() >= 5, "{name}: {} threads", threads.len());
        let full = recording.windows.iter().filter(|window| window.ended == End::Full).count();
        assert!(full * 2 > recording.windows.len(), "{name}: {full} of {}", recording.windows.len());
        let path = program().canonicalize().unwrap();
        let is_program = |module: &corewise_paths::window::Module| Path::new(&module.path) == path;
        assert!(recording.modules.iter().any(is_program), "{:?}", recording.modules);
    }
}

fn signals_come_as_often_as_they_were_sent(backend: Backend) {
    let _alone = alone();
    let Some(recorded) = recorded(&["signals", "20000"], &options(backend, 500.0)) else { return };
    assert_eq!(recorded.exit_status, Some(0));
    check(&recorded.recording);
    assert!(!recorded.recording.windows.is_empty(), "{:?}", recorded.recording);
}

// One for each, as recording a command leaves signals blocked in its thread.
#[test]
fn signals_come_as_often_as_they_were_sent_to_a_preempted_program() {
    signals_come_as_often_as_they_were_sent(Backend::Shadow);
}

#[test]
fn signals_come_as_often_as_they_were_sent_to_a_stopped_program() {
    signals_come_as_often_as_they_were_sent(Backend::ShadowPtrace);
}

#[test]
fn threads_do_what_the_emulation_says() {
    let _alone = alone();
    let command: Vec<OsString> =
        [program().into_os_string(), "mixed".into(), "100000000".into()].into_iter().collect();
    let options = options(Backend::Shadow, 500.0);
    let verified = verify::verify(&command, &options, 150, &mut |_| {});
    let verification = match verified {
        Ok((_, verification)) => verification,
        Err(refused) => return println!("skipped: {refused}"),
    };
    assert!(verification.compared >= 100, "{verification:?}");
    assert!(verification.mismatches.is_empty(), "{verification:?}");
}

#[test]
fn a_command_that_cannot_be_started_is_an_error() {
    let _alone = alone();
    let command = [OsString::from("/nowhere/at-all")];
    match record(Target::Command(&command), &options(Backend::Shadow, 100.0), &mut |_| {}) {
        Err(BranchError::Launch(error)) => assert_eq!(error.exit_status(), 127),
        other => panic!("{other:?}"),
    }
    let nobody = record(Target::Pid(u32::MAX >> 2), &options(Backend::Shadow, 100.0), &mut |_| {});
    assert!(matches!(nobody, Err(BranchError::NoProcess(_))), "{nobody:?}");
}

/// A program that works until it is told to end.
struct Working {
    child: Child,
    file: PathBuf,
}

impl Working {
    fn start(name: &str) -> Working {
        let file = PROGRAM.directory.path().join(name);
        let child = Command::new(program()).arg("until").arg(&file).spawn().unwrap();
        Working { child, file }
    }

    /// Its exit status, 42 if all its work came out right.
    fn end(mut self) -> Option<i32> {
        std::fs::write(&self.file, "").unwrap();
        self.child.wait().unwrap().code()
    }
}

#[test]
fn a_program_does_not_notice_attaching_and_detaching() {
    let _alone = alone();
    let working = Working::start("attached");
    let mut windows = 0;
    for backend in SHADOWS.repeat(10) {
        let options = Options { duration: Some(Duration::from_millis(60)), ..options(backend, 2000.0) };
        let Some(recorded) = allowed(record(Target::Pid(working.child.id()), &options, &mut |_| {})) else {
            break;
        };
        check(&recorded.recording);
        windows += recorded.recording.windows.len();
        assert_eq!(recorded.exit_status, None);
    }
    assert_eq!(working.end(), Some(42));
    println!("{windows} windows");
}

#[test]
fn a_recording_ends_with_the_process_even_if_nobody_has_heard_of_its_end() {
    let _alone = alone();
    for backend in SHADOWS {
        let options = Options { duration: Some(Duration::from_secs(30)), ..options(backend, 100.0) };
        let mut child = Command::new(program()).args(["mixed", "30000000"]).spawn().unwrap();
        let begin = std::time::Instant::now();
        if allowed(record(Target::Pid(child.id()), &options, &mut |_| {})).is_some() {
            assert!(begin.elapsed() < Duration::from_secs(25), "{backend:?}");
            let ended = record(Target::Pid(child.id()), &options, &mut |_| {});
            assert!(matches!(ended, Err(BranchError::NoProcess(_))), "{ended:?}");
        }
        // It is a child of ours, so the tracer may have been told of its end instead.
        let _ = child.wait();
    }
}

/// Not a test of its own: samples the process that the variable names, until it is killed.
#[test]
fn sampler_to_be_killed() {
    if let Ok(pid) = std::env::var("BRANCHES_TEST_PID") {
        let by_ptrace = std::env::var_os("BRANCHES_TEST_BY_PTRACE").is_some();
        let backend = if by_ptrace { Backend::ShadowPtrace } else { Backend::Shadow };
        let options = options(backend, 2000.0);
        let _ = record(Target::Pid(pid.parse().unwrap()), &options, &mut |_| {});
    }
}

#[test]
fn a_program_survives_the_killing_of_its_sampler() {
    let _alone = alone();
    let working = Working::start("survives");
    for round in 0..10 {
        let by_ptrace = (round % 2 == 0).then_some(("BRANCHES_TEST_BY_PTRACE", "1"));
        let mut sampler = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sampler_to_be_killed"])
            .env("BRANCHES_TEST_PID", working.child.id().to_string())
            .envs(by_ptrace)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(150));
        kill(Pid::from_raw(sampler.id() as i32), Signal::SIGKILL).unwrap();
        sampler.wait().unwrap();
    }
    assert_eq!(working.end(), Some(42));
}
