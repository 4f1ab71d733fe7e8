//! Threads whose masks others set again and again. In these drawings a column is one second: `b` where the
//! first thread is bound, `f` where it is freed, `.` where nothing is decided about it.

use super::*;
use crate::observe::{ProgressReading, ProgressSource};

/// A machine with two modules, and two threads that are kept apart. Others interfere with the first.
fn fight(seconds: u64, interference: Vec<(Time, Interference)>) -> (String, Engine) {
    let topology = machine(DomainKind::Module, 2, 2);
    let mut threads = steady(&[0.9, 0.8]);
    threads[0].interference = interference;
    let allowed = vec![(Time(0), topology.allowed.clone())];
    let mut world = ScriptedWorld::new(allowed, threads, second(seconds));
    let mut engine = Engine::new(topology, policy::build("spread").unwrap(), EngineConfig::default());
    let mut drawn = String::new();
    control_loop(&mut world, &mut engine, |_, actions, _| {
        let change = actions.iter().rfind(|action| action.thread == id(0)).map(|action| &action.change);
        drawn.push(match change {
            Some(Change::Bind(_)) => 'b',
            Some(Change::Free) => 'f',
            Some(Change::Move(_) | Change::Set(_) | Change::Reset(_)) | None => '.',
        });
    })
    .unwrap();
    assert!(world.bound().is_empty(), "everything is given back at the end");
    (drawn, engine)
}

fn each_second(from: u64, to: u64, what: Interference) -> Vec<(Time, Interference)> {
    (from..to).map(|at| (second(at) + Duration::from_millis(500), what)).collect()
}

#[test]
fn a_thread_that_undoes_its_binding_three_times_is_left_alone() {
    let (drawn, engine) = fight(20, each_second(2, 20, Interference::Widens));
    assert_eq!(drawn, "b.bb................");
    let note = "the thread `thread 0` was bound 3 times, and each time the thread itself or another program \
        set the mask anew: left alone since then";
    assert_eq!(engine.notes().collect::<Vec<_>>(), [note]);
}

#[test]
fn so_is_one_for_which_another_tool_sets_masks_as_often() {
    // The other tool gives it PEs of its own, and every PE again three seconds later.
    let fight_back = |at: u64| [(second(at), Interference::Pins), (second(at + 3), Interference::Widens)];
    let (drawn, _) = fight(40, (3..40).step_by(6).flat_map(fight_back).collect());
    assert_eq!(drawn, "b.....b.....b...........................");
    // The other tool gives it PEs to which the engine has bound some thread, which looks inherited.
    let (drawn, engine) = fight(20, each_second(2, 20, Interference::Copies));
    assert_eq!(drawn, "b.bb................");
    assert_eq!(engine.notes().count(), 1);
}

#[test]
fn a_program_that_widens_its_mask_once_is_bound_again_and_stays_so() {
    let (drawn, engine) = fight(12, each_second(4, 5, Interference::Widens));
    assert_eq!((drawn.as_str(), engine.notes().count()), ("b...b.......", 0));
}

#[test]
fn the_kernel_that_widens_a_mask_because_its_pes_are_gone_is_no_rival() {
    let mut engine = Engine::new(bulldozer(), Box::new(Wander), EngineConfig::default());
    let mut outcomes = Vec::new();
    for pe in 1..8 {
        let allowed = (pe..8).map(PeId).collect();
        let seen = observe(2 * u64::from(pe), Standing::Free, std::mem::take(&mut outcomes));
        let actions = engine.step(&Observation { allowed, ..seen });
        assert_eq!(actions[0].change, Change::Bind(CpuSet::single(PeId(pe))));
        outcomes.push(outcome(&actions[0], OutcomeKind::Done));
    }
    assert_eq!(engine.notes().count(), 0);
}

#[test]
fn a_thread_whose_process_starts_programs_is_freed_and_not_bound_again() {
    let mut engine = Engine::new(bulldozer(), Box::new(Wander), EngineConfig::default());
    let bound = engine.step(&observe(1, Standing::Free, Vec::new()));
    let done = vec![outcome(&bound[0], OutcomeKind::Done)];
    let freed = engine.step(&observe(2, Standing::StartsPrograms, done));
    assert_eq!(freed.iter().map(|action| &action.change).collect::<Vec<_>>(), [&Change::Free]);
    let done = vec![outcome(&freed[0], OutcomeKind::Done)];
    assert!(engine.step(&observe(3, Standing::StartsPrograms, done)).is_empty());
    assert!(engine.release_all().is_empty());
}

/// The guard binds and frees many times a second while it measures.
#[test]
fn with_the_guard_a_fight_ends_as_soon() {
    let config = EngineConfig { guard: Some(1), ..EngineConfig::default() };
    let mut engine = Engine::new(bulldozer(), Box::new(Wander), config);
    let (mut now, mut binds, mut outcomes) = (second(1), 0, Vec::new());
    while now < second(60) {
        let progress = Some(ProgressReading { work: now.0, source: ProgressSource::Simulated });
        // Whenever the thread was bound, it has undone that by the next look.
        let one = Observation { at: now, ..observe(1, Standing::Free, std::mem::take(&mut outcomes)) };
        let threads = vec![ThreadReading { progress, ..one.threads[0].clone() }];
        for action in engine.step(&Observation { threads, ..one }) {
            let is_bound = matches!(action.change, Change::Bind(_));
            binds += u32::from(is_bound);
            outcomes.push(outcome(&action, if is_bound { OutcomeKind::Done } else { OutcomeKind::NotOurs }));
        }
        now = now + engine.interval();
    }
    assert_eq!((binds, engine.notes().count()), (3, 1));
}

proptest! {
    /// Whatever others do to a thread's mask, and when: they have the last word.
    #[test]
    fn a_fight_ends(acts in proptest::collection::vec((0u64..60_000, 0..3), 0..60)) {
        let kinds = [Interference::Widens, Interference::Pins, Interference::Copies];
        let acts = acts.into_iter().map(|(ms, kind)| (Time(ms * 1_000_000), kinds[kind as usize]));
        let mut acts: Vec<_> = acts.collect();
        acts.sort_by_key(|(at, _)| *at);
        let (drawn, engine) = fight(70, acts);
        let decisions = drawn.chars().filter(|decision| *decision != '.').count();
        prop_assert!(decisions <= 8, "{drawn}");
        prop_assert!(drawn.matches('b').count() <= 4, "{drawn}");
        prop_assert!(engine.notes().count() <= 1);
    }
}
