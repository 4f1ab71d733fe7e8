//! What the command says to those who mistype.

use assert_cmd::Command;
use corewise_testing::needs;

/// The exit status and standard error of a command that must not succeed.
fn refusal(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_corewise")).args(arguments).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}: {output:?}");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_mistyped_option_is_no_command() {
    for subcommand in ["run", "characterize"] {
        let (status, said) = refusal(&[subcommand, "--polcy", "spread", "--", "true"]);
        assert_eq!(status, 2, "{said}");
        assert!(said.contains("unexpected argument '--polcy'"), "{said}");
    }
}

#[test]
fn options_after_the_command_are_the_commands_own() {
    let output = Command::new(env!("CARGO_BIN_EXE_corewise"))
        .args(["run", "--quiet", "--counters", "none", "--discovery", "poll"])
        .args(["sh", "-c", "echo \"$@\"", "sh", "--polcy", "--quiet"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "--polcy --quiet\n", "{output:?}");
}

#[test]
fn a_mistake_is_answered_with_a_remedy() {
    for (line, remedy) in [
        ("run -- --policy pa true", "stand before the command"),
        ("topo notthere.xml", "no such file"),
        ("top --once firefox", "number of a process (`pgrep firefox`"),
        ("attach abc", "number of a process"),
        ("daemon --metrics 9775 --dry-run", "127.0.0.1:9775"),
        ("rnu -- true", "similar"),
    ] {
        let (_, said) = refusal(&line.split(' ').collect::<Vec<_>>());
        assert!(said.contains(remedy), "{line}: {said}");
    }
}

#[test]
fn a_kind_of_pes_that_may_not_be_used_is_named() {
    needs!(TwoPes);
    let command = ["run", "--no-daemon", "--fast", "0", "--policy", "pa", "--", "true"];
    let mut narrowed = Command::new("taskset");
    let output = narrowed.args(["-c", "1", env!("CARGO_BIN_EXE_corewise")]).args(command).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the fast PEs 0 may not be used") && said.contains("allows 1 only"), "{said}");
}

#[test]
fn an_unknown_format_of_reports_is_refused_before_the_command_runs() {
    let directory = tempfile::tempdir().unwrap();
    let ran = directory.path().join("ran");
    let report = directory.path().join("report.pdf");
    let (_, said) = refusal(&["run", "--report", report.to_str().unwrap(), "touch", ran.to_str().unwrap()]);
    assert!([".json", ".html", ".txt", "report.pdf"].iter().all(|part| said.contains(part)), "{said}");
    assert!(!ran.exists(), "the command ran");
}

#[test]
fn the_cause_of_an_error_is_printed_once() {
    let (_, said) = refusal(&["topo", "--machine", "/nonexistent/machine.xml"]);
    assert_eq!(said.matches("No such file or directory").count(), 1, "{said}");
}

#[test]
fn a_pe_is_not_made_so_slow_that_the_machine_would_hang() {
    for (arguments, words) in [
        (&["0", "--speed", "0"][..], "write a share"),
        (&["0", "--speed", "0.09"], "write a share"),
        (&["0", "--speed", "1"], "write a share"),
        (&["0", "--speed", "half"], "write a share"),
        (&["0"], "--speed <SHARE>"),
        (&["4095", "--speed", "0.5"], "4095"),
        (&["0", "--speed", "0.5", "--period", "1s"], "write a time from 1ms to 100ms"),
    ] {
        let (_, said) = refusal(&[&["emulate-slow"], arguments].concat());
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn kinds_that_do_not_divide_the_pes_are_refused_before_the_command_runs() {
    let directory = tempfile::tempdir().unwrap();
    let ran = directory.path().join("ran");
    let command = ["--", "touch", ran.to_str().unwrap()];
    for (arguments, status, words) in [
        (&["--fast", "4095"][..], 125, "the fast PEs: `4095`"),
        (&["--fast", "N"], 125, "are all fast"),
        (&["--fast", ""], 125, "is empty"),
        (&["--fast", "pu:0", "--slow", "pu:0"], 125, "both fast and slow"),
        (&["--slow", "0"], 2, "--fast <CPUS>"),
        (&["--fast", "0", "--profile", "profile.json"], 2, "--profile"),
    ] {
        let (found, said) = refusal(&[&["run"], arguments, &command].concat());
        assert!(found == status && said.contains(words), "{arguments:?}: {found}, {said}");
    }
    assert!(!ran.exists(), "the command ran");
}
