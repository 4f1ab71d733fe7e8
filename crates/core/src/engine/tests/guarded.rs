//! Policies whose placements a guard measures.

use super::*;
use crate::observe::{Observation, ProgressReading, ProgressSource, ThreadReading};
use std::cell::RefCell;
use std::rc::Rc;

/// Binds every thread to the first PE, and records whether the scene showed that.
struct Steadfast(Rc<RefCell<Vec<bool>>>);

impl Policy for Steadfast {
    fn name(&self) -> &str {
        "steadfast"
    }

    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        self.0.borrow_mut().extend(scene.threads.iter().map(|subject| subject.assignment.is_some()));
        let assignment = Assignment { pes: CpuSet::single(PeId(0)), reason: "test".into() };
        let bound = scene.threads.iter().map(|subject| (subject.view.thread, assignment.clone()));
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
