//! What threads want and have of shared units, caches and channels, and what has changed of it.

use super::demands::DemandId;
use corewise_core::machine_model::contention::{CacheShare, CacheUser, Common, Load, Share};
use corewise_core::machine_model::{MachineModel, Pe};

/// What the thread of a PE wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Wants {
    pub demand: DemandId,
    pub uses_caches: bool,
    /// The share of its misses that other nodes serve.
    pub remote: f64,
    /// What it shares with other threads of its process.
    pub common: Common,
    /// The speed of its PE.
    pub speed: f64,
}

/// A set of PEs.
#[derive(Debug)]
pub(crate) struct Marks(Vec<u64>);

/// What is known, and what changed since paces were worked out.
#[derive(Debug)]
pub(crate) struct Paces {
    /// The PEs that share units with each PE, itself among them.
    pub mates: Vec<Vec<usize>>,
    /// What each PE's thread wants, and has of units and caches.
    pub wants: Vec<Option<Wants>>,
    pub of_units: Vec<Share>,
    pub of_caches: Vec<CacheShare>,
    /// PEs of whose threads something has changed.
    pub stale: Vec<usize>,
    /// PEs whose threads want something else of units, of caches; those that have something else.
    pub units: Vec<usize>,
    pub caches: Vec<usize>,
    pub otherwise: Vec<usize>,
    /// PEs whose threads go on otherwise, and those that go on at another pace.
    pub changed: Marks,
    pub slower: Marks,
    /// Memory that is used again.
    pub sharers: Vec<Load>,
    pub users: Vec<CacheUser>,
}

impl Paces {
    /// Knows what the PEs of a machine share.
    pub fn new(machine: &MachineModel) -> Self {
        let mates = |pe: &Pe| {
            // A module contains its cores.
            let cluster = machine.clusters.get(pe.cluster).into_iter().flatten().copied();
            cluster.filter(|&other| machine.pes[other].fpu == pe.fpu).collect()
        };
        let count = machine.pes.len();
        Self {
            mates: machine.pes.iter().map(mates).collect(),
            wants: vec![None; count],
            of_units: vec![Share::default(); count],
            of_caches: vec![CacheShare::default(); count],
            stale: Vec::new(),
            units: Vec::new(),
            caches: Vec::new(),
            otherwise: Vec::new(),
            changed: Marks::of(count),
            slower: Marks::of(count),
            sharers: Vec::new(),
            users: Vec::new(),
        }
    }

    /// Takes the next PE of a word of marks whose thread goes on in another way, and returns whether more
    /// than its pace is another one.
    pub fn next(&mut self, word: usize) -> Option<(usize, bool)> {
        let (changed, slower) = (&mut self.changed.0[word], &mut self.slower.0[word]);
        let both = *changed | *slower;
        let bit = both & both.wrapping_neg();
        let is_changed = *changed & bit != 0;
        (*changed, *slower) = (*changed & !bit, *slower & !bit);
        (bit != 0).then(|| (64 * word + bit.trailing_zeros() as usize, is_changed))
    }
}

impl Marks {
    fn of(pes: usize) -> Self {
        Self(vec![0; pes.div_ceil(64)])
    }

    /// Returns how many words there are, each with the marks of 64 PEs.
    pub fn words(&self) -> usize {
        self.0.len()
    }

    /// Marks a PE.
    pub fn add(&mut self, pe: usize) {
        self.0[pe / 64] |= 1 << (pe % 64);
    }

    /// Takes a PE's mark, and returns whether it had one.
    pub fn take(&mut self, pe: usize) -> bool {
        let (word, bit) = (&mut self.0[pe / 64], 1 << (pe % 64));
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}
