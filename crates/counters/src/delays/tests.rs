use super::*;
use corewise_core::observe::IdleWait;
use corewise_testing::{Capability, is_refusal, or_skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A program with a team of two, and a meter that reads it.
struct Program {
    child: Child,
    meter: DelayMeter,
    leader: ThreadId,
}

impl Program {
    /// With an argument it has work all the time.
    fn start(arguments: &[&str]) -> Program {
        let directory = tempfile::tempdir().unwrap();
        let binary = directory.path().join("waiting");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../binding/tests/waiting.c");
        let built = Command::new("cc").args(["-fopenmp", source, "-o"]).arg(&binary).status();
        assert!(built.unwrap().success());
        let mut command = Command::new(binary);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        let (pid, mut meter) = (child.id(), DelayMeter::new(Instant::now()));
        for tid in meter.proc.threads(pid).unwrap().unwrap() {
            let created = Instant::now();
            meter.watch(&NewThread { tid, pid, creator_tid: None, generation: 0, created });
        }
        Program { child, meter, leader: ThreadId { tid: pid, generation: 0 } }
    }

    fn set_changed(&mut self, are_changed: bool) {
        self.meter.set_waits(self.leader.tid, IdleWait::Adaptable.into(), are_changed);
    }

    /// Lets it neither run nor wait for a PE.
    fn stop(&self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGSTOP).unwrap();
        let threads = self.meter.proc.threads(self.child.id()).unwrap().unwrap();
        let is_stopped =
            |&tid: &u32| self.meter.proc.stat(self.child.id(), tid).unwrap().unwrap().state == 'T';
        while !threads.iter().all(is_stopped) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What the next reading shows of it.
    fn look(&mut self) -> Option<Seen> {
        std::thread::sleep(self.meter.due_within()?);
        self.meter.read().pop()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A control group that gets a twentieth of a PE.
struct Limited(PathBuf);

impl Limited {
    fn new() -> io::Result<Limited> {
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let above = if v1.is_dir() { v1 } else { Path::new("/sys/fs/cgroup") };
        let group = Limited(above.join(format!("corewise-test-{}", std::process::id())));
        fs::create_dir(&group.0)?;
        match v1.is_dir() {
            true => fs::write(group.0.join("cpu.cfs_quota_us"), "5000")?,
            false => fs::write(group.0.join("cpu.max"), "5000 100000")?,
        }
        Ok(group)
    }

    fn lift(&self) {
        let (file, none) = match self.0.join("cpu.max").exists() {
            true => ("cpu.max", "max"),
            false => ("cpu.cfs_quota_us", "-1"),
        };
        fs::write(self.0.join(file), none).unwrap();
    }

    fn times_throttled(&self) -> u64 {
        self.stat("nr_throttled ").unwrap()
    }

    fn throttled_ns(&self) -> u64 {
        let version_2 = self.stat("throttled_usec ").map(|us| 1000 * us);
        version_2.or_else(|| self.stat("throttled_time ")).unwrap()
    }

    fn stat(&self, name: &str) -> Option<u64> {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        stat.lines().find_map(|line| line.strip_prefix(name)?.parse().ok())
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // A process that has been killed is in its group for a moment longer.
        while fs::remove_dir(&self.0).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn readings_are_cumulative_and_a_stopped_program_adds_nothing() {
    let mut program = Program::start(&["busy"]);
    let first = program.look().unwrap();
    // The waiting time of a thread is known when its wait is over.
    let second = loop {
        let look = program.look().unwrap();
        if look.reading.threads > 0 {
            break look;
        }
    };
    let times = second.reading.since(&first.reading);
    assert!(times.elapsed_s > 0.0 && times.run_s + times.wait_s > 0.0, "{times:?}");
    assert!(second.reading.threads <= 2 && second.threads == 2, "{second:?}");
    let own = corewise_sys::affinity::get(0).unwrap();
    assert_eq!((second.reading.leader, second.reading.pes), (program.leader, own.len() as u32));
    program.stop();
    program.look();
    let before = program.look().unwrap().reading;
    let after = program.look().unwrap().reading;
    assert_eq!(after, ProcessReading { at: after.at, ..before });
    assert_eq!((after.threads, after.waits, after.idle_ns), (0, IdleWaits::default(), None));
}

/// Until its parent waits for it, the kernel shows its times.
#[test]
fn a_process_that_has_ended_is_over_and_another_thread_of_its_number_is_not_it() {
    let mut program = Program::start(&[]);
    program.meter.forget(ThreadId { generation: 1, ..program.leader });
    let is_over = |program: &Program| program.meter.last().next().is_none();
    program.look();
    assert!(!is_over(&program));
    program.meter.forget(program.leader);
    program.look();
    assert!(is_over(&program));
    let _ = program.child.kill();
    program.child.wait().unwrap();
    assert_eq!(program.look().unwrap().threads, 0);
    assert!(program.look().is_none() && !program.meter.has_teams());
}

#[test]
fn how_idle_its_pes_are_is_read_while_its_waits_are_changed() {
    let mut program = Program::start(&[]);
    assert_eq!(program.look().unwrap().reading.idle_ns, None);
    program.set_changed(true);
    let mut idle = Vec::new();
    let end = Instant::now() + Duration::from_secs(120);
    while idle.len() < 2 {
        idle.extend(program.look().unwrap().reading.idle_ns);
        assert!(Instant::now() < end);
    }
    assert!(idle[0] <= idle[1], "{idle:?}");
    program.set_changed(false);
    assert_eq!(program.look().unwrap().reading.idle_ns, None);
    assert!(program.meter.pe_times.is_none());
}

/// Nobody else wants its PEs meanwhile: waits that are short would only cost it time.
#[test]
fn what_a_quota_keeps_a_program_from_is_no_time_that_others_need_its_pes() {
    let group = or_skip!(Limited::new(), |error| is_refusal(error).then_some(Capability::Cgroup));
    let mut program = Program::start(&["busy"]);
    fs::write(group.0.join("cgroup.procs"), program.child.id().to_string()).unwrap();
    // It has its second thread again, in this group.
    let (pid, created) = (program.leader.tid, Instant::now());
    program.meter = DelayMeter::new(created);
    for tid in program.meter.proc.threads(pid).unwrap().unwrap() {
        program.meter.watch(&NewThread { tid, pid, creator_tid: None, generation: 0, created });
    }
    let mut last = program.look().unwrap().reading;
    while group.times_throttled() < 8 {
        last = program.look().unwrap().reading;
    }
    let of_group = group.throttled_ns();
    let proc = &program.meter.proc;
    let threads = proc.threads(pid).unwrap().unwrap();
    let wait_ns = |tid| proc.schedstat(pid, tid, false).unwrap()?.read().unwrap();
    let all_ns: u64 = threads.into_iter().filter_map(wait_ns).map(|stat| stat.wait_ns).sum();
    assert_eq!(last.quota_permille, Some(50));
    group.lift();
    while program.look().unwrap().reading.quota_permille.is_some() {}
    drop(program);
    let (waited_ns, throttled_ns) = (last.wait_ns, last.throttled_ns);
    assert!(throttled_ns > of_group / 2, "{throttled_ns} by the quota, which took {of_group}");
    // However many others want its PEs: no wait counts twice.
    assert!(
        waited_ns + throttled_ns <= all_ns,
        "{throttled_ns} by the quota, {waited_ns} by others of {all_ns}"
    );
}

/// The first reading of a process has nothing to be compared with.
#[test]
fn a_process_is_reported_while_its_waits_are_changed_and_calm_ones_are_not() {
    let mut program = Program::start(&[]);
    program.stop();
    assert!(!program.look().unwrap().is_reported);
    program.look();
    assert!(!program.look().unwrap().is_reported);
    program.set_changed(true);
    assert!(program.look().unwrap().is_reported);
    program.meter.forget(program.leader);
    assert!(!program.look().unwrap().is_reported, "it is over");
}

#[test]
fn interruptions_are_harmful_if_the_threads_of_all_teams_yield() {
    assert!(!DelayMeter::new(Instant::now()).is_any_interruption_harmful());
    let mut program = Program::start(&[]);
    assert!(!program.meter.is_any_interruption_harmful());
    program.meter.set_waits(program.leader.tid, IdleWait::Yield.into(), false);
    assert!(program.meter.is_any_interruption_harmful());
}

#[test]
fn a_process_that_is_left_is_read_no_more_and_its_first_thread_returned() {
    let mut program = Program::start(&[]);
    let pid = program.leader.tid;
    assert!(program.meter.threads(pid) >= 2);
    assert_eq!(program.meter.leave(pid), Some(program.leader));
    assert_eq!((program.meter.threads(pid), program.meter.kept_open), (0, 0));
    assert_eq!(program.meter.leave(pid), None);
}
