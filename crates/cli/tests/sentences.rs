//! What prints more than ten lines begins with a sentence, so that a reader knows first what it amounts to.

use std::path::Path;
use std::process::Command;

/// Whether the first paragraph ends as a sentence does.
fn begins_with_a_sentence(text: &str) -> bool {
    text.split("\n\n")
        .next()
        .is_some_and(|first| first.trim_end().ends_with(['.', ':']) && first.contains(' '))
}

#[test]
fn long_outputs_begin_with_a_sentence() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let machine = "crates/topology/tests/machines/Intel-RaptorLake-Corei7-1370P.xml";
    let scenario = "experiments/bulldover/hmmer-povray.toml";
    let commands: [&[&str]; 7] = [
        &["doctor"],
        &["topo", machine],
        &["policies"],
        &["policies", "pa"],
        &["experiment", "list"],
        &["sim", scenario, "--runs", "2", "--policy", "default", "--policy", "spread"],
        &["compare", "--runs", "6", "--warmup", "0", "true", "exec true"],
    ];
    for command in commands {
        let output =
            Command::new(env!("CARGO_BIN_EXE_corewise")).args(command).current_dir(&root).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command:?}: {output:?}");
        assert!(begins_with_a_sentence(&text), "{command:?} begins with no sentence:\n{text}");
    }
}

#[test]
fn a_table_is_no_sentence() {
    assert!(begins_with_a_sentence("It works here.\n\n  a  b\n"));
    assert!(!begins_with_a_sentence("  program  CPU s\n  sleep  0.00\n\nmore.\n"));
}
