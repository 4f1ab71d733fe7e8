//! Programs in a CPU quota: their idle threads spin for a shorter time while the quota is spent.

use crate::common::{Running, corewise, wait_for};
use crate::waits::{compiled_study, spins_as_by_default};
use corewise_testing::{Capability, is_refusal, needs, or_skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The period of a quota, in µs.
const PERIOD: u32 = 100_000;

/// A control group of version 1 or 2 in another one that may have a quota, and comes before everything else
/// on the machine: what is in it waits for nobody else's sake.
struct Nested {
    outer: PathBuf,
    is_v1: bool,
}

impl Nested {
    fn create() -> Result<Nested, Error> {
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let is_v1 = v1.is_dir();
        let above = if is_v1 { v1 } else { Path::new("/sys/fs/cgroup") };
        let outer = above.join(format!("corewise-test-quota-{}", std::process::id()));
        fs::create_dir_all(outer.join("inner"))?;
        let group = Nested { outer, is_v1 };
        let (file, weight) = if is_v1 { ("cpu.shares", "200000") } else { ("cpu.weight", "10000") };
        fs::write(group.outer.join(file), weight)?;
        Ok(group)
    }

    fn take(&self, pid: u32) {
        fs::write(self.outer.join("inner/cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Gives it so many percent of a PE.
    fn limit(&self, percent: u32) {
        let us = PERIOD / 100 * percent;
        let (file, text) = match self.is_v1 {
            true => ("cpu.cfs_quota_us", us.to_string()),
            false => ("cpu.max", format!("{us} {PERIOD}")),
        };
        fs::write(self.outer.join(file), text).unwrap();
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        for folder in [self.outer.join("inner"), self.outer.clone()] {
            // A process that has been killed is in its group for a moment longer.
            while fs::remove_dir(&folder).is_err_and(|error| error.kind() == ErrorKind::ResourceBusy) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }
}

/// Others may need its PEs, too, and be the reason: then it is started again.
#[test]
fn idle_threads_spin_shortly_while_a_quota_around_their_group_is_spent_and_the_report_says_so() {
    needs!(TwoPes, Root);
    let group = or_skip!(Nested::create(), |error| is_refusal(error).then_some(Capability::Cgroup));
    group.limit(50);
    let directory = tempfile::tempdir().unwrap();
    let binary = compiled_study(directory.path(), "cc", "serial");
    wait_for(|| is_in_quota(&group, directory.path(), &binary).then_some(()));
}

/// Runs the program in the group until its idle threads spin shortly. Returns whether the quota was why.
fn is_in_quota(group: &Nested, directory: &Path, binary: &Path) -> bool {
    let report = directory.join("report.json");
    let mut command = corewise();
    command.args(["run", "--guard", "off", "--report"]).arg(&report);
    // Rounds of 0.3 ms, half of the time serial.
    command.args(["--", "sh", "-c", "echo $$; exec \"$0\" 1000000000 100000 50000"]).arg(binary);
    command.env_remove("OMP_WAIT_POLICY").env("OMP_NUM_THREADS", "2");
    let mut run = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut pid = String::new();
    BufReader::new(run.0.stdout.take().unwrap()).read_line(&mut pid).unwrap();
    let pid: u32 = pid.trim().parse().unwrap();
    group.take(pid);
    wait_for(|| spins_shortly(pid).then_some(()));
    kill(Pid::from_raw(pid as i32), Signal::SIGTERM).unwrap();
    run.0.wait().unwrap();
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    report["waits"]["in_quota"] == true
}

/// Whether the idle threads of a process spin for a shorter time than by default; not before its library is
/// there.
fn spins_shortly(pid: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.contains("libgomp") && !spins_as_by_default(pid)
}
