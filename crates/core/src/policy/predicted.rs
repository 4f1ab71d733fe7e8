//! What a placement is predicted to lose and to gain, for the threads of a scene.
//!
//! Problem: a policy gives its reasons in its own words, and none of them says what the placement is worth.
//! Approach: what all threads lose as they are placed, and what they would lose where the system puts them
//! ([`crate::losses`]). Limits: those of the losses; what changes while the placement lasts is not foreseen.

use super::interface::{Scene, Subject};
use crate::cpuset::CpuSet;
use crate::losses::{Losses, Lost, Running};
use crate::plan::Placement;

/// What all threads together are predicted to lose, in seconds of PE time per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Predicted {
    /// With every thread where the system puts it.
    pub free: Lost,
    /// With the placement.
    pub placed: Lost,
}

impl Predicted {
    /// Returns the prediction for a placement; `None` where too little of the machine was measured, or
    /// nothing is bound.
    pub fn of(scene: &Scene<'_>, placement: &Placement) -> Option<Predicted> {
        if placement.bound.is_empty() {
            return None;
        }
        let mut losses = Losses::new(scene.machine)?;
        let none = |_: &Subject| None;
        let free = losses.of(&running(scene, none));
        let bound = |subject: &Subject| Some(&placement.bound.get(&subject.view.thread)?.pes);
        Some(Predicted { free, placed: losses.of(&running(scene, bound)) })
    }

    /// Returns the PE time that is predicted to be gained, in seconds per second.
    pub fn gain(&self) -> f64 {
        self.free.total() - self.placed.total()
    }
}

/// Returns the threads of a scene that want a PE; `bound` gives the PEs to which one is bound.
fn running<'p>(scene: &Scene<'_>, bound: impl Fn(&Subject) -> Option<&'p CpuSet>) -> Vec<Running> {
    let wanting = scene.threads.iter().filter(|subject| subject.view.runnable_share > 0.0);
    let of = |subject: &Subject| {
        let free = || subject.view.permitted.intersection(scene.allowed);
        let pes = bound(subject).cloned().unwrap_or_else(free);
        Running::of(&subject.view, &scene.knowledge.of(&subject.name), pes)
    };
    wanting.map(of).collect()
}
