//! `corewise rules`, as its users see it.

use std::path::Path;
use std::process::{Command, Output};

/// Runs `corewise rules`, with no other configuration than that of the arguments.
fn rules(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corewise"));
    command.arg("rules").args(arguments).env("XDG_CONFIG_HOME", "/nonexistent").output().unwrap()
}

fn lines(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn write(directory: &Path, file: &str, text: &str) -> String {
    let path = directory.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_example_is_sound_and_so_is_that_of_the_page() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let output = rules(&["check", &format!("{root}/contrib/rules.toml")]);
    assert_eq!(lines(&output.stdout), "6 rules, no errors\n", "{output:?}");
    let page = std::fs::read_to_string(format!("{root}/docs/rules.md")).unwrap();
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let output = rules(&["check", &write(directory.path(), "page.toml", example)]);
    assert_eq!(lines(&output.stdout), "2 rules, no errors\n", "{output:?}");
}

#[test]
fn every_error_of_every_file_is_printed_and_the_exit_status_is_1() {
    let directory = tempfile::tempdir().unwrap();
    let one = write(directory.path(), "rules.toml", "[daemon]\nwatch = 'some'\npolcy = 'pa'\n");
    let two = write(directory.path(), "rules.d/10.toml", "[[rule]]\nname = 'a'\n");
    let folder = directory.path().to_str().unwrap();
    for arguments in [&["check", "--config-dir", folder][..], &["check", &one, &two]] {
        let output = rules(arguments);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
        let said = lines(&output.stderr);
        assert!(said.starts_with("corewise: the rules have 3 errors:\n"), "{said}");
        for place in [format!("{one}:2:9: "), format!("{one}:3:1: "), format!("{two}:1:1: ")] {
            assert!(said.contains(&format!("\n    {place}")), "{place}: {said}");
        }
    }
    // What is wrong is no basis for an explanation.
    let output = rules(&["why", "1", "--config-dir", folder]);
    assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn what_applies_to_a_process_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().to_str().unwrap();
    let path = write(
        directory.path(),
        "rules.toml",
        "[[rule]]\nname = 'elsewhere'\nmatch.exe = '/nowhere/*'\nleave-alone = true\n\
         [[rule]]\nname = 'here'\nmatch = { name = 'sleep', exe = '/*' }\npes = '0'\nwaits = 'spin'\n\
         policy = 'none'\nguard = 'off'\n\
         [[rule]]\nname = 'all'\nmatch.user = '*'\n",
    );
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = sleeper.id().to_string();
    let shown = rules(&["why", &pid, "--config-dir", folder]);
    let json = rules(&["why", &pid, "--json", "--config-dir", folder]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let shown = lines(&shown.stdout);
    let place = format!("{path}:5:1");
    let row = |words: &[&str]| shown.lines().any(|line| line.split_whitespace().eq(words.iter().copied()));
    assert!(row(&["policy", "none"]) && row(&["guard", "off"]), "{shown}");
    for part in [&format!("process {pid}\n"), "not `/nowhere/*`", &place, "what applies, by `here`", "spin"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.contains("matches, but an earlier one decides"), "{shown}");
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["facts"]["name"], "sleep");
    assert_eq!((&json["rule"], &json["watched"]), (&"here".into(), &true.into()));
    assert_eq!(json["settings"]["waits"], "spin");
    assert_eq!((&json["settings"]["policy"], &json["settings"]["guard"]), (&"none".into(), &false.into()));
    assert_eq!(json["settings"]["pes"]["list"], "0");
    assert_eq!(json["rules"][1]["mismatch"], serde_json::Value::Null);
    // It has ended and was waited for.
    let output = rules(&["why", &pid, "--config-dir", folder]);
    assert!(lines(&output.stderr).contains(&format!("there is no process {pid}")), "{output:?}");
}

#[test]
fn a_directory_that_is_named_must_be_there() {
    let output = rules(&["check", "--config-dir", "/no/such"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such: there is no such directory"));
}
