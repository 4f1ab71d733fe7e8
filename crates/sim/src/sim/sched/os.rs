//! The scheduler's parameters.

use super::super::state::memory::NumaBalancing;
use super::queue::Discipline;
use super::{cfs, eevdf};
use crate::program::duration;
use serde::Deserialize;
use std::time::Duration;

/// The scheduler's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Os {
    /// How it treats speeds.
    pub scheduler: Kind,
    /// How queues are served.
    pub queue: QueueKind,
    /// The shortest time that a thread runs while others wait: EEVDF's base slice, CFS's granularity. The
    /// default is Linux's on 8 PEs and more.
    #[serde(deserialize_with = "duration")]
    pub slice: Duration,
    /// Time between two ticks of a PE.
    #[serde(deserialize_with = "duration")]
    pub tick: Duration,
    /// The ticks of all PEs come within this time; a whole tick if left out.
    #[serde(deserialize_with = "duration")]
    pub tick_spread: Duration,
    /// Time between two attempts to balance a domain.
    #[serde(deserialize_with = "duration")]
    pub balance: Duration,
    /// Whether each copy of an application that is in no group is a group of its own.
    pub autogroup: bool,
    /// Whether pages follow their threads to other memory nodes.
    pub numa_balancing: Option<NumaBalancing>,
}

/// How the scheduler treats speeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// All PEs are treated as equally fast.
    #[default]
    Fair,
    /// Fast PEs are preferred.
    Capacity,
}

/// How queues are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueKind {
    /// As in Linux from 6.6 on.
    #[default]
    Eevdf,
    /// As in Linux from 2.6.23 to 6.5.
    Cfs,
}

impl Default for Os {
    fn default() -> Self {
        let ms = Duration::from_millis;
        // A PE tries every `busy_factor` = 16 ms times the PEs of the domain.
        Self {
            scheduler: Kind::Fair,
            queue: QueueKind::Eevdf,
            slice: ms(3),
            tick: ms(4),
            tick_spread: Duration::MAX,
            balance: ms(16),
            autogroup: false,
            numa_balancing: None,
        }
    }
}

impl Os {
    /// Returns the rules of its queues.
    pub(crate) fn discipline(&self) -> Box<dyn Discipline> {
        let (slice_ns, tick_ns) = (self.slice.as_nanos() as i64, self.tick.as_nanos() as i64);
        match self.queue {
            QueueKind::Eevdf => Box::new(eevdf::Eevdf { slice_ns, tick_ns }),
            QueueKind::Cfs => Box::new(cfs::Cfs { granularity_ns: slice_ns }),
        }
    }

    /// Returns the longest time for which a thread has a PE while others wait.
    pub fn slice_max(&self) -> Duration {
        Duration::from_nanos(self.discipline().slice_max_ns() as u64) + self.tick
    }

    /// Returns the shortest time for which a thread has a PE while others wait: whole ticks.
    pub fn slice_min(&self) -> Duration {
        let ticks = self.slice.as_nanos().div_ceil(self.tick.as_nanos()).max(1);
        self.tick.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
    }

    /// Returns the parameter that is out of its range, if one is, with the range.
    pub fn fault(&self) -> Option<&'static str> {
        let least = Duration::from_micros(1);
        [
            (self.slice, "os.slice must be 1us or more"),
            (self.tick, "os.tick must be 1us or more"),
            (self.balance, "os.balance must be 1us or more"),
        ]
        .into_iter()
        .find_map(|(time, problem)| (time < least).then_some(problem))
    }
}
