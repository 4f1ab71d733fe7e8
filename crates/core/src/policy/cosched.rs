//! Puts unlike threads together on an SMT core and keeps cache-hungry ones apart: `cosched`.
//!
//! Problem: the siblings of an SMT core share its caches and units. Two threads that need the same resource
//! at the same time slow each other down; two that differ hardly do.
//!
//! Approach (Moseley et al., CF'05, §4.1). Each step is a quantum. Counters of the last one predict the next.
//!
//! - Selection: for the place beside thread A, the policy considers the first `window` waiting threads and
//!   takes the one with the greatest difference `v = 4 |l2m| + |f| + 2 |b|` of their events per cycle (L2
//!   misses, floating-point work, branches). A thread that was passed over `skips_max` times is taken in any
//!   case, and one without counters yet goes first.
//! - Grouping: a two-bit saturating counter per thread goes up after a high-cache quantum and down after any
//!   other. At 3 the thread is fixed on the PE designated for such threads, where they alternate instead of
//!   running beside each other; when it falls to a weak state the thread is released. At most
//!   `fixed_share_max` of the runnable threads are fixed, "to prevent an imbalance".
//!
//! The paper chooses which thread runs next; we can only bind, to one PE each. So the waiting threads are
//! dealt out in the order in which the paper's scheduler would call them: the PE with the fewest threads is
//! next, and A is the thread last dealt to its sibling. With no more threads than PEs this is the paper's
//! choice. With more, each PE gets a queue, and the operating system decides which threads of two sibling
//! queues run together. The first PEs of all cores are filled before second ones. The designated PE is the
//! last of each core (the paper has one core).
//!
//! The paper's selection takes threads out of order within their own queue and moves none, and "they always
//! receive the same amount of time" (§5). Dealing moves threads, and a thread that leaves a queue early
//! leaves its PE to others. So threads are redealt only if threads on sibling PEs then differ by `gain_min`
//! more on average, or if PEs are used more evenly; otherwise only new threads are dealt.
//!
//! Where the world asks at each dispatch, the selection is the paper's ([`at_dispatch`]), and `deals = 0`
//! leaves it the grouping only.
//!
//! Parameters: see [`Parameters`].
//!
//! Limits: the paper's fourth term, trace cache misses, has no counter today. Its text also subtracts IPC,
//! without a weight, but its formula does not; we follow the formula. `f` is the share of cycles in which the
//! FPU is busy, in the paper it is retired operations per cycle. Recently bound threads are not redealt
//! either, so a choice lasts [`crate::engine::EngineConfig::min_residence`]; the paper's lasts 100 ms.
//! Redealing may move threads between cores; the cost of that is not considered.

use super::amp::candidates;
use super::interface::{Policy, Scene, Subject};
use super::kind::{self, PolicyKind};
use super::near::{by_core, siblings};
use super::needs::{Needs, Reading};
use crate::classify::{CONFIDENCE_MIN, MEMORY_INTENSIVE_L2_MISSES};
use crate::cpuset::CpuSet;
use crate::ids::{PeId, ThreadId};
use crate::plan::{Assignment, Placement};
use crate::topology::Domain;
use crate::view::{Estimate, Usage};
use rustc_hash::FxHashMap;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::fmt::{Display, Formatter};

mod selection;

pub(super) use selection::at_dispatch;

/// The registry entry.
pub const KIND: PolicyKind = PolicyKind {
    name: "cosched",
    machine: "SMT siblings, hardware counters",
    rule: "threads that differ in L2 misses, FPU use and branches share a core; those with many L2 misses \
        share a PE",
    why: "threads that need different parts of a core disturb each other less than those that are alike",
    source: "co-scheduling §4.1",
    makes_claims: false,
    rest: None,
    make: |given| Box::new(Cosched { parameters: Parameters::new(given), ..Cosched::default() }),
};

/// The parameters.
#[derive(Debug, Clone, Copy, Default)]
struct Parameters {
    deals: bool,
    window: usize,
    skips_max: u32,
    weights: Weights,
    high_cache: f64,
    fixed_share_max: f64,
    gain_min: f64,
}

/// The weights of differences in events per cycle.
#[derive(Debug, Clone, Copy, Default)]
struct Weights {
    l2_misses: f64,
    fpu: f64,
    branches: f64,
}

impl Parameters {
    fn new(given: &mut kind::Parameters<'_>) -> Self {
        let count = 1..=1_000_000;
        let window_doc =
            "of so many waiting threads the most different is taken (§4.1, which elsewhere says 4)";
        let skips_doc = "how often a waiting thread is passed over (§4.1)";
        let high_cache_doc =
            "a quantum with at least so many is a high-cache one (ours: from Table I of BulldOver)";
        let fixed_doc = "the greatest share of the runnable threads that is fixed (§4.1)";
        let gain_doc = "by how much the mean difference of threads that may meet must rise, relative, \
            before threads are dealt anew (ours: above what noise and neighbours change from quantum to \
            quantum)";
        let deals_doc = "whether threads are dealt out (1), or only high-cache ones fixed (0)";
        Self {
            deals: given.integer("deals", 1, 0..=1, "", deals_doc) == 1,
            window: given.integer("window", 3, count.clone(), "threads", window_doc) as usize,
            skips_max: given.integer("skips_max", 3, count, "times", skips_doc),
            weights: Weights::new(given),
            high_cache: given.number(
                "high_cache_l2_misses_per_100_cycles",
                MEMORY_INTENSIVE_L2_MISSES,
                0.0..=100.0,
                "L2 misses per 100 cycles",
                high_cache_doc,
            ),
            fixed_share_max: given.share("fixed_share_max", 0.5, fixed_doc),
            gain_min: given.number("gain_min", 0.1, 0.0..=1e9, "", gain_doc),
        }
    }
}

impl Weights {
    fn new(given: &mut kind::Parameters<'_>) -> Self {
        let range = 0.0..=1e6;
        let l2_misses_doc =
            "what a difference in L2 misses per cycle counts (§4.1: most, as it explains most)";
        Self {
            l2_misses: given.number("weight_l2_misses", 4.0, range.clone(), "", l2_misses_doc),
            fpu: given.number("weight_fpu", 1.0, range.clone(), "", "the same of FPU usage (§4.1)"),
            branches: given.number(
                "weight_branches",
                2.0,
                range,
                "",
                "the same of branches per cycle (§4.1)",
            ),
        }
    }
}

/// The highest state of the two-bit counter; 1 and 2 are the weak ones.
const SATURATED: u8 = 3;

/// The policy.
#[derive(Debug, Clone, Default)]
struct Cosched {
    parameters: Parameters,
    /// The two-bit counter of each thread.
    high_cache: FxHashMap<ThreadId, u8>,
    fixed: BTreeSet<ThreadId>,
}

impl Cosched {
    /// Updates each runnable thread's counter by whether its last quantum was a high-cache one.
    fn count_quanta(&mut self, scene: &Scene<'_>) {
        let known = |subject: &Subject| {
            let thread = subject.view.thread;
            Some((thread, *self.high_cache.get(&thread)?))
        };
        // Drops threads that have ended.
        self.high_cache = scene.threads.iter().filter_map(known).collect();
        for subject in candidates(scene) {
            let Some(misses) = subject.view.usage.l2_misses_per_100_cycles else { continue };
            let counter = self.high_cache.entry(subject.view.thread).or_default();
            *counter = if misses.value >= self.parameters.high_cache {
                (*counter + 1).min(SATURATED)
            } else {
                counter.saturating_sub(1)
            };
        }
    }

    /// Updates the set of fixed threads; threads in it stay before others are added.
    fn fix(&mut self, waiting: &VecDeque<Waiting<'_>>) {
        let fixed_max = (waiting.len() as f64 * self.parameters.fixed_share_max) as usize;
        let threads = waiting.iter().map(|waiting| waiting.subject.view.thread);
        let mut saturated: Vec<ThreadId> =
            threads.filter(|thread| self.high_cache.get(thread) == Some(&SATURATED)).collect();
        saturated.sort_by_key(|thread| (!self.fixed.contains(thread), *thread));
        self.fixed = saturated.into_iter().take(fixed_max).collect();
    }

    /// Returns the placement in which only the fixed threads are bound.
    fn fixed_only<'a>(&self, table: &'a Table, waiting: &VecDeque<Waiting<'a>>) -> Placement {
        let mut deal = Deal::new(table, self.parameters);
        for waiting in waiting.iter().filter(|w| self.fixed.contains(&w.subject.view.thread)) {
            deal.fix(waiting);
        }
        deal.placement()
    }

    /// Deals all waiting threads, the fixed ones first. Of the others, recently bound threads stay; without
    /// redealing, all threads stay that can.
    fn deal<'a>(&self, table: &'a Table, mut waiting: VecDeque<Waiting<'a>>, anew: bool) -> Deal<'a> {
        let mut deal = Deal::new(table, self.parameters);
        let fair_share = waiting.len().div_ceil(table.pes.len());
        waiting.retain(|w| !(self.fixed.contains(&w.subject.view.thread) && deal.fix(w)));
        waiting.retain(|w| {
            let stays = w.subject.resident || !anew;
            !(stays && deal.stay(w, fair_share))
        });
        deal.open =
            deal.dealt.iter().enumerate().map(|(place, dealt)| Reverse((dealt.len(), place))).collect();
        while deal.next(&mut waiting) {}
        deal
    }
}

impl Policy for Cosched {
    fn name(&self) -> &str {
        KIND.name
    }

    fn needs(&self) -> Needs {
        Needs {
            required: &[Reading::L2Misses],
            used: &[Reading::FpuUsage, Reading::Branches, Reading::Ipc, Reading::Spinning],
            ..Needs::NONE
        }
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let Some(table) = Table::of(scene) else {
            return Placement::without_gain(
                "no two allowed PEs are siblings of one SMT core, so neighbours do not matter",
            );
        };
        let waits = |subject| Waiting { subject, events: Events::of(&subject.view.usage), skips: 0 };
        let mut waiting: Vec<_> = candidates(scene).map(waits).collect();
        waiting.sort_by_key(|waiting| waiting.subject.view.thread);
        let waiting = VecDeque::from(waiting);
        let counted = |w: &Waiting<'_>| w.subject.view.usage.l2_misses_per_100_cycles.is_some();
        if !waiting.is_empty() && !waiting.iter().any(counted) {
            return Placement::without_gain("no hardware counters count L2 misses");
        }
        self.count_quanta(scene);
        self.fix(&waiting);
        if !self.parameters.deals {
            return self.fixed_only(&table, &waiting);
        }
        let kept = self.deal(&table, waiting.clone(), false);
        let anew = self.deal(&table, waiting, true);
        let best = if anew.is_better(&kept, self.parameters.gain_min) { anew } else { kept };
        best.placement()
    }
}

/// A thread in the queue and how often it was passed over.
#[derive(Clone)]
struct Waiting<'a> {
    subject: &'a Subject,
    events: Events,
    skips: u32,
}

/// The known events per cycle of a thread.
#[derive(Debug, Clone, Copy)]
struct Events {
    l2_misses: Option<f64>,
    fpu: Option<f64>,
    branches: Option<f64>,
}

impl Events {
    fn of(usage: &Usage) -> Events {
        let known = |estimate: Option<Estimate>| estimate.filter(|e| e.confidence >= CONFIDENCE_MIN);
        let branches = || Some(known(usage.branches)?.value * usage.ipc?.value);
        Events {
            l2_misses: usage.l2_misses_per_100_cycles.map(|misses| misses.value / 100.0),
            fpu: known(usage.fpu).map(|share| share.value),
            branches: branches(),
        }
    }
}

/// The PEs that threads are dealt to.
struct Table {
    /// In the order in which they are filled.
    pes: Vec<PeId>,
    /// Their positions in that order, by PE.
    places: BTreeMap<PeId, usize>,
    /// For each position the positions of its siblings on the same core.
    siblings: Vec<Vec<usize>>,
    designated: CpuSet,
}

impl Table {
    /// Returns `None` if no core has two allowed PEs.
    fn of(scene: &Scene<'_>) -> Option<Table> {
        let around: Vec<Vec<&Domain>> = scene.machine.topology.domains_by_pe();
        let pes: Vec<PeId> = by_core(&around, scene.allowed);
        let siblings: Vec<CpuSet> = pes.iter().map(|&pe| siblings(&around, scene.allowed, pe)).collect();
        let is_last_of_core =
            |(pe, others): &(&PeId, &CpuSet)| others.last().is_some_and(|other| other < **pe);
        let designated: CpuSet =
            pes.iter().zip(&siblings).filter(is_last_of_core).map(|(&pe, _)| pe).collect();
        let places: BTreeMap<PeId, usize> = pes.iter().enumerate().map(|(place, &pe)| (pe, place)).collect();
        let place_of = |pe: PeId| places.get(&pe).copied();
        let siblings = siblings.iter().map(|others| others.iter().filter_map(place_of).collect()).collect();
        (!designated.is_empty()).then_some(Table { pes, siblings, designated, places })
    }
}

/// A distribution of threads over PEs, which are identified by their positions in the [`Table`].
struct Deal<'a> {
    parameters: Parameters,
    table: &'a Table,
    /// The PEs for the remaining threads, each with its number of threads: the emptiest first.
    open: BinaryHeap<Reverse<(usize, usize)>>,
    /// The threads dealt to each PE.
    dealt: Vec<Vec<Dealt>>,
    reasons: Vec<(&'a Subject, PeId, Reason)>,
}

/// A thread that was dealt to a PE.
#[derive(Debug, Clone, Copy)]
struct Dealt {
    thread: ThreadId,
    events: Events,
}

/// Why a thread was dealt to a PE.
enum Reason {
    Fixed,
    Stays,
    Overdue { skips: u32 },
    First,
    Differs { value: f64, beside: ThreadId, of: usize },
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Fixed => write!(
                f,
                "its last {SATURATED} quanta were high-cache: on the PE designated for such threads"
            ),
            Reason::Stays => f.write_str("stays: no other dealing makes neighbours differ enough more"),
            Reason::Overdue { skips } => write!(f, "passed over {skips} times before"),
            Reason::First => f.write_str("first in the queue, with no thread beside it yet"),
            Reason::Differs { value, beside, of } => {
                write!(f, "differs most (v = {value:.3}) from thread {beside} beside it, of {of}")
            }
        }
    }
}

impl<'a> Deal<'a> {
    /// Creates an empty distribution.
    fn new(table: &'a Table, parameters: Parameters) -> Deal<'a> {
        let places = 0..table.pes.len();
        Deal {
            parameters,
            table,
            open: BinaryHeap::new(),
            dealt: places.map(|_| Vec::new()).collect(),
            reasons: Vec::new(),
        }
    }

    /// Fixes a high-cache thread on a designated PE: its own, if it is on one, else the emptiest. Returns
    /// whether it may use one.
    fn fix(&mut self, waiting: &Waiting<'a>) -> bool {
        let subject = waiting.subject;
        let is_usable = |pe: PeId| self.table.designated.contains(pe) && subject.view.permitted.contains(pe);
        let own = own_pe(subject).filter(|&pe| is_usable(pe));
        let own = own.and_then(|pe| self.table.places.get(&pe).copied());
        let usable = (0..self.dealt.len()).filter(|&place| is_usable(self.table.pes[place]));
        let Some(place) = own.or_else(|| usable.min_by_key(|&place| self.dealt[place].len())) else {
            return false;
        };
        self.give(waiting, place, Reason::Fixed);
        true
    }

    /// Leaves a thread where it is bound, unless that PE has its fair share of threads already. Returns
    /// whether the thread stays.
    fn stay(&mut self, waiting: &Waiting<'a>, fair_share: usize) -> bool {
        let own = own_pe(waiting.subject).filter(|&pe| waiting.subject.view.permitted.contains(pe));
        let Some(&place) = own.and_then(|pe| self.table.places.get(&pe)) else { return false };
        let has_room = self.dealt[place].len() < fair_share;
        if has_room {
            self.give(waiting, place, Reason::Stays);
        }
        has_room
    }

    /// Deals one thread to the PE with the fewest threads; returns `false` when no thread waits or no PE
    /// takes one.
    fn next(&mut self, waiting: &mut VecDeque<Waiting<'a>>) -> bool {
        let emptiest = self.open.pop().filter(|_| !waiting.is_empty());
        let Some(Reverse((threads, place))) = emptiest else { return false };
        let siblings = &self.table.siblings[place];
        let beside: Vec<Dealt> =
            siblings.iter().filter_map(|&sibling| self.dealt[sibling].last().copied()).collect();
        // A PE that no waiting thread may use takes no more threads.
        if let Some((picked, reason)) = pick(&self.parameters, waiting, self.table.pes[place], &beside)
            && let Some(picked) = waiting.remove(picked)
        {
            self.give(&picked, place, reason);
            self.open.push(Reverse((threads + 1, place)));
        }
        true
    }

    fn give(&mut self, Waiting { subject, events, .. }: &Waiting<'a>, place: usize, reason: Reason) {
        self.dealt[place].push(Dealt { thread: subject.view.thread, events: *events });
        self.reasons.push((subject, self.table.pes[place], reason));
    }

    /// Returns the distribution as a placement with reasons. A thread that stays keeps its reason.
    fn placement(&self) -> Placement {
        let assignment = |(subject, pe, reason): &(&Subject, PeId, Reason)| {
            let thread = subject.view.thread;
            let present = subject.assignment.as_ref().filter(|_| own_pe(subject) == Some(*pe));
            let anew = || Assignment { pes: CpuSet::single(*pe), reason: reason.to_string().into() };
            (thread, present.cloned().unwrap_or_else(anew))
        };
        Placement { bound: self.reasons.iter().map(assignment).collect(), ..Placement::default() }
    }

    /// Returns whether PEs are used more evenly, or equally so and threads on sibling PEs differ more.
    fn is_better(&self, other: &Self, gain_min: f64) -> bool {
        match self.crowding().cmp(&other.crowding()) {
            Ordering::Less => true,
            Ordering::Equal => self.worth() > (1.0 + gain_min) * other.worth(),
            Ordering::Greater => false,
        }
    }

    /// Returns the sum of the squares of the numbers of threads on each PE and on each core.
    fn crowding(&self) -> usize {
        let count = |place: usize| self.dealt[place].len();
        let of = |(place, siblings): (usize, &Vec<usize>)| {
            count(place) * (2 * count(place) + siblings.iter().map(|&sibling| count(sibling)).sum::<usize>())
        };
        self.table.siblings.iter().enumerate().map(of).sum()
    }

    /// Returns how much threads on sibling PEs differ: the mean for each two sibling PEs, as the system
    /// chooses which of their threads run together, and the sum of these.
    fn worth(&self) -> f64 {
        let Table { pes, places, siblings, .. } = self.table;
        let pairs = places.values().flat_map(|&place| {
            let later = siblings[place].iter().filter(move |&&other| pes[other] > pes[place]);
            later.map(move |&other| (place, other))
        });
        let mean = |(a, b): (usize, usize)| {
            let values = self.dealt[a].iter().flat_map(|a| {
                let value = |b: &Dealt| difference(&self.parameters.weights, &a.events, &b.events);
                self.dealt[b].iter().map(value).filter(|value| value.is_finite())
            });
            let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
            sum / f64::from(count.max(1))
        };
        pairs.map(mean).sum()
    }
}

/// Returns the PE to which a thread is bound alone.
fn own_pe(subject: &Subject) -> Option<PeId> {
    let assignment = subject.assignment.as_ref().filter(|assignment| assignment.pes.len() == 1);
    assignment.and_then(|assignment| assignment.pes.first())
}

/// Returns the index of the waiting thread to place beside the given one, and why. The threads before it in
/// the queue are passed over.
fn pick(
    parameters: &Parameters,
    waiting: &mut VecDeque<Waiting<'_>>,
    pe: PeId,
    beside: &[Dealt],
) -> Option<(usize, Reason)> {
    let able = |w: &Waiting<'_>| w.subject.view.permitted.contains(pe);
    let window: Vec<usize> =
        (0..waiting.len()).filter(|&index| able(&waiting[index])).take(parameters.window.max(1)).collect();
    let value = |index: &usize| {
        let events = &waiting[*index].events;
        beside.iter().map(|a| difference(&parameters.weights, &a.events, events)).sum::<f64>()
    };
    let overdue = window.iter().find(|&&index| waiting[index].skips >= parameters.skips_max);
    let (picked, reason) = match (overdue, beside) {
        (Some(&index), _) => (index, Reason::Overdue { skips: waiting[index].skips }),
        (None, []) => (*window.first()?, Reason::First),
        (None, [.., last]) => {
            // Ties go to the first thread: `max_by` returns the last maximum, of the reversed window.
            let most = window.iter().rev().max_by(|a, b| value(a).total_cmp(&value(b)))?;
            let (value, beside, of) = (value(most), last.thread, window.len());
            (*most, Reason::Differs { value, beside, of })
        }
    };
    for &index in window.iter().take_while(|&&index| index < picked) {
        waiting[index].skips += 1;
    }
    Some((picked, reason))
}

/// Returns the paper's `v` of a thread `b` for the place beside `a`; infinite if `b` has no counters yet. A
/// metric that is unknown for either thread counts as no difference.
fn difference(weights: &Weights, a: &Events, b: &Events) -> f64 {
    if b.l2_misses.is_none() {
        return f64::INFINITY;
    }
    let apart = |a: Option<f64>, b: Option<f64>| a.zip(b).map_or(0.0, |(a, b)| (a - b).abs());
    weights.l2_misses * apart(a.l2_misses, b.l2_misses)
        + weights.fpu * apart(a.fpu, b.fpu)
        + weights.branches * apart(a.branches, b.branches)
}

#[cfg(test)]
mod tests;
