//! Weights of threads, through all actuators: given back whichever process is killed.

use corewise_binding::actuators::Actuators;
use corewise_binding::guardian::Guardian;
use corewise_binding::heartbeat::IfHung;
use corewise_binding::recovery;
use corewise_core::engine::EngineConfig;
use corewise_core::ids::ThreadId;
use corewise_core::plan::{Action, Change, OutcomeKind, Setting, Weight};
use corewise_sys::niceness;
use corewise_testing::needs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::DirBuilder;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The thread that [`acts_for_the_other_tests`] changes.
const THREAD: &str = "WEIGHTS_TEST_THREAD";

/// How long it may take until everything is restored.
const WITHIN: Duration = Duration::from_secs(20);

/// A process that is killed when it is dropped.
struct Running(Child);

impl Running {
    fn id(&self) -> u32 {
        self.0.id()
    }

    fn nice(&self) -> i32 {
        niceness::level_of(self.id()).unwrap()
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn sleeper() -> Running {
    Running(Command::new("sleep").arg("1000").spawn().unwrap())
}

/// A process that gives a thread another weight and waits, with its runtime directory; and the number of its
/// guardian.
fn acting(thread: u32, runtime_directory: &Path) -> (Running, u32) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // With one thread for tests, they run in the first thread of the process.
    command.args(["--exact", "acts_for_the_other_tests", "--nocapture", "--test-threads=1"]);
    command.env(THREAD, thread.to_string()).env("XDG_RUNTIME_DIR", runtime_directory);
    let mut acting = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(acting.0.stdout.take().unwrap()).lines();
    let guardian = lines.find_map(|line| line.unwrap().split_once("guardian ")?.1.parse().ok());
    (acting, guardian.expect("it has changed the thread"))
}

fn runtime_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    DirBuilder::new().mode(0o700).create(directory.path().join("corewise")).unwrap();
    directory
}

/// Gives the thread of another test another weight, if it was started by one, and waits.
#[test]
fn acts_for_the_other_tests() {
    if let Ok(thread) = std::env::var(THREAD) {
        let guardian = Guardian::start(IfHung::LetBe).unwrap();
        let process = guardian.process();
        let mut actuators = Actuators::new(&EngineConfig::default());
        actuators.begin(guardian).unwrap();
        let tid = thread.parse().unwrap();
        assert_eq!(
            apply(&mut actuators, tid, Change::Set(Setting::Weight(Weight::Percent(200)))),
            OutcomeKind::Done
        );
        println!("guardian {}", process.id);
        std::thread::sleep(Duration::from_secs(1000));
    }
}

fn apply(actuators: &mut Actuators, tid: u32, change: Change) -> OutcomeKind {
    let thread = ThreadId { tid, generation: 0 };
    actuators.apply(&[Action { thread, change, reason: "".into() }])[0].result.clone()
}

#[test]
fn the_guardian_gives_a_weight_back_after_corewise_was_killed() {
    needs!(Root);
    let (sleeper, directory) = (sleeper(), runtime_directory());
    let (mut acting, _) = acting(sleeper.id(), directory.path());
    assert_eq!(sleeper.nice(), -3);
    acting.kill();
    let killed_at = Instant::now();
    while sleeper.nice() != 0 {
        assert!(killed_at.elapsed() < WITHIN, "it has the level {}", sleeper.nice());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_next_start_gives_a_weight_back_after_both_were_killed() {
    needs!(Root);
    let (sleeper, directory) = (sleeper(), runtime_directory());
    let (mut acting, guardian) = acting(sleeper.id(), directory.path());
    kill(Pid::from_raw(guardian as i32), Signal::SIGKILL).unwrap();
    acting.kill();
    assert_eq!(sleeper.nice(), -3);
    let notes = recovery::recover_in(directory.path());
    assert!(notes.len() == 1 && notes[0].contains("have been restored now"), "{notes:?}");
    assert_eq!(sleeper.nice(), 0);
}
