//! Fast and slow PEs in turns: `rr`.
//!
//! Problem: with fewer fast PEs than threads somebody has to wait, and without any knowledge of the threads
//! the only just answer is: everybody equally.
//!
//! Approach: the policy "equally shares fast and slow cores among all threads" (Saez et al., CF'10, §2.3,
//! after Becchi and Crowley, CF'06). Runnable threads take the fast PEs in turns, those who had least of them
//! first; the others are kept on the slow PEs, or the fast ones would be shared by chance.
//!
//! Parameters: `turn`, the time that a thread stays on a fast PE; the paper does not give it ([`TURN`]).
//!
//! Limits: a turn is at least a step. Every turn is a migration, and its cost is not weighed. Those of
//! [`super::amp`].

use super::amp::{Amp, Candidate, Rest, candidates};
use super::turns::{TURN, Turns};
use super::{Policy, Scene};
use crate::plan::Placement;
use std::time::Duration;

/// The policy.
#[derive(Debug, Clone)]
pub struct RoundRobin {
    turn: Duration,
    turns: Turns,
}

impl RoundRobin {
    /// Round robin with turns of that length.
    pub fn new(turn: Duration) -> Self {
        Self { turn, turns: Turns::default() }
    }
}

impl Default for RoundRobin {
    fn default() -> Self {
        Self::new(TURN)
    }
}

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        "rr"
    }

    fn needs_fpu_usage(&self) -> bool {
        false
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let amp = match Amp::of(scene) {
            Ok(amp) => amp,
            Err(placement) => return placement,
        };
        let sharing: Vec<_> = candidates(scene).collect();
        let reason = || format!("its turn of {:?}", self.turn);
        let ranks = self.turns.ranks(scene, &amp, self.turn, &sharing);
        let ranked = ranks.zip(sharing).map(|(rank, subject)| Candidate { rank, subject, reason: reason() });
        amp.place(scene, ranked.collect(), Rest::OnSlow)
    }
}
