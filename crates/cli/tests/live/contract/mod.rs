//! `docs/contract.md`, line by line: what a program sees and does is the same alone and under corewise.
//!
//! A row is a shell script in which `$P` stands for the words before the program: none, or `corewise run -q
//! --`. Both times it must print the same and have the same exit status; and when run alone, print the text
//! that shows that the row shows something. `probe.c` says what a shell cannot.

mod rows;

use rows::{Row, rows};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// More than the machine has PEs, as most rows wait most of the time.
const AT_ONCE: usize = 12;

/// `hear WORDS…` starts the probe that says which signals come, `rest` says what it has heard.
const PRELUDE: &str = r#"
hear() { coproc H { exec "$@" $probe hear; }; exec 4<&"${H[0]}"; pid=$H_PID; read -r line <&4; }
rest() { cat <&4; wait $pid; echo "status $?"; }
"#;

#[test]
fn a_program_sees_and_does_under_corewise_what_it_sees_and_does_alone() {
    let directory = tempfile::tempdir().unwrap();
    let probe = directory.path().join("probe");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/contract/probe.c");
    assert!(Command::new("cc").args(["-O1", "-o"]).arg(&probe).arg(source).status().unwrap().success());
    let is_root = nix::unistd::geteuid().is_root();
    let (rows, left_out): (Vec<Row>, Vec<Row>) = rows().into_iter().partition(|row| is_root || !row.as_root);
    if !left_out.is_empty() {
        eprintln!("skipped: {} rows need root", left_out.len());
    }
    let (todo, differences) = (Mutex::new(rows.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(row) = { todo.lock().unwrap().next() } {
                    let found = difference(row, &probe);
                    differences.lock().unwrap().extend(found);
                }
            });
        }
    });
    let differences = differences.into_inner().unwrap();
    assert!(
        differences.is_empty(),
        "{} of {} rows:\n{}",
        differences.len(),
        rows.len(),
        differences.join("\n")
    );
}

/// How the two runs differ, if they do.
fn difference(row: &Row, probe: &Path) -> Option<String> {
    let corewise = env!("CARGO_BIN_EXE_corewise");
    let alone = result(row, probe, "", "");
    let under = result(row, probe, &format!("{corewise} run -q --"), &format!("{corewise} run --"));
    if !alone.contains(&row.shows) {
        return Some(format!("{}: alone there is no {:?}:\n{alone}", row.name, row.shows));
    }
    (alone != under).then(|| format!("{}\n--- alone\n{alone}--- under corewise\n{under}", row.name))
}

fn result(row: &Row, probe: &Path, prefix: &str, loud: &str) -> String {
    // What a row leaves behind when it kills corewise is not recovered, and told, by another.
    let (directory, runtime) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", "100", "bash", "-c"]).arg(format!("{PRELUDE}\n{}", row.script));
    command.current_dir(&directory).stdin(Stdio::null());
    command.env("P", prefix).env("LOUD", loud).env("probe", probe);
    command.env("XDG_RUNTIME_DIR", runtime.path());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}{}\n", text(&output.stdout), text(&output.stderr), output.status)
}
