//! The predictor: how fast threads run side by side.
//!
//! Problem: a thread's speed depends on what its neighbours leave of each resource, and vice versa. Approach:
//! each running thread has the demand that it shows when it runs alone at speed 1; one work cycle then takes
//!
//! ```text
//! t = (c + w) / s + l        cycles of the machine's clock; s: the PE's speed
//! c = 1 - l0                 the part in the core; l0: its memory stall when alone, at most 0.95
//! w = Σ_r κ_r u_r Σ_j u_jr   waiting for unit r (FPU, issue slots): κ_r cycles per conflict with neighbour j
//! l = m μ [(1-ρ) L3 + ρ M R λ(U)/λ(U0)] (1 - overlap)     stall of the L2 misses; m per cycle when alone
//! ```
//!
//! *Units.* Neighbour j keeps a unit busy with probability `u_j`. For two threads and κ = 1 no unit serves
//! more than it can: `(1-u)(1-v) ≥ 0`. An SMT thread's demand for issue slots is its IPC divided by the
//! width.
//!
//! *Caches* are divided by insertion rate (misses per cycle), with no share larger than the working set. A
//! thread that has `a` instead of `a0` bytes misses `μ = (a0/a)^θ` times as often, and the L3 misses the
//! share `ρ = ρ0 (a0/a)^θ` of its L2 misses. θ is a parameter of the phase; 0.5 is the power law of
//! Hartstein, Srinivasan, Puzak, Emma ("Cache miss behavior: is it √2?", 2006). Shares and miss rates depend
//! on each other and are iterated a few rounds.
//!
//! *Memory.* A node's utilisation U is the sum of the traffic of its threads at the speed that U leaves them.
//! The fixed point is found by bisection with secants; it is unique, as the right side falls with U. The
//! latency grows as the mean wait of an M/D/1 queue, `λ(U) = 1 + U / 2(1-U)`. U0 is the utilisation of the
//! thread alone, so that a lone thread takes exactly its work (unless it asks for more than the node can
//! deliver, which then limits it).
//!
//! Parameters come from the machine model ([`super`]) and from the phase ([`Demand`]).
//!
//! Limits: a thread without misses when alone never has any, so a phase that just fits must be given a small
//! miss rate and a large θ. Insertion rates are those at full speed. Remote accesses load the node where the
//! thread runs, not the one that serves it. Constructive sharing (a neighbour fetches data that the thread
//! needs), prefetchers, TLBs, way conflicts, and a front end shared by the cores of a module are not
//! modelled. Frequencies are fixed.

use super::MachineModel;

/// Bytes that one miss moves.
pub const LINE_BYTES: f64 = 64.0;

/// The largest share of its time that a lone thread is assumed to wait for memory.
const STALL_MAX: f64 = 0.95;

/// Iterations for cache shares and miss rates to converge.
const CACHE_ROUNDS: usize = 6;

/// The largest utilisation of memory that the model returns.
const UTILISATION_MAX: f64 = 0.999;

/// The demand of a phase when it runs alone at speed 1.
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
    /// The working set, in MiB.
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
    /// The demand of a busy-wait loop on a local variable: many instructions, nothing else.
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

    /// Returns the working set in bytes.
    pub fn working_set(&self) -> f64 {
        self.working_set_mib * f64::from(1 << 20)
    }

    /// Returns the first parameter that is out of its range, with the range.
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

/// A thread running on a PE.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// The PE's index.
    pub pe: usize,
    /// Its demand.
    pub demand: Demand,
    /// Whether its memory belongs to another node.
    pub remote: bool,
}

/// The predicted progress of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pace {
    /// Work cycles done per nanosecond.
    pub work_per_ns: f64,
    /// Cycles with a busy FPU per work cycle: those of its own operations, and those waiting for others'.
    pub fpu_busy_per_work: f64,
    /// L2 misses per work cycle.
    pub l2_misses_per_work: f64,
}

/// The predictor with its scratch memory.
#[derive(Debug, Default)]
pub struct Solver {
    fpu: Vec<f64>,
    issue: Vec<f64>,
    users: Vec<(usize, usize)>,
    slots: Vec<Slot>,
    shares: Vec<Share>,
}

/// The share of units and caches that its neighbours leave to a load: everything but the wait for memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Share {
    /// L2 misses per work cycle when alone, and the factor by which sharing increases them.
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

/// The memory of a node: its last users, and the latency growth that resulted.
#[derive(Debug, Default)]
pub struct MemoryNode {
    users: Vec<MemoryUser>,
    next: Vec<MemoryUser>,
    growth: Option<f64>,
}

/// A load that misses: its traffic per work cycle, the cycles that this takes without memory, and those per
/// [`latency_growth`].
#[derive(Debug, Clone, Copy, PartialEq)]
struct MemoryUser {
    traffic: f64,
    cycles: f64,
    cycles_per_growth: f64,
}

/// Returns the growth of memory latency at a utilisation: the mean wait of an M/D/1 queue.
fn latency_growth(utilisation: f64) -> f64 {
    1.0 + utilisation / (2.0 * (1.0 - utilisation))
}

impl Solver {
    /// Returns the paces of all threads on one memory node, in the order of `loads`.
    pub fn solve(&mut self, machine: &MachineModel, loads: &[Load], paces: &mut Vec<Pace>) {
        let shares = self.share(machine, loads);
        let growth = MemoryNode::default().latency_growth(machine, shares.iter());
        paces.clear();
        paces.extend(shares.iter().map(|share| share.pace(machine.ghz, growth)));
    }

    /// Returns what the loads leave each other of units and caches, in order. `loads` are those of one node,
    /// or of one of its [clusters](MachineModel::clusters), as clusters share only memory.
    pub fn share(&mut self, machine: &MachineModel, loads: &[Load]) -> &[Share] {
        self.shares.clear();
        self.shares.resize(loads.len(), Share::default());
        self.share_units(machine, loads);
        let mut memory_bound = false;
        for (share, load) in self.shares.iter_mut().zip(loads) {
            share.misses = load.demand.l2_misses_per_100_cycles / 100.0;
            share.growth = 1.0;
            share.to_memory = load.demand.l3_miss_share;
            memory_bound |= share.misses > 0.0;
        }
        if memory_bound {
            self.share_cache(loads, &machine.l2_bytes, |load| machine.pes[load.pe].l2, Level::L2);
            self.share_cache(loads, &machine.l3_bytes, |load| machine.pes[load.pe].l3, Level::L3);
            self.set_stalls(machine, loads);
        }
        &self.shares
    }

    /// Computes the waits for FPUs and issue slots, and the part in the core of a thread without misses.
    fn share_units(&mut self, machine: &MachineModel, loads: &[Load]) {
        let units = &machine.units;
        let count = 2 * machine.pes.len();
        self.fpu.resize(count, 0.0);
        self.issue.resize(count, 0.0);
        for load in loads {
            let pe = &machine.pes[load.pe];
            self.fpu[pe.fpu] += load.demand.fpu;
            self.issue[pe.core] += issue_share(load, units.issue_width);
        }
        for (share, load) in self.shares.iter_mut().zip(loads) {
            let pe = &machine.pes[load.pe];
            let (fpu, issue) = (load.demand.fpu, issue_share(load, units.issue_width));
            let fpu_wait = units.fpu_conflict * fpu * (self.fpu[pe.fpu] - fpu).max(0.0);
            let issue_wait = units.issue_conflict * issue * (self.issue[pe.core] - issue).max(0.0);
            share.core = (1.0 + fpu_wait + issue_wait) / pe.speed;
            share.fpu_busy = fpu + fpu_wait;
        }
        for load in loads {
            let pe = &machine.pes[load.pe];
            self.fpu[pe.fpu] = 0.0;
            self.issue[pe.core] = 0.0;
        }
    }

    fn set_stalls(&mut self, machine: &MachineModel, loads: &[Load]) {
        let memory = &machine.memory;
        let exposed = 1.0 - memory.overlap;
        for (share, load) in self.shares.iter_mut().zip(loads) {
            if share.misses == 0.0 {
                continue;
            }
            let through = load.demand.l3_miss_share;
            let latency = (1.0 - through) * memory.l3_latency_cycles + through * memory.memory_latency_cycles;
            let uncapped = share.misses * latency * exposed;
            let alone = uncapped.min(STALL_MAX);
            let per_miss = exposed * alone / uncapped;
            let alone_traffic = share.misses * through * LINE_BYTES * machine.ghz;
            let alone_growth = latency_growth((alone_traffic / memory.bandwidth_gb_per_s).min(STALL_MAX));
            let remote = if load.remote { memory.remote_factor } else { 1.0 };
            let misses = share.misses * share.growth * per_miss;
            share.stall_l3 = misses * (1.0 - share.to_memory) * memory.l3_latency_cycles;
            share.stall_memory =
                misses * share.to_memory * memory.memory_latency_cycles * remote / alone_growth;
            share.core -= alone / machine.pes[load.pe].speed;
        }
    }

    /// Divides each cache among the loads that insert into it.
    fn share_cache(
        &mut self,
        loads: &[Load],
        capacities: &[Option<f64>],
        unit: impl Fn(&Load) -> usize,
        level: Level,
    ) {
        let Self { users, slots, shares, .. } = self;
        users.clear();
        for (index, load) in loads.iter().enumerate() {
            if shares[index].misses > 0.0 && load.demand.working_set_mib > 0.0 {
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
            slots.clear();
            slots.extend(sharers.iter().map(|user| {
                let share = &shares[user.1];
                let inserts = match level {
                    Level::L2 => share.misses,
                    Level::L3 => share.misses * share.growth * share.to_memory,
                };
                let exponent = loads[user.1].demand.miss_exponent;
                Slot { index: user.1, inserts, wanted: wanted(user), exponent, growth: 1.0, bytes: 0.0 }
            }));
            divide(slots, capacity);
            for slot in slots.iter() {
                let share = &mut shares[slot.index];
                match level {
                    Level::L2 => share.growth = slot.growth,
                    Level::L3 => share.to_memory = (share.to_memory * slot.growth).min(1.0),
                }
            }
        }
    }
}

impl MemoryNode {
    /// Returns the latency growth that these threads cause together; recomputed only if the threads have
    /// changed.
    pub fn latency_growth<'a>(
        &mut self,
        machine: &MachineModel,
        shares: impl Iterator<Item = &'a Share>,
    ) -> f64 {
        self.next.clear();
        self.next.extend(shares.filter(|share| share.misses > 0.0).map(Share::memory_user));
        match self.growth {
            Some(growth) if self.next == self.users => growth,
            _ => {
                std::mem::swap(&mut self.users, &mut self.next);
                let growth = latency_growth(self.utilisation(machine));
                *self.growth.insert(growth)
            }
        }
    }

    /// Returns the memory utilisation that the threads cause at the speed that it leaves them.
    fn utilisation(&self, machine: &MachineModel) -> f64 {
        let per_cycle = machine.ghz * LINE_BYTES / machine.memory.bandwidth_gb_per_s;
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
        // Illinois method: secants; an endpoint that stays twice loses half its weight, so that both ends
        // converge.
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

impl Share {
    /// Returns the pace if the memory latency grows by this factor.
    pub fn pace(&self, ghz: f64, latency_growth: f64) -> Pace {
        Pace {
            work_per_ns: ghz / (self.core + self.stall_l3 + self.stall_memory * latency_growth),
            fpu_busy_per_work: self.fpu_busy,
            l2_misses_per_work: self.misses * self.growth,
        }
    }

    fn memory_user(&self) -> MemoryUser {
        MemoryUser {
            traffic: self.misses * self.growth * self.to_memory,
            cycles: self.core + self.stall_l3,
            cycles_per_growth: self.stall_memory,
        }
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

/// One user of a cache.
#[derive(Debug)]
struct Slot {
    index: usize,
    inserts: f64,
    wanted: f64,
    exponent: f64,
    growth: f64,
    bytes: f64,
}

/// Computes shares in proportion to insertion rates, none larger than the working set; the rates follow from
/// the shares.
fn divide(slots: &mut [Slot], capacity: f64) {
    for _ in 0..CACHE_ROUNDS {
        let (mut left, mut weight) = (capacity, slots.iter().map(Slot::weight).sum::<f64>());
        slots.iter_mut().for_each(|slot| slot.bytes = 0.0);
        // Each round satisfies the slots that want no more than their share; the rest share the remainder.
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
            // The common exponent 0.5 has a dedicated function, ten times as fast.
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
