//! Tests of every kind of change while what restoring needs is missing: descriptors, memory, space in the
//! journal, the right to write.
//!
//! What is missing is missing for one thread, which stands for corewise; the thread that stands for its
//! guardian has it.

use super::act_token::ActToken;
use super::actuators::Actuators;
use super::frequency::{self, Lowered};
use super::group::Slowed;
use super::group::tests::Session;
use super::guardian::Guardian;
use super::ledger::{Entry, Ledger, Weighed};
use super::restore::tests::alone;
use super::restore::{Remains, restore};
use super::thread_weight::WeightChange;
use super::word::tests::Program;
use super::word::{Memories, Word};
use super::{mask, sched_policy};
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::EngineConfig;
use corewise_core::ids::{PeId, ThreadId};
use corewise_core::plan::{Action, Change, OutcomeKind, Setting, SettingKind, Weight};
use corewise_sys::task::{self, Task};
use corewise_sys::{affinity, niceness};
use corewise_testing::needs;
use nix::errno::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The calls that need a descriptor, or memory for one.
const OPENING: [i64; 2] = [libc::SYS_openat, libc::SYS_bpf];

/// The calls that change others.
const CHANGING: [i64; 7] = [
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_setpriority,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
];

/// How long a restoration may take that cannot succeed.
const BRIEFLY: Duration = Duration::from_millis(50);

const LONG: Duration = Duration::from_secs(10);

/// Runs `act` in a thread, and those that it starts, that may `prepare` before these calls fail so.
fn without<P, T: Send + 'static>(
    (calls, errno): (&'static [i64], Errno),
    prepare: impl FnOnce() -> P + Send + 'static,
    act: impl FnOnce(P) -> T + Send + 'static,
) -> T {
    let in_thread = move || {
        let prepared = prepare();
        let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
        let machine = std::env::consts::ARCH.try_into().unwrap();
        let fail = SeccompAction::Errno(errno as u32);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, fail, machine).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
        act(prepared)
    };
    std::thread::spawn(in_thread).join().unwrap()
}

/// The ways to fail, with what is said of them.
const LACKS: [((&[i64], Errno), &str); 3] = [
    ((&OPENING, Errno::EMFILE), "Too many open files"),
    ((&OPENING, Errno::ENOMEM), "Cannot allocate memory"),
    ((&CHANGING, Errno::EPERM), "not permit"),
];

/// Changes a process as the entries say, which are made of it, and lets a thread that lacks something restore
/// that, and then one that does not.
fn restored_by_the_second(change: impl Fn(u32, &ActToken) -> Vec<Entry>, is_changed: impl Fn(u32) -> bool) {
    for (lack, said) in LACKS {
        let _alone = alone();
        let process = Session::start();
        let (pid, token) = (process.0.id(), ActToken::mint());
        let mut ledger = Ledger::default();
        change(pid, &token).into_iter().for_each(|entry| ledger.note(entry));
        assert!(is_changed(pid));
        let first = restore_without(lack, &ledger);
        assert!(!first.is_nothing() && first.to_string().contains(said), "{said}: {first}");
        let second = restore(&ledger, &token, None, &Memories::default(), LONG);
        assert_eq!((second, is_changed(pid)), (Remains::default(), false), "{said}");
    }
}

fn restore_without(lack: (&'static [i64], Errno), ledger: &Ledger) -> Remains {
    let of = ledger.clone();
    without(lack, || {}, move |()| restore(&of, &ActToken::mint(), None, &Memories::default(), BRIEFLY))
}

fn task_of(pid: u32) -> Task {
    Task::of(pid).unwrap().unwrap()
}

#[test]
fn a_mask_that_cannot_be_restored_is_named_and_restored_by_the_next_process() {
    needs!(TwoPes);
    let own = affinity::get(0).unwrap();
    let ours = CpuSet::single(own.last().unwrap());
    let change = |pid, token: &ActToken| {
        mask::set(token, pid, &ours).unwrap();
        vec![Entry::Bind { thread: task_of(pid), original: own.clone(), ours: ours.clone() }]
    };
    restored_by_the_second(change, |pid| affinity::get(pid).unwrap() == ours);
}

#[test]
fn a_mask_that_was_inherited_is_restored_by_a_process_that_can_look() {
    needs!(TwoPes);
    let own = affinity::get(0).unwrap();
    let ours = CpuSet::single(own.last().unwrap());
    let change = |pid, token: &ActToken| {
        mask::set(token, pid, &ours).unwrap();
        vec![Entry::Member(task_of(pid)), Entry::HandedOut { original: own.clone(), ours: ours.clone() }]
    };
    restored_by_the_second(change, |pid| affinity::get(pid).unwrap() == ours);
}

#[test]
fn a_nice_level_that_cannot_be_restored_is_named_and_restored_by_the_next_process() {
    needs!(Root);
    let change = WeightChange::Nice { original: 0, ours: -15 };
    let weigh = |pid, token: &ActToken| {
        change.make(token, pid).unwrap();
        vec![Entry::Weighed(Weighed { thread: task_of(pid), change })]
    };
    restored_by_the_second(weigh, |pid| niceness::level_of(pid).unwrap() == -15);
}

#[test]
fn turns_that_cannot_be_ended_are_named_and_ended_by_the_next_process() {
    needs!(Root);
    let idle = |pid, token: &ActToken| {
        sched_policy::set(token, pid, libc::SCHED_IDLE).unwrap();
        vec![Entry::InTurns(task_of(pid))]
    };
    restored_by_the_second(idle, |pid| sched_policy::of(pid).unwrap() == libc::SCHED_IDLE);
}

#[test]
fn a_session_that_cannot_be_restored_is_named_and_restored_by_the_next_process() {
    needs!(Root, SessionGroups);
    let root = Path::new("/");
    let slow = |pid, token: &ActToken| {
        let slowed = Slowed::of(root, pid).unwrap();
        slowed.let_run(token, root, pid, false).unwrap();
        vec![Entry::Slowed(slowed)]
    };
    let nice = |pid| corewise_sys::proc::Proc::own().autogroup(pid).unwrap().unwrap().nice;
    restored_by_the_second(slow, |pid| nice(pid) != 0);
}

#[test]
fn a_word_that_cannot_be_restored_is_named_and_restored_by_the_next_process() {
    for (lack, said) in LACKS {
        let _alone = alone();
        let (program, word): (Program, Word) = Program::start();
        let memory = program.memory();
        let mut ledger = Ledger::default();
        ledger.note(Entry::Word(word.clone()));
        let first = restore_without(lack, &ledger);
        assert!(!first.is_nothing() && first.to_string().contains(said), "{said}: {first}");
        assert_eq!(word.read(&memory), Some(200));
        let second = restore(&ledger, &ActToken::mint(), None, &Memories::default(), LONG);
        assert_eq!((second, word.read(&memory)), (Remains::default(), Some(word.own)), "{said}");
    }
}

#[test]
fn a_clock_that_cannot_be_restored_is_an_error_and_restored_by_the_next_process() {
    let system = tempfile::tempdir().unwrap();
    let lowered = Lowered { pe: PeId(1), original_khz: 4_000_000, ours_khz: 2_000_000 };
    let (path, token) = (system.path().to_owned(), ActToken::mint());
    std::fs::create_dir_all(path.join("cpu1/cpufreq")).unwrap();
    let file = path.join("cpu1/cpufreq/scaling_max_freq");
    for (lack, said) in LACKS {
        std::fs::write(&file, "2000000").unwrap();
        let system = path.clone();
        let first = without(lack, || {}, move |()| lowered.restore(&system, &ActToken::mint()));
        assert!(first.is_err(), "{said}");
        // A plain file has been emptied by an attempt that failed.
        std::fs::write(&file, "2000000").unwrap();
        lowered.restore(&path, &token).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "4000000", "{said}");
    }
    frequency::plan(&path, &CpuSet::new(), 0.5).unwrap();
}

/// Actuators that change no waits, which have looked at the machine.
fn acting(guardian: Guardian) -> Actuators {
    let mut config = EngineConfig::default();
    config.waits.spin = false;
    let mut actuators = Actuators::new(&config);
    actuators.begin(guardian).unwrap();
    actuators.begin_look(&Arc::new(affinity::get(0).unwrap()));
    actuators
}

fn apply(actuators: &mut Actuators, pid: u32, change: Change) -> OutcomeKind {
    let thread = ThreadId { tid: pid, generation: 0 };
    let outcomes = actuators.apply(&[Action { thread, change, reason: "".into() }]);
    outcomes.into_iter().next().unwrap().result
}

/// Each actuator's change, and its end.
fn changes() -> [(Change, Change); 3] {
    let last = CpuSet::single(affinity::get(0).unwrap().last().unwrap());
    [
        (Change::Bind(last), Change::Free),
        (Change::Set(Setting::Weight(Weight::Percent(2842))), Change::Reset(SettingKind::Weight)),
        (Change::Set(Setting::InTurns), Change::Reset(SettingKind::Turns)),
    ]
}

fn is_changed(pid: u32) -> bool {
    let all = affinity::get(0).unwrap();
    affinity::get(pid).unwrap() != all
        || niceness::level_of(pid).unwrap() != 0
        || sched_policy::of(pid).unwrap() != sched_policy::NORMAL
}

#[test]
fn what_an_actuator_cannot_undo_for_lack_of_descriptors_stays_recorded_for_the_guardian() {
    needs!(Root, TwoPes);
    for (change, end) in changes() {
        let _alone = alone();
        let process = Session::start();
        let pid = process.0.id();
        let name = format!("{change:?}");
        let prepare = move || {
            while task::now() <= task_of(pid).start {
                std::thread::yield_now();
            }
            let guardian = Guardian::idle();
            let record = guardian.changes();
            let mut actuators = acting(guardian);
            assert_eq!(apply(&mut actuators, pid, change), OutcomeKind::Done);
            // It has no turn while it does not run.
            sched_policy::set(&ActToken::mint(), pid, sched_policy::NORMAL).unwrap();
            (actuators, record, pid, end)
        };
        let ledger = without((&OPENING, Errno::EMFILE), prepare, |(mut actuators, record, pid, end)| {
            let ended = apply(&mut actuators, pid, end);
            let may_be_undone = ended == OutcomeKind::Done && !is_changed(pid);
            assert!(may_be_undone || matches!(ended, OutcomeKind::Refused(_)), "{ended:?}");
            actuators.give_back();
            record.ledger()
        });
        assert!(!ledger.is_settled(), "{name}: the guardian has to look");
        let remains = restore(&ledger, &ActToken::mint(), None, &Memories::default(), LONG);
        assert_eq!((remains, is_changed(pid)), (Remains::default(), false), "{name}");
    }
}

#[test]
fn without_space_in_the_journal_nothing_is_changed_and_what_was_is_restored() {
    needs!(Root, TwoPes);
    for (change, _) in changes() {
        let _alone = alone();
        let (before, after) = (Session::start(), Session::start());
        while task::now() <= task_of(after.0.id()).start {
            std::thread::yield_now();
        }
        let guardian = Guardian::idle();
        let record = guardian.changes();
        let mut actuators = acting(guardian);
        assert_eq!(apply(&mut actuators, before.0.id(), change.clone()), OutcomeKind::Done);
        record.take_space();
        let refused = apply(&mut actuators, after.0.id(), change.clone());
        assert!(matches!(refused, OutcomeKind::Refused(_)) && !is_changed(after.0.id()), "{refused:?}");
        actuators.give_back();
        assert!(!is_changed(before.0.id()), "{change:?}");
    }
}

#[test]
fn no_change_is_written_that_leaves_no_space_for_what_follows_it() {
    let bind = |id| {
        let (original, ours) = (CpuSet::first_n(2), CpuSet::first_n(1));
        Entry::Bind { thread: Task { id, start: 7 }, original, ours }
    };
    let full = (&[libc::SYS_fallocate][..], Errno::ENOSPC);
    let prepare = move || {
        let changes = Guardian::idle().changes();
        changes.record(&bind(8)).unwrap();
        changes
    };
    without(full, prepare, move |changes| {
        assert!(changes.record(&bind(9)).unwrap_err().contains("No space left"));
        let notes = changes.notes();
        assert!(notes[0].contains("nothing was bound"), "{notes:?}");
        // The guardian reads what was written.
        let _ = changes.record(&Entry::Free(8));
        assert_eq!(changes.written().all_bound().count(), 0);
    });
}
