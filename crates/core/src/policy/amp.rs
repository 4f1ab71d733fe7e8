//! Fast and slow PEs: what the schedulers of asymmetric machines have in common.
//!
//! Problem: a scheduler of the parallelism-aware paper (Saez et al., CF'10, §2) decides at every tick and
//! wake-up which threads run on the few fast PEs; we decide once per step and can only bind.
//!
//! Approach: a policy ranks the runnable threads, and the best are bound to one fast PE each until these are
//! full. Whoever is among the best and has a fast PE keeps it, be it that the operating system put it there,
//! and of equals those come first who are on one: so a step moves nobody without need ("avoid cross-domain
//! migrations whenever possible", §3.4), and a change is a swap: one thread leaves a fast PE, another takes
//! its place, in the same step (the swapping mechanism of §2.1). Of equals that are on slow PEs, and of the
//! free fast PEs, those two are brought together that share most, so that a promoted thread stays within its
//! last-level cache if it can (the topology-awareness of §3.4). Fast SMT cores get a thread each before any
//! gets a second one. While every fast PE is taken the other threads may be kept on the slow PEs; within
//! those the operating system chooses. While one is free nobody is kept away from it.
//!
//! The fast PEs are those of the fastest kind, the slow ones all others (§2.1 assumes two kinds). With more
//! runnable threads than PEs each fast PE takes its fair number of them, "to preserve load balance" (§2.1).
//!
//! Limits: between two steps nothing is decided: a fast PE whose thread blocks stays idle till the next step
//! if the others are kept from it, and a sequential phase shorter than a step goes unseen. A shorter interval
//! comes nearer to the paper's ticks. Threads that corewise may not place are not counted against a PE.

use super::near::{Pairing, siblings};
use super::{Scene, Subject};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::plan::{Assignment, Placement};
use crate::topology::Domain;
use std::collections::BTreeMap;
use std::fmt::Display;

/// The fast and the slow PEs that are allowed.
pub struct Amp {
    fast: CpuSet,
    slow: CpuSet,
    /// The fast PEs to which nobody is bound: who runs there is free.
    unclaimed: CpuSet,
}

/// A runnable thread that may be placed, and why it is ranked where it is. The lowest rank comes first, and
/// candidates of one rank have an equal right to a fast PE.
pub struct Candidate<'a, R, W> {
    pub rank: R,
    pub subject: &'a Subject,
    /// Put into words only for those that are placed anew.
    pub reason: W,
}

/// A candidate with the fast PE that it is on.
struct Ranked<'a, R, W> {
    candidate: Candidate<'a, R, W>,
    fast_pe: Option<PeId>,
}

/// What becomes of those who get no fast PE.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// They may run anywhere.
    Free,
    /// They are kept on the slow PEs while all fast ones are taken.
    OnSlow,
}

impl Amp {
    /// The fast and slow PEs among those allowed; where there are not both, a placement that says so.
    pub fn of(scene: &Scene<'_>) -> Result<Amp, Placement> {
        let kinds = &scene.machine.topology.kinds;
        let fast = kinds.first().map_or(CpuSet::new(), |kind| kind.pes.intersection(scene.allowed));
        let slow = scene.allowed.difference(&fast);
        if kinds.len() > 1 && !fast.is_empty() && !slow.is_empty() {
            let assignments =
                scene.present.bound.values().filter(|assignment| assignment.pes.is_subset(&fast));
            let unclaimed =
                assignments.fold(fast.clone(), |open, assignment| open.difference(&assignment.pes));
            return Ok(Amp { fast, slow, unclaimed });
        }
        let why = match kinds.as_slice() {
            [] => "nothing is known about the speed of the PEs".to_owned(),
            [only] if only.name == "unknown" => {
                "what is known about the speed of the PEs contradicts itself".to_owned()
            }
            [_] => "all PEs are equally fast".to_owned(),
            _ => format!("the PEs that may be used ({}) are all of one kind", scene.allowed),
        };
        Err(Placement::without_gain(format!("{why}, so no thread gains by another kind of PE")))
    }

    /// How many fast PEs there are.
    pub fn fast_pes(&self) -> usize {
        self.fast.len()
    }

    /// Whether a thread is on a fast PE: bound to one, or free and seen last on one to which nobody is bound.
    pub fn on_fast(&self, scene: &Scene<'_>, subject: &Subject) -> bool {
        self.fast_pe_of(scene, subject).is_some()
    }

    fn fast_pe_of(&self, scene: &Scene<'_>, subject: &Subject) -> Option<PeId> {
        match scene.present.bound.get(&subject.view.thread) {
            Some(assignment) => assignment.pes.first().filter(|_| assignment.pes.is_subset(&self.fast)),
            None => subject.view.last_pe.filter(|&pe| self.unclaimed.contains(pe)),
        }
    }

    /// Whether a thread is bound within the fast PEs.
    pub fn bound_to_fast(&self, scene: &Scene<'_>, subject: &Subject) -> bool {
        self.bound_within(&self.fast, scene, subject)
    }

    /// Whether a thread is bound within the slow PEs.
    pub fn bound_to_slow(&self, scene: &Scene<'_>, subject: &Subject) -> bool {
        self.bound_within(&self.slow, scene, subject)
    }

    fn bound_within(&self, pes: &CpuSet, scene: &Scene<'_>, subject: &Subject) -> bool {
        scene.present.bound.get(&subject.view.thread).is_some_and(|assignment| assignment.pes.is_subset(pes))
    }

    /// Threads that are on fast PEs and have told that they spin. They do nothing useful there, but moving
    /// them gains nothing as long as nobody wants their place.
    pub fn spinning_on_fast<'a>(&self, scene: &Scene<'a>) -> Vec<&'a Subject> {
        let spins = |subject: &&Subject| subject.placeable && subject.runnable && subject.hints.spinning;
        scene.threads.iter().filter(spins).filter(|subject| self.on_fast(scene, subject)).collect()
    }

    /// Binds the best-ranked candidates to fast PEs.
    pub fn place<R: Ord, W: Display>(
        &self,
        scene: &Scene<'_>,
        candidates: Vec<Candidate<'_, R, W>>,
        rest: Rest,
    ) -> Placement {
        let ranked = self.ranked(scene, candidates);
        let around = scene.machine.topology.domains_by_pe();
        let each = (ranked.len() / (self.fast.len() + self.slow.len())).max(1);
        let able: Vec<_> =
            ranked.iter().filter(|r| r.candidate.subject.view.permitted.intersects(&self.fast)).collect();
        let mut room = Room::new(&self.fast, each, able.len(), |pe| siblings(&around, &self.fast, pe));
        let mut placement = Placement::default();
        for best in able.iter().take(each * self.fast.len()) {
            self.keep_assignment(scene, best, &mut room, &mut placement);
        }
        for equals in able.chunk_by(|a, b| a.candidate.rank == b.candidate.rank) {
            if room.is_full() {
                break;
            }
            let mut standing: Vec<_> = equals.iter().map(|ranked| &ranked.candidate).collect();
            standing.retain(|c| !placement.bound.contains_key(&c.subject.view.thread));
            for (index, pe) in room.fill(&around, standing.iter().map(|candidate| candidate.subject)) {
                let candidate = standing[index];
                let reason = format!(
                    "{}: nearest of {} with an equal right to one of the {} fast PEs",
                    candidate.reason,
                    standing.len(),
                    self.fast.len()
                );
                placement
                    .bound
                    .insert(candidate.subject.view.thread, Assignment { pes: CpuSet::single(pe), reason });
            }
        }
        if rest == Rest::OnSlow && room.is_full() {
            self.keep_rest_on_slow(scene, &ranked, &mut placement);
        }
        placement
    }

    /// The candidates, best first; of equals first those who are on fast PEs.
    fn ranked<'a, R: Ord, W>(
        &self,
        scene: &Scene<'_>,
        candidates: Vec<Candidate<'a, R, W>>,
    ) -> Vec<Ranked<'a, R, W>> {
        let with_pe = |candidate: Candidate<'a, R, W>| {
            let fast_pe = self.fast_pe_of(scene, candidate.subject);
            Ranked { candidate, fast_pe }
        };
        let mut ranked: Vec<_> = candidates.into_iter().map(with_pe).collect();
        ranked.sort_by(|a, b| {
            let among_equals = |r: &Ranked<'a, R, W>| (r.fast_pe.is_none(), r.candidate.subject.view.thread);
            a.candidate.rank.cmp(&b.candidate.rank).then_with(|| among_equals(a).cmp(&among_equals(b)))
        });
        ranked
    }

    /// Who is on a fast PE and among the best stays there, if its core has not its fair number of threads.
    fn keep_assignment<R, W: Display>(
        &self,
        scene: &Scene<'_>,
        Ranked { candidate, fast_pe }: &Ranked<'_, R, W>,
        room: &mut Room,
        placement: &mut Placement,
    ) {
        let view = &candidate.subject.view;
        let Some(pe) = *fast_pe else { return };
        if room.may_stay(pe) && view.permitted.contains(pe) {
            room.take(pe);
            let assignment = scene.present.bound.get(&view.thread).cloned().unwrap_or_else(|| Assignment {
                pes: CpuSet::single(pe),
                reason: format!("{}: it was on a fast PE and may stay", candidate.reason),
            });
            placement.bound.insert(view.thread, assignment);
        }
    }

    /// Binds everybody else to the slow PEs; who is there already stays as it is.
    fn keep_rest_on_slow<R, W: Display>(
        &self,
        scene: &Scene<'_>,
        ranked: &[Ranked<'_, R, W>],
        placement: &mut Placement,
    ) {
        let mut assignments = Vec::new();
        let mut newcomers = BTreeMap::new();
        for subject in scene.threads.iter().filter(|s| s.placeable) {
            let (thread, permitted) = (subject.view.thread, &subject.view.permitted);
            if placement.bound.contains_key(&thread) || !permitted.intersects(&self.slow) {
                continue;
            }
            let pes =
                if self.slow.is_subset(permitted) { &self.slow } else { &self.slow.intersection(permitted) };
            match scene.present.bound.get(&thread).filter(|assignment| assignment.pes == *pes) {
                Some(assignment) => assignments.push((thread, assignment.clone())),
                None => drop(newcomers.insert(thread, (pes.clone(), None))),
            }
        }
        for Ranked { candidate, .. } in ranked {
            if let Some((_, reason)) = newcomers.get_mut(&candidate.subject.view.thread) {
                *reason = Some(&candidate.reason);
            }
        }
        for (thread, (pes, reason)) in newcomers {
            let standing = reason.map_or_else(|| "not runnable".to_owned(), W::to_string);
            let reason = format!("{standing}: better candidates have the {} fast PEs", self.fast.len());
            assignments.push((thread, Assignment { pes, reason }));
        }
        placement.bound.extend(assignments);
    }
}

/// The threads that want a PE for work and may be given one.
pub fn candidates<'a>(scene: &Scene<'a>) -> impl Iterator<Item = &'a Subject> + use<'a> {
    let is_candidate = |s: &&Subject| s.placeable && s.runnable && !s.hints.spinning;
    scene.threads.iter().filter(is_candidate)
}

/// How many threads each fast PE still takes.
struct Room {
    pes: BTreeMap<PeId, Taken>,
    /// Threads that a PE takes.
    each: usize,
    /// Threads that an SMT core gets if they are shared out evenly.
    fair: usize,
    /// The PEs that take a thread, by how many are on their core.
    levels: BTreeMap<usize, CpuSet>,
}

struct Taken {
    threads: usize,
    siblings: CpuSet,
}

impl Room {
    /// Empty PEs that take `each` threads, for so many threads in all.
    fn new(pes: &CpuSet, each: usize, threads: usize, siblings: impl Fn(PeId) -> CpuSet) -> Room {
        let of = |pe| (pe, Taken { threads: 0, siblings: siblings(pe) });
        let levels = [(0, pes.clone())].into();
        let mut room = Room { pes: pes.iter().map(of).collect(), each, fair: 1, levels };
        // A core counts once: by its first PE.
        let is_first =
            |(pe, taken): &(&PeId, &Taken)| taken.siblings.first().is_none_or(|first| first > **pe);
        let cores = room.pes.iter().filter(is_first).map(|(_, taken)| each * (1 + taken.siblings.len()));
        let cores: Vec<usize> = cores.collect();
        let most = cores.iter().copied().max().unwrap_or(1);
        let taken_at = |fair: usize| cores.iter().map(|core| fair.min(*core)).sum::<usize>();
        room.fair = (1..most).find(|&fair| taken_at(fair) >= threads).unwrap_or(most);
        room
    }

    /// A PE gets a thread; its core then counts as fuller.
    fn take(&mut self, pe: PeId) {
        let Some(taken) = self.pes.get_mut(&pe) else { return };
        taken.threads += 1;
        let core = self.core(pe);
        let threads: usize = core.iter().map(|pe| self.threads(pe)).sum();
        if let Some(level) = self.levels.get_mut(&(threads - 1)) {
            *level = level.difference(&core);
        }
        self.levels.retain(|_, pes| !pes.is_empty());
        let open: CpuSet = core.iter().filter(|&pe| self.threads(pe) < self.each).collect();
        if !open.is_empty() {
            let level = self.levels.entry(threads).or_default();
            *level = level.union(&open);
        }
    }

    fn threads(&self, pe: PeId) -> usize {
        self.pes.get(&pe).map_or(0, |taken| taken.threads)
    }

    /// The PEs of the core of a PE.
    fn core(&self, pe: PeId) -> CpuSet {
        let siblings = self.pes.get(&pe).map(|taken| &taken.siblings);
        siblings.map_or(CpuSet::new(), |siblings| siblings.union(&CpuSet::single(pe)))
    }

    fn may_stay(&self, pe: PeId) -> bool {
        let on_core = || self.core(pe).iter().map(|pe| self.threads(pe)).sum::<usize>();
        self.pes.contains_key(&pe) && self.threads(pe) < self.each && on_core() < self.fair
    }

    /// Gives PEs to threads, the emptiest cores first, and there the closest pairs first: each thread's place
    /// in the list with its PE.
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
                open = open.difference(&self.core(pe));
                pairs.push((index, pe));
            }
            // Who can use none of these cannot use them later either, and a core only gets fuller.
            from = level + 1;
        }
        pairs
    }

    fn is_full(&self) -> bool {
        self.levels.is_empty()
    }
}
