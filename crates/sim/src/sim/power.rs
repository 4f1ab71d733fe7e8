//! Clocks, idle states and energy while a simulation runs.
//!
//! Problem: clocks and powers change at events, and energy is their integral. Approach: what changes the
//! clock or the power of a PE first settles what its thread did so far, at the power that it had since the
//! last change; so integrals are exact. Powers of running PEs are set together with their paces. A domain's
//! clock is reconsidered after each instant in which one of its PEs started or stopped to run, at the ticks
//! of `schedutil`, and when the number of active cores changes a turbo limit. Source and limits: those of
//! [`corewise_core::machine_model::power`]; the utilisation that `schedutil` sees is that of the running
//! thread alone, and its ticks are those of the domain, not of each PE.

use super::Sim;
use crate::queue::Event;
use corewise_core::machine_model::power::{ClockDomain, Governor, Plan, Utilisation};
use corewise_core::time::Time;

/// The energy of a simulation so far, in joules.
#[derive(Debug, Clone, PartialEq)]
pub struct Energy {
    /// Of each application, in the order of [`Sim::applications`]: what its threads' cores and memory took.
    pub applications: Vec<f64>,
    /// Of idle cores.
    pub idle: f64,
    /// Of what the cores of each package share.
    pub uncore: f64,
}

impl Energy {
    /// Returns the sum.
    pub fn total(&self) -> f64 {
        self.applications.iter().sum::<f64>() + self.idle + self.uncore
    }
}

/// A clock domain.
#[derive(Debug, Clone, Copy, Default)]
struct Clock {
    ghz: f64,
    wanted_ghz: f64,
    /// When the wanted clock takes effect, if it is another one.
    due: Option<Time>,
    /// The next tick of the governor.
    tick: Option<Time>,
    /// When the governor last decided on another clock.
    decided: Option<Time>,
    /// PEs with a running thread.
    running: usize,
    is_stale: bool,
}

/// A core, or a package.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    /// A core's running PEs, a package's active cores.
    running: usize,
    /// Since when it is active, or idle.
    since: Time,
}

/// The state of clocks and energy.
#[derive(Debug)]
pub(super) struct PowerState {
    plan: Plan,
    clocks: Vec<Clock>,
    stale: Vec<usize>,
    cores: Vec<Group>,
    packages: Vec<Group>,
    /// Active cores of each turbo group.
    active: Vec<usize>,
    /// Each PE's speed at the highest clock of its domain.
    top_speed: Vec<f64>,
    utilisation: Vec<(Utilisation, Time)>,
    /// The power of each running PE.
    watts: Vec<f64>,
    app_j: Vec<f64>,
    idle_j: f64,
    uncore_j: f64,
}

impl PowerState {
    pub(super) fn new(plan: &Plan, top_speed: Vec<f64>, apps: usize) -> Self {
        let start = |clock: &corewise_core::machine_model::power::Clock| {
            let ghz = plan.power.domains[clock.kind].wanted_ghz(plan.power.governor, || 0.0, 0);
            Clock { ghz, wanted_ghz: ghz, ..Clock::default() }
        };
        Self {
            clocks: plan.clocks.iter().map(start).collect(),
            stale: Vec::new(),
            cores: vec![Group::default(); plan.cores.len()],
            packages: vec![Group::default(); plan.packages],
            active: vec![0; plan.groups.len()],
            utilisation: vec![(Utilisation::default(), Time(0)); top_speed.len()],
            watts: vec![0.0; top_speed.len()],
            top_speed,
            app_j: vec![0.0; apps],
            idle_j: 0.0,
            uncore_j: 0.0,
            plan: plan.clone(),
        }
    }

    fn domain(&self, clock: usize) -> &ClockDomain {
        &self.plan.power.domains[self.plan.clocks[clock].kind]
    }

    /// Returns the speed of a PE at the present clock.
    fn speed(&self, pe: usize) -> f64 {
        let clock = self.plan.clock_of[pe];
        self.top_speed[pe] * self.clocks[clock].ghz / self.domain(clock).top_ghz()
    }

    /// Adds the energy of a thread.
    pub(super) fn ran(&mut self, pe: usize, app: usize, ns: u64) {
        self.app_j[app] += 1e-9 * ns as f64 * self.watts[pe];
    }

    fn uncore_w(&self, is_active: bool) -> f64 {
        let uncore = &self.plan.power.uncore;
        if is_active { uncore.active_w } else { uncore.idle_w }
    }

    /// Accounts for a PE's utilisation up to now.
    fn use_up_to(&mut self, pe: usize, now: Time, runs: bool) {
        if self.plan.power.governor != Governor::Schedutil {
            return;
        }
        let clock = self.plan.clock_of[pe];
        let used = if runs { self.clocks[clock].ghz / self.domain(clock).top_ghz() } else { 0.0 };
        let (utilisation, since) = &mut self.utilisation[pe];
        utilisation.advance(now.0 - since.0, used);
        *since = now;
    }

    /// Counts one more or one fewer running PE.
    fn count(&mut self, pe: usize, now: Time, more: bool) {
        self.use_up_to(pe, now, !more);
        let (core, package, clock) =
            (self.plan.core_of[pe], self.plan.package_of[pe], self.plan.clock_of[pe]);
        self.clocks[clock].running = changed(self.clocks[clock].running, more);
        self.note_stale(clock);
        let was = self.cores[core];
        self.cores[core].running = changed(was.running, more);
        if was.running.min(self.cores[core].running) > 0 {
            return;
        }
        if more {
            self.idle_j += 1e-6 * self.domain(clock).idle_uj(us(now, was.since));
        }
        self.cores[core].since = now;
        self.count_active(self.plan.clocks[clock].group, more);
        let was = self.packages[package];
        self.packages[package].running = changed(was.running, more);
        if was.running.min(self.packages[package].running) == 0 {
            self.uncore_j += 1e-6 * us(now, was.since) * self.uncore_w(!more);
            self.packages[package].since = now;
        }
    }

    /// Counts an active core of a turbo group.
    fn count_active(&mut self, group: usize, more: bool) {
        let before = self.active[group];
        self.active[group] = changed(before, more);
        let domain = self.domain(self.plan.groups[group][0]);
        if domain.limit_ghz(before) != domain.limit_ghz(self.active[group]) {
            for place in 0..self.plan.groups[group].len() {
                self.note_stale(self.plan.groups[group][place]);
            }
        }
    }

    fn note_stale(&mut self, clock: usize) {
        if !std::mem::replace(&mut self.clocks[clock].is_stale, true) {
            self.stale.push(clock);
        }
    }

    /// Returns the largest utilisation of a domain's PEs.
    fn utilisation_of(&self, clock: usize) -> f64 {
        self.plan.clocks[clock].pes.iter().map(|&pe| self.utilisation[pe].0.0).fold(0.0, f64::max)
    }

    fn energy(&self, now: Time) -> Energy {
        let idle_uj = |(core, group): (usize, &Group)| {
            let domain = self.plan.domain_of(self.plan.cores[core]);
            if group.running > 0 { 0.0 } else { domain.idle_uj(us(now, group.since)) }
        };
        let uncore_uj = |group: &Group| us(now, group.since) * self.uncore_w(group.running > 0);
        Energy {
            applications: self.app_j.clone(),
            idle: self.idle_j + 1e-6 * self.cores.iter().enumerate().map(idle_uj).sum::<f64>(),
            uncore: self.uncore_j + 1e-6 * self.packages.iter().map(uncore_uj).sum::<f64>(),
        }
    }
}

fn changed(count: usize, more: bool) -> usize {
    if more { count + 1 } else { count - 1 }
}

fn us(now: Time, since: Time) -> f64 {
    1e-3 * (now.0 - since.0) as f64
}

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
