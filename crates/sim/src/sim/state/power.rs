//! The state of clocks, and the energy so far.

use corewise_core::machine_model::power::{ClockDomain, Governor, Plan, Utilisation};
use corewise_core::time::Time;

/// The energy of a simulation so far, in joules.
#[derive(Debug, Clone, PartialEq)]
pub struct Energy {
    /// Of each application, in the order of [`Sim::applications`](crate::sim::Sim::applications): what its
    /// threads' cores and memory took.
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
pub(crate) struct Clock {
    pub ghz: f64,
    pub wanted_ghz: f64,
    /// When the wanted clock takes effect, if it is another one.
    pub due: Option<Time>,
    /// The next tick of the governor.
    pub tick: Option<Time>,
    /// When the governor last decided on another clock.
    pub decided: Option<Time>,
    /// PEs with a running thread.
    pub running: usize,
    pub is_stale: bool,
}

/// A core, or a package.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Group {
    /// A core's running PEs, a package's active cores.
    pub running: usize,
    /// Since when it is active, or idle.
    pub since: Time,
}

/// The state of clocks and energy.
#[derive(Debug)]
pub(crate) struct PowerState {
    pub plan: Plan,
    pub clocks: Vec<Clock>,
    pub stale: Vec<usize>,
    pub cores: Vec<Group>,
    pub packages: Vec<Group>,
    /// Active cores of each turbo group.
    pub active: Vec<usize>,
    /// Each PE's speed at the highest clock of its domain.
    top_speed: Vec<f64>,
    utilisation: Vec<(Utilisation, Time)>,
    /// The power of each running PE.
    pub watts: Vec<f64>,
    app_j: Vec<f64>,
    idle_j: f64,
    uncore_j: f64,
}

impl PowerState {
    /// All clocks as the governor sets them on an idle machine.
    pub fn new(plan: &Plan, top_speed: Vec<f64>, apps: usize) -> Self {
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

    /// Returns the domain of a clock.
    pub fn domain(&self, clock: usize) -> &ClockDomain {
        &self.plan.power.domains[self.plan.clocks[clock].kind]
    }

    /// Returns the speed of a PE at the present clock.
    pub fn speed(&self, pe: usize) -> f64 {
        let clock = self.plan.clock_of[pe];
        self.top_speed[pe] * self.clocks[clock].ghz / self.domain(clock).top_ghz()
    }

    /// Adds the energy of a thread.
    pub fn ran(&mut self, pe: usize, app: usize, ns: u64) {
        self.app_j[app] += 1e-9 * ns as f64 * self.watts[pe];
    }

    fn uncore_w(&self, is_active: bool) -> f64 {
        let uncore = &self.plan.power.uncore;
        if is_active { uncore.active_w } else { uncore.idle_w }
    }

    /// Accounts for a PE's utilisation up to now.
    pub fn use_up_to(&mut self, pe: usize, now: Time, runs: bool) {
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
    pub fn count(&mut self, pe: usize, now: Time, more: bool) {
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

    /// Notes that a clock is to be reconsidered.
    pub fn note_stale(&mut self, clock: usize) {
        if !std::mem::replace(&mut self.clocks[clock].is_stale, true) {
            self.stale.push(clock);
        }
    }

    /// Returns the largest utilisation of a domain's PEs.
    pub fn utilisation_of(&self, clock: usize) -> f64 {
        self.plan.clocks[clock].pes.iter().map(|&pe| self.utilisation[pe].0.0).fold(0.0, f64::max)
    }

    /// Returns the energy so far.
    pub fn energy(&self, now: Time) -> Energy {
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

/// Returns a time in microseconds.
pub(crate) fn us(now: Time, since: Time) -> f64 {
    1e-3 * (now.0 - since.0) as f64
}
