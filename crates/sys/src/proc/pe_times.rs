//! The times of each PE, from `/proc/stat`. They are coarse (10 ms) but show the load of others and the time
//! taken by a hypervisor.

use corewise_core::ids::PeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Times of one PE since the system's start, in ticks of [`TICK`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeTimes {
    /// Total time.
    pub total: u64,
    /// Idle time.
    pub idle: u64,
    /// Time in which the PE had work but a hypervisor ran something else.
    pub steal: u64,
}

/// `USER_HZ` is 100 on every architecture that the kernels' code supports.
pub const TICK: Duration = Duration::from_millis(10);

impl PeTimes {
    /// Returns what passed since an earlier reading. A PE that was offline in between counts from 0 again.
    pub fn since(&self, before: &PeTimes) -> PeTimes {
        PeTimes {
            total: self.total.saturating_sub(before.total),
            idle: self.idle.saturating_sub(before.idle),
            steal: self.steal.saturating_sub(before.steal),
        }
    }

    /// Returns the busy share of the time; `None` if no time passed.
    pub fn busy_share(&self) -> Option<f64> {
        let busy = self.total.saturating_sub(self.idle).saturating_sub(self.steal);
        (self.total > 0).then(|| busy as f64 / self.total as f64)
    }

    /// Returns the share of the time that a hypervisor took; `None` if no time passed.
    pub fn steal_share(&self) -> Option<f64> {
        (self.total > 0).then(|| self.steal as f64 / self.total as f64)
    }
}

/// Parses the lines `cpuN user nice system idle iowait irq softirq steal guest guest_nice` of `/proc/stat`.
/// The guests' time is part of the user's.
pub fn parse(stat: &str) -> BTreeMap<PeId, PeTimes> {
    let mut times = BTreeMap::new();
    for line in stat.lines() {
        let mut fields = line.split_ascii_whitespace();
        let pe = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        let Some(pe) = pe else { continue };
        let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let of = |index: usize| ticks.get(index).copied().unwrap_or(0);
        let entry = PeTimes { total: ticks.iter().sum(), idle: of(3) + of(4), steal: of(7) };
        times.insert(PeId(pe), entry);
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_between_two_readings() {
        let before =
            parse("cpu  9 9 9 9\ncpu0 10 0 10 100 0 0 0 5 3 0\ncpu8 0 0 0 50 50 0 0 0 0 0\nintr 1 2\n");
        let after =
            parse("cpu  9 9 9 9\ncpu0 30 5 15 110 0 3 2 10 3 0\ncpu8 0 0 0 60 60 0 0 0 0 0\nintr 2 2\n");
        assert_eq!(after.keys().copied().collect::<Vec<_>>(), [PeId(0), PeId(8)]);
        let passed = after[&PeId(0)].since(&before[&PeId(0)]);
        assert_eq!(passed, PeTimes { total: 50, idle: 10, steal: 5 });
        assert_eq!((passed.busy_share(), passed.steal_share()), (Some(0.7), Some(0.1)));
        assert_eq!(after[&PeId(8)].since(&before[&PeId(8)]).busy_share(), Some(0.0));
        assert_eq!(PeTimes::default().busy_share(), None);
    }

    #[test]
    fn a_kernel_without_steal_time_has_none() {
        assert_eq!(parse("cpu0 1 2 3 4\n")[&PeId(0)], PeTimes { total: 10, idle: 4, steal: 0 });
    }
}
