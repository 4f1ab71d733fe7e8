//! Programs that ask how many PEs they may use, or for `SCHED_DEADLINE`, after they were placed.

use crate::common::{Running, corewise, masks_of, wait_for};
use corewise_discovery::asks;
use corewise_sys::proc::Proc;
use corewise_testing::{needs, skip};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// A policy that places all threads on PE 0, and says so in a file when that was done long ago; in another
/// one when there is nothing to place since.
const PLACES_ALL: &str = "
import json, sys
json.loads(sys.stdin.readline())
print(json.dumps({'version': 1}), flush=True)
placed = 0
for line in sys.stdin:
    scene = json.loads(line)
    threads = [thread for thread in scene['threads'] if thread['placeable']]
    bind = [{'thread': thread['thread'], 'pes': '0', 'reason': 'to do harm'} for thread in threads]
    print(json.dumps({'step': scene['step'], 'bind': bind}), flush=True)
    placed += bool(bind)
    if placed == 20:
        open(sys.argv[1], 'w').close()
    if placed >= 20 and not bind:
        open(sys.argv[2], 'w').close()
";

/// See `asks.c`.
fn compiled(directory: &Path) -> PathBuf {
    let binary = directory.join("asks");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/asks.c");
    assert!(
        Command::new("cc").args(["-O1", "-pthread", source, "-o"]).arg(&binary).status().unwrap().success()
    );
    binary
}

/// A program under corewise that asks.
struct Asks {
    corewise: Running,
    pid: u32,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    directory: TempDir,
}

impl Asks {
    /// Starts it, and waits until it has been placed.
    fn placed(threads: &str) -> Asks {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("places_all.py"), PLACES_ALL).unwrap();
        let (placed, left) = (at("placed"), at("left"));
        let arguments = [at("places_all.py"), placed.clone(), left].map(|file| file.display().to_string());
        let policy = format!("exec:deadline=60s,python3 {}", arguments.join(" "));
        let options =
            ["run", "--interval", "50ms", "--counters", "none", "--guard", "off", "--policy", &policy];
        let mut command: Command = corewise();
        let program = compiled(directory.path());
        command.args(options).arg("--report").arg(at("report.json")).arg("--").arg(program).arg(threads);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let corewise = Running(child);
        wait_for(|| placed.exists().then_some(()));
        let children = || Proc::own().children(corewise.0.id()).unwrap_or_default();
        let is_it = |pid: &u32| Proc::own().program_name(*pid).as_deref() == Some("asks");
        let pid = wait_for(|| children().into_iter().find(is_it));
        Asks { corewise, pid, questions, answers, directory }
    }

    fn ask(&mut self, question: &str) -> String {
        writeln!(self.questions.as_mut().unwrap(), "{question}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    fn is_bound(&self) -> bool {
        masks_of(self.pid).iter().any(|mask| mask == "0")
    }

    /// Ends it and returns the report.
    fn report(mut self) -> Value {
        drop(self.questions.take());
        assert!(self.corewise.0.wait().unwrap().success());
        let file: &Path = &self.directory.path().join("report.json");
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    }
}

fn notes(report: &Value) -> String {
    report["notes"].as_array().unwrap().iter().map(|note| format!("{note}\n")).collect()
}

#[test]
fn a_program_of_one_thread_is_placed_and_sees_every_pe_whenever_it_asks() {
    needs!(TwoPes, Python);
    let all = masks_of(std::process::id())[0].clone();
    let mut program = Asks::placed("1");
    let pes = program.ask("mask");
    assert!(pes.parse::<usize>().unwrap() > 1, "{pes} of {all}");
    let report = program.report();
    let is_placed = |decision: &Value| decision["pes"] == "0" && decision["outcome"] == "done";
    assert!(report["decisions"].as_array().unwrap().iter().any(is_placed), "{report:#}");
    assert!(!notes(&report).contains("asked how many"), "{report:#}");
}

/// What it starts would inherit its weight, if it had one.
#[test]
fn a_moved_program_that_starts_others_is_moved_no_more() {
    needs!(TwoPes, Python, Bpf);
    let mut program = Asks::placed("1");
    assert_eq!(program.ask("start"), "0");
    wait_for(|| program.directory.path().join("left").exists().then_some(()));
    let report = program.report();
    let of_program = |thread: &&Value| thread["name"] == "asks";
    let thread = report["threads"].as_array().unwrap().iter().find(of_program).unwrap();
    assert_eq!(thread["standing"], "starts_programs", "{report:#}");
}

#[test]
fn a_program_of_one_thread_is_placed_and_gets_sched_deadline() {
    needs!(TwoPes, Python, Root);
    let mut program = Asks::placed("1");
    assert_eq!(program.ask("deadline"), "0");
}

#[test]
fn a_program_that_asks_while_it_is_bound_is_bound_no_more_and_the_remedy_is_said() {
    needs!(TwoPes, Python);
    if let Some(why) = asks::why_unseen() {
        skip!(BpfAtFunctions, "{why}");
    }
    let mut program = Asks::placed("2");
    // A team: its threads are bound.
    wait_for(|| program.is_bound().then_some(()));
    wait_for(|| (program.ask("mask") == "1").then_some(()));
    wait_for(|| (!program.is_bound()).then_some(()));
    assert_ne!(program.ask("mask"), "1");
    let notes = notes(&program.report());
    assert!(notes.contains("`asks` asked how many PEs") && notes.contains("OMP_NUM_THREADS"), "{notes}");
}

#[test]
fn a_program_that_was_refused_sched_deadline_is_left_alone_and_gets_it_at_the_next_request() {
    needs!(TwoPes, Python, Root);
    if let Some(why) = asks::why_unseen() {
        skip!(BpfAtFunctions, "{why}");
    }
    let mut program = Asks::placed("2");
    wait_for(|| program.is_bound().then_some(()));
    wait_for(|| (program.ask("deadline") != "0").then_some(()));
    wait_for(|| (!program.is_bound()).then_some(()));
    assert_eq!(program.ask("deadline"), "0");
    let report = program.report();
    let notes = notes(&report);
    assert!(notes.contains("`asks` asked for SCHED_DEADLINE") && notes.contains("leave-alone"), "{notes}");
    assert!(report["threads"].to_string().contains("needs_all_pes"), "{report:#}");
}
