//! PEs that are made slower for a while, and nothing that stays slow.

use crate::common::{corewise, wait_for};
use corewise_testing::{needs, skip};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};

/// The PE that these tests slow down, one after the other.
static PE_0: Mutex<()> = Mutex::new(());

/// Whether the output says that the machine lacks what it takes.
fn lacks_real_time(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stderr).contains("real-time scheduling is not permitted")
}

fn alone() -> MutexGuard<'static, ()> {
    PE_0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The output of an emulation that came about: a machine where others work may take several attempts.
fn emulate(make: impl Fn() -> Command) -> Output {
    wait_for(|| {
        let output = make().output().unwrap();
        let missed = String::from_utf8_lossy(&output.stderr).contains("of its speed, not at");
        (!missed).then_some(output)
    })
}

#[test]
fn a_pe_is_slow_while_the_command_runs_and_its_exit_status_is_passed_on() {
    let _alone = alone();
    let output = emulate(|| {
        let mut command = corewise();
        command.args(["emulate-slow", "0", "--speed", "0.5", "--by", "threads", "--json", "--"]);
        command.args(["sh", "-c", "grep -l '^slow 0$' /proc/$PPID/task/*/comm; sleep 0.2; exit 3"]);
        command
    });
    if lacks_real_time(&output) {
        skip!(RealTime, "{output:?}");
    }
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 1, "{output:?}");
    let outcome: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((&outcome["evidence"], &outcome["by"]), (&"emulated".into(), &"threads".into()));
    for figure in ["measured", "time_left"] {
        let share = outcome["pes"][0][figure].as_f64().unwrap();
        assert!((0.4..0.6).contains(&share), "{figure}: {outcome}");
    }
}

#[test]
fn a_run_on_a_slow_machine_places_threads() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let output = emulate(|| {
        let mut command = corewise();
        command.args(["emulate-slow", "0", "--speed", "0.5", "--by", "threads", "-q", "--"]);
        command.arg(env!("CARGO_BIN_EXE_corewise")).args(["run", "-q", "--report"]).arg(&report);
        command.args(["sh", "-c", "exit 3"]);
        command
    });
    if lacks_real_time(&output) {
        skip!(RealTime, "{output:?}");
    }
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!(report["dry_run"], false, "{report}");
    // It knows which PE is slow, unless that is the only one.
    let slow = report["kinds"].as_array().unwrap().last().map(|kind| &kind["pes"]);
    assert_eq!(slow.is_some(), std::thread::available_parallelism().unwrap().get() > 1, "{report}");
    assert!(slow.is_none_or(|pes| pes == "0"), "{report}");
}

/// An emulation until it is ended, once it is in force; `None` where the machine lacks what it takes.
fn emulation() -> Option<Child> {
    wait_for(|| {
        let mut command = corewise();
        command.args(["emulate-slow", "0", "--speed", "0.5", "--by", "threads"]).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stderr.as_mut().unwrap()), &mut line)
            .unwrap();
        if line.contains("emulated: PEs 0 at 0.5") {
            return Some(Some(child));
        }
        child.wait().unwrap();
        line.contains("real-time scheduling is not permitted").then_some(None)
    })
}

#[test]
fn a_slow_pe_has_one_user_and_is_released_after_a_kill() {
    let _alone = alone();
    let Some(mut first) = emulation() else {
        skip!(RealTime, "no real-time policy");
    };
    let second = corewise().args(["emulate-slow", "0", "--speed", "0.5", "--", "true"]).output().unwrap();
    assert_eq!(second.status.code(), Some(125), "{second:?}");
    assert!(
        String::from_utf8_lossy(&second.stderr).contains("PE 0 is already slowed down by another"),
        "{second:?}"
    );
    first.kill().unwrap();
    first.wait().unwrap();
    let mut third = emulation().expect("there was one just now");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(third.id() as i32), nix::sys::signal::Signal::SIGINT)
        .unwrap();
    assert!(third.wait().unwrap().success());
}

/// The command, on a machine whose PE 0 has a clock that can be limited, though nothing comes of it. `None`
/// where nothing can be mounted.
fn with_a_clock(directory: &Path, arguments: &[&str]) -> Command {
    let script = "system=/sys/devices/system/cpu; cp -r $system \"$0/cpu\" 2>/dev/null; \
                  mkdir -p \"$0/cpu/cpu0/cpufreq\" && cd \"$0/cpu/cpu0/cpufreq\" && \
                  echo 4000000 > scaling_max_freq && echo 800000 > cpuinfo_min_freq && \
                  echo 0 > affected_cpus && cd / && mount --bind \"$0/cpu\" $system && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(directory).arg(env!("CARGO_BIN_EXE_corewise"));
    command.args(["emulate-slow", "0", "--speed", "0.5"]).args(arguments);
    command.env("XDG_RUNTIME_DIR", directory).stderr(Stdio::piped()).stdout(Stdio::piped());
    command
}

fn limit(directory: &Path) -> Option<String> {
    let file = directory.join("cpu/cpu0/cpufreq/scaling_max_freq");
    Some(std::fs::read_to_string(file).ok()?.trim().to_owned())
}

#[test]
fn a_clock_that_does_not_help_is_given_back_and_threads_do_it() {
    needs!(Root);
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let output = emulate_with_clock(directory.path());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.to_lowercase().contains("permi") {
        skip!(Mount, "{said}");
    }
    assert!(output.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "4000000", "{said}");
    assert!(said.contains("not by the clock: PE 0 runs at"), "{said}");
    assert!(said.contains("real-time threads take 50 % of their time"), "{said}");
}

fn emulate_with_clock(directory: &Path) -> Output {
    let file = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq";
    wait_for(|| {
        let _ = std::fs::remove_dir_all(directory.join("cpu"));
        let output = with_a_clock(directory, &["--", "cat", file]).output().unwrap();
        (output.status.code() != Some(125)).then_some(output)
    })
}

#[test]
fn a_limit_on_the_clock_is_given_back_after_a_kill_9() {
    needs!(Root);
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let mut run = with_a_clock(directory.path(), &["--by", "frequency"]).spawn().unwrap();
    let is_limited = wait_for(|| {
        let has_ended = run.try_wait().unwrap().is_some();
        (has_ended || limit(directory.path()).as_deref() == Some("2000000")).then_some(!has_ended)
    });
    run.kill().unwrap();
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !is_limited && said.to_lowercase().contains("permi") {
        skip!(Mount, "{said}");
    }
    assert!(is_limited, "{said}");
    wait_for(|| (limit(directory.path()).as_deref() == Some("4000000")).then_some(()));
    // The guardian has nothing left to do: its journal is gone.
    wait_for(|| std::fs::read_dir(directory.path().join("corewise")).unwrap().next().is_none().then_some(()));
}
