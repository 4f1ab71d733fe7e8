//! Counters: what really happened, and what a PMU would show of it.
//!
//! Problem: policies must not see exact numbers that no machine provides. Approach: the true values are kept
//! as fractions. Each reading adds the change since the last one, with a normal relative error drawn per
//! counter, and shows whole counts. Readings never decrease. An event set that shares the PMU has
//! `running_ns` below `enabled_ns`, and its error grows with the square root of the share. Source: perf's
//! scaling of multiplexed counts. Limits: errors of consecutive readings are independent; systematic errors
//! of real events are not modelled.

use crate::machine::Pmu;
use crate::random::Random;
use corewise_core::machine_model::contention::{Demand, Pace};
use corewise_core::observe::PmuReading;
use corewise_core::policy::dispatch::EventsPerCycle;

/// Number of counters.
const COUNTERS: usize = 6;
const CYCLES: usize = 0;
const INSTRUCTIONS: usize = 1;
const FPU_BUSY: usize = 2;
const L2_MISSES: usize = 3;
const BRANCHES: usize = 4;
const BRANCH_MISSES: usize = 5;

/// One thread's counters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counters {
    truth: [f64; COUNTERS],
    read: [f64; COUNTERS],
    shown: [f64; COUNTERS],
}

impl Counters {
    /// Counts cycles.
    pub fn add_cycles(&mut self, cycles: f64) {
        self.truth[CYCLES] += cycles;
    }

    /// Counts work done at a pace.
    pub fn add_work(&mut self, work: f64, demand: &Demand, pace: &Pace) {
        let instructions = work * demand.ipc;
        self.truth[INSTRUCTIONS] += instructions;
        self.truth[FPU_BUSY] += work * pace.fpu_busy_per_work;
        self.truth[L2_MISSES] += work * pace.l2_misses_per_work;
        self.truth[BRANCHES] += instructions * demand.branches;
        self.truth[BRANCH_MISSES] += instructions * demand.branches * demand.branch_misses;
    }

    /// Returns the cycles so far, and those in which the FPU was busy.
    pub fn busy(&self) -> (f64, f64) {
        (self.truth[CYCLES], self.truth[FPU_BUSY])
    }

    /// Returns what happened per cycle since earlier counters; `None` if there was no cycle.
    pub fn per_cycle_since(&self, before: &Counters) -> Option<EventsPerCycle> {
        let change = |counter: usize| self.truth[counter] - before.truth[counter];
        let per_cycle = |counter: usize| change(counter) / change(CYCLES);
        (change(CYCLES) > 0.0).then(|| EventsPerCycle {
            l2_misses: per_cycle(L2_MISSES),
            fpu: per_cycle(FPU_BUSY),
            branches: per_cycle(BRANCHES),
        })
    }

    /// Reads the counters.
    pub fn read(&mut self, pmu: &Pmu, cpu_ns: u64, random: &mut Random) -> PmuReading {
        let error = pmu.noise / pmu.counting.sqrt();
        for counter in 0..COUNTERS {
            let change = self.truth[counter] - self.read[counter];
            if change > 0.0 {
                // Without noise no random number is drawn, as that is most of the cost of a reading.
                let factor = if error > 0.0 { (1.0 + error * random.normal()).max(0.0) } else { 1.0 };
                self.shown[counter] += change * factor;
                self.read[counter] = self.truth[counter];
            }
        }
        let count = |counter: usize| self.shown[counter] as u64;
        PmuReading {
            events: "simulated".into(),
            cycles: count(CYCLES),
            instructions: Some(count(INSTRUCTIONS)),
            fpu_busy_cycles: Some(count(FPU_BUSY)),
            vector_busy_cycles: None,
            formula_confidence: 1.0,
            l2_misses: Some(count(L2_MISSES)),
            branches: Some(count(BRANCHES)),
            branch_misses: Some(count(BRANCH_MISSES)),
            enabled_ns: cpu_ns,
            running_ns: (cpu_ns as f64 * pmu.counting) as u64,
        }
    }
}

/// The work that a thread has done, and the reported value.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    truth: f64,
    read: f64,
    shown: f64,
}

impl Progress {
    /// Counts work.
    pub fn add(&mut self, work: f64) {
        self.truth += work;
    }

    /// Reads the progress: the change since the last reading has a relative error of this standard deviation.
    pub fn read(&mut self, noise: f64, random: &mut Random) -> u64 {
        let change = self.truth - self.read;
        self.read = self.truth;
        self.shown += change * (1.0 + noise * random.normal()).max(0.0);
        self.shown as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_never_go_back_and_stay_near_the_truth() {
        let mut counters = Counters::default();
        let mut random = Random::new(3, 0);
        let pmu = Pmu { noise: 0.05, counting: 0.5 };
        let mut last = 0;
        for _ in 0..1000 {
            counters.add_cycles(1000.3);
            let reading = counters.read(&pmu, 10, &mut random);
            assert!(reading.cycles >= last);
            assert_eq!((reading.enabled_ns, reading.running_ns), (10, 5));
            last = reading.cycles;
        }
        assert!((last as f64 / 1000.3e3 - 1.0).abs() < 0.01, "{last}");
        assert_ne!(last, 1_000_300, "there is noise");
    }

    #[test]
    fn without_noise_whole_counts_of_the_truth_are_shown() {
        let mut counters = Counters::default();
        let pace =
            Pace { work_per_ns: 1.0, fpu_busy_per_work: 0.25, l2_misses_per_work: 0.01, ..Pace::default() };
        counters.add_cycles(1000.9);
        counters.add_work(1000.0, &Demand { ipc: 2.0, ..Demand::default() }, &pace);
        let reading = counters.read(&Pmu { noise: 0.0, counting: 1.0 }, 10, &mut Random::new(1, 0));
        assert_eq!((reading.cycles, reading.instructions), (1000, Some(2000)));
        assert_eq!((reading.fpu_busy_cycles, reading.l2_misses), (Some(250), Some(10)));
        assert_eq!((reading.branches, reading.branch_misses), (Some(300), Some(9)));
    }
}
