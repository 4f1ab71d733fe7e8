//! `corewise run --pid`: programs that run already are attached, placed and let go of.

use crate::common::{Running, burn, corewise, masks_of, shared_fpu, wait_for};
use corewise_testing::needs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The test program.
pub struct Program(Running);

impl Program {
    /// Starts it; its first thread and those that work are there then.
    pub fn start(arguments: &[&str]) -> Program {
        let child = Command::new(burn()).args(arguments).stdout(Stdio::null()).spawn().unwrap();
        let program = Program(Running(child));
        wait_for(|| (masks_of(program.pid()).len() == arguments.len()).then_some(()));
        program
    }

    pub fn pid(&self) -> u32 {
        self.0.0.id()
    }
}

/// How many threads of a process are bound to a PE.
pub fn bound(pid: u32) -> usize {
    masks_of(pid).iter().filter(|mask| !mask.contains('-') && !mask.contains(',')).count()
}

fn attach_and_let_go(source: &str) {
    let programs = [(); 2].map(|()| Program::start(&["60", "fp", "int"]));
    let before: Vec<_> = programs.iter().map(|program| masks_of(program.pid())).collect();
    let (directory, modules) = shared_fpu();
    let report = directory.path().join("report.json");
    let pids = programs.iter().map(|program| program.pid().to_string()).collect::<Vec<_>>().join(",");
    let mut command = corewise();
    command.args(["run", "-q", "--interval", "250ms", "--discovery", source, "--pid", &pids]);
    let mut corewise =
        command.arg("--report").arg(&report).arg("--fpu-modules").arg(&modules).spawn().unwrap();
    wait_for(|| programs.iter().all(|program| bound(program.pid()) > 0).then_some(()));
    kill(Pid::from_raw(corewise.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(corewise.wait().unwrap().code(), Some(0));
    let after: Vec<_> = programs.iter().map(|program| masks_of(program.pid())).collect();
    assert_eq!(after, before, "they run on as they did before");
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let applications = report["applications"].as_array().unwrap();
    assert_eq!(applications.len(), 2, "{report:#}");
    for program in &programs {
        let own = |app: &&Value| app["target"]["process"] == program.pid();
        let application = applications.iter().find(own).unwrap();
        assert_eq!((&application["name"], &application["ended_seconds"]), (&"burn".into(), &Value::Null));
        let fpu = application["fpu_usage"].as_f64().unwrap();
        let cpu = application["cpu_seconds"].as_f64().unwrap();
        let wall = report["wall_seconds"].as_f64().unwrap();
        // On a busy machine it also runs for a moment between the first look at it and the begin of the run.
        assert!(fpu > 0.2 && cpu > 0.0 && cpu < 2.2 * wall + 1.0, "{report:#}");
    }
}

#[test]
fn running_programs_are_placed_and_run_on_when_they_are_let_go_of() {
    needs!(TwoPes);
    attach_and_let_go("poll");
    needs!(Root);
    attach_and_let_go("auto");
}

#[test]
fn it_ends_with_what_it_is_attached_to_or_after_a_time() {
    let short = Program::start(&["2", "int"]);
    let attached = |arguments: &[&str], pid: u32| {
        let pid = pid.to_string();
        corewise().args(["run", "-q", "--interval", "100ms", "--pid", &pid]).args(arguments).status().unwrap()
    };
    // Nobody asks for its status, so it stays a zombie, which is no life.
    assert_eq!(attached(&[], short.pid()).code(), Some(0));
    let long = Program::start(&["60", "int"]);
    assert_eq!(attached(&["--duration", "300ms"], long.pid()).code(), Some(0));
    assert!(!masks_of(long.pid()).is_empty(), "it lives on");
}

#[test]
fn what_cannot_be_attached_is_refused_with_the_reason() {
    for (pid, status, reason) in
        [("4194999", 125, "there is no process 4194999"), ("0", 2, "write the number of a process")]
    {
        let output = corewise().args(["run", "--pid", pid]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(reason), "{said}");
    }
    let both = corewise().args(["run", "--pid", "1", "true"]).output().unwrap();
    assert_eq!(both.status.code(), Some(2), "a command or processes, not both");
}

#[test]
fn only_root_attaches_processes_of_other_users() {
    needs!(Root);
    let program = Program::start(&["60", "int"]);
    let before = masks_of(program.pid());
    let runtime = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(runtime.path(), Some(65534), Some(65534)).unwrap();
    let mut command = corewise();
    command.args(["run", "--pid", &program.pid().to_string()]);
    let output = command.env("XDG_RUNTIME_DIR", runtime.path()).uid(65534).gid(65534).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("belongs to user 0: only root may place the threads of other users"), "{said}");
    assert_eq!(masks_of(program.pid()), before);
}
