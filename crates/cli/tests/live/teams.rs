//! The size of thread teams that `--adapt-team` chooses before a program starts.

use crate::common::{Running, corewise};
use crate::waits::crowd;
use corewise_testing::needs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// See `teams.c`.
fn compiled(directory: &Path) -> PathBuf {
    let binary = directory.join("teams");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/teams.c");
    assert!(
        Command::new("cc").args(["-O1", "-fopenmp", source, "-o"]).arg(&binary).status().unwrap().success()
    );
    binary
}

/// A command with `--adapt-team`, with only these variables about teams.
fn run(options: &[&str], variables: &[(&str, &str)], command: &[&str]) -> Command {
    let mut run = corewise();
    let is_of_teams = |name: &str| name.starts_with("OMP_") || name.ends_with("_NUM_THREADS");
    std::env::vars().filter(|(name, _)| is_of_teams(name)).for_each(|(name, _)| _ = run.env_remove(name));
    run.args(["run", "--adapt-team"]).args(options).arg("--").args(command);
    run.envs(variables.iter().copied());
    run
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap().trim()
}

#[test]
fn a_program_that_relies_on_the_size_of_its_team_is_right_when_others_need_pes_later() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let binary = compiled(directory.path());
    let mut command = run(&["--quiet"], &[], &[binary.to_str().unwrap(), "2"]);
    let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(running.0.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    // It knows its size by now.
    let crowd = crowd();
    let status = running.0.wait().unwrap();
    assert_eq!(status.code(), Some(0), "1: a sum was wrong, 2: a thread did not come");
    drop(crowd);
}

#[test]
fn a_program_that_starts_while_others_run_has_a_smaller_team_and_the_closing_line_says_so() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let binary = compiled(directory.path());
    let crowd = crowd();
    let output = run(&[], &[], &[binary.to_str().unwrap()]).output().unwrap();
    let size: usize = text(&output.stdout).parse().unwrap();
    assert!(size < std::thread::available_parallelism().unwrap().get(), "{output:?}");
    let said = text(&output.stderr);
    let threads = if size == 1 { "1 thread".to_owned() } else { format!("{size} threads") };
    assert!(said.contains(&format!("started the command with teams of {threads}")), "{output:?}");
    assert!(said.contains("sums may be rounded differently"), "{output:?}");
    let children =
        run(&["--quiet"], &[], &["sh", "-c", "sh -c 'echo $OMP_NUM_THREADS'; true"]).output().unwrap();
    assert_eq!(text(&children.stdout), size.to_string(), "children inherit it");
    let dry = run(&["--quiet", "--dry-run"], &[], &["sh", "-c", "echo $OMP_NUM_THREADS"]).output().unwrap();
    assert_eq!(text(&dry.stdout), "");
    drop(crowd);
}

#[test]
fn a_rule_adapts_the_teams_of_its_programs_and_of_no_others() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let rules = "[[rule]]\nname = 'training'\nmatch.name = 'train.sh'\nadapt-team = true\n";
    std::fs::write(directory.path().join("rules.toml"), rules).unwrap();
    for script in ["train.sh", "other.sh"] {
        std::fs::write(directory.path().join(script), "echo $OMP_NUM_THREADS\n").unwrap();
    }
    let report = directory.path().join("report.json");
    let size = |options: &[&str], script: &str| {
        let mut run = corewise();
        run.env_remove("OMP_NUM_THREADS").args(["run", "--config-dir"]).arg(directory.path()).args(options);
        run.arg("--report").arg(&report).args(["--", "sh"]).arg(directory.path().join(script));
        text(&run.output().unwrap().stdout).to_owned()
    };
    let crowd = crowd();
    let adapted: usize = size(&[], "train.sh").parse().unwrap();
    assert!(adapted < std::thread::available_parallelism().unwrap().get(), "{adapted}");
    let said = std::fs::read_to_string(&report).unwrap();
    assert!(said.contains("its teams are adapted by the rule `training`"), "{said}");
    assert_eq!((size(&["--dry-run"], "train.sh"), size(&[], "other.sh")), (String::new(), String::new()));
    // A broken rule keeps no command from running.
    std::fs::write(directory.path().join("rules.toml"), "[[rule]]\n").unwrap();
    assert_eq!(size(&[], "train.sh"), "");
    drop(crowd);
}

#[test]
fn a_choice_of_the_user_stays_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    for (variable, why) in
        [("OMP_THREAD_LIMIT", "OMP_THREAD_LIMIT is set"), ("OMP_PLACES", "the user binds their threads")]
    {
        let options = ["--report", report.to_str().unwrap()];
        let output =
            run(&options, &[(variable, "3")], &["sh", "-c", "echo $OMP_NUM_THREADS"]).output().unwrap();
        assert_eq!(text(&output.stdout), "", "{output:?}");
        let report = std::fs::read_to_string(&report).unwrap();
        assert!(report.contains("teams stay as they are: ") && report.contains(why), "{report}");
    }
}

/// A program that prints `OMP_SCHEDULE`, and imports this function as compilers make it do.
fn importing(directory: &Path, function: &str) -> PathBuf {
    let compile = |name: &str, source: &str, options: &[&str]| {
        let (from, to) = (directory.join(format!("{name}.c")), directory.join(name));
        std::fs::write(&from, source).unwrap();
        let mut compiler = Command::new("cc");
        compiler.arg(from).arg("-o").arg(&to).arg(format!("-Wl,-rpath,{}", directory.display()));
        assert!(compiler.args(options).status().unwrap().success());
        to
    };
    let library = compile(
        &format!("lib{function}.so"),
        &format!("void __kmpc_fork_call(void) {{}} void {function}(void) {{}}"),
        &["-shared", "-fPIC"],
    );
    let program = format!(
        "#include <stdio.h>\n#include <stdlib.h>\nvoid __kmpc_fork_call(void); void {function}(void);\n\
         int main(void) {{ __kmpc_fork_call(); {function}(); const char *set = getenv(\"OMP_SCHEDULE\");\n\
         puts(set ? set : \"unset\"); }}"
    );
    compile(&format!("with-{function}"), &program, &[library.to_str().unwrap()])
}

#[test]
fn a_schedule_is_set_on_uneven_pes_only_for_loops_that_ask_for_one_and_never_over_the_users() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let asks = importing(directory.path(), "__kmpc_dispatch_init_4");
    let is_static = importing(directory.path(), "__kmpc_for_static_init_4");
    let uneven = &["--fast", "0"][..];
    let said = |options: &[&str], variables: &[(&str, &str)], program: &Path| {
        let mut command = run(options, variables, &[program.to_str().unwrap()]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
    };
    let (schedule, closing) = said(uneven, &[], &asks);
    assert_eq!(schedule, "guided", "{closing}");
    assert!(
        closing.contains("started the command with") && closing.contains("OMP_SCHEDULE=guided"),
        "{closing}"
    );
    for (options, variables, program, expected) in [
        (uneven, &[("OMP_SCHEDULE", "static")][..], &asks, "static"),
        (uneven, &[], &is_static, "unset"),
        (&[], &[], &asks, "unset"),
        (&["--fast", "0", "--dry-run"], &[], &asks, "unset"),
    ] {
        let (schedule, closing) = said(options, variables, program);
        assert_eq!(schedule, expected, "{options:?} {variables:?}: {closing}");
        assert!(!closing.contains("OMP_SCHEDULE"), "{closing}");
    }
}

#[test]
fn how_much_slower_pes_are_must_be_known_before_a_team_leaves_them_out() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().unwrap();
    let program = importing(directory.path(), "__kmpc_for_static_init_4");
    let report = directory.path().join("report.json");
    let options = ["--fast", "0", "--report", report.to_str().unwrap()];
    let output = run(&options, &[], &[program.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert!(report["waits"]["team_pes"].is_null(), "{report}");
    // Beside others it has a smaller team, wherever that runs.
    let whole_machine = report["waits"]["team_size"].is_null();
    assert_eq!(report["notes"].to_string().contains("how much slower they are"), whole_machine, "{report}");
}

/// It has asked already.
#[test]
fn the_teams_of_a_running_program_cannot_be_adapted() {
    let output = corewise().args(["run", "--adapt-team", "--pid", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("--adapt-team"), "{output:?}");
}
