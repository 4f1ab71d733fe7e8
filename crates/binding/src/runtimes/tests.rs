use super::loaded::{Files, Loaded};
use super::schedule::Schedule;
use super::*;
use crate::guardian::Guardian;
use corewise_core::observe::IdleWait;
use corewise_sys::proc::Proc;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program with a team of two, in whose first region libgomp was found.
struct Program {
    child: Child,
    runtimes: Runtimes,
    leader: ThreadId,
}

impl Program {
    fn start() -> Program {
        let mut program = Program::compiled_by("cc");
        let process = program.search();
        assert_eq!(process.copies.len(), 1);
        program
    }

    fn search(&mut self) -> &Process {
        let pid = self.child.id();
        let process = self.runtimes.processes.get_mut(&pid).unwrap();
        assert!(process.search(pid, true, &mut Files::default(), None).is_empty());
        process
    }

    fn compiled_by(compiler: &str) -> Program {
        let (_directory, mut command) = compiled(compiler);
        undecided(&mut command);
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
        let result = self.runtimes.apply(&action).unwrap();
        assert_eq!(result, OutcomeKind::Done);
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

/// Watches all threads of a process.
fn watching(pid: u32) -> Runtimes {
    let mut runtimes = Runtimes::new(&EngineConfig::default());
    runtimes.begin(Guardian::idle().changes());
    for tid in Proc::own().threads(pid).unwrap().unwrap() {
        let created = Instant::now();
        runtimes.meet(&NewThread { tid, pid, creator_tid: None, generation: 0, created });
    }
    runtimes
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
            if let Some(&child) = Proc::own().children(program.child.id()).unwrap().first() {
                break child;
            }
            assert!(Instant::now() < end, "it forks");
        };
        program.apply(then);
        let value = || {
            let loaded = Loaded::in_process(child, &mut Files::default()).unwrap();
            libgomp::find(&loaded, &mut Files::default()).remove(0).unwrap().own()
        };
        assert_eq!(value(), 200, "it has its parent's");
        let thread =
            NewThread { tid: child, pid: child, creator_tid: None, generation: 0, created: Instant::now() };
        program.runtimes.meet(&thread);
        assert_eq!(value(), libgomp::UNDECIDED);
    }
}

#[test]
fn of_more_processes_than_there_are_descriptors_for_no_memory_is_kept() {
    for most in [1, 0] {
        let (_directory, mut command) = compiled("gcc");
        undecided(&mut command);
        let mut program = Program::watched(command);
        (program.runtimes.most, program.runtimes.spin) = (most, true);
        program.runtimes.look(program.leader, 2, 0.0);
        assert_eq!(program.runtimes.processes[&program.leader.tid].copies.len(), most);
        assert_eq!(program.runtimes.notes().len(), 1 - most);
    }
}

/// LLVM's (Debian: libomp-19-dev). Its idle threads yield their PE while they spin.
#[test]
fn threads_of_llvms_runtime_yield_and_their_waits_cannot_be_changed() {
    let mut program = Program::compiled_by("clang-19");
    let process = program.search();
    assert_eq!(process.advice, [search::OF_LIBOMP]);
    assert_eq!(program.runtimes.waits(program.child.id()), (IdleWait::Yield.into(), false));
    let of_gnu = Program::start();
    assert_eq!(of_gnu.runtimes.waits(of_gnu.child.id()), (IdleWait::Adaptable.into(), false));
    assert!(of_gnu.runtimes.processes.values().all(|process| process.advice.is_empty()));
}

/// A program of GNU's OpenMP that has loaded another runtime library, compiled by this compiler.
fn with_two_libraries(compiler: &str) -> Program {
    let directory = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/two_libraries.c");
    let (binary, loaded) = (directory.path().join("two"), directory.path().join("loaded.so"));
    let compile = |compiler: &str, options: &[&str], output: &Path| {
        let mut command = Command::new(compiler);
        let command = command.args(["-O2", "-fopenmp", source, "-o"]).arg(output).args(options);
        assert!(command.status().unwrap().success());
    };
    compile(compiler, &["-fPIC", "-shared", "-DLOADED"], &loaded);
    compile("cc", &["-ldl"], &binary);
    let mut command = Command::new(binary);
    undecided(&mut command).arg(loaded);
    Program::watched(command)
}

#[test]
fn both_spin_counts_of_two_libgomps_in_one_process_are_found_and_changed() {
    let mut program = with_two_libraries("cc");
    assert_eq!(program.search().copies.len(), 2);
    program.apply(Change::Set(Setting::SpinCount(200)));
    let values = |program: &Program| {
        let process = &program.runtimes.processes[&program.child.id()];
        process.copies.iter().map(|copy| copy.variable.word().unwrap()).collect::<Vec<u64>>()
    };
    assert_eq!(values(&program), [200, 200]);
    assert_eq!(program.runtimes.waits(program.child.id()), (IdleWait::Adaptable.into(), true));
    program.apply(Change::Reset(SettingKind::SpinCount));
    assert_eq!(values(&program), [libgomp::UNDECIDED; 2]);
}

#[test]
fn a_library_whose_waits_can_be_changed_does_not_hide_one_whose_threads_yield() {
    let mut program = with_two_libraries("clang-19");
    let process = program.search();
    assert_eq!((process.copies.len(), &process.advice[..]), (1, &[search::OF_LIBOMP][..]));
    let both: IdleWaits = [IdleWait::Adaptable, IdleWait::Yield].into_iter().collect();
    assert_eq!(program.runtimes.waits(program.child.id()), (both, false));
    program.apply(Change::Set(Setting::SpinCount(200)));
    assert_eq!(program.runtimes.waits(program.child.id()), (both, true));
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
            let loaded = Loaded::in_process(pid, &mut Files::default()).unwrap();
            libgomp::find(&loaded, &mut Files::default()).remove(0).unwrap().write(value).unwrap();
        }
        let process = program.runtimes.processes.get_mut(&pid).unwrap();
        let search = |process: &mut Process| {
            (process.search(pid, true, &mut Files::default(), None).concat(), process.copies.len())
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
    let mut program = Program::compiled_by("cc");
    let process = program.runtimes.processes.get_mut(&program.leader.tid).unwrap();
    let now = Instant::now();
    assert!(process.is_search_due(program.leader.tid, now, 2, false));
    assert!(!process.is_search_due(program.leader.tid, now, 2, false), "not at every look");
    process.schedule = Schedule::from(now);
    assert!(!process.is_search_due(program.leader.tid, now, 1, false), "it has no team");
    assert!(process.is_search_due(program.leader.tid, now, 1, true));
}

/// Between the moment when the library is mapped and the one when its constructor has run.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_spin_count_that_is_not_yet_set_is_found_as_soon_as_it_is() {
    let (_directory, mut command) = compiled("cc");
    undecided(&mut command);
    let mut program = Program::watched(command);
    let loaded = Loaded::in_process(program.child.id(), &mut Files::default()).unwrap();
    let set = |value| libgomp::find(&loaded, &mut Files::default()).remove(0).unwrap().write(value).unwrap();
    set(0);
    let process = program.search();
    assert!(process.copies.is_empty() && process.unset.len() == 1);
    let mut now = Instant::now();
    // Looks once more, and then only if something has changed.
    let mut is_search_due = |process: &mut Process| {
        now += Duration::from_secs(1);
        process.is_search_due(program.leader.tid, now, 2, false)
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
    let loaded = Loaded::in_process(program.child.id(), &mut Files::default()).unwrap();
    let by_code = libgomp::find(&loaded, &mut Files::default()).remove(0).unwrap();
    let (copy, _) = loaded.defining(exported::LIBGOMP).next().unwrap();
    let by_value = libgomp::by_value(&loaded, copy, PLANTED).unwrap().unwrap();
    assert!(by_code.is_same(&by_value), "{by_code:?}, {by_value:?}");
    assert!(libgomp::by_value(&loaded, copy, PLANTED + 1).unwrap().is_none());
}

/// A hostile program may map a library thousands of times.
#[test]
fn waits_are_changed_in_so_many_copies_only() {
    let mut program = Program::compiled_by("cc");
    let pid = program.child.id();
    let process = program.runtimes.processes.get_mut(&pid).unwrap();
    process.found = process::COPIES_MAX;
    assert_eq!(process.search(pid, true, &mut Files::default(), None), [process::TOO_MANY]);
    assert!(process.copies.is_empty());
    process.found -= 1;
    assert!(process.search(pid, true, &mut Files::default(), None).is_empty());
    assert_eq!((process.copies.len(), process.found), (1, process::COPIES_MAX));
}
