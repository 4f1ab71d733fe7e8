//! The manual pages and completions, judged by the programs that read them.

use corewise_testing::needs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

fn corewise(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_corewise")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output
}

fn manual() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    corewise(&["manual", directory.path().to_str().unwrap()]);
    directory
}

#[test]
fn bash_understands_its_completion() {
    let file = manual();
    let completion = file.path().join("completions/corewise.bash");
    assert_eq!(std::fs::read(&completion).unwrap(), corewise(&["completions", "bash"]).stdout);
    let output = Command::new("bash").arg("-n").arg(&completion).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// As the shell does when somebody presses the tabulator key.
#[test]
fn bash_completes_commands_and_options() {
    const SCRIPT: &str = r#"source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _corewise corewise "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        echo "${COMPREPLY[@]}""#;
    let directory = manual();
    let file = directory.path().join("completions/corewise.bash");
    for (words, expected) in [
        (&["corewise", "emu"][..], "emulate-slow"),
        (&["corewise", "run", "--adapt"], "--adapt-team"),
        (&["corewise", "paths", "rec"], "record"),
    ] {
        let output =
            Command::new("bash").args(["-c", SCRIPT, "bash"]).arg(&file).args(words).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{words:?}: {output:?}");
    }
}

#[test]
fn man_shows_every_page_without_a_warning() {
    needs!(Man);
    let directory = manual();
    let pages = directory.path().join("man/man1");
    let shown = |page: &Path| {
        let man = Command::new("man").args(["--warnings", "-P", "cat", "-l"]).arg(page).output().unwrap();
        assert!(man.status.success() && man.stderr.is_empty(), "{}: {man:?}", page.display());
        String::from_utf8_lossy(&man.stdout).into_owned()
    };
    let pages_there: Vec<_> = std::fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(pages_there.len() > 30, "{pages_there:?}");
    pages_there.iter().for_each(|page| drop(shown(page)));
    let run = shown(&pages.join("corewise-run.1"));
    for words in ["EXAMPLES", "corewise run --policy cosched --report report.html ./server", "--adapt-team"] {
        assert!(run.contains(words), "{words}: {run}");
    }
}
