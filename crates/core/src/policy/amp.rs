//! Fast and slow PEs: the common part of the policies for asymmetric machines.
//!
//! Problem: a scheduler of the parallelism-aware paper (Saez et al., CF'10, §2) decides at every tick and
//! wake-up which threads run on the few fast PEs; we decide once per step and can only bind.
//!
//! Approach: a policy ranks the runnable threads, and the best get one fast PE each until these are full. A
//! thread among the best that is already on a fast PE keeps it, even if the operating system put it there,
//! and among equals those on a fast PE come first. So a step moves no thread unnecessarily ("avoid
//! cross-domain migrations whenever possible", §3.4), and a change is a swap: one thread leaves a fast PE and
//! another takes its place in the same step (the swapping mechanism of §2.1). Among equals on slow PEs and
//! the free fast PEs, the pair that shares most is matched first, so that a promoted thread stays within its
//! last-level cache if possible (the topology-awareness of §3.4). The threads below a cache that has both
//! kinds of PEs settle their order among themselves: only a better claim, or a fast PE that nobody there
//! wants, takes a thread to another cache ([`Candidate::claim`]). Each fast SMT core gets one thread before
//! any gets a second one. Which of the fast PEs of one last-level cache a thread runs on makes no difference
//! to these policies, so it is bound to all of them: a mask is as wide as the policy's meaning permits. While
//! every fast PE is taken, the other threads may be kept on the slow PEs; within those the operating system
//! chooses. While a fast PE is free, no thread is kept away from it.
//!
//! Not every runnable thread has a claim. The threads of a highly parallel application are not bound one by
//! one: the system spreads them at least as well, and its barriers wait for the slowest thread anyway. Such
//! threads get a fast PE only where the system might leave one idle, because fewer threads want a PE than
//! there are. How a claim is enforced, and what it leaves to the others, is said in [`super::claims`].
//!
//! The fast PEs are those of the fastest kind, the slow ones all others (§2.1 assumes two kinds). With more
//! runnable threads than PEs each fast PE takes its fair number of them, "to preserve load balance" (§2.1).
//!
//! Limits: nothing is decided between two steps. A fast PE whose thread blocks stays idle until the next step
//! if the other threads are kept away from it, and a sequential phase shorter than a step goes unseen. A
//! shorter interval comes closer to the paper's ticks. Threads that corewise may not place are not counted
//! against a PE.

use super::claims;
use super::claims::Claims;
use super::interface::{Scene, Subject};
use super::near::{Pairing, siblings};
use crate::cpuset::CpuSet;
use crate::ids::{PeId, ThreadId};
use crate::plan::{Assignment, Placement, SettingKind, WantedSetting};
use crate::topology::{Domain, DomainKind};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

/// The allowed fast and slow PEs.
pub struct Amp {
    fast: CpuSet,
    slow: CpuSet,
    /// The fast PEs to which no thread is bound: threads that run there are free.
    unclaimed: CpuSet,
    /// The fast PEs of each last-level cache.
    by_cache: Vec<CpuSet>,
    homes: Vec<Home>,
}

/// A last-level cache with fast and slow PEs.
struct Home {
    pes: CpuSet,
    /// The number of its fast PEs.
    fast: usize,
}

/// A runnable thread that may be placed, and the reason for its rank. The lowest claim comes first, and among
/// equal claims the lowest order; candidates that are equal in both are equally entitled to a fast PE.
pub struct Candidate<'a, C, O, W> {
    /// The best claims have the fast PEs, whichever caches these are below.
    pub claim: C,
    /// The order among equal claims below one cache with fast and slow PEs: no thread leaves such a cache
    /// for it, while that has a fast PE for it.
    pub order: O,
    /// Whether it comes before others on a fast PE. If not, it only takes what they leave idle.
    pub has_claim: bool,
    pub subject: &'a Subject,
    /// Formatted only for threads with a new assignment.
    pub reason: W,
}

/// A candidate with the fast PE that it is on, if any, and its assignment.
struct Ranked<'a, C, O, W> {
    candidate: Candidate<'a, C, O, W>,
    fast_pe: Option<PeId>,
    /// Whether it is among the best below its cache, which has a fast PE for it.
    is_best_at_home: bool,
    assignment: Option<Assignment>,
}

/// What happens to the threads that get no fast PE.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// They may run anywhere, and no claim is enforced.
    Free,
    /// They come after those with a claim, by [`Claims`]: kept on the slow PEs by masks, or lighter.
    After,
}

impl Amp {
    /// Returns the allowed fast and slow PEs. If either is missing, returns a placement that says so.
    pub fn of(scene: &Scene<'_>) -> Result<Amp, Placement> {
        let kinds = &scene.machine.topology.kinds;
        let fast = kinds.first().map_or(CpuSet::new(), |kind| kind.pes.intersection(scene.allowed));
        let slow = scene.allowed.difference(&fast);
        if kinds.len() > 1 && !fast.is_empty() && !slow.is_empty() {
            let mut unclaimed = fast.clone();
            for assignment in scene.threads.iter().filter_map(|subject| subject.assignment.as_ref()) {
                if assignment.pes.intersects(&unclaimed) && assignment.pes.is_subset(&fast) {
                    unclaimed = unclaimed.difference(&assignment.pes);
                }
            }
            let caches = scene.machine.topology.domains(DomainKind::L3);
            let mut by_cache: Vec<CpuSet> = caches.map(|cache| cache.pes.intersection(&fast)).collect();
            let cached = by_cache.iter().fold(CpuSet::new(), |all, pes| all.union(pes));
            by_cache.push(fast.difference(&cached));
            let homes = scene.machine.topology.domains(DomainKind::L3).filter_map(|cache| {
                let fast = cache.pes.intersection(&fast).len();
                let has_both = fast > 0 && cache.pes.intersects(&slow);
                has_both.then(|| Home { pes: cache.pes.clone(), fast })
            });
            let homes = homes.collect();
            return Ok(Amp { fast, slow, unclaimed, by_cache, homes });
        }
        let why = match kinds.as_slice() {
            [] => "nothing is known about the speed of the PEs".to_owned(),
            [only] if only.name == "unknown" => {
                "the sources for the speed of the PEs contradict each other".to_owned()
            }
            [_] => "all PEs are equally fast".to_owned(),
            _ => format!("the PEs that may be used ({}) are all of one kind", scene.allowed),
        };
        Err(Placement::without_gain(format!("{why}, so no thread gains from another kind of PE")))
    }

    /// Returns the number of fast PEs.
    pub fn fast_pes(&self) -> usize {
        self.fast.len()
    }

    /// Returns whether a thread is on a fast PE: bound to one, or free and last seen on one to which no
    /// thread is bound.
    pub fn on_fast(&self, subject: &Subject) -> bool {
        self.fast_pe_of(subject).is_some()
    }

    fn fast_pe_of(&self, subject: &Subject) -> Option<PeId> {
        match &subject.assignment {
            Some(assignment) if assignment.pes.is_subset(&self.fast) => {
                let last = subject.view.last_pe.filter(|pe| assignment.pes.contains(*pe));
                last.or_else(|| assignment.pes.first())
            }
            Some(_) => None,
            None => subject.view.last_pe.filter(|&pe| self.unclaimed.contains(pe)),
        }
    }

    /// Returns the mask of a thread that gets this fast PE.
    fn around(&self, pe: PeId, subject: &Subject) -> CpuSet {
        let of_cache = self.by_cache.iter().find(|pes| pes.contains(pe));
        of_cache.unwrap_or(&self.fast).intersection(&subject.view.permitted)
    }

    /// Returns whether a thread is bound within the fast PEs.
    pub fn bound_to_fast(&self, subject: &Subject) -> bool {
        subject.assignment.as_ref().is_some_and(|assignment| assignment.pes.is_subset(&self.fast))
    }

    /// Returns whether a thread is bound within the slow PEs.
    pub fn bound_to_slow(&self, subject: &Subject) -> bool {
        subject.assignment.as_ref().is_some_and(|assignment| assignment.pes.is_subset(&self.slow))
    }

    /// Returns the threads on fast PEs that spin. They do no useful work there, but
    /// moving them gains nothing as long as no other thread wants their place.
    pub fn spinning_on_fast<'a>(&self, scene: &Scene<'a>) -> Vec<&'a Subject> {
        let spins = |subject: &&Subject| subject.placeable && subject.runnable && subject.spins();
        scene.threads.iter().filter(spins).filter(|subject| self.on_fast(subject)).collect()
    }

    /// Binds the best-ranked candidates to fast PEs.
    pub fn place<C: Ord, O: Ord, W: Ord + Display>(
        &self,
        scene: &Scene<'_>,
        candidates: Vec<Candidate<'_, C, O, W>>,
        rest: Rest,
    ) -> Placement {
        let mut ranked = self.ranked(candidates);
        let around = scene.machine.topology.domains_by_pe();
        let pes = self.fast.len() + self.slow.len();
        let (each, may_idle) = ((ranked.len() / pes).max(1), ranked.len() < pes);
        let is_able = |r: &&mut Ranked<'_, C, O, W>| {
            let Candidate { has_claim, subject, .. } = &r.candidate;
            (*has_claim || may_idle) && subject.view.permitted.intersects(&self.fast)
        };
        let mut able: Vec<_> = ranked.iter_mut().filter(is_able).collect();
        self.rank_at_home(&mut able, each);
        let mut room = Room::new(&self.fast, each, able.len(), |pe| siblings(&around, &self.fast, pe));
        for best in able.iter_mut().take(each * self.fast.len()) {
            best.keep_assignment(self, &mut room);
        }
        for equals in able.chunk_by_mut(|a, b| a.is_equal(b)) {
            if room.is_full() {
                break;
            }
            let mut standing: Vec<_> = equals.iter_mut().filter(|r| r.assignment.is_none()).collect();
            for (index, pe) in room.fill(&around, standing.iter().map(|ranked| ranked.candidate.subject)) {
                let reason = format!(
                    "{}: nearest of {} with an equal right to one of the {} fast PEs",
                    standing[index].candidate.reason,
                    standing.len(),
                    self.fast.len()
                );
                let pes = self.around(pe, standing[index].candidate.subject);
                standing[index].assignment = Some(Assignment { pes, reason: reason.into() });
            }
        }
        let settings = if rest == Rest::After && scene.claims == Claims::Weights {
            claim_by_weight(&ranked)
        } else {
            BTreeMap::new()
        };
        let keeps_on_slow = rest == Rest::After && scene.claims == Claims::Masks && room.is_full();
        if keeps_on_slow {
            self.keep_on_slow(&mut ranked);
        }
        let assignment = |r: Ranked<'_, C, O, W>| Some((r.candidate.subject.view.thread, r.assignment?));
        let ranked = ranked.into_iter().filter_map(assignment);
        let others = if keeps_on_slow { self.others_on_slow(scene) } else { Vec::new() };
        // A candidate that spins is among the others, too: the later assignment overrides the earlier one.
        let bound = others.into_iter().chain(ranked).collect();
        Placement { bound, settings, ..Placement::default() }
    }

    /// Returns the candidates, best first; among equals, those on fast PEs come first.
    fn ranked<'a, C: Ord, O: Ord, W>(
        &self,
        candidates: Vec<Candidate<'a, C, O, W>>,
    ) -> Vec<Ranked<'a, C, O, W>> {
        let with_pe = |candidate: Candidate<'a, C, O, W>| {
            let fast_pe = self.fast_pe_of(candidate.subject);
            Ranked { candidate, fast_pe, is_best_at_home: false, assignment: None }
        };
        let mut ranked: Vec<_> = candidates.into_iter().map(with_pe).collect();
        ranked.sort_unstable_by(|a, b| {
            let among_equals =
                |r: &Ranked<'a, C, O, W>| (r.fast_pe.is_none(), r.candidate.subject.view.thread);
            let by_claim = a.candidate.claim.cmp(&b.candidate.claim);
            let by_order = by_claim.then_with(|| a.candidate.order.cmp(&b.candidate.order));
            by_order.then_with(|| among_equals(a).cmp(&among_equals(b)))
        });
        ranked
    }

    /// Puts those of equal claim first that are the best below their caches, as many as there are fast PEs
    /// for, if each takes `each` threads.
    fn rank_at_home<C: Ord, O: Ord, W>(&self, ranked: &mut [&mut Ranked<'_, C, O, W>], each: usize) {
        let mut room: Vec<usize> = self.homes.iter().map(|home| home.fast * each).collect();
        for best in ranked.iter_mut() {
            let last_pe = best.candidate.subject.view.last_pe;
            let home = last_pe.and_then(|pe| self.homes.iter().position(|home| home.pes.contains(pe)));
            if let Some(left) = home.map(|home| &mut room[home]).filter(|left| **left > 0) {
                *left -= 1;
                best.is_best_at_home = true;
            }
        }
        // A stable order: the rest is as it was.
        ranked.sort_by(|a, b| {
            let by_claim = a.candidate.claim.cmp(&b.candidate.claim);
            by_claim.then(b.is_best_at_home.cmp(&a.is_best_at_home))
        });
    }

    /// Binds the candidates without a fast PE to the slow PEs.
    fn keep_on_slow<C, O, W: Ord + Display>(&self, ranked: &mut [Ranked<'_, C, O, W>]) {
        // There may be thousands of threads but only a few reasons: format each reason once.
        let mut reasons = BTreeMap::new();
        for Ranked { candidate, assignment, .. } in ranked.iter_mut().filter(|r| r.assignment.is_none()) {
            let reason = || reasons.entry(&candidate.reason).or_insert_with_key(|r| self.why_slow(r)).clone();
            *assignment = self.slow_assignment(candidate.subject, reason);
        }
    }

    /// Returns assignments to the slow PEs for the threads that are not candidates.
    fn others_on_slow(&self, scene: &Scene<'_>) -> Vec<(ThreadId, Assignment)> {
        let reason = self.why_slow(&"not runnable");
        let others = scene.threads.iter().filter(|subject| subject.placeable && !is_candidate(subject));
        let assignment = |subject: &Subject| {
            let assignment = self.slow_assignment(subject, || reason.clone())?;
            Some((subject.view.thread, assignment))
        };
        others.filter_map(assignment).collect()
    }

    /// Returns an assignment to the slow PEs that a thread may use, if any; an equal existing assignment is
    /// kept.
    fn slow_assignment(&self, subject: &Subject, reason: impl FnOnce() -> Arc<str>) -> Option<Assignment> {
        let permitted = &subject.view.permitted;
        let all_permitted = self.slow.is_subset(permitted);
        let pes = if all_permitted { self.slow.clone() } else { self.slow.intersection(permitted) };
        let present = subject.assignment.as_ref().filter(|assignment| assignment.pes == pes);
        let anew = |pes| Assignment { pes, reason: reason() };
        (!pes.is_empty()).then(|| present.cloned().unwrap_or_else(|| anew(pes)))
    }

    fn why_slow(&self, reason: &impl Display) -> Arc<str> {
        format!("{reason}: better candidates have the {} fast PEs", self.fast.len()).into()
    }
}

impl<C: PartialEq, O: PartialEq, W> Ranked<'_, C, O, W> {
    /// Returns whether they have equal rights to a fast PE; each of those that are the best at home has one.
    fn is_equal(&self, other: &Self) -> bool {
        let is_in_order = || self.is_best_at_home || self.candidate.order == other.candidate.order;
        self.candidate.claim == other.candidate.claim
            && self.is_best_at_home == other.is_best_at_home
            && is_in_order()
    }
}

impl<C, O, W: Display> Ranked<'_, C, O, W> {
    /// Keeps a top-ranked thread on its fast PE, unless its core already has its fair number of threads.
    fn keep_assignment(&mut self, amp: &Amp, room: &mut Room) {
        let Some(pe) = self.fast_pe else { return };
        let subject = self.candidate.subject;
        if room.may_stay(pe) && subject.view.permitted.contains(pe) {
            room.take(pe);
            let reason = || format!("{}: it was on a fast PE and may stay", self.candidate.reason);
            let pes = amp.around(pe, subject);
            let present = subject.assignment.as_ref().filter(|assignment| assignment.pes == pes);
            let anew = || Assignment { reason: reason().into(), pes: pes.clone() };
            self.assignment = Some(present.cloned().unwrap_or_else(anew));
        }
    }
}

/// Returns the weights of those that have a fast PE by their claim, if any other thread could want it.
fn claim_by_weight<C, O, W>(
    ranked: &[Ranked<'_, C, O, W>],
) -> BTreeMap<(ThreadId, SettingKind), WantedSetting> {
    let has_it = |r: &&Ranked<'_, C, O, W>| r.candidate.has_claim && r.assignment.is_some();
    if ranked.iter().all(|r| has_it(&r)) {
        return BTreeMap::new();
    }
    let key = |r: &Ranked<'_, C, O, W>| (r.candidate.subject.view.thread, SettingKind::Weight);
    ranked.iter().filter(has_it).map(|r| (key(r), claims::setting())).collect()
}

/// Returns the placeable threads that want a PE for work.
pub fn candidates<'a>(scene: &Scene<'a>) -> impl Iterator<Item = &'a Subject> + use<'a> {
    scene.threads.iter().filter(|subject| is_candidate(subject))
}

fn is_candidate(subject: &Subject) -> bool {
    subject.placeable && subject.runnable && !subject.spins()
}

/// How many more threads each fast PE takes.
struct Room {
    cores: Vec<Core>,
    /// For each fast PE, by OS index, its core and its number of threads.
    pes: Vec<Option<Taken>>,
    /// The number of threads that a PE takes.
    each: usize,
    /// The number of threads per SMT core if they are distributed evenly.
    fair: usize,
    /// The PEs that take another thread, by the number of threads on their core.
    levels: BTreeMap<usize, CpuSet>,
}

/// The fast PEs of one SMT core, and their number of threads.
struct Core {
    pes: CpuSet,
    threads: usize,
}

#[derive(Clone, Copy)]
struct Taken {
    core: usize,
    threads: usize,
}

impl Room {
    /// Creates empty PEs that take `each` threads, for `threads` in total.
    fn new(pes: &CpuSet, each: usize, threads: usize, siblings: impl Fn(PeId) -> CpuSet) -> Room {
        let by_pe = vec![None; pes.last().map_or(0, |pe| pe.0 as usize + 1)];
        let levels = [(0, pes.clone())].into();
        let mut room = Room { cores: Vec::new(), pes: by_pe, each, fair: 1, levels };
        for pe in pes.iter() {
            if room.taken(pe).is_none() {
                let pes = siblings(pe).union(&CpuSet::single(pe));
                let core = room.cores.len();
                pes.iter().for_each(|pe| room.pes[pe.0 as usize] = Some(Taken { core, threads: 0 }));
                room.cores.push(Core { pes, threads: 0 });
            }
        }
        let cores: Vec<usize> = room.cores.iter().map(|core| each * core.pes.len()).collect();
        let most = cores.iter().copied().max().unwrap_or(1);
        let taken_at = |fair: usize| cores.iter().map(|core| fair.min(*core)).sum::<usize>();
        room.fair = (1..most).find(|&fair| taken_at(fair) >= threads).unwrap_or(most);
        room
    }

    fn taken(&self, pe: PeId) -> Option<Taken> {
        self.pes.get(pe.0 as usize).copied().flatten()
    }

    /// Adds a thread to a PE, which raises the level of its whole core.
    fn take(&mut self, pe: PeId) {
        let Some(Some(taken)) = self.pes.get_mut(pe.0 as usize) else { return };
        taken.threads += 1;
        let core = &mut self.cores[taken.core];
        core.threads += 1;
        let mut before = self.levels.remove(&(core.threads - 1)).unwrap_or_default();
        core.pes.iter().for_each(|pe| before.remove(pe));
        if !before.is_empty() {
            self.levels.insert(core.threads - 1, before);
        }
        let takes_more = |pe: &PeId| self.pes[pe.0 as usize].is_some_and(|taken| taken.threads < self.each);
        for pe in core.pes.iter().filter(takes_more) {
            self.levels.entry(core.threads).or_default().insert(pe);
        }
    }

    fn may_stay(&self, pe: PeId) -> bool {
        let has_room = |taken: Taken| taken.threads < self.each && self.cores[taken.core].threads < self.fair;
        self.taken(pe).is_some_and(has_room)
    }

    /// Distributes threads over PEs: the emptiest cores first, and among these the closest pairs first.
    /// Returns the index of each thread with its PE.
    fn fill<'a>(
        &mut self,
        around: &'a [Vec<&'a Domain>],
        threads: impl Iterator<Item = &'a Subject>,
    ) -> Vec<(usize, PeId)> {
        let mut pairing = Pairing::new(around, threads);
        let mut pairs = Vec::new();
        let mut from = 0;
        while let Some((level, mut open)) =
            self.levels.range(from..).next().map(|(at, pes)| (*at, pes.clone()))
        {
            pairing.open(&open);
            while let Some((index, pe)) = pairing.next(&open) {
                self.take(pe);
                let core = self.taken(pe).map(|taken| &self.cores[taken.core].pes);
                core.into_iter().flat_map(CpuSet::iter).for_each(|pe| open.remove(pe));
                pairs.push((index, pe));
            }
            // A thread that cannot use these PEs now cannot use them later either, and cores only get fuller.
            from = level + 1;
        }
        pairs
    }

    fn is_full(&self) -> bool {
        self.levels.is_empty()
    }
}
