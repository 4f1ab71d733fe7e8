//! Assumptions where a recording has no data.

use super::history::Known;
use corewise_core::machine_model::contention::Demand;

/// The assumed demand of threads where it is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// Between low and high.
    Middle,
    /// Minimal demands.
    Low,
    /// High demands in everything.
    High,
    /// High demands for every second thread, minimal ones for the others.
    Mixed,
}

/// What threads waited for while others of their application worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitingFor {
    /// For those others, judged over ten intervals of the recording.
    Others,
    /// For those others, judged in each interval.
    OthersClosely,
    /// For something else: the durations of these waits stay the same.
    SomethingElse,
}

/// The number of intervals of a window for [`WaitingFor::Others`].
const WINDOW: usize = 10;

/// One way to fill the gaps of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Assumption {
    /// Demands that were not measured.
    pub unknown: Unknown,
    /// The reason for waits.
    pub waiting_for: WaitingFor,
}

impl Assumption {
    /// The assumptions that are tried; the first gives the figure, all of them its range.
    pub const TRIED: [Assumption; 6] = [
        Assumption { unknown: Unknown::Middle, waiting_for: WaitingFor::Others },
        Assumption { unknown: Unknown::Low, waiting_for: WaitingFor::Others },
        Assumption { unknown: Unknown::High, waiting_for: WaitingFor::Others },
        Assumption { unknown: Unknown::Mixed, waiting_for: WaitingFor::Others },
        Assumption { unknown: Unknown::Middle, waiting_for: WaitingFor::OthersClosely },
        Assumption { unknown: Unknown::Middle, waiting_for: WaitingFor::SomethingElse },
    ];

    /// Returns how many intervals of the recording are judged together.
    pub fn window(&self) -> usize {
        match self.waiting_for {
            WaitingFor::Others => WINDOW,
            WaitingFor::OthersClosely | WaitingFor::SomethingElse => 1,
        }
    }

    /// Returns the assumption in words.
    pub fn words(&self) -> String {
        let demands = match self.unknown {
            Unknown::Middle => "middling",
            Unknown::Low => "low",
            Unknown::High => "high",
            Unknown::Mixed => "in turn high and low",
        };
        let waits = match self.waiting_for {
            WaitingFor::Others => "threads wait for each other",
            WaitingFor::OthersClosely => "threads wait for each other in every interval",
            WaitingFor::SomethingElse => "waits stay as long",
        };
        format!("unknown demands {demands}, {waits}")
    }

    /// Returns the demand of a thread alone. `scale` is the work per cycle: beside neighbours, less work is
    /// done per cycle than alone.
    pub fn demand(&self, thread: usize, known: &Known, scale: f64) -> Demand {
        let unknown = match self.unknown {
            Unknown::Mixed if thread.is_multiple_of(2) => &HIGH,
            Unknown::Mixed | Unknown::Low => &LOW,
            Unknown::High => &HIGH,
            Unknown::Middle => &MIDDLE,
        };
        let per_work = |value: Option<f64>| value.map(|value| value / scale.max(0.1));
        Demand {
            fpu: per_work(known.fpu).unwrap_or(unknown.fpu).min(1.0),
            ipc: per_work(known.ipc).unwrap_or(unknown.ipc),
            l2_misses_per_100_cycles: per_work(known.l2_misses).unwrap_or(unknown.l2_misses_per_100_cycles),
            branches: known.branches.unwrap_or(unknown.branches),
            branch_misses: known.branch_misses.unwrap_or(unknown.branch_misses),
            ..*unknown
        }
    }
}

/// Minimal demands.
const LOW: Demand = Demand { ipc: 0.5, l3_miss_share: 0.0, ..Demand::DEFAULT };

/// About the median of the programs in BulldOver, Table I.
const MIDDLE: Demand = Demand {
    fpu: 0.3,
    ipc: 1.0,
    l2_misses_per_100_cycles: 0.15,
    l3_miss_share: 0.3,
    working_set_mib: 1.0,
    ..LOW
};

/// About the most demanding of them.
const HIGH: Demand = Demand {
    fpu: 0.8,
    ipc: 2.0,
    l2_misses_per_100_cycles: 1.5,
    l3_miss_share: 0.7,
    working_set_mib: 16.0,
    ..LOW
};
