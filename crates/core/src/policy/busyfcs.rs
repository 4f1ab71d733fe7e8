//! Keeps fast PEs busy before slow ones: `busyfcs`.
//!
//! Problem: a scheduler that treats all PEs as equal leaves fast ones idle while threads run on slow ones.
//!
//! Approach: the policy "guarantees that fast cores never go idle before slow cores" (Saez et al., CF'10,
//! §2.3, after Balakrishnan et al., ISCA'05). Runnable threads are bound to fast PEs until each has a thread;
//! a thread on a fast PE keeps it. All others stay free: binding them to slow PEs would keep them from a fast
//! PE that becomes idle between two steps.
//!
//! Parameters: none.
//!
//! Limits: which thread gets a fast PE is arbitrary (here: one that is there already, else the nearest);
//! neither its parallelism nor its speedup counts. Also those of [`super::amp`].

use super::amp::{Amp, Candidate, Rest, candidates};
use super::interface::{Policy, Scene};
use super::kind::PolicyKind;
use super::needs::{Needs, Reading};
use crate::plan::Placement;

/// The registry entry.
pub const KIND: PolicyKind = PolicyKind {
    name: "busyfcs",
    machine: "fast and slow PEs",
    rule: "a fast PE is never idle while a thread runs on a slow one",
    why: "a thread gets more done on a fast PE: none of these should be idle while a slow one works",
    source: "PA §2.3",
    makes_claims: false,
    rest: None,
    make: |_| Box::new(BusyFcs),
};

/// The policy. It is stateless: which threads are on fast PEs is part of the scene.
struct BusyFcs;

impl Policy for BusyFcs {
    fn name(&self) -> &str {
        KIND.name
    }

    fn needs(&self) -> Needs {
        Needs { used: &[Reading::Spinning], ..Needs::NONE }
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let amp = match Amp::of(scene) {
            Ok(amp) => amp,
            Err(placement) => return placement,
        };
        let reason = "runnable while a fast PE was idle";
        let ranked = candidates(scene).map(|subject| Candidate {
            claim: (),
            order: (),
            has_claim: true,
            subject,
            reason,
        });
        amp.place(scene, ranked.collect(), Rest::Free)
    }
}
