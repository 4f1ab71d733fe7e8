//! What is known of the use of shared units, caches and channels, and what has changed of it.

use corewise_core::machine_model::contention::{Load, Use};
use corewise_core::machine_model::{MachineModel, Pe};

/// What is known of the use of units, caches and channels by a PE's thread.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    /// Whether something about the thread has changed since.
    pub is_stale: bool,
    /// Whether it uses caches, and whether other nodes serve it.
    pub caches: bool,
    pub is_remote: bool,
    /// What the channels know of it; nothing if it has no misses.
    pub channel: Use,
}

/// What changed since paces were worked out.
#[derive(Debug)]
pub(crate) struct Paces {
    /// The PEs that share units with each PE, itself among them.
    pub mates: Vec<Vec<usize>>,
    /// Clusters with a changed thread.
    pub dirty: Vec<usize>,
    pub is_dirty: Vec<bool>,
    /// Nodes with a thread that asks for more or less of the channels.
    pub asks_otherwise: Vec<bool>,
    /// The number of running threads that other nodes serve, and whether there were any at the last update.
    pub remote: usize,
    pub was_connected: bool,
    pub sharers: Vec<Load>,
}

impl Paces {
    /// Knows what the PEs of a machine share.
    pub fn new(machine: &MachineModel) -> Self {
        let mates = |pe: &Pe| {
            // A module contains its cores.
            let cluster = machine.clusters.get(pe.cluster).into_iter().flatten().copied();
            cluster.filter(|&other| machine.pes[other].fpu == pe.fpu).collect()
        };
        Self {
            mates: machine.pes.iter().map(mates).collect(),
            dirty: Vec::new(),
            is_dirty: vec![false; machine.clusters.len()],
            asks_otherwise: vec![false; machine.nodes.len()],
            remote: 0,
            was_connected: false,
            sharers: Vec::new(),
        }
    }
}
