//! By which facts programs are judged: their own, whatever ran before in their place, and as long as they
//! live.

use crate::common::{Running, corewise, wait_for};
use crate::daemon::{Daemon, answer, ask};
use corewise_testing::needs;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// The masks of the living threads of a process.
fn masks(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_living = |status: String| {
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let is_over = field("State:").is_none_or(|state| state.starts_with(['Z', 'X']));
        field("Cpus_allowed_list:").filter(|_| !is_over).map(str::to_owned)
    };
    tasks.filter_map(|task| of_living(std::fs::read_to_string(task.path().join("status")).ok()?)).collect()
}

/// Returns the rule that `corewise rules why` names for a process.
fn rule_of(rules: &Path, pid: u32) -> String {
    let output = corewise().args(["rules", "why", "--config-dir"]).arg(rules).arg(pid.to_string()).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

#[test]
fn a_program_that_takes_the_place_of_another_one_of_its_name_is_judged_by_its_own_facts() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let shell = std::fs::canonicalize("/bin/sh").unwrap();
    for folder in ["a", "b"] {
        std::fs::create_dir(path(folder)).unwrap();
        std::fs::copy(&shell, path(folder).join("sh")).unwrap();
    }
    let script = r#"true & wait; while [ ! -e "$0" ]; do :; done; exec "$1" -c 'while :; do :; done'"#;
    let mut command = Command::new(path("a/sh"));
    let program = Running(command.args(["-c", script]).arg(path("go")).arg(path("b/sh")).spawn().unwrap());
    let pid = program.0.id();
    let rules = "[[rule]]\nname = 'a'\nmatch.exe = '*/a/sh'\nleave-alone = true\n\
                 [[rule]]\nname = 'b'\nmatch.exe = '*/b/sh'\npes = '1'\n";
    let daemon = Daemon::start_as(pid, rules, &[]);
    // It is unknown until the daemon has looked for the first time.
    let shown = || ask(&daemon.socket(), &[&pid.to_string(), "--json"]);
    let is_a = |shown: Value| shown["rule"] == "a";
    wait_for(|| serde_json::from_slice(&shown().stdout).is_ok_and(is_a).then_some(()));
    assert_ne!(masks(pid), ["1"]);
    std::fs::write(path("go"), "").unwrap();
    wait_for(|| (masks(pid) == ["1"]).then_some(()));
}

const LEADER: &str = "#include <pthread.h>\n\
    static void *burn(void *none) { for (volatile long i = 0;; i++); return none; }\n\
    int main(void) { pthread_t t; pthread_create(&t, 0, burn, 0); pthread_create(&t, 0, burn, 0); \
    pthread_exit(0); }\n";

#[test]
fn a_process_whose_first_thread_has_ended_is_attached_to_placed_by_rules_and_shown() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("leader.c"), directory.path().join("leader"));
    std::fs::write(&source, LEADER).unwrap();
    assert!(
        Command::new("cc").arg("-pthread").arg("-o").args([&program, &source]).status().unwrap().success()
    );
    let child = Running(Command::new(&program).stdout(Stdio::null()).spawn().unwrap());
    let pid = child.0.id();
    wait_for(|| (masks(pid).len() == 2).then_some(()));
    let mut run = corewise();
    run.args(["run", "-q", "--no-daemon", "--pid", &pid.to_string(), "--duration", "300ms", "--dry-run"]);
    assert!(run.status().unwrap().success());
    let rules = "[[rule]]\nname = 'ended'\nmatch.exe = '*/leader'\npes = '1'\n";
    let daemon = Daemon::start_as(pid, rules, &[]);
    wait_for(|| (masks(pid) == ["1", "1"]).then_some(()));
    let shown = answer(&daemon.socket(), &[&pid.to_string()]);
    assert_eq!((&shown["rule"], &shown["program"]), (&"ended".into(), &"leader".into()), "{shown}");
    std::fs::write(directory.path().join("rules.toml"), rules).unwrap();
    let why = rule_of(directory.path(), pid);
    assert!(why.lines().any(|line| line.contains("ended") && line.contains("matches")), "{why}");
}
