//! `corewise run --cgroup` and `--unit`: what is in a control group is attached, placed and let go of.

use crate::attach::{Program, bound};
use crate::common::{Cpuset, corewise, masks_of, no_cpuset, shared_fpu, wait_for};
use corewise_testing::{Capability, is_refusal, needs, or_skip};
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// A control group of version 2; dropped, it is removed, once what was in it has ended.
pub struct Group(PathBuf);

impl Group {
    pub fn create(name: &str) -> std::io::Result<Group> {
        let mut mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new).into_iter();
        let mount = mounts.find(|path| is_of_version_2(path)).ok_or(Error::from(ErrorKind::NotFound))?;
        let group = mount.join(format!("corewise-test-{}-{name}.service", std::process::id()));
        std::fs::create_dir(&group)?;
        Ok(Group(group))
    }

    fn take(&self, program: &Program) {
        self.take_process(program.pid());
    }

    pub fn take_process(&self, pid: u32) {
        move_into(&self.0, pid);
    }

    pub fn name(&self) -> String {
        self.0.file_name().unwrap().to_str().unwrap().to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        while std::fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_of_version_2(path: &Path) -> bool {
    statfs(path).is_ok_and(|of| of.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

fn move_into(group: &Path, pid: u32) {
    std::fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
}

pub fn no_group(error: &Error) -> Option<Capability> {
    let is_missing = is_refusal(error) || error.kind() == ErrorKind::ReadOnlyFilesystem;
    is_missing.then_some(Capability::Cgroup)
}

/// Starts corewise, which writes its report to the file.
fn attach(arguments: &[&str], report: &Path, modules: &Path) -> Child {
    let mut command = corewise();
    command.args(["run", "-q", "--guard", "off", "--interval", "250ms"]).args(arguments);
    command.arg("--report").arg(report).arg("--fpu-modules").arg(modules).spawn().unwrap()
}

fn application(report: &Path) -> Value {
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let applications = report["applications"].as_array().unwrap();
    assert_eq!(applications.len(), 1, "{report:#}");
    applications[0].clone()
}

#[test]
fn the_processes_of_a_group_are_placed_also_those_that_come_into_it_and_run_on_afterwards() {
    needs!(TwoPes, Root);
    let group = or_skip!(Group::create("placed"), no_group);
    let [first, second, stranger] = [(); 3].map(|()| Program::start(&["120", "fp", "int"]));
    let before = [&first, &second].map(|program| masks_of(program.pid()));
    group.take(&first);
    let (directory, modules) = shared_fpu();
    let report = directory.path().join("report.json");
    let mut corewise = attach(&["--cgroup", &format!("/{}", group.name())], &report, &modules);
    wait_for(|| (bound(first.pid()) > 0).then_some(()));
    group.take(&second);
    wait_for(|| (bound(second.pid()) > 0).then_some(()));
    assert_eq!(bound(stranger.pid()), 0, "another process is not touched");
    kill(Pid::from_raw(corewise.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(corewise.wait().unwrap().code(), Some(0));
    assert_eq!([&first, &second].map(|program| masks_of(program.pid())), before, "they run on as before");
    let application = application(&report);
    assert_eq!(application["target"]["control_group"], format!("/{}", group.name()), "{application:#}");
    assert_eq!((&application["name"], &application["ended_seconds"]), (&group.name().into(), &Value::Null));
    drop((first, second));
}

#[test]
fn the_cpuset_of_a_group_is_a_limit_for_its_threads() {
    needs!(TwoPes, Root);
    let cpuset = or_skip!(Cpuset::create("groups"), no_cpuset);
    // In version 2 a group has its cpuset itself.
    let group =
        if is_of_version_2(&cpuset.0) { None } else { Some(or_skip!(Group::create("set"), no_group)) };
    let program = Program::start(&["120", "fp", "int"]);
    cpuset.allow("1");
    move_into(&cpuset.0, program.pid());
    group.iter().for_each(|group| group.take(&program));
    let target = group.as_ref().map_or(&cpuset.0, |group| &group.0);
    let path = format!("/{}", target.file_name().unwrap().to_str().unwrap());
    let masks = || masks_of(program.pid());
    wait_for(|| masks().iter().all(|mask| mask == "1").then_some(()));
    let (directory, modules) = shared_fpu();
    let report = directory.path().join("report.json");
    let run = attach(&["--cgroup", &path, "--duration", "1s"], &report, &modules).wait().unwrap();
    assert_eq!((run.code(), masks()), (Some(0), vec!["1".to_owned(); 3]));
    assert_eq!(application(&report)["allowed"], "1");
    cpuset.allow("0-1");
    wait_for(|| masks().iter().all(|mask| mask == "0-1").then_some(()));
    let mut corewise = attach(&["--cgroup", &path], &report, &modules);
    wait_for(|| (bound(program.pid()) > 0).then_some(()));
    kill(Pid::from_raw(corewise.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(corewise.wait().unwrap().code(), Some(0));
    assert_eq!(masks(), ["0-1"; 3]);
    drop(program);
}

#[test]
fn a_unit_is_let_go_of_when_nothing_of_it_is_left() {
    needs!(Root);
    let group = or_skip!(Group::create("ends"), no_group);
    let (directory, modules) = shared_fpu();
    for source in ["auto", "poll"] {
        let program = Program::start(&["1", "int"]);
        group.take(&program);
        let report = directory.path().join(format!("{source}.json"));
        let arguments = ["--unit", &group.name(), "--discovery", source];
        assert_eq!(attach(&arguments, &report, &modules).wait().unwrap().code(), Some(0));
        assert!(application(&report)["ended_seconds"].is_number());
    }
}

#[test]
fn what_is_no_group_or_an_empty_one_is_refused_with_the_reason() {
    let refused = |arguments: &[&str], status, reason: &str| {
        let output = corewise().arg("run").args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(reason), "{said}");
    };
    refused(&["--cgroup", "/x", "true"], 2, "cannot be used with");
    refused(&["--unit", "x.service", "--wait"], 2, "cannot be used with");
    let group = or_skip!(Group::create("empty"), no_group);
    refused(&["--cgroup", "/no/such/group"], 125, "there is no control group /no/such/group below /sys");
    refused(&["--unit", "no-such-unit.service"], 125, "no unit no-such-unit.service runs");
    refused(&["--unit", "sshd"], 125, "sshd is not the name of a unit");
    refused(&["--unit", &group.name()], 125, "no process runs in control group /corewise-test-");
}
