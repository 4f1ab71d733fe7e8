//! Accesses to regions of memory: which level serves them, and how long they take.
//!
//! The levels are the core's L1, the L2 and the L3 of the topology, and memory. Each serves what the level
//! before misses. A region that is traversed repeatedly, of which the part f < 1 fits into its share of a
//! cache, misses with the probability m that solves `m = 1 - exp(-m/f)`: with random replacement, a line
//! survives the mN insertions before its next use. (True LRU would lose all lines; real caches are in
//! between.) Users of a cache that does not hold all their regions get shares in proportion to what they
//! insert. If the demand on a level or node exceeds what it delivers, all its users are slowed down
//! accordingly.
//!
//! The shares by insertion and the node's bandwidth are those of the predictor
//! ([`corewise_core::machine_model::contention`]). Its miss-rate curve, in contrast, describes programs whose
//! misses when alone are given, and not a loop over a region.

use super::loops::Loops;
use corewise_core::kernels::Kernel;
use corewise_core::machine_model::MachineModel;
use corewise_core::machine_model::contention::LINE_BYTES;

/// A PE that traverses a region.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct User {
    /// Its index in the machine.
    pub pe: usize,
    /// One of the kernels about memory.
    pub kernel: Kernel,
    /// Bytes.
    pub region: f64,
    /// Share of the time in which it works.
    pub duty: f64,
    /// Its clock as a multiple of the machine's.
    pub clock: f64,
}

/// Returns the nanoseconds of each user's accesses (a load, or a line of a stream): in its L1, which competes
/// with other instructions for the core, and beyond.
pub fn times(
    machine: &MachineModel,
    loops: &Loops,
    cores_of_l3: &[usize],
    users: &[User],
) -> Vec<(f64, f64)> {
    let served = served(machine, loops, users);
    let mut parts: Vec<[f64; 4]> =
        users.iter().zip(&served).map(|(user, served)| alone(machine, loops, user, served)).collect();
    // The demand on a level is derived from the times without queueing: an upper bound, exact if one level
    // takes nearly all of the time.
    let total: Vec<f64> = parts.iter().map(|part| part.iter().sum()).collect();
    for level in 1..4 {
        let lines = |index: usize| served[index][level..].iter().sum::<f64>() / total[index];
        let ghz = machine.ghz;
        let of_core = utilisation(users, lines, |user| {
            (machine.pes[user.pe].core, loops.stream[level] * ghz * user.clock)
        });
        let of_level = utilisation(users, lines, |user| {
            let pe = &machine.pes[user.pe];
            match level {
                1 => (pe.l2, loops.l2_delivers * ghz),
                // Without an L3 each PE counts separately, even the second of a core.
                2 => (pe.l3, loops.l3_delivers_per_core * ghz * cores_of_l3[pe.l3].max(1) as f64),
                _ => (pe.node, machine.memory.bandwidth_gb_per_s),
            }
        });
        for ((part, of_core), of_level) in parts.iter_mut().zip(of_core).zip(of_level) {
            part[level] *= of_core.max(of_level).max(1.0);
        }
    }
    parts.iter().map(|part| (part[0], part[1..].iter().sum())).collect()
}

/// Returns for each user the utilisation of its unit: what all users of the unit demand, in lines per
/// nanosecond, over what it delivers, in bytes per nanosecond.
fn utilisation(
    users: &[User],
    lines: impl Fn(usize) -> f64,
    unit: impl Fn(&User) -> (usize, f64),
) -> Vec<f64> {
    let mut asked: Vec<f64> = Vec::new();
    for (index, user) in users.iter().enumerate() {
        let (unit, delivers) = unit(user);
        asked.resize(asked.len().max(unit + 1), 0.0);
        asked[unit] += user.duty * lines(index) * LINE_BYTES * user.kernel.traffic() / delivers;
    }
    users.iter().map(|user| asked[unit(user).0]).collect()
}

/// Returns the time that a user's accesses spend on each level without other users, in nanoseconds.
fn alone(machine: &MachineModel, loops: &Loops, user: &User, served: &[f64; 4]) -> [f64; 4] {
    let memory = &machine.memory;
    // The first two levels run at the PE's clock, the others at their own.
    let own_clock = machine.ghz * user.clock;
    let ns = match user.kernel {
        Kernel::LoadLatency => {
            let [l1, l2] = loops.latency_cycles.map(|cycles| cycles / own_clock);
            [l1, l2, memory.l3_latency_ns, memory.memory_latency_ns]
        }
        kernel => {
            let ghz = [own_clock, own_clock, machine.ghz, machine.ghz];
            std::array::from_fn(|level| LINE_BYTES * kernel.traffic() / loops.stream[level] / ghz[level])
        }
    };
    std::array::from_fn(|level| served[level] * ns[level])
}

/// Returns the shares of each user's accesses that L1, L2, L3 and memory serve.
fn served(machine: &MachineModel, loops: &Loops, users: &[User]) -> Vec<[f64; 4]> {
    let mut reaches = vec![1.0f64; users.len()];
    let hits: [Vec<f64>; 3] = [0, 1, 2].map(|level| {
        let mut hits = vec![0.0; users.len()];
        let cache = |user: &User| {
            let pe = &machine.pes[user.pe];
            match level {
                0 => (pe.core, Some(1024.0 * loops.l1_kib)),
                1 => (pe.l2, machine.l2_bytes[pe.l2]),
                _ => (pe.l3, machine.l3_bytes[pe.l3]),
            }
        };
        let mut sharers: Vec<(usize, usize)> =
            users.iter().enumerate().map(|(index, user)| (cache(user).0, index)).collect();
        sharers.retain(|&(_, index)| reaches[index] > 0.0);
        sharers.sort_unstable();
        for sharers in sharers.chunk_by(|a, b| a.0 == b.0) {
            let Some(capacity) = cache(&users[sharers[0].1]).1 else { continue };
            let inserts = |index: usize| users[index].region * users[index].duty * reaches[index];
            let all_insert: f64 = sharers.iter().map(|&(_, index)| inserts(index)).sum();
            let wanted: f64 = sharers.iter().map(|&(_, index)| users[index].region).sum();
            let misses = sharers.iter().map(|&(_, index)| {
                let share = capacity * inserts(index) / all_insert / users[index].region;
                (index, if wanted <= capacity { 0.0 } else { miss_share(share) })
            });
            for (index, miss) in misses.collect::<Vec<_>>() {
                hits[index] = reaches[index] * (1.0 - miss);
                reaches[index] *= miss;
            }
        }
        hits
    });
    let share = |index: usize| [hits[0][index], hits[1][index], hits[2][index], reaches[index]];
    (0..users.len()).map(share).collect()
}

/// Returns the share of accesses that miss if the part `fits` of a region fits.
fn miss_share(fits: f64) -> f64 {
    if fits >= 1.0 {
        return 0.0;
    }
    (0..40).fold(1.0, |miss: f64, _| 1.0 - (-miss / fits).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_hardly_fits_hardly_misses() {
        assert_eq!(miss_share(1.0), 0.0);
        // m = 1 - exp(-2 m) has the solution 0.7968.
        assert!((miss_share(0.5) - 0.7968).abs() < 1e-4);
        assert!(miss_share(0.9) < miss_share(0.8) && miss_share(0.01) > 0.99);
    }
}
