//! How much of the time of the PEs that a process may use nobody wanted.
//!
//! It tells whether short waits are of use: the PEs that waiting threads leave are used by others then. The
//! kernel counts idle time in ticks of 10 ms, so it is read over [`OVER`] at least.

use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_sys::affinity;
use corewise_sys::proc::Proc;
use corewise_sys::proc::pe_times::{PeTimes, TICK};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time over which a share is taken.
const OVER: Duration = Duration::from_millis(100);

/// The masks of so many threads are looked at.
const THREADS_MAX: usize = 64;

/// The idle time of the PEs that some threads may use, since the last share was taken.
#[derive(Debug)]
pub struct IdleTime {
    pes: CpuSet,
    since: Instant,
    before: BTreeMap<PeId, PeTimes>,
}

impl IdleTime {
    /// From now on.
    pub fn begin(proc: &Proc, threads: impl Iterator<Item = u32>) -> IdleTime {
        // Who has ended may use none.
        let masks = threads.take(THREADS_MAX).filter_map(|tid| affinity::get(tid).ok());
        let pes = masks.fold(CpuSet::new(), |pes, mask| pes.union(&mask));
        IdleTime { pes, since: Instant::now(), before: proc.pe_times() }
    }

    /// The share of the PEs' time in which they were idle, in percent, if enough time has passed; then the
    /// next one begins.
    pub fn take(&mut self, proc: &Proc) -> Option<u8> {
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
        let all = over.as_secs_f64() * idle.len() as f64;
        let share = TICK.as_secs_f64() * idle.iter().sum::<u64>() as f64 / all;
        (self.since, self.before) = (Instant::now(), now);
        (all > 0.0).then(|| (100.0 * share.min(1.0)) as u8)
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
        let share = time.take(&proc).unwrap();
        assert!((1..=20).contains(&share), "{share} % of two PEs, at most");
        assert_eq!(time.before, proc.pe_times(), "the next one has begun");
    }
}
