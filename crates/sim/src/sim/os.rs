//! The operating system's scheduler: it places everything that policies leave free.
//!
//! Problem: the baseline must do what common systems do, no better and no worse. Approach: each PE has a
//! queue, served in slices; next is the thread with the least CPU time since it entered the queue. A thread
//! that leaves a queue keeps its lag (what it is owed relative to the mean of that queue, up to two slices)
//! and gets it in the next queue, so that moving neither gains nor loses turns. A new thread goes where the
//! load is smallest, then where least runs on the same FPU, then to a random PE. A woken thread returns to
//! its last PE if that is idle, else to the least loaded PE, closest first. A PE that runs out of work takes
//! a waiting thread from the longest queue, and a periodic balancer moves threads from queues that are longer
//! than the shortest by two. [`Kind::Fair`] treats all PEs as equally fast, like the baselines of the papers;
//! [`Kind::Capacity`] prefers fast idle PEs and moves a running thread to a faster PE that is idle, like
//! today's Linux (capacity-aware wake-ups, misfit migration). Masks are always respected. Sources:
//! parallelism-aware scheduling §3 (Default keeps threads where they are), BulldOver §V.D (whether like
//! threads share a module is random), Linux's `select_idle_sibling`, `load_balance` and, for the lag,
//! `place_entity` (Stoica, Abdel-Wahab, "Earliest eligible virtual deadline first", 1995). Limits: equal
//! weights, no wake-up preemption within a slice, and a surplus thread (three on two PEs) stays where it is,
//! as the queues differ by only one.

use super::Sim;
use super::loads::ANY_LOAD;
use crate::machine::Machine;
use crate::program::duration;
use corewise_core::cpuset::CpuSet;
use corewise_core::machine_model::Distance;
use corewise_core::machine_model::contention::{Demand, LINE_BYTES};
use corewise_core::time::Time;
use serde::Deserialize;
use std::time::Duration;

/// Size of the L1 data cache, which a move empties, in bytes; the L2 refills it.
const L1_BYTES: f64 = 32.0 * 1024.0;
/// Latency of an L1 miss that the L2 serves, in cycles.
const L2_LATENCY_CYCLES: f64 = 15.0;

/// The scheduler's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Os {
    /// How it treats speeds.
    pub scheduler: Kind,
    /// How long a thread runs while others wait.
    #[serde(deserialize_with = "duration")]
    pub slice: Duration,
    /// Time between two rounds of the balancer.
    #[serde(deserialize_with = "duration")]
    pub balance: Duration,
}

/// The two variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// All PEs are treated as equally fast.
    #[default]
    Fair,
    /// Fast PEs are preferred.
    Capacity,
}

impl Default for Os {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self { scheduler: Kind::Fair, slice: ms(4), balance: ms(20) }
    }
}

impl Os {
    /// Returns the tick at which a slice that begins now ends: at least half a slice away.
    pub(super) fn slice_end(&self, now: Time) -> Time {
        let slice = (self.slice.as_nanos() as u64).max(1);
        Time(((now.0 + slice / 2) / slice + 1) * slice)
    }
}

impl Machine {
    /// Returns the time that a moved thread takes to refetch its data from the caches that it left, in
    /// nanoseconds: at the exposed latency of the next level that both PEs share, and at most the contents of
    /// those caches.
    pub(super) fn refill_ns(&self, distance: Distance, from: usize, demand: &Demand) -> f64 {
        let memory = &self.spec.memory;
        let pe = &self.model.pes[from];
        let l2 = self.model.l2_bytes[pe.l2].unwrap_or(0.0);
        let l3 = self.model.l3_bytes[pe.l3].unwrap_or(0.0);
        let (bytes, latency) = match distance {
            Distance::None | Distance::Core => (0.0, 0.0),
            Distance::L2 => (L1_BYTES, L2_LATENCY_CYCLES),
            Distance::L3 => (L1_BYTES.max(l2), memory.l3_latency_cycles),
            Distance::Node => (L1_BYTES.max(l2 + l3), memory.memory_latency_cycles),
            Distance::System => (L1_BYTES.max(l2 + l3), memory.memory_latency_cycles * memory.remote_factor),
        };
        let lines = bytes.min(demand.working_set()) / LINE_BYTES;
        lines * latency * (1.0 - memory.overlap) / self.spec.ghz
    }
}

impl Sim {
    /// Makes a thread ready: it gets a PE or a place in a queue.
    pub(super) fn wake(&mut self, thread: usize) {
        self.threads[thread].ready = true;
        self.threads[thread].ready_since = self.now;
        self.count(thread, true);
        let pe = self.choose(thread);
        self.enqueue(thread, pe);
    }

    fn enqueue(&mut self, thread: usize, pe: usize) {
        // As in Linux: the lag has the same value once the thread counts in the mean itself.
        if let Some((mean, others)) = self.mean_vtime_ns(pe) {
            let lag = self.threads[thread].lag_ns;
            self.threads[thread].vtime_ns = mean - lag * (others + 1) / others;
        }
        self.threads[thread].pe = Some(pe);
        self.insert_queued(thread, pe);
        self.loads.add(pe);
        if self.cpus[pe].running.is_none() {
            self.vacant.push_back(pe);
        }
        self.moved.push(pe);
    }

    /// Adds a thread to a queue, behind all that have had no more CPU time.
    pub(super) fn insert_queued(&mut self, thread: usize, pe: usize) {
        let vtime = self.threads[thread].vtime_ns;
        let queue = &mut self.cpus[pe].queue;
        let place = queue.partition_point(|&other| self.threads[other].vtime_ns <= vtime);
        queue.insert(place, thread);
        self.queued += 1;
    }

    /// Returns the mean virtual time of the threads on a PE, and their number; `None` without any.
    fn mean_vtime_ns(&self, pe: usize) -> Option<(i64, i64)> {
        let cpu = &self.cpus[pe];
        let not_yet_told = (self.now.0 - cpu.settled.0) as i64;
        let running = cpu.running.map(|thread| self.threads[thread].vtime_ns + not_yet_told);
        let queued = cpu.queue.iter().map(|&thread| self.threads[thread].vtime_ns);
        let (sum, count) =
            running.into_iter().chain(queued).fold((0, 0), |(sum, count), vtime| (sum + vtime, count + 1));
        (count > 0).then(|| (sum / count, count))
    }

    /// Chooses the PE for a thread that became ready.
    fn choose(&mut self, thread: usize) -> usize {
        let warm = self.threads[thread].warm_pe.filter(|&pe| self.may_use(thread, pe));
        let aware = match self.os.scheduler {
            Kind::Fair => false,
            Kind::Capacity => true,
        };
        if let Some(warm) = warm
            && self.loads.of(warm) == 0
            && (!aware || self.machine.reported[warm] == self.machine.fastest)
        {
            return warm;
        }
        let count = self.cpus.len();
        let first = self.chance.below(count);
        let key = |pe: usize| {
            let slowness = if aware { (1e6 / self.machine.reported[pe]) as u64 } else { 0 };
            let closeness = warm.map_or(Distance::None, |warm| self.machine.model.distance(warm, pe));
            let beside = self.unit_busy[self.machine.model.pes[pe].fpu];
            if warm.is_some() { (slowness, closeness as u32, beside) } else { (slowness, beside, 0) }
        };
        // Ties go to the next PE from `first`.
        let key = |pe: usize| (key(pe), if pe < first { pe + count - first } else { pe - first });
        // Every thread has a PE that it may use: `confine` ensures that.
        self.loads.least_loaded(&self.threads[thread].usable, ANY_LOAD, key).unwrap_or(first)
    }

    pub(super) fn may_use(&self, thread: usize, pe: usize) -> bool {
        self.threads[thread].usable.contains(corewise_core::ids::PeId(pe as u32))
    }

    /// Removes a thread that is no longer ready from its PE or queue.
    pub(super) fn leave(&mut self, thread: usize) {
        self.count(thread, false);
        let leaving = &mut self.threads[thread];
        leaving.ready = false;
        leaving.runnable_ns += self.now.0 - leaving.ready_since.0;
        self.withdraw(thread);
    }

    fn withdraw(&mut self, thread: usize) {
        let Some(pe) = self.threads[thread].pe else { return };
        self.settle(pe);
        if let Some((mean, _)) = self.mean_vtime_ns(pe) {
            let most = 2 * self.os.slice.as_nanos() as i64;
            let thread = &mut self.threads[thread];
            thread.lag_ns = (mean - thread.vtime_ns).clamp(-most, most);
        }
        if self.cpus[pe].running == Some(thread) {
            self.vacate(pe);
            self.loads.subtract(pe);
        } else if let Some(place) = self.cpus[pe].queue.iter().position(|&queued| queued == thread) {
            self.remove_queued(pe, place);
            self.loads.subtract(pe);
            self.moved.push(pe);
        }
    }

    /// Removes the thread at this place of a PE's queue, if there is one.
    pub(super) fn remove_queued(&mut self, pe: usize, place: usize) -> Option<usize> {
        let thread = self.cpus[pe].queue.remove(place)?;
        self.queued -= 1;
        Some(thread)
    }

    /// Returns a waiting thread that an idle PE may take: from the longest queue that has one.
    pub(super) fn steal_for(&mut self, pe: usize) -> Option<usize> {
        if self.queued == 0 {
            return None;
        }
        let (mut longest, mut found) = (0, None);
        for (from, load) in self.loads.iter().enumerate() {
            // Most queues are excluded by the load alone, which is never smaller.
            let queue = &self.cpus[from].queue;
            // An idle PE that was just given a thread takes that itself.
            let taken = usize::from(self.cpus[from].running.is_none());
            if load > longest + taken
                && queue.len() > longest + taken
                && let Some(place) = queue.iter().skip(taken).position(|&thread| self.may_use(thread, pe))
            {
                (longest, found) = (queue.len() - taken, Some((from, taken + place)));
            }
        }
        let (from, place) = found?;
        self.moved.push(from);
        self.loads.subtract(from);
        self.loads.add(pe);
        self.remove_queued(from, place)
    }

    /// Changes where a thread may run; a thread at a forbidden place moves at once.
    pub(crate) fn restrict(&mut self, thread: usize, mask: CpuSet) {
        self.threads[thread].mask = mask;
        self.confine(thread);
        self.catch_up();
    }

    pub(super) fn relocate(&mut self, thread: usize) {
        self.withdraw(thread);
        let pe = self.choose(thread);
        self.enqueue(thread, pe);
    }

    /// Runs one round of the periodic balancer.
    pub(super) fn balance(&mut self) {
        if self.queued > 0 {
            self.level_queues();
        }
        match self.os.scheduler {
            Kind::Fair => {}
            Kind::Capacity => self.move_misfits(),
        }
    }

    /// Moves threads from queues that are longer than the shortest permitted one by two or more.
    fn level_queues(&mut self) {
        let least = self.loads.least();
        for from in 0..self.cpus.len() {
            if self.loads.of(from) < least + 2 {
                continue;
            }
            let mut candidates: Vec<usize> = self.cpus[from].queue.iter().copied().collect();
            candidates.extend(self.cpus[from].running);
            for thread in candidates {
                let load = self.loads.of(from);
                if load < least + 2 {
                    break;
                }
                let distance = |pe: usize| self.machine.model.distance(from, pe);
                if let Some(to) = self.loads.least_loaded(&self.threads[thread].usable, load - 2, distance) {
                    self.withdraw(thread);
                    self.enqueue(thread, to);
                }
            }
        }
    }

    /// Moves running threads to faster PEs that are idle.
    fn move_misfits(&mut self) {
        for to in 0..self.cpus.len() {
            let speed = self.machine.reported[to];
            if self.loads.of(to) > 0 || speed < self.machine.fastest {
                continue;
            }
            let slower = (0..self.cpus.len()).filter(|&from| self.machine.reported[from] < speed);
            let misfit = slower
                .filter_map(|from| Some((from, self.cpus[from].running?)))
                .filter(|&(_, thread)| self.may_use(thread, to))
                .min_by_key(|&(from, _)| self.machine.model.distance(from, to));
            if let Some((_, thread)) = misfit {
                self.withdraw(thread);
                self.enqueue(thread, to);
            }
        }
    }
}
