use super::super::group::tests::Session;
use super::super::guardian::Guardian;
use super::super::ledger::Entry;
use super::super::ledger::Ledger;
use super::super::mask;
use super::super::restore::tests::alone;
use super::super::restore::{make_all_normal, restore};
use super::super::word::Memories;
use super::*;
use crate::descent::{HandedOutWeight, Source};
use crate::shared::gangs::GangsBeside;
use crate::weights::Weights;
use corewise_core::cpuset::CpuSet;
use corewise_sys::affinity;
use corewise_testing::needs;
use std::process::{Child, Command, Stdio};

/// A process that only waits, and what it has started.
struct Sleeper(Child);

impl Sleeper {
    fn start(command: &str) -> Sleeper {
        let mut shell = Command::new("sh");
        Sleeper(shell.args(["-c", command]).stdin(Stdio::piped()).spawn().unwrap())
    }

    fn task(&self) -> Task {
        Task::of(self.0.id()).unwrap().unwrap()
    }

    fn policy(&self) -> i32 {
        sched_policy::of(self.0.id()).unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // What it has started reads from the same pipe, and ends with it.
        drop(self.0.stdin.take());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Turns of a corewise that shares a file with others.
fn turns(file: &tempfile::NamedTempFile) -> Turns {
    Turns::of(Guardian::idle().changes(), gangs::places_in(file.reopen().unwrap()), true)
}

fn beside(file: &tempfile::NamedTempFile) -> GangsBeside {
    GangsBeside::of(gangs::places_in(file.reopen().unwrap()))
}

/// Waits until a turn begins, and lets each take it in.
fn next_turn(all: &mut [&mut Turns]) {
    std::thread::sleep(all[0].due_within().unwrap() + TURN / 10);
    all.iter_mut().for_each(|turns| turns.act_in_time());
}

#[test]
fn gangs_of_one_and_of_several_corewise_run_one_at_a_time() {
    needs!(Root);
    let (file, token) = (tempfile::NamedTempFile::new().unwrap(), ActToken::mint());
    let (mut ours, mut theirs) = (turns(&file), turns(&file));
    let sleepers = [Sleeper::start("read x"), Sleeper::start("read x"), Sleeper::start("read x")];
    ours.join(sleepers[0].task(), None);
    next_turn(&mut [&mut ours]);
    assert_eq!(sleepers[0].policy(), NORMAL, "alone, it always has its turn");
    let mut beside = beside(&file);
    let mut of_two = || [0, 2].map(|index: usize| beside.count(sleepers[index].0.id()));
    assert_eq!(of_two(), [0, 1]);
    ours.join(sleepers[1].task(), None);
    theirs.join(sleepers[2].task(), None);
    assert_eq!([ours.refresh_gangs(), theirs.refresh_gangs()], [3; 2]);
    let normal = || sleepers.iter().filter(|sleeper| sleeper.policy() == NORMAL).count();
    let mut had_turn = [false; 3];
    while had_turn.contains(&false) {
        next_turn(&mut [&mut ours, &mut theirs]);
        // A turn that began between the looks of the two is seen by one only.
        if normal() == 1 {
            let its = sleepers.iter().position(|sleeper| sleeper.policy() == NORMAL).unwrap();
            had_turn[its] = true;
        }
    }
    assert_eq!(of_two(), [2, 2], "a gang is not beside itself");
    drop(theirs);
    // Locks go with their holder; a process that another test has just forked holds them until it executes.
    while ours.refresh_gangs() != 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ours.end_turns(sleepers[0].0.id()), OutcomeKind::Done);
    assert_eq!(ours.end_turns(sleepers[1].0.id()), OutcomeKind::Done);
    assert!(sleepers[..2].iter().all(|sleeper| sleeper.policy() == NORMAL));
    assert_eq!(ours.refresh_gangs(), 0);
    sched_policy::make_normal(&token, sleepers[2].task()).unwrap();
}

#[test]
fn gangs_on_different_pes_take_no_turns_with_each_other() {
    needs!(Root, TwoPes);
    let (file, token) = (tempfile::NamedTempFile::new().unwrap(), ActToken::mint());
    let (mut ours, mut theirs) = (turns(&file), turns(&file));
    let sleepers = [Sleeper::start("read x"), Sleeper::start("read x")];
    let policies = || sleepers.each_ref().map(Sleeper::policy);
    for (sleeper, pe) in sleepers.iter().zip(affinity::get(0).unwrap().iter()) {
        mask::set(&token, sleeper.0.id(), &CpuSet::single(pe)).unwrap();
    }
    ours.join(sleepers[0].task(), None);
    theirs.join(sleepers[1].task(), None);
    for _ in 0..3 {
        next_turn(&mut [&mut ours, &mut theirs]);
        assert_eq!(policies(), [NORMAL; 2]);
    }
    let mut beside = beside(&file);
    let mut of_all = || sleepers.each_ref().map(|sleeper| beside.count(sleeper.0.id()));
    assert_eq!(of_all(), [0, 0]);
    // The other may use all PEs again, which is seen within a second.
    mask::set(&token, sleepers[1].0.id(), &affinity::get(0).unwrap()).unwrap();
    while policies() == [NORMAL; 2] {
        next_turn(&mut [&mut ours, &mut theirs]);
    }
    assert_eq!(of_all(), [1, 1]);
    assert_eq!(ours.end_turns(sleepers[0].0.id()), OutcomeKind::Done);
    assert_eq!(theirs.end_turns(sleepers[1].0.id()), OutcomeKind::Done);
    assert_eq!(policies(), [NORMAL; 2]);
}

/// A process that waits, what it has started, and a daemon that its child has started, whose parent is gone:
/// all of the run of a corewise that has ended. Their numbers.
fn family(run: Task) -> (Sleeper, [u32; 3]) {
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "export COREWISE_PID={}; cd {}; exec sh -c 'exec 3<&0; read x <&3 & echo $! >child; \
         sh -c \"read x <&3 & echo \\$! >daemon\"; echo >ready; read x'",
        run.id,
        directory.path().display()
    );
    let sleeper = Sleeper::start(&script);
    while !directory.path().join("ready").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let number =
        |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap().trim().parse().unwrap();
    let all = [sleeper.0.id(), number("child"), number("daemon")];
    (sleeper, all)
}

#[test]
fn by_the_journal_all_threads_are_made_normal_again_also_daemons() {
    needs!(Root);
    // Another restoration would find them, too: their run is the same.
    let _alone = alone();
    let run = Task { id: u32::MAX / 2, start: corewise_sys::task::now() };
    let (sleeper, all) = family(run);
    let policies = || all.map(|tid| sched_policy::of(tid).unwrap());
    let (token, memories) = (ActToken::mint(), Memories::default());
    let stopped = |ledger: &Ledger| make_all_normal(ledger, &token);
    let ended = |ledger: &Ledger| {
        let within = Duration::from_secs(10);
        restore(ledger, &token, None, &memories, within);
    };
    let turns_since = |since: u64| {
        let (source, change) = (Source::Corewise(run), WeightChange::Idle);
        Entry::WeightHandedOut(HandedOutWeight { source, change, since })
    };
    for make_normal in [&stopped as &dyn Fn(&Ledger), &ended] {
        all.into_iter().for_each(|tid| sched_policy::set(&token, tid, libc::SCHED_IDLE).unwrap());
        let mut ledger = Ledger::default();
        ledger.note(Entry::Member(run));
        ledger.note(turns_since(corewise_sys::task::now() + 1));
        ledger.note(Entry::InTurns(Task { start: 1, ..sleeper.task() }));
        make_normal(&ledger);
        assert_eq!(policies(), [libc::SCHED_IDLE; 3], "they were so before, and the number was another's");
        ledger.note(Entry::InTurns(sleeper.task()));
        make_normal(&ledger);
        assert_eq!(policies(), [NORMAL, libc::SCHED_IDLE, libc::SCHED_IDLE]);
        let mut ledger = Ledger::default();
        ledger.note(Entry::Member(run));
        ledger.note(turns_since(run.start));
        make_normal(&ledger);
        assert_eq!(policies(), [NORMAL; 3], "also if no process takes turns any more");
    }
}

#[test]
fn an_inherited_policy_is_undone_when_its_process_is_met_whatever_the_parent_is() {
    needs!(Root);
    // Another restoration would find them, too: their run is the same.
    let _alone = alone();
    let run = Task { id: u32::MAX / 2, start: corewise_sys::task::now() };
    let (sleeper, [.., daemon]) = family(run);
    let start = Task::of(daemon).unwrap().unwrap().start;
    sched_policy::set(&ActToken::mint(), daemon, libc::SCHED_IDLE).unwrap();
    let (source, change) = (Source::Corewise(run), WeightChange::Idle);
    let met = |entries: &[Entry]| {
        let changes = Guardian::idle().changes();
        entries.iter().for_each(|entry| changes.record(entry).unwrap());
        let (tid, pid, creator_tid, generation) = (daemon, daemon, None, 0);
        let created = std::time::Instant::now();
        Weights::new(changes).meet(&NewThread { tid, pid, creator_tid, generation, created });
        sched_policy::of(daemon)
    };
    let handed_out = |since| Entry::WeightHandedOut(HandedOutWeight { source, change, since });
    assert_eq!(met(&[]), Ok(libc::SCHED_IDLE), "no process takes turns");
    assert_eq!(met(&[handed_out(start + 1)]), Ok(libc::SCHED_IDLE), "it was so before");
    let in_turns = Entry::InTurns(Task { id: daemon, start });
    assert_eq!(met(&[handed_out(start), in_turns]), Ok(libc::SCHED_IDLE), "it has no turn");
    assert_eq!(met(&[handed_out(start)]), Ok(NORMAL));
    drop(sleeper);
}

#[test]
fn a_process_with_a_policy_of_its_own_takes_no_turns() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let sleeper = Sleeper::start("read x");
    assert_eq!(turns(&file).check(sleeper.0.id()), Ok(()));
    sched_policy::set(&ActToken::mint(), sleeper.0.id(), libc::SCHED_BATCH).unwrap();
    assert!(turns(&file).check(sleeper.0.id()).unwrap_err().contains("of their own"));
    let refused = Turns { permitted: false, ..turns(&file) }.check(sleeper.0.id());
    assert!(refused.unwrap_err().contains("CAP_SYS_NICE"));
}

#[test]
fn sessions_have_their_part_when_one_of_their_gangs_has_its_turn() {
    needs!(Root, SessionGroups);
    let (file, token) = (tempfile::NamedTempFile::new().unwrap(), ActToken::mint());
    let sessions = [Session::start(), Session::start()];
    let task = |session: &Session| Task::of(session.0.id()).unwrap().unwrap();
    let slowed = sessions.each_ref().map(|session| Slowed::of(Path::new(ROOT), session.0.id()));
    let (mut ours, mut theirs) = (turns(&file), turns(&file));
    ours.join(task(&sessions[0]), slowed[0].clone());
    next_turn(&mut [&mut ours]);
    assert_eq!(sessions[0].nice(), 0, "there is no other session");
    theirs.join(task(&sessions[1]), slowed[1].clone());
    let mut had_part = [false; 2];
    while had_part.contains(&false) {
        next_turn(&mut [&mut ours, &mut theirs]);
        // A turn that began between the looks of the two is seen by one only.
        match sessions.each_ref().map(|session| session.nice() == 0) {
            [true, false] => had_part[0] = true,
            [false, true] => had_part[1] = true,
            _ => {}
        }
    }
    assert_eq!(theirs.end_turns(sessions[1].0.id()), OutcomeKind::Done);
    assert_eq!(sessions[1].nice(), 0);
    // Killed before it could leave: its journal has it.
    let mut ledger = Ledger::default();
    ledger.note(Entry::Slowed(slowed[0].clone().unwrap()));
    slowed[0]
        .iter()
        .for_each(|group| group.let_run(&token, Path::new(ROOT), sessions[0].0.id(), false).unwrap());
    restore(&ledger, &token, None, &Memories::default(), Duration::from_secs(10));
    assert_eq!(sessions[0].nice(), 0);
    drop(ours);
    sched_policy::make_normal(&token, task(&sessions[0])).unwrap();
}
