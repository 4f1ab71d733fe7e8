//! Policies that are other programs: the example, and programs that do all that they should not.

use crate::common::{Running, burn, corewise, masks_of, report_of, wait_for};
use corewise_sys::affinity;
use corewise_testing::needs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A program that greets well and then does something else.
fn greeting_then(what: &str) -> String {
    within("20ms", what)
}

/// The same, with so much time for each answer.
fn within(deadline: &str, what: &str) -> String {
    format!("exec:deadline={deadline},read greeting; echo '{{\"version\":1}}'; {what}")
}

fn run(policy: &str, environment: &[(&str, &str)], command: &[&str]) -> Output {
    let options = ["run", "--interval", "50ms", "--counters", "none", "--policy", policy, "--"];
    corewise().args(options).args(command).envs(environment.iter().copied()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The processes whose command line holds a text.
fn processes_with(text: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_text = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    pids.filter(has_text).collect()
}

#[test]
fn the_example_keeps_fpu_intensive_threads_apart() {
    needs!(TwoPes, Perf, Python);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/apart.py");
    let policy = format!("exec:deadline=5s,python3 {}", example.display());
    // What the program wants is shown, not whether it helps.
    let arguments = ["--policy", &policy, "--interval", "200ms", "--guard", "off"];
    let report = report_of(&arguments, &["taskset", "-c", "0-1", &burn(), "4", "fp", "fp", "int"]);
    let decisions = report["decisions"].as_array().unwrap();
    let mut bound: Vec<(&Value, &Value)> = decisions
        .iter()
        .filter(|decision| decision["pes"].is_string() && decision["outcome"] == "done")
        .map(|decision| (&decision["tid"], &decision["pes"]))
        .collect();
    bound.dedup();
    let pes = |pe: &str| bound.iter().filter(|(_, pes)| *pes == pe).count();
    assert!(pes("0") > 0 && pes("1") > 0, "{report:#}");
    let class = |name: &str| {
        let thread = report["threads"].as_array().unwrap().iter().find(|thread| thread["name"] == name);
        (thread.unwrap()["fpu_class"].clone(), thread.unwrap()["bindings"].as_array().unwrap().len())
    };
    assert_eq!(class("int"), (Value::from("light"), 0), "{report:#}");
    assert!(report["policy"].as_str().unwrap().starts_with("exec:deadline=5s,python3 "), "{report:#}");
}

#[test]
fn a_program_that_goes_wrong_is_given_up_and_the_application_runs_on() {
    let late = "5 answers in a row took longer than 20ms";
    for (deadline, what, expected) in [
        ("5s", "read scene; exit 3", "it has ended"),
        ("5s", "read scene; kill -9 $$", "it has ended"),
        ("5s", "read scene; echo hello; sleep 1000", "it answered `hello`"),
        (
            "5s",
            "read scene; echo '{\"step\":1,\"bind\":[{\"thread\":\"1-1\",\"pes\":\"0\"}]}'; sleep 1000",
            "not a thread",
        ),
        ("20ms", "sleep 1000", late),
        ("20ms", "kill -STOP $$", late),
        ("5s", "exec <&-; sleep 1000", "it reads no more"),
        ("60s", "exec >&-; sleep 1000", "closed its output"),
        ("5s", "yes | tr -d '\\n'", "given up"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let said = directory.path().join("said");
        let mut run = corewise();
        run.args([
            "run",
            "--interval",
            "50ms",
            "--counters",
            "none",
            "--policy",
            &within(deadline, what),
            "--",
        ]);
        // The application ends when the policy has been given up.
        let application = ["sh", "-c", "read line; exit 7"];
        let errors = std::fs::File::create(&said).unwrap();
        let mut run = run.args(application).stdin(Stdio::piped()).stderr(errors).spawn().unwrap();
        let said = || std::fs::read_to_string(&said).unwrap();
        wait_for(|| said().contains("nothing is bound any more").then_some(()));
        drop(run.stdin.take());
        assert_eq!(run.wait().unwrap().code(), Some(7), "{what}: {}", said());
        assert!(said().contains(expected), "{what}: {}", said());
    }
}

#[test]
fn a_program_that_does_not_greet_is_reported_before_anything_is_run() {
    for (policy, expected) in [
        ("exec:exit 1", "the policy exec: `exit 1`: it has ended"),
        ("exec:echo hello; sleep 1000", "it answered `hello`"),
        ("exec:echo '{\"version\":7}'", "it speaks version 7"),
        ("exec:", "the value must be a command"),
    ] {
        let output = run(policy, &[], &["echo", "was run"]);
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
}

/// A policy that asks for events and writes every scene to a file.
fn listening(scenes: &Path) -> String {
    format!(
        "exec:deadline=5s,read greeting; echo '{{\"version\":1,\"events\":true}}'; n=0; while read scene; do \
         echo \"$scene\" >> {}; n=$((n+1)); echo \"{{\\\"step\\\":$n,\\\"bind\\\":[]}}\"; done",
        scenes.display()
    )
}

#[test]
fn changes_of_tlp_are_reported_with_and_without_bpf() {
    for source in ["auto", "poll"] {
        let directory = tempfile::tempdir().unwrap();
        let scenes = directory.path().join("scenes");
        let policy = listening(&scenes);
        let options = ["run", "--quiet", "--interval", "3600s", "--counters", "none", "--discovery", source];
        let alternating = "while :; do sleep 0.2; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done";
        let mut run = corewise();
        run.args(options).args(["--policy", &policy, "--", "sh", "-c", alternating]);
        let mut run = run.spawn().unwrap();
        for threads in [1, 0, 1] {
            let event = format!("\"event\":\"tlp_changed\",\"application\":0,\"runnable_threads\":{threads}");
            wait_for(|| std::fs::read_to_string(&scenes).unwrap_or_default().contains(&event).then_some(()));
            std::fs::write(&scenes, "").unwrap();
        }
        kill(Pid::from_raw(run.id() as i32), Signal::SIGTERM).unwrap();
        run.wait().unwrap();
    }
}

#[test]
fn a_program_that_asks_for_events_hears_at_once_that_other_pes_are_allowed() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let scenes = directory.path().join("scenes");
    let policy = listening(&scenes);
    // No look at the end of an interval falls into the test.
    let options = ["run", "--quiet", "--interval", "3600s", "--counters", "none", "--policy", &policy, "--"];
    let before = affinity::get(0).unwrap();
    let mut corewise = corewise().args(options).args(["sleep", "1000"]).spawn().unwrap();
    let received = || std::fs::read_to_string(&scenes).unwrap_or_default();
    wait_for(|| received().contains("\"thread_started\"").then_some(()));
    assert!(!received().contains("\"allowed_pes\":\"\""), "no scene without PEs: {}", received());
    let one = before.last().unwrap();
    let set = format!("taskset -p -c {one} {}", corewise.id());
    assert!(Command::new("sh").args(["-c", &set]).stdout(Stdio::null()).status().unwrap().success());
    let expected = format!("{{\"event\":\"allowed_changed\",\"pes\":\"{one}\"}}");
    wait_for(|| received().contains(&expected).then_some(()));
    kill(Pid::from_raw(corewise.id() as i32), Signal::SIGTERM).unwrap();
    corewise.wait().unwrap();
}

#[test]
fn what_the_program_has_started_ends_with_the_run() {
    let marks = ["100000.25", "100000.5", "100000.75"];
    let [plain, left, session] = marks;
    let what = format!(
        "sleep {plain} & (sleep {left} &) ; setsid sh -c 'setsid sleep {session} & exit' ; sleep {plain}"
    );
    let output = run(&greeting_then(&what), &[], &["true"]);
    assert!(output.status.success(), "{output:?}");
    // The keeper kills them a moment after corewise has ended.
    for mark in marks {
        wait_for(|| processes_with(&format!("sleep\x00{mark}")).is_empty().then_some(()));
    }
}

/// A run of the test program in which a command has bound everything to PE 0 and has left its process id in a
/// file.
fn bound_run(directory: &Path) -> (Running, PathBuf) {
    let file = directory.join("pid");
    let script = directory.join("all-on-0.py");
    let text = format!(
        "import json, os, sys\n\
         sys.stdin.readline()\n\
         print('{{\"version\": 1}}', flush=True)\n\
         open('{file}.new', 'w').write(str(os.getpid()))\n\
         os.rename('{file}.new', '{file}')\n\
         for line in sys.stdin:\n\
         \x20   scene = json.loads(line)\n\
         \x20   wanted = [t for t in scene['threads'] if t['placeable'] and t['name'] == 'int']\n\
         \x20   bind = [{{'thread': t['thread'], 'pes': '0'}} for t in wanted]\n\
         \x20   print(json.dumps({{'step': scene['step'], 'bind': bind}}), flush=True)\n",
        file = file.display()
    );
    std::fs::write(&script, text).unwrap();
    let policy = format!("exec:deadline=5s,python3 {}", script.display());
    let options = ["run", "--quiet", "--interval", "50ms", "--counters", "none", "--policy", &policy, "--"];
    let mut command = corewise();
    command.args(options).args([&burn(), "600", "2*int"]).stdout(Stdio::null());
    (Running(command.spawn().unwrap()), file)
}

#[test]
fn a_killed_program_leaves_nothing_bound_and_a_killed_corewise_no_program() {
    needs!(TwoPes, Python);
    for kills_corewise in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let (mut run, file) = bound_run(directory.path());
        let program: u32 = wait_for(|| std::fs::read_to_string(&file).ok()?.parse().ok());
        // The guardian has corewise's command line, and so the command's in it, until it has another name.
        let is_burning = |pid: &u32| {
            let program = std::fs::read_link(format!("/proc/{pid}/exe"));
            parent(*pid) == Some(run.0.id()) && program.is_ok_and(|program| program.ends_with("burn"))
        };
        let burning: u32 = wait_for(|| processes_with("burn\x00600\x002*int").into_iter().find(is_burning));
        wait_for(|| masks_of(burning).contains(&"0".to_owned()).then_some(()));
        let victim = if kills_corewise { run.0.id() } else { program };
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(victim as i32), nix::sys::signal::SIGKILL).unwrap();
        wait_for(|| (!masks_of(burning).contains(&"0".to_owned())).then_some(()));
        wait_for(|| (!Path::new(&format!("/proc/{program}")).exists()).then_some(()));
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(burning as i32), nix::sys::signal::SIGKILL)
            .unwrap();
        run.0.wait().unwrap();
    }
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

#[test]
fn the_program_has_no_rights_and_descriptors_that_it_does_not_need() {
    let look = "grep NoNewPrivs: /proc/self/status >&2; echo descriptors >&2; ls /proc/self/fd >&2; \
        echo user $(id -u) groups $(id -G) >&2; echo session $(cut -d' ' -f6 /proc/$$/stat) >&2; exit";
    let output = run(&greeting_then(look), &[], &["sleep", "0.5"]);
    let said_ = said(&output);
    // The fourth is that of `ls` itself.
    assert!(said_.contains("NoNewPrivs:\t1\n") && said_.contains("descriptors\n0\n1\n2\n3\nuser"), "{said_}");
    let own = nix::unistd::getsid(None).unwrap();
    assert!(said_.contains("session ") && !said_.contains(&format!("session {own}\n")), "{said_}");
    needs!(Root);
    let sudo = [("SUDO_UID", "65534"), ("SUDO_GID", "65533")];
    let output = run(&greeting_then(look), &sudo, &["sh", "-c", "echo command $(id -u); sleep 0.5"]);
    let said_ = said(&output);
    assert!(said_.contains("user 65534 groups 65533"), "{said_}");
    assert_eq!(output.stdout, b"command 0\n", "the command is what it is without corewise");
}
