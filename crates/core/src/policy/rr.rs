//! Fast and slow PEs in turn: `rr`.
//!
//! Problem: with fewer fast PEs than threads some threads have to wait, and without any knowledge of the
//! threads the only fair answer is equal shares.
//!
//! Approach: the policy "equally shares fast and slow cores among all threads" (Saez et al., CF'10, §2.3,
//! after Becchi and Crowley, CF'06). Runnable threads *stay* on the fast PEs one after the other, those
//! with the least time on them first. The others are kept on the slow PEs; otherwise chance would decide
//! which share the fast ones.
//!
//! Parameters: `stay`, the time that a thread stays on a fast PE; the paper does not give it.
//!
//! Limits: a stay lasts at least one step. Every stay is a migration, whose cost is not considered. Those of
//! [`super::amp`].

use super::amp::{Amp, Candidate, Rest, candidates};
use super::interface::{Policy, Scene};
use super::kind::{Parameters, PolicyKind};
use super::needs::{Needs, Reading};
use super::stays::{Stays, stay};
use crate::plan::Placement;
use std::time::Duration;

/// The registry entry.
pub const KIND: PolicyKind = PolicyKind {
    name: "rr",
    machine: "fast and slow PEs",
    rule: "all threads have the fast PEs in turn, for equal times",
    why: "each thread gets its share of the fast PEs, and none is left behind",
    source: "PA §2.3",
    makes_claims: true,
    rest: None,
    make: |parameters| Box::new(RoundRobin::new(parameters)),
};

/// The policy.
struct RoundRobin {
    stay: Duration,
    stays: Stays,
}

impl RoundRobin {
    fn new(parameters: &mut Parameters<'_>) -> Self {
        Self { stay: stay(parameters), stays: Stays::default() }
    }
}

impl Policy for RoundRobin {
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
        let sharing: Vec<_> = candidates(scene).collect();
        let reason = &format!("its stay of {:?}", self.stay);
        let ranks = self.stays.ranks(scene, &amp, self.stay, &sharing);
        let ranked = ranks.zip(sharing).map(|(order, subject)| Candidate {
            claim: (),
            order,
            has_claim: true,
            subject,
            reason,
        });
        amp.place(scene, ranked.collect(), Rest::After)
    }
}
