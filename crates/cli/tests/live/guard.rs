//! A placement that does not help the running program is reverted.

use crate::common::{Running, binds_all, burn, corewise, masks_of, wait_for};
use corewise_testing::needs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Two threads that do the same work again and again, for ever; some of their functions are called at a rate
/// that can be counted, however fast the machine is.
const STEADY: &str = "
#include <pthread.h>
#include <stdint.h>
static __thread volatile uint64_t sum;
__attribute__((noinline)) void inner(uint64_t n) { for (uint64_t i = 0; i < n; i++) sum += i * i; }
__attribute__((noinline)) void outer(void) { for (int i = 0; i < 5; i++) inner(200000); sum++; }
__attribute__((noinline)) void above(void) { for (int i = 0; i < 4; i++) outer(); sum++; }
__attribute__((noinline)) void *top(void *none) { for (;;) above(); return none; }
int main(void) { pthread_t other; pthread_create(&other, 0, top, 0); top(0); }
";

fn child_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let is_ours = |child: &u32| {
        std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name.trim() == "steady")
    };
    children.split_whitespace().filter_map(|word| word.parse().ok()).find(is_ours)
}

fn start(directory: &Path, report: &Path) -> Running {
    let [source, program] = ["steady.c", "steady"].map(|name| directory.join(name));
    std::fs::write(&source, STEADY).unwrap();
    let compiled = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source).status();
    assert!(compiled.unwrap().success());
    let policy = binds_all(directory);
    let mut command = corewise();
    command.args(["run", "--interval", "200ms", "--policy", &policy, "--report"]).arg(report);
    Running(command.arg("--").arg(program).stderr(Stdio::null()).spawn().unwrap())
}

#[test]
fn a_placement_that_does_harm_is_taken_back() {
    needs!(Root, TwoPes, Perf, Python);
    // A thread bound to PE 0 gets next to nothing, however busy the machine is otherwise.
    let hog =
        Command::new("taskset").args(["-c", "0", &burn(), "600", "8*int"]).stdout(Stdio::null()).spawn();
    let _hog = Running(hog.unwrap());
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let mut run = start(directory.path(), &report);
    let program = wait_for(|| child_of(run.0.id()));
    let is_bound = || masks_of(program).iter().any(|mask| mask == "0");
    wait_for(|| is_bound().then_some(()));
    // Epochs without the placement are shorter than that.
    let mut last_bound = Instant::now();
    wait_for(|| {
        if is_bound() {
            last_bound = Instant::now();
        }
        (last_bound.elapsed() > Duration::from_secs(3)).then_some(())
    });
    kill(Pid::from_raw(program as i32), Signal::SIGTERM).unwrap();
    run.0.wait().unwrap();
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let found = &report["guard"];
    // Beside other tests progress varies, and other PEs may be as busy: then the gain remains unclear.
    let is_clear = found["state"] == "taken_back";
    assert!(is_clear || found["state"] == "not_told", "{found:#}");
    let gain = found["gain"]["value"].as_f64().unwrap();
    assert!(!is_clear || gain < 0.0, "{found:#}");
}
