//! `docs/contract.md`, line by line: what a program sees and does is the same alone and under corewise.
//!
//! A row is a shell script in which `$P` stands for the words before the program: none, or `corewise run -q
//! --`. Both times it must print the same and have the same exit status; and when run alone, print the text
//! that shows that the row shows something. `probe.c` says what a shell cannot. Rows in which the program
//! says what it finds hold for everything that [starts](starters) programs.

mod rows;
mod starters;

use rows::{Row, found, rows};
use starters::STARTERS;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use tempfile::TempDir;

/// More than the machine has PEs, as most rows wait most of the time.
const AT_ONCE: usize = 12;

/// `hear WORDS…` starts the probe that says which signals come, `rest` says what it has heard.
const PRELUDE: &str = r#"
hear() { coproc H { exec "$@" $probe hear; }; exec 4<&"${H[0]}"; pid=$H_PID; read -r line <&4; }
rest() { cat <&4; wait $pid; echo "status $?"; }
"#;

/// What a program has said that was started by `$P`, without what tells that it is under corewise, and where
/// it ran.
const SEEN: &str = "grep -av -e ^COREWISE_PID= -e ^PWD= $seen";

#[test]
fn a_program_sees_and_does_under_corewise_what_it_sees_and_does_alone() {
    let (_directory, probe) = probe();
    let is_root = nix::unistd::geteuid().is_root();
    let (rows, left_out): (Vec<Row>, Vec<Row>) = rows().into_iter().partition(|row| is_root || !row.as_root);
    if !left_out.is_empty() {
        eprintln!("skipped: {} rows need root", left_out.len());
    }
    check_all(rows, |row| difference(row, &probe));
}

#[test]
fn a_program_finds_what_it_finds_alone_whatever_starts_it() {
    let (_directory, probe) = probe();
    let rows = found();
    let all = STARTERS
        .iter()
        .flat_map(|starter| rows.iter().filter(|row| starter.keeps(row)).map(move |row| (starter, row)));
    check_all(all.collect(), |(starter, row)| {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("{}\n{SEEN}", row.script);
        let [alone, under] = starter.words(&probe, folder.path()).map(|words| {
            let _ = std::fs::remove_file(folder.path().join("seen"));
            let seen = folder.path().join("seen");
            result(&script, &probe, &[("P", words.as_ref()), ("seen", seen.as_ref())])
        });
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        let said = compared(row, alone, under)?;
        Some(format!("{}: {said}--- log\n{log}", starter.name))
    });
}

/// The compiled `probe.c`, in a directory.
fn probe() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let probe = directory.path().join("probe");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/contract/probe.c");
    // With what `corewise pgo` demands of a program.
    let options = ["-O1", "-g", "-gz=none", "-o"];
    assert!(Command::new("cc").args(options).arg(&probe).arg(source).status().unwrap().success());
    (directory, probe)
}

/// Checks everything, several at once, and fails with all differences.
fn check_all<One: Sync>(all: Vec<One>, difference: impl Fn(&One) -> Option<String> + Sync) {
    let (todo, differences) = (Mutex::new(all.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(one) = { todo.lock().unwrap().next() } {
                    let found = difference(one);
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
        all.len(),
        differences.join("\n")
    );
}

/// How the two runs differ, if they do.
fn difference(row: &Row, probe: &Path) -> Option<String> {
    let corewise = env!("CARGO_BIN_EXE_corewise");
    let alone = result(&row.script, probe, &[]);
    let [quiet, loud] = ["run -q --", "run --"].map(|command| format!("{corewise} {command}"));
    let under = result(&row.script, probe, &[("P", quiet.as_ref()), ("LOUD", loud.as_ref())]);
    compared(row, alone, under)
}

fn compared(row: &Row, alone: String, under: String) -> Option<String> {
    if !alone.contains(&row.shows) {
        return Some(format!("{}: alone there is no {:?}:\n{alone}", row.name, row.shows));
    }
    (alone != under).then(|| format!("{}\n--- alone\n{alone}--- under corewise\n{under}", row.name))
}

fn result(script: &str, probe: &Path, variables: &[(&str, &OsStr)]) -> String {
    // What a row leaves behind when it kills corewise is not recovered and reported by another row.
    let (directory, runtime) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", "100", "bash", "-c"]).arg(format!("{PRELUDE}\n{script}"));
    command.current_dir(&directory).stdin(Stdio::null());
    command.env("probe", probe).env("XDG_RUNTIME_DIR", runtime.path());
    command.env("P", "").env("LOUD", "").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}{}\n", text(&output.stdout), text(&output.stderr), output.status)
}
