//! Fast PEs are busy before slow ones: `busyfcs`.
//!
//! Problem: a scheduler that takes all PEs for equal leaves fast ones idle while threads run on slow ones.
//!
//! Approach: the policy "guarantees that fast cores never go idle before slow cores" (Saez et al., CF'10,
//! §2.3, after Balakrishnan et al., ISCA'05). Runnable threads are bound to fast PEs until each has its
//! thread; who has one keeps it, whoever it is. All others stay free: binding them to slow PEs would keep
//! them from a fast PE that falls idle between two steps.
//!
//! Parameters: none.
//!
//! Limits: which thread gets a fast PE is chance (here: who is there already, else the lowest thread id);
//! neither its parallelism nor its speedup counts. Also those of [`super::amp`].

use super::amp::{Amp, Candidate, Rest, candidates};
use super::{Policy, Scene};
use crate::plan::Placement;

/// The policy. It has no state: who sits on a fast PE is part of the scene.
#[derive(Debug, Clone, Copy)]
pub struct BusyFcs;

impl Policy for BusyFcs {
    fn name(&self) -> &'static str {
        "busyfcs"
    }

    fn needs_fpu_usage(&self) -> bool {
        false
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let amp = match Amp::of(scene) {
            Ok(amp) => amp,
            Err(placement) => return placement,
        };
        let mut subjects: Vec<_> = candidates(scene).collect();
        subjects.sort_by_key(|subject| (!amp.on_fast(scene, subject), subject.view.thread));
        let reason = || "runnable while a fast PE was idle".to_owned();
        let ranked: Vec<_> =
            subjects.into_iter().map(|subject| Candidate { subject, reason: reason() }).collect();
        amp.place(scene, &ranked, Rest::Free)
    }
}
