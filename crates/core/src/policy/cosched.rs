//! Unlike threads together on an SMT core, cache-hungry ones never: `cosched`.
//!
//! Problem: the siblings of an SMT core share its caches and units. Two threads that want the same at the
//! same time slow each other down, two that differ hardly notice.
//!
//! Approach (Moseley et al., CF'05, §4.1). Each step is a quantum. Counters of the last one predict the next.
//!
//! - Selection: beside thread A on one sibling goes, of the first [`CoschedParameters::window`] threads that
//!   wait, the one with the greatest difference `v = 4 |l2m| + |f| + 2 |b|` of their events per cycle (L2
//!   misses, floating-point work, branches); a thread that was passed over [`CoschedParameters::skips_max`]
//!   times is taken in any case, and one that has no counters yet goes first.
//! - Grouping: a two-bit saturating counter per thread goes up after a high-cache quantum and down after any
//!   other. At 3 the thread is fixed on the PE designated for such threads, where they take turns instead of
//!   meeting; when it falls to a weak state it is released. At most [`CoschedParameters::fixed_share_max`] of
//!   the runnable threads are fixed, "to prevent an imbalance".
//!
//! The paper chooses who runs next; we can only bind, to one PE each. So the waiting threads are dealt out as
//! the paper's scheduler would call them up one after another: the PE with the fewest threads is next, A is
//! who was dealt last to its sibling. With no more threads than PEs this is the paper's choice; with more,
//! each PE gets a queue, and who meets whom within the pair of queues is the operating system's. The first
//! PEs of all cores are filled before second ones. The designated PE is the last of each core (the paper has
//! one core).
//!
//! The paper's selection takes threads out of turn in their own queue, moves none, and "they always receive
//! the same amount of time" (§5). Dealing moves threads, and who leaves a queue before its turn leaves it to
//! others. So threads are dealt anew only where those who may meet then differ by
//! [`CoschedParameters::gain_min`] more on average, or PEs are used more evenly; else only new ones are
//! dealt.
//!
//! Parameters: [`CoschedParameters`].
//!
//! Limits: the paper's fourth term, trace cache misses, has no counter today. It subtracts IPC in words but
//! not in its formula, and without a weight; we follow the formula. `f` is the share of cycles in which the
//! FPU is busy, theirs are retired operations per cycle. Threads that were bound a moment ago are not dealt
//! anew either, so a choice lasts [`crate::engine::EngineConfig::min_residence`]; the paper's lasts 100 ms.
//! Dealing anew may move threads between cores, and what that costs is not weighed.

use super::amp::candidates;
use super::near::{by_core, siblings};
use super::{Policy, Scene, Subject};
use crate::classify::{CONFIDENCE_MIN, MEMORY_INTENSIVE_L2_MISSES};
use crate::cpuset::CpuSet;
use crate::ids::{PeId, ThreadId};
use crate::plan::{Placement, Seat};
use crate::topology::Domain;
use crate::view::{Estimate, Usage};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoschedParameters {
    /// Of so many waiting threads the most different is taken: "the first three in the priority queue" (§4.1,
    /// which elsewhere speaks of the first four).
    pub window: usize,
    /// How often a waiting thread is passed over: "never skip a task more than three times" (§4.1).
    pub skips_max: u32,
    /// What a difference in each metric counts (§4.1).
    pub weights: Weights,
    /// L2 misses per 100 cycles from which a quantum is a high-cache one. The paper gives no number; ours is
    /// [`MEMORY_INTENSIVE_L2_MISSES`].
    pub high_cache_l2_misses_per_100_cycles: f64,
    /// The greatest share of the runnable threads that is fixed: half (§4.1).
    pub fixed_share_max: f64,
    /// By how much the mean difference of those who may meet must rise for threads to be dealt anew,
    /// relative. Ours; 0.1 is above what noise and neighbours change in the counters from quantum to quantum.
    pub gain_min: f64,
}

/// What a difference in events per cycle counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// L2 misses: 4, as they explain most of the variance (§4.1).
    pub l2_misses: f64,
    /// Floating-point work: 1.
    pub fpu: f64,
    /// Branches: 2.
    pub branches: f64,
}

impl Default for CoschedParameters {
    fn default() -> Self {
        Self {
            window: 3,
            skips_max: 3,
            weights: Weights { l2_misses: 4.0, fpu: 1.0, branches: 2.0 },
            high_cache_l2_misses_per_100_cycles: MEMORY_INTENSIVE_L2_MISSES,
            fixed_share_max: 0.5,
            gain_min: 0.1,
        }
    }
}

/// The highest state of the two-bit counter; 1 and 2 are the weak ones.
const SATURATED: u8 = 3;

/// The policy.
#[derive(Debug, Clone, Default)]
pub struct Cosched {
    parameters: CoschedParameters,
    /// The two-bit counter of each thread.
    high_cache: BTreeMap<ThreadId, u8>,
    fixed: BTreeSet<ThreadId>,
}

impl Cosched {
    /// The policy with those parameters.
    pub fn new(parameters: CoschedParameters) -> Self {
        Self { parameters, ..Self::default() }
    }

    /// Counts the quantum of each runnable thread as a high-cache one or not.
    fn count_quanta(&mut self, scene: &Scene<'_>) {
        let alive: BTreeSet<ThreadId> = scene.threads.iter().map(|subject| subject.view.thread).collect();
        self.high_cache.retain(|thread, _| alive.contains(thread));
        for subject in candidates(scene) {
            let Some(misses) = subject.view.usage.l2_misses_per_100_cycles else { continue };
            let counter = self.high_cache.entry(subject.view.thread).or_default();
            *counter = if misses >= self.parameters.high_cache_l2_misses_per_100_cycles {
                (*counter + 1).min(SATURATED)
            } else {
                counter.saturating_sub(1)
            };
        }
    }

    /// Renews the set of fixed threads; those that are in it stay before others come in.
    fn fix(&mut self, waiting: &[Waiting<'_>]) {
        let fixed_max = (waiting.len() as f64 * self.parameters.fixed_share_max) as usize;
        let threads = waiting.iter().map(|waiting| waiting.subject.view.thread);
        let mut saturated: Vec<ThreadId> =
            threads.filter(|thread| self.high_cache.get(thread) == Some(&SATURATED)).collect();
        saturated.sort_by_key(|thread| (!self.fixed.contains(thread), *thread));
        self.fixed = saturated.into_iter().take(fixed_max).collect();
    }

    /// Deals all that wait: the fixed ones first; of the others those stay that were bound a moment ago, or
    /// all that can where nobody is dealt anew.
    fn deal<'a>(
        &self,
        scene: &Scene<'a>,
        mut deal: Deal<'a>,
        mut waiting: Vec<Waiting<'a>>,
        anew: bool,
    ) -> Deal<'a> {
        let fair_share = waiting.len().div_ceil(deal.open.len());
        waiting.retain(|w| !(self.fixed.contains(&w.subject.view.thread) && deal.fix(scene, w.subject)));
        waiting.retain(|w| {
            let stays = w.subject.resident || !anew;
            !(stays && deal.stay(scene, w.subject, fair_share))
        });
        while deal.next(&mut waiting) {}
        deal
    }
}

impl Policy for Cosched {
    fn name(&self) -> &'static str {
        "cosched"
    }

    fn needs_fpu_usage(&self) -> bool {
        true
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let Some(empty) = Deal::new(scene, self.parameters) else {
            return Placement::without_gain(
                "no two allowed PEs are siblings of one SMT core, so it does not matter who runs beside whom",
            );
        };
        let mut waiting: Vec<_> = candidates(scene).map(|subject| Waiting { subject, skips: 0 }).collect();
        waiting.sort_by_key(|waiting| waiting.subject.view.thread);
        let counted = |w: &Waiting<'_>| w.subject.view.usage.l2_misses_per_100_cycles.is_some();
        if !waiting.is_empty() && !waiting.iter().any(counted) {
            return Placement::without_gain("no hardware counters tell L2 misses");
        }
        self.count_quanta(scene);
        self.fix(&waiting);
        let kept = self.deal(scene, empty.clone(), waiting.clone(), false);
        let anew = self.deal(scene, empty, waiting, true);
        if anew.is_better(&kept, self.parameters.gain_min) { anew.placement } else { kept.placement }
    }
}

/// A thread in the queue and how often it was passed over.
#[derive(Clone)]
struct Waiting<'a> {
    subject: &'a Subject,
    skips: u32,
}

/// One dealing of threads to PEs.
#[derive(Clone)]
struct Deal<'a> {
    parameters: CoschedParameters,
    /// The PEs that still take threads, in the order in which they are filled, with their number of threads.
    open: Vec<(usize, PeId)>,
    designated: CpuSet,
    siblings: BTreeMap<PeId, CpuSet>,
    /// Who was dealt to each PE.
    dealt: BTreeMap<PeId, Vec<&'a Subject>>,
    placement: Placement,
}

impl<'a> Deal<'a> {
    /// An empty dealing; `None` where no core has two allowed PEs.
    fn new(scene: &Scene<'a>, parameters: CoschedParameters) -> Option<Deal<'a>> {
        let around: Vec<Vec<&Domain>> = scene.topology.domains_by_pe();
        let open: Vec<PeId> = by_core(&around, scene.allowed);
        let siblings: BTreeMap<PeId, CpuSet> =
            open.iter().map(|&pe| (pe, siblings(&around, scene.allowed, pe))).collect();
        let last_of_core = |(&pe, others): (&PeId, &CpuSet)| others.last().is_some_and(|other| other < pe);
        let designated: CpuSet =
            siblings.iter().filter(|entry| last_of_core(*entry)).map(|(&pe, _)| pe).collect();
        (!designated.is_empty()).then(|| Deal {
            parameters,
            open: open.into_iter().map(|pe| (0, pe)).collect(),
            designated,
            siblings,
            dealt: BTreeMap::new(),
            placement: Placement::default(),
        })
    }

    /// Fixes a high-cache thread on a designated PE: its own, if it is on one, else the emptiest. Says
    /// whether it may use one.
    fn fix(&mut self, scene: &Scene<'_>, subject: &'a Subject) -> bool {
        let usable = self.designated.intersection(&subject.view.permitted);
        let own = own_pe(scene, subject).filter(|pe| usable.contains(*pe));
        let mut emptiest = self.open.iter().filter(|(_, pe)| usable.contains(*pe)).collect::<Vec<_>>();
        emptiest.sort_by_key(|(threads, _)| *threads);
        let Some(pe) = own.or_else(|| emptiest.first().map(|(_, pe)| *pe)) else { return false };
        let reason =
            format!("its last {SATURATED} quanta were high-cache: on the PE designated for such threads");
        self.give(subject, pe, reason);
        true
    }

    /// Leaves a thread where it is bound, if that PE has not its fair share of threads without it; says
    /// whether it could.
    fn stay(&mut self, scene: &Scene<'_>, subject: &'a Subject, fair_share: usize) -> bool {
        let has_room = |pe: PeId| self.open.iter().any(|&(threads, open)| open == pe && threads < fair_share);
        let own = own_pe(scene, subject).filter(|&pe| subject.view.permitted.contains(pe) && has_room(pe));
        let Some(pe) = own else { return false };
        self.give(subject, pe, "stays: no other dealing sets those who meet enough further apart".to_owned());
        true
    }

    /// Deals one thread to the PE that has fewest; `false` when nobody waits or no PE takes one.
    fn next(&mut self, waiting: &mut Vec<Waiting<'a>>) -> bool {
        let emptiest = (0..self.open.len()).min_by_key(|&index| (self.open[index].0, index));
        let Some(index) = emptiest.filter(|_| !waiting.is_empty()) else { return false };
        let pe = self.open[index].1;
        let beside: Vec<&Subject> =
            self.siblings[&pe].iter().filter_map(|sibling| self.on(sibling).last().copied()).collect();
        match pick(&self.parameters, waiting, pe, &beside) {
            Some((picked, reason)) => {
                let subject = waiting.remove(picked).subject;
                self.give(subject, pe, reason);
            }
            // Nobody who waits may use it.
            None => drop(self.open.remove(index)),
        }
        true
    }

    /// Those who were dealt to a PE.
    fn on(&self, pe: PeId) -> &[&'a Subject] {
        self.dealt.get(&pe).map_or(&[], Vec::as_slice)
    }

    /// Whether the PEs are used more evenly, or as evenly and those who may meet differ by so much more.
    fn is_better(&self, other: &Self, gain_min: f64) -> bool {
        match self.crowding().cmp(&other.crowding()) {
            Ordering::Less => true,
            Ordering::Equal => self.worth() > (1.0 + gain_min) * other.worth(),
            Ordering::Greater => false,
        }
    }

    /// The sum of the squares of the numbers of threads on each PE and on each core.
    fn crowding(&self) -> usize {
        let count = |pe| self.on(pe).len();
        let of = |(&pe, siblings): (&PeId, &CpuSet)| {
            count(pe) * (2 * count(pe) + siblings.iter().map(count).sum::<usize>())
        };
        self.siblings.iter().map(of).sum()
    }

    /// How much those who may meet differ: the mean over each two sibling PEs, who meets whom there being the
    /// system's choice, and the sum of these.
    fn worth(&self) -> f64 {
        let pairs = self.siblings.iter().flat_map(|(&pe, others)| {
            others.iter().filter(move |other| *other > pe).map(move |other| (pe, other))
        });
        let mean = |(a, b): (PeId, PeId)| {
            let values = self.on(a).iter().flat_map(|a| {
                let value = |b: &&Subject| difference(&self.parameters.weights, &a.view.usage, &b.view.usage);
                self.on(b).iter().map(value).filter(|value| value.is_finite())
            });
            let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
            sum / f64::from(count.max(1))
        };
        pairs.map(mean).sum()
    }

    fn give(&mut self, subject: &'a Subject, pe: PeId, reason: String) {
        if let Some((threads, _)) = self.open.iter_mut().find(|(_, open)| *open == pe) {
            *threads += 1;
        }
        self.dealt.entry(pe).or_default().push(subject);
        self.placement.bound.insert(subject.view.thread, Seat { pes: CpuSet::single(pe), reason });
    }
}

/// The PE to which a thread is bound alone.
fn own_pe(scene: &Scene<'_>, subject: &Subject) -> Option<PeId> {
    let seat = scene.present.bound.get(&subject.view.thread).filter(|seat| seat.pes.len() == 1);
    seat.and_then(|seat| seat.pes.first())
}

/// The index of the waiting thread that goes to a PE, given who is beside it, and why. Those before it in the
/// queue are passed over.
fn pick(
    parameters: &CoschedParameters,
    waiting: &mut [Waiting<'_>],
    pe: PeId,
    beside: &[&Subject],
) -> Option<(usize, String)> {
    let able = |w: &Waiting<'_>| w.subject.view.permitted.contains(pe);
    let window: Vec<usize> =
        (0..waiting.len()).filter(|&index| able(&waiting[index])).take(parameters.window.max(1)).collect();
    let value = |index: &usize| {
        let usage = &waiting[*index].subject.view.usage;
        beside.iter().map(|a| difference(&parameters.weights, &a.view.usage, usage)).sum::<f64>()
    };
    let overdue = window.iter().find(|&&index| waiting[index].skips >= parameters.skips_max);
    let (picked, reason) = match (overdue, beside) {
        (Some(&index), _) => (index, format!("passed over {} times before", waiting[index].skips)),
        (None, []) => (*window.first()?, "first in the queue, nobody is beside it yet".to_owned()),
        (None, [.., last]) => {
            // Of equals the first: the maximum of the reversed window is the last that it sees.
            let most = window.iter().rev().max_by(|a, b| value(a).total_cmp(&value(b)))?;
            let of = window.len();
            let beside = last.view.thread;
            (*most, format!("differs most (v = {:.3}) from thread {beside} beside it, of {of}", value(most)))
        }
    };
    for &index in window.iter().take_while(|&&index| index < picked) {
        waiting[index].skips += 1;
    }
    Some((picked, reason))
}

/// The paper's `v` of a thread `b` for the place beside `a`; infinite if `b` has no counters yet. A metric
/// that is unknown of either counts nothing.
fn difference(weights: &Weights, a: &Usage, b: &Usage) -> f64 {
    if b.l2_misses_per_100_cycles.is_none() {
        return f64::INFINITY;
    }
    let known = |estimate: Option<Estimate>| estimate.filter(|e| e.confidence >= CONFIDENCE_MIN);
    let fpu = |usage: &Usage| known(usage.fpu).map(|share| share.value);
    let branches = |usage: &Usage| Some(known(usage.branches)?.value * usage.ipc?);
    let l2_misses = |usage: &Usage| Some(usage.l2_misses_per_100_cycles? / 100.0);
    let apart = |of: &dyn Fn(&Usage) -> Option<f64>| match (of(a), of(b)) {
        (Some(a), Some(b)) => (a - b).abs(),
        _ => 0.0,
    };
    weights.l2_misses * apart(&l2_misses) + weights.fpu * apart(&fpu) + weights.branches * apart(&branches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::FpuClass;
    use crate::ids::AppId;
    use crate::observe::{Hints, Standing};
    use crate::view::ThreadView;
    use std::sync::Arc;

    fn usage(l2_misses: f64, fpu: f64, branches: f64, ipc: f64) -> Usage {
        let counted = |value| Some(Estimate { value, confidence: 1.0 });
        Usage {
            l2_misses_per_100_cycles: Some(l2_misses),
            fpu: counted(fpu),
            branches: counted(branches),
            ipc: Some(ipc),
            ..Usage::default()
        }
    }

    #[test]
    fn the_difference_has_the_papers_weights() {
        let weights = CoschedParameters::default().weights;
        let nothing = usage(0.0, 0.0, 0.0, 1.0);
        for (other, expected) in [
            (usage(2.0, 0.0, 0.0, 1.0), 0.08),
            (usage(0.0, 0.5, 0.0, 1.0), 0.5),
            (usage(0.0, 0.0, 0.2, 1.0), 0.4),
            (usage(0.0, 0.0, 0.2, 0.5), 0.2),
            (usage(2.0, 0.5, 0.2, 0.5), 0.78),
        ] {
            assert!((difference(&weights, &nothing, &other) - expected).abs() < 1e-9, "{other:?}");
            assert!((difference(&weights, &other, &nothing) - expected).abs() < 1e-9, "{other:?}");
        }
    }

    fn subject(fpu: f64) -> Subject {
        let thread = ThreadId { tid: (fpu * 10.0) as u32, generation: 0 };
        let view = ThreadView {
            thread,
            app: AppId(0),
            runnable_share: 1.0,
            last_pe: None,
            standing: Standing::Free,
            permitted: Arc::new(CpuSet::first_n(2)),
            usage: usage(0.0, fpu, 0.0, 1.0),
        };
        Subject {
            view,
            name: "test".into(),
            runnable: true,
            hints: Hints::default(),
            fpu_class: FpuClass::Unknown,
            placeable: true,
            resident: false,
        }
    }

    /// Who was dealt to the two siblings of a core.
    fn dealt<'a>(first: &[&'a Subject], second: &[&'a Subject]) -> Deal<'a> {
        let [a, b] = [PeId(0), PeId(1)];
        Deal {
            parameters: CoschedParameters::default(),
            open: Vec::new(),
            designated: CpuSet::new(),
            siblings: [(a, CpuSet::single(b)), (b, CpuSet::single(a))].into(),
            dealt: [(a, first.to_vec()), (b, second.to_vec())].into(),
            placement: Placement::default(),
        }
    }

    #[test]
    fn a_dealing_is_worth_the_mean_difference_of_those_who_may_meet() {
        let [none, half, full] = [0.0, 0.5, 0.9].map(subject);
        let deal = dealt(&[&none], &[&half, &full]);
        assert!((deal.worth() - 0.7).abs() < 1e-9, "{}", deal.worth());
        assert_eq!(dealt(&[], &[&half, &full]).worth(), 0.0, "nobody meets");
    }

    #[test]
    fn an_even_dealing_is_better_and_of_equal_ones_the_clearly_more_different() {
        let [none, tenth, half, full] = [0.0, 0.1, 0.5, 0.9].map(subject);
        let uneven = dealt(&[&none, &tenth, &half], &[&full]);
        let alike = dealt(&[&none, &half], &[&tenth, &full]);
        let unlike = dealt(&[&none, &tenth], &[&half, &full]);
        assert!(alike.crowding() < uneven.crowding());
        assert!(alike.is_better(&uneven, 0.1) && !uneven.is_better(&alike, 0.1));
        assert!(unlike.is_better(&alike, 0.1) && !alike.is_better(&unlike, 0.1));
        assert!(!unlike.is_better(&alike, 1.0), "0.65 is not twice 0.5");
    }

    #[test]
    fn what_is_unknown_decides_nothing_and_no_counters_at_all_go_first() {
        let weights = CoschedParameters::default().weights;
        let a = usage(0.0, 0.0, 0.0, 1.0);
        let guess = Usage { fpu: Some(Estimate { value: 0.9, confidence: 0.2 }), ..a };
        assert_eq!(difference(&weights, &a, &guess), 0.0);
        assert_eq!(difference(&weights, &a, &Usage::default()), f64::INFINITY);
        assert_eq!(difference(&weights, &Usage::default(), &a), 0.0);
    }
}
