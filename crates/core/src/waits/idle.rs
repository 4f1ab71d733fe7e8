//! Whether the short waits of a process leave PEs idle.
//!
//! Problem: PEs are idle where short waits do not help, but also where a program works with one thread only,
//! or waits for something to read; in such a phase its waits do not matter, and in the next one short waits
//! may be right. *Measured*: two LightGBM programs that waited for each other's start then spun for half a
//! second. Approach: idle PEs are held against short waits only if its threads blocked often meanwhile, and
//! ran at all. Programs that contend and wait every few microseconds leave up to 20 % idle, too, between a
//! wake-up and its answer (*measured*, scikit-learn's boosting): so few must be idle twice in a row, by when
//! such programs have found each other to take turns. Limits: a program that has both phases within a tenth
//! of a second looks like one whose short waits do not help.

use super::Timeslices;
use crate::observe::ProcessDelay;
use std::time::Duration;

/// Idle share of its PEs, in percent of what others leave to it, from which on short waits do not help a
/// process. Alone, or beside something that takes one PE for up to half of the time, OpenMP programs with
/// short waits left 18 to 63 percent idle and took longer than with their own; one that left 9 to 11 lost 7 %
/// or gained 15 %. Beside a busy process or a second copy it was 0 to 2. *Measured*, `studies/waits/idle`.
pub const IDLE_FROM: u8 = 15;

/// From which on this needs no second look.
pub(super) const CLEARLY_IDLE_FROM: u8 = 40;

/// Part of the time for which its threads must have run, all together.
const RUNS_FROM: f64 = 0.25;

/// The time since a process was last told how idle its PEs were.
#[derive(Debug, Default)]
pub(super) struct SinceIdle {
    timeslices: Timeslices,
    elapsed: Duration,
    /// Whether PEs were idle the time before.
    was_idle: bool,
}

impl SinceIdle {
    /// Takes in a look at a process with short waits. Whether they leave PEs idle.
    pub fn leaves_pes_idle(&mut self, delay: &ProcessDelay) -> bool {
        self.timeslices.take(delay);
        self.elapsed += Duration::from_nanos(delay.elapsed_ns);
        let Some(idle) = delay.idle_percent else { return false };
        let SinceIdle { timeslices, elapsed, was_idle } = std::mem::take(self);
        let runs = timeslices.run() >= elapsed.mul_f64(RUNS_FROM);
        self.was_idle = idle >= IDLE_FROM && runs && timeslices.may_tell_of_blocks();
        self.was_idle && (was_idle || idle >= CLEARLY_IDLE_FROM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ThreadId;

    /// Tenths of a second in ten looks each, in which threads ran for so long, in so many timeslices.
    fn judged<const N: usize>(tenths: [(u64, Option<u64>, u8); N]) -> bool {
        let mut since_idle = SinceIdle::default();
        let judged = tenths.map(|(run_ms, timeslices, idle_percent)| {
            let look = ProcessDelay {
                run_ns: run_ms * 100_000,
                timeslices: timeslices.map(|count| count / 10),
                ..ProcessDelay::example(ThreadId { tid: 1, generation: 0 })
            };
            assert!((1..10).all(|_| !since_idle.leaves_pes_idle(&look)), "it is not told yet");
            since_idle.leaves_pes_idle(&ProcessDelay { idle_percent: Some(idle_percent), ..look })
        });
        judged.ends_with(&[true])
    }

    #[test]
    fn idle_pes_count_where_threads_block_often() {
        let often = Some(5_000);
        assert!(judged([(100, often, CLEARLY_IDLE_FROM)]), "20 µs at a time");
        assert!(judged([(100, None, CLEARLY_IDLE_FROM)]), "the kernel does not tell");
        assert!(!judged([(100, Some(100), 50)]), "one thread works: 1 ms at a time");
        assert!(!judged([(3, Some(500), 98)]), "it waits for something to read");
        assert!(!judged([(0, Some(0), 99)]));
    }

    #[test]
    fn few_idle_pes_count_when_they_were_idle_before() {
        let few = (100, Some(5_000), IDLE_FROM);
        let others = (100, Some(5_000), IDLE_FROM - 1);
        assert!(!judged([few]) && judged([few, few]));
        assert!(!judged([few, others, few]) && !judged([few, others]));
        assert!(!judged([few, (100, Some(100), 50), few]), "with one thread between");
    }
}
