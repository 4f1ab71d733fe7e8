//! The operating system's scheduler: it places everything that policies leave free.
//!
//! Problem: every policy is compared with it, so it must do what common systems do, no better and no worse.
//! Approach: each part of Linux's fair scheduling class is a module. Each PE has a [`queue`], served by the
//! rules of [`cfs`] or [`eevdf`]; threads are put on PEs by [`placement`] and moved by [`balance`], both by
//! the loads of [`domains`]. Weights come from nice levels and [`groups`]. The running thread is
//! preempted at ticks only, or when another one wakes up. Each PE's tick has its own phase: if all came at
//! one instant, as Linux asks for unless `skew_tick` is set, teams of equal size would by accident run as
//! gangs, which interrupts and late timers prevent on a real machine. Costs arise where Linux has them
//! ([`crate::machine::Costs`]): a thread pays for waking another one; for the switch to itself, also from an
//! idle PE, and there for the interrupt and the end of the idle state before it; and, when it moves, for its
//! caches. [`Kind::Fair`] treats all PEs as equally fast, like the baselines of the papers;
//! [`Kind::Capacity`] prefers fast idle PEs, like Linux where it knows of the difference. Masks are always
//! respected. Sources: the files named in each module; `kernel/time/tick-sched.c` for the tick. Limits: no
//! real-time threads, no moving of threads to their memory; a PE's tick costs nothing.

pub use os::{Kind, Os, QueueKind};

use super::Sim;
use crate::chance::Purpose;
use crate::machine::{Costs, Machine};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::machine_model::Distance;
use corewise_core::machine_model::contention::{Demand, LINE_BYTES};
use corewise_core::time::Time;
use queue::Arrival;

mod balance;
mod cfs;
pub(crate) mod domains;
mod eevdf;
pub mod groups;
pub(super) mod os;
mod placement;
pub(crate) mod queue;

/// Size of the L1 data cache, which a move empties, in bytes; the L2 refills it.
const L1_BYTES: f64 = 32.0 * 1024.0;
/// Latency of an L1 miss that the L2 serves, in cycles.
const L2_LATENCY_CYCLES: f64 = 15.0;

impl Machine {
    /// Returns the time that a moved thread takes to refetch its data from the caches that it left, in
    /// nanoseconds: at the exposed latency of the next level that both PEs share, and at most the contents of
    /// those caches.
    fn refill_ns(&self, distance: Distance, from: usize, demand: &Demand) -> f64 {
        let memory = &self.model.memory;
        let pe = &self.model.pes[from];
        let l2 = self.model.l2_bytes[pe.l2].unwrap_or(0.0);
        let l3 = self.model.l3_bytes[pe.l3].unwrap_or(0.0);
        let (bytes, latency) = match distance {
            Distance::None | Distance::Core => (0.0, 0.0),
            Distance::L2 => (L1_BYTES, L2_LATENCY_CYCLES / self.model.ghz),
            Distance::L3 => (L1_BYTES.max(l2), memory.l3_latency_ns),
            Distance::Node => (L1_BYTES.max(l2 + l3), memory.memory_latency_ns),
            Distance::System => (L1_BYTES.max(l2 + l3), memory.memory_latency_ns * memory.remote_factor),
        };
        let lines = bytes.min(demand.working_set()) / LINE_BYTES;
        lines * latency * (1.0 - memory.overlap)
    }
}

impl Sim {
    /// Makes a thread ready: it gets a PE or a place in a queue. The waker pays for it.
    pub(super) fn wake(&mut self, thread: usize, waker: Option<usize>) {
        self.threads[thread].ready = true;
        self.threads[thread].ready_since = self.now;
        self.count(thread, true);
        let pe = self.choose(thread, waker);
        if let Some(waker) = waker {
            let cost = 1e3 * self.machine.spec.costs.wake_us;
            self.threads[waker].debt_ns += cost;
            self.threads[waker].times.owe(cost, 0.0);
            self.moved.extend(self.running_on(waker));
        }
        let arrival = if self.threads[thread].warm_pe.is_some() { Arrival::Woken } else { Arrival::New };
        self.enqueue(thread, pe, arrival);
    }

    fn enqueue(&mut self, thread: usize, pe: usize, arrival: Arrival) {
        if self.hold_back(thread) {
            return;
        }
        self.settle(pe);
        self.unsettle(pe);
        let weight = self.enter_group(thread);
        self.rules.set_weight(&mut self.threads[thread].entity, weight);
        let entity = self.threads[thread].entity;
        let owed = match self.threads[thread].pe {
            Some(last) => {
                self.settle(last);
                self.rules.owed(&self.cpus[last].queue, &entity, arrival, self.since_tick_ns(last))
            }
            // How far its parent is in its slice is chance.
            None => {
                let key = self.threads[thread].key;
                let slice_ns = self.rules.slice_max_ns() as usize;
                -(self.chance.below(Purpose::FirstSlice, &[key], slice_ns) as i64)
            }
        };
        self.threads[thread].pe = Some(pe);
        self.threads[thread].times.queue(self.now);
        let interrupts = self.cpus[pe].queue.enter(&*self.rules, entity, owed, arrival);
        self.queued += 1;
        self.domains.add(pe, weight);
        if interrupts {
            self.suspend(pe);
        } else if self.cpus[pe].running().is_none() {
            self.vacant.push_back(pe);
        }
        self.moved.push(pe);
    }

    /// Takes the PE of its running thread, which waits from now on.
    fn suspend(&mut self, pe: usize) {
        self.settle(pe);
        if let Some(thread) = self.cpus[pe].queue.put_back() {
            self.suspended(thread, pe);
        }
    }

    fn suspended(&mut self, thread: usize, pe: usize) {
        self.queued += 1;
        self.threads[thread].times.queue(self.now);
        self.vacated(thread, pe);
    }

    /// Handles a tick of a PE if its thread's time is up.
    pub(super) fn tick(&mut self, pe: usize) {
        if self.cpus[pe].queue.left_ns(&*self.rules) != Some(0) || !self.is_tick(pe) {
            return;
        }
        self.reweigh(pe);
        if let Some(thread) = self.cpus[pe].queue.tick(&*self.rules) {
            self.suspended(thread, pe);
        }
    }

    fn is_tick(&self, pe: usize) -> bool {
        self.tick_from(pe, self.now) == self.now
    }

    /// Returns the first tick of a PE that is not before a time.
    pub(super) fn tick_from(&self, pe: usize, at: Time) -> Time {
        let (tick, phase) = (self.os.tick.as_nanos() as u64, self.cpus[pe].phase_ns);
        Time((at.0 + tick - phase).div_ceil(tick) * tick + phase - tick)
    }

    fn since_tick_ns(&self, pe: usize) -> i64 {
        let tick = self.os.tick.as_nanos() as u64;
        ((self.now.0 + tick - self.cpus[pe].phase_ns) % tick) as i64
    }

    /// Returns the tick at which a PE's thread is preempted, if others wait.
    pub(super) fn slice_end(&self, pe: usize) -> Option<Time> {
        let left = self.cpus[pe].queue.left_ns(&*self.rules)?;
        Some(self.tick_from(pe, Time((self.cpus[pe].settled.0 + left).max(self.now.0 + 1))))
    }

    pub(super) fn may_use(&self, thread: usize, pe: usize) -> bool {
        self.threads[thread].usable.contains(PeId(pe as u32))
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
        self.let_go(thread);
        let Some(pe) = self.threads[thread].pe else { return };
        self.settle(pe);
        self.unsettle(pe);
        let runs = self.cpus[pe].running() == Some(thread);
        let Some(entity) = self.cpus[pe].queue.leave(&*self.rules, thread) else { return };
        self.threads[thread].entity = entity;
        self.leave_group(thread);
        self.domains.subtract(pe, entity.weight);
        if runs {
            self.vacated(thread, pe);
        } else {
            self.queued -= 1;
            self.threads[thread].times.dequeue(self.now);
            self.moved.push(pe);
        }
    }

    /// Lets a running thread yield its PE.
    pub(super) fn yield_pe(&mut self, thread: usize) {
        let Some(pe) = self.running_on(thread) else { return };
        self.unsettle(pe);
        let Self { cpus, rules, apps, threads, .. } = self;
        let group = |thread: usize| apps[threads[thread].app].plan.group;
        if cpus[pe].queue.yield_to_next(&**rules, group).is_some() {
            self.suspended(thread, pe);
        }
    }

    /// Changes the own weight of a thread, which returns to its place in a queue.
    pub(super) fn set_weight(&mut self, thread: usize, weight: i64) {
        let pe = self.threads[thread].pe.filter(|_| self.threads[thread].ready);
        if pe.is_some() {
            self.withdraw(thread);
        }
        self.threads[thread].entity.own = weight;
        if let Some(pe) = pe {
            self.enqueue(thread, pe, Arrival::Moved);
        }
    }

    /// Moves a thread that is ready to another PE.
    fn shift(&mut self, thread: usize, to: usize) {
        self.withdraw(thread);
        self.enqueue(thread, to, Arrival::Moved);
        // A balancer may have moved it to a busy PE although, since it chose, another one is idle.
        self.relieve(to);
    }

    /// Changes where a thread may run; a thread at a forbidden place moves at once.
    pub(crate) fn restrict(&mut self, thread: usize, mask: CpuSet) {
        self.threads[thread].mask = mask;
        self.confine(thread);
        if let Some(pe) = self.threads[thread].pe {
            self.relieve(pe);
        }
        self.catch_up();
    }

    /// Moves a thread whose PE is forbidden.
    pub(super) fn relocate(&mut self, thread: usize) {
        self.withdraw(thread);
        let pe = self.choose(thread, None);
        self.enqueue(thread, pe, Arrival::Moved);
    }

    /// Notes that a thread no longer runs on a PE, which takes another one.
    fn vacated(&mut self, thread: usize, pe: usize) {
        self.part(thread, pe);
        let cpu = &mut self.cpus[pe];
        cpu.last = Some((thread, self.now));
        cpu.busy_ns += self.now.0 - cpu.since.0;
        self.spend(thread, false);
        self.enter_idle(pe);
        self.vacant.push_back(pe);
        self.moved.push(pe);
        self.touch(pe);
        self.note_slice(thread);
    }

    /// Gives an idle PE its next thread, if there is one.
    pub(super) fn dispatch(&mut self, pe: usize) {
        if self.cpus[pe].running().is_some() {
            return;
        }
        if self.cpus[pe].queue.waiting().is_empty() && self.online.contains(PeId(pe as u32)) {
            self.take_surplus(pe);
        }
        let Some(index) = self.pick(pe) else { return };
        self.queued -= 1;
        self.spend(index, true);
        let Costs { switch_us, migration_us, .. } = self.machine.spec.costs;
        let idle_exit_us = self.leave_idle(pe);
        let thread = &mut self.threads[index];
        let mut migration = 0.0;
        if let Some(from) = thread.warm_pe.filter(|&from| from != pe) {
            let distance = self.machine.model.distance(from, pe);
            *self.migrations.entry(distance).or_default() += 1;
            // A thread cannot lose cache contents that it has not fetched yet, so refills do not add up.
            let refill_ns = self.machine.refill_ns(distance, from, &self.demands[thread.activity.demand()]);
            migration = 1e3 * migration_us;
            thread.debt_ns = thread.debt_ns.max(refill_ns) + migration;
        }
        let (switch, idle_exit) = match self.cpus[pe].last {
            Some((last, at)) if at == self.now && last == index => (0.0, 0.0),
            Some((_, at)) if at == self.now => (1e3 * switch_us, 0.0),
            Some(_) | None => (1e3 * switch_us, 1e3 * idle_exit_us),
        };
        thread.debt_ns += switch + idle_exit;
        thread.times.owe(switch + migration, idle_exit);
        thread.times.arrive(self.now);
        thread.pe = Some(pe);
        thread.warm_pe = Some(pe);
        self.touch_memory(index, pe);
        let cpu = &mut self.cpus[pe];
        (cpu.settled, cpu.since) = (self.now, self.now);
        self.moved.push(pe);
        self.touch(pe);
        self.relieve(pe);
    }

    /// Moves those that wait on a busy PE to idle PEs that they may use.
    fn relieve(&mut self, pe: usize) {
        if self.domains.idle() == 0 || self.cpus[pe].running().is_none() {
            return;
        }
        let waiting: Vec<usize> = self.cpus[pe].queue.waiting().iter().map(|entity| entity.thread).collect();
        for thread in waiting {
            if let Some(idle) = self.nearest_idle(thread, pe) {
                self.shift(thread, idle);
            }
        }
    }
}
