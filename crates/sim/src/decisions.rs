//! What it costs to observe, to decide and to act.
//!
//! Problem: a policy that decides for nothing and at once looks better than any can be. Approach: before a
//! decision takes effect, a fixed latency passes and the CPU time of observing all threads or handling
//! events; what was decided may be outdated then. That time is some PE's: an idle one's if there is one, else
//! it delays the thread of a PE that chance chooses, as corewise's own thread would. The defaults are those
//! of the live `corewise run`, measured (studies/overhead: a round takes 0.24 ms with 10 threads, 2.4 ms
//! with 1,000 and 20 ms with 10,000; 0.11 ms pass from a change of TLP to the action, which take 9 µs of
//! CPU). A policy in the kernel, as in the papers on asymmetric machines and on co-scheduling, costs nothing
//! of this. Limits: a step costs the same whatever the policy and the number of actions; corewise's thread is
//! in no run queue.

use crate::program::duration;
use serde::Deserialize;
use std::time::Duration;

/// The costs of decisions.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Decisions {
    /// From the time of an observation or event to the action, in addition to the CPU time.
    #[serde(deserialize_with = "duration")]
    pub latency: Duration,
    /// CPU time of an observation in microseconds.
    pub cpu_us: f64,
    /// The same for each thread that is observed.
    pub cpu_per_thread_us: f64,
    /// CPU time of an event.
    pub cpu_per_event_us: f64,
    /// From when on threads are observed by clock samples. `corewise run` sets them up later than at the
    /// start of its command (docs/run.md).
    #[serde(deserialize_with = "duration")]
    pub samples_after: Duration,
}

impl Default for Decisions {
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(100),
            cpu_us: 100.0,
            cpu_per_thread_us: 2.0,
            cpu_per_event_us: 9.0,
            samples_after: Duration::ZERO,
        }
    }
}

impl Decisions {
    /// Decisions that cost nothing.
    pub const FREE: Decisions = Decisions {
        latency: Duration::ZERO,
        cpu_us: 0.0,
        cpu_per_thread_us: 0.0,
        cpu_per_event_us: 0.0,
        samples_after: Duration::ZERO,
    };

    /// Returns the parameter that is out of its range, if one is.
    pub fn fault(&self) -> Option<&'static str> {
        let is_good = |us: f64| (0.0..=1e9).contains(&us);
        let rules = [
            (self.latency <= Duration::from_secs(3600), "decisions.latency must be 1h or less"),
            (is_good(self.cpu_us), "decisions.cpu_us must be 0 to 1e9"),
            (is_good(self.cpu_per_thread_us), "decisions.cpu_per_thread_us must be 0 to 1e9"),
            (is_good(self.cpu_per_event_us), "decisions.cpu_per_event_us must be 0 to 1e9"),
        ];
        rules.into_iter().find_map(|(holds, problem)| (!holds).then_some(problem))
    }

    /// Returns the CPU time of observing this many threads, in nanoseconds.
    pub(crate) fn observation_ns(&self, threads: usize) -> f64 {
        1e3 * (self.cpu_us + self.cpu_per_thread_us * threads as f64)
    }

    /// Returns the CPU time of this many events, in nanoseconds.
    pub(crate) fn events_ns(&self, events: usize) -> f64 {
        1e3 * self.cpu_per_event_us * events as f64
    }
}
