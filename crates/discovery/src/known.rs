//! Thread values reported by the BPF programs, and what is remembered of each thread.

use super::facts::ThreadFacts;
use corewise_core::ids::{AppId, PeId};
use std::collections::HashSet;
use std::sync::Arc;

/// `struct news` of `discovery.bpf.c`, where its fields are explained.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RawThread {
    runnable_clock: i64,
    pub generation: u64,
    run_ns: u64,
    pub tid: u32,
    pub tgid: u32,
    pub creator: u32,
    last_pe: u32,
    pub stage: u32,
    /// Its entry in `apps`.
    pub app: u32,
    program: u32,
    reserved: u32,
    pub comm: [u8; 16],
}

/// `struct start` of `discovery.bpf.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct RawStart {
    pub generation: u64,
    pub tid: u32,
    pub tgid: u32,
    pub by_tid: u32,
    pub by_tgid: u32,
}

/// The last of `enum stage` of `discovery.bpf.c`.
pub(super) const ENDED: u32 = 2;

/// The remembered state of a living thread.
#[derive(Debug)]
pub(super) struct Known {
    comm: [u8; 16],
    program: u32,
    pub facts: ThreadFacts,
    /// The last listing that contained it.
    pub seen_in: u64,
    /// The entry in which it is counted, and for how long it had been runnable when it came there.
    pub entry: u32,
    before_ns: u64,
}

impl Known {
    /// Registers a thread found in this listing.
    pub fn new(thread: &RawThread, app: AppId, seen_in: u64) -> Self {
        let facts = ThreadFacts {
            tid: thread.tid,
            pid: thread.tgid,
            app,
            generation: thread.generation,
            name: name_of(&thread.comm),
            cpu_ns: 0,
            runnable_ns: Some(0),
            runnable: false,
            last_pe: None,
            ended: false,
        };
        Known { comm: thread.comm, program: thread.program, facts, seen_in, entry: thread.app, before_ns: 0 }
    }

    /// Returns for how long it has been runnable in its entry.
    pub fn runnable_here_ns(&self) -> u64 {
        self.facts.runnable_ns.unwrap_or(0).saturating_sub(self.before_ns)
    }

    /// Moves it to another entry, that of this application.
    pub fn enter(&mut self, entry: u32, app: AppId) {
        (self.entry, self.facts.app) = (entry, app);
        self.before_ns = self.facts.runnable_ns.unwrap_or(0);
    }

    /// Returns whether it has executed another program since the last call.
    pub fn has_executed(&mut self, thread: &RawThread) -> bool {
        std::mem::replace(&mut self.program, thread.program) != thread.program
    }

    /// Updates the thread's values at `now`; returns whether its name has changed. A clock that was started
    /// after `now` was read would make values fall behind earlier ones, so they never decrease.
    pub fn update(&mut self, thread: &RawThread, now: u64) -> bool {
        let facts = &mut self.facts;
        let renamed = self.comm != thread.comm;
        if renamed {
            self.comm = thread.comm;
            facts.name = name_of(&thread.comm);
        }
        facts.cpu_ns = facts.cpu_ns.max(thread.run_ns);
        facts.runnable_ns = facts.runnable_ns.max(Some(clock_at(thread.runnable_clock, now)));
        facts.runnable = thread.runnable_clock < 0;
        facts.last_pe = (thread.last_pe != u32::MAX).then_some(PeId(thread.last_pe));
        renamed
    }
}

/// Returns the total of a clock of `discovery.bpf.c`, which is negative while it runs.
fn clock_at(clock: i64, now: u64) -> u64 {
    let total = if clock < 0 { clock.saturating_add_unsigned(now) } else { clock };
    total.max(0) as u64
}

fn name_of(comm: &[u8; 16]) -> Arc<str> {
    let length = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(&comm[..length]).into()
}

/// The most threads that are remembered as given up.
const GIVEN_UP_MAX: usize = 1 << 12;

/// Threads, by ID and generation, whose end did not arrive in time. One that arrives at all soon does; that
/// of a thread whose notice was lost never does, so that beyond a number all earlier ones are forgotten.
#[derive(Debug, Default)]
pub(super) struct GivenUp(HashSet<(u32, u64)>);

impl GivenUp {
    /// Gives up threads.
    pub fn add(&mut self, threads: Vec<(u32, u64)>) {
        if self.0.len() > GIVEN_UP_MAX {
            self.0.clear();
        }
        self.0.extend(threads);
    }

    /// Returns whether a thread was given up; with its end it is forgotten.
    pub fn has(&mut self, thread: (u32, u64), is_end: bool) -> bool {
        if is_end { self.0.remove(&thread) } else { self.0.contains(&thread) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_whose_end_never_arrives_are_forgotten_at_last() {
        let mut given_up = GivenUp::default();
        given_up.add(vec![(1, 7)]);
        assert!(given_up.has((1, 7), false) && given_up.has((1, 7), true) && !given_up.has((1, 7), true));
        for generation in 0..3 * GIVEN_UP_MAX as u64 {
            given_up.add(vec![(1, generation)]);
            assert!(given_up.has((1, generation), false));
        }
        assert!(given_up.0.len() <= GIVEN_UP_MAX + 1);
    }
}
