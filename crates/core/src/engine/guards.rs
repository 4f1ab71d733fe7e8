//! The guards: one measures what placements gain, one what changes of waits gain.

use super::config::EngineConfig;
use super::intake::Intake;
use crate::guard::Guard;
use crate::guard::waits::{Present, WaitsGuard};
use crate::observe::{Observation, ThreadReading};
use crate::time::Time;

/// The guards that there are.
pub struct Guards {
    /// That of placements.
    pub placement: Option<Guard>,
    /// That of changes of waits.
    pub waits: Option<WaitsGuard>,
}

impl Guards {
    /// Those that the parameters ask for.
    pub fn new(config: &EngineConfig) -> Guards {
        let waits = config.guard.filter(|_| config.changes_waits());
        Guards { placement: config.guard.map(Guard::new), waits: waits.map(|_| WaitsGuard::default()) }
    }

    /// Takes in what threads did. `is_placed`: whether the policy wants any bound that is guarded.
    pub fn take_threads(&mut self, observation: &Observation, known: &Intake, is_placed: bool) {
        if let Some(guard) = &mut self.placement {
            let guarded = |reading: &&ThreadReading| known.treatments.is_guarded(reading.pid);
            guard.take(observation.at, observation.threads.iter().filter(guarded), is_placed);
        }
    }

    /// Takes in what all runs of the user do together. `changes`: whether this one changes waits for the
    /// good of others; `gangs`: how many of its processes take turns.
    pub fn take_board(&mut self, observation: &Observation, changes: bool, gangs: u32) {
        if let (Some(guard), Some(board)) = (&mut self.waits, &observation.board) {
            let threads = &observation.threads[..];
            guard.take(board, Present { now: observation.at, threads, changes, gangs });
        }
    }

    /// Returns when they want another observation.
    pub fn due(&self) -> impl Iterator<Item = Time> {
        let placement = self.placement.as_ref().and_then(Guard::due);
        placement.into_iter().chain(self.waits.as_ref().and_then(WaitsGuard::due))
    }

    /// Returns whether the placement is in force: no epoch without it is being measured.
    pub fn is_placed(&self) -> bool {
        self.placement.as_ref().is_none_or(Guard::is_in_force)
    }

    /// Returns whether waits and turns are now as without corewise, whatever their rules say.
    pub fn are_waits_off(&self) -> bool {
        self.waits.as_ref().is_some_and(WaitsGuard::is_off)
    }

    /// Returns whether an epoch of the guard of waits has disturbed what happened at this time.
    pub fn disturb(&self, since: Time) -> bool {
        self.waits.as_ref().is_some_and(|guard| guard.disturbs(since))
    }
}
