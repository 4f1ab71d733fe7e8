use super::*;
use crate::descent::{HandedOutWeight, Source};
use crate::guardian::Guardian;
use crate::restore::{Remains, restore};
use crate::word::Memories;
use corewise_sys::proc::Proc;
use corewise_testing::needs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that waits, and starts another when it is asked to. Both end with it.
struct Parent(Child);

impl Parent {
    fn start() -> Parent {
        let script = "exec 3<&0; read x; cat >/dev/null <&3 & echo $!; wait";
        let mut shell = Command::new("sh");
        Parent(shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    fn task(&self) -> Task {
        Task::of(self.id()).unwrap().unwrap()
    }

    fn nice(&self) -> i32 {
        niceness::level_of(self.id()).unwrap()
    }

    fn start_child(&mut self) -> u32 {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn weights() -> Weights {
    Weights::new(Guardian::idle().changes())
}

fn apply(weights: &mut Weights, tid: u32, change: Change) -> OutcomeKind {
    let thread = ThreadId { tid, generation: 0 };
    weights.apply(&Action { thread, change, reason: "".into() }).unwrap()
}

fn set(weights: &mut Weights, tid: u32, weight: Weight) -> OutcomeKind {
    apply(weights, tid, Change::Set(Setting::Weight(weight)))
}

fn reset(weights: &mut Weights, tid: u32) -> OutcomeKind {
    apply(weights, tid, Change::Reset(SettingKind::Weight))
}

/// Sets a nice level as somebody else would.
fn renice(tid: u32, level: i32) {
    WeightChange::Nice { original: 0, ours: level }.make(&ActToken::mint(), tid).unwrap();
}

/// Restores as the guardian and the next start do.
fn restore_by_ledger(ledger: &Ledger) {
    let within = Duration::from_secs(10);
    let remains = restore(ledger, &ActToken::mint(), None, &Memories::default(), within);
    assert_eq!(remains, Remains::default());
}

#[test]
fn a_weight_is_given_relative_to_the_users_and_given_back() {
    needs!(Root);
    let (mut weights, parent) = (weights(), Parent::start());
    renice(parent.id(), 5);
    for (percent, level) in [(200, 2), (50, 8), (2842, -10), (100, 5)] {
        assert_eq!(set(&mut weights, parent.id(), Weight::Percent(percent)), OutcomeKind::Done);
        assert_eq!(parent.nice(), level, "{percent} %");
    }
    assert_eq!(set(&mut weights, parent.id(), Weight::Percent(400)), OutcomeKind::Done);
    assert_eq!((reset(&mut weights, parent.id()), parent.nice()), (OutcomeKind::Done, 5));
    assert_eq!(reset(&mut weights, parent.id()), OutcomeKind::Done, "it has its own");
    let nobody = u32::MAX / 2;
    assert_eq!(set(&mut weights, nobody, Weight::Percent(200)), OutcomeKind::Gone);
}

#[test]
fn what_nobody_else_wants_is_a_policy_and_the_nice_level_stays() {
    needs!(Root);
    let (mut weights, parent) = (weights(), Parent::start());
    let policy = || sched_policy::of(parent.id()).unwrap();
    assert_eq!(set(&mut weights, parent.id(), Weight::Percent(200)), OutcomeKind::Done);
    assert_eq!(set(&mut weights, parent.id(), Weight::Idle), OutcomeKind::Done);
    assert_eq!((policy(), parent.nice()), (libc::SCHED_IDLE, 0));
    assert_eq!(set(&mut weights, parent.id(), Weight::Percent(200)), OutcomeKind::Done);
    assert_eq!((policy(), parent.nice()), (NORMAL, -3));
    assert_eq!(set(&mut weights, parent.id(), Weight::Idle), OutcomeKind::Done);
    restore_by_ledger(&weights.changes.ledger());
    assert_eq!((policy(), parent.nice()), (NORMAL, 0));
}

#[test]
fn a_level_that_somebody_else_has_set_since_is_kept() {
    needs!(Root);
    let (mut weights, parent) = (weights(), Parent::start());
    set(&mut weights, parent.id(), Weight::Percent(200));
    renice(parent.id(), 7);
    restore_by_ledger(&weights.changes.ledger());
    assert_eq!(parent.nice(), 7);
    assert_eq!((reset(&mut weights, parent.id()), parent.nice()), (OutcomeKind::NotOurs, 7));
    assert_eq!(weights.changes.ledger().all_weighed().count(), 0);
}

#[test]
fn the_next_owner_of_a_threads_number_keeps_its_level() {
    needs!(Root);
    let parent = Parent::start();
    renice(parent.id(), -3);
    let thread = Task { start: parent.task().start - 1, ..parent.task() };
    let change = WeightChange::Nice { original: 0, ours: -3 };
    let mut ledger = Ledger::default();
    let source = Source::Process(thread);
    ledger.note(Entry::WeightHandedOut(HandedOutWeight { source, change, since: 0 }));
    ledger.note(Entry::Weighed(Weighed { thread, change }));
    restore_by_ledger(&ledger);
    assert_eq!(parent.nice(), -3);
}

#[test]
fn whatever_inherits_a_weight_gets_its_own_back_when_it_is_met_or_at_the_end() {
    needs!(Root);
    for is_met in [true, false] {
        let (mut weights, mut parent) = (weights(), Parent::start());
        weights.changes.record(&Entry::Member(parent.task())).unwrap();
        set(&mut weights, parent.id(), Weight::Percent(200));
        let child = parent.start_child();
        assert_eq!(niceness::level_of(child), Ok(-3));
        if is_met {
            let (tid, pid, creator_tid, generation) = (child, child, None, 0);
            weights.meet(&NewThread { tid, pid, creator_tid, generation, created: Instant::now() });
            assert_eq!((niceness::level_of(child), parent.nice()), (Ok(0), -3));
        }
        weights.give_back();
        restore_by_ledger(&weights.changes.ledger());
        assert_eq!((niceness::level_of(child), parent.nice()), (Ok(0), 0));
    }
}

/// A program that no corewise has started: what it reads from ends with this.
struct Stranger(ChildStdin, u32);

impl Stranger {
    /// Runs a script whose standard input is descriptor 3, as an orphan.
    fn start(script: &str) -> Stranger {
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec 3<&0; sh -c \"$1\" >/dev/null & echo $!", "sh", script]);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let input = child.stdin.take().unwrap();
        child.wait().unwrap();
        Stranger(input, line.trim().parse().unwrap())
    }

    /// Waits for its child.
    fn child(&self) -> u32 {
        loop {
            if let Some(&child) = Proc::own().children(self.1).unwrap().first() {
                return child;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn task(&self) -> Task {
        Task::of(self.1).unwrap().unwrap()
    }
}

fn meet(weights: &mut Weights, tid: u32, creator_tid: Option<u32>) {
    weights.meet(&NewThread { tid, pid: tid, creator_tid, generation: 0, created: Instant::now() });
}

/// Whatever a hostile user does, and whatever the level is.
#[test]
fn what_does_not_descend_from_a_weighed_process_keeps_a_level_that_was_handed_out() {
    needs!(Root);
    let (mut weights, weighed) = (weights(), Stranger::start("read x <&3"));
    renice(weighed.1, 3);
    assert_eq!(set(&mut weights, weighed.1, Weight::Percent(200)), OutcomeKind::Done);
    assert_eq!(niceness::level_of(weighed.1), Ok(0));
    let handed_out = weights.changes.ledger();
    let change = WeightChange::Idle;
    for source in [weighed.task(), Task { id: u32::MAX / 2, start: 7 }].map(Source::Process) {
        let entry = Entry::WeightHandedOut(HandedOutWeight { source, change, since: 0 });
        weights.changes.record(&entry).unwrap();
    }
    let stranger = Stranger::start("read x <&3");
    assert_eq!(handed_out.like_inherited(stranger.task()).len(), 1, "it looks like an heir");
    let levels = || (niceness::level_of(stranger.1), sched_policy::of(stranger.1));
    for policy in [NORMAL, libc::SCHED_IDLE] {
        sched_policy::set(&ActToken::mint(), stranger.1, policy).unwrap();
        meet(&mut weights, stranger.1, None);
        meet(&mut weights, stranger.1, Some(1));
        assert_eq!(levels(), (Ok(0), Ok(policy)));
    }
    weights.changes.record(&Entry::Member(stranger.task())).unwrap();
    weights.changes.record(&Entry::Member(weighed.task())).unwrap();
    restore_by_ledger(&weights.changes.ledger());
    assert_eq!(levels(), (Ok(0), Ok(libc::SCHED_IDLE)), "also at the end");
    assert_eq!(niceness::level_of(weighed.1), Ok(3));
}

#[test]
fn an_heir_is_known_by_its_parent_or_its_creator_and_hands_on() {
    needs!(Root);
    let weighed = Stranger::start("read x <&3; cat <&3 & read x <&3");
    let mut weights = weights();
    assert_eq!(set(&mut weights, weighed.1, Weight::Percent(200)), OutcomeKind::Done);
    (&weighed.0).write_all(b"\n").unwrap();
    let child = weighed.child();
    assert_eq!(niceness::level_of(child), Ok(-3));
    meet(&mut weights, child, None);
    assert_eq!(niceness::level_of(child), Ok(0));
    let ledger = weights.changes.ledger();
    let mut sources: Vec<u32> =
        ledger.weights_handed_out().map(|weight| weight.source.process().id).collect();
    sources.sort_unstable();
    let mut expected = [weighed.1, child];
    expected.sort_unstable();
    assert_eq!(sources, expected);
    // An orphan of which only the creator is known.
    let orphan = Stranger::start("read x <&3");
    renice(orphan.1, -3);
    meet(&mut weights, orphan.1, None);
    assert_eq!(niceness::level_of(orphan.1), Ok(-3));
    meet(&mut weights, orphan.1, Some(weighed.1));
    assert_eq!(niceness::level_of(orphan.1), Ok(0));
    weights.retain_processes(&HashSet::from([child]));
    let left: Vec<u32> =
        weights.changes.ledger().weights_handed_out().map(|weight| weight.source.process().id).collect();
    assert_eq!(left, [child]);
}

#[test]
fn a_change_that_could_not_be_undone_is_not_made() {
    needs!(Root);
    let parent = Parent::start();
    let mut weights = Weights { is_capable: false, ..weights() };
    for weight in [Weight::Percent(50), Weight::Idle] {
        let outcome = set(&mut weights, parent.id(), weight);
        assert!(matches!(&outcome, OutcomeKind::Refused(why) if why.contains("CAP_SYS_NICE")), "{outcome:?}");
    }
    // To raise a nice level is always permitted.
    assert_eq!(set(&mut weights, parent.id(), Weight::Percent(200)), OutcomeKind::Done);
    assert_eq!((reset(&mut weights, parent.id()), parent.nice()), (OutcomeKind::Done, 0));
}

#[test]
fn a_process_that_takes_turns_or_has_a_policy_of_its_own_is_not_made_idle() {
    needs!(Root);
    let (mut weights, parent) = (weights(), Parent::start());
    let mut refused = |reason: &str| {
        let outcome = set(&mut weights, parent.id(), Weight::Idle);
        assert!(matches!(&outcome, OutcomeKind::Refused(why) if why.contains(reason)), "{outcome:?}");
    };
    sched_policy::set(&ActToken::mint(), parent.id(), libc::SCHED_BATCH).unwrap();
    refused("policy of its own");
    let mut weights = self::weights();
    weights.changes.record(&Entry::InTurns(parent.task())).unwrap();
    let outcome = set(&mut weights, parent.id(), Weight::Idle);
    assert!(matches!(&outcome, OutcomeKind::Refused(why) if why.contains("takes turns")), "{outcome:?}");
}

#[test]
fn a_weight_that_cannot_be_recorded_is_not_given() {
    needs!(Root);
    let parent = Parent::start();
    let mut weights = Weights::new(Guardian::idle().without_space().changes());
    let outcome = set(&mut weights, parent.id(), Weight::Percent(200));
    assert!(matches!(outcome, OutcomeKind::Refused(_)) && parent.nice() == 0, "{outcome:?}");
}
