//! FPU-intensive threads apart: the placement of BulldOver.
//!
//! Problem: two floating-point threads on PEs that share an FPU slow each other down, while an integer thread
//! beside either of them costs little; the operating system does not know which thread is which.
//!
//! Approach (BulldOver §IV and §V.C): rank the FPU-intensive threads. With N FPU-sharing domains, bind the
//! first N to the first PE of one domain each, the next N to the second PEs, and so on; leave the rest free.
//! A thread that stays within its group keeps its PE (the paper's caching). Where a thread has to be given a
//! PE, it gets the free one closest to where it ran, so that caches and memory stay near.
//!
//! A domain is what the FPU is shared in: the module where cores share an FPU, else the SMT core; where there
//! are neither, the cores of one L2, the other resource that the paper finds such pairs to fight for. Where
//! no two allowed PEs share any of these, there is nothing to gain and nothing is bound.
//!
//! The paper ranks by FPU usage. We rank by usage times the share of time in which the thread wants to run,
//! the FPU cycles that it really wants: for threads that run all the time (the paper's) it is the same order,
//! and a thread that hardly runs takes no FPU from one that does. (Not the share of time that it *got*: that
//! tells more about its neighbours.) A seated thread counts a little more than its rival, so that
//! noise does not swap the two, and one that was seated a moment ago stays in any case.
//!
//! Limits: the policy looks at FPU demand only, not at the caches or the memory node that threads of one
//! process share; it takes all PEs for equally fast.

use super::near::{by_core, closest};
use super::{Policy, Scene, Subject};
use crate::classify::{FpuClass, known_fpu_usage};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::plan::{Placement, Seat};
use crate::topology::{Domain, DomainKind, Topology};

/// A thread that wants a PE for less of the time than this takes no place, unless it has one already.
const RUNNABLE_SHARE_MIN: f64 = 0.05;

/// By how much a rival's demand must exceed that of a seated thread to take its place, per group that the
/// place is better.
const SEAT_BONUS: f64 = 0.25;

/// The policy. It has no state: where threads sit now is part of the scene.
#[derive(Debug, Clone, Copy)]
pub struct Spread;

impl Policy for Spread {
    fn name(&self) -> &'static str {
        "spread"
    }

    fn needs_fpu_usage(&self) -> bool {
        true
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let Some(mut units) = Units::of(scene.topology, scene.allowed) else {
            let reason = "no two allowed PEs share an FPU, an SMT core or an L2 cache, \
                so keeping FPU-intensive threads apart gains nothing";
            return Placement::without_gain(reason);
        };
        units.put_demanding_first(scene);
        let mut placement = residents(scene);
        let ranked = rank(scene, &units);
        let total = ranked.len();
        let unseated = ranked.into_iter().enumerate();
        let mut waiting: Vec<(usize, &Subject)> =
            unseated.filter(|(_, subject)| !placement.bound.contains_key(&subject.view.thread)).collect();
        for group in 0..units.groups() {
            waiting = seat_group(scene, &units, group, waiting, total, &mut placement);
        }
        placement
    }
}

/// Those who were seated a moment ago keep their seats, whatever the noise of one interval says.
fn residents(scene: &Scene<'_>) -> Placement {
    let mut placement = Placement::default();
    for subject in scene.threads.iter().filter(|s| s.resident && s.placeable) {
        let thread = subject.view.thread;
        if let Some(seat) = scene.present.bound.get(&thread)
            && seat.pes.is_subset(&subject.view.permitted)
            && seat.pes.is_subset(scene.allowed)
        {
            placement.bound.insert(thread, seat.clone());
        }
    }
    placement
}

/// The FPU-intensive threads that may be placed, most demanding first.
fn rank<'a>(scene: &Scene<'a>, units: &Units<'_>) -> Vec<&'a Subject> {
    let groups = units.groups();
    let group_of = units.group_by_pe();
    let seat_bonus = |subject: &Subject| {
        let seat = scene.present.bound.get(&subject.view.thread).and_then(|seat| seat.pes.first());
        let group = seat.and_then(|pe| *group_of.get(pe.0 as usize)?);
        group.map(|group| SEAT_BONUS * (groups - group) as f64)
    };
    let mut ranked: Vec<(f64, &Subject)> = Vec::new();
    for subject in scene.threads.iter().filter(|s| s.placeable && s.fpu_class == FpuClass::Intensive) {
        let bonus = seat_bonus(subject);
        if subject.view.runnable_share >= RUNNABLE_SHARE_MIN || bonus.is_some() {
            ranked.push((demand(subject) * (1.0 + bonus.unwrap_or(0.0)), subject));
        }
    }
    ranked.sort_by(|(a_demand, a), (b_demand, b)| {
        b_demand.total_cmp(a_demand).then(a.view.thread.cmp(&b.view.thread))
    });
    ranked.into_iter().map(|(_, subject)| subject).collect()
}

/// The FPU cycles that a thread wants, as a share of all cycles.
fn demand(subject: &Subject) -> f64 {
    let usage = known_fpu_usage(&subject.view.usage).map_or(0.0, |estimate| estimate.value);
    usage * subject.view.runnable_share
}

/// Gives the PEs of one group to the best-ranked waiting threads; returns those that got none.
fn seat_group<'a>(
    scene: &Scene<'_>,
    units: &Units<'_>,
    group: usize,
    waiting: Vec<(usize, &'a Subject)>,
    total: usize,
    placement: &mut Placement,
) -> Vec<(usize, &'a Subject)> {
    let taken = placement.bound.values().fold(CpuSet::new(), |taken, seat| taken.union(&seat.pes));
    let group_pes = units.group(group).difference(&taken);
    let mut free = group_pes.clone();
    let could_sit = |subject: &Subject| subject.view.permitted.intersects(&group_pes);
    let (members, mut left): (Vec<_>, Vec<_>) = {
        let mut seats = group_pes.len();
        waiting.into_iter().partition(|(_, subject)| {
            let member = seats > 0 && could_sit(subject);
            seats -= usize::from(member);
            member
        })
    };
    // Those who sit in this group already keep their PE before anybody else chooses.
    let mut standing = Vec::new();
    for (rank, subject) in members {
        let seat = scene.present.bound.get(&subject.view.thread);
        match seat.filter(|seat| seat.pes.is_subset(&free) && seat.pes.is_subset(&subject.view.permitted)) {
            Some(seat) => {
                free = free.difference(&seat.pes);
                placement.bound.insert(subject.view.thread, seat.clone());
            }
            None => standing.push((rank, subject)),
        }
    }
    for (rank, subject) in standing {
        let open = free.intersection(&subject.view.permitted);
        let Some(pe) = closest(&units.around, &open, subject.view.last_pe) else {
            left.push((rank, subject));
            continue;
        };
        free.remove(pe);
        let reason = units.reason(subject, rank, total, group, pe);
        placement.bound.insert(subject.view.thread, Seat { pes: CpuSet::single(pe), reason });
    }
    left.sort_by_key(|(rank, _)| *rank);
    left
}

/// The allowed PEs by the unit whose FPU they share.
struct Units<'a> {
    kind: DomainKind,
    /// Per unit its allowed PEs, those on different cores first.
    pes: Vec<Vec<PeId>>,
    /// Per PE the domains around it.
    around: Vec<Vec<&'a Domain>>,
}

impl<'a> Units<'a> {
    fn of(topology: &'a Topology, allowed: &CpuSet) -> Option<Units<'a>> {
        let shared = |kind: &DomainKind| {
            topology.domains(*kind).any(|domain| domain.pes.intersection(allowed).len() > 1)
        };
        let kind = [DomainKind::Module, DomainKind::Core, DomainKind::L2].into_iter().find(shared)?;
        let around = topology.domains_by_pe();
        let mut alone = allowed.clone();
        let mut pes = Vec::new();
        for domain in topology.domains(kind) {
            let members = domain.pes.intersection(allowed);
            alone = alone.difference(&members);
            if !members.is_empty() {
                pes.push(by_core(&around, &members));
            }
        }
        pes.extend(alone.iter().map(|pe| vec![pe]));
        Some(Units { kind, pes, around })
    }

    /// Counts as first PE of a unit the one whose thread wants most: threads that share a unit anyway never
    /// gain by changing places within it. The order of empty PEs stays.
    fn put_demanding_first(&mut self, scene: &Scene<'_>) {
        let mut demand_on = vec![-1.0; self.around.len()];
        for subject in scene.threads.iter().filter(|s| s.placeable) {
            let seat = scene.present.bound.get(&subject.view.thread);
            for pe in seat.into_iter().flat_map(|seat| seat.pes.iter()) {
                if let Some(slot) = demand_on.get_mut(pe.0 as usize) {
                    *slot = demand(subject);
                }
            }
        }
        let on = |pe: &PeId| demand_on.get(pe.0 as usize).copied().unwrap_or(-1.0);
        for unit in &mut self.pes {
            unit.sort_by(|a, b| on(b).total_cmp(&on(a)));
        }
    }

    /// The largest number of PEs in a unit: so many groups of threads can be seated.
    fn groups(&self) -> usize {
        self.pes.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The PEs of one group: the `group`-th of every unit that has so many.
    fn group(&self, group: usize) -> CpuSet {
        self.pes.iter().filter_map(|unit| unit.get(group).copied()).collect()
    }

    /// The group of each PE, by OS index.
    fn group_by_pe(&self) -> Vec<Option<usize>> {
        let mut groups = vec![None; self.around.len()];
        for unit in &self.pes {
            for (group, pe) in unit.iter().enumerate() {
                if let Some(slot) = groups.get_mut(pe.0 as usize) {
                    *slot = Some(group);
                }
            }
        }
        groups
    }

    fn reason(&self, subject: &Subject, rank: usize, total: usize, group: usize, pe: PeId) -> String {
        let mut around = self.around.get(pe.0 as usize).into_iter().flatten();
        let unit = around.find(|domain| domain.kind == self.kind).map(|domain| &domain.pes);
        let kind = match self.kind {
            DomainKind::Module => "FPU module",
            DomainKind::Core => "SMT core",
            _ => "L2 domain",
        };
        let unit = unit.map_or("a unit of its own".to_owned(), |pes| format!("the {kind} of PEs {pes}"));
        let estimate = known_fpu_usage(&subject.view.usage);
        let (usage, confidence) = estimate.map_or((0.0, 0.0), |e| (e.value, e.confidence));
        format!(
            "FPU usage {usage:.2} (confidence {confidence:.2}), rank {} of {total} FPU-intensive threads: \
             PE number {} in {unit}, one of {}",
            rank + 1,
            group + 1,
            self.pes.len(),
        )
    }
}
