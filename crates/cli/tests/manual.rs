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

/// What a real bash proposes for a line, as when somebody presses the tabulator key there. `words` is the
/// line as bash parts it, also at `=` and `:`.
fn proposed(directory: &Path, words: &[&str]) -> Vec<String> {
    const SCRIPT: &str = r#"source "$1"; shift; COMP_LINE=$1; COMP_POINT=${#COMP_LINE}; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); typed=${COMP_WORDS[COMP_CWORD]}
        [[ $typed == [=:] ]] && typed=
        _corewise "$1" "$typed" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let program = env!("CARGO_BIN_EXE_corewise");
    let line = words.join(" ").replace(" = ", "=").replace(" =", "=").replace(" : ", ":").replace(" :", ":");
    let file = manual();
    let output = Command::new("bash")
        .args(["--norc", "-c", SCRIPT, "bash"])
        .arg(file.path().join("completions/corewise.bash"))
        .arg(format!("{program} {line}"))
        .arg(program)
        .args(words)
        .env("COLUMNS", "200")
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_their_values() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["report.json", "two words.json", "picture.png"] {
        std::fs::write(directory.path().join(name), "").unwrap();
    }
    std::fs::create_dir(directory.path().join("folder")).unwrap();
    let proposed = |words: &[&str]| proposed(directory.path(), words);
    for (words, expected) in [
        (&["emu"][..], &["emulate-slow"][..]),
        (&["run", "--adapt"], &["--adapt-team"]),
        (&["paths", "rec"], &["record"]),
        (&["run", "--policy", "cosc"], &["cosched"]),
        (&["run", "--policy", "=", "cosc"], &["cosched"]),
        (&["run", "--discovery", "b"], &["bpf"]),
        (&["run", "--waits", "="], &["off", "spin", "turns", "auto"]),
        (&["calibrate", "--kernels", "int-add-chain,fp-div-c"], &["int-add-chain,fp-div-chain"]),
        (&["explain", ""], &["folder/", "report.json", "two\\ words.json"]),
        (&["run", "--json", "=", "rep"], &["report.json"]),
        (&["policies", "policy-k"], &[]),
    ] {
        let found = proposed(words);
        let values: Vec<&str> = found.iter().map(|line| line.split("  ").next().unwrap()).collect();
        assert!(expected.iter().all(|value| values.contains(value)), "{words:?}: {found:?}");
        assert!(values.len() == expected.len() || words == ["explain", ""], "{words:?}: {found:?}");
        assert!(!values.contains(&"picture.png"), "{words:?}: {found:?}");
    }
}

#[test]
fn bash_completes_numbers_of_processes_with_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let name = "corewise-completed";
    let program = directory.path().join(name);
    std::fs::copy("/bin/sleep", &program).unwrap();
    let mut sleeper = [(); 2].map(|()| Command::new(&program).arg("1000").spawn().unwrap());
    let found = proposed(directory.path(), &["top", name]);
    let numbered = proposed(directory.path(), &["run", "--pid", &sleeper[0].id().to_string()]);
    for child in &mut sleeper {
        child.kill().and_then(|()| child.wait()).unwrap();
    }
    for child in &sleeper {
        let is_it = |line: &String| line.starts_with(&child.id().to_string()) && line.ends_with(name);
        assert!(found.iter().any(is_it), "{found:?}");
    }
    assert!(numbered.iter().any(|line| line.starts_with(&sleeper[0].id().to_string())), "{numbered:?}");
}

#[test]
fn bash_completes_commands_and_their_files_behind_ours() {
    let directory = tempfile::tempdir().unwrap();
    for words in
        [&["run", "--", "mkfif"][..], &["run", "--policy", "pa", "mkfif"], &["progress", "--", "mkfif"]]
    {
        assert!(proposed(directory.path(), words).contains(&"mkfifo".to_owned()), "{words:?}");
    }
    // Then bash's own way of completing files follows.
    assert_eq!(proposed(directory.path(), &["run", "--", "ls", "--pol"]), Vec::<String>::new());
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
