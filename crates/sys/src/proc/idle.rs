//! How idle the PEs are that a process may use.
//!
//! Approach: the idle time of these PEs from `/proc/stat`, over [`OVER`] at least, because the kernel counts
//! it in ticks of 10 ms. Limits: PEs that `SCHED_IDLE` threads use do not count as idle.

use super::Proc;
use super::pe_times::{PeTimes, TICK};
use crate::affinity;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The least time over which idle time is taken.
const OVER: Duration = Duration::from_millis(100);

/// The most threads whose masks are read.
const THREADS_MAX: usize = 64;

/// The idle time of the PEs that some threads may use, since it was last taken.
#[derive(Debug)]
pub struct IdleTime {
    pes: CpuSet,
    since: Instant,
    before: BTreeMap<PeId, PeTimes>,
}

impl IdleTime {
    /// Begins now.
    pub fn begin(proc: &Proc, threads: impl Iterator<Item = u32>) -> IdleTime {
        // A thread that has ended has no mask.
        let masks = threads.take(THREADS_MAX).filter_map(|tid| affinity::get(tid).ok());
        let pes = masks.fold(CpuSet::new(), |pes, mask| pes.union(&mask));
        IdleTime { pes, since: Instant::now(), before: proc.pe_times() }
    }

    /// Returns how many of the PEs were idle, on average, and begins again; `None` if not enough time has
    /// passed.
    pub fn take(&mut self, proc: &Proc) -> Option<f64> {
        let over = self.since.elapsed();
        if over < OVER {
            return None;
        }
        let now = proc.pe_times();
        let idle = |(pe, now): (&PeId, &PeTimes)| {
            let before = self.before.get(pe).filter(|_| self.pes.contains(*pe))?;
            Some(now.since(before).idle)
        };
        let idle: Vec<u64> = now.iter().filter_map(idle).collect();
        let pes = TICK.as_secs_f64() * idle.iter().sum::<u64>() as f64 / over.as_secs_f64();
        (self.since, self.before) = (Instant::now(), now);
        Some(pes.min(idle.len() as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::machine::root;

    fn stat(idle: [u64; 3]) -> String {
        let lines = idle.iter().enumerate().map(|(pe, idle)| format!("cpu{pe} 900 0 0 {idle} 0 0 0 0 0 0\n"));
        lines.collect()
    }

    #[test]
    fn only_the_pes_that_the_threads_may_use_count() {
        let directory = root(&[("proc/stat", &stat([0, 0, 0]))]);
        let proc = Proc::of_machine(directory.path());
        let own = std::process::id();
        let mut time = IdleTime::begin(&proc, [own, 0x3fff_ffff].into_iter());
        assert_eq!(time.pes, affinity::get(own).unwrap());
        time.pes = CpuSet::first_n(2);
        time.since += Duration::from_secs(60);
        assert_eq!(time.take(&proc), None, "not long enough");
        time.since -= Duration::from_secs(61);
        std::fs::write(directory.path().join("proc/stat"), stat([40, 0, 100])).unwrap();
        let idle = time.take(&proc).unwrap();
        assert!(idle > 0.0 && idle <= 0.4, "0.4 s of a second, at most: {idle}");
        assert_eq!(time.before, proc.pe_times(), "the next one has begun");
    }
}
