use super::loaded::Loaded;
use super::*;
use corewise_testing::{Capability, is_refusal, or_skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A program with a team of two, in whose first region libgomp was found.
struct Program {
    child: Child,
    runtimes: Runtimes,
    leader: ThreadId,
}

impl Program {
    fn start() -> Program {
        Program::start_with(&[])
    }

    fn start_with(variables: &[(&str, &str)]) -> Program {
        let mut program = Program::compiled_by("cc", variables);
        let process = program.search();
        assert_eq!(process.copies.len(), 1);
        program
    }

    fn search(&mut self) -> &Process {
        let pid = self.child.id();
        let process = self.runtimes.processes.get_mut(&pid).unwrap();
        assert!(process.search(pid, true, &mut HashSet::new(), None).is_empty());
        process
    }

    fn compiled_by(compiler: &str, variables: &[(&str, &str)]) -> Program {
        let (_directory, mut command) = compiled(compiler);
        undecided(&mut command).envs(variables.iter().copied());
        Program::watched(command)
    }

    fn watched(mut command: Command) -> Program {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        let runtimes = watching(child.id());
        let leader = ThreadId { tid: child.id(), generation: 0 };
        Program { child, runtimes, leader }
    }

    fn apply(&mut self, change: Change) {
        let action = Action { thread: self.leader, change, reason: "".into() };
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

/// Without a user's choice of how threads wait.
fn undecided(command: &mut Command) -> &mut Command {
    libgomp::WISHES.iter().for_each(|wish| _ = command.env_remove(wish));
    command.envs(libgomp::PLANTED.map(|planted| (libgomp::VARIABLE, planted.to_string())))
}

fn compiled(compiler: &str) -> (tempfile::TempDir, Command) {
    let directory = tempfile::tempdir().unwrap();
    let binary = directory.path().join("waiting");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/waiting.c");
    let built = Command::new(compiler).args(["-fopenmp", source, "-o"]).arg(&binary).status();
    assert!(built.unwrap().success());
    (directory, Command::new(binary))
}

/// Who watches all threads of a process.
fn watching(pid: u32) -> Runtimes {
    let mut runtimes = Runtimes::new(&EngineConfig::default());
    runtimes.may_write(&Guardian::idle());
    for tid in runtimes.proc.threads(pid).unwrap().unwrap() {
        let created = Instant::now();
        runtimes.watch(&NewThread { tid, pid, creator_tid: None, generation: 0, created });
    }
    runtimes
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
    let expected = ProcessDelay {
        leader: program.leader,
        run_ns: 0,
        wait_ns: 0,
        throttled_ns: 0,
        idle_percent: delays[0].idle_percent,
        elapsed_ns: delays[0].elapsed_ns,
        adaptable: true,
        gives_way: false,
        other_gangs: 0,
        timeslices: Some(0),
        spin_count: Some(200),
    };
    assert_eq!(delays, [expected]);
    program.runtimes.processes.values_mut().for_each(|process| process.told_until = Instant::now());
    assert_eq!(program.look().len(), 1, "for however long it takes");
    program.apply(Change::Reset(SettingKind::SpinCount));
    assert_eq!(program.look(), []);
}

/// Until somebody waits for it, the kernel shows its times.
#[test]
fn a_process_that_has_ended_is_told_of_no_more() {
    let mut program = Program::start();
    program.apply(Change::Set(Setting::SpinCount(200)));
    program.runtimes.forget(ThreadId { generation: 1, ..program.leader });
    assert_eq!(program.look().len(), 1, "that was another thread");
    program.runtimes.forget(program.leader);
    assert_eq!(program.look(), []);
}

/// Its parent may have other values before the child is first seen.
#[test]
fn a_child_is_given_its_own_waits_back_whatever_its_parent_has_by_then() {
    for then in [Change::Set(Setting::SpinCount(50)), Change::Reset(SettingKind::SpinCount)] {
        let mut program = Program::start();
        program.search();
        program.apply(Change::Set(Setting::SpinCount(200)));
        program.child.stdin.as_mut().unwrap().write_all(b"f").unwrap();
        let end = Instant::now() + Duration::from_secs(120);
        let child = loop {
            if let Some(&child) = program.runtimes.proc.children(program.child.id()).unwrap().first() {
                break child;
            }
            assert!(Instant::now() < end, "it forks");
        };
        program.apply(then);
        let value = || {
            let loaded = Loaded::in_process(child, &mut HashSet::new()).unwrap();
            libgomp::find(&loaded).remove(0).unwrap().own()
        };
        assert_eq!(value(), 200, "it has its parent's");
        let thread =
            NewThread { tid: child, pid: child, creator_tid: None, generation: 0, created: Instant::now() };
        program.runtimes.watch(&thread);
        assert_eq!(value(), libgomp::UNDECIDED);
    }
}

/// How idle its PEs are is known after a while, and only while its waits are changed.
#[test]
fn how_idle_its_pes_are_is_told_while_its_waits_are_changed() {
    let mut program = Program::start();
    program.apply(Change::Set(Setting::SpinCount(200)));
    let end = Instant::now() + Duration::from_secs(120);
    while program.look()[0].idle_percent.is_none() {
        assert!(Instant::now() < end);
    }
    program.apply(Change::Reset(SettingKind::SpinCount));
    assert!(program.runtimes.processes.values().all(|process| process.idle.is_none()));
}

/// LLVM's (Debian: libomp-19-dev). Its idle threads give their PE away while they spin.
#[test]
fn a_program_of_a_runtime_that_gives_way_is_told_so_and_cannot_be_changed() {
    let mut program = Program::compiled_by("clang-19", &[]);
    let process = program.search();
    assert!(process.gives_way && process.copies.is_empty());
    assert_eq!(process.advice, Some(search::OF_LIBOMP));
    // As if it had just been held up.
    let process = program.runtimes.processes.get_mut(&program.child.id()).unwrap();
    process.is_busy = true;
    process.told_until = Instant::now() + Duration::from_secs(3600);
    let delays = program.look();
    assert!(delays.len() == 1 && delays[0].gives_way && !delays[0].adaptable, "{delays:?}");
    assert!(!program.runtimes.never_sleep(), "samples of it are in no hurry");
    let of_gnu = Program::start();
    let mut processes = of_gnu.runtimes.processes.values();
    assert!(processes.all(|process| !process.gives_way && process.advice.is_none()));
}

/// Nobody else wants its PEs meanwhile: waits that are short would only cost it time.
#[test]
fn what_a_quota_keeps_a_program_from_is_no_time_that_others_need_its_pes() {
    let group = or_skip!(Limited::new(), |error| is_refusal(error).then_some(Capability::Cgroup));
    let (_directory, mut command) = compiled("cc");
    command.arg("busy");
    let mut program = Program::watched(command);
    fs::write(group.0.join("cgroup.procs"), program.child.id().to_string()).unwrap();
    program.runtimes = watching(program.child.id());
    let (mut waited_ns, mut throttled_ns) = (0, 0);
    while group.times_throttled() < 8 {
        for delay in program.look() {
            waited_ns += delay.wait_ns;
            throttled_ns += delay.throttled_ns;
        }
    }
    let of_group = group.throttled_ns();
    let proc = &program.runtimes.proc;
    let threads = proc.threads(program.child.id()).unwrap().unwrap();
    let wait_ns = |tid| proc.schedstat(program.child.id(), tid, false).unwrap()?.read().unwrap();
    let all_ns: u64 = threads.into_iter().filter_map(wait_ns).map(|stat| stat.wait_ns).sum();
    drop(program);
    assert!(throttled_ns > of_group / 2, "{throttled_ns} by the quota, which took {of_group}");
    // However many others want its PEs: no wait counts twice.
    assert!(
        waited_ns + throttled_ns <= all_ns,
        "{throttled_ns} by the quota, {waited_ns} by others of {all_ns}"
    );
}

#[test]
fn it_is_looked_less_often_at_what_has_been_calm_for_a_while() {
    let mut program = Program::start();
    program.stop();
    program.look();
    let runtimes = &mut program.runtimes;
    let now = Instant::now();
    runtimes.eventful_at = now.checked_sub(PERIOD_MAX * PERIOD_CALM_PART).unwrap();
    assert_eq!(runtimes.period(false), PERIOD_MAX);
    assert_eq!(runtimes.period(true), PERIOD_DELAYED);
}

#[test]
fn processes_give_way_if_all_that_have_teams_do() {
    assert_eq!(Runtimes::new(&EngineConfig::default()).gives_way(), None);
    let mut program = Program::start();
    assert_eq!(program.runtimes.gives_way(), Some(false));
    program.runtimes.processes.values_mut().for_each(|process| process.gives_way = true);
    assert_eq!(program.runtimes.gives_way(), Some(true));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn only_the_default_is_changed_and_what_stays_is_named() {
    let found = |variables: &[(&str, &str)], at_first: Option<u64>| {
        let (_directory, mut command) = compiled("cc");
        undecided(&mut command).envs(variables.iter().copied());
        let mut program = Program::watched(command);
        let pid = program.child.id();
        if let Some(value) = at_first {
            let loaded = Loaded::in_process(pid, &mut HashSet::new()).unwrap();
            libgomp::find(&loaded).remove(0).unwrap().write(value).unwrap();
        }
        let process = program.runtimes.processes.get_mut(&pid).unwrap();
        let search = |process: &mut Process| {
            (process.search(pid, true, &mut HashSet::new(), None).concat(), process.copies.len())
        };
        let first = search(process);
        if let Some(copy) = process.copies.first_mut() {
            copy.variable.write(200).unwrap();
            assert_eq!(search(process), first, "also when it has been changed");
        }
        first
    };
    let stays = |why: &str| (format!("waits are not changed in `waiting`: {why}"), 0);
    assert_eq!(found(&[], None), (String::new(), 1));
    assert_eq!(
        found(&[("OMP_WAIT_POLICY", "passive")], None),
        stays("OMP_WAIT_POLICY sets how idle threads wait")
    );
    assert_eq!(
        found(&[("GOMP_SPINCOUNT", "300000")], None),
        stays("GOMP_SPINCOUNT sets how idle threads wait")
    );
    let (note, copies) = found(&[], Some(77_777));
    assert!(note.ends_with("libgomp.so.1.0.0` is 77777, not the default") && copies == 0, "{note}");
    assert_eq!(found(&[], Some(0)), (String::new(), 0), "not yet set");
}

/// When the first team is delayed it is too late.
#[test]
fn libraries_of_a_process_with_several_threads_are_looked_for_before_it_is_delayed() {
    let mut program = Program::compiled_by("cc", &[]);
    let process = program.runtimes.processes.get_mut(&program.leader.tid).unwrap();
    assert_eq!(process.threads.len(), 2);
    let now = Instant::now();
    assert!(process.is_search_due(program.leader.tid, now, false));
    assert!(!process.is_search_due(program.leader.tid, now, false), "not at every look");
    process.schedule = Schedule::from(now);
    process.threads.retain(|&tid, _| tid == program.leader.tid);
    assert!(!process.is_search_due(program.leader.tid, now, false), "it has no team");
    assert!(process.is_search_due(program.leader.tid, now, true));
}

/// Between the moment when the library is mapped and the one when its constructor has run.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_spin_count_that_is_not_yet_set_is_found_as_soon_as_it_is() {
    let (_directory, mut command) = compiled("cc");
    undecided(&mut command);
    let mut program = Program::watched(command);
    let loaded = Loaded::in_process(program.child.id(), &mut HashSet::new()).unwrap();
    let set = |value| libgomp::find(&loaded).remove(0).unwrap().write(value).unwrap();
    set(0);
    let process = program.search();
    assert!(process.copies.is_empty() && process.unset.len() == 1);
    let mut now = Instant::now();
    // Looks once more, and then only if something has changed.
    let mut is_search_due = |process: &mut Process| {
        now += Duration::from_secs(1);
        process.is_search_due(program.leader.tid, now, false)
    };
    let pid = program.leader.tid;
    let process = program.runtimes.processes.get_mut(&pid).unwrap();
    while is_search_due(process) {}
    set(libgomp::UNDECIDED);
    assert!(is_search_due(process));
    assert_eq!(program.search().copies.len(), 1);
}

/// How it is found where code cannot show it.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_variable_that_code_shows_is_the_one_with_the_value_that_the_program_was_started_with() {
    const PLANTED: u64 = 300_123;
    let mut command = compiled("cc");
    command.1.env(libgomp::VARIABLE, PLANTED.to_string()).env_remove("OMP_WAIT_POLICY");
    let program = Program::watched(command.1);
    let loaded = Loaded::in_process(program.child.id(), &mut HashSet::new()).unwrap();
    let by_code = libgomp::find(&loaded).remove(0).unwrap();
    let (copy, _) = loaded.defining(libgomp::EXPORTED).next().unwrap();
    let by_value = libgomp::by_value(&loaded, copy, PLANTED).unwrap().unwrap();
    assert!(by_code.is_same(&by_value), "{by_code:?}, {by_value:?}");
    assert!(libgomp::by_value(&loaded, copy, PLANTED + 1).unwrap().is_none());
}
