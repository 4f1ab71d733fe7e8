//! Clocks, idle states and energy while a simulation runs.
//!
//! Problem: clocks and powers change at events, and energy is their integral. Approach: what changes the
//! clock or the power of a PE first settles what its thread did so far, at the power that it had since the
//! last change; so integrals are exact. Powers of running PEs are set together with their paces. A domain's
//! clock is reconsidered after each instant in which one of its PEs started or stopped to run, at the ticks
//! of `schedutil`, and when the number of active cores changes a turbo limit. Source and limits: those of
//! [`corewise_core::machine_model::power`]; the utilisation that `schedutil` sees is that of the running
//! thread alone, and its ticks are those of the domain, not of each PE.

pub use super::state::power::Energy;

use super::Sim;
use super::state::power::us;
use crate::queue::Event;
use corewise_core::machine_model::power::Governor;

impl Sim {
    /// Gives every PE its first clock.
    pub(super) fn start_clocks(&mut self) {
        let Some(power) = &self.power else { return };
        for pe in power.plan.clocks.iter().flat_map(|clock| clock.pes.iter().copied()) {
            self.machine.model.pes[pe].speed = power.speed(pe);
        }
    }

    /// Returns the energy so far; `None` if the machine's power is not described.
    pub fn energy(&self) -> Option<Energy> {
        self.power.as_ref().map(|power| power.energy(self.now))
    }

    /// Notes that a PE has a thread again. Returns the time that it takes to leave its idle state, in
    /// microseconds.
    pub(super) fn leave_idle(&mut self, pe: usize) -> f64 {
        let cost = self.machine.spec.costs.idle_exit_us;
        let Some(power) = &mut self.power else { return cost };
        let core = power.cores[power.plan.core_of[pe]];
        // The core of a running sibling is not asleep.
        let idle_us = if core.running > 0 { 0.0 } else { us(self.now, core.since) };
        let state = power.plan.domain_of(pe).idle_state(idle_us).map(|state| state.exit_us);
        power.count(pe, self.now, true);
        state.unwrap_or(cost)
    }

    /// Notes that a PE no longer has a thread.
    pub(super) fn enter_idle(&mut self, pe: usize) {
        if let Some(power) = &mut self.power {
            power.count(pe, self.now, false);
        }
    }

    /// Returns whether cores, packages, turbo groups and clock domains count what runs.
    pub(super) fn power_counts(&self, busy: usize) -> bool {
        let Some(power) = &self.power else { return true };
        let active = power.cores.iter().filter(|core| core.running > 0).count();
        power.cores.iter().map(|core| core.running).sum::<usize>() == busy
            && power.clocks.iter().map(|clock| clock.running).sum::<usize>() == busy
            && power.packages.iter().map(|package| package.running).sum::<usize>() == active
            && power.active.iter().sum::<usize>() == active
    }

    /// Sets the power of a PE after its pace.
    pub(super) fn set_power(&mut self, pe: usize) {
        let Some(power) = &mut self.power else { return };
        let (clock, pace) = (power.plan.clock_of[pe], &self.cpus[pe].pace);
        let running = power.cores[power.plan.core_of[pe]].running;
        // Bytes per nanosecond are GB per second.
        let memory_w = power.plan.power.memory_w_per_gb_per_s * pace.work_per_ns * pace.memory_bytes_per_work;
        power.watts[pe] = power.domain(clock).pe_w(power.clocks[clock].ghz, running, pace.stalled) + memory_w;
    }

    /// Reconsiders the clocks of the domains about which something has changed.
    pub(super) fn reconsider_clocks(&mut self) {
        while let Some(clock) = self.power.as_mut().and_then(|power| power.stale.pop()) {
            self.reconsider(clock);
        }
    }

    fn reconsider(&mut self, clock: usize) {
        let Some(power) = &mut self.power else { return };
        power.clocks[clock].is_stale = false;
        let governor = power.plan.power.governor;
        let mut may_decide = true;
        if governor == Governor::Schedutil {
            may_decide = self.follow_load(clock);
        }
        let Some(power) = &mut self.power else { return };
        let domain = power.domain(clock);
        let active = power.active[power.plan.clocks[clock].group];
        let wanted = domain.wanted_ghz(governor, || power.utilisation_of(clock), active);
        let transition = std::time::Duration::from_nanos((1e3 * domain.transition_us) as u64);
        let state = &mut power.clocks[clock];
        if wanted == state.wanted_ghz || !may_decide {
            return;
        }
        (state.wanted_ghz, state.decided) = (wanted, Some(self.now));
        if state.due.is_none() {
            let due = self.now + transition;
            state.due = Some(due);
            self.queue.push(due, Event::Clock { clock: clock as u32 });
        }
    }

    /// Updates what `schedutil` knows of a domain, and sets its next tick. Returns whether it may decide.
    fn follow_load(&mut self, clock: usize) -> bool {
        let now = self.now;
        let Some(power) = &mut self.power else { return false };
        for place in 0..power.plan.clocks[clock].pes.len() {
            let pe = power.plan.clocks[clock].pes[place];
            let runs = self.cpus[pe].running().is_some();
            power.use_up_to(pe, now, runs);
        }
        let transition_us = power.domain(clock).transition_us;
        let linux_us = if transition_us > 0.0 { 1.5 * transition_us } else { 1e3 };
        let limit_us = power.plan.power.rate_limit_us.unwrap_or(linux_us);
        let state = &mut power.clocks[clock];
        if state.running > 0 && state.tick.is_none() {
            let tick = now + self.os.tick;
            state.tick = Some(tick);
            self.queue.push(tick, Event::Clock { clock: clock as u32 });
        }
        state.decided.is_none_or(|decided| us(now, decided) >= limit_us)
    }

    /// Handles the event of a clock domain: its new clock takes effect, or its governor's tick has come.
    pub(super) fn clock_event(&mut self, clock: usize) {
        let now = self.now;
        let Some(power) = &mut self.power else { return };
        power.note_stale(clock);
        let state = &mut power.clocks[clock];
        if state.tick == Some(now) {
            state.tick = None;
        }
        if state.due != Some(now) {
            return;
        }
        state.due = None;
        let ghz = state.wanted_ghz;
        for place in 0..power.plan.clocks[clock].pes.len() {
            self.settle_before_clock(clock, place);
        }
        let Some(power) = &mut self.power else { return };
        power.clocks[clock].ghz = ghz;
        for place in 0..power.plan.clocks[clock].pes.len() {
            let Some(power) = &self.power else { return };
            let pe = power.plan.clocks[clock].pes[place];
            self.machine.model.pes[pe].speed = power.speed(pe);
            self.touch(pe);
        }
    }

    fn settle_before_clock(&mut self, clock: usize, place: usize) {
        let Some(power) = &self.power else { return };
        let pe = power.plan.clocks[clock].pes[place];
        self.settle(pe);
        let runs = self.cpus[pe].running().is_some();
        if let Some(power) = &mut self.power {
            power.use_up_to(pe, self.now, runs);
        }
    }
}
