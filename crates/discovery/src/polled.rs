//! A followed thread as `/proc` shows it at a [poll](super::poll).

use super::error::DiscoveryError;
use super::facts::ThreadFacts;
use corewise_core::ids::PeId;
use corewise_sys::proc::{Proc, Schedstat, SchedstatFile, Stat};

/// A followed thread at the last poll.
#[derive(Debug)]
pub(super) struct Thread {
    pub facts: ThreadFacts,
    pub file: Option<SchedstatFile>,
    pub times: Option<Schedstat>,
    /// Its times before it was followed.
    pub before: Before,
    /// Its runnable time that is not yet part of the estimate.
    pub unestimated_ns: u64,
    /// Whether it has ended and waits for its parent, or is the leader of living threads.
    pub is_zombie: bool,
    /// Its first stack, which tells the program that its process runs from the next one.
    pub stack: Option<u64>,
}

/// The times of a thread at some instant.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Before {
    pub run_ns: u64,
    pub runnable_ns: u64,
    pub cpu_ticks: u64,
}

/// The result of reading a thread.
pub(super) struct Reading {
    pub times: Option<Schedstat>,
    /// `None` if its times have not changed.
    pub stat: Option<Stat>,
}

impl Thread {
    /// Returns the thread's present values; `None` if it has ended, even if another thread has its ID.
    pub fn read(&self, proc: &Proc) -> Result<Option<Reading>, DiscoveryError> {
        let times = match &self.file {
            Some(file) => match file.read()? {
                Some(times) => Some(times),
                None => return Ok(None),
            },
            None => None,
        };
        // Zeros mean that it has not run yet, or that the kernel does not account for waiting.
        let times = times.filter(|times| times.run_ns + times.wait_ns > 0);
        if times.is_some() && times == self.times {
            return Ok(Some(Reading { times, stat: None }));
        }
        let stat = proc.stat(self.facts.pid, self.facts.tid)?;
        let still_it = stat.filter(|stat| stat.start_ticks == self.facts.generation);
        Ok(still_it.map(|stat| Reading { times, stat: Some(stat) }))
    }

    /// Returns whether it has executed another program since the last reading.
    pub fn has_executed(&mut self, reading: &Reading) -> bool {
        let stack = reading.stat.as_ref().and_then(|stat| stat.stack);
        stack.is_some_and(|now| self.stack.replace(now).is_some_and(|before| before != now))
    }

    /// Applies a reading; returns the runnable time since the last one.
    pub fn take_in(&mut self, reading: Reading, elapsed_ns: u64, ns_per_tick: u64) -> u64 {
        if let Some(stat) = reading.stat {
            self.is_zombie = stat.is_zombie();
            self.facts.runnable = stat.state == 'R';
            self.facts.last_pe = Some(PeId(stat.last_pe));
            if *self.facts.name != stat.name {
                self.facts.name = stat.name.as_str().into();
            }
            if reading.times.is_none() {
                let ticks = stat.cpu_ticks.saturating_sub(self.before.cpu_ticks);
                self.facts.cpu_ns = self.facts.cpu_ns.max(ticks * ns_per_tick);
            }
        }
        let added_ns = match reading.times {
            Some(times) => {
                let total_ns = |times: Schedstat| times.run_ns + times.wait_ns;
                self.facts.cpu_ns = times.run_ns.saturating_sub(self.before.run_ns);
                self.facts.runnable_ns = Some(total_ns(times).saturating_sub(self.before.runnable_ns));
                let before_ns = self.times.replace(times).map_or(0, total_ns);
                total_ns(times).saturating_sub(before_ns)
            }
            None if self.facts.runnable => elapsed_ns,
            None => 0,
        };
        self.unestimated_ns += added_ns;
        added_ns
    }

    /// Reports the end once; returns the number of descriptors that this frees.
    pub fn end(&mut self, ended: &mut Vec<ThreadFacts>) -> usize {
        if !self.facts.ended {
            self.facts.ended = true;
            self.facts.runnable = false;
            ended.push(self.facts.clone());
        }
        usize::from(matches!(self.file.take(), Some(SchedstatFile::Open(_))))
    }
}
