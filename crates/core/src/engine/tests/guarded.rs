//! Policies whose placements a guard measures.

use super::treatments::treated;
use super::*;
use crate::guard::BACK;
use crate::observe::{Observation, ProgressReading, ProgressSource, ThreadReading, Treatment};
use std::cell::RefCell;
use std::rc::Rc;

/// Binds the first thread to the first PE, and records whether the scene showed that.
struct Steadfast(Rc<RefCell<Vec<bool>>>);

impl Policy for Steadfast {
    fn name(&self) -> &str {
        "steadfast"
    }

    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let placed = || scene.threads.iter().filter(|subject| subject.view.thread == id(0));
        self.0.borrow_mut().extend(placed().map(|subject| subject.assignment.is_some()));
        let assignment = Assignment { pes: CpuSet::single(PeId(0)), reason: "test".into() };
        let bound = placed().map(|subject| (subject.view.thread, assignment.clone()));
        Placement { bound: bound.collect(), ..Placement::default() }
    }
}

#[test]
fn a_policy_is_shown_its_placement_also_while_the_guard_measures_without_it() {
    let shown = Rc::new(RefCell::new(Vec::new()));
    let config = EngineConfig { guard: Some(1), ..EngineConfig::default() };
    let mut engine = Engine::new(bulldozer(), Box::new(Steadfast(shown.clone())), config);
    let mut measured_without = 0;
    for at_s in 1..30 {
        let progress = Some(ProgressReading { work: 1000 * at_s, source: ProgressSource::Simulated });
        let one = observe(at_s, Standing::Free, Vec::new());
        let threads = vec![ThreadReading { progress, ..one.threads[0].clone() }];
        measured_without += u64::from(at_s > 1 && engine.present().bound.is_empty());
        engine.step(&Observation { threads, ..one });
    }
    assert!(measured_without > 0);
    let shown = shown.take();
    assert!(!shown[0] && shown[1..].iter().all(|&shown| shown), "{shown:?}");
}

#[test]
fn only_threads_placed_by_the_policy_are_bound_whatever_the_guard_measures() {
    let config = EngineConfig { guard: Some(1), ..EngineConfig::default() };
    let mut engine = Engine::new(bulldozer(), Box::new(Steadfast(Rc::default())), config);
    let (mut outcomes, mut bound) = (Vec::new(), Vec::new());
    let (mut now, mut standings) = (second(1), [Standing::Free; 2]);
    while now < second(30) {
        let progress = Some(ProgressReading { work: now.0, source: ProgressSource::Simulated });
        let one = Observation { at: now, ..observe(1, Standing::Free, std::mem::take(&mut outcomes)) };
        let reading = |index| ThreadReading {
            thread: id(index),
            progress: progress.filter(|_| index == 0),
            last_pe: Some(PeId(u32::from(standings[index] == Standing::Free))),
            standing: standings[index],
            ..one.threads[0].clone()
        };
        let actions = engine.step(&Observation { threads: vec![reading(0), reading(1)], ..one });
        for action in &actions {
            let is_bound = !action.change.gives_back();
            standings[usize::from(action.thread == id(1))] =
                if is_bound { Standing::Bound } else { Standing::Free };
            outcomes.push(outcome(action, OutcomeKind::Done));
        }
        let is_placed = engine.present().bound.contains_key(&id(0));
        assert_eq!(standings, [if is_placed { Standing::Bound } else { Standing::Free }, Standing::Free]);
        bound.extend(actions.into_iter().filter(|action| !action.change.gives_back()));
        now = now + engine.interval();
    }
    assert!(bound.len() > 10, "the guard has tried the placement again and again");
    assert!(bound.iter().all(|action| action.thread == id(0)), "{bound:?}");
    // It is moved back before it is freed.
    let places = [0, 1].map(|pe| Change::Bind(CpuSet::single(PeId(pe))));
    assert!(places.iter().all(|place| bound.iter().any(|action| action.change == *place)));
}

#[test]
fn threads_that_a_rule_keeps_from_the_guard_are_never_freed_for_an_epoch() {
    let config = EngineConfig { guard: Some(1), ..EngineConfig::default() };
    let mut engine = Engine::new(bulldozer(), Box::new(Steadfast(Rc::default())), config);
    for at_s in 1..30 {
        let progress = Some(ProgressReading { work: 1000 * at_s, source: ProgressSource::Simulated });
        let one = observe(at_s, Standing::Free, Vec::new());
        let threads = vec![ThreadReading { progress, ..one.threads[0].clone() }];
        let treatments = treated(Treatment { guard: false, ..Treatment::default() });
        engine.step(&Observation { threads, treatments, ..one });
        assert!(engine.present().bound.contains_key(&id(0)), "{at_s}");
    }
    assert_eq!(engine.guarded(), None);
    assert!(!engine.findings().unwrap().is_about_something());
}

#[test]
fn a_guard_never_frees_a_thread_that_a_rule_keeps_on_some_pes() {
    let config = EngineConfig { guard: Some(1), ..EngineConfig::default() };
    let mut engine = Engine::new(bulldozer(), Box::new(Steadfast(Rc::default())), config);
    let mut widths = std::collections::BTreeSet::new();
    for at_s in 1..30 {
        let progress = Some(ProgressReading { work: 1000 * at_s, source: ProgressSource::Simulated });
        let one = observe(at_s, Standing::Free, Vec::new());
        let threads = vec![ThreadReading { progress, ..one.threads[0].clone() }];
        let pes = Some("0-3".parse().unwrap());
        let treatments = treated(Treatment { pes, ..Treatment::default() });
        engine.step(&Observation { threads, treatments, ..one });
        widths.insert(engine.present().bound[&id(0)].pes.len());
    }
    assert!(engine.findings().unwrap().is_about_something());
    assert_eq!(widths.into_iter().collect::<Vec<_>>(), [1, 4], "with its placement, and without");
}

/// Binds the first half of the threads to the first PE, and moves the others at each step.
struct Restless;

impl Policy for Restless {
    fn name(&self) -> &str {
        "restless"
    }

    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let half = (scene.now.0 / 10_000_000) as u32 % 2;
        let bound = scene.threads.iter().enumerate().map(|(index, subject)| {
            let pes = CpuSet::single(PeId(if index < scene.threads.len() / 2 { 0 } else { half }));
            (subject.view.thread, Assignment { pes, reason: "test".into() })
        });
        Placement { bound: bound.collect(), ..Placement::default() }
    }
}

#[test]
fn moves_back_and_placements_share_the_budget_of_a_step() {
    const THREADS: usize = 16;
    let config = EngineConfig { guard: Some(1), ..EngineConfig::default() };
    let mut engine = Engine::new(bulldozer(), Box::new(Restless), config);
    let allowed = CpuSet::first_n(2);
    let most = BINDS_PER_PE_MAX * allowed.len();
    let unguarded = treated(Treatment { guard: false, ..Treatment::default() });
    let mut standings = [Standing::Free; THREADS];
    let (mut now, mut outcomes, mut full, mut moves) = (second(1), Vec::new(), 0, 0);
    while now < second(30) {
        let one = observe(1, Standing::Free, std::mem::take(&mut outcomes));
        let reading = |index: usize| ThreadReading {
            thread: id(index),
            progress: Some(ProgressReading { work: now.0, source: ProgressSource::Simulated }),
            last_pe: Some(PeId(1)),
            standing: standings[index],
            // The second half belongs to the treated process.
            pid: if index < THREADS / 2 { 1 } else { id(0).tid },
            ..one.threads[0].clone()
        };
        let threads = (0..THREADS).map(reading).collect();
        let treatments = unguarded.clone();
        let allowed = allowed.clone();
        let actions = engine.step(&Observation { at: now, allowed, threads, treatments, ..one });
        let changes = actions.iter().filter(|action| !action.change.gives_back()).count();
        assert!(changes <= most, "{changes} changes at {now:?}: {actions:?}");
        full += u32::from(changes == most);
        moves += actions.iter().filter(|action| *action.reason == *BACK).count();
        for action in &actions {
            let index = (0..THREADS).find(|index| id(*index) == action.thread).unwrap();
            let is_free = action.change.gives_back();
            standings[index] = if is_free { Standing::Free } else { Standing::Bound };
            outcomes.push(outcome(action, OutcomeKind::Done));
        }
        now = now + engine.interval();
    }
    assert!(full > 5 && moves > 5, "{full} steps used the whole budget, {moves} threads were moved back");
}
