use super::*;
use crate::ids::AppId;
use crate::observe::Standing;
use crate::view::{Source, ThreadView};
use std::sync::Arc;

/// The defaults.
fn parameters() -> Parameters {
    Parameters::new(&mut kind::Parameters::defaults())
}

fn usage(l2_misses: f64, fpu: f64, branches: f64, ipc: f64) -> Usage {
    let counted = |value| Some(Estimate { value, confidence: 1.0, source: Source::Counters });
    Usage {
        l2_misses_per_100_cycles: counted(l2_misses),
        fpu: counted(fpu),
        branches: counted(branches),
        ipc: counted(ipc),
        ..Usage::default()
    }
}

#[test]
fn the_difference_has_the_papers_weights() {
    let weights = parameters().weights;
    let nothing = usage(0.0, 0.0, 0.0, 1.0);
    for (other, expected) in [
        (usage(2.0, 0.0, 0.0, 1.0), 0.08),
        (usage(0.0, 0.5, 0.0, 1.0), 0.5),
        (usage(0.0, 0.0, 0.2, 1.0), 0.4),
        (usage(0.0, 0.0, 0.2, 0.5), 0.2),
        (usage(2.0, 0.5, 0.2, 0.5), 0.78),
    ] {
        let (nothing, other) = (Events::of(&nothing), Events::of(&other));
        assert!((difference(&weights, &nothing, &other) - expected).abs() < 1e-9, "{other:?}");
        assert!((difference(&weights, &other, &nothing) - expected).abs() < 1e-9, "{other:?}");
    }
}

fn subject(fpu: f64) -> Subject {
    let thread = ThreadId { tid: (fpu * 10.0) as u32, generation: 0 };
    let view = ThreadView {
        thread,
        app: AppId(0),
        runnable_share: 1.0,
        last_pe: None,
        standing: Standing::Free,
        permitted: Arc::new(CpuSet::first_n(2)),
        usage: usage(0.0, fpu, 0.0, 1.0),
    };
    Subject::example(view)
}

/// The two siblings of a core.
fn core() -> Table {
    let [a, b] = [PeId(0), PeId(1)];
    let siblings = vec![vec![1], vec![0]];
    Table { pes: vec![a, b], places: [(a, 0), (b, 1)].into(), siblings, designated: CpuSet::single(b) }
}

/// The threads that were dealt to them.
fn dealt<'a>(core: &'a Table, first: &[&Subject], second: &[&Subject]) -> Deal<'a> {
    let dealt = |subjects: &[&Subject]| {
        let dealt = |s: &&Subject| Dealt { thread: s.view.thread, events: Events::of(&s.view.usage) };
        subjects.iter().map(dealt).collect()
    };
    Deal { dealt: vec![dealt(first), dealt(second)], ..Deal::new(core, parameters()) }
}

#[test]
fn a_dealing_is_worth_the_mean_difference_of_possible_neighbours() {
    let core = core();
    let [none, half, full] = [0.0, 0.5, 0.9].map(subject);
    let deal = dealt(&core, &[&none], &[&half, &full]);
    assert!((deal.worth() - 0.7).abs() < 1e-9, "{}", deal.worth());
    assert_eq!(dealt(&core, &[], &[&half, &full]).worth(), 0.0, "no threads are neighbours");
}

#[test]
fn an_even_dealing_is_better_and_of_equal_ones_the_clearly_more_different() {
    let core = core();
    let [none, tenth, half, full] = [0.0, 0.1, 0.5, 0.9].map(subject);
    let uneven = dealt(&core, &[&none, &tenth, &half], &[&full]);
    let alike = dealt(&core, &[&none, &half], &[&tenth, &full]);
    let unlike = dealt(&core, &[&none, &tenth], &[&half, &full]);
    assert!(alike.crowding() < uneven.crowding());
    assert!(alike.is_better(&uneven, 0.1) && !uneven.is_better(&alike, 0.1));
    assert!(unlike.is_better(&alike, 0.1) && !alike.is_better(&unlike, 0.1));
    assert!(!unlike.is_better(&alike, 1.0), "0.65 is not twice 0.5");
}

#[test]
fn what_is_unknown_decides_nothing_and_no_counters_at_all_go_first() {
    let weights = parameters().weights;
    let a = usage(0.0, 0.0, 0.0, 1.0);
    let guess = Usage { fpu: a.fpu.map(|fpu| Estimate { value: 0.9, confidence: 0.2, ..fpu }), ..a };
    let [a, guess, nothing] = [a, guess, Usage::default()].map(|usage| Events::of(&usage));
    assert_eq!(difference(&weights, &a, &guess), 0.0);
    assert_eq!(difference(&weights, &a, &nothing), f64::INFINITY);
    assert_eq!(difference(&weights, &nothing, &a), 0.0);
}
