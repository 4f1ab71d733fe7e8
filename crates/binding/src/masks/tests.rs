use super::*;
use crate::guardian::Guardian;
use corewise_core::ids::AppId;
use corewise_core::observe::Standing::{Inherited, SelfPinned};
use corewise_discovery::asks::Asked;
use corewise_testing::needs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

fn acting() -> Masks {
    let mut actuator = Masks::default();
    actuator.begin(Guardian::idle().changes()).unwrap();
    actuator.follow();
    actuator
}

/// A thread to which its user permits fewer PEs than corewise has.
#[test]
fn a_freed_thread_may_be_bound_again_before_the_next_look() {
    needs!(TwoPes);
    let (limited, stays) = std::sync::mpsc::channel();
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        let (own, _) = affinity::own_and_cpuset().unwrap();
        affinity::narrow_self(&first(&own)).unwrap();
        limited.send(nix::unistd::gettid().as_raw() as u32).unwrap();
        left.recv().unwrap_err();
    });
    let thread = ThreadId { tid: stays.recv().unwrap(), generation: 0 };
    let mut actuator = acting();
    let (own, _) = affinity::own_and_cpuset().unwrap();
    let change = |actuator: &mut Masks, change| {
        actuator.observed = task::now() + 1;
        let action = Action { thread, change, reason: "".into() };
        actuator.apply(&action).unwrap()
    };
    actuator.begin_look(&Arc::new(own.clone()));
    actuator.limited.insert(thread.tid, Arc::new(first(&own)));
    assert_eq!(change(&mut actuator, Change::Bind(first(&own))), OutcomeKind::Done);
    actuator.begin_look(&Arc::new(own.clone()));
    assert_eq!(change(&mut actuator, Change::Free), OutcomeKind::Done);
    assert_eq!(change(&mut actuator, Change::Bind(first(&own))), OutcomeKind::Done);
    drop(leave);
    other.join().unwrap();
}

#[test]
fn a_thread_that_ends_while_it_is_looked_at_can_be_placed_nowhere() {
    std::thread::spawn(|| {
        let mut actuator = acting();
        let (own, _) = affinity::own_and_cpuset().unwrap();
        actuator.begin_look(&Arc::new(own));
        let ended = facts_of(u32::MAX / 2, std::process::id());
        assert_eq!(actuator.standing(&ended), (Standing::Free, Arc::default()));
    })
    .join()
    .unwrap();
}

/// Runs in a thread of its own, the only one that the actuator meets. Sets its mask for each step and
/// returns the standing that is found. With `bound`, it was bound to the last PE before and freed.
fn standings(bound: bool, creator: Option<u32>, masks: fn(&CpuSet) -> Vec<CpuSet>) -> Vec<Standing> {
    let act = move || {
        let mut actuator = acting();
        let (own, _) = affinity::own_and_cpuset().unwrap();
        let tid = nix::unistd::gettid().as_raw() as u32;
        let (pid, allowed) = (std::process::id(), Arc::new(own.clone()));
        let facts = facts_of(tid, pid);
        let created = Instant::now();
        actuator.meet(&NewThread { tid, pid, creator_tid: creator, generation: 0, created });
        let look = |actuator: &mut Masks| {
            actuator.begin_look(&allowed);
            actuator.standing(&facts).0
        };
        let ours = CpuSet::single(own.last().unwrap());
        look(&mut actuator);
        if bound {
            let thread = ThreadId { tid, generation: 0 };
            let action = |change| Action { thread, change, reason: "".into() };
            actuator.observed = task::now() + 1;
            for change in [Change::Bind(ours.clone()), Change::Free] {
                assert_eq!(actuator.apply(&action(change)), Some(OutcomeKind::Done));
            }
        } else {
            let handed_out = Entry::HandedOut { original: own.clone(), ours };
            actuator.with_binder(|binder| binder.note(handed_out));
        }
        let step = |mask: CpuSet| {
            affinity::narrow_self(&mask).unwrap();
            look(&mut actuator)
        };
        let found = masks(&own).into_iter().map(step).collect();
        affinity::narrow_self(&own).unwrap();
        found
    };
    std::thread::spawn(act).join().unwrap()
}

fn facts_of(tid: u32, pid: u32) -> ThreadFacts {
    ThreadFacts {
        tid,
        pid,
        app: AppId(0),
        generation: 0,
        name: "test".into(),
        cpu_ns: 0,
        runnable_ns: None,
        runnable: true,
        last_pe: None,
        ended: false,
    }
}

fn first(own: &CpuSet) -> CpuSet {
    CpuSet::single(own.first().unwrap())
}

fn last(own: &CpuSet) -> CpuSet {
    CpuSet::single(own.last().unwrap())
}

#[test]
fn a_bound_process_that_executes_a_program_has_its_mask_back_and_is_bound_once_more() {
    needs!(TwoPes);
    let act = || {
        let mut actuator = acting();
        let (own, _) = affinity::own_and_cpuset().unwrap();
        let (tid, pid) = (nix::unistd::gettid().as_raw() as u32, std::process::id());
        let (facts, allowed) = (facts_of(tid, pid), Arc::new(own.clone()));
        let look = |actuator: &mut Masks| {
            actuator.begin_look(&allowed);
            actuator.observed = task::now() + 1;
            actuator.standing(&facts).0
        };
        let thread = ThreadId { tid, generation: 0 };
        let change = |actuator: &mut Masks, change| {
            actuator.apply(&Action { thread, change, reason: "".into() }).unwrap()
        };
        assert_eq!(look(&mut actuator), Standing::Free);
        assert_eq!(change(&mut actuator, Change::Bind(last(&own))), OutcomeKind::Done);
        let start = Start { tid, pid, generation: 0, by_tid: tid, by_pid: pid };
        actuator.give_back_to(&[start, start]);
        assert_eq!(affinity::get(tid), Ok(own.clone()));
        assert_eq!(change(&mut actuator, Change::Free), OutcomeKind::Done, "the engine need not know why");
        assert_eq!(look(&mut actuator), Standing::Free);
        assert_eq!(change(&mut actuator, Change::Bind(last(&own))), OutcomeKind::Done);
        assert_eq!(look(&mut actuator), Standing::Bound);
    };
    std::thread::spawn(act).join().unwrap();
}

#[test]
fn what_takes_the_place_of_a_program_that_starts_others_is_placed() {
    needs!(TwoPes);
    let act = || {
        let mut actuator = acting();
        actuator.is_followed = false;
        let (own, _) = affinity::own_and_cpuset().unwrap();
        let (tid, pid) = (nix::unistd::gettid().as_raw() as u32, std::process::id());
        let (facts, allowed) = (facts_of(tid, pid), Arc::new(own.clone()));
        let look = |actuator: &mut Masks| {
            actuator.begin_look(&allowed);
            actuator.observed = task::now() + 1;
            actuator.standing(&facts).0
        };
        // It has children that it has waited for.
        Command::new("true").status().unwrap();
        let thread = ThreadId { tid, generation: 0 };
        let bind = Action { thread, change: Change::Bind(last(&own)), reason: "".into() };
        look(&mut actuator);
        assert_eq!(actuator.apply(&bind), Some(OutcomeKind::NotOurs));
        assert_eq!(look(&mut actuator), Standing::StartsPrograms);
        actuator.note_program(pid);
        assert_eq!(look(&mut actuator), Standing::Free);
        assert_eq!(actuator.apply(&bind), Some(OutcomeKind::Done));
        assert_eq!(look(&mut actuator), Standing::Bound);
    };
    std::thread::spawn(act).join().unwrap();
}

#[test]
fn the_second_program_that_a_process_executes_while_it_is_bound_has_it_left_alone() {
    needs!(TwoPes);
    let mut actuator = acting();
    let (own, _) = affinity::own_and_cpuset().unwrap();
    let allowed = Arc::new(own.clone());
    let mut child = Command::new("sh")
        .args(["-c", r#"read l; export again='echo; read l; exec sh -c "$again"'; exec sh -c "$again""#])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut execute = || {
        input.write_all(b"\n").unwrap();
        output.read_exact(&mut [0]).unwrap();
    };
    let look = |actuator: &mut Masks| {
        actuator.begin_look(&allowed);
        actuator.observed = task::now() + 1;
        actuator.standing(&facts_of(pid, pid)).0
    };
    let thread = ThreadId { tid: pid, generation: 0 };
    let bind = Action { thread, change: Change::Bind(last(&own)), reason: "".into() };
    assert_eq!(look(&mut actuator), Standing::Free);
    execute();
    for _ in 0..2 {
        assert_eq!(actuator.apply(&bind), Some(OutcomeKind::Done));
        assert_eq!(look(&mut actuator), Standing::Bound);
        execute();
        let now = look(&mut actuator);
        assert!(matches!(now, Standing::Free | Standing::StartsPrograms), "{now:?}");
        assert_eq!(affinity::get(pid), Ok(own.clone()));
    }
    assert_eq!(look(&mut actuator), Standing::StartsPrograms);
    child.kill().and_then(|()| child.wait()).unwrap();
}

/// As hwloc does: it binds itself here and there, and restores the mask that it has found.
#[test]
fn a_thread_that_puts_a_mask_of_ours_back_has_not_pinned_itself() {
    needs!(TwoPes);
    let found = standings(true, None, |own| vec![first(own), last(own), last(own)]);
    assert_eq!(found, [SelfPinned, Inherited, Inherited]);
}

/// A cpuset that shrinks and grows briefly gives a thread with an inherited mask another mask.
#[test]
fn an_heir_that_had_another_mask_meanwhile_is_still_one() {
    needs!(TwoPes);
    let found = standings(false, None, |own| vec![first(own), last(own)]);
    assert_eq!(found, [SelfPinned, Inherited]);
}

#[test]
fn a_thread_without_a_bound_ancestor_has_pinned_itself() {
    needs!(TwoPes);
    for (creator, expected) in [(std::process::id(), SelfPinned), (u32::MAX / 2, Inherited)] {
        let found = standings(false, Some(creator), |own| vec![last(own), last(own)]);
        assert_eq!(found, [expected, expected], "{creator}");
    }
}

/// A cpuset that shrinks and grows time and again gives a sleeping heir the same other mask time and again.
#[test]
fn while_corewises_own_mask_changes_no_mask_is_a_decision() {
    needs!(TwoPes);
    let mut actuator = acting();
    let (own, _) = affinity::own_and_cpuset().unwrap();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let (pid, token) = (child.id(), crate::act_token::ActToken::mint());
    let look = |actuator: &mut Masks, allowed: &CpuSet| {
        actuator.begin_look(&Arc::new(allowed.clone()));
        actuator.standing(&facts_of(pid, pid)).0
    };
    let before = own.union(&CpuSet::single(corewise_core::ids::PeId(4000)));
    look(&mut actuator, &own);
    actuator.with_binder(|binder| {
        binder.note(Entry::HandedOut { original: own.clone(), ours: last(&own) });
    });
    crate::mask::set(&token, pid, &first(&own)).unwrap();
    assert_eq!([(); 3].map(|()| look(&mut actuator, &before)), [SelfPinned; 3]);
    crate::mask::set(&token, pid, &last(&own)).unwrap();
    assert_eq!(look(&mut actuator, &own), Inherited, "it has pinned itself nowhere");
    crate::mask::set(&token, pid, &first(&own)).unwrap();
    assert_eq!([(); 3].map(|()| look(&mut actuator, &own)), [SelfPinned; 3]);
    crate::mask::set(&token, pid, &last(&own)).unwrap();
    assert_eq!(look(&mut actuator, &own), SelfPinned, "now it has");
    child.kill().and_then(|()| child.wait()).unwrap();
}

/// A process that looks at nothing, with the means to look at and change its only thread.
struct Sleeper {
    child: std::process::Child,
    own: CpuSet,
}

impl Sleeper {
    fn new() -> Sleeper {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let (own, _) = affinity::own_and_cpuset().unwrap();
        // The kernel names it after the program as soon as it runs that.
        while Proc::own().program_name(child.id()).as_deref() != Some("sleep") {
            std::thread::yield_now();
        }
        Sleeper { child, own }
    }

    fn look(&self, actuator: &mut Masks) -> (Standing, Sizing) {
        let pid = self.child.id();
        actuator.begin_look(&Arc::new(self.own.clone()));
        actuator.observed = task::now() + 1;
        (actuator.standing(&facts_of(pid, pid)).0, actuator.sizing(pid))
    }

    fn change(&self, actuator: &mut Masks, change: Change) -> OutcomeKind {
        let thread = ThreadId { tid: self.child.id(), generation: 0 };
        actuator.apply(&Action { thread, change, reason: "".into() }).unwrap()
    }

    fn asks(&self, actuator: &mut Masks, asked: Asked) -> Vec<String> {
        actuator.note_asks(Some(&[Ask { pid: self.child.id(), name: "sleep".to_owned(), asked }]))
    }

    fn mask(&self) -> CpuSet {
        affinity::get(self.child.id()).unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).unwrap();
    }
}

#[test]
fn a_moved_thread_has_its_own_mask_also_if_it_was_bound_and_is_free_already() {
    needs!(TwoPes);
    let (mut actuator, sleeper) = (acting(), Sleeper::new());
    assert_eq!(sleeper.look(&mut actuator), (Standing::Free, Sizing::MayAsk));
    for change in [Change::Move(last(&sleeper.own)), Change::Bind(first(&sleeper.own))] {
        let is_move = matches!(change, Change::Move(_));
        assert_eq!(sleeper.change(&mut actuator, change), OutcomeKind::Done);
        assert_eq!(sleeper.mask() == sleeper.own, is_move);
    }
    assert_eq!(sleeper.look(&mut actuator).0, Standing::Bound);
    assert_eq!(sleeper.change(&mut actuator, Change::Move(last(&sleeper.own))), OutcomeKind::Done);
    assert_eq!(sleeper.mask(), sleeper.own);
    assert_eq!(sleeper.look(&mut actuator).0, Standing::Free);
    assert_eq!(sleeper.change(&mut actuator, Change::Free), OutcomeKind::Done);
}

#[test]
fn what_a_program_has_asked_for_while_it_was_bound_counts_for_all_of_its_processes() {
    needs!(TwoPes);
    let (mut actuator, sleeper) = (acting(), Sleeper::new());
    sleeper.look(&mut actuator);
    let notes = sleeper.asks(&mut actuator, Asked::Mask);
    assert!(notes[0].contains("`sleep` asked how many") && notes[0].contains("GOMAXPROCS"), "{notes:?}");
    assert_eq!(sleeper.asks(&mut actuator, Asked::Mask), [""; 0], "it is said once");
    assert_eq!(sleeper.look(&mut actuator), (Standing::Free, Sizing::Asks));
    assert_eq!(sleeper.change(&mut actuator, Change::Bind(last(&sleeper.own))), OutcomeKind::Done);
    let notes = sleeper.asks(&mut actuator, Asked::Deadline);
    assert!(notes[0].contains("SCHED_DEADLINE") && notes[0].contains("leave-alone"), "{notes:?}");
    assert_eq!(sleeper.mask(), sleeper.own, "it is given back at once");
    assert_eq!(sleeper.look(&mut actuator).0, Standing::NeedsAllPes);
    assert_eq!(Sleeper::new().look(&mut actuator).0, Standing::NeedsAllPes, "the next one, too");
}

#[test]
fn it_is_said_if_nobody_sees_what_bound_threads_ask_for() {
    needs!(TwoPes);
    let (mut actuator, sleeper) = (acting(), Sleeper::new());
    sleeper.look(&mut actuator);
    sleeper.change(&mut actuator, Change::Move(last(&sleeper.own)));
    assert_eq!(actuator.notes(), [""; 0], "a moved thread cannot ask at the wrong moment");
    sleeper.change(&mut actuator, Change::Bind(last(&sleeper.own)));
    assert_eq!(actuator.notes(), [habits::UNSEEN]);
    actuator.note_asks(Some(&[]));
    assert_eq!(actuator.notes(), [""; 0]);
}
