//! Recordings: what is recorded can be replayed, with other policies and on other machines.

use crate::common::{burn, corewise};
use corewise_testing::needs;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn record() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.cwr");
    let mut command = corewise();
    command.args(["run", "-q", "--interval", "250ms", "--record"]).arg(&file).arg(burn());
    assert!(command.args(["1", "4*fp", "2*int"]).output().unwrap().status.success());
    (directory, file)
}

fn replay(file: &Path, arguments: &[&str]) -> std::process::Output {
    corewise().arg("replay").arg(file).args(arguments).output().unwrap()
}

fn decisions(file: &Path, arguments: &[&str]) -> Vec<(u64, String)> {
    let output = replay(file, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["evidence"], "replayed");
    let decisions = report["decisions"].as_array().unwrap();
    decisions
        .iter()
        .map(|d| (d["tid"].as_u64().unwrap(), d["pes"].as_str().unwrap_or("free").to_owned()))
        .collect()
}

#[test]
fn a_recording_is_replayed_on_the_papers_machine() {
    let (_directory, file) = record();
    let bound = decisions(&file, &["--machine", "pack:1 module:4 core:2 pu:1"]);
    let mut pes: Vec<&str> = bound.iter().map(|(_, pes)| pes.as_str()).take(4).collect();
    pes.sort();
    assert_eq!(pes, ["0-1", "2-3", "4-5", "6-7"], "{bound:?}");
    assert_eq!(decisions(&file, &["--machine", "pack:1 module:4 core:2 pu:1", "--policy", "default"]), []);
    // The same recording gives the same decisions.
    assert_eq!(decisions(&file, &["--machine", "pack:1 module:4 core:2 pu:1"]), bound);
}

/// A machine profile of this machine by which PE 0 is twice as fast as the others.
fn profile_with_a_fast_pe(directory: &Path) -> PathBuf {
    let file = directory.join("profile.json");
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let last: u32 = online.trim().rsplit('-').next().unwrap().parse().unwrap();
    let machine = format!("pack:1 core:{} pu:1", last + 1);
    let calibrate = ["calibrate", "--machine", &machine, "--kernels", "int-add", "-o"];
    assert!(corewise().args(calibrate).arg(&file).output().unwrap().status.success());
    let mut profile: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for speed in profile["speeds"].as_array_mut().unwrap() {
        let value = if speed["pe"] == 0 { 1.0 } else { 0.5 };
        speed["relative"] = json!({"value": value, "low": value, "high": value, "repetitions": 9});
    }
    std::fs::write(&file, profile.to_string()).unwrap();
    file
}

#[test]
fn a_replay_decides_as_the_run_did_by_the_profile_that_it_had() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let profile = profile_with_a_fast_pe(directory.path());
    for guard_and_waits in [["--guard", "off", "--waits", "off"], ["--guard", "on", "--waits", "auto"]] {
        check_replay_by(&profile, &guard_and_waits);
    }
}

fn check_replay_by(profile: &Path, guard_and_waits: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let [recording, report] = ["run.cwr", "report.json"].map(|name| directory.path().join(name));
    let of_run = directory.path().join("profile.json");
    std::fs::copy(profile, &of_run).unwrap();
    let options = ["run", "-q", "--interval", "100ms", "--policy", "mintlp"];
    let mut run = corewise();
    // One thread at work: it has a claim on every machine.
    run.args(options).args(guard_and_waits).arg("--profile").arg(&of_run).arg("--record").arg(&recording);
    run.arg("--report").arg(&report).arg("--").arg(burn()).args(["0.5", "2*sleep", "spawner"]);
    assert!(run.output().unwrap().status.success());
    // What was recorded needs nothing else.
    std::fs::remove_file(&of_run).unwrap();
    let decisions = |report: &[u8]| {
        let report: Value = serde_json::from_slice(report).unwrap();
        let decisions = report["decisions"].as_array().unwrap();
        // The last outcomes come after the end of the recording.
        let shown = |decision: &Value| {
            ["at_ns", "tid", "pes", "setting", "reason"].map(|key| decision[key].to_string())
        };
        decisions.iter().map(shown).collect::<Vec<_>>()
    };
    let decided = decisions(&std::fs::read(&report).unwrap());
    assert!(decided.iter().any(|[_, _, pes, ..]| pes == "\"0\""), "nobody got the fast PE: {decided:?}");
    let replayed = replay(&recording, &["--policy", "mintlp", "--json"]);
    assert_eq!(decisions(&replayed.stdout), decided, "{replayed:?}");
}

/// A policy that writes down its scenes and binds each thread to the first PE that it may use.
const WRITES_SCENES: &str = r#"
import json, os, sys
scenes = open(os.environ["SCENES"], "w")
for line in sys.stdin:
    scene = json.loads(line)
    if "step" not in scene:
        print('{"version": 1, "events": true}', flush=True)
        continue
    scenes.write(line)
    scenes.flush()
    placeable = [thread for thread in scene["threads"] if thread["placeable"] and thread["may_use_pes"]]
    first = lambda thread: thread["may_use_pes"].split(",")[0].split("-")[0]
    bind = [{"thread": thread["thread"], "pes": first(thread)} for thread in placeable]
    print(json.dumps({"step": scene["step"], "bind": bind}), flush=True)
"#;

#[test]
fn a_policy_that_is_a_program_gets_the_scenes_of_the_run_again() {
    needs!(Python);
    let directory = tempfile::tempdir().unwrap();
    let [recording, program, of_run, of_replay] =
        ["run.cwr", "policy.py", "run.jsonl", "replay.jsonl"].map(|name| directory.path().join(name));
    std::fs::write(&program, WRITES_SCENES).unwrap();
    let policy = format!("exec:deadline=60s,python3 {}", program.display());
    let mut run = corewise();
    run.args(["run", "-q", "--interval", "200ms", "--policy", &policy, "--record"]).arg(&recording);
    run.arg("--").arg(burn()).args(["0.5", "4*spin"]).env("SCENES", &of_run);
    assert!(run.output().unwrap().status.success());
    let mut again = corewise();
    again.arg("replay").arg(&recording).args(["--policy", &policy]).env("SCENES", &of_replay);
    let output = again.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let [then, now] = [&of_run, &of_replay].map(|file| std::fs::read_to_string(file).unwrap());
    assert_eq!(then.lines().count(), now.lines().count());
    assert!(then.lines().count() > 3, "{then}");
    for (then, now) in then.lines().zip(now.lines()) {
        assert_eq!(then, now);
    }
}

#[test]
fn a_damaged_recording_is_named_and_a_cut_one_is_read_up_to_the_cut() {
    let (directory, file) = record();
    let bytes = std::fs::read(&file).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let cut = write("cut.cwr", &bytes[..bytes.len() * 2 / 3]);
    let output = replay(&cut, &[]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("breaks off"), "{output:?}");
    let check = |path: &Path, expected: &str| {
        let output = replay(path, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected) && said.contains(path.to_str().unwrap()), "{said}");
    };
    check(&write("empty.cwr", b""), "empty");
    check(&write("text.cwr", b"hello\n"), "not the header");
    check(&write("noise.cwr", &[&bytes[..10], &[0xff; 64]].concat()), "cannot be unpacked");
    check(&write("version.cwr", b"{\"format\":\"corewise-recording\",\"version\":99}\n"), "version 99");
    check(Path::new("/no/such/recording"), "cannot read");
}

#[test]
fn ipc_ratios_are_read_from_a_file() {
    let (directory, file) = record();
    let ratios = directory.path().join("ratios.toml");
    let replay_with = |text: &str| {
        std::fs::write(&ratios, text).unwrap();
        let arguments = ["--policy", "static-ipc", "--ipc-ratios", ratios.to_str().unwrap()];
        let output = replay(&file, &arguments);
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    let no_ratios = "no IPC ratios are given";
    let without = replay(&file, &["--policy", "static-ipc"]);
    assert!(String::from_utf8_lossy(&without.stdout).contains(no_ratios), "{without:?}");
    let (well, said) = replay_with("fp = 1.9\nint = 1.2\n");
    assert!(well && !said.contains(no_ratios), "{said}");
    for (text, expected) in
        [("fp = -1\n", "not above 0"), ("fp = \"x\"\n", "holds no IPC ratios"), ("=", "TOML")]
    {
        let (well, said) = replay_with(text);
        assert!(!well && said.contains(expected) && said.contains("ratios.toml"), "{said}");
    }
}

#[test]
fn a_bad_machine_is_named() {
    let (_directory, file) = record();
    let output = replay(&file, &["--machine", "pack:0 nonsense"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("nonsense"), "{output:?}");
}
