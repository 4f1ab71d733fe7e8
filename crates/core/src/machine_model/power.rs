//! Clocks, idle states and power: how fast a core runs at a moment, and what it takes.
//!
//! *Problem.* The clock of a core is no constant. It depends on the governor, on how many other cores are
//! active, and on how long ago it was changed; a core that was idle first has to wake up. Energy depends on
//! all of these, so that the placement that ends first may not be the one that takes the least.
//!
//! *Approach.* PEs belong to clock domains. All PEs of a domain have one clock, chosen by a [`Governor`] from
//! its operating points and limited by the number of active cores (turbo). A new clock takes effect after the
//! transition time; up to then the old one stays. A running core takes
//!
//! ```text
//! P = S V/Vmax + c V² f (1 + e (n-1)) a        n: its running PEs; e: what each one after the first adds
//! a = 1 - (1 - s) w                            w: the share of time in which it waits for memory
//! ```
//!
//! where S is the leakage at the highest voltage, c the kernel's `dynamic-power-coefficient`, and s the part
//! of the dynamic power that remains while the core waits. A core without a running PE is in the deepest idle
//! state whose target residency has passed, so that it needs no prediction: to go to a deeper state once as
//! much was lost as going there costs is at most twice as expensive as knowing the future (Irani, Shukla,
//! Gupta 2003, §3), while Linux's governors predict (`drivers/cpuidle/governors/menu.c`). Waking up takes the
//! exit latency of the state that was reached. What cores of a package share (uncore) has one power while any
//! core of it is active, and another one else; memory takes power in proportion to its traffic.
//!
//! *Sources.* c V² f: `Documentation/devicetree/bindings/arm/cpus.yaml` of Linux
//! (`dynamic-power-coefficient`, in µW/MHz/V²) and `Documentation/power/energy-model.rst`. Leakage in
//! proportion to the voltage: Butts and Sohi, "A static power model for architects" (2000). `schedutil`:
//! `kernel/sched/cpufreq_schedutil.c` (`get_next_freq`: 1.25 times the utilisation, the lowest operating
//! point that suffices) and `kernel/sched/syscalls.c`, `cpufreq_policy_transition_delay_us` for its rate
//! limit; the utilisation is that of `kernel/sched/pelt.c`, relative to the highest clock, with a half-life
//! of 32 ms.
//!
//! *Limits.* Power limits (RAPL, TDP), temperature and its effect on leakage, clocks of the uncore, separate
//! limits for vector code, and boosts of `schedutil` (`util_est`, I/O) are not modelled. Entering an idle
//! state takes no time. The power of idle states does not depend on the voltage.

use super::MachineModel;
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::topology::DomainKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The clocks and the power of a machine, as written in a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// How clocks are chosen.
    #[serde(default)]
    pub governor: Governor,
    /// The shortest time between two decisions of `schedutil` for a domain, in microseconds; if left out 1.5
    /// times the transition time, as in Linux.
    #[serde(default)]
    pub rate_limit_us: Option<f64>,
    /// What the cores of a package share.
    #[serde(default)]
    pub uncore: Uncore,
    /// Power of memory per GB (10⁹ bytes) per second that is moved, in watts.
    #[serde(default)]
    pub memory_w_per_gb_per_s: f64,
    /// The clock domains.
    #[serde(rename = "domain")]
    pub domains: Vec<ClockDomain>,
}

/// How clocks are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Governor {
    /// Always the highest.
    #[default]
    Performance,
    /// The lowest that is enough for 1.25 times the utilisation.
    Schedutil,
    /// Always the lowest.
    Powersave,
}

/// Power of what the cores of a package share, in watts.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Uncore {
    /// While at least one core is active.
    pub active_w: f64,
    /// While all are idle.
    pub idle_w: f64,
}

/// Clock domains of the same kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClockDomain {
    /// The PEs, in any notation of `corewise topo --pes`.
    pub pes: String,
    /// Which of these PEs have a clock in common.
    #[serde(default)]
    pub per: Per,
    /// Clocks and voltages, in rising order. At the highest clock a PE has the speed that the machine gives
    /// it.
    pub points: Vec<Point>,
    /// A user's limit of the clock, in GHz.
    #[serde(default)]
    pub max_ghz: Option<f64>,
    /// What the active cores of these PEs in the package may take together, in watts, each with one PE that
    /// waits for nothing: the clock is the highest of the points at which they do, or the lowest.
    #[serde(default)]
    pub limit_w: Option<f64>,
    /// The highest clock with 1, 2, … active cores of these PEs in the package, in GHz; the last one holds
    /// for more.
    #[serde(default)]
    pub turbo_ghz: Vec<f64>,
    /// Time until a new clock takes effect, in microseconds.
    #[serde(default)]
    pub transition_us: f64,
    /// Dynamic power of an active core, in µW per MHz and V².
    pub dynamic_uw_per_mhz_v2: f64,
    /// What each further running PE of a core adds to its dynamic power, relative to the first.
    #[serde(default)]
    pub further_pe: f64,
    /// The part of the dynamic power that remains while a core waits for memory, 0..1.
    #[serde(default = "one")]
    pub waiting: f64,
    /// Leakage of an active core at the highest voltage, in watts.
    #[serde(default)]
    pub static_w: f64,
    /// Idle states, from shallow to deep. Without any, an idle core takes no power and wakes up as the costs
    /// of the machine say.
    #[serde(default)]
    pub idle: Vec<IdleState>,
}

fn one() -> f64 {
    1.0
}

/// Which PEs have a clock in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Those of a core.
    Core,
    /// Those of a module.
    Module,
    /// Those of a package.
    Package,
    /// All.
    #[default]
    All,
}

/// An operating point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Clock, in GHz.
    pub ghz: f64,
    /// Voltage, in volts.
    pub volt: f64,
}

/// An idle state of a core.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdleState {
    /// Power, in watts.
    pub power_w: f64,
    /// Time to leave it, in microseconds.
    pub exit_us: f64,
    /// How long a core must have been idle to be in it, in microseconds; 0 for the first.
    #[serde(default)]
    pub residency_us: f64,
}

/// Why a description of power is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PowerError {
    /// A location of PEs is invalid.
    #[error("power.domain: pes: {0}")]
    Pes(String),
    /// A PE belongs to no domain, or to several.
    #[error("power: PE {pe} is in {count} of the clock domains, it must be in one")]
    Domains {
        /// The PE.
        pe: PeId,
        /// The number of its domains.
        count: usize,
    },
    /// The PEs of a core belong to several domains.
    #[error("power: the PEs {pes} of one core are in several clock domains")]
    Core {
        /// The PEs.
        pes: CpuSet,
    },
    /// A number is out of its range.
    #[error("power: {field} is {value}, it must be {range}")]
    Range {
        /// The parameter.
        field: &'static str,
        /// Its value.
        value: f64,
        /// The permitted range.
        range: &'static str,
    },
}

/// A clock domain of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock {
    /// Its description: an index of [`Power::domains`].
    pub kind: usize,
    /// Its PEs.
    pub pes: Vec<usize>,
    /// The cores whose number limits its clock: an index of [`Plan::groups`].
    pub group: usize,
}

/// The power of a machine, by PE.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The description.
    pub power: Power,
    /// The clock domains.
    pub clocks: Vec<Clock>,
    /// Each PE's clock domain, by OS index.
    pub clock_of: Vec<usize>,
    /// Each PE's core, numbered from 0.
    pub core_of: Vec<usize>,
    /// One PE of each core.
    pub cores: Vec<usize>,
    /// Each PE's package, numbered from 0.
    pub package_of: Vec<usize>,
    /// The number of packages.
    pub packages: usize,
    /// The clock domains of each kind in each package, together if one spans several packages.
    pub groups: Vec<Vec<usize>>,
}

impl Plan {
    /// Returns the plan of a machine.
    pub fn new(power: Power, model: &MachineModel) -> Result<Self, PowerError> {
        power.check()?;
        let topology = &model.topology;
        let count = model.pes.len();
        let mut kinds_of: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (kind, domain) in power.domains.iter().enumerate() {
            let pes = topology.locate(&domain.pes).map_err(|error| PowerError::Pes(error.to_string()))?;
            pes.iter().for_each(|pe| kinds_of[pe.0 as usize].push(kind));
        }
        if let Some(pe) = topology.pes.iter().find(|pe| kinds_of[pe.0 as usize].len() != 1) {
            return Err(PowerError::Domains { pe, count: kinds_of[pe.0 as usize].len() });
        }
        let mut plan = Self {
            power,
            clocks: Vec::new(),
            clock_of: vec![0; count],
            core_of: vec![0; count],
            cores: Vec::new(),
            package_of: vec![0; count],
            packages: 0,
            groups: Vec::new(),
        };
        for (number, package) in topology.domains(DomainKind::Package).enumerate() {
            package.pes.iter().for_each(|pe| plan.package_of[pe.0 as usize] = number);
        }
        plan.packages = plan.package_of.iter().max().map_or(1, |last| last + 1);
        let (mut core_of, mut clock_of, mut group_of) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for pe in topology.pes.iter().map(|pe| pe.0 as usize) {
            let (kind, package) = (kinds_of[pe][0], plan.package_of[pe]);
            let core = *core_of.entry(model.pes[pe].core).or_insert_with(|| {
                plan.cores.push(pe);
                plan.cores.len() - 1
            });
            let (common, part) = match plan.power.domains[kind].per {
                Per::Core => (model.pes[pe].core, package),
                Per::Module => (model.pes[pe].fpu, package),
                Per::Package => (package, package),
                Per::All => (0, 0),
            };
            let group = *group_of.entry((kind, part)).or_insert_with(|| {
                plan.groups.push(Vec::new());
                plan.groups.len() - 1
            });
            let clock = *clock_of.entry((kind, common)).or_insert_with(|| {
                plan.clocks.push(Clock { kind, pes: Vec::new(), group });
                plan.groups[group].push(plan.clocks.len() - 1);
                plan.clocks.len() - 1
            });
            plan.clocks[clock].pes.push(pe);
            (plan.core_of[pe], plan.clock_of[pe]) = (core, clock);
            if plan.clock_of[plan.cores[core]] != clock {
                let pes = topology.domain_of(DomainKind::Core, PeId(pe as u32));
                return Err(PowerError::Core { pes: pes.map(|core| core.pes.clone()).unwrap_or_default() });
            }
        }
        Ok(plan)
    }

    /// Returns the number of clock domains whose governor acts at every tick of a busy PE.
    pub fn ticking(&self) -> usize {
        if self.power.governor == Governor::Schedutil { self.clocks.len() } else { 0 }
    }

    /// Returns the description of a PE's domain.
    pub fn domain_of(&self, pe: usize) -> &ClockDomain {
        &self.power.domains[self.clocks[self.clock_of[pe]].kind]
    }
}

impl Power {
    fn check(&self) -> Result<(), PowerError> {
        let (amount, positive) = ("0 or more", "above 0");
        let mut rules = vec![
            (
                "rate_limit_us",
                self.rate_limit_us.unwrap_or(0.0),
                self.rate_limit_us >= Some(0.0) || self.rate_limit_us.is_none(),
                amount,
            ),
            ("uncore.active_w", self.uncore.active_w, self.uncore.active_w >= 0.0, amount),
            ("uncore.idle_w", self.uncore.idle_w, self.uncore.idle_w >= 0.0, amount),
            ("memory_w_per_gb_per_s", self.memory_w_per_gb_per_s, self.memory_w_per_gb_per_s >= 0.0, amount),
        ];
        for domain in &self.domains {
            rules.push((
                "the number of points",
                domain.points.len() as f64,
                !domain.points.is_empty(),
                "1 or more",
            ));
            let mut below = 0.0;
            for point in &domain.points {
                rules.push(("points.ghz", point.ghz, point.ghz > below, "above the one before"));
                rules.push(("points.volt", point.volt, point.volt > 0.0, positive));
                below = point.ghz;
            }
            let lowest = domain.points.first().map_or(0.0, |point| point.ghz);
            let limit = domain.max_ghz.unwrap_or(lowest);
            rules.push(("max_ghz", limit, limit >= lowest, "at least the lowest clock"));
            let within = |ghz: f64| (lowest..=below).contains(&ghz);
            rules.extend(
                domain
                    .turbo_ghz
                    .iter()
                    .map(|&ghz| ("turbo_ghz", ghz, within(ghz), "within the clocks of the points")),
            );
            rules.extend([
                ("limit_w", domain.limit_w.unwrap_or(0.0), domain.limit_w.is_none_or(|w| w > 0.0), positive),
                ("transition_us", domain.transition_us, domain.transition_us >= 0.0, amount),
                (
                    "dynamic_uw_per_mhz_v2",
                    domain.dynamic_uw_per_mhz_v2,
                    domain.dynamic_uw_per_mhz_v2 >= 0.0,
                    amount,
                ),
                ("further_pe", domain.further_pe, domain.further_pe >= 0.0, amount),
                ("waiting", domain.waiting, (0.0..=1.0).contains(&domain.waiting), "0 to 1"),
                ("static_w", domain.static_w, domain.static_w >= 0.0, amount),
            ]);
            let mut before = None;
            for state in &domain.idle {
                let follows = before.map_or(state.residency_us == 0.0, |before| state.residency_us > before);
                rules.push((
                    "idle.residency_us",
                    state.residency_us,
                    follows,
                    "0 for the first state, then rising",
                ));
                rules.push(("idle.power_w", state.power_w, state.power_w >= 0.0, amount));
                rules.push(("idle.exit_us", state.exit_us, state.exit_us >= 0.0, amount));
                before = Some(state.residency_us);
            }
        }
        match rules.into_iter().find(|(_, value, holds, _)| !holds || !value.is_finite()) {
            Some((field, value, _, range)) => Err(PowerError::Range { field, value, range }),
            None => Ok(()),
        }
    }
}

impl ClockDomain {
    /// Returns the highest clock of all, in GHz.
    pub fn top_ghz(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.ghz)
    }

    /// Returns the clock that a governor wants while at most `active` cores are active, in GHz.
    /// `utilisation` is relative to the highest clock.
    pub fn wanted_ghz(&self, governor: Governor, utilisation: impl FnOnce() -> f64, active: usize) -> f64 {
        let lowest = self.points.first().map_or(0.0, |point| point.ghz);
        let wanted = match governor {
            Governor::Performance => self.top_ghz(),
            Governor::Powersave => lowest,
            Governor::Schedutil => {
                let enough = HEADROOM * utilisation() * self.top_ghz();
                self.points.iter().map(|point| point.ghz).find(|&ghz| ghz >= enough).unwrap_or(self.top_ghz())
            }
        };
        wanted.min(self.limit_ghz(active))
    }

    /// Returns the limit of the clock while so many cores are active, in GHz.
    pub fn limit_ghz(&self, active: usize) -> f64 {
        let turbo = self.turbo_ghz.get(active.saturating_sub(1)).or(self.turbo_ghz.last());
        let limit = turbo.copied().unwrap_or(f64::INFINITY).min(self.max_ghz.unwrap_or(f64::INFINITY));
        match self.limit_w {
            Some(watts) => limit.min(self.affordable_ghz(watts / active.max(1) as f64)),
            None => limit,
        }
    }

    /// Returns the highest clock of the points at which a core takes no more, or the lowest.
    fn affordable_ghz(&self, watts: f64) -> f64 {
        let affordable = self.points.iter().rev().find(|point| self.pe_w(point.ghz, 1, 0.0) <= watts);
        affordable.or(self.points.first()).map_or(f64::INFINITY, |point| point.ghz)
    }

    /// Returns the voltage at a clock: that of the operating points, and between two of them in proportion.
    pub fn volt(&self, ghz: f64) -> f64 {
        let above = self.points.partition_point(|point| point.ghz < ghz);
        let Some(high) = self.points.get(above).or(self.points.last()) else { return 0.0 };
        let low = self.points[above.saturating_sub(1).min(self.points.len() - 1)];
        if high.ghz <= low.ghz {
            return high.volt;
        }
        low.volt + (high.volt - low.volt) * (ghz - low.ghz) / (high.ghz - low.ghz)
    }

    /// Returns what each of `running` PEs of an active core takes at a clock, in watts; `stalled` is the
    /// share of time in which it waits for memory.
    pub fn pe_w(&self, ghz: f64, running: usize, stalled: f64) -> f64 {
        let (volt, pes) = (self.volt(ghz), running.max(1) as f64);
        let dynamic =
            1e-3 * self.dynamic_uw_per_mhz_v2 * volt * volt * ghz * (1.0 + self.further_pe * (pes - 1.0));
        let activity = 1.0 - (1.0 - self.waiting) * stalled;
        (self.static_w * volt / self.volt(self.top_ghz()) + dynamic * activity) / pes
    }

    /// Returns the state of a core that has been idle for so long; `None` without idle states.
    pub fn idle_state(&self, idle_us: f64) -> Option<&IdleState> {
        self.idle.iter().rev().find(|state| state.residency_us <= idle_us)
    }

    /// Returns the energy of a core that is idle for so long, in microjoules.
    pub fn idle_uj(&self, idle_us: f64) -> f64 {
        let ends = self.idle.iter().skip(1).map(|state| state.residency_us).chain([f64::INFINITY]);
        let spent = |(state, end): (&IdleState, f64)| {
            state.power_w * (end.min(idle_us) - state.residency_us).max(0.0)
        };
        self.idle.iter().zip(ends).map(spent).sum()
    }
}

/// What `schedutil` adds to the utilisation.
const HEADROOM: f64 = 1.25;

/// The time in which what was is worth half as much, in nanoseconds: 32 periods of 1024 µs.
const HALF_LIFE_NS: f64 = 32.0 * 1024.0 * 1024.0;

/// A PE's utilisation: how much of its highest clock it used of late.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Utilisation(pub f64);

impl Utilisation {
    /// Advances it by a stretch in which the PE ran at this share of its highest clock; 0 if it was idle.
    pub fn advance(&mut self, ns: u64, used: f64) {
        self.0 = used + (self.0 - used) * (-(ns as f64) / HALF_LIFE_NS).exp2();
    }
}

#[cfg(test)]
mod tests;
