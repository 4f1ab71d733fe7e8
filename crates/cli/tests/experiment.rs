//! `corewise experiment` through the binary, on an experiment that takes a moment.

use assert_cmd::Command;
use std::path::{Path, PathBuf};

const MACHINE: &str = r#"
stop = { completions = 2 }
demand.int = {}
[machine]
name = "1FC-1SC"
topology = "core:2 pu:1"
speeds = [{ pes = "1", speed = 0.5 }]
"#;

const EXPERIMENT: &str = r#"
title = "A <small> experiment"
source = "nobody"
figure = "Fig. 0"
about = """
Two programs
on two cores.
"""
runs = 2
files = ["machine.toml"]
common = { interval = "50ms", variant = [{ name = "PA", policy = "pa" }] }

[[scenario]]
name = "pair"
[[scenario.with.application]]
name = "serial"
steps = [{ each = { mcycles = 400, demand = "int" } }]
[[scenario.with.application]]
name = "loops"
steps = [{ repeat = { times = 4, steps = [{ serial = { mcycles = 100, demand = "int" } }] } }]

[[published]]
scenario = "pair"
variant = "PA"
lowest = 0.1
highest = 0.2

[[finding]]
claim = "PA is not much slower"
paper = "faster"
check = { within = { variants = ["PA"], lowest = -0.5 } }

[[finding]]
claim = "PA is ten times as fast"
check = { ahead = { variants = ["PA"], of = ["default"], by = 9.0 } }

[sensitivity]
runs = 1
setting = [{ name = "a faster slow core", set = ["machine.speeds=[{ pes = '1', speed = 0.8 }]"] }]
"#;

fn corewise(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("corewise"));
    command.args(args);
    command
}

fn stdout(args: &[&str]) -> String {
    let output = corewise(args).assert().success().stderr("");
    String::from_utf8(output.get_output().stdout.clone()).expect("UTF-8")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn small_experiment(directory: &tempfile::TempDir) -> PathBuf {
    let folder = directory.path().join("small");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(directory.path().join("machine.toml"), MACHINE).expect("a file");
    std::fs::write(folder.join("experiment.toml"), EXPERIMENT).expect("a file");
    folder
}

#[test]
fn an_experiment_is_reported_as_table_page_and_json() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = small_experiment(&directory);
    let (page, json) = (directory.path().join("small.html"), directory.path().join("small.json"));
    let written = format!("--json={}", text(&json));
    let args = ["experiment", "run", text(&folder), "--html", text(&page), &written];
    let table = stdout(&args);
    assert!(table.contains("simulated: A <small> experiment (nobody, Fig. 0)\n"), "{table}");
    for words in
        ["  agrees          PA is not much slower", "does not agree  PA is ten", "a faster slow core"]
    {
        assert!(table.contains(words), "no `{words}` in {table}");
    }
    let page = std::fs::read_to_string(page).expect("a page");
    for words in [
        "A &lt;small&gt; experiment",
        "Two programs on two cores.",
        "simulated",
        "paper: +10.0 % to +20.0 %",
        "does not agree",
    ] {
        assert!(page.contains(words), "no `{words}` in {page}");
    }
    for forbidden in ["<script", "http://", "https://", "<link", "src="] {
        assert!(!page.contains(forbidden), "{forbidden} in the page");
    }
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).expect("a file")).expect("JSON");
    assert_eq!(json["evidence"], "simulated");
    let result = &json["experiments"][0];
    assert_eq!((&result["evidence"], &result["name"]), (&"simulated".into(), &"small".into()));
    assert_eq!(result["findings"][0]["agreement"], "agrees");
    assert_eq!(result["findings"][1]["agreement"], "disagrees");
    assert_eq!(result["sensitivity"]["rows"][1]["name"], "a faster slow core");
    assert!(result["scenarios"][0]["comparison"]["variants"][1]["speedup"]["low"].is_number());
}

#[test]
fn the_number_of_workers_changes_no_byte() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = small_experiment(&directory);
    let run = |jobs| stdout(&["experiment", "run", text(&folder), "--runs", "3", "--jobs", jobs, "--json"]);
    assert_eq!(run("1"), run("2"));
}

const WORLDS: &str = r#"
[[world]]
name = "the speed of the slow core"
set = ["machine.speeds"]
values = [[{ pes = "1", speed = 0.4 }], [{ pes = "1", speed = 0.8 }]]
source = "no source"
[[world]]
name = "work"
set = ["scale.work"]
log = [0.5, 2.0]
source = "no source"
"#;

#[test]
fn worlds_are_the_same_whatever_the_number_of_workers() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = small_experiment(&directory);
    let without = ["experiment", "run", text(&folder), "--worlds", "3"];
    let stderr = corewise(&without).assert().code(1).get_output().stderr.clone();
    assert!(String::from_utf8_lossy(&stderr).contains("states no [[world]]"));
    let file = folder.join("experiment.toml");
    std::fs::write(&file, format!("{EXPERIMENT}{WORLDS}")).expect("a file");
    let run = |more: &[&str]| stdout(&[&without[..], &["--runs", "1"], more].concat());
    let json = run(&["--jobs", "1", "--json"]);
    assert_eq!(json, run(&["--jobs", "4", "--json"]));
    assert_ne!(json, run(&["--seed", "2", "--json"]), "other worlds");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let result = &json["experiments"][0];
    assert_eq!((&result["worlds"], &result["evidence"]), (&3.into(), &"simulated".into()));
    assert_eq!(result["claims"][1]["standing"], "does_not_hold");
    assert_eq!(result["draws"].as_array().map(Vec::len), Some(3));
    let table = run(&["--policy", "mintlp"]);
    for words in [
        ": 3 worlds (seed 1; runs in each: 1); 1 of 2 hold, 0 depend, 1 do not hold",
        "0 % (0 to 56 %)  PA is ten times as fast",
        "the speed of the slow core",
        "  mintlp  ",
        "most claims of nobody, 1 of 2, hold in world ",
    ] {
        assert!(table.contains(words), "no `{words}` in {table}");
    }
}

#[test]
fn worlds_of_several_runs_are_those_of_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = small_experiment(&directory);
    std::fs::write(folder.join("experiment.toml"), format!("{EXPERIMENT}{WORLDS}")).expect("a file");
    let run = |count, more: &[&str]| {
        let args =
            ["experiment", "run", text(&folder), "--worlds", count, "--runs", "1", "--policy", "mintlp"];
        corewise(&[&args[..], more].concat())
    };
    let printed = |mut command: Command| {
        String::from_utf8(command.assert().success().get_output().stdout.clone()).expect("UTF-8")
    };
    let (json, table) = (printed(run("5", &["--json"])), printed(run("5", &[])));
    let files: Vec<PathBuf> = (1..=2).map(|shard| directory.path().join(shard.to_string())).collect();
    let merge = |more: &[&str]| {
        corewise(&[&["experiment", "merge", text(&files[1]), text(&files[0])], more].concat())
    };
    let said = |mut command: Command| {
        let stderr = command.assert().code(1).get_output().stderr.clone();
        String::from_utf8(stderr).expect("UTF-8")
    };
    printed(run("5", &["--shard", "1/2", "--resume", text(&files[0])]));
    let whole = std::fs::read_to_string(&files[0]).expect("a file");
    assert_eq!(whole.lines().count(), 4, "the first line, and worlds 0, 2 and 4");
    // A run that was killed: the last line is not whole, and the one before is not there.
    let lines: Vec<&str> = whole.lines().collect();
    let cut = format!("{}\n{}\n{}", lines[0], lines[1], &lines[2][..20]);
    std::fs::write(&files[0], cut).expect("a file");
    printed(run("5", &["--shard", "2/2", "--resume", text(&files[1])]));
    let missing = said(merge(&[]));
    assert!(missing.contains("2 of 5 worlds are missing, the first is world "), "{missing}");
    printed(run("5", &["--shard", "1/2", "--resume", text(&files[0]), "--jobs", "1"]));
    let again = std::fs::read_to_string(&files[0]).expect("a file");
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&again), sorted(&whole));
    assert_eq!(printed(merge(&["--json"])), json);
    assert_eq!(printed(merge(&[])), table);
    // A run that goes on to its end without shards.
    assert_eq!(printed(run("5", &["--resume", text(&files[1]), "--json"])), json);
    let other = said(run("6", &["--resume", text(&files[1])]));
    assert!(other.contains("its worlds are of another request: 5 worlds of "), "{other}");
}

#[test]
fn every_experiment_of_the_repository_is_built_in_and_can_be_read() {
    let list = stdout(&["experiment", "list"]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let folders = std::fs::read_dir(root).expect("the folder").map(|entry| entry.expect("an entry").path());
    let names: Vec<String> = folders
        .filter(|path| path.join("experiment.toml").is_file())
        .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    assert!(!names.is_empty());
    for name in names {
        assert!(list.lines().any(|line| line.starts_with(&format!("  {name} "))), "{name} is not in {list}");
    }
}

#[test]
fn errors_say_what_there_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = small_experiment(&directory);
    std::fs::write(directory.path().join("machine.toml"), "machine.colour = 'red'").expect("a file");
    for (args, words) in [
        (vec!["experiment", "run", "no-such"], "there are: amp-overhead, "),
        (vec!["experiment", "run", text(&folder)], "scenario `pair`: "),
        (vec!["experiment", "run", "bulldover", "--html", text(&folder)], "is a directory"),
        (vec!["experiment", "run", "bulldover", "--json=no/such/file"], "no/such"),
    ] {
        let output = corewise(&args).assert().code(1).stdout("");
        let stderr = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
        assert!(stderr.starts_with("corewise: ") && stderr.contains(words), "{args:?}: {stderr}");
    }
}
