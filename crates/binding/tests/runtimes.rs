//! How long the idle threads of a running program spin: found, changed and given back.

use corewise_binding::runtimes::loaded::{Files, Loaded};
use corewise_binding::runtimes::variable::Variable;
use corewise_binding::runtimes::{libgomp, openmpi};
use corewise_binding::word::WriteError;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// So many iterations that no thread stops spinning within this test.
const FOR_EVER: u64 = 30_000_000_123;

/// Regions, 20 ms apart, within which something must be seen: more than 10 s.
const REGIONS_MAX: usize = 500;

/// A program with a team of two threads.
struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Compiled with these arguments, started with `GOMP_SPINCOUNT`.
    fn start(name: &str, arguments: &[&str], spin_count: u64) -> Program {
        let binary = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/waiting.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-fopenmp", "-o", &binary]).arg(source).args(arguments);
        assert!(compiler.status().unwrap().success());
        let mut command = Command::new(binary);
        command
            .env_remove("OMP_WAIT_POLICY")
            .env_remove("KMP_BLOCKTIME")
            .env(libgomp::VARIABLE, spin_count.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut program = Program { child, output };
        program.next_region();
        program
    }

    fn next_region(&mut self) {
        self.next_line();
    }

    fn next_line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the program has ended");
        line
    }

    /// The state of the second thread, and its CPU time in ticks of 10 ms.
    fn idle_thread(&self) -> (char, u64) {
        let pid = self.child.id();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let tids = tasks.map(|task| task.unwrap().file_name().into_string().unwrap());
        let second = tids.filter(|tid| *tid != pid.to_string()).min().expect("a team of two");
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{second}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        (fields[0].chars().next().unwrap(), fields[11].parse::<u64>().unwrap())
    }

    /// Waits until the second thread has used 50 ms of CPU time, which regions of some microseconds do not.
    fn await_spinning(&mut self) {
        let (_, before) = self.idle_thread();
        let spins = (0..REGIONS_MAX).any(|_| {
            self.next_region();
            self.idle_thread().1 >= before + 5
        });
        assert!(spins, "it has not spun in {REGIONS_MAX} regions");
    }

    /// Waits until the second thread sleeps, which one that spins for ever never does.
    fn await_sleeping(&mut self) {
        let sleeps = (0..REGIONS_MAX).any(|_| {
            self.next_region();
            self.idle_thread().0 == 'S'
        });
        assert!(sleeps, "it has not slept in {REGIONS_MAX} regions");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn loaded(program: &Program) -> Loaded {
    Loaded::in_process(program.child.id(), &mut Files::default()).unwrap()
}

fn only(mut found: Vec<Variable>) -> Variable {
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn spin_count(program: &Program) -> Variable {
    only(libgomp::find(&loaded(program), &mut Files::default()).into_iter().map(Result::unwrap).collect())
}

#[cfg(target_arch = "x86_64")]
#[test]
fn idle_threads_spin_as_long_as_is_written_and_again_as_before() {
    let mut program = Program::start("waiting", &[], FOR_EVER);
    program.await_spinning();
    let mut count = spin_count(&program);
    assert!(count.library().contains("libgomp") && count.own() == FOR_EVER, "{count:?}");
    count.write(10).unwrap();
    program.await_sleeping();
    count.give_back().unwrap();
    program.await_spinning();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_static_program_with_symbols_is_as_good_and_one_without_is_not_found() {
    let program = Program::start("waiting-static", &["-static"], FOR_EVER);
    let mut count = spin_count(&program);
    count.write(10).unwrap();
    let program = Program::start("waiting-stripped", &["-static", "-s"], FOR_EVER);
    assert!(libgomp::find(&loaded(&program), &mut Files::default()).is_empty());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_program_that_has_ended_or_set_another_value_is_left_alone() {
    let mut program = Program::start("waiting-ended", &[], FOR_EVER);
    let mut ours = spin_count(&program);
    let mut another = spin_count(&program);
    another.write(10).unwrap();
    assert_eq!(ours.write(20), Err(WriteError::NotOurs));
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    assert_eq!(another.write(20), Err(WriteError::Gone));
}

/// A program that waits as Open MPI's library does, and prints a line every time that this changes.
#[test]
fn a_process_that_waits_for_messages_yields_at_once_and_again_no_longer() {
    let binary = format!("{}/messages", env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages.c");
    let compiled = Command::new("cc").args(["-O2", "-rdynamic", "-o", &binary]).arg(source).status();
    assert!(compiled.unwrap().success());
    let mut child = Command::new(binary).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut program = Program { child, output };
    let pid = program.child.id();
    let find = || openmpi::find(&Loaded::in_process(pid, &mut Files::default()).unwrap());
    assert_eq!(program.next_line(), "keeps\n");
    let mut yields = only(find());
    for _ in 0..2 {
        yields.write(openmpi::YIELD).unwrap();
        assert_eq!(program.next_line(), "yields\n");
        assert!(find().is_empty(), "one that yields already needs nothing");
        // As the library does when it begins, though that is nobody's decision.
        kill(Pid::from_raw(pid as i32), Signal::SIGUSR1).unwrap();
        assert_eq!(program.next_line(), "keeps\n");
    }
    yields.write(openmpi::YIELD).unwrap();
    assert_eq!(program.next_line(), "yields\n");
    yields.give_back().unwrap();
    assert_eq!(program.next_line(), "keeps\n");
}

/// One that prints the spin count, but from a register that another function filled.
#[test]
fn a_library_whose_code_shows_no_variable_is_named() {
    const OTHER: &str = r#"
        #include <stdio.h>
        unsigned long count = 300000;
        __attribute__((noinline)) unsigned long spin_count(void) { return *(volatile unsigned long *)&count; }
        void GOMP_parallel(void) { printf("  GOMP_SPINCOUNT = '%lu'\n", spin_count()); }
        int main(void) { GOMP_parallel(); fflush(stdout); getchar(); }"#;
    let directory = tempfile::tempdir().unwrap();
    let (source, binary) = (directory.path().join("other.c"), directory.path().join("other"));
    std::fs::write(&source, OTHER).unwrap();
    let compiled = Command::new("cc").args(["-O2", "-rdynamic", "-o"]).arg(&binary).arg(&source).status();
    assert!(compiled.unwrap().success());
    let mut command = Command::new(&binary);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut program = Program { child, output };
    assert_eq!(program.next_line(), "  GOMP_SPINCOUNT = '300000'\n");
    let found = libgomp::find(&loaded(&program), &mut Files::default());
    let [Err(error)] = &found[..] else { panic!("{found:?}") };
    assert!(error.to_string().contains("/other`"), "{error}");
}
