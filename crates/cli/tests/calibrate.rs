//! `corewise calibrate` and `corewise profile` through the binary: on model machines, where the truth is
//! known, and for a moment on this one.

use assert_cmd::Command;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const SMT: &str = "pack:1 l3:1(size=8MB) l2:2(size=256kB) l1:1(size=32kB) core:1 pu:2";

fn corewise(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("corewise"));
    command.args(args);
    command
}

/// Runs to its end, with a status; standard output and standard error.
fn check(args: &[&str], status: i32) -> (String, String) {
    let output = corewise(args).assert().code(status).get_output().clone();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr))
}

/// A profile of a model machine, in a directory of its own.
struct Calibrated {
    directory: tempfile::TempDir,
    text: String,
}

impl Calibrated {
    fn new(machine: &str, options: &[&str]) -> Calibrated {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = path(directory.path(), "profile.json");
        let args = ["calibrate", "--quick", "--machine", machine, "--output", &file];
        let (text, _) = check(&[&args, options].concat(), 0);
        Calibrated { directory, text }
    }

    fn file(&self, name: &str) -> String {
        path(self.directory.path(), name)
    }

    fn json(&self) -> Value {
        let text = std::fs::read_to_string(self.file("profile.json")).expect("the profile");
        serde_json::from_str(&text).expect("JSON")
    }
}

fn path(directory: &Path, name: &str) -> String {
    directory.join(name).into_os_string().into_string().expect("a path in UTF-8")
}

/// The Δ and the preference of one workload between the two classes of a machine that has two.
fn delta(profile: &Value, kernel: &str) -> (f64, String) {
    let is_it = |delta: &&Value| {
        let workload = &delta["subject"]["workload"];
        workload["first"]["kernel"] == kernel && workload["first"] == workload["second"]
    };
    let delta = profile["deltas"].as_array().expect("a list").iter().find(is_it).expect(kernel);
    (
        delta["delta"]["value"].as_f64().expect("a number"),
        delta["preference"].as_str().expect("a word").to_owned(),
    )
}

#[test]
fn a_model_of_smt_siblings_shows_what_they_share() {
    let calibrated = Calibrated::new(SMT, &[]);
    let profile = calibrated.json();
    assert_eq!(profile["evidence"], "simulated");
    let (together, better) = delta(&profile, "alternate");
    assert!(together > 0.5 && better == "close", "{together} {better}");
    let (apart, better) = delta(&profile, "int-add");
    assert!(apart < -0.5 && better == "distant", "{apart} {better}");
    for shown in ["simulated:", "same core: 2 pairs", "Δ: same core against same L3", "ns each"] {
        assert!(calibrated.text.contains(shown), "no `{shown}` in:\n{}", calibrated.text);
    }
}

#[test]
fn a_profile_is_shown_in_every_form() {
    let calibrated = Calibrated::new(SMT, &["--kernels", "alternate,int-add,read"]);
    let [profile, page, table, drawings] =
        ["profile.json", "page.html", "table.csv", "drawings"].map(|name| calibrated.file(name));
    let show = ["profile", "show", &profile, "--html", &page, "--csv", &table, "--svg", &drawings, "--json"];
    let (printed, _) = check(&show, 0);
    assert_eq!(printed, std::fs::read_to_string(&profile).expect("the profile"));
    assert!(std::fs::read_to_string(page).expect("the page").contains("Figure 4: computation"));
    assert!(std::fs::read_to_string(table).expect("the table").starts_with("evidence,table,class"));
    let drawn = PathBuf::from(drawings).join("figure-2-synchronisation.svg");
    assert!(std::fs::read_to_string(drawn).expect("a drawing").starts_with("<svg xmlns"));
    assert_eq!(check(&["profile", "show", &profile], 0).0, calibrated.text);
}

#[test]
fn a_difference_shows_in_the_exit_status() {
    let options = ["--kernels", "int-add,fp-add"];
    let (one, other) = (Calibrated::new(SMT, &options), Calibrated::new("core:4 pu:1", &options));
    let (a, b) = (one.file("profile.json"), other.file("profile.json"));
    let (same, _) = check(&["profile", "diff", &a, &a], 0);
    assert!(same.starts_with("0 of "), "{same}");
    let (changed, _) = check(&["profile", "diff", &a, &b], 1);
    assert!(changed.contains("topology: reported only before: core {0-1}"), "{changed}");
    let (json, _) = check(&["profile", "diff", &a, &b, "--json"], 1);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["topology"].as_array().is_some_and(|list| !list.is_empty()));
}

#[test]
fn a_profile_is_a_machine() {
    let calibrated = Calibrated::new(SMT, &["--kernels", "int-add"]);
    let profile = calibrated.file("profile.json");
    assert_eq!(check(&["topo", "--machine", &profile, "core:1"], 0).0, "2-3\n");
    // This machine may have four PEs, but not these.
    let other = Calibrated::new("core:4097 pu:1", &["--pes", "0", "--kernels", "int-add"]);
    let (_, refusal) = check(&["run", "--profile", &other.file("profile.json"), "true"], 125);
    assert!(refusal.contains("is the profile of another machine"), "{refusal}");
    let (_, clash) = check(&["topo", "--machine", &profile, "--fpu-modules", "m.toml"], 1);
    assert!(clash.contains("m.toml") && clash.contains("leave it out"), "{clash}");
}

#[test]
fn discovery_finds_hidden_siblings() {
    let profile = Calibrated::new(SMT, &["--discover", "--kernels", "int-add"]).json();
    let groups = profile["discovered"]["groups"].as_array().expect("groups").clone();
    assert!(groups.contains(&serde_json::json!(["core", "0-1"])), "{groups:?}");
}

#[test]
fn bad_files_are_named_with_a_remedy() {
    let calibrated = Calibrated::new("core:2 pu:1", &["--kernels", "int-add"]);
    let good = calibrated.json();
    let with = |field: &str, value: Value| {
        let mut profile = good.clone();
        profile[field] = value;
        profile.to_string()
    };
    let mut half = good.to_string();
    half.truncate(half.len() / 2);
    let cases = [
        ("nothing", String::new(), "it is not a machine profile"),
        ("binary", "\u{0}\u{1}".to_owned(), "it is not a machine profile"),
        ("half", half, "it is not a machine profile"),
        ("other", with("format", "a shopping list".into()), "its format is `a shopping list`"),
        ("newer", with("version", 99.into()), "use a newer corewise"),
        ("damaged", with("classes", serde_json::json!([])), "it is damaged"),
    ];
    for (name, text, words) in cases {
        let file = calibrated.file(name);
        std::fs::write(&file, text).expect("written");
        for args in
            [&["profile", "show", &file][..], &["profile", "diff", &calibrated.file("profile.json"), &file]]
        {
            let (out, error) = check(args, 2);
            assert!(out.is_empty() && error.contains(words) && error.contains(name), "{name}: {error}");
        }
    }
    let (_, error) = check(&["profile", "show", "/no/such.json"], 2);
    assert!(error.contains("/no/such.json") && error.contains("corewise calibrate"), "{error}");
}

#[test]
fn what_cannot_be_written_is_named_before_anything_is_measured() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (missing, here) = (path(directory.path(), "no/profile.json"), path(directory.path(), ""));
    for (args, words) in [
        (vec!["--output", &missing], "exists and may be written"),
        (vec!["--output", &here], "is a directory"),
        (vec!["--html", &missing], "exists and may be written"),
        (vec!["--csv", &missing], "exists and may be written"),
        (vec!["--svg", "/dev/null/x"], "cannot make the directory"),
        (vec!["--npb", &here], "holds no NPB binary"),
        (vec!["--pes", "core:999999"], "only 0"),
    ] {
        // A budget that would be noticed.
        let (out, error) =
            check(&[&["calibrate", "--budget", "500s", "--under-load"], &args[..]].concat(), 1);
        assert!(out.is_empty() && error.contains(words), "{args:?}: {error}");
    }
    let model = ["calibrate", "--quick", "--machine", "pu:2", "--kernels", "int-add"];
    let (out, error) = check(&[&model[..], &["--output", "/dev/full", "--json"]].concat(), 1);
    assert!(error.contains("cannot write /dev/full") && error.contains("No space"), "{error}");
    assert!(out.contains("corewise machine profile"), "what was measured is printed nevertheless");
    check(&["calibrate", "--kernels", "reed"], 2);
    check(&["calibrate", "--noise", "0.1"], 2);
    check(&["calibrate", "--budget", "1ms"], 2);
}

#[test]
fn an_interrupted_calibration_of_this_machine_leaves_a_partial_profile() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("corewise"))
        .args(["calibrate", "--under-load", "--kernels", "int-add", "--budget", "60s", "--json"])
        .env("XDG_DATA_HOME", directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    wait_until_it_hears_signals(child.id());
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).expect("sent");
    let output = child.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    // No progress bar in a pipe.
    assert!(said.starts_with("corewise: the machine profile is ") && said.lines().count() == 1, "{said}");
    let file = path(directory.path(), "corewise/profile.json");
    assert_eq!(std::fs::read(&file).expect("the profile"), output.stdout);
    let profile: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&profile["complete"], &profile["evidence"]), (&false.into(), &"measured".into()));
    check(&["topo", "--machine", &file], 0);
}

/// The thread that listens blocks SIGINT, which the kernel shows as bit 1 of `SigBlk`.
fn wait_until_it_hears_signals(pid: u32) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        if blocked.is_some_and(|mask| mask & 2 != 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("corewise did not get ready to be interrupted");
}
