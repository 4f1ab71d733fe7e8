//! What is wanted about how threads wait: the states of processes ([`crate::waits`]), and PEs for those
//! that spin.

use super::gangs::{Gangs, Why};
use super::guards::Guards;
use super::intake::Intake;
use super::treatments::InForce;
use crate::ids::ThreadId;
use crate::machine_model::Switching;
use crate::observe::{CounterReading, ProcessReading, Program, ThreadReading};
use crate::plan::{Outcome, Placement};
use crate::time::Time;
use crate::waits::{State, WaitChanges, Waits};
use std::time::Duration;

/// The states of the processes, and the threads that they spread.
pub struct Waiting {
    waits: Waits,
    gangs: Gangs,
}

impl Waiting {
    /// No process waits yet; so much may be changed, and switches cost this.
    pub fn new(may: WaitChanges, costs: Switching) -> Waiting {
        Waiting { waits: Waits::new(may, costs), gangs: Gangs::default() }
    }

    /// What switches cost was measured better: for processes that begin from now on.
    pub fn set_costs(&mut self, costs: Switching) {
        self.waits.costs = costs;
    }

    /// Takes in the outcome of an action.
    pub fn take_outcome(&mut self, outcome: &Outcome) {
        self.waits.take_outcome(outcome);
    }

    /// Takes in which programs processes run now.
    pub fn take_programs(&mut self, programs: &[Program]) {
        self.waits.take_programs(programs);
    }

    /// Takes note of which changes the treatments permit.
    pub fn limit(&mut self, treatments: &InForce) {
        self.waits.limit(|pid| treatments.waits(pid));
    }

    /// Takes in the times of a process. Returns whether other waits are wanted.
    pub fn take_process(&mut self, reading: &ProcessReading, known: &Intake, guards: &Guards) -> bool {
        let may = known.treatments.waits(reading.leader.tid);
        // Times of an epoch without changes say nothing about the rules.
        if guards.disturb(reading.at) {
            self.waits.skip(reading, may);
            return false;
        }
        self.waits.take(reading, may, known.now)
    }

    /// A thread has ended.
    pub fn forget(&mut self, thread: ThreadId) {
        self.waits.forget(thread);
    }

    /// Determines which of the delayed processes spin, and which processes take turns or are kept apart.
    pub fn judge(&mut self, threads: &[ThreadReading], now: Time, guards: &Guards) {
        if guards.disturb(now) {
            self.waits.judge_anew();
            return;
        }
        for leader in self.waits.to_judge() {
            let of_process = threads.iter().filter(|reading| reading.pid == leader.tid);
            let samples = of_process.filter_map(|reading| match &reading.counters {
                Some(CounterReading::Sample(sample)) => Some((reading.thread, sample)),
                Some(CounterReading::Pmu(_)) | None => None,
            });
            self.waits.judge(leader, samples.collect(), now);
        }
        let threads_of = |(why, leader): (Why, ThreadId)| {
            let of_process = threads.iter().filter(|reading| reading.pid == leader.tid && !reading.ended);
            (leader, (why, of_process.map(|reading| reading.thread).collect()))
        };
        let in_turns = self.waits.in_state(State::Turns).map(|leader| (Why::Turns, leader));
        let apart = self.waits.apart(now).map(|leader| (Why::Yields, leader));
        self.gangs.set_members(in_turns.chain(apart).map(threads_of).collect());
    }

    /// Returns when another observation judges them.
    pub fn judged_within(&self, now: Time) -> Option<Duration> {
        self.waits.judged_within(now)
    }

    /// Returns whether clock samples would show something that is worth what they cost.
    pub fn needs_samples(&self) -> bool {
        self.waits.needs_samples()
    }

    /// Returns whether anything is changed for the good of others, and how many processes take turns.
    pub fn for_others(&self) -> (bool, u32) {
        (self.waits.is_any_changed_for_others(), self.waits.in_state(State::Turns).count() as u32)
    }

    /// Returns whether the threads of any process are spread.
    pub fn spreads(&self) -> bool {
        !self.gangs.is_empty()
    }

    /// Adds PEs for the threads that are spread.
    pub fn add_assignments(&self, wanted: &mut Placement, present: &Placement, known: &Intake) {
        self.gangs.add_assignments(wanted, present, known);
    }

    /// Adds the settings for waits; without those that harm in an epoch `without` changes.
    pub fn add_settings(&self, wanted: &mut Placement, without: bool) {
        self.waits.add_to(wanted);
        if without {
            self.waits.undo_for_an_epoch(wanted);
        }
    }
}
