use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const PLANTED: u64 = 300_123;

/// A program with a team of two, in whose first region libgomp was found.
struct Program {
    child: Child,
    runtimes: Runtimes,
    leader: ThreadId,
}

impl Program {
    fn start() -> Program {
        let directory = tempfile::tempdir().unwrap();
        let binary = directory.path().join("waiting");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/waiting.c");
        assert!(Command::new("cc").args(["-fopenmp", source, "-o"]).arg(&binary).status().unwrap().success());
        let mut command = Command::new(&binary);
        command.env(libgomp::VARIABLE, PLANTED.to_string()).env_remove("OMP_WAIT_POLICY");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        let mut runtimes = Runtimes::new(Some(PLANTED), &Guardian::idle()).unwrap();
        let pid = child.id();
        for tid in runtimes.proc.threads(pid).unwrap().unwrap() {
            let created = Instant::now();
            runtimes.watch(&NewThread { tid, pid, creator_tid: None, generation: 0, created });
        }
        let process = runtimes.processes.get_mut(&pid).unwrap();
        assert_eq!(process.search(pid, PLANTED, None), None);
        assert_eq!(process.copies.len(), 1);
        Program { child, runtimes, leader: ThreadId { tid: pid, generation: 0 } }
    }

    fn apply(&mut self, change: Change) {
        let action = Action { thread: self.leader, change, reason: String::new() };
        let outcome = self.runtimes.apply(&action).unwrap();
        assert_eq!(outcome.result, OutcomeKind::Done, "{outcome:?}");
    }

    /// Lets it neither run nor wait for a PE.
    fn stop(&self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGSTOP).unwrap();
        let threads = self.runtimes.proc.threads(self.child.id()).unwrap().unwrap();
        let is_stopped =
            |&tid: &u32| self.runtimes.proc.stat(self.child.id(), tid).unwrap().unwrap().state == 'T';
        while !threads.iter().all(is_stopped) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What the next look tells.
    fn look(&mut self) -> Vec<ProcessDelay> {
        std::thread::sleep(self.runtimes.due_within().unwrap());
        self.runtimes.look()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Else it would never be known to be calm, and its own choice would not hold again.
#[test]
fn a_process_whose_waits_are_changed_is_told_of_also_when_it_is_calm() {
    let mut program = Program::start();
    program.apply(Change::Set(Setting::SpinCount(200)));
    program.stop();
    program.look();
    let delays = program.look();
    assert_eq!(delays, [ProcessDelay { leader: program.leader, run_ns: 0, wait_ns: 0, adaptable: true }]);
    program.runtimes.processes.values_mut().for_each(|process| process.told_until = Instant::now());
    assert_eq!(program.look().len(), 1, "for however long it takes");
    program.apply(Change::Reset(SettingKind::SpinCount));
    assert_eq!(program.look(), []);
}
