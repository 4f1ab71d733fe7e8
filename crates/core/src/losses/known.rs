//! What is known of a thread's demand.
//!
//! Problem: the predictor needs the whole demand of a thread, and each source shows a part of it: hardware
//! counters no working set, clock samples no misses. Approach: each figure is an estimate or absent, and
//! stays so: a prediction that depends on an absent figure is not trusted. What was learned of the program
//! earlier fills in what is not seen now.
//!
//! Limits: counters show a thread beside its neighbours, for which it may wait; what it would do alone is
//! a little more per cycle. Which misses the L3 serves no common counter tells; where nobody knows, the
//! predictor takes all of them to memory.

use crate::classify::CONFIDENCE_MIN;
use crate::machine_model::demand::Demand;
use crate::profile::Resource;
use crate::view::{Estimate, Usage};
use serde::{Deserialize, Serialize};

/// The known figures of a [`Demand`], in its units.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownDemand {
    /// Share of cycles in which the FPU is busy, 0..1.
    pub fpu: Option<Estimate>,
    /// Instructions per cycle.
    pub ipc: Option<Estimate>,
    /// L2 misses per 100 cycles.
    pub l2_misses_per_100_cycles: Option<Estimate>,
    /// The share of the L2 misses that the L3 does not serve, 0..1.
    pub l3_miss_share: Option<Estimate>,
    /// The working set, in MiB.
    pub working_set_mib: Option<Estimate>,
    /// Branches per instruction, 0..1.
    pub branches: Option<Estimate>,
}

impl KnownDemand {
    /// Returns what counters or samples of one interval show.
    pub fn of(usage: &Usage) -> KnownDemand {
        KnownDemand {
            fpu: usage.fpu,
            ipc: usage.ipc,
            l2_misses_per_100_cycles: usage.l2_misses_per_100_cycles,
            branches: usage.branches,
            ..KnownDemand::default()
        }
    }

    /// Returns this, and what was known earlier of figures that are not known well enough for a decision.
    pub fn or(&self, earlier: &KnownDemand) -> KnownDemand {
        let pick = |now: Option<Estimate>, before: Option<Estimate>| {
            now.filter(|now| now.confidence >= CONFIDENCE_MIN).or(before).or(now)
        };
        KnownDemand {
            fpu: pick(self.fpu, earlier.fpu),
            ipc: pick(self.ipc, earlier.ipc),
            l2_misses_per_100_cycles: pick(self.l2_misses_per_100_cycles, earlier.l2_misses_per_100_cycles),
            l3_miss_share: pick(self.l3_miss_share, earlier.l3_miss_share),
            working_set_mib: pick(self.working_set_mib, earlier.working_set_mib),
            branches: pick(self.branches, earlier.branches),
        }
    }

    /// Returns how well it is known what the thread takes of a resource, 0 (not at all) to 1.
    pub fn confidence(&self, resource: Resource) -> f64 {
        let figure = match resource {
            Resource::Fpu => self.fpu,
            Resource::Integer => self.ipc,
            Resource::L1 => None,
            Resource::L2 | Resource::L3 | Resource::MemoryBandwidth => self.l2_misses_per_100_cycles,
        };
        figure.map_or(0.0, |figure| figure.confidence)
    }

    /// Returns the demand to predict by: what is not known well enough for a decision asks nothing of a
    /// machine, so that no prediction is based on it.
    pub fn demand(&self) -> Demand {
        let known = |figure: Option<Estimate>| {
            figure.filter(|figure| figure.confidence >= CONFIDENCE_MIN).map(|figure| figure.value)
        };
        let misses = known(self.l2_misses_per_100_cycles).unwrap_or(0.0);
        Demand {
            fpu: known(self.fpu).unwrap_or(0.0).clamp(0.0, 1.0),
            ipc: known(self.ipc).unwrap_or(0.0).max(0.0),
            l2_misses_per_100_cycles: misses.max(0.0),
            l2_accesses_per_100_cycles: misses.max(Demand::DEFAULT.l2_accesses_per_100_cycles),
            l3_miss_share: known(self.l3_miss_share).unwrap_or(Demand::DEFAULT.l3_miss_share).clamp(0.0, 1.0),
            working_set_mib: known(self.working_set_mib).unwrap_or(0.0).max(0.0),
            branches: known(self.branches).unwrap_or(Demand::DEFAULT.branches).clamp(0.0, 1.0),
            ..Demand::DEFAULT
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Source;

    fn estimate(value: f64, confidence: f64) -> Option<Estimate> {
        Some(Estimate { value, confidence, source: Source::Counters })
    }

    #[test]
    fn what_is_not_known_asks_nothing_and_is_not_trusted() {
        let known = KnownDemand { fpu: estimate(0.9, 0.2), ..KnownDemand::default() };
        let demand = known.demand();
        assert_eq!((demand.fpu, demand.ipc, demand.uses_memory()), (0.0, 0.0, false));
        assert_eq!(known.confidence(Resource::Fpu), 0.2);
        assert_eq!(known.confidence(Resource::MemoryBandwidth), 0.0);
    }

    #[test]
    fn earlier_runs_fill_in_what_is_not_seen_well_enough() {
        let now = KnownDemand { fpu: estimate(0.9, 0.2), ipc: estimate(1.5, 1.0), ..KnownDemand::default() };
        let earlier = KnownDemand {
            fpu: estimate(0.5, 0.8),
            ipc: estimate(2.5, 0.8),
            working_set_mib: estimate(4.0, 0.6),
            ..KnownDemand::default()
        };
        let demand = now.or(&earlier).demand();
        assert_eq!((demand.fpu, demand.ipc, demand.working_set_mib), (0.5, 1.5, 4.0));
        assert_eq!(now.or(&KnownDemand::default()), now);
    }
}
