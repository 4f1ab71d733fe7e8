//! Which programs ran beside which, for the report.

use crate::observe::BesideReading;
use crate::topology::DomainKind;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Pairs of programs that are listed: those that were together longest.
const PAIRS_MAX: usize = 50;

/// Two programs, or two threads of one, that ran at the same time on PEs that share something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BesideReport {
    /// Both programs, in the order of their names.
    pub programs: (Arc<str>, Arc<str>),
    /// What their PEs share.
    pub shared: DomainKind,
    /// The time in common, summed over all pairs of PEs.
    pub pe_seconds: f64,
}

/// Adds it up.
#[derive(Debug, Default)]
pub(super) struct Beside {
    read_ns: HashMap<((u32, u32), DomainKind), u64>,
    sums_ns: BTreeMap<(Arc<str>, Arc<str>, DomainKind), u64>,
}

impl Beside {
    /// Takes in readings; `program` names a process.
    pub fn take(&mut self, readings: &[BesideReading], program: impl Fn(u32) -> Arc<str>) {
        let mut read_ns = HashMap::with_capacity(readings.len());
        for reading in readings {
            let key = (reading.processes, reading.shared);
            let before = self.read_ns.get(&key).copied().unwrap_or(0);
            read_ns.insert(key, reading.ns);
            let (a, b) = (program(reading.processes.0), program(reading.processes.1));
            let (a, b) = if a <= b { (a, b) } else { (b, a) };
            // A pair that counts from 0 again is another one: its numbers were used again.
            let more = reading.ns.checked_sub(before).unwrap_or(reading.ns);
            *self.sums_ns.entry((a, b, reading.shared)).or_default() += more;
        }
        self.read_ns = read_ns;
    }

    /// Returns the pairs, those that were together longest first.
    pub fn report(&self) -> Vec<BesideReport> {
        let pair = |((a, b, shared), ns): (&(Arc<str>, Arc<str>, DomainKind), &u64)| BesideReport {
            programs: (a.clone(), b.clone()),
            shared: *shared,
            pe_seconds: *ns as f64 / 1e9,
        };
        let mut pairs: Vec<BesideReport> = self.sums_ns.iter().map(pair).collect();
        pairs.sort_by(|a, b| b.pe_seconds.total_cmp(&a.pe_seconds));
        pairs.truncate(PAIRS_MAX);
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_one_program_are_added_up() {
        let reading = |a, b, ns| BesideReading { processes: (a, b), shared: DomainKind::L3, ns };
        let program = |pid: u32| Arc::from(if pid < 10 { "hmmer" } else { "astar" });
        let mut beside = Beside::default();
        beside.take(&[reading(1, 10, 2_000_000_000), reading(1, 2, 1_000_000_000)], program);
        beside.take(&[reading(1, 10, 3_000_000_000), reading(2, 11, 500_000_000)], program);
        let report = beside.report();
        let found: Vec<_> =
            report.iter().map(|pair| (&*pair.programs.0, &*pair.programs.1, pair.pe_seconds)).collect();
        assert_eq!(found, [("astar", "hmmer", 3.5), ("hmmer", "hmmer", 1.0)]);
    }
}
