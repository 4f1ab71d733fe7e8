//! The samplers of branches on real programs: what they record, and that the programs do not notice.
#![cfg(target_arch = "x86_64")]

use corewise_branches::{
    Backend, BranchError, LONG_BRANCHES, Options, Progress, Recorded, Target, record, verify,
};
use corewise_paths::window::{BranchRecording, End};
use corewise_sys::launch::Output;
use corewise_testing::{Capability, is_refusal, or_skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Commands are started one at a time: starting one changes the environment.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The ways to pause a thread for emulation.
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

fn missing(error: &BranchError) -> Option<Capability> {
    match error {
        BranchError::Clock(errno) if is_refusal(&(*errno).into()) => Some(Capability::Perf),
        BranchError::Follow { errno, .. } if is_refusal(&(*errno).into()) => Some(Capability::Ptrace),
        _ => None,
    }
}

/// The command that works as `what` says until a file exists, and the file.
fn working(what: &str) -> (Vec<OsString>, PathBuf) {
    let file = PROGRAM.directory.path().join(format!("end-of-{what}"));
    let _ = std::fs::remove_file(&file);
    (vec![program().into(), what.into(), file.clone().into()], file)
}

/// How the command ended: its status, or the signal that killed it.
fn end_of(recorded: &Recorded) -> String {
    recorded.exit_status.expect("a command has an end").to_string()
}

/// Calls it once there are this many windows; after a minute even if there are not, so that the test ends.
fn at_windows(count: usize, act: impl Fn()) -> impl FnMut(Progress) {
    let begin = Instant::now();
    move |progress| {
        if progress.windows >= count || begin.elapsed() > Duration::from_secs(60) {
            act();
        }
    }
}

/// Between the transfers of a window there is straight code.
fn check(recording: &BranchRecording) {
    for window in &recording.windows {
        let mut here = window.start;
        for transfer in &window.transfers {
            assert_eq!(transfer.from.module, here.module, "{window:?}");
            assert!((here.address..here.address + 0x1_0000).contains(&transfer.from.address), "{window:?}");
            here = transfer.to;
        }
        assert!(window.transfers.len() as u32 <= window.branches.unwrap(), "{window:?}");
        assert!(window.branches <= window.instructions && window.instructions.unwrap() > 0, "{window:?}");
        let branches = window.branches.unwrap();
        let is_whole = [recording.branches_max, LONG_BRANCHES].contains(&branches);
        assert!(is_whole || window.ended != End::Full, "{window:?}");
        assert!(window.ended == End::Full || branches < LONG_BRANCHES, "{window:?}");
    }
}

#[test]
fn all_threads_and_processes_of_a_command_are_recorded() {
    let _alone = alone();
    let backends =
        [(Backend::Shadow, "shadow"), (Backend::ShadowPtrace, "shadow-ptrace"), (Backend::Step, "step")];
    for (backend, name) in backends {
        // On a busy machine a thread may get no PE while the others have a hundred windows.
        for windows in [100, 400, 1600] {
            let (command, file) = working("tree");
            let mut until = at_windows(windows, || std::fs::write(&file, "").unwrap());
            let recorded = record(Target::Command(&command), &options(backend, 200.0), &mut until);
            let recorded = or_skip!(recorded, missing);
            assert_eq!(end_of(&recorded), "exit status: 42", "{name}");
            let recording = recorded.recording;
            check(&recording);
            // Where preempting is not permitted, threads are stopped instead.
            assert!(recording.backend.starts_with(name), "{} by {name}", recording.backend);
            let threads: BTreeSet<u32> = recording.windows.iter().map(|window| window.tid).collect();
            if threads.len() < 5 && windows < 1600 {
                continue;
            }
            assert!(threads.len() >= 5, "{name}: {} threads", threads.len());
            let full = recording.windows.iter().filter(|window| window.ended == End::Full).count();
            assert!(full * 2 > recording.windows.len(), "{name}: {full} of {}", recording.windows.len());
            let path = program().canonicalize().unwrap();
            let is_program = |module: &corewise_paths::window::Module| Path::new(&module.path) == path;
            assert!(recording.modules.iter().any(is_program), "{:?}", recording.modules);
            break;
        }
    }
}

/// Only the child works.
#[test]
fn a_child_of_which_no_tracer_hears_is_recorded() {
    let _alone = alone();
    let (command, file) = working("untraced");
    let mut until = at_windows(20, || std::fs::write(&file, "").unwrap());
    let recorded = record(Target::Command(&command), &options(Backend::ShadowPtrace, 200.0), &mut until);
    let recorded = or_skip!(recorded, missing);
    assert_eq!(end_of(&recorded), "exit status: 42");
    assert!(recorded.recording.windows.len() >= 20, "{}", recorded.recording.windows.len());
}

fn signals_come_as_often_as_they_were_sent(backend: Backend) {
    let _alone = alone();
    let command = [program().into_os_string(), "signals".into(), "20000".into()];
    let recorded = record(Target::Command(&command), &options(backend, 500.0), &mut |_| {});
    let recorded = or_skip!(recorded, missing);
    assert_eq!(end_of(&recorded), "exit status: 0");
    check(&recorded.recording);
    assert!(!recorded.recording.windows.is_empty(), "{:?}", recorded.recording);
}

// One test for each, because recording a command leaves signals blocked in its thread.
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
    let (command, file) = working("alone");
    let mut until = at_windows(150, || std::fs::write(&file, "").unwrap());
    let verified = verify::verify(&command, &options(Backend::Shadow, 500.0), usize::MAX, &mut until);
    let (recorded, verification) = or_skip!(verified, missing);
    assert_eq!(end_of(&recorded), "exit status: 42");
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

/// A program that works until it is asked to end.
struct Working {
    child: Child,
    file: PathBuf,
}

impl Working {
    fn start(name: &str) -> Working {
        let file = PROGRAM.directory.path().join(name);
        let _ = std::fs::remove_file(&file);
        let child = Command::new(program()).arg("until").arg(&file).spawn().unwrap();
        Working { child, file }
    }

    /// Its exit status, 42 if all its work was correct.
    fn end(mut self) -> Option<i32> {
        std::fs::write(&self.file, "").unwrap();
        self.child.wait().unwrap().code()
    }
}

#[test]
fn a_program_does_not_notice_attaching_and_detaching() {
    let _alone = alone();
    let working = Working::start("attached");
    for backend in SHADOWS.repeat(10) {
        let options = options(backend, 2000.0);
        let stop = Arc::clone(&options.stop);
        let mut until = at_windows(10, || stop.store(true, Ordering::Relaxed));
        let recorded = record(Target::Pid(working.child.id()), &options, &mut until);
        let recorded = or_skip!(recorded, missing);
        check(&recorded.recording);
        assert!(recorded.recording.windows.len() >= 10, "{backend:?}: {:?}", recorded.recording.notes);
        assert_eq!(recorded.exit_status, None);
    }
    assert_eq!(working.end(), Some(42));
}

#[test]
fn a_recording_ends_with_the_process_even_if_nobody_has_heard_of_its_end() {
    let _alone = alone();
    for backend in SHADOWS {
        let options = Options { duration: Some(Duration::from_secs(120)), ..options(backend, 100.0) };
        let mut working = Working::start("unheard");
        let mut until = at_windows(1, || std::fs::write(&working.file, "").unwrap());
        let begin = Instant::now();
        let recorded = record(Target::Pid(working.child.id()), &options, &mut until);
        let took = begin.elapsed();
        let ended = record(Target::Pid(working.child.id()), &options, &mut |_| {});
        // It is a child of this process, so the tracer may have received its end instead.
        let _ = working.child.wait();
        or_skip!(recorded, missing);
        assert!(took < Duration::from_secs(110), "{backend:?}");
        assert!(matches!(ended, Err(BranchError::NoProcess(_))), "{ended:?}");
    }
}

/// Not a test by itself: samples the process that the variable names, until it is killed.
#[test]
fn sampler_to_be_killed() {
    if let Ok(pid) = std::env::var("BRANCHES_TEST_PID") {
        let by_ptrace = std::env::var_os("BRANCHES_TEST_BY_PTRACE").is_some();
        let backend = if by_ptrace { Backend::ShadowPtrace } else { Backend::Shadow };
        let mut report =
            at_windows(1, || std::fs::write(std::env::var("BRANCHES_TEST_SAMPLES").unwrap(), "").unwrap());
        record(Target::Pid(pid.parse().unwrap()), &options(backend, 2000.0), &mut report).unwrap();
    }
}

#[test]
fn a_program_survives_the_killing_of_its_sampler() {
    let _alone = alone();
    let working = Working::start("survives");
    let samples = PROGRAM.directory.path().join("samples");
    for round in 0..10 {
        let by_ptrace = (round % 2 == 0).then_some(("BRANCHES_TEST_BY_PTRACE", "1"));
        let mut sampler = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sampler_to_be_killed"])
            .env("BRANCHES_TEST_PID", working.child.id().to_string())
            .env("BRANCHES_TEST_SAMPLES", &samples)
            .envs(by_ptrace)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        while std::fs::remove_file(&samples).is_err() {
            assert!(sampler.try_wait().unwrap().is_none(), "the sampler has ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(round * 7 % 50));
        kill(Pid::from_raw(sampler.id() as i32), Signal::SIGKILL).unwrap();
        sampler.wait().unwrap();
    }
    assert_eq!(working.end(), Some(42));
}
