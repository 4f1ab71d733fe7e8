//! Discovery: which PEs share a core, an FPU, an L2, an L3, by how they behave and not by what is reported.
//!
//! Problem: a hypervisor shows flat machines whose PEs are SMT siblings, or a topology that is not the
//! host's. Whether two PEs share something shows when both use it: they are slowed. Measuring all n²/2 pairs
//! several times takes hours on a large machine.
//!
//! Approach. "Shares this resource" is an equivalence relation, so finding it is to partition the PEs:
//!
//! | level  | both run                              | among one PE of each     |
//! | ------ | ------------------------------------- | ------------------------ |
//! | core   | integer additions                     | (all PEs)                |
//! | module | floating-point divisions              | core                     |
//! | L2, L3 | dependent loads, ¾ of the cache each  | core, L2                 |
//!
//! Domains nest, so a level looks at one PE of each group of a level below, which is what tells a shared FPU
//! from a shared core. Dependent loads, because their time multiplies when a region no longer fits while
//! they ask for little bandwidth, which other PEs share too. [`partition`] asks sets of PEs at once and needs
//! O(n log n) of them for any sizes and any numbering; [`probe`] makes each answer sure in spite of noise;
//! [`caches`] finds the regions. The sharing that is reported is only used to choose the order of the
//! questions: reported partners are put far apart, so that if it is right, few are needed.
//!
//! At the end each group is confirmed, pair by pair, and the independence of the groups by one run of one PE
//! of each. Who passes both is exactly right as far as the answers are. A contradiction is counted and the
//! level is asked again from its baselines on, as it is after an unclear answer. After [`ATTEMPTS`] it is
//! given up. When all levels are done, two runs each show whether it is still so; if not, it is taken back.
//! A hypervisor that moves its virtual CPUs about shows in both ways, and there is no answer then.
//!
//! Limits: those of [`probe`] and [`caches`]. PEs that share the FPU *and* integer units are a core. The
//! module level asks for an FPU that one thread of divisions saturates.

mod caches;
mod compare;
mod partition;
mod probe;

use super::{Executor, ExecutorError, Kernel};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::profile::{Discovery, Missing};
use crate::topology::{DomainKind, Topology};
use caches::Caches;
use probe::{Load, Oracle, Probe};
use std::collections::BTreeMap;
use std::time::Duration;

pub use compare::groups;

/// The kinds of domain that discovery looks for, in order.
pub const KINDS: [DomainKind; 4] = [DomainKind::Core, DomainKind::Module, DomainKind::L2, DomainKind::L3];

/// How often a level is asked before contradictions or unclear answers are the last word.
const ATTEMPTS: u32 = 3;

/// How long one repetition takes at least.
const WINDOW: Duration = Duration::from_millis(10);

/// Time for a load that misses, and how often a region is gone through in one repetition: twice, so that it
/// is fetched again after it was driven out.
const LOAD_TIME: Duration = Duration::from_nanos(100);
const PASSES: u64 = 2;

/// What a discovery found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The groups, and what they cost.
    pub discovery: Discovery,
    /// The kinds that could not be judged, and the PEs that went away.
    pub missing: Vec<Missing>,
}

/// Why questions end without an answer.
#[derive(Debug, Clone, PartialEq)]
enum Halt {
    /// The user wants no more.
    Interrupted,
    /// The machine could not do what was asked.
    Failed(ExecutorError),
    /// Answers that no partition fits.
    Contradiction,
    /// Slowdowns too small for the noise (a standard deviation).
    Unclear { noise: f64 },
    /// No such level shows in the latency.
    NoCache { reported: Option<u64>, seen: Vec<u64> },
}

/// Finds out what the allowed PEs of a machine share. `reported` serves to be compared with, and as a first
/// guess of cache sizes, which is checked.
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

/// A level that was judged.
struct Level {
    /// One PE of each unit that was asked, in groups.
    asked: Vec<Vec<PeId>>,
    /// The same groups with all of their PEs.
    groups: Vec<CpuSet>,
    /// How they were asked.
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
    /// Looks for the groups of one kind, again if the answers contradict each other.
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
                // A PE that went away is left out from here on.
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

    /// What a level is asked about: the groups of the level below whose members surely share this one too.
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

    /// The partition of the units by one kind, confirmed.
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

    /// The PEs with reported partners far apart: first one PE of each reported group, then another one of
    /// each.
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

    /// What the PEs run to show whether they share a domain of this kind.
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

    /// Takes the levels back of which two runs do not show the same any more: one PE of each group, who must
    /// be independent, and two of each larger group, who must not.
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
            // A module of a single core is no module, however many PEs the core has.
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

/// Asks again what the groups say: neighbours within a group slow each other, members of different ones not.
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

/// What is reported to the user.
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
