//! Other activity on the machine during a run, from `/proc/stat` and the load average.

use corewise_sys::proc::Proc;
use corewise_sys::proc::pe_times::{PeTimes, TICK};
use std::path::Path;
use std::time::Duration;

/// The machine at one moment.
#[derive(Debug)]
pub struct Surroundings {
    /// The one-minute load average.
    pub load: Option<f64>,
    /// The times of all PEs together.
    times: PeTimes,
}

/// The activity between two moments; `None` if unknown.
#[derive(Debug, PartialEq)]
pub struct Passed {
    /// Time that other processes took, in PEs.
    pub others_pes: Option<f64>,
    /// The share of all time that a hypervisor took, 0..1.
    pub steal_share: Option<f64>,
}

impl Surroundings {
    /// Reads it below a root directory.
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

    /// Returns the activity since an earlier reading, `elapsed` ago; `own` is the CPU time of the run in
    /// between.
    pub fn since(&self, before: &Surroundings, own: Duration, elapsed: Duration) -> Passed {
        let passed = self.times.since(&before.times);
        // Less than two ticks of every PE are too coarse.
        let is_measurable = elapsed > 2 * TICK && passed.total > 0;
        let busy = passed.total.saturating_sub(passed.idle + passed.steal) as f64 * TICK.as_secs_f64();
        let others = (busy - own.as_secs_f64()).max(0.0) / elapsed.as_secs_f64();
        Passed {
            others_pes: is_measurable.then_some(others),
            steal_share: passed.steal_share().filter(|_| is_measurable),
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
        // Two seconds of PE time: one was busy, half a second was stolen.
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
