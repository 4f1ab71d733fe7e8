//! Fast and slow PEs: what the schedulers of asymmetric machines have in common.
//!
//! Problem: a scheduler of the parallelism-aware paper (Saez et al., CF'10, §2) decides at every tick and
//! wake-up which threads run on the few fast PEs; we decide once per step and can only bind.
//!
//! Approach: a policy ranks the runnable threads, and the best are bound to one fast PE each until these are
//! full. Whoever is among the best and has a fast PE keeps it, be it that the operating system put it there,
//! and of equals those come first who are on one: so a step moves nobody without need ("avoid cross-domain
//! migrations whenever possible", §3.4), and a change is a swap: one thread leaves a fast PE, another takes
//! its place, in the same step (the swapping mechanism of §2.1). A promoted thread gets the free fast PE
//! that shares most with where it ran, so that it stays within its last-level cache if it can (the
//! topology-awareness of §3.4). While every fast PE is taken the other threads may be kept on the slow PEs;
//! within those the operating system chooses. While one is free nobody is kept away from it.
//!
//! The fast PEs are those of the fastest kind, the slow ones all others (§2.1 assumes two kinds). With more
//! runnable threads than PEs each fast PE takes its fair number of them, "to preserve load balance" (§2.1).
//!
//! Limits: between two steps nothing is decided: a fast PE whose thread blocks stays idle till the next step
//! if the others are kept from it, and a sequential phase shorter than a step goes unseen. A shorter interval
//! comes nearer to the paper's ticks. Threads that corewise may not place are not counted against a PE.

use super::near::closest;
use super::{Scene, Subject};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use crate::plan::{Placement, Seat};
use std::collections::BTreeMap;

/// The fast and the slow PEs that are allowed.
pub struct Amp {
    fast: CpuSet,
    slow: CpuSet,
    /// The fast PEs to which nobody is bound: who runs there is free.
    unclaimed: CpuSet,
}

/// A runnable thread that may be placed, and why it is ranked where it is.
pub struct Candidate<'a> {
    pub subject: &'a Subject,
    pub reason: String,
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
        let kinds = &scene.topology.kinds;
        let fast = kinds.first().map_or(CpuSet::new(), |kind| kind.pes.intersection(scene.allowed));
        let slow = scene.allowed.difference(&fast);
        if kinds.len() > 1 && !fast.is_empty() && !slow.is_empty() {
            let seats = scene.present.bound.values().filter(|seat| seat.pes.is_subset(&fast));
            let unclaimed = seats.fold(fast.clone(), |open, seat| open.difference(&seat.pes));
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
            Some(seat) => seat.pes.first().filter(|_| seat.pes.is_subset(&self.fast)),
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
        scene.present.bound.get(&subject.view.thread).is_some_and(|seat| seat.pes.is_subset(pes))
    }

    /// Binds the best-ranked candidates to fast PEs.
    pub fn place(&self, scene: &Scene<'_>, ranked: &[Candidate<'_>], rest: Rest) -> Placement {
        let each = (ranked.len() / (self.fast.len() + self.slow.len())).max(1);
        let mut room: BTreeMap<PeId, usize> = self.fast.iter().map(|pe| (pe, each)).collect();
        let mut placement = Placement::default();
        let able = ranked.iter().filter(|c| c.subject.view.permitted.intersects(&self.fast));
        for candidate in able.clone().take(each * self.fast.len()) {
            self.keep_seat(scene, candidate, &mut room, &mut placement);
        }
        let around = scene.topology.domains_by_pe();
        for (rank, candidate) in able.enumerate() {
            let view = &candidate.subject.view;
            if placement.bound.contains_key(&view.thread) {
                continue;
            }
            let open: CpuSet = room.keys().copied().filter(|&pe| view.permitted.contains(pe)).collect();
            let Some(pe) = closest(&around, &open, view.last_pe) else { continue };
            take_room(&mut room, pe);
            let reason = format!(
                "{}: candidate {} of {} for the {} fast PEs",
                candidate.reason,
                rank + 1,
                ranked.len(),
                self.fast.len()
            );
            placement.bound.insert(view.thread, Seat { pes: CpuSet::single(pe), reason });
        }
        if rest == Rest::OnSlow && room.is_empty() {
            self.keep_rest_on_slow(scene, ranked, &mut placement);
        }
        placement
    }

    /// Who is on a fast PE and among the best stays there.
    fn keep_seat(
        &self,
        scene: &Scene<'_>,
        candidate: &Candidate<'_>,
        room: &mut BTreeMap<PeId, usize>,
        placement: &mut Placement,
    ) {
        let view = &candidate.subject.view;
        let Some(pe) = self.fast_pe_of(scene, candidate.subject) else { return };
        if room.contains_key(&pe) && view.permitted.contains(pe) {
            take_room(room, pe);
            let seat = scene.present.bound.get(&view.thread).cloned().unwrap_or_else(|| Seat {
                pes: CpuSet::single(pe),
                reason: format!("{}: it was on a fast PE and may stay", candidate.reason),
            });
            placement.bound.insert(view.thread, seat);
        }
    }

    fn keep_rest_on_slow(&self, scene: &Scene<'_>, ranked: &[Candidate<'_>], placement: &mut Placement) {
        let reasons: BTreeMap<_, _> = ranked.iter().map(|c| (c.subject.view.thread, &c.reason)).collect();
        for subject in scene.threads.iter().filter(|s| s.placeable) {
            let thread = subject.view.thread;
            let pes = self.slow.intersection(&subject.view.permitted);
            if placement.bound.contains_key(&thread) || pes.is_empty() {
                continue;
            }
            let standing = reasons.get(&thread).map_or("not runnable", |reason| reason.as_str());
            let reason = format!("{standing}: better candidates have the {} fast PEs", self.fast.len());
            placement.bound.insert(thread, Seat { pes, reason });
        }
    }
}

/// The threads that want a PE and may be given one.
pub fn candidates<'a>(scene: &Scene<'a>) -> impl Iterator<Item = &'a Subject> + use<'a> {
    scene.threads.iter().filter(|subject| subject.placeable && subject.runnable)
}

fn take_room(room: &mut BTreeMap<PeId, usize>, pe: PeId) {
    if let Some(left) = room.get_mut(&pe) {
        *left -= 1;
        if *left == 0 {
            room.remove(&pe);
        }
    }
}
