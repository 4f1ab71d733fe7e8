//! `corewise daemon`: programs are placed without a prefix, clients get answers, and everything is restored.

use crate::attach::{Program, bound};
use crate::common::{Running, burn, corewise, masks_of, wait_for};
use crate::groups::{Group, no_group};
use crate::waits::{compiled_study, compiled_team, crowd, is_idle, spin_count};
use corewise_binding::runtimes::libgomp;
use corewise_testing::{needs, or_skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// One of its working threads is bound to PE 0 while there are several; one that works alone is moved there.
pub const POLICY: &str = "rr:stay=1h";

/// A daemon of one program, which PE 0 is the fast one for.
pub struct Daemon {
    process: Running,
    directory: TempDir,
}

impl Daemon {
    pub fn start(pid: u32) -> Daemon {
        Daemon::start_with(pid, "")
    }

    fn start_with(pid: u32, rules: &str) -> Daemon {
        Daemon::start_as(pid, rules, &[])
    }

    /// A daemon that may be asked by others.
    pub fn start_as(pid: u32, rules: &str, options: &[&str]) -> Daemon {
        let mut daemon = Daemon::start_saying(pid, rules, options, Stdio::piped());
        let lines = BufReader::new(daemon.child().stderr.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("ready")), "it does not get ready");
        daemon
    }

    /// A daemon that writes its log there, and is perhaps not ready yet.
    pub fn start_saying(pid: u32, rules: &str, options: &[&str], log: Stdio) -> Daemon {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("rules.toml"), rules).unwrap();
        let mut daemon = corewise();
        daemon.args(["daemon", &pid.to_string(), "--interval", "100ms", "--policy", POLICY, "--fast", "0"]);
        daemon.args(options);
        daemon.arg("--socket").arg(directory.path().join("socket"));
        daemon.arg("--config-dir").arg(directory.path());
        let child = daemon.stderr(log).spawn().unwrap();
        Daemon { process: Running(child), directory }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Writes other rules, and has them read.
    pub fn reload(&self, rules: &str) -> std::process::Output {
        std::fs::write(self.directory.path().join("rules.toml"), rules).unwrap();
        corewise().args(["rules", "reload", "--socket"]).arg(self.socket()).output().unwrap()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.process.0
    }

    pub fn end(&mut self, signal: Signal) -> Option<i32> {
        kill(Pid::from_raw(self.child().id() as i32), signal).unwrap();
        self.child().wait().unwrap().code()
    }
}

pub fn ask(socket: &Path, arguments: &[&str]) -> std::process::Output {
    corewise().arg("status").args(arguments).arg("--socket").arg(socket).output().unwrap()
}

pub fn answer(socket: &Path, arguments: &[&str]) -> Value {
    let output = ask(socket, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_daemon_places_a_running_program_tells_why_and_gives_it_back() {
    needs!(TwoPes);
    let program = Program::start(&["60", "int", "int"]);
    let before = masks_of(program.pid());
    let mut daemon = Daemon::start(program.pid());
    wait_for(|| (bound(program.pid()) > 0).then_some(()));
    let status = wait_for(|| Some(answer(&daemon.socket(), &[])).filter(|status| status["bound"] == 1));
    assert_eq!((&status["policy"], &status["threads"]), (&POLICY.into(), &3.into()), "{status}");
    assert_eq!(status["applications"][0]["name"], "burn", "{status}");
    let threads = answer(&daemon.socket(), &[&program.pid().to_string()]);
    let placed = |thread: &&Value| thread["bound"] == "0" && thread["reason"].as_str().is_some();
    assert_eq!(threads["threads"].as_array().unwrap().iter().filter(placed).count(), 1, "{threads}");
    let text = String::from_utf8(ask(&daemon.socket(), &[]).stdout).unwrap();
    let sentence = format!("The daemon (policy {POLICY}) has bound");
    assert!(text.starts_with(&sentence) && text.contains(" burn "), "{text}");
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
    assert_eq!(masks_of(program.pid()), before);
    assert!(!daemon.socket().exists());
}

/// As scripts do that prepare something, and as systemd does.
#[test]
fn a_program_that_takes_the_place_of_a_bound_one_is_placed_too() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let (go, burn) = (directory.path().join("go"), burn());
    let script = r#"while [ ! -e "$0" ]; do :; done; exec "$1" 60 int"#;
    let program = Command::new("sh").args(["-c", script]).arg(&go).arg(&burn).spawn().unwrap();
    let program = Running(program);
    let pid = program.0.id();
    // What is placed is not taken back for a trial.
    let daemon = Daemon::start_with(pid, "[daemon]\nguard = \"off\"\n");
    wait_for(|| (answer(&daemon.socket(), &[])["bound"] == 1).then_some(()));
    std::fs::write(&go, "").unwrap();
    let is_placed = |thread: &Value| thread["name"] == "int" && thread["bound"] == "0";
    wait_for(|| {
        // While it executes the program there is a moment without a thread.
        let answer = ask(&daemon.socket(), &[&pid.to_string(), "--json"]).stdout;
        let answer: Value = serde_json::from_slice(&answer).ok()?;
        answer["threads"].as_array()?.iter().any(is_placed).then_some(())
    });
}

#[test]
fn a_daemon_that_is_killed_leaves_nothing_and_another_one_takes_its_place() {
    needs!(TwoPes);
    let program = Program::start(&["60", "int", "int"]);
    let before = masks_of(program.pid());
    let mut daemon = Daemon::start(program.pid());
    wait_for(|| (bound(program.pid()) > 0).then_some(()));
    daemon.end(Signal::SIGKILL);
    // The guardian gives everything back.
    wait_for(|| (masks_of(program.pid()) == before).then_some(()));
    let mut next = corewise();
    next.args(["daemon", &program.pid().to_string(), "--dry-run", "--socket"]).arg(daemon.socket());
    let mut next = Running(next.stderr(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(next.0.stderr.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("ready")));
    let second = corewise()
        .args(["daemon", &program.pid().to_string(), "--dry-run", "--socket"])
        .arg(daemon.socket())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.code() == Some(1) && said.contains("another daemon has"), "{second:?}");
    assert_eq!(answer(&daemon.socket(), &[])["bound"], 0);
}

#[test]
fn a_daemon_without_its_guardian_gives_everything_back_and_ends_with_the_reason() {
    needs!(TwoPes);
    let program = Program::start(&["60", "int", "int"]);
    let before = masks_of(program.pid());
    let mut daemon = Daemon::start(program.pid());
    wait_for(|| (bound(program.pid()) > 0).then_some(()));
    let tasks = format!("/proc/{0}/task/{0}/children", daemon.child().id());
    let children = std::fs::read_to_string(tasks).unwrap();
    let is_guardian =
        |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "guardian\n";
    let guardian = children.split_whitespace().find(is_guardian).unwrap();
    kill(Pid::from_raw(guardian.parse().unwrap()), Signal::SIGKILL).unwrap();
    assert_eq!(daemon.child().wait().unwrap().code(), Some(1));
    assert_eq!(masks_of(program.pid()), before);
}

#[test]
fn programs_under_a_corewise_run_are_left_to_that() {
    needs!(TwoPes);
    // The shell has a child without a prefix, and one with.
    let script = "\"$1\" 60 int & exec \"$0\" run -q --policy default --waits off \"$1\" 60 int";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_corewise"), &burn()]).stdout(Stdio::null());
    let shell = Running(shell.spawn().unwrap());
    let under_run = || {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.0.id())).ok()?;
        let mut pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.find(|pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains("COREWISE_PID=")
                && std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("burn"))
        })
    };
    let theirs = wait_for(under_run);
    let daemon = Daemon::start(shell.0.id());
    let status = wait_for(|| Some(answer(&daemon.socket(), &[])).filter(|status| status["bound"] == 1));
    assert!(status["threads"].as_u64().unwrap() >= 4, "{status}");
    assert_eq!(bound(theirs), 0);
}

const LEFT_ALONE: &str = "[[rule]]\nname = \"tests\"\nmatch.name = \"burn\"\nleave-alone = true\n";

#[test]
fn rules_hold_from_the_moment_in_which_they_are_read_and_bad_ones_change_nothing() {
    needs!(TwoPes);
    let program = Program::start(&["60", "int", "int"]);
    let before = masks_of(program.pid());
    let daemon = Daemon::start_with(program.pid(), LEFT_ALONE);
    // It has looked twice, and decided once at least.
    let own_cost = |status: &Value| status["own_cpu"].as_f64().is_some();
    let status = wait_for(|| Some(answer(&daemon.socket(), &[])).filter(own_cost));
    assert_eq!((&status["bound"], masks_of(program.pid())), (&0.into(), before.clone()), "{status}");
    let bad = daemon.reload("[[rule]]\nname = \"tests\"\nmatch.name = \"burn\"\nleave_alone = true\n");
    let said = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert!(bad.status.code() == Some(1) && said.contains("rules.toml") && said.contains("leave"), "{said}");
    assert_eq!(masks_of(program.pid()), before);
    assert!(daemon.reload("").status.success());
    wait_for(|| (bound(program.pid()) > 0).then_some(()));
    assert!(daemon.reload(LEFT_ALONE).status.success());
    wait_for(|| (masks_of(program.pid()) == before).then_some(()));
}

#[test]
fn an_endless_row_of_programs_is_forgotten_and_the_next_one_is_still_an_application() {
    // More than are known at once, each under a name of its own.
    let script = "read go; i=0; while [ $i -lt 300 ]; do ln -s /bin/true p$i; ./p$i; i=$((i+1)); done; \
                  ln -s \"$0\" last; ./last 60 int; :";
    let programs = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", script, &burn()]).current_dir(&programs).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut shell = Running(shell.spawn().unwrap());
    let daemon = Daemon::start(shell.0.id());
    drop(shell.0.stdin.take());
    let names = |status: &Value| -> Vec<String> {
        let applications = status["applications"].as_array().into_iter().flatten();
        applications.map(|application| application["name"].as_str().unwrap().to_owned()).collect()
    };
    let lives = |status: &Value| names(status).contains(&"last".to_owned());
    let status = wait_for(|| Some(answer(&daemon.socket(), &[])).filter(lives));
    assert_eq!(names(&status).len(), 2, "the shell and its last program live: {status}");
    assert!(status["interval"].as_f64().is_some_and(|seconds| seconds >= 0.1), "{status}");
}

#[test]
fn asking_where_no_daemon_is_or_about_no_process_is_a_clear_error() {
    let directory = tempfile::tempdir().unwrap();
    let output = ask(&directory.path().join("none"), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("no daemon runs here") && said.contains("`corewise daemon` starts one"), "{said}");
    let program = Program::start(&["60", "int"]);
    let daemon = Daemon::start(program.pid());
    let output = ask(&daemon.socket(), &["1"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("there is no process 1,"), "{said}");
}

/// How the program of the tests is placed.
fn rule(settings: &str) -> String {
    format!("[[rule]]\nname = \"tests\"\nmatch.name = \"burn\"\n{settings}\n")
}

#[test]
fn a_rule_says_by_which_policy_a_program_is_placed_and_whether_that_is_tried() {
    needs!(TwoPes);
    let program = Program::start(&["60", "int", "int"]);
    let before = masks_of(program.pid());
    let daemon = Daemon::start_with(program.pid(), &rule("policy = \"none\""));
    // It has looked twice, and decided once at least.
    let own_cost = |status: &Value| status["own_cpu"].as_f64().is_some();
    let status = wait_for(|| Some(answer(&daemon.socket(), &[])).filter(own_cost));
    assert_eq!((&status["bound"], masks_of(program.pid())), (&0.into(), before.clone()), "{status}");
    let other = rule("policy = \"rr:stay=1h\"\nguard = \"off\"");
    assert!(daemon.reload(&other).status.success());
    wait_for(|| (bound(program.pid()) > 0).then_some(()));
    let threads = answer(&daemon.socket(), &[&program.pid().to_string()]);
    let by_rule = |thread: &Value| thread["reason"].as_str().is_some_and(|why| why.contains("its stay of"));
    assert!(threads["threads"].as_array().unwrap().iter().any(by_rule), "{threads}");
    assert_eq!(answer(&daemon.socket(), &[])["findings"], serde_json::json!([]), "nothing is tried");
    assert!(daemon.reload(&rule("")).status.success());
    let is_tried = |status: &Value| status["findings"].as_array().is_some_and(|found| !found.is_empty());
    wait_for(|| Some(answer(&daemon.socket(), &[])).filter(is_tried));
    assert!(daemon.reload(&rule("policy = \"none\"")).status.success());
    wait_for(|| (masks_of(program.pid()) == before).then_some(()));
}

#[test]
fn a_rule_keeps_a_program_on_its_pes_also_where_no_policy_binds_it() {
    needs!(TwoPes);
    let program = Program::start(&["60", "int"]);
    let before = masks_of(program.pid());
    let is_kept = || masks_of(program.pid()).iter().all(|mask| mask == "0");
    let mut daemon = Daemon::start_with(program.pid(), &rule("pes = \"0\"\npolicy = \"none\""));
    wait_for(|| is_kept().then_some(()));
    let threads = answer(&daemon.socket(), &[&program.pid().to_string()]);
    let by_rule =
        |thread: &Value| thread["reason"].as_str().is_some_and(|why| why.contains("a rule names the PEs"));
    assert!(threads["threads"].as_array().unwrap().iter().all(by_rule), "{threads}");
    assert!(daemon.reload(&rule("policy = \"none\"")).status.success());
    wait_for(|| (masks_of(program.pid()) == before).then_some(()));
    assert!(daemon.reload(&rule("pes = \"0\"\npolicy = \"none\"")).status.success());
    wait_for(|| is_kept().then_some(()));
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
    assert_eq!(masks_of(program.pid()), before);
}

#[test]
fn a_service_is_one_application_whatever_runs_in_it() {
    needs!(Root);
    let group = or_skip!(Group::create("daemon"), no_group);
    let script = "sleep 600 & \"$0\" 600 int > /dev/null & wait";
    let shell = Running(Command::new("sh").args(["-c", script, &burn()]).spawn().unwrap());
    let children = || {
        let pids = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", shell.0.id())).unwrap();
        let pids: Vec<u32> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        let is_shell = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sh")
        };
        (pids.len() == 2 && !pids.iter().any(is_shell)).then_some(pids)
    };
    let both = wait_for(children);
    both.iter().for_each(|pid| group.take_process(*pid));
    for (rules, names) in
        [("", vec![group.name(), "sh".to_owned()]), (BY_PROGRAM, named(&["burn", "sh", "sleep"]))]
    {
        let daemon = Daemon::start_with(shell.0.id(), rules);
        let found = |status: Value| {
            let applications = status["applications"].as_array()?;
            let mut found: Vec<String> =
                applications.iter().map(|of| of["name"].as_str().unwrap().to_owned()).collect();
            found.sort();
            (found == names).then_some(())
        };
        wait_for(|| found(answer(&daemon.socket(), &[])));
    }
    for pid in both {
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    }
}

const BY_PROGRAM: &str = "[daemon]\napplications = \"program\"\n";

fn named(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A rule for everything about waits.
fn about_waits(word: &str) -> String {
    format!("[[rule]]\nname = \"tests\"\nmatch.user = \"*\"\nwaits = \"{word}\"\n")
}

#[cfg(target_arch = "x86_64")]
#[test]
fn spin_counts_change_as_the_rules_of_the_moment_and_clients_permit() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(compiled_team(directory.path()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    libgomp::WISHES.iter().for_each(|wish| _ = command.env_remove(wish));
    let mut program = Running(command.spawn().unwrap());
    let mut output = BufReader::new(program.0.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    let pid = program.0.id();
    let own = spin_count(pid);
    let is_changed = |yes: bool| wait_for(|| ((spin_count(pid) < own) == yes).then_some(()));
    let crowd = crowd();
    // Its threads are not even read at first.
    let daemon = Daemon::start_with(pid, &about_waits("off"));
    let permitted = || {
        let answer = ask(&daemon.socket(), &[&pid.to_string(), "--json"]).stdout;
        serde_json::from_slice::<Value>(&answer).unwrap_or_default()["waits_permitted"].clone()
    };
    wait_for(|| (permitted() == "off").then_some(()));
    for word in ["turns", "off"] {
        assert!(daemon.reload(&about_waits("spin")).status.success());
        is_changed(true);
        assert_eq!(permitted(), "spin");
        assert!(daemon.reload(&about_waits(word)).status.success());
        is_changed(false);
    }
    assert!(daemon.reload("").status.success());
    is_changed(true);
    let client = |what: &str| {
        let mut client = corewise();
        client.args([what, &pid.to_string(), "--socket"]).arg(daemon.socket());
        assert!(client.status().unwrap().success());
    };
    client("detach");
    is_changed(false);
    client("attach");
    is_changed(true);
    drop(crowd);
}

/// Two programs that spin in code of their own.
#[test]
fn programs_take_turns_as_long_as_a_rule_permits_turns() {
    needs!(TwoPes, Perf, Root);
    let directory = tempfile::tempdir().unwrap();
    let binary = compiled_study(directory.path(), "cc", "pipeline");
    let programs = [(), ()].map(|()| {
        let mut command = Command::new(&binary);
        Running(command.arg("1000000000").stdout(Stdio::null()).spawn().unwrap())
    });
    let [one, other] = programs.each_ref().map(|program| program.0.id());
    let options = [&*other.to_string(), "--own-cost", "100"];
    let daemon = Daemon::start_as(one, &about_waits("turns"), &options);
    let take_turns = || is_idle(one) || is_idle(other);
    wait_for(|| take_turns().then_some(()));
    assert!(daemon.reload(&about_waits("spin")).status.success());
    // Each has had its turn again, and for longer than one takes nobody waits for another one.
    let mut normal = 0;
    wait_for(|| {
        normal = if take_turns() { 0 } else { normal + 1 };
        (normal == 50).then_some(())
    });
    let changed = answer(&daemon.socket(), &[&one.to_string()])["waits"].clone();
    let has_turns = |text: &Value| text.as_str().is_some_and(|text| text.starts_with("turns"));
    assert!(!changed.as_array().unwrap().iter().any(has_turns), "{changed}");
}
