//! How fast threads run side by side.
//!
//! Problem: a thread's speed depends on what its neighbours leave of each resource, and theirs on what it
//! leaves. Approach: each running thread has a demand as it is seen when it runs alone at speed 1; one work
//! cycle then takes
//!
//! ```text
//! t = (c + w) / s + l        cycles of the machine's clock; s: the PE's speed
//! c = 1 - l0                 the part in the core; l0: its memory stall when alone, at most 0.95
//! w = Σ_r κ_r u_r Σ_j u_jr   waiting for unit r (FPU, issue slots): κ_r cycles per conflict with neighbour j
//! l = m μ [(1-ρ) L3 + ρ M R λ(U)/λ(U0)] (1 - overlap)     stall of the L2 misses; m per cycle when alone
//! ```
//!
//! *Units.* A unit is found busy by j with probability `u_j`. For two threads and κ = 1 no unit serves more
//! than it can: `(1-u)(1-v) ≥ 0`. An SMT thread's demand for issue slots is its IPC divided by the width.
//!
//! *Caches* are divided by insertion rate (misses per cycle), no share larger than the working set; a thread
//! that has `a` instead of `a0` bytes misses `μ = (a0/a)^θ` times as often, and of its L2 misses the L3 lets
//! `ρ = ρ0 (a0/a)^θ` through. θ is a parameter of the phase; 0.5 is the power law of Hartstein, Srinivasan,
//! Puzak, Emma ("Cache miss behavior: is it √2?", 2006). Shares and miss rates depend on each other: a few
//! rounds settle them.
//!
//! *Memory.* A node's utilisation U is the sum of the traffic of its threads at the speed that U leaves
//! them: the fixed point is found by bisection with secants (the right side falls with U, so there is just
//! one). The latency grows as the mean wait of an M/D/1 queue, `λ(U) = 1 + U / 2(1-U)`. U0 is the
//! utilisation of the thread alone, so that a lone thread takes exactly its work (unless it asks for more
//! than the node can deliver: then it gets that).
//!
//! Parameters come from the machine's description ([`crate::machine`]) and the phase's ([`Demand`]).
//!
//! Limits: a thread without misses when alone never has any, so a phase that just fits must be given a small
//! miss rate and a large θ. Insertion rates are those at full speed. Remote accesses load the node where the
//! thread runs, not the one that serves it. Helpful sharing (a neighbour that fetches what I need) is
//! absent, so are prefetchers, TLBs, way conflicts, and a front end that cores of a module share.
//! Frequencies are fixed.

use crate::machine::Machine;

/// Bytes that one miss moves.
pub const LINE_BYTES: f64 = 64.0;

/// The largest part of its time that a lone thread is taken to wait for memory.
const STALL_MAX: f64 = 0.95;

/// Rounds in which cache shares and miss rates settle.
const CACHE_ROUNDS: usize = 6;

/// The largest utilisation of memory that the model answers with.
const UTILISATION_MAX: f64 = 0.999;

/// What a phase asks of a PE when it runs alone at speed 1.
#[derive(Debug, Clone, Copy, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Demand {
    /// Share of cycles in which the FPU is busy, 0..1.
    pub fpu: f64,
    /// Instructions per cycle.
    pub ipc: f64,
    /// L2 misses per 100 cycles.
    pub l2_misses_per_100_cycles: f64,
    /// Share of the L2 misses that the L3 does not serve, 0..1.
    pub l3_miss_share: f64,
    /// What it touches again and again, in MiB.
    pub working_set_mib: f64,
    /// Exponent θ of the miss-rate curve.
    pub miss_exponent: f64,
    /// Branches per instruction, 0..1.
    pub branches: f64,
    /// Mispredicted branches per branch, 0..1.
    pub branch_misses: f64,
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            fpu: 0.0,
            ipc: 1.0,
            l2_misses_per_100_cycles: 0.0,
            l3_miss_share: 1.0,
            working_set_mib: 0.0,
            miss_exponent: 0.5,
            branches: 0.15,
            branch_misses: 0.03,
        }
    }
}

impl Demand {
    /// A busy-wait loop on a local variable: many instructions, nothing else.
    pub const SPIN: Demand = Demand {
        fpu: 0.0,
        ipc: 2.0,
        l2_misses_per_100_cycles: 0.0,
        l3_miss_share: 1.0,
        working_set_mib: 0.0,
        miss_exponent: 0.5,
        branches: 0.33,
        branch_misses: 0.0,
    };

    /// Its working set in bytes.
    pub fn working_set(&self) -> f64 {
        self.working_set_mib * f64::from(1 << 20)
    }

    /// The first parameter that is out of its range, with the range.
    pub fn fault(&self) -> Option<(&'static str, &'static str)> {
        let share = |x: f64| (0.0..=1.0).contains(&x);
        let amount = |x: f64| x >= 0.0 && x.is_finite();
        [
            ("fpu", share(self.fpu), "0 to 1"),
            ("ipc", amount(self.ipc), "0 or more"),
            ("l2_misses_per_100_cycles", amount(self.l2_misses_per_100_cycles), "0 or more"),
            ("l3_miss_share", share(self.l3_miss_share), "0 to 1"),
            ("working_set_mib", amount(self.working_set_mib), "0 or more"),
            ("miss_exponent", amount(self.miss_exponent), "0 or more"),
            ("branches", share(self.branches), "0 to 1"),
            ("branch_misses", share(self.branch_misses), "0 to 1"),
        ]
        .into_iter()
        .find(|(_, holds, _)| !holds)
        .map(|(name, _, range)| (name, range))
    }
}

/// A thread that runs on a PE.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// The PE's index.
    pub pe: usize,
    /// What it asks for.
    pub demand: Demand,
    /// Whether its memory is another node's.
    pub remote: bool,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pace {
    /// Work cycles done per nanosecond.
    pub work_per_ns: f64,
    /// Cycles with a busy FPU per work cycle: its own operations and its waits for others'.
    pub fpu_busy_per_work: f64,
    /// L2 misses per work cycle.
    pub l2_misses_per_work: f64,
}

/// The model with its working memory.
#[derive(Debug, Default)]
pub struct Model {
    fpu: Vec<f64>,
    issue: Vec<f64>,
    states: Vec<State>,
    users: Vec<MemoryUser>,
}

/// A load that misses: its traffic per work cycle, and the cycles that this takes without memory and per
/// [`latency_growth`].
#[derive(Debug, Clone, Copy)]
struct MemoryUser {
    traffic: f64,
    cycles: f64,
    cycles_per_growth: f64,
}

/// One load while its pace is worked out.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// L2 misses per work cycle when alone, and factor by which sharing makes them more.
    misses: f64,
    growth: f64,
    /// Share of its L2 misses that goes to memory.
    to_memory: f64,
    /// Part in the core and waits for units, divided by the speed.
    core: f64,
    fpu_busy: f64,
    /// Stall per work cycle for the L3, and for memory as a multiple of λ.
    stall_l3: f64,
    stall_memory: f64,
}

/// Growth of the latency of memory at a utilisation: the mean wait of an M/D/1 queue.
fn latency_growth(utilisation: f64) -> f64 {
    1.0 + utilisation / (2.0 * (1.0 - utilisation))
}

impl Model {
    /// The paces of all threads that run on one memory node, in the order of `loads`.
    pub fn solve(&mut self, machine: &Machine, loads: &[Load], paces: &mut Vec<Pace>) {
        self.states.clear();
        self.states.resize(loads.len(), State::default());
        self.share_units(machine, loads);
        let mut memory_bound = false;
        for (state, load) in self.states.iter_mut().zip(loads) {
            state.misses = load.demand.l2_misses_per_100_cycles / 100.0;
            state.growth = 1.0;
            state.to_memory = load.demand.l3_miss_share;
            memory_bound |= state.misses > 0.0;
        }
        let mut utilisation = 0.0;
        if memory_bound {
            share_cache(
                &mut self.states,
                loads,
                &machine.l2_bytes,
                |load| machine.pes[load.pe].l2,
                Level::L2,
            );
            share_cache(
                &mut self.states,
                loads,
                &machine.l3_bytes,
                |load| machine.pes[load.pe].l3,
                Level::L3,
            );
            self.set_stalls(machine, loads);
            utilisation = self.utilisation(machine);
        }
        let ghz = machine.spec.ghz;
        let growth = latency_growth(utilisation);
        paces.clear();
        paces.extend(self.states.iter().map(|state| Pace {
            work_per_ns: ghz / state.cycles(growth),
            fpu_busy_per_work: state.fpu_busy,
            l2_misses_per_work: state.misses * state.growth,
        }));
    }

    /// Waits for FPUs and issue slots, and the part in the core of a thread without misses.
    fn share_units(&mut self, machine: &Machine, loads: &[Load]) {
        let units = &machine.spec.units;
        let count = 2 * machine.pes.len();
        self.fpu.resize(count, 0.0);
        self.issue.resize(count, 0.0);
        for load in loads {
            let pe = &machine.pes[load.pe];
            self.fpu[pe.fpu] += load.demand.fpu;
            self.issue[pe.core] += issue_share(load, units.issue_width);
        }
        for (state, load) in self.states.iter_mut().zip(loads) {
            let pe = &machine.pes[load.pe];
            let (fpu, issue) = (load.demand.fpu, issue_share(load, units.issue_width));
            let fpu_wait = units.fpu_conflict * fpu * (self.fpu[pe.fpu] - fpu).max(0.0);
            let issue_wait = units.issue_conflict * issue * (self.issue[pe.core] - issue).max(0.0);
            state.core = (1.0 + fpu_wait + issue_wait) / pe.speed;
            state.fpu_busy = fpu + fpu_wait;
        }
        for load in loads {
            let pe = &machine.pes[load.pe];
            self.fpu[pe.fpu] = 0.0;
            self.issue[pe.core] = 0.0;
        }
    }

    fn set_stalls(&mut self, machine: &Machine, loads: &[Load]) {
        let memory = &machine.spec.memory;
        let exposed = 1.0 - memory.overlap;
        for (state, load) in self.states.iter_mut().zip(loads) {
            if state.misses == 0.0 {
                continue;
            }
            let through = load.demand.l3_miss_share;
            let latency = (1.0 - through) * memory.l3_latency_cycles + through * memory.memory_latency_cycles;
            let uncapped = state.misses * latency * exposed;
            let alone = uncapped.min(STALL_MAX);
            let per_miss = exposed * alone / uncapped;
            let alone_traffic = state.misses * through * LINE_BYTES * machine.spec.ghz;
            let alone_growth = latency_growth((alone_traffic / memory.bandwidth_gb_per_s).min(STALL_MAX));
            let remote = if load.remote { memory.remote_factor } else { 1.0 };
            let misses = state.misses * state.growth * per_miss;
            state.stall_l3 = misses * (1.0 - state.to_memory) * memory.l3_latency_cycles;
            state.stall_memory =
                misses * state.to_memory * memory.memory_latency_cycles * remote / alone_growth;
            state.core -= alone / machine.pes[load.pe].speed;
        }
    }

    /// The utilisation of memory that the threads cause at the speed that it leaves them.
    fn utilisation(&mut self, machine: &Machine) -> f64 {
        self.users.clear();
        self.users.extend(self.states.iter().filter(|state| state.misses > 0.0).map(|s| MemoryUser {
            traffic: s.misses * s.growth * s.to_memory,
            cycles: s.core + s.stall_l3,
            cycles_per_growth: s.stall_memory,
        }));
        let per_cycle = machine.spec.ghz * LINE_BYTES / machine.spec.memory.bandwidth_gb_per_s;
        let caused = |utilisation: f64| -> f64 {
            let growth = latency_growth(utilisation);
            let rate = |user: &MemoryUser| user.traffic / (user.cycles + user.cycles_per_growth * growth);
            self.users.iter().map(rate).sum::<f64>() * per_cycle
        };
        let (mut low, mut high) = (0.0, UTILISATION_MAX);
        let (mut above, mut below) = (caused(low), caused(high) - high);
        if below >= 0.0 {
            return high;
        }
        // Illinois: secants; an end that stays twice loses half its weight, so that both ends close in.
        let mut moved_low = None;
        for _ in 0..60 {
            let middle = (low * below - high * above) / (below - above);
            let excess = caused(middle) - middle;
            if excess.abs() < 1e-9 {
                return middle;
            }
            let moves_low = excess > 0.0;
            if moves_low {
                (low, above) = (middle, excess);
                below /= if moved_low == Some(true) { 2.0 } else { 1.0 };
            } else {
                (high, below) = (middle, excess);
                above /= if moved_low == Some(false) { 2.0 } else { 1.0 };
            }
            moved_low = Some(moves_low);
        }
        low
    }
}

impl State {
    /// Cycles of the machine's clock per work cycle.
    fn cycles(&self, latency_growth: f64) -> f64 {
        self.core + self.stall_l3 + self.stall_memory * latency_growth
    }
}

fn issue_share(load: &Load, width: f64) -> f64 {
    (load.demand.ipc / width).min(1.0)
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    L2,
    L3,
}

/// Divides each cache among the loads that insert into it.
fn share_cache(
    states: &mut [State],
    loads: &[Load],
    capacities: &[Option<f64>],
    unit: impl Fn(&Load) -> usize,
    level: Level,
) {
    let mut users: Vec<(usize, usize)> = Vec::with_capacity(loads.len());
    for (index, load) in loads.iter().enumerate() {
        if states[index].misses > 0.0 && load.demand.working_set_mib > 0.0 {
            users.push((unit(load), index));
        }
    }
    users.sort_unstable();
    for sharers in users.chunk_by(|a, b| a.0 == b.0) {
        let Some(capacity) = capacities[sharers[0].0] else { continue };
        let wanted = |&(_, index): &(usize, usize)| loads[index].demand.working_set().min(capacity);
        if sharers.iter().map(wanted).sum::<f64>() <= capacity {
            continue;
        }
        let mut slots: Vec<Slot> = sharers
            .iter()
            .map(|user| {
                let state = &states[user.1];
                let inserts = match level {
                    Level::L2 => state.misses,
                    Level::L3 => state.misses * state.growth * state.to_memory,
                };
                let exponent = loads[user.1].demand.miss_exponent;
                Slot { index: user.1, inserts, wanted: wanted(user), exponent, growth: 1.0, bytes: 0.0 }
            })
            .collect();
        divide(&mut slots, capacity);
        for slot in &slots {
            let state = &mut states[slot.index];
            match level {
                Level::L2 => state.growth = slot.growth,
                Level::L3 => state.to_memory = (state.to_memory * slot.growth).min(1.0),
            }
        }
    }
}

/// One user of a cache.
struct Slot {
    index: usize,
    inserts: f64,
    wanted: f64,
    exponent: f64,
    growth: f64,
    bytes: f64,
}

/// Shares in proportion to insertion rates, none larger than wanted; the rates follow from the shares.
fn divide(slots: &mut [Slot], capacity: f64) {
    for _ in 0..CACHE_ROUNDS {
        let (mut left, mut weight) = (capacity, slots.iter().map(Slot::weight).sum::<f64>());
        slots.iter_mut().for_each(|slot| slot.bytes = 0.0);
        // Each round gives those their all who want no more than their share; the rest share what is left.
        loop {
            let (bytes_left, weight_left) = (left, weight);
            let modest =
                |slot: &Slot| slot.bytes == 0.0 && slot.wanted * weight_left <= bytes_left * slot.weight();
            for slot in slots.iter_mut() {
                if modest(slot) {
                    slot.bytes = slot.wanted;
                    left -= slot.wanted;
                    weight -= slot.weight();
                }
            }
            if left == bytes_left {
                break;
            }
        }
        for slot in slots.iter_mut() {
            if slot.bytes == 0.0 {
                slot.bytes = left * slot.weight() / weight;
            }
            let shortage = (slot.wanted / slot.bytes.max(LINE_BYTES)).max(1.0);
            // The common exponent has a function of its own, ten times as fast.
            slot.growth = if slot.exponent == 0.5 { shortage.sqrt() } else { shortage.powf(slot.exponent) };
        }
    }
}

impl Slot {
    fn weight(&self) -> f64 {
        self.inserts * self.growth
    }
}

#[cfg(test)]
mod tests;
