//! Separates FPU-intensive threads: the placement of BulldOver.
//!
//! Problem: two floating-point threads on PEs that share an FPU slow each other down, while an integer thread
//! next to either of them costs little; the operating system does not know which thread is which.
//!
//! Approach (BulldOver §IV and §V.C): rank the FPU-intensive threads. With N units that share an FPU, bind
//! the first N threads to one unit each, the next N to the same units as second threads, and so on until each
//! unit has as many threads as PEs; leave the rest free. A thread is bound to all PEs of its unit that it may
//! use ("binds them on a per-module basis, instead of per-core"): the FPU is the same for each of them, and
//! the operating system can move the thread out of the way of others. Threads keep their units while their
//! rank permits (the paper's caching).
//!
//! A unit is the domain that shares an FPU: the module where cores share an FPU, else the SMT core. Where
//! there are neither, it is the cores of one L2, the other resource for which the paper finds such pairs to
//! compete. If no two allowed PEs share any of these and all are equally fast, there is nothing to gain and
//! nothing is bound. If all allowed PEs belong to one unit, each PE counts as a unit: threads are at least
//! kept from sharing a PE.
//!
//! Which unit (ours; the paper has one node and one kind of core): empty units before occupied ones, and
//! among these the fastest kind first. So no FPU-intensive thread is on a slow PE while a fast unit is free.
//! A fast unit with another FPU-intensive thread is not free: sharing it would slow both down. Among equal
//! units, the one in the package, node, L3, cluster and L2 with the fewest of these threads wins, as each has
//! its own bandwidth and capacity; then the one closest to where a waiting thread ran.
//!
//! Where the machine was measured, the units that remain are first narrowed to those on which the thread is
//! predicted to cost least ([`Seats`]): so two threads that need the same cache or channel get different
//! ones, although both units are as empty. Without measurements, or where nothing differs, the rule above
//! decides alone.
//!
//! The paper ranks by FPU usage. We rank by usage times the share of time in which the thread wants to run,
//! which is the number of FPU cycles that it really wants. For threads that run all the time, as in the
//! paper, the order is the same, and a thread that hardly runs does not take an FPU from one that does. (We
//! do not use the share of time that the thread *got*: that says more about its neighbours.) An assigned
//! thread gets a small bonus over its rivals, so that noise does not swap the two, and a thread that has just
//! got one of the best assignments stays in any case.
//!
//! Parameters: `runnable_share_min` and `hysteresis`, both ours.
//!
//! Limits: only FPU-intensive threads are considered, and neither the memory that threads of one process
//! share nor its location: a thread that moves to another node leaves its memory behind. How much slower a
//! kind is is not considered: if it is much slower than half as fast, a second thread on a fast unit would be
//! better.

use super::interface::{Policy, Scene, Subject};
use super::kind::{Parameters, PolicyKind};
use super::near::nearest;
use super::needs::{Needs, Reading};
use super::seats::{SAME, Seats};
use crate::classify::{FpuClass, known_fpu_usage};
use crate::cpuset::CpuSet;
use crate::plan::{Assignment, Placement};
use crate::topology::{Domain, DomainKind, Topology};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The registry entry.
pub const KIND: PolicyKind = PolicyKind {
    name: "spread",
    machine: "cores that share an FPU, SMT siblings, a shared L2; fast and slow PEs",
    rule: "FPU-intensive threads get a unit each (a module, core or L2, all its PEs), the fast ones first, \
        spread over nodes, L3 and clusters; then units take second ones",
    why: "threads that compute in floating point for much of their time (FPU-intensive ones) wait for each \
        other on one floating-point unit; apart, each has one to itself",
    source: "BulldOver §IV, §V.C",
    makes_claims: false,
    rest: None,
    make: |parameters| Box::new(Spread::new(parameters)),
};

/// The policy. It is stateless: the present assignments are part of the scene.
struct Spread {
    runnable_share_min: f64,
    hysteresis: f64,
}

impl Spread {
    fn new(parameters: &mut Parameters<'_>) -> Self {
        Self {
            runnable_share_min: parameters.share(
                "runnable_share_min",
                0.05,
                "a thread that wants a PE for less of the time is not bound, unless it is already (ours)",
            ),
            hysteresis: parameters.number(
                "hysteresis",
                0.25,
                0.0..=100.0,
                "",
                "by how much a rival's demand must exceed that of an assigned thread, relative, for each \
                    stage that the PEs are better (ours)",
            ),
        }
    }

    /// Returns the FPU-intensive threads that may be placed, the most demanding first.
    fn rank<'a>(&self, scene: &Scene<'a>, units: &Units<'_>) -> Vec<&'a Subject> {
        let intensive = scene.threads.iter().filter(|s| s.placeable && s.fpu_class == FpuClass::Intensive);
        let mut assigned: Vec<(usize, &Subject)> =
            intensive.clone().filter_map(|s| Some((units.unit_of(s.assignment.as_ref()?)?, s))).collect();
        // Threads gain nothing by changing places within their unit: order these by demand.
        assigned.sort_by(|(a_unit, a), (b_unit, b)| {
            a_unit.cmp(b_unit).then(demand(b).total_cmp(&demand(a))).then(a.view.thread.cmp(&b.view.thread))
        });
        let stages = units.stages();
        let mut bonuses = BTreeMap::new();
        for unit in assigned.chunk_by(|(a, _), (b, _)| a == b) {
            for (before, (unit, subject)) in unit.iter().enumerate() {
                let stage = Stage { before, kind: units.list[*unit].kind };
                let worse = stages.iter().filter(|other| **other >= stage).count();
                bonuses.insert(subject.view.thread, self.hysteresis * worse as f64);
            }
        }
        let mut ranked: Vec<(f64, &Subject)> = Vec::new();
        for subject in intensive {
            let bonus = bonuses.get(&subject.view.thread).copied();
            if subject.view.runnable_share >= self.runnable_share_min || bonus.is_some() {
                ranked.push((demand(subject) * (1.0 + bonus.unwrap_or(0.0)), subject));
            }
        }
        ranked.sort_by(|(a_demand, a), (b_demand, b)| {
            b_demand.total_cmp(a_demand).then(a.view.thread.cmp(&b.view.thread))
        });
        ranked.into_iter().map(|(_, subject)| subject).collect()
    }
}

impl Policy for Spread {
    fn name(&self) -> &str {
        KIND.name
    }

    fn needs(&self) -> Needs {
        Needs { required: &[Reading::FpuUsage], ..Needs::NONE }
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let Some(mut units) = Units::of(scene) else {
            let reason = "no two allowed PEs share an FPU, an SMT core or an L2 cache, and all are equally \
                fast, so keeping FPU-intensive threads apart gains nothing";
            return Placement::without_gain(reason);
        };
        let mut placement = residents(scene, &mut units);
        let ranked = self.rank(scene, &units);
        let total = ranked.len();
        let mut waiting: Vec<Ranked<'_>> = ranked.into_iter().enumerate().collect();
        waiting.retain(|(_, subject)| !placement.bound.contains_key(&subject.view.thread));
        for stage in units.stages() {
            waiting = fill(&mut units, stage, waiting, total, &mut placement);
        }
        placement
    }
}

/// A thread with its place in the ranking.
type Ranked<'a> = (usize, &'a Subject);

/// A stage of assignment: first or further threads on units of one kind, where 0 is the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stage {
    before: usize,
    kind: usize,
}

/// Keeps the assignments of recently bound threads, whatever the noise of one interval says, unless there are
/// better ones: a thread that shares a unit or is on a slower kind may leave as soon as another unit is free.
fn residents(scene: &Scene<'_>, units: &mut Units<'_>) -> Placement {
    let mut placement = Placement::default();
    for subject in scene.threads.iter().filter(|s| s.resident && s.placeable) {
        let thread = subject.view.thread;
        if let Some(assignment) = &subject.assignment
            && let Some(unit) = units.unit_of(assignment)
            && (units.list[unit].kind, units.list[unit].threads) == (0, 0)
            && assignment.pes.is_subset(&subject.view.permitted)
            && assignment.pes.is_subset(scene.allowed)
        {
            units.take(unit, subject, &assignment.pes);
            placement.bound.insert(thread, assignment.clone());
        }
    }
    placement
}

/// Returns the FPU cycles that a thread wants, as a share of all cycles.
fn demand(subject: &Subject) -> f64 {
    let usage = known_fpu_usage(&subject.view.usage).map_or(0.0, |estimate| estimate.value);
    usage * subject.view.runnable_share
}

/// Gives the assignments of one stage to the best-ranked waiting threads; returns the threads that got none.
fn fill<'a>(
    units: &mut Units<'_>,
    stage: Stage,
    waiting: Vec<Ranked<'a>>,
    total: usize,
    placement: &mut Placement,
) -> Vec<Ranked<'a>> {
    let mut open = units.open(stage);
    let pes = units.pes_of(&open);
    let mut assignments = open.len();
    let (members, mut left): (Vec<Ranked<'a>>, Vec<Ranked<'a>>) = waiting.into_iter().partition(|(_, s)| {
        let member = assignments > 0 && s.view.permitted.intersects(&pes);
        assignments -= usize::from(member);
        member
    });
    // Threads that are in a unit of this stage keep it before others choose.
    let mut standing = Vec::new();
    for (rank, subject) in members {
        let assignment = subject.assignment.as_ref();
        let own =
            assignment.and_then(|assignment| units.unit_of(assignment)).filter(|own| open.contains(own));
        match own.filter(|own| subject.view.permitted.intersects(&units.list[*own].pes)) {
            Some(own) => units.assignment(own, (rank, subject), total, &mut open, placement),
            None => standing.push((rank, subject)),
        }
    }
    while let Some((index, unit)) = units.best(&open, &standing) {
        let member = standing.remove(index);
        units.assignment(unit, member, total, &mut open, placement);
    }
    left.extend(standing);
    left.sort_by_key(|(rank, _)| *rank);
    left
}

/// The allowed PEs, grouped by the unit whose FPU they share.
struct Units<'a> {
    kind: DomainKind,
    list: Vec<Unit>,
    /// For each PE, by OS index, its unit and the domains around it.
    unit_by_pe: Vec<Option<usize>>,
    around: Vec<Vec<&'a Domain>>,
    /// For each kind of domain larger than the units, the largest first: the index in the topology of the
    /// domain that contains a PE, by OS index.
    larger: Vec<Vec<Option<usize>>>,
    /// The number of threads assigned within each domain of the topology.
    assigned: Vec<usize>,
    /// What further threads cost; `None` on a machine that was not measured.
    seats: Option<Seats<'a>>,
}

/// PEs of one kind that share an FPU.
struct Unit {
    pes: CpuSet,
    /// The kind of its PEs; 0 is the fastest allowed one.
    kind: usize,
    /// For each larger kind of domain, the largest first: the index in the topology of the domain that
    /// contains the unit.
    within: Vec<Option<usize>>,
    threads: usize,
}

/// Returns for each kind of domain larger than `kind`, the largest first, the index of the domain that
/// contains a PE. `none` stands for PEs without one.
fn larger(topology: &Topology, kind: DomainKind, none: &[Option<usize>]) -> Vec<Vec<Option<usize>>> {
    let mut larger = BTreeMap::new();
    for (place, domain) in topology.domains.iter().enumerate().filter(|(_, domain)| domain.kind > kind) {
        let holders = larger.entry(Reverse(domain.kind)).or_insert_with(|| none.to_vec());
        domain.pes.iter().for_each(|pe| holders[pe.0 as usize] = Some(place));
    }
    larger.into_values().collect()
}

impl<'a> Units<'a> {
    fn of(scene: &Scene<'a>) -> Option<Units<'a>> {
        let (topology, allowed) = (&scene.machine.topology, scene.allowed);
        let shared = |kind: &DomainKind| {
            topology.domains(*kind).any(|domain| domain.pes.intersection(allowed).len() > 1)
        };
        let mut kinds: Vec<CpuSet> =
            topology.kinds.iter().map(|kind| kind.pes.intersection(allowed)).collect();
        kinds.retain(|pes| !pes.is_empty());
        if kinds.is_empty() {
            kinds.push(allowed.clone());
        }
        let kind = [DomainKind::Module, DomainKind::Core, DomainKind::L2].into_iter().find(shared);
        let kind = kind.or((kinds.len() > 1).then_some(DomainKind::Core))?;
        let by_pe = vec![None; topology.pes.last().map_or(0, |pe| pe.0 as usize + 1)];
        let mut units = Units {
            kind,
            list: Vec::new(),
            larger: larger(topology, kind, &by_pe),
            unit_by_pe: by_pe,
            around: topology.domains_by_pe(),
            assigned: vec![0; topology.domains.len()],
            seats: Seats::of(scene),
        };
        let mut alone = allowed.clone();
        for domain in topology.domains(kind) {
            alone = alone.difference(&domain.pes);
            units.add(&kinds, &domain.pes);
        }
        if let [only] = units.list.as_slice() {
            alone = alone.union(&only.pes);
            units.list.clear();
        }
        alone.iter().for_each(|pe| units.add(&kinds, &CpuSet::single(pe)));
        Some(units)
    }

    /// Adds the PEs of one domain: one unit for each kind of PE among them.
    fn add(&mut self, kinds: &[CpuSet], pes: &CpuSet) {
        for (kind, of_kind) in kinds.iter().enumerate() {
            let pes = pes.intersection(of_kind);
            let Some(first) = pes.first() else { continue };
            for pe in pes.iter() {
                self.unit_by_pe[pe.0 as usize] = Some(self.list.len());
            }
            let holder = |of_kind: &Vec<Option<usize>>| of_kind[first.0 as usize];
            let within = self.larger.iter().map(holder).collect();
            self.list.push(Unit { pes, kind, within, threads: 0 });
        }
    }

    /// Returns the unit of an assignment.
    fn unit_of(&self, assignment: &Assignment) -> Option<usize> {
        *self.unit_by_pe.get(assignment.pes.first()?.0 as usize)?
    }

    /// Returns every stage, in order of assignment.
    fn stages(&self) -> Vec<Stage> {
        let assignments = |unit: &Unit| {
            let kind = unit.kind;
            (0..unit.pes.len()).map(move |before| Stage { before, kind })
        };
        let mut stages: Vec<Stage> = self.list.iter().flat_map(assignments).collect();
        stages.sort();
        stages.dedup();
        stages
    }

    /// Returns the units that have an assignment left in a stage.
    fn open(&self, stage: Stage) -> Vec<usize> {
        let is_open = |unit: &Unit| {
            unit.kind == stage.kind && unit.threads == stage.before && unit.threads < unit.pes.len()
        };
        (0..self.list.len()).filter(|&unit| is_open(&self.list[unit])).collect()
    }

    fn pes_of(&self, units: &[usize]) -> CpuSet {
        units.iter().flat_map(|&unit| self.list[unit].pes.iter()).collect()
    }

    fn take(&mut self, unit: usize, subject: &Subject, pes: &CpuSet) {
        self.seats.iter_mut().for_each(|seats| seats.take(subject, pes));
        self.list[unit].threads += 1;
        for &domain in self.list[unit].within.iter().flatten() {
            self.assigned[domain] += 1;
        }
    }

    /// Returns the next assignment and its thread. If the best-ranked thread is predicted to cost less on
    /// some units than on others, it gets one of these.
    fn best(&mut self, open: &[usize], standing: &[Ranked<'_>]) -> Option<(usize, usize)> {
        match self.cheapest(open, standing) {
            Some(cheapest) => self.nearest(&cheapest, &standing[..1]),
            None => self.nearest(open, standing),
        }
    }

    /// Returns the units on which the best-ranked thread costs least; `None` if it costs the same on all.
    fn cheapest(&mut self, open: &[usize], standing: &[Ranked<'_>]) -> Option<Vec<usize>> {
        let Units { list, seats, .. } = self;
        let (_, subject) = standing.first()?;
        let may_use = |unit: &usize| list[*unit].pes.intersects(&subject.view.permitted);
        let usable: Vec<usize> = open.iter().copied().filter(may_use).collect();
        let seats = seats.as_mut().filter(|_| usable.len() > 1)?;
        let pes = |unit: usize| list[unit].pes.intersection(&subject.view.permitted);
        let costs: Vec<f64> = usable.iter().map(|&unit| seats.cost(subject, &pes(unit))).collect();
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let is_cheap = |(_, cost): &(usize, f64)| *cost <= least + SAME;
        let cheapest: Vec<usize> =
            usable.iter().copied().zip(costs).filter(is_cheap).map(|(unit, _)| unit).collect();
        (cheapest.len() < usable.len()).then_some(cheapest)
    }

    /// Returns the next assignment and its thread: among the units in the emptiest domains, the one closest
    /// to a thread.
    fn nearest(&self, open: &[usize], standing: &[Ranked<'_>]) -> Option<(usize, usize)> {
        let load = |place: usize| {
            let unit = &self.list[place];
            unit.within.iter().map(|domain| domain.map_or(unit.threads, |domain| self.assigned[domain]))
        };
        let mut open = open.to_vec();
        while let Some(emptiest) = open.iter().copied().min_by(|a, b| load(*a).cmp(load(*b))) {
            let (units, others): (Vec<usize>, Vec<usize>) =
                open.into_iter().partition(|&unit| load(unit).eq(load(emptiest)));
            let subjects = standing.iter().map(|(_, subject)| *subject);
            if let Some((index, pe)) = nearest(&self.around, &self.pes_of(&units), subjects) {
                return Some((index, self.unit_by_pe[pe.0 as usize]?));
            }
            open = others;
        }
        None
    }

    /// Assigns a unit to a thread and closes the unit.
    fn assignment(
        &mut self,
        unit: usize,
        (rank, subject): Ranked<'_>,
        total: usize,
        open: &mut Vec<usize>,
        placement: &mut Placement,
    ) {
        let pes = self.list[unit].pes.intersection(&subject.view.permitted);
        let present = subject.assignment.as_ref().filter(|assignment| assignment.pes == pes);
        let reason = || self.reason(subject, rank, total, unit);
        let new = || Assignment { reason: reason().into(), pes: pes.clone() };
        let assignment = present.cloned().unwrap_or_else(new);
        self.take(unit, subject, &pes);
        open.retain(|&other| other != unit);
        placement.bound.insert(subject.view.thread, assignment);
    }

    fn reason(&self, subject: &Subject, rank: usize, total: usize, unit: usize) -> String {
        let Unit { pes, threads, .. } = &self.list[unit];
        let kind = match self.kind {
            DomainKind::Module => "FPU module",
            DomainKind::Core => "core",
            DomainKind::L2 => "L2 domain",
            DomainKind::L1
            | DomainKind::Cluster
            | DomainKind::L3
            | DomainKind::Die
            | DomainKind::NumaNode
            | DomainKind::Package => self.kind.word(),
        };
        let estimate = known_fpu_usage(&subject.view.usage);
        let (usage, confidence) = estimate.map_or((0.0, 0.0), |e| (e.value, e.confidence));
        format!(
            "FPU usage {usage:.2} (confidence {confidence:.2}), rank {} of {total} FPU-intensive threads: \
             number {} of them on the {kind} of PEs {pes}, one of {}",
            rank + 1,
            threads + 1,
            self.list.len(),
        )
    }
}
