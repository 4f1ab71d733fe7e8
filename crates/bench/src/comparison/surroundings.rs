//! What else the machine did during a run, from `/proc/stat` and the load average.

use corewise_sys::proc::Proc;
use corewise_sys::proc::pe_times::{PeTimes, TICK};
use std::path::Path;
use std::time::Duration;

/// The machine at one moment.
#[derive(Debug)]
pub struct Surroundings {
    /// The load average of one minute.
    pub load: Option<f64>,
    /// Times of all PEs together.
    times: PeTimes,
}

/// What passed between two moments; `None` is not known.
#[derive(Debug, PartialEq)]
pub struct Passed {
    /// PEs' worth of time that others took.
    pub others_pes: Option<f64>,
    /// The share of all time that a hypervisor took, 0..1.
    pub steal_share: Option<f64>,
}

impl Surroundings {
    /// Reads below a root directory.
    pub fn read(root: &Path) -> Surroundings {
        let proc = Proc::of_machine(root);
        let load = proc.load_of_a_minute();
        let mut times = PeTimes::default();
        for one in proc.pe_times().values() {
            times.total += one.total;
            times.idle += one.idle;
            times.steal += one.steal;
        }
        Surroundings { load, times }
    }

    /// What passed since an earlier reading, in which `own` CPU time was one's own, out of `elapsed`.
    pub fn since(&self, before: &Surroundings, own: Duration, elapsed: Duration) -> Passed {
        let passed = self.times.since(&before.times);
        // In less than two ticks of every PE nothing can be told.
        let is_told = elapsed > 2 * TICK && passed.total > 0;
        let busy = passed.total.saturating_sub(passed.idle + passed.steal) as f64 * TICK.as_secs_f64();
        let others = (busy - own.as_secs_f64()).max(0.0) / elapsed.as_secs_f64();
        Passed {
            others_pes: is_told.then_some(others),
            steal_share: passed.steal_share().filter(|_| is_told),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::machine::root;

    #[test]
    fn what_is_not_ones_own_is_that_of_others() {
        let machine = root(&[
            ("proc/loadavg", "0.25 0.1 0.1 1/99 1234\n"),
            ("proc/stat", "cpu 1 2 3\ncpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n"),
        ]);
        let before = Surroundings::read(machine.path());
        // Of two PEs' seconds one was busy, half a one stolen.
        let stat = "cpu0 100 0 0 0 0 0 0 0\ncpu1 0 0 0 50 0 0 0 50\n";
        std::fs::write(machine.path().join("proc/stat"), stat).unwrap();
        let passed = Surroundings::read(machine.path()).since(
            &before,
            Duration::from_millis(750),
            Duration::from_secs(1),
        );
        assert_eq!(passed, Passed { others_pes: Some(0.25), steal_share: Some(0.25) });
        assert_eq!(before.load, Some(0.25));
        let short = before.since(&before, Duration::ZERO, Duration::from_millis(5));
        assert_eq!(short, Passed { others_pes: None, steal_share: None });
    }
}
