//! `corewise compare` through the binary, on real commands that take moments.

use corewise_testing::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A loop of the shell: more iterations, more work.
fn iterations(number: u32) -> String {
    format!("i=0; while [ $i -lt {number} ]; do i=$((i+1)); done")
}

fn compare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corewise"));
    command.arg("compare").args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn success(mut command: Command) -> Output {
    let output = command.output().expect("corewise starts");
    assert!(output.status.success(), "{output:?}");
    output
}

/// What it says when it fails.
fn failure(arguments: &[&str]) -> String {
    let output = compare(arguments).output().expect("corewise starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    text(&output.stderr)
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON")
}

fn path(directory: &tempfile::TempDir, name: &str) -> String {
    directory.path().join(name).to_str().expect("a path in UTF-8").to_owned()
}

/// Asks again and again until it is so; machines may be slow.
fn wait_until(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !is() {
        assert!(Instant::now() < end, "{what}: not within two minutes");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn lives(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).exists()
}

fn json_to(file: &str) -> String {
    format!("--json={file}")
}

#[test]
fn much_more_work_is_found_and_every_view_is_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let files = ["c.json", "c.csv", "c.html"].map(|name| path(&directory, name));
    let [json_file, csv, html] = &files;
    // A difference that other work on the machine does not hide.
    let (less, more) = (iterations(2_000), iterations(80_000));
    let output =
        success(compare(&["--runs", "8", &json_to(json_file), "--csv", csv, "--html", html, &less, &more]));
    let table = text(&output.stdout);
    assert!(table.contains("measured: 8 blocks of 3 runs, seed 1; "), "{table}");
    assert!(table.contains("slower: "), "{table}");
    let said = text(&output.stderr);
    assert!(said.contains("24 runs in blocks of 3, about ") && said.contains("should detect"), "{said}");
    let found = json(Path::new(json_file));
    let effect = &found["results"][1]["effects"]["cpu"];
    assert!(effect["low"].as_f64().expect("a ratio") > 1.5 && effect["verdict"] == "more", "{effect}");
    assert_eq!(found["results"][1]["times"].as_array().map(Vec::len), Some(8));
    assert_eq!(found["corewise"]["comparison"]["trials"].as_array().map(Vec::len), Some(24));
    assert!(found["corewise"]["comparison"]["setting"]["kernel"].is_string());
    assert_eq!(std::fs::read_to_string(csv).expect("a file").lines().count(), 25);
    assert!(std::fs::read_to_string(html).expect("a file").contains("Ratio of the times"));
}

#[test]
fn variants_prefixes_policies_and_copies_are_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let (seen, json_file) = (path(&directory, "seen"), path(&directory, "c.json"));
    let script = format!("echo \"$WHO $COREWISE_PID\" >> {seen}");
    let arguments =
        ["--runs", "1", "--warmup", "0", "--copies", "3", "--policy", "default", "--policy", "spread"];
    let variant = ["--variant", "me='env' WHO=\"x y\"", &json_to(&json_file), "--", "sh", "-c", &script];
    success(compare(&[&arguments[..], &variant[..]].concat()));
    let seen = std::fs::read_to_string(&seen).expect("a file");
    let count = |is: fn(&str) -> bool| seen.lines().filter(|line| is(line)).count();
    assert_eq!(count(|line| line.trim().is_empty()), 6, "three copies, as they are and as control: {seen}");
    assert_eq!(count(|line| line.starts_with("x y")), 3, "{seen}");
    assert_eq!(count(|line| line.trim().parse::<u32>().is_ok()), 3, "under corewise run: {seen}");
    let found = json(Path::new(&json_file));
    let names: Vec<&str> =
        found["results"].as_array().expect("results").iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["default", "me", "spread"]);
    let completions = &found["corewise"]["comparison"]["trials"][0]["completions"];
    assert_eq!(completions.as_array().map(Vec::len), Some(3));
}

/// `compare` is no `corewise run` that places these threads already.
#[test]
fn a_run_that_is_compared_places_threads() {
    let directory = tempfile::tempdir().expect("a directory");
    let report = path(&directory, "report.json");
    let run = format!("{} run --quiet --report {report} --", env!("CARGO_BIN_EXE_corewise"));
    let variant = format!("run={run}");
    success(compare(&["--runs", "2", "--warmup", "0", "--variant", &variant, "--", "true"]));
    let report = json(Path::new(&report));
    assert_eq!(report["dry_run"], false, "{report:#}");
}

#[test]
fn a_workload_starts_later_and_restarts_until_the_longest_is_done() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, json_file) = (path(&directory, "w.toml"), path(&directory, "c.json"));
    let (made, order) = (path(&directory, "made"), path(&directory, "order"));
    // It ends once the other one has been started four times.
    let wait = format!("while [ $(grep -c s {order}) -lt 4 ]; do sleep 0.01; done");
    let long = format!("test -e {made} && echo l >> {order}; {wait}");
    let short = format!("echo s >> {order}; sleep 0.01");
    let workload = format!(
        "completions = 2\nsetup = 'touch {made}'\n\
         [[application]]\nname = 'long'\ncommand = ['sh', '-c', '{long}']\n\
         [[application]]\nname = 'short'\nstart = '1s'\ncommand = \"sh -c '{short}'\"\n"
    );
    std::fs::write(&file, workload).expect("a file");
    success(compare(&["--workload", &file, "--runs", "1", "--warmup", "0", &json_to(&json_file)]));
    let found = json(Path::new(&json_file));
    let completions = &found["corewise"]["comparison"]["trials"][0]["completions"];
    assert_eq!((&completions[0]["application"], &completions[0]["times"]), (&"long".into(), &2.into()));
    assert!(completions[1]["times"].as_u64() >= Some(3), "it was started again and again: {completions}");
    assert!(std::fs::read_to_string(&order).expect("a file").starts_with("l\ns\n"));
}

#[test]
fn processes_left_behind_are_ended_and_noted() {
    let directory = tempfile::tempdir().expect("a directory");
    let pids = path(&directory, "pids");
    let script = format!(
        "setsid sh -c 'trap \"\" TERM; echo $$ >> {pids}; while :; do sleep 1; done' & \
                          while [ ! -s {pids} ]; do sleep 0.01; done"
    );
    let output = success(compare(&["--runs", "1", "--warmup", "0", "--", "sh", "-c", &script]));
    assert!(text(&output.stdout).contains("note: 2 of 2 runs left processes behind"), "{output:?}");
    let alone = "there is one variant only, which is compared with itself";
    assert!(text(&output.stderr).contains(alone) && text(&output.stdout).contains(alone), "{output:?}");
    let pids = std::fs::read_to_string(&pids).expect("a file");
    assert!(!pids.is_empty() && pids.lines().all(|pid| !lives(pid)), "{pids}");
}

#[test]
fn interrupted_it_keeps_what_it_has_and_goes_on_later() {
    let directory = tempfile::tempdir().expect("a directory");
    let (pids, json_file) = (path(&directory, "pids"), path(&directory, "c.json"));
    let script = format!("echo $$ >> {pids}; sleep 0.05");
    let ran = || std::fs::read_to_string(&pids).unwrap_or_default().lines().count();
    let arguments = ["--runs", "1000", "--warmup", "1", &json_to(&json_file), "--", "sh", "-c", &script];
    let child = compare(&arguments).stdout(std::process::Stdio::piped()).spawn().expect("corewise starts");
    wait_until("six runs", || ran() >= 6);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGINT)
        .expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stdout).contains("measured: "), "{output:?}");
    let last = std::fs::read_to_string(&pids).expect("a file");
    assert!(last.lines().all(|pid| !lives(pid)), "nothing runs on");
    let trials = |file: &Value| file["corewise"]["comparison"]["trials"].as_array().expect("runs").clone();
    let before = trials(&json(Path::new(&json_file)));
    assert!(before.len() >= 4, "{}", before.len());
    let runs = (before.len() / 2 + 2).to_string();
    success(compare(&["--resume", &json_file, "--runs", &runs]));
    let after = trials(&json(Path::new(&json_file)));
    assert_eq!(after.len(), 2 * runs.parse::<usize>().expect("a number"));
    assert_eq!(after[..before.len()], before, "what was there is there");
}

/// The state of a process as `ps` shows it.
fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[test]
fn when_it_is_stopped_its_commands_stop_and_the_run_is_made_again() {
    for signal in [Signal::SIGTSTP, Signal::SIGSTOP] {
        let directory = tempfile::tempdir().expect("a directory");
        let (pids, go) = (path(&directory, "pids"), path(&directory, "go"));
        // Its child leads a session of its own.
        let waiting = format!("while [ ! -e {go} ]; do sleep 0.01; done");
        let script = format!("echo $$ >> {pids}; setsid sh -c 'echo $$ >> {pids}; {waiting}'; {waiting}");
        let mut compare = compare(&["--runs", "1", "--warmup", "0", "--", "sh", "-c", &script]);
        // Who leads a group whose parent is outside of it can be stopped from the terminal.
        let compare = compare.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let compare = compare.spawn().expect("corewise starts");
        let ran = || {
            let text = std::fs::read_to_string(&pids).unwrap_or_default();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        wait_until("both processes", || ran().len() == 2);
        let send = |signal| kill(Pid::from_raw(compare.id() as i32), signal).expect("it runs");
        send(signal);
        wait_until("they stop", || ran().iter().all(|pid| state(pid) == Some('T')));
        send(Signal::SIGCONT);
        wait_until("they go on", || ran().iter().all(|pid| state(pid) != Some('T')));
        std::fs::write(&go, "").expect("a file");
        let output = compare.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        assert!(text(&output.stderr).contains("is made again: it was stopped"), "{output:?}");
        assert_eq!(ran().len(), 2 * 3, "the run, the control, and the one that was stopped");
    }
}

#[test]
fn what_it_was_started_to_ignore_does_not_end_it() {
    let mut nohup = Command::new("sh");
    nohup.args(["-c", r#"trap "" HUP; exec "$0" compare --runs 2 --warmup 0 -- sh -c 'kill -HUP $PPID'"#]);
    nohup.arg(env!("CARGO_BIN_EXE_corewise"));
    success(nohup);
}

#[test]
fn killed_it_keeps_every_finished_run_and_goes_on_later() {
    let directory = tempfile::tempdir().expect("a directory");
    let (ran, json_file) = (path(&directory, "ran"), path(&directory, "c.json"));
    let script = format!("echo >> {ran}; sleep 0.01");
    let runs = || std::fs::read_to_string(&ran).unwrap_or_default().lines().count();
    let arguments = ["--runs", "1000", "--warmup", "0", &json_to(&json_file), "--", "sh", "-c", &script];
    let mut child = compare(&arguments).spawn().expect("corewise starts");
    wait_until("six runs", || runs() >= 6);
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    let kept = std::fs::read_to_string(&json_file).expect("a file");
    // The first line is the plan; the run in progress when it was killed may have just ended.
    let kept = kept.lines().count() - 1;
    assert!(kept >= 5 && kept + 1 >= runs(), "{kept} of {}", runs());
    let whole = (kept / 2 + 1).to_string();
    success(compare(&["--resume", &json_file, "--runs", &whole]));
    let found = json(Path::new(&json_file));
    let trials = found["corewise"]["comparison"]["trials"].as_array().map(Vec::len);
    assert_eq!(trials, Some(2 * whole.parse::<usize>().expect("a number")));
}

#[test]
fn a_run_that_takes_too_long_is_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let json_file = path(&directory, "c.json");
    let long = ["--runs", "1", "--timeout", "100ms", "--", "sleep", "600"];
    let said = failure(&long);
    assert!(said.contains("took longer than 0.1 s") && said.contains("--timeout"), "{said}");
    let output = success(compare(&[&["--ignore-failure", &json_to(&json_file)], &long[..]].concat()));
    assert!(text(&output.stdout).contains("note: 2 of 2 runs took too long and were ended"), "{output:?}");
    assert_eq!(json(Path::new(&json_file))["results"][0]["exit_codes"], serde_json::json!([124, 124]));
    success(compare(&["--runs", "1", "--timeout", "10min", "--", "true"]));
}

#[test]
fn throughput_in_a_fixed_time_is_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let json_file = path(&directory, "c.json");
    // Long enough for the slower one to complete on a busy machine, too.
    let arguments = ["--duration", "2s", "--runs", "3", "--warmup", "0", &json_to(&json_file)];
    let output = success(compare(&[&arguments[..], &["true", "sleep 0.2"]].concat()));
    assert!(text(&output.stdout).contains("throughput (completions a second)"), "{output:?}");
    let found = json(Path::new(&json_file));
    let effect = &found["results"][1]["effects"]["throughput"];
    assert!(effect["ratio"].as_f64().expect("a ratio") < 1.0, "{effect}");
    let times = &found["corewise"]["comparison"]["trials"][0]["completions"][0]["times"];
    assert!(times.as_u64() >= Some(1), "{times}");
    let said = failure(&["--duration", "50ms", "--", "sleep", "600"]);
    assert!(said.contains("has not completed once within 0.05 s") && said.contains("--duration"), "{said}");
}

#[test]
fn figures_and_tails_that_commands_print_are_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let json_file = path(&directory, "c.json");
    let prints = |rate: u32, slow: u32| {
        format!("echo 'Requests/sec: {rate}'; for i in $(seq 1 30); do echo \"lag $((i * {slow})) ms\"; done")
    };
    let arguments = ["--runs", "6", "--warmup", "0", &json_to(&json_file)];
    let read = ["--figure", r"rate=Requests/sec:\s+(\S+)", "--latency", r"lag (\d+ ms)"];
    let (one, other) = (prints(1000, 1), prints(500, 3));
    let output = success(compare(&[&arguments[..], &read[..], &[&one, &other]].concat()));
    assert!(text(&output.stdout).contains("latency p95"), "{output:?}");
    let found = json(Path::new(&json_file));
    let ratio = |name: &str| found["results"][1]["effects"][name]["ratio"].as_f64();
    let is_about = |name: &str, ratio_wanted: f64| {
        assert!(ratio(name).is_some_and(|ratio| (ratio - ratio_wanted).abs() < 1e-6), "{name}: {found:#}");
    };
    is_about("rate", 0.5);
    is_about("latency p50", 3.0);
    is_about("latency p95", 3.0);
    assert_eq!(ratio("latency p99"), None, "thirty values do not tell it");
    let figure = &found["results"][0]["figures"]["latency p50"]["mean"];
    assert!((figure.as_f64().expect("seconds") - 0.0155).abs() < 1e-9, "{figure}");
    let said = failure(&["--figure", "rate=nothing (.)", "--", "echo", "something"]);
    assert!(said.contains("that the pattern of `rate` matches"), "{said}");
    let said = failure(&["--figure", "rate=(", "--", "true"]);
    assert!(said.contains("the pattern of `rate` is not a regular expression"), "{said}");
}

#[test]
fn failures_and_other_outputs_end_it_with_a_remedy() {
    let failing = ["--runs", "1", "--", "sh", "-c", "echo reason >&2; exit 3"];
    let said = failure(&failing);
    for words in ["ended with exit status 3", "said: reason", "--ignore-failure"] {
        assert!(said.contains(words), "no `{words}` in {said}");
    }
    let output = success(compare(&[&["--ignore-failure"], &failing[..]].concat()));
    assert!(text(&output.stdout).contains("note: 2 of 2 runs failed"), "{output:?}");
    for signal in [9, 15] {
        let command = format!("kill -{signal} $$");
        let said = failure(&["--", "sh", "-c", &command]);
        assert!(said.contains(&format!("was killed by signal {signal}")), "{said}");
    }
    assert!(failure(&["--", "no-such-program-here"]).contains("check the spelling, PATH and permission"));
    let said = failure(&["--runs", "1", "--same-output", "echo a; echo b", "echo a; echo c"]);
    assert!(
        said.contains("prints something other") && said.contains("line 2 is `c` instead of `b`"),
        "{said}"
    );
    assert!(failure(&["--setup", "exit 4", "--", "true"]).contains("--setup ended with exit status 4"));
}

#[test]
fn what_cannot_be_understood_is_refused_with_a_remedy() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = path(&directory, "w.toml");
    std::fs::write(&file, "completions = 1\n[[application]]\nname = 'a'\ncomand = 'x'\n").expect("a file");
    let broken = failure(&["--workload", &file]);
    assert!(broken.contains(&file) && broken.contains("line 4") && broken.contains("`comand`"), "{broken}");
    for (arguments, words) in [
        (&[][..], "name a command after `--`"),
        (&["--variant", "taskset", "--", "true"], "write a name, `=` and"),
        (&["--variant", "a='b", "--", "true"], "a quote without its end"),
        (&["--variant", "default=nice", "--", "true"], "two variants called `default`"),
        (
            &["--baseline", "b", "--variant", "a=nice", "--", "true"],
            "there is no variant `b`; there are: default, a",
        ),
        (&["--resume", "/no/such/file"], "cannot read the comparison /no/such/file"),
        (&["--json=/no/such/directory/c.json", "--", "true"], "cannot write"),
    ] {
        let said = failure(arguments);
        assert!(said.contains(words), "no `{words}` in {said}");
    }
    for (option, value, words) in [
        ("--policy", "best", "there is no policy `best`; there are: "),
        ("--runs", "0", "write a whole number from 1"),
        ("--copies", "0", "write a whole number from 1 to 10000"),
    ] {
        let output = compare(&[option, value, "--", "true"]).output().expect("corewise starts");
        assert!(output.status.code() == Some(2) && text(&output.stderr).contains(words), "{output:?}");
    }
}

#[test]
fn the_demonstration_compares_openmp_programs_and_prints_how() {
    let output = Command::new(env!("CARGO_BIN_EXE_corewise"))
        .args(["demo", "--copies", "2", "--regions", "3", "--budget", "1s"])
        .output();
    let output = output.expect("corewise starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("libgomp1") {
        skip!(Libgomp, "{stderr}");
    }
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("corewise compare --copies 2 --budget 1s"), "{stderr}");
    assert!(["default ", "corewise ", "(control)"].iter().all(|row| table.contains(row)), "{table}");
    let verdict = table.lines().filter(|line| line.starts_with("verdict: ")).count();
    assert!(verdict == 1 && table.contains("next, your own program: `corewise run -- COMMAND`"), "{table}");
}
