//! When to read the times of processes, and which readings to report between two observations.
//!
//! Problem: threads that wait for PEs must be seen within milliseconds, but reading takes time of a PE, and
//! interrupts a thread of the program where all PEs are busy. Approach: a [`Cadence`] whose events are that
//! the waits of one more process begin to matter. Where they have mattered for a second and nothing could be
//! done about it, the next look may be as late as where nothing matters. The same rules hold on a real
//! machine and in simulations. Limits: a lone program that has run for a second is looked at every 50 ms.

use super::losses::{self, UNTRIED};
use crate::cadence::Cadence;
use crate::observe::{IdleWaits, ProcessTimes};
use crate::time::Time;
use std::time::Duration;

/// The least and the most time between two looks. *Derived*: a change of waits costs some 6 ms, and two looks
/// decide about it; the most is the time in which idle time is counted ([`IDLE_EVERY`]).
const EVERY: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];

/// The same if the threads of all processes yield while they spin: each interruption may move them to PEs
/// where they yield to each other in vain. *Measured*.
const EVERY_IF_ALL_YIELD: Duration = Duration::from_millis(250);

/// The time between two readings of idle time, which the kernel counts in ticks of 10 ms.
pub const IDLE_EVERY: Duration = Duration::from_millis(50);

/// A smaller share of waiting is that of wake-ups, and does not matter. *Chosen*: a fifth of the loss
/// that a change is worth ([`UNTRIED`]).
pub const MATTERS_FROM: f64 = 0.02;

/// When to look; see the module documentation.
#[derive(Debug, Clone, Copy)]
pub struct Looks {
    cadence: Cadence,
    /// The processes whose waits mattered at the last look.
    mattering: usize,
}

/// What a look shows of a process with several threads.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Its times since the last look.
    pub times: ProcessTimes,
    /// How its idle threads wait.
    pub waits: IdleWaits,
    /// Whether its waits are changed.
    pub is_changed: bool,
    /// Whether the last look was reported.
    pub was_reported: bool,
}

impl Looks {
    /// Begins now.
    pub fn new(now: Time) -> Looks {
        let [least, most] = EVERY;
        Looks { cadence: Cadence::new(least, most, now), mattering: 0 }
    }

    /// Notes that a process has got a second thread.
    pub fn note_team(&mut self, now: Time) {
        self.cadence.note_event(now);
    }

    /// Takes in what was seen of all processes with several threads. Returns the time until the next look.
    pub fn take(&mut self, now: Time, looks: &[Look]) -> Duration {
        if !looks.is_empty() && looks.iter().all(|look| look.waits.only_yields()) {
            return EVERY_IF_ALL_YIELD;
        }
        let mattering = looks.iter().filter(|look| look.matters()).count();
        if mattering > self.mattering {
            self.cadence.note_event(now);
        }
        self.mattering = mattering;
        self.cadence.within(now)
    }
}

impl Look {
    /// Returns whether its waits matter, and nothing was done about them.
    fn matters(&self) -> bool {
        let is_undecided = !self.is_changed && !self.waits.only_yields();
        is_undecided && losses::of_own_waits(&self.times) > UNTRIED
    }

    /// Returns whether to report the reading: while something is changed, or threads wait for PEs, and once
    /// more when they wait no longer.
    pub fn is_reported(&self) -> bool {
        self.is_changed || self.was_reported || self.waits_or_is_throttled()
    }

    /// Returns whether to report the next one, too.
    pub fn waits_or_is_throttled(&self) -> bool {
        let ProcessTimes { run_s, wait_s, throttled_s, .. } = self.times;
        wait_s + throttled_s > MATTERS_FROM * (run_s + wait_s + throttled_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::IdleWait;

    fn look(waits: IdleWait, is_changed: bool, wait_s: f64) -> Look {
        let times = ProcessTimes { elapsed_s: 1.0, threads: 2, run_s: 1.0, wait_s, ..Default::default() };
        Look { times, waits: waits.into(), is_changed, was_reported: false }
    }

    #[test]
    fn looks_are_frequent_while_the_waits_of_a_process_matter_and_nothing_is_changed() {
        let at = |ms: u64| Time(ms * 1_000_000);
        let ms = Duration::from_millis;
        let next = |looks: &[Look]| Looks::new(at(0)).take(at(2_000), looks);
        assert_eq!(next(&[look(IdleWait::Adaptable, false, 0.5)]), ms(5));
        assert_eq!(next(&[look(IdleWait::Adaptable, true, 0.5)]), ms(50));
        assert_eq!(next(&[look(IdleWait::Fixed, false, 0.0)]), ms(50));
        assert_eq!(next(&[look(IdleWait::Yield, false, 0.5)]), ms(250));
        let both = [look(IdleWait::Yield, false, 0.5), look(IdleWait::Fixed, false, 0.5)];
        assert_eq!(next(&both), ms(5));
    }

    #[test]
    fn what_matters_for_long_and_cannot_be_helped_is_looked_at_rarely_until_one_more_process_begins_to() {
        let at = |ms: u64| Time(ms * 1_000_000);
        let ms = Duration::from_millis;
        let mut looks = Looks::new(at(0));
        let waiting = look(IdleWait::Fixed, false, 0.5);
        let next = |looks: &mut Looks, at_ms, count| looks.take(at(at_ms), &vec![waiting; count]);
        assert_eq!(next(&mut looks, 2_000, 1), ms(5));
        assert_eq!(next(&mut looks, 2_400, 1), ms(20));
        assert_eq!(next(&mut looks, 3_000, 1), ms(50));
        assert_eq!(next(&mut looks, 3_050, 2), ms(5), "one more");
        assert_eq!(next(&mut looks, 4_050, 1), ms(50), "one less");
        assert_eq!(next(&mut looks, 4_100, 2), ms(5), "one more again");
    }

    #[test]
    fn the_end_of_waiting_is_reported_too() {
        let calm = look(IdleWait::Fixed, false, 0.0);
        assert!(!calm.is_reported() && look(IdleWait::Fixed, false, 0.1).is_reported());
        assert!(Look { was_reported: true, ..calm }.is_reported());
        assert!(Look { is_changed: true, ..calm }.is_reported());
    }
}
