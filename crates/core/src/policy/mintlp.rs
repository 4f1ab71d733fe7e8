//! Fast PEs for the applications with the least parallelism: `mintlp`.
//!
//! Problem: a fast PE speeds up a sequential program or phase as a whole, but of a program with many runnable
//! threads only a small part.
//!
//! Approach (Saez et al., CF'10, §2.1): "selects applications with the smallest thread-level parallelism and
//! maps threads of these applications to fast cores. Thread-level parallelism is determined by examining the
//! number of runnable (i.e., not blocked) threads. If not enough fast cores are available to accommodate all
//! these threads, some will be left running on slow cores. MinTLP makes no effort to fairly share." Changes
//! are made by swaps once per step, as §2.1 has it "to avoid premature migrations". An application of equal
//! parallelism takes nobody's place, so the first that is served stays. An idle fast PE takes a thread of any
//! application (§2.2 has it migrate at once, we at the next step). A thread that has told that it spins comes
//! after all others, but keeps its fast PE while none of them wants it.
//!
//! Parameters: none.
//!
//! Limits: the number of runnable threads is the mean since the last step, rounded; the paper counts at every
//! change. An application whose parallelism is not known comes last. Those of [`super::amp`].

use super::amp::{Amp, Candidate, Rest, candidates};
use super::{Policy, Scene, tlp};
use crate::plan::Placement;

/// The policy. It has no state: who sits on a fast PE is part of the scene.
#[derive(Debug, Clone, Copy)]
pub struct MinTlp;

impl Policy for MinTlp {
    fn name(&self) -> &'static str {
        "mintlp"
    }

    fn needs_fpu_usage(&self) -> bool {
        false
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let amp = match Amp::of(scene) {
            Ok(amp) => amp,
            Err(placement) => return placement,
        };
        // An application that has just appeared was idle before; now it has this thread.
        let rank = |app| tlp(scene, app).map_or(usize::MAX, |tlp| tlp.max(1));
        let reason = |app| match tlp(scene, app) {
            Some(tlp) => format!("its application has {tlp} runnable threads"),
            None => "the parallelism of its application is unknown".to_owned(),
        };
        let working = candidates(scene).map(|subject| {
            let app = subject.view.app;
            Candidate { rank: rank(app), subject, reason: reason(app) }
        });
        let spinning = amp.spinning_on_fast(scene).into_iter().map(|subject| {
            let reason = "it spins, and nobody wants its fast PE".to_owned();
            Candidate { rank: usize::MAX, subject, reason }
        });
        amp.place(scene, working.chain(spinning).collect(), Rest::OnSlow)
    }
}
