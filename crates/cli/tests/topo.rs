//! `corewise topo` through the binary.

use assert_cmd::Command;
use std::path::PathBuf;

fn corewise(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("corewise"));
    command.args(args);
    command
}

fn machine(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../topology/tests/machines").join(file);
    path.into_os_string().into_string().expect("a path in UTF-8")
}

fn stdout(args: &[&str]) -> String {
    let output = corewise(args).assert().success().stderr("");
    String::from_utf8(output.get_output().stdout.clone()).expect("UTF-8")
}

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout(args)).expect("JSON")
}

/// The command fails with this status, says these words in one line of its own (a usage error may take more),
/// and prints nothing on standard output.
fn check_error(args: &[&str], status: i32, words: &[&str]) {
    let output = corewise(args).assert().code(status).stdout("");
    let stderr = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    for word in words {
        assert!(stderr.contains(word), "{args:?}: no `{word}` in: {stderr}");
    }
    assert!(status == 2 || stderr.starts_with("corewise: "), "{args:?}: {stderr}");
}

#[test]
fn json_has_the_names_that_scripts_rely_on() {
    let xml = machine("AMD-15h-Bulldozer-4xOpteron-6272.xml");
    let bulldozer = json(&["topo", "--json", "--machine", &xml]);
    let expected = serde_json::json!({
        "pes": 64, "cores": 64, "fpu_modules": 32, "l2_caches": 32, "clusters": 0, "l3_caches": 8,
        "numa_nodes": 1, "allowed_pes": 64, "kinds": [],
    });
    assert_eq!(bulldozer["summary"], expected);
    assert_eq!(bulldozer["topology"]["pes"], "0-63");

    let root = machine("20em64t-hybrid-1p6c2t+2ca4co1t.tar.gz");
    let hybrid = json(&["topo", "--json", "--machine", &root]);
    let fast = &hybrid["summary"]["kinds"][0];
    assert_eq!((fast["name"].as_str(), fast["pes"].as_str()), (Some("fast"), Some("0-11")));
    assert!(fast["evidence"].as_array().is_some_and(|list| !list.is_empty()));
}

#[test]
fn the_tree_and_the_counts_are_for_people() {
    let text = stdout(&["topo", "--machine", "pack:1 l2:4(size=2MB) module:1 core:2 pu:1"]);
    for part in ["4 × L2 2 MiB + FPU module   0-1 | 2-3 | 4-5 | 6-7", "FPU modules 4", "PEs 8 (allowed 8)"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    assert!(stdout(&["topo"]).contains("this machine: machine with"));
}

#[test]
fn a_location_is_answered_with_a_kernel_list() {
    let smt = "pack:2 core:2 pu:2";
    assert_eq!(stdout(&["topo", "--machine", smt, "core:1@S1:0"]), "2-4\n");
}

#[test]
fn a_recording_of_this_machine_loads() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("machine.tar.gz").into_os_string().into_string().expect("UTF-8");
    assert_eq!(stdout(&["topo", "--record", &file]), "");
    let summary = |args: &[&str]| json(args)["summary"].clone();
    assert_eq!(summary(&["topo", "--json", "--machine", &file]), summary(&["topo", "--json"]));
}

#[test]
fn an_affinity_mask_narrows_what_is_allowed() {
    let topology = json(&["topo", "--json"])["topology"].clone();
    let allowed = topology["allowed"].as_str().expect("a list").to_owned();
    let first = allowed.split([',', '-']).next().expect("a PE").to_owned();
    let output = Command::new("taskset")
        .args(["-c", &first])
        .arg(assert_cmd::cargo::cargo_bin!("corewise"))
        .args(["topo", "--json"])
        .assert()
        .success();
    let narrowed: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).expect("JSON");
    assert_eq!(narrowed["summary"]["allowed_pes"], 1);
    assert_eq!(narrowed["topology"]["allowed"], first);
    assert_eq!(narrowed["topology"]["pes"], topology["pes"]);
}

#[test]
fn the_users_file_of_fpu_modules_counts_for_this_machine() {
    let config = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(config.path().join("corewise")).expect("created");
    let file = config.path().join("corewise/fpu-modules.toml");
    std::fs::write(file, "[[machine]]\nfpu_shared_by = \"package\"\n").expect("written");
    let output =
        corewise(&["topo", "--json"]).env("XDG_CONFIG_HOME", config.path()).assert().success().stderr("");
    let found: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).expect("JSON");
    let pes_of = |kind: &str| -> Vec<serde_json::Value> {
        let domains = found["topology"]["domains"].as_array().expect("domains").iter();
        domains.filter(|domain| domain["kind"] == kind).map(|domain| domain["pes"].clone()).collect()
    };
    assert_eq!(pes_of("module"), pes_of("package"));
}

#[test]
fn bad_input_is_named_with_a_remedy() {
    let readme = machine("README.md");
    check_error(&["topo", "--machine", "/no/such.xml"], 1, &["/no/such.xml", "check its path"]);
    let folder = tempfile::tempdir().expect("a directory");
    let damaged = folder.path().join("machine.XML").into_os_string().into_string().expect("UTF-8");
    std::fs::write(&damaged, "<topology").expect("a file");
    check_error(&["topo", &damaged], 1, &[&damaged, "lstopo"]);
    check_error(&["topo", "--machine", "/no/such"], 1, &["/no/such", "check its path"]);
    check_error(&["topo", "--machine", &readme], 1, &[&readme, "corewise topo --record FILE"]);
    check_error(&["topo", "--machine", "pack:x pu:1"], 1, &["pack:x", "write for instance"]);
    check_error(&["topo", "--machine", "core:1 pu:1", "core:7"], 1, &["core:7", "only 0"]);
    check_error(&["topo", "--record", "/proc/no.tar.gz"], 1, &["/proc/no.tar.gz", "/proc exists"]);
    check_error(&["topo", "--fpu-modules", "/no/such.toml"], 1, &["/no/such.toml", "check its path"]);
    check_error(&["topo", "--machine", "a", "--machine", "b"], 2, &["cannot be used multiple times"]);
    check_error(&["topo", "--record", "a", "--json"], 2, &["cannot be used with"]);
    check_error(&["topo", "--record", "a", "--machine", "b"], 2, &["cannot be used with"]);
    check_error(&["topo", "--nonsense"], 2, &["--nonsense"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("corewise"))
        .args(["topo", "--machine", "pack:1 core:4 pu:1"])
        .stdout(writer)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    let output = child.wait_with_output().expect("ended");
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
