//! `corewise run` on real threads of this machine: transparency, placement, restoration, faults.

use crate::common::{Running, burn, corewise, masks_of, report_of, shared_fpu, wait_for};
use corewise_testing::{needs, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn run(arguments: &[&str]) -> std::process::Output {
    corewise().arg("run").args(arguments).output().unwrap()
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).unwrap();
}

fn threads<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    report["threads"].as_array().unwrap().iter().filter(|thread| thread["name"] == name).collect()
}

#[test]
fn the_exit_status_is_the_commands() {
    for (arguments, status) in [
        (vec!["true"], 0),
        (vec!["--", "false"], 1),
        (vec!["sh", "-c", "exit 42"], 42),
        (vec!["/no/such/program"], 127),
        (vec!["no-such-program"], 127),
        (vec!["/etc/passwd"], 126),
        (vec!["/"], 126),
    ] {
        assert_eq!(run(&arguments).status.code(), Some(status), "{arguments:?}");
    }
}

#[test]
fn standard_streams_belong_to_the_command() {
    let mut child = corewise();
    child.args(["run", "--quiet", "sh", "-c", "cat; echo err >&2"]);
    let mut child =
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"through\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.stdout, output.stderr), (b"through\n".to_vec(), b"err\n".to_vec()));
}

#[test]
fn options_after_the_command_are_the_commands() {
    let output = run(&["--quiet", "echo", "--policy", "--", "-x"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--policy -- -x\n");
}

#[test]
fn one_line_is_said_at_the_end() {
    let output = run(&["true"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("corewise: ") && said.lines().count() == 1, "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_command_that_is_over_soon_is_not_watched_unless_a_report_is_wanted() {
    let trial = run(&["-q", "--discovery", "bpf", "true"]);
    if !trial.status.success() {
        skip!(Bpf, "{}", String::from_utf8_lossy(&trial.stderr));
    }
    // Whether it is over soon is the machine's matter.
    wait_for(|| {
        let said = run(&["true"]).stderr;
        let said = String::from_utf8_lossy(&said).into_owned();
        (said.contains("ended before watching began") && said.contains("--report")).then_some(())
    });
    assert_eq!(threads(&report_of(&[], &["true"]), "true").len(), 1);
}

#[test]
fn a_placement_that_is_asked_for_by_name_is_ready_before_the_command_begins() {
    let said = run(&["--policy", "spread", "true"]).stderr;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(!said.contains("ended before watching began") && !said.contains("watched from"), "{said}");
    assert!(said.contains("own cost"), "{said}");
}

#[test]
fn cpu_time_counts_from_the_start_whether_or_not_the_command_is_watched() {
    // It tells the time that it has used, in ticks of 10 ms.
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; cat /proc/$$/stat";
    for options in [&[][..], &["--policy", "spread"]] {
        let output = run(&[options, &["sh", "-c", script]].concat());
        let stat = String::from_utf8_lossy(&output.stdout).into_owned();
        let ticks = |field: usize| stat.split_whitespace().nth(field - 1)?.parse::<f64>().ok();
        let used = (ticks(14).unwrap() + ticks(15).unwrap()) / 100.0;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let before = |text: &str| said.split(text).next()?.rsplit(' ').next()?.parse::<f64>().ok();
        let (wall, busy) = (before(" s, ").unwrap(), before(" CPUs busy").unwrap());
        // Figures are rounded, and the shell does a little more after it has printed them.
        assert!((wall * busy - used).abs() < 0.05 + 0.01 * (wall + busy), "{used} s of CPU time; {said}");
    }
}

#[test]
fn a_signal_to_corewise_reaches_the_command() {
    let script = "trap 'echo got; exit 7' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child =
        corewise().args(["run", "-q", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    wait_for(|| {
        std::fs::read_to_string(format!("/proc/{}/task/{0}/children", child.id()))
            .ok()?
            .contains(' ')
            .then_some(())
    });
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    signal(child.id(), Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn a_command_that_stops_itself_stops_corewise_and_goes_on_with_it() {
    let mut child = corewise().args(["run", "-q", "sh", "-c", "kill -STOP $$; exit 5"]).spawn().unwrap();
    let state = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    };
    wait_for(|| (state(child.id()) == Some('T')).then_some(()));
    signal(child.id(), Signal::SIGCONT);
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn inherited_signal_settings_reach_the_command() {
    // As under nohup: an ignored SIGHUP stays ignored.
    let script =
        format!("trap '' HUP; exec {} run -q grep SigIgn /proc/self/status", env!("CARGO_BIN_EXE_corewise"));
    let alone =
        Command::new("sh").args(["-c", "trap '' HUP; exec grep SigIgn /proc/self/status"]).output().unwrap();
    let under = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&under.stdout), String::from_utf8_lossy(&alone.stdout));
    let blocked = run(&["-q", "grep", "SigBlk", "/proc/self/status"]);
    assert_eq!(String::from_utf8_lossy(&blocked.stdout), "SigBlk:\t0000000000000000\n");
}

#[test]
fn a_daemon_is_followed_to_its_end_if_asked_to() {
    let options = ["--wait", "--interval", "100ms"];
    let report = report_of(&options, &["sh", "-c", "(setsid sleep 0.6 &) ; exit 0"]);
    assert!(report["wall_seconds"].as_f64().unwrap() >= 0.5, "{report}");
    assert_eq!(threads(&report, "sleep").len(), 1);
}

#[test]
fn an_inner_corewise_only_watches() {
    let directory = tempfile::tempdir().unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(directory.path(), everybody).unwrap();
    // A copy is another file, as another build is.
    let outer = directory.path().join("corewise");
    let inner = directory.path().join("inner");
    for copy in [&outer, &inner] {
        std::fs::copy(env!("CARGO_BIN_EXE_corewise"), copy).unwrap();
    }
    let as_nobody = ["setpriv", "--reuid", "65534", "--clear-groups"];
    let root = nix::unistd::geteuid().is_root();
    for (outer, inner, between) in [
        (&inner, &inner, &[][..]),
        // As sudo does.
        (&inner, &inner, &["env", "-i"]),
        (&outer, &inner, &["env", "-i", "sh", "-c", "\"$@\"; exit $?", "sh"]),
        (&outer, &inner, if root { &as_nobody } else { &[] }),
    ] {
        let file = directory.path().join("inner.json");
        let mut command = Command::new(outer);
        command.args(["run", "-q"]).args(between).arg(inner).args(["run", "-q", "--report"]).arg(&file);
        let status = command.args(["sh", "-c", "exit 3"]).status().unwrap();
        assert_eq!(status.code(), Some(3), "{between:?}");
        let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(report["dry_run"], true, "{between:?}");
        assert!(report["notes"].to_string().contains("inside another"), "{between:?}: {report}");
        std::fs::remove_file(&file).unwrap();
    }
}

/// Runs a command where PEs 0 and 1 are said to share an FPU. Returns the report and what the command
/// printed.
fn placed(extra: &[&str], command: &[&str]) -> (Value, String) {
    let (directory, modules) = shared_fpu();
    let file = directory.path().join("report.json");
    let mut corewise = corewise();
    corewise
        // On a busy machine the guard's epochs would come before the end, and are no matter of these tests.
        .args(["run", "-q", "--guard", "off", "--interval", "250ms", "--report"])
        .arg(&file)
        .arg("--fpu-modules")
        .arg(&modules);
    let output = corewise.args(extra).arg("--").args(command).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    (report, String::from_utf8(output.stdout).unwrap())
}

#[test]
fn fpu_intensive_threads_are_recognised_and_bound() {
    needs!(TwoPes);
    // The thread that pins itself comes first: later it could be taken for a child of a thread that is bound
    // to the same PE.
    let (report, _) = placed(&[], &[&burn(), "2", "pin", "2*fp", "int"]);
    let usage = |name: &str| threads(&report, name)[0]["fpu_usage"].as_f64().unwrap();
    assert!(usage("fp") > 0.6 && usage("int") < 0.2, "{report:#}");
    let bound: Vec<&Value> =
        threads(&report, "fp").iter().map(|thread| &thread["bindings"][0]["pes"]).collect();
    assert!(bound.contains(&&Value::from("0")) && bound.contains(&&Value::from("1")), "{report:#}");
    for free in ["int", "pin"] {
        assert_eq!(threads(&report, free)[0]["bindings"], Value::Array(vec![]), "{free}");
    }
    assert_eq!(threads(&report, "pin")[0]["standing"], "self_pinned");
    let decision = &report["decisions"][0];
    assert!(decision["reason"].as_str().unwrap().contains("FPU usage"), "{decision}");
    assert_eq!(decision["outcome"], "done");
}

#[test]
fn a_report_is_explained_thread_by_thread() {
    needs!(TwoPes);
    let (report, _) = placed(&[], &[&burn(), "2", "pin", "2*fp", "int"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    std::fs::write(&file, report.to_string()).unwrap();
    let explain = |arguments: &[&str]| {
        let output = corewise().arg("explain").arg(&file).args(arguments).output().unwrap();
        let [out, error] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), out + &error)
    };
    let of_thread = |name: &str| {
        let tid = threads(&report, name)[0]["tid"].to_string();
        explain(&["--tid", &tid])
    };
    for (name, words) in [
        ("fp", "Why: it was bound to PE "),
        ("fp", "FPU-intensive threads: number 1 of them on the FPU module of PEs"),
        ("int", "it uses floating point too little to disturb others"),
        ("pin", "It set its own PEs, so it is left alone."),
    ] {
        let (well, said) = of_thread(name);
        assert!(well && said.contains(words), "{name}: no `{words}` in {said}");
    }
    let (well, said) = explain(&[]);
    assert!(well && said.contains("a floating-point unit (PEs 0-1)"), "{said}");
    assert!(said.contains("Not measured") && said.contains("pin "), "{said}");
    let (well, said) = explain(&["--tid", "1"]);
    assert!(!well && said.contains("lists no thread 1") && said.contains("fp "), "{said}");
}

#[test]
fn a_dry_run_decides_and_binds_nothing() {
    needs!(TwoPes);
    let (report, masks) = placed(&["--dry-run"], &[&burn(), "2", "2*fp"]);
    assert!(!report["decisions"].as_array().unwrap().is_empty());
    assert_eq!(threads(&report, "fp")[0]["bindings"], Value::Array(vec![]));
    assert!(masks.lines().all(|line| line.contains(',')), "a thread was bound: {masks}");
}

#[test]
fn an_original_of_a_bound_thread_is_given_the_whole_machine() {
    needs!(TwoPes);
    let (report, masks) = placed(&[], &[&burn(), "3", "2*spawner"]);
    assert_ne!(threads(&report, "spawner")[0]["bindings"], Value::Array(vec![]), "{report:#}");
    let inherited: Vec<&str> = masks.lines().filter(|line| line.starts_with("sleep")).collect();
    assert_eq!(inherited.len(), 2);
    assert!(inherited.iter().all(|child| child.contains("0,1")), "{masks}");
}

#[test]
fn a_users_placement_wins() {
    needs!(TwoPes);
    let burn = burn();
    let script = format!("OMP_PLACES=cores {burn} 1.5 2*fp; taskset -c 1 {burn} 1.5 2*fp");
    let (report, _) = placed(&[], &["sh", "-c", &script]);
    assert_eq!(report["decisions"], Value::Array(vec![]), "{report:#}");
}

/// Starts burning threads under corewise and waits until two are bound. Returns corewise and the program.
fn bound_run(report: Option<&Path>) -> (Child, u32, tempfile::TempDir) {
    let (directory, modules) = shared_fpu();
    let mut command = corewise();
    command.args(["run", "-q", "--interval", "250ms", "--fpu-modules"]).arg(&modules);
    if let Some(report) = report {
        command.arg("--report").arg(report);
    }
    let child = command.arg(burn()).args(["4", "2*fp", "spawner"]).stdout(Stdio::null()).spawn().unwrap();
    let program = program_of(&child);
    wait_for(|| (masks_of(program).iter().filter(|mask| !mask.contains('-')).count() >= 2).then_some(()));
    (child, program, directory)
}

/// The test program that a corewise runs. (Its first child is the guardian's starter, for a moment.)
fn program_of(corewise: &Child) -> u32 {
    let children = format!("/proc/{0}/task/{0}/children", corewise.id());
    wait_for(|| {
        let children = std::fs::read_to_string(&children).ok()?;
        let mut pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.find(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "burn\n")
        })
    })
}

fn all_free(pid: u32) -> bool {
    masks_of(pid).iter().all(|mask| mask.contains('-'))
}

#[test]
fn after_kill_9_of_corewise_every_mask_is_given_back_and_the_program_goes_on() {
    needs!(TwoPes);
    let (mut child, program, _directory) = bound_run(None);
    signal(child.id(), Signal::SIGKILL);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    wait_for(|| all_free(program).then_some(()));
    assert!(!masks_of(program).is_empty(), "the program was ended");
    signal(program, Signal::SIGKILL);
}

#[test]
fn after_kill_9_of_the_program_corewise_ends_with_its_status_and_a_report() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    let (mut child, program, _modules) = bound_run(Some(&file));
    signal(program, Signal::SIGKILL);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert!(!threads(&report, "fp").is_empty());
}

#[test]
fn the_report_has_the_names_that_scripts_rely_on() {
    let report = report_of(&[], &["sh", "-c", "sleep 0.1"]);
    let thread = &report["threads"][0];
    for name in [
        "tid",
        "pid",
        "name",
        "cpu_seconds",
        "fpu_usage",
        "vector_usage",
        "fpu_usage_source",
        "fpu_usage_confidence",
        "spin_share",
        "l2_misses_per_100_cycles",
        "ipc",
        "bindings",
    ] {
        assert!(thread.get(name).is_some(), "threads[].{name} is missing: {thread}");
    }
    let application = &report["applications"][0];
    for name in ["name", "tlp_mean", "sequential_fraction", "parallelism_class", "intensity_class"] {
        assert!(application.get(name).is_some(), "applications[].{name} is missing");
    }
    for (group, name) in [
        ("overhead", "cpu_seconds"),
        ("overhead", "fraction_of_wall"),
        ("sources", "discovery"),
        ("sources", "counters"),
    ] {
        assert!(report[group].get(name).is_some(), "{group}.{name} is missing");
    }
    assert!(report["decisions"].is_array());
}

#[test]
fn without_counters_usage_is_unknown_and_said_so() {
    let report = report_of(&["--counters", "none"], &["true"]);
    assert_eq!(report["sources"]["counters"], "none");
    assert_eq!(report["threads"][0]["fpu_usage"], Value::Null);
    assert!(report["notes"].to_string().contains("needs FPU usage"), "{report}");
}

#[test]
fn polling_does_without_privileges() {
    let report =
        report_of(&["--discovery", "poll", "--interval", "100ms"], &["sh", "-c", "sleep 2 & sleep 2; wait"]);
    assert_eq!(report["sources"]["discovery"], "poll");
    assert_eq!(report["applications"][0]["parallelism_evidence"], "estimated");
    assert_eq!(threads(&report, "sleep").len(), 2);
}

#[test]
fn bad_input_is_named_and_nothing_is_run() {
    let check = |arguments: &[&str], expected: &str| {
        let mut with_command = arguments.to_vec();
        with_command.extend(["sh", "-c", "echo was run"]);
        let output = run(&with_command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?} was run");
    };
    check(&["--policy", "best"], "there is no policy `best`");
    check(&["--interval", "1"], "`1` is not a duration");
    check(&["--interval", "1ms"], "at least 10ms");
    check(&["--fpu-threshold", "2"], "from 0 to 1");
    check(&["--counters", "magic"], "magic");
    check(&["--discovery", "magic"], "magic");
    check(&["--report", "/no/such/directory/r.json"], "/no/such/directory");
    check(&["--record", "/no/such/directory/r.cwr"], "/no/such/directory");
    check(&["--report", "/"], "is a directory");
    check(&["--fpu-modules", "/no/such/file"], "/no/such/file");
}

#[test]
fn a_full_disk_is_reported_and_ends_neither_the_run_nor_the_command() {
    let output = run(&["--record", "/dev/full", "sh", "-c", "echo done"]);
    assert_eq!(output.stdout, b"done\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("/dev/full") && output.status.code() == Some(125), "{said}");
    let output = run(&["--report", "/dev/full", "sh", "-c", "exit 9"]);
    assert_eq!(output.status.code(), Some(9));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/dev/full"));
}

#[test]
fn corrections_by_a_profile_are_reported() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("profile.json");
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let last: u32 = online.trim().rsplit('-').next().unwrap().parse().unwrap();
    let machine = format!("pack:1 core:{} pu:1", last + 1);
    let calibrate = ["calibrate", "--machine", &machine, "--discover", "--kernels", "int-add", "-o"];
    assert!(corewise().args(calibrate).arg(&file).output().unwrap().status.success());
    let mut profile: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    profile["discovered"]["groups"] = serde_json::json!([["core", "0-1"]]);
    std::fs::write(&file, profile.to_string()).unwrap();
    let report = report_of(&["--profile", file.to_str().unwrap()], &["true"]);
    let notes = report["notes"].to_string();
    assert!(notes.contains("measured, unlike reported: core shared by {0-1}"), "{notes}");
    assert!(notes.contains("the machine profile is simulated"), "{notes}");
}

#[test]
fn stated_kinds_are_those_that_the_policy_uses() {
    needs!(TwoPes);
    let file = tempfile::NamedTempFile::new().unwrap();
    let record = ["--policy", "mintlp", "--fast", "pu:0", "--record", file.path().to_str().unwrap()];
    let report = report_of(&record, &["true"]);
    assert!(
        !report["nothing_to_gain"].to_string().contains("speed of the PEs"),
        "{}",
        report["nothing_to_gain"]
    );
    let replayed = corewise().args(["replay", "--policy", "mintlp"]).arg(file.path()).output().unwrap();
    let said = String::from_utf8_lossy(&replayed.stdout).into_owned();
    assert!(replayed.status.success() && !said.contains("speed of the PEs"), "{said}");
}

/// The first PE that a run has announced to the others: it holds the lock of a byte of a file there.
fn announced_pe(runtime: &Path) -> Option<String> {
    let inode = std::fs::metadata(runtime.join("corewise/claimed-pes")).ok()?.ino().to_string();
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let mut locks = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of_file = |lock: &Vec<&str>| lock.get(5).is_some_and(|file| file.rsplit(':').next() == Some(&inode));
    Some(locks.find(of_file)?[6].to_owned())
}

#[test]
fn two_runs_do_not_choose_the_same_pe() {
    // One thread is moved to its PE, two are bound there.
    for first in [&["fp"][..], &["fp", "int"]] {
        the_second_run_chooses_another_pe_than(first);
    }
}

fn the_second_run_chooses_another_pe_than(first: &[&str]) {
    needs!(TwoPes, Perf);
    let (directory, modules) = shared_fpu();
    let start = |seconds: &str, what: &[&str], name: &str| {
        let mut command = corewise();
        // If the guard reverts a placement, others may have the PEs.
        let options = ["run", "-q", "--guard", "off", "--interval", "100ms"];
        command.env("XDG_RUNTIME_DIR", directory.path()).args(options);
        command.arg("--fpu-modules").arg(&modules).arg("--report").arg(directory.path().join(name));
        command.arg("--").arg(burn()).arg(seconds).args(what).stdout(Stdio::null()).spawn().unwrap()
    };
    let binds = |name: &str| {
        let report = std::fs::read(directory.path().join(name)).unwrap();
        let report: Value = serde_json::from_slice(&report).unwrap();
        let decisions = report["decisions"].as_array().unwrap().iter();
        decisions.filter_map(|decision| Some(decision["pes"].as_str()?.to_owned())).collect::<Vec<_>>()
    };
    let mut first = Running(start("600", first, "first.json"));
    let pe = wait_for(|| announced_pe(directory.path()));
    assert!(start("3", &["fp"], "second.json").wait().unwrap().success());
    kill(Pid::from_raw(first.0.id() as i32), Signal::SIGTERM).unwrap();
    first.0.wait().unwrap();
    assert!(binds("first.json").contains(&pe));
    assert!(!binds("second.json").contains(&pe), "{:?}", binds("second.json"));
}
