//! `corewise what-if` through the binary, on a recording of made-up threads.

use assert_cmd::Command;
use serde_json::{Value, json};
use std::path::Path;

fn corewise(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("corewise"));
    command.args(args);
    command
}

/// Four threads that compute for three seconds on the two PEs of one core each; none are counted.
fn recording(directory: &Path) -> String {
    slowed_recording(directory, 1)
}

/// The same on a machine with other load: of the time that they want they get one part in `load`.
fn slowed_recording(directory: &Path, load: u64) -> String {
    let domain =
        |logical: u32, pes: &str| json!({"kind": "core", "logical": logical, "os": logical, "pes": pes});
    let topology = json!({
        "origin": "a made-up machine", "pes": "0-3", "allowed": "0-3",
        "domains": [domain(0, "0-1"), domain(1, "2-3")], "kinds": [], "notes": [],
    });
    let mut lines = vec![json!({
        "format": "corewise-recording", "version": 1, "topology": topology, "command": ["four"],
        "interval_ns": 500_000_000, "discovery": "poll", "counters": "none",
    })];
    for step in 1..=6_u64 {
        let now = step * 500_000_000;
        let thread = |index: u64| {
            json!({
                "thread": {"tid": 10 + index, "generation": 0}, "pid": 10, "app": 0, "name": "four",
                "cpu_ns": now / load, "runnable_ns": now, "runnable": true, "last_pe": index,
                "standing": "free", "permitted": "0-3", "counters": null, "ended": step == 6,
            })
        };
        let threads: Vec<Value> = (0..4).map(thread).collect();
        lines.push(json!({
            "at": now, "allowed": "0-3", "threads": threads, "outcomes": [], "own_cpu_ns": 0,
            "applications": [{
                "app": 0, "name": "four", "runnable_thread_ns": 4 * now, "active_ns": now, "sequential_ns": 0,
                "runnable_max": 4, "exact": true,
            }],
        }));
    }
    let path = directory.join("run.cwr");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, text).expect("a temporary file");
    path.into_os_string().into_string().expect("a path in UTF-8")
}

fn predicted(arguments: &[&str]) -> Value {
    let output = corewise(&[&["what-if"], arguments, &["--json", "--runs", "2"]].concat()).assert().success();
    serde_json::from_slice(&output.get_output().stdout).expect("JSON")
}

#[test]
fn half_the_machine_takes_twice_as_long() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = recording(directory.path());
    let half = predicted(&[&file, "--policy", "default", "--machine", "core:2 pu:1"]);
    assert_eq!(half["evidence"], "simulated");
    let range = |name: &str| half["over_recorded"][name].as_f64().expect("a number");
    assert!(range("low") <= 0.5 && range("high") >= 0.5, "{half:#}");
    assert!((range("value") - 0.5).abs() < 0.15, "{half:#}");
    let error = half["reproduction"]["error"].as_f64().expect("a number");
    assert!(error.abs() < 0.05, "{half:#}");
    let unknown = half["unknown"].to_string();
    assert!(unknown.contains("FPU usage: not known for 100 %"), "{unknown}");
    assert!(half["notes"].to_string().contains("no usable counters"), "{half:#}");
    assert_eq!(half["speedup"], json!({"value": 1.0, "low": 1.0, "high": 1.0}), "over the default there");
    // The same again: nothing is gained.
    let same = predicted(&[&file, "--policy", "default", "--machine", "recorded"]);
    let value = same["over_recorded"]["value"].as_f64().expect("a number");
    assert!((value - 1.0).abs() < 0.1, "{same:#}");
}

#[test]
fn people_read_what_is_simulated_and_what_is_assumed() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = recording(directory.path());
    let scenario = directory.path().join("machine.toml");
    std::fs::write(&scenario, "[machine]\nname = 'made up'\ntopology = 'core:8 pu:1'\n").expect("a file");
    let machine = scenario.to_str().expect("a path in UTF-8");
    let output = corewise(&["what-if", &file, "--machine", machine, "--runs", "1"]).assert().success();
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    for words in [
        "recorded: four on a made-up machine: 3.00 s",
        "simulated: policy spread on made up: core:8 pu:1",
        "  speedup over the policy default there ",
        "  predicted time ",
        "the recording itself, simulated:",
        "assumed: FPU usage: not known",
        "note: ",
    ] {
        assert!(text.contains(words), "no `{words}` in: {text}");
    }
}

#[test]
fn a_recording_that_cannot_be_reproduced_is_not_to_be_trusted() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = slowed_recording(directory.path(), 4);
    let arguments = ["what-if", &file, "--machine", "recorded", "--runs", "1"];
    let output = corewise(&arguments).assert().success();
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    assert!(text.contains("do not trust this") && !text.contains("speedup over"), "{text}");
    let json = predicted(&[&file, "--machine", "recorded"]);
    assert!(json["speedup"].is_null() && json["seconds"].is_null(), "{json}");
    assert!(json["reproduction"]["error"].as_f64().expect("a number") < -0.5, "{json}");
}

#[test]
fn the_other_machine_may_be_a_file_of_hwloc() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = recording(directory.path());
    let xml = "../topology/tests/machines/AMD-K8-SantaRosa-2xOpteron-2218.xml";
    let xml = format!("{}/{xml}", env!("CARGO_MANIFEST_DIR"));
    let predicted = predicted(&[&file, "--policy", "default", "--machine", &xml]);
    assert!(predicted["machine"].as_str().expect("a text").contains("SantaRosa"), "{predicted}");
}

#[test]
fn bad_input_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = recording(directory.path());
    let refused = |arguments: &[&str], words: &str| {
        let output = corewise(&[&["what-if"], arguments].concat()).assert().failure().stdout("");
        let said = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
        assert!(said.contains(words), "no `{words}` in: {said}");
    };
    refused(&[&file, "--machine", "nowhere"], "`nowhere` is neither a machine");
    refused(&[&file, "--machine", &file], "run.cwr is not a recorded machine");
    refused(&[&file, "--machine", "/nonexistent/machine.json"], "/nonexistent/machine.json");
    refused(&[&file, "--machine", "/nonexistent/machine.toml"], "/nonexistent/machine.toml");
    refused(&[&file, "--machine", "core:0 pu:1"], "core:0");
    refused(&[&file, "--machine", "recorded", "--policy", "best"], "there is no policy `best`");
    refused(&[&file, "--machine", "recorded", "--recorded-on", "core:2 pu:1"], "--recorded-on has 0-1");
    refused(&[&file, "--runs", "0"], "--runs");
    refused(&["/nonexistent/run.cwr", "--machine", "recorded"], "/nonexistent/run.cwr");
}
