//! The number of threads that run or wait on each PE, and the PEs by that number.
//!
//! Problem: the scheduler searches the least loaded PE that a thread may use, thousands of times a simulated
//! second and among hundreds of PEs. Approach: the PEs of each load are kept as a set; only the lowest set
//! with a usable PE is searched. Limits: if all loads are equal, this set contains every PE.

use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;

/// No limit to a load.
pub(super) const ANY_LOAD: usize = usize::MAX - 1;

/// The loads of all PEs.
pub(super) struct Loads {
    of: Vec<usize>,
    /// The PEs of each load.
    with: Vec<CpuSet>,
}

impl Loads {
    /// Creates PEs without threads.
    pub fn new(pes: usize) -> Self {
        Self { of: vec![0; pes], with: vec![CpuSet::first_n(pes as u32)] }
    }

    /// Returns the load of a PE.
    pub fn of(&self, pe: usize) -> usize {
        self.of[pe]
    }

    /// Returns the load of each PE.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.of.iter().copied()
    }

    /// Adds a thread to a PE.
    pub fn add(&mut self, pe: usize) {
        self.set(pe, self.of[pe] + 1);
    }

    /// Removes a thread from a PE.
    pub fn subtract(&mut self, pe: usize) {
        self.set(pe, self.of[pe] - 1);
    }

    fn set(&mut self, pe: usize, load: usize) {
        let id = PeId(pe as u32);
        self.with[self.of[pe]].remove(id);
        if self.with.len() == load {
            self.with.push(CpuSet::new());
        }
        self.with[load].insert(id);
        self.of[pe] = load;
    }

    /// Returns the smallest load of all.
    pub fn least(&self) -> usize {
        self.with.iter().position(|pes| !pes.is_empty()).unwrap_or(0)
    }

    /// Returns, among the least loaded members of a set whose load is within a limit, the one with the
    /// smallest key, and among equals the one with the smallest index.
    pub fn least_loaded<K: Ord>(
        &self,
        pes: &CpuSet,
        limit: usize,
        key: impl Fn(usize) -> K,
    ) -> Option<usize> {
        self.with.iter().take(limit + 1).find_map(|with| {
            let mut least = None;
            // A loop: it takes three quarters of the instructions of `min_by_key`.
            for pe in with.iter().filter(|&pe| pes.contains(pe)) {
                let (pe, key) = (pe.0 as usize, key(pe.0 as usize));
                if least.as_ref().is_none_or(|(least, _)| key < *least) {
                    least = Some((key, pe));
                }
            }
            least.map(|(_, pe)| pe)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_loaded_that_may_be_used_is_found() {
        let mut loads = Loads::new(70);
        for pe in [0, 1, 1, 2, 69] {
            loads.add(pe);
        }
        let among = |loads: &Loads, pes: &str, limit| {
            loads.least_loaded(&pes.parse().expect("PEs"), limit, |pe| 100 - pe)
        };
        assert_eq!(among(&loads, "0-69", 9), Some(68), "the smallest key among those without threads");
        assert_eq!(among(&loads, "0-2,69", 9), Some(69), "of those with one thread");
        assert_eq!((among(&loads, "1", 1), among(&loads, "1", 2)), (None, Some(1)), "the limit");
        loads.subtract(0);
        assert_eq!(among(&loads, "0-2", 9), Some(0));
        assert_eq!((loads.of(1), loads.least(), loads.iter().sum()), (2, 0, 4usize));
    }
}
