//! Discovery: which PEs share a core, an FPU, an L2 or an L3, by their behaviour and not by what is reported.
//!
//! Problem: hypervisors present flat machines whose PEs are SMT siblings, or a topology that differs from the
//! host's. Whether two PEs share something shows when both use it: they slow each other down. Measuring all
//! n²/2 pairs several times takes hours on a large machine.
//!
//! Approach. "Shares this resource" is an equivalence relation, so the task is to partition the PEs:
//!
//! | level  | both run                              | among one PE of each     |
//! | ------ | ------------------------------------- | ------------------------ |
//! | core   | integer additions                     | (all PEs)                |
//! | module | floating-point divisions              | core                     |
//! | L2, L3 | dependent loads, ¾ of the cache each  | core, L2                 |
//!
//! Domains nest, so each level looks at one PE of each group of a lower level; this distinguishes a shared
//! FPU from a shared core. Dependent loads are used because their time multiplies when a region no longer
//! fits, while they need little bandwidth, which other PEs share, too. [`partition`] tests sets of PEs at
//! once and needs O(n log n) tests for any group sizes and any numbering; [`probe`] makes each answer
//! reliable in spite of noise; [`caches`] finds the regions. The reported sharing only determines the order
//! of tests: reported partners are put far apart, so that few tests are needed if it is correct.
//!
//! At the end each group is confirmed pair by pair, and the independence of the groups by one run of one PE
//! of each group. A partition that passes both is exact, as far as the answers are correct. After a
//! contradiction or an unclear answer the level is repeated, starting with its baselines, and given up after
//! [`ATTEMPTS`]. When all levels are done, two runs for each check whether it still holds; if not, it is
//! withdrawn. A hypervisor that migrates its virtual CPUs shows up in both checks, and there is no result
//! then.
//!
//! Limits: those of [`probe`] and [`caches`]. PEs that share the FPU *and* integer units are a core. The
//! module level requires an FPU that one thread of divisions saturates.

mod caches;
mod compare;
mod halt;
mod partition;
mod probe;

use super::{Executor, ExecutorError};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::kernels::Kernel;
use crate::profile::{Discovery, Missing};
use crate::topology::{DomainKind, Topology};
use caches::Caches;
use halt::Halt;
use probe::{Load, Oracle, Probe};
use std::collections::BTreeMap;
use std::time::Duration;

pub use compare::groups;

/// The kinds of domain that discovery looks for, in order.
pub const KINDS: [DomainKind; 4] = [DomainKind::Core, DomainKind::Module, DomainKind::L2, DomainKind::L3];

/// How often a level is tried before it is given up because of contradictions or unclear answers.
const ATTEMPTS: u32 = 3;

/// The minimum duration of one repetition.
const WINDOW: Duration = Duration::from_millis(10);

/// The time of a load that misses, and the number of times a region is traversed in one repetition: twice, so
/// that it is fetched again after eviction.
const LOAD_TIME: Duration = Duration::from_nanos(100);
const PASSES: u64 = 2;

/// The result of a discovery.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The groups, and the cost of finding them.
    pub discovery: Discovery,
    /// The kinds that could not be determined, and the PEs that went offline.
    pub missing: Vec<Missing>,
}

/// Discovers what the allowed PEs of a machine share. `reported` is compared with the result, and gives first
/// guesses of cache sizes, which are checked.
pub fn discover(executor: &mut dyn Executor, reported: &Topology) -> Found {
    let mut search = Search {
        oracle: Oracle { executor, pairs: 0, groups: 0, members: 0 },
        reported,
        levels: BTreeMap::new(),
        caches: Caches::default(),
        contradictions: 0,
        missing: Vec::new(),
    };
    for kind in KINDS {
        if reported.allowed.len() < 2 {
            search.give_up(kind, "one PE shares nothing with another".to_owned());
        } else if kind == DomainKind::Module && !search.levels.contains_key(&DomainKind::Core) {
            search.give_up(kind, "the cores could not be distinguished, and they share FPUs too".to_owned());
        } else {
            search.level(kind);
        }
    }
    search.withdraw_what_changed();
    search.result()
}

/// A level that has been determined.
struct Level {
    /// One PE of each tested unit, in groups.
    asked: Vec<Vec<PeId>>,
    /// The same groups with all of their PEs.
    groups: Vec<CpuSet>,
    /// The probe used for the tests.
    probe: Probe,
}

struct Search<'a> {
    oracle: Oracle<'a>,
    reported: &'a Topology,
    levels: BTreeMap<DomainKind, Level>,
    caches: Caches,
    contradictions: u64,
    missing: Vec<Missing>,
}

impl Search<'_> {
    /// Looks for the groups of one kind and repeats this after contradictions.
    fn level(&mut self, kind: DomainKind) {
        let mut units = self.units(kind);
        let mut attempts = 0;
        let why = loop {
            match self.attempt(kind, &units) {
                Ok(level) => {
                    self.levels.insert(kind, level);
                    return;
                }
                Err(halt @ (Halt::Contradiction | Halt::Unclear { .. })) if attempts + 1 < ATTEMPTS => {
                    attempts += 1;
                    self.contradictions += u64::from(halt == Halt::Contradiction);
                }
                // From here on, leave out a PE that went offline.
                Err(Halt::Failed(error @ ExecutorError::Pe { pe, .. }))
                    if units.iter().any(|unit| unit.contains(pe)) =>
                {
                    units.iter_mut().for_each(|unit| unit.remove(pe));
                    units.retain(|unit| !unit.is_empty());
                    let what = format!("sharing of PE {pe}");
                    self.missing.push(Missing { what, why: error.to_string() });
                }
                Err(halt) => {
                    self.contradictions += u64::from(halt == Halt::Contradiction);
                    break reason(&halt);
                }
            }
        };
        self.give_up(kind, why);
    }

    /// Returns the units of a level: the groups of the level below, whose members certainly share this level,
    /// too.
    fn units(&self, kind: DomainKind) -> Vec<CpuSet> {
        let below: &[DomainKind] = match kind {
            DomainKind::Core => &[],
            DomainKind::Module | DomainKind::L2 => &[DomainKind::Core],
            DomainKind::L3 => &[DomainKind::L2, DomainKind::Core],
            DomainKind::L1
            | DomainKind::Cluster
            | DomainKind::Die
            | DomainKind::NumaNode
            | DomainKind::Package => unreachable!("{} is none of KINDS", kind.word()),
        };
        let judged = below.iter().find_map(|kind| self.levels.get(kind)).map(|level| level.groups.clone());
        judged.unwrap_or_else(|| self.reported.allowed.iter().map(CpuSet::single).collect())
    }

    /// Returns the confirmed partition of the units by one kind.
    fn attempt(&mut self, kind: DomainKind, units: &[CpuSet]) -> Result<Level, Halt> {
        let unit_of: BTreeMap<PeId, &CpuSet> =
            units.iter().filter_map(|unit| Some((unit.first()?, unit))).collect();
        let order = self.order(kind, unit_of.keys().copied());
        let load = self.load(kind, &order)?;
        let oracle = &mut self.oracle;
        let probe = Probe::new(oracle, load, &order)?;
        let asked = partition::partition(&order, &mut |pes| probe.slowed(oracle, pes))?;
        confirm(&asked, &probe, oracle)?;
        let whole = |group: &Vec<PeId>| group.iter().fold(CpuSet::new(), |all, pe| all.union(unit_of[pe]));
        let groups = asked.iter().map(whole).collect();
        Ok(Level { asked, groups, probe })
    }

    /// Returns the PEs with reported partners far apart: first one PE of each reported group, then another
    /// one of each.
    fn order(&self, kind: DomainKind, pes: impl Iterator<Item = PeId>) -> Vec<PeId> {
        let mut seen: BTreeMap<Option<u32>, u32> = BTreeMap::new();
        let rank = |pe| {
            let group = self.reported.domain_of(kind, pe).map(|domain| domain.logical);
            let rank = seen.entry(group).or_default();
            *rank += 1;
            (*rank, pe)
        };
        let mut ranked: Vec<(u32, PeId)> = pes.map(rank).collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, pe)| pe).collect()
    }

    /// Returns the load that shows whether PEs share a domain of this kind.
    fn load(&mut self, kind: DomainKind, pes: &[PeId]) -> Result<Load, Halt> {
        let kernel = match kind {
            DomainKind::Core => Kernel::IntAdd,
            DomainKind::Module => Kernel::FpDiv,
            DomainKind::L2 | DomainKind::L3 => Kernel::LoadLatency,
            DomainKind::L1
            | DomainKind::Cluster
            | DomainKind::Die
            | DomainKind::NumaNode
            | DomainKind::Package => unreachable!("{} is none of KINDS", kind.word()),
        };
        if !kernel.needs_region() {
            return Ok(Load { kernel, regions: BTreeMap::new(), window: WINDOW });
        }
        let regions = self.caches.regions(self.oracle.executor, self.reported, kind, pes)?;
        let loads = PASSES * regions.values().max().copied().unwrap_or(0) / 64;
        let window = WINDOW.max(LOAD_TIME.mul_f64(loads as f64));
        Ok(Load { kernel, regions, window })
    }

    /// Withdraws levels that two runs no longer confirm: one run of one PE of each group, which must be
    /// independent, and one of two PEs of each larger group, which must not be.
    fn withdraw_what_changed(&mut self) {
        let mut changed = Vec::new();
        for (&kind, level) in &self.levels {
            let of_each = |count: usize| -> Vec<PeId> {
                let groups = level.asked.iter().filter(|group| group.len() >= count);
                groups.flat_map(|group| group[..count].iter().copied()).collect()
            };
            for (pes, expected) in [(of_each(1), false), (of_each(2), true)] {
                let answers =
                    if pes.len() < 2 { Ok(Vec::new()) } else { level.probe.slowed(&mut self.oracle, &pes) };
                if answers.is_ok_and(|answers| answers.contains(&!expected)) {
                    changed.push(kind);
                }
            }
        }
        changed.dedup();
        for kind in changed {
            self.contradictions += 1;
            self.levels.remove(&kind);
            self.give_up(kind, reason(&Halt::Contradiction));
        }
    }

    fn result(self) -> Found {
        let mut discovery = Discovery {
            pair_measurements: self.oracle.pairs,
            group_measurements: self.oracle.groups,
            pair_equivalents: self.oracle.members.div_ceil(2),
            contradictions: self.contradictions,
            ..Discovery::default()
        };
        for (&kind, level) in &self.levels {
            let asked_and_whole = level.asked.iter().zip(&level.groups);
            // A domain with a single core is no module, however many PEs the core has.
            let is_shared = |(asked, whole): &(&Vec<PeId>, &CpuSet)| {
                whole.len() > 1 && (kind != DomainKind::Module || asked.len() > 1)
            };
            let mut shared: Vec<CpuSet> =
                asked_and_whole.filter(is_shared).map(|(_, whole)| whole.clone()).collect();
            shared.sort_by_key(CpuSet::first);
            let pes = level.groups.iter().fold(CpuSet::new(), |all, group| all.union(group));
            let reported = compare::groups(self.reported, kind, &pes);
            discovery.disagreements.extend(compare::disagreements(kind, &shared, &reported));
            discovery.groups.extend(shared.into_iter().map(|group| (kind, group)));
            discovery.looked_for.push(kind);
        }
        Found { discovery, missing: self.missing }
    }

    fn give_up(&mut self, kind: DomainKind, why: String) {
        let what = format!("which PEs share {}", compare::name(kind));
        self.missing.push(Missing { what, why });
    }
}

/// Confirms the groups: neighbours within a group slow each other down, members of different groups do not.
fn confirm(groups: &[Vec<PeId>], probe: &Probe, oracle: &mut Oracle<'_>) -> Result<(), Halt> {
    for pair in groups.iter().flat_map(|group| group.windows(2)) {
        if probe.slowed(oracle, pair)? != [true, true] {
            return Err(Halt::Contradiction);
        }
    }
    let firsts: Vec<PeId> = groups.iter().map(|group| group[0]).collect();
    match firsts.len() > 1 && probe.slowed(oracle, &firsts)?.contains(&true) {
        true => Err(Halt::Contradiction),
        false => Ok(()),
    }
}

/// Returns the reason for the user.
fn reason(halt: &Halt) -> String {
    match halt {
        Halt::Interrupted => "it was interrupted; run it again to the end".to_owned(),
        Halt::Failed(error) => error.to_string(),
        Halt::Contradiction => format!(
            "the answers contradict each other, though asked up to {ATTEMPTS} times: something else runs on \
             the machine, or the hypervisor moves virtual CPUs about; calibrate when it is quiet, or pin \
             them on the host"
        ),
        Halt::Unclear { noise } => format!(
            "the effect is too small for the noise ({:.0} %); calibrate when the machine is quiet",
            100.0 * noise
        ),
        Halt::NoCache { reported, seen } => {
            let seen: Vec<String> = seen.iter().map(|bytes| format!("{} KiB", bytes >> 10)).collect();
            let reported = reported.map_or("no size is reported".to_owned(), |bytes| {
                format!("the latency does not rise beyond the {} KiB that are reported", bytes >> 10)
            });
            format!("{reported}, and the latency shows no such level (it rises beyond: {})", seen.join(", "))
        }
    }
}
