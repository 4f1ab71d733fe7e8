//! Caches that threads share: how much of one each thread has, and what it then misses.
//!
//! *Problem.* Threads that fit into a cache one at a time may not fit together. What a thread misses depends
//! on how much it has, and how much it has on what it and the others miss.
//!
//! *Approach.* A [`Curve`] is the rate at which a thread misses as a function of the bytes that it has.
//! Lines are evicted without regard to whose they are, so that each survives for the same time T, and a
//! thread holds as many as it inserts in T: x = T · misses(x). T is such that they fill the cache together:
//! Σ x = C (the characteristic time of Che, Tung, Wang, "Hierarchical web caching systems", 2002; Fagin
//! 1977). x grows with T; Newton's method on logarithms finds T in a few steps. If what all want fits, each
//! has what it wants.
//!
//! *Curves.* A demand may give its miss ratio at several sizes ([`super::demand::MissCurve`]), of which one
//! curve holds for all caches (Mattson et al. 1970: what misses a cache misses every smaller one). Else the
//! curve follows from its misses alone:
//! - A working set that fits into the cache is used evenly: without room for the whole, as much of the
//!   accesses misses as of the set is missing, up to all accesses. This is the cliff where sets stop
//!   fitting together.
//! - One that does not fit misses by the power law of Hartstein, Srinivasan, Puzak, Emma ("Cache miss
//!   behavior: is it √2?", 2006), `misses = m (C/x)^θ`, of which C and m are the cache and the misses alone.
//! - A set that its share of the L2 holds needs nothing of the L3. What misses only because the L2 is shared
//!   finds its data in the L3, if there is one.
//!
//! *Shared data.* Of k threads of a process below one cache, of which each finds a share s of its working set
//! in data of all, a thread that has x bytes fills only x (1 - s + s/k) of the cache by itself: the common
//! data is there once. It is used by all, so that the part s of x is inserted at k times the rate.
//!
//! *Cost.* A solution takes several powers for each thread, and threads that share a few PEs come
//! back to the same few states. What was solved is kept, up to `STATES_MAX` states of `DEMANDS_MAX`
//! demands; when there are more, all are forgotten. Solutions do not depend on what was solved before.
//!
//! *Limits.* Insertion rates are those at full speed. Threads that share data do not fetch it for each other.
//! TLBs, associativity and inclusion are not modelled.

use super::channel::LINE_BYTES;
use super::demand::{Common, Demand, Load, MIB, MissCurve};
use super::model::MachineModel;
use super::shape::Pe;
use rustc_hash::FxHashMap;

/// The error of the sum of all shares, as a share of the cache.
const TOLERANCE: f64 = 1e-7;

/// Steps of Newton's method at most; it needs about five.
const STEPS_MAX: usize = 60;

/// States that are kept.
const STATES_MAX: usize = 4096;

/// Marks a part of a state's description that is about shared data: no PE has such a number.
const SHARES_DATA: u64 = 1 << 63;

/// Different demands in them.
const DEMANDS_MAX: usize = 64;

/// The misses of a thread, per work cycle.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Misses {
    /// Of the L2.
    pub l2: f64,
    /// Those of them that go on to memory.
    pub memory: f64,
}

/// How often a thread misses with so many bytes of a cache.
#[derive(Debug, Clone, Copy)]
enum Curve {
    /// As often with any size.
    Flat(f64),
    /// `misses (own / bytes)^exponent`.
    Power { own: f64, misses: f64, exponent: f64 },
    /// `rate` accesses: all miss without a cache, and a share of `rest` with `enough` bytes.
    Line { rate: f64, enough: f64, rest: f64 },
    /// `rate` accesses with the miss ratio at several sizes.
    Points { rate: f64, enough: f64, curve: MissCurve },
}

impl Curve {
    /// Returns the misses of a demand in an L2 of so many bytes.
    fn of_l2(demand: &Demand, capacity: Option<f64>) -> Self {
        let rate = demand.l2_accesses_per_100_cycles / 100.0;
        let enough = demand.working_set();
        if let Some(curve) = demand.miss_ratio {
            return Self::Points { rate, enough, curve };
        }
        let misses = demand.l2_misses_per_100_cycles / 100.0;
        let rate = rate.max(misses);
        match capacity {
            Some(own) if own < enough => Self::Power { own, misses, exponent: demand.miss_exponent },
            Some(_) if enough > 0.0 && rate > 0.0 => Self::Line { rate, enough, rest: misses / rate },
            _ => Self::Flat(misses),
        }
    }

    /// Returns the misses in an L3 of so many bytes of a demand that holds `held` bytes of the L2 and
    /// misses it at a `rate`, where it would miss it at the rate `alone`.
    fn of_l3(demand: &Demand, capacity: Option<f64>, held: f64, rate: f64, alone: f64) -> Self {
        let enough = demand.working_set();
        if let Some(curve) = demand.miss_ratio {
            let accesses = demand.l2_accesses_per_100_cycles / 100.0;
            let all = Self::Points { rate: accesses, enough, curve };
            return if capacity.is_some() && held < enough { all } else { Self::Flat(rate) };
        }
        let Some(own) = capacity else { return Self::Flat(rate * demand.l3_miss_share) };
        let misses = demand.l3_miss_share * if enough <= own { alone.min(rate) } else { rate };
        if enough <= held || rate == 0.0 {
            Self::Flat(misses)
        } else if own < enough {
            Self::Power { own, misses, exponent: demand.miss_exponent }
        } else {
            Self::Line { rate, enough, rest: misses / rate }
        }
    }

    /// Returns the most bytes of a cache that it makes use of.
    fn wanted(&self, capacity: f64) -> f64 {
        match *self {
            Self::Power { misses, own, .. } if misses > 0.0 => own.min(capacity),
            Self::Line { rate, enough, .. } | Self::Points { rate, enough, .. } if rate > 0.0 => {
                enough.min(capacity)
            }
            _ => 0.0,
        }
    }

    fn misses(&self, bytes: f64) -> f64 {
        match *self {
            Self::Flat(misses) => misses,
            Self::Power { own, misses, exponent } => {
                let shortage = (own / bytes.max(LINE_BYTES)).max(1.0);
                // The common exponent 0.5 has a function of its own, ten times as fast.
                misses * if exponent == 0.5 { shortage.sqrt() } else { shortage.powf(exponent) }
            }
            Self::Line { rate, enough, rest } => {
                rate * (rest + (1.0 - rest) * (1.0 - bytes / enough).max(0.0))
            }
            Self::Points { rate, curve, .. } => rate * curve.ratio(bytes / MIB),
        }
    }

    /// Returns the bytes that it holds if lines survive for this time, and how fast they grow with it.
    fn held(&self, survival: f64) -> (f64, f64) {
        match *self {
            Self::Flat(misses) => (misses * survival * LINE_BYTES, misses * LINE_BYTES),
            Self::Power { own, misses, exponent } => {
                let inserted = survival * misses * LINE_BYTES;
                let bytes = if exponent == 0.5 {
                    let root = (inserted * own.sqrt()).cbrt();
                    root * root
                } else {
                    (inserted * own.powf(exponent)).powf(1.0 / (1.0 + exponent))
                };
                (bytes, bytes / survival / (1.0 + exponent))
            }
            Self::Line { rate, enough, rest } => {
                meet(survival, survival * rate * LINE_BYTES, 1.0, (1.0 - rest) / enough)
            }
            Self::Points { rate, curve, .. } => {
                let inserted = survival * rate * LINE_BYTES;
                let (ratio, slope) = curve.segment_where(|bytes, ratio| inserted * ratio < bytes);
                meet(survival, inserted, ratio, slope)
            }
        }
    }
}

/// Solves `bytes = inserted (ratio - slope bytes)`; also returns how fast they grow with the survival time.
fn meet(survival: f64, inserted: f64, ratio: f64, slope: f64) -> (f64, f64) {
    let part = 1.0 + inserted * slope;
    let bytes = inserted * ratio / part;
    (bytes, bytes / survival / part)
}

/// A user of a cache.
#[derive(Debug, Clone, Copy)]
struct User {
    cache: usize,
    index: usize,
    curve: Curve,
    wanted: f64,
    held: f64,
    /// With what it shares: the part of what it holds that it fills alone, and how much faster lines are
    /// inserted.
    alone: f64,
    faster: f64,
}

/// What a thread misses, alone and beside the others.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CacheShare {
    pub(super) alone: Misses,
    pub(super) beside: Misses,
}

/// A thread that uses caches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheUser {
    /// The index of its PE.
    pub pe: u32,
    /// The number of its demand.
    pub demand: u32,
    /// What it shares with other threads of its process.
    pub common: Common,
}

/// Computes the shares of caches; keeps its memory.
#[derive(Debug, Default)]
pub(super) struct CacheSharing {
    users: Vec<User>,
    l2: Vec<(f64, f64)>,
    /// What comes of each state.
    solved: FxHashMap<Vec<u64>, Vec<CacheShare>>,
    key: Vec<u64>,
    loads: Vec<Load>,
    /// The demands that were seen, where they have no numbers.
    demands: Vec<Demand>,
}

impl CacheSharing {
    /// Calls `put` with what each load that uses caches has of them. The machine's caches are the same each
    /// time.
    pub fn share(&mut self, machine: &MachineModel, loads: &[Load], mut put: impl FnMut(usize, CacheShare)) {
        let users = || loads.iter().enumerate().filter(|(_, load)| load.demand.uses_memory());
        let mut demands = std::mem::take(&mut self.demands);
        if demands.len() + users().count() > DEMANDS_MAX {
            demands.clear();
            self.solved.clear();
        }
        let numbered: Vec<CacheUser> = users()
            .map(|(_, load)| CacheUser {
                pe: load.pe as u32,
                demand: number(&mut demands, &load.demand),
                common: load.common,
            })
            .collect();
        let shares = self.share_known(machine, &numbered, &demands);
        users().zip(shares).for_each(|((index, _), share)| put(index, *share));
        self.demands = demands;
    }

    /// Returns what each of these users has of the caches that they share. A number means the same demand
    /// each time.
    pub fn share_known(
        &mut self,
        machine: &MachineModel,
        users: &[CacheUser],
        demands: &[Demand],
    ) -> &[CacheShare] {
        self.describe(users);
        if !self.solved.contains_key(&self.key) {
            if self.solved.len() == STATES_MAX {
                self.solved.clear();
            }
            let mut loads = std::mem::take(&mut self.loads);
            loads.clear();
            loads.extend(users.iter().map(|&CacheUser { pe, demand, common }| Load {
                pe: pe as usize,
                demand: demands[demand as usize],
                remote: 0.0,
                common,
            }));
            let mut all = vec![CacheShare::default(); users.len()];
            self.solve(machine, &loads, |index, alone, beside| all[index] = CacheShare { alone, beside });
            self.solved.insert(self.key.clone(), all);
            self.loads = loads;
        }
        &self.solved[&self.key]
    }

    /// Writes down the state: the PEs and demands of all users, and how much data each shares with others.
    fn describe(&mut self, users: &[CacheUser]) {
        self.key.clear();
        for (index, user) in users.iter().enumerate() {
            self.key.push(u64::from(user.pe) << 32 | u64::from(user.demand));
            if user.common.share > 0.0 {
                let is_mate = |other: &CacheUser| {
                    other.common.share > 0.0 && other.common.process == user.common.process
                };
                let first = users.iter().position(is_mate).unwrap_or(index);
                self.key.extend([SHARES_DATA | first as u64, user.common.share.to_bits()]);
            }
        }
    }

    /// Calls `put` with what each load misses alone, and beside the others.
    fn solve(&mut self, machine: &MachineModel, loads: &[Load], mut put: impl FnMut(usize, Misses, Misses)) {
        let capacity = |pe: &Pe| machine.l2_bytes[pe.l2];
        self.divide(machine, loads, |pe| pe.l2, capacity, |_, load, own| Curve::of_l2(&load.demand, own));
        let mut l2 = std::mem::take(&mut self.l2);
        l2.clear();
        l2.resize(loads.len(), (0.0, 0.0));
        self.users.iter().for_each(|user| l2[user.index] = (user.held, user.curve.misses(user.held)));
        let alone_in_l2 = |load: &Load| {
            let own = capacity(&machine.pes[load.pe]);
            let curve = Curve::of_l2(&load.demand, own);
            let held = curve.wanted(own.unwrap_or(f64::INFINITY));
            (held, curve.misses(held))
        };
        let l3 = |pe: &Pe| machine.l3_bytes[pe.l3];
        self.divide(
            machine,
            loads,
            |pe| pe.l3,
            l3,
            |index, load, own| {
                let (held, rate) = l2[index];
                Curve::of_l3(&load.demand, own, held, rate, alone_in_l2(load).1)
            },
        );
        for user in &self.users {
            let load = &loads[user.index];
            let own = l3(&machine.pes[load.pe]);
            let (held, alone) = alone_in_l2(load);
            let curve = Curve::of_l3(&load.demand, own, held, alone, alone);
            let alone_memory = curve.misses(curve.wanted(own.unwrap_or(f64::INFINITY)));
            let beside = l2[user.index].1;
            put(
                user.index,
                Misses { l2: alone, memory: alone_memory.min(alone) },
                Misses { l2: beside, memory: user.curve.misses(user.held).min(beside) },
            );
        }
        self.l2 = l2;
    }

    /// Divides the caches of one level among all loads.
    fn divide(
        &mut self,
        machine: &MachineModel,
        loads: &[Load],
        cache: impl Fn(&Pe) -> usize,
        capacity: impl Fn(&Pe) -> Option<f64>,
        curve: impl Fn(usize, &Load, Option<f64>) -> Curve,
    ) {
        self.users.clear();
        self.users.extend(loads.iter().enumerate().map(|(index, load)| {
            let pe = &machine.pes[load.pe];
            let own = capacity(pe);
            let curve = curve(index, load, own);
            let wanted = curve.wanted(own.unwrap_or(f64::INFINITY));
            User { cache: cache(pe), index, curve, wanted, held: wanted, alone: 1.0, faster: 1.0 }
        }));
        self.users.sort_unstable_by_key(|user| (user.cache, user.index));
        let has_common = loads.iter().any(|load| load.common.share > 0.0);
        for users in self.users.chunk_by_mut(|a, b| a.cache == b.cache) {
            if has_common {
                divide_common(users, loads);
            }
            if let Some(own) = capacity(&machine.pes[loads[users[0].index].pe])
                && users.iter().map(|user| user.alone * user.wanted).sum::<f64>() > own
            {
                fill(users, own);
            }
        }
    }
}

/// Returns the first load of the process of a load that shares data, itself among them.
fn first_of(loads: &[Load], index: usize) -> usize {
    let common = loads[index].common;
    let shares = |load: &Load| load.common.share > 0.0 && load.common.process == common.process;
    if common.share > 0.0 { loads.iter().position(shares).unwrap_or(index) } else { index }
}

/// Counts the data that users of a cache share once.
fn divide_common(users: &mut [User], loads: &[Load]) {
    for place in 0..users.len() {
        let share = loads[users[place].index].common.share;
        let first = first_of(loads, users[place].index);
        let sharers = users.iter().filter(|user| first_of(loads, user.index) == first).count() as f64;
        users[place].alone = 1.0 - share + share / sharers;
        users[place].faster = 1.0 - share + share * sharers;
    }
}

/// Returns the number of a demand.
fn number(demands: &mut Vec<Demand>, demand: &Demand) -> u32 {
    let known = demands.iter().position(|seen| seen == demand);
    let number = known.unwrap_or_else(|| {
        demands.push(*demand);
        demands.len() - 1
    });
    number as u32
}

/// Finds the shares of users that want more than there is.
fn fill(users: &mut [User], capacity: f64) {
    let wanting = users.iter().filter(|user| user.wanted > 0.0);
    let equal = capacity / wanting.map(|user| user.alone).sum::<f64>();
    // Nobody holds more than an equal share if lines survive only for the shortest time of these.
    let until_equal = |user: &User| equal / (user.curve.misses(equal) * user.faster * LINE_BYTES);
    let greedy = users.iter().filter(|user| user.wanted > equal);
    let mut survival = greedy.map(until_equal).fold(f64::INFINITY, f64::min);
    let (mut low, mut high) = (0.0, f64::INFINITY);
    for _ in 0..STEPS_MAX {
        let (mut filled, mut growth) = (0.0, 0.0);
        for user in users.iter_mut().filter(|user| user.wanted > 0.0) {
            let (bytes, growing) = user.curve.held(survival * user.faster);
            user.held = bytes.min(user.wanted);
            filled += user.alone * user.held;
            growth += if bytes < user.wanted { user.alone * user.faster * growing } else { 0.0 };
        }
        if (filled - capacity).abs() <= TOLERANCE * capacity {
            return;
        }
        if filled < capacity {
            low = survival
        } else {
            high = survival
        }
        // A step in logarithms: power laws of one exponent, the common case, are solved by a single one.
        let next = survival * (capacity / filled).powf(filled / (growth * survival));
        let is_between = low < next && next < high;
        survival = match is_between {
            true => next,
            false if high.is_infinite() => 2.0 * survival,
            false => 0.5 * (low + high),
        };
    }
}

#[cfg(test)]
mod tests;
