//! Where the pages of processes and threads lie.

use crate::program::duration;
use corewise_core::machine_model::contention::Homes;
use serde::Deserialize;
use std::time::Duration;

/// A share of pages below which a node counts as having none.
const NONE: f64 = 1e-6;

/// How a process's memory is placed, as written in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryUse {
    /// Share of each thread's accesses that go to its private region.
    pub private: f64,
    /// The rest: what goes to the region that all threads of the process share.
    pub shared: f64,
    /// Which nodes hold the pages.
    pub policy: Policy,
}

/// Which nodes hold the pages of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The node of the thread that touches them first.
    #[default]
    FirstTouch,
    /// All in turn.
    Interleave,
}

/// Automatic NUMA balancing. The defaults of periods and sizes are Linux's.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NumaBalancing {
    /// Time between two scans of a thread's memory.
    #[serde(deserialize_with = "duration")]
    pub period: Duration,
    /// MiB that one scan moves at most.
    pub scan_mib: f64,
    /// What moving one page costs its thread, in microseconds: a fault, the copy, the page table.
    pub page_us: f64,
}

impl Default for MemoryUse {
    fn default() -> Self {
        Self { private: 1.0, shared: 0.0, policy: Policy::FirstTouch }
    }
}

impl Default for NumaBalancing {
    fn default() -> Self {
        Self { period: Duration::from_secs(1), scan_mib: 256.0, page_us: 3.0 }
    }
}

impl MemoryUse {
    /// Returns what is wrong with it, if anything is.
    pub fn fault(&self) -> Option<&'static str> {
        let shares = [self.private, self.shared];
        let good = shares.iter().all(|share| (0.0..=1.0).contains(share))
            && (self.private + self.shared - 1.0).abs() < 1e-9;
        (!good).then_some("memory.private and memory.shared must be shares that add up to 1")
    }
}

/// The pages of a region: each node's share, or none that was touched.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Pages(Vec<f64>);

impl Pages {
    /// Adds a part of the region on a node, or on all of them.
    pub fn touch(&mut self, policy: Policy, node: usize, nodes: usize, part: f64) {
        self.0.resize(nodes, 0.0);
        match policy {
            Policy::FirstTouch => self.0[node] += part,
            Policy::Interleave => self.0.iter_mut().for_each(|share| *share += part / nodes as f64),
        }
    }

    /// Moves up to a share of the region to a node; returns the share that moved.
    pub fn pull(&mut self, to: usize, most: f64) -> f64 {
        let all: f64 = self.0.iter().sum();
        let elsewhere = all - self.0[to];
        if elsewhere < NONE {
            return 0.0;
        }
        let moved = most.min(elsewhere);
        let kept = if elsewhere - moved < NONE { 0.0 } else { 1.0 - moved / elsewhere };
        self.0.iter_mut().enumerate().filter(|(node, _)| *node != to).for_each(|(_, share)| *share *= kept);
        self.0[to] = all - self.0.iter().enumerate().filter(|(n, _)| *n != to).map(|(_, s)| s).sum::<f64>();
        moved
    }
}

/// The pages that all threads of a process share.
#[derive(Debug, Default)]
pub(crate) struct ProcessMemory {
    pub shared: Pages,
}

/// The pages of a thread, and the nodes that serve it.
#[derive(Debug, Default)]
pub(crate) struct ThreadMemory {
    pub private: Pages,
    /// The only node that serves it, if it is one; else each node's share is in `shares`.
    pub only: Option<usize>,
    shares: Vec<f64>,
}

impl ThreadMemory {
    /// Returns the nodes that serve it.
    pub fn homes(&self) -> Homes<'_> {
        match self.only {
            Some(node) => Homes::One(node),
            None => Homes::Spread(&self.shares),
        }
    }

    /// Returns whether the thread has run and touched it.
    pub fn is_touched(&self) -> bool {
        self.only.is_some() || !self.shares.is_empty()
    }

    /// Works out anew which nodes serve it.
    pub fn update(&mut self, spec: &MemoryUse, shared: &Pages) {
        let mut shares = std::mem::take(&mut self.shares);
        shares.clear();
        shares.extend(self.private.0.iter().map(|share| spec.private * share));
        // The shared region counts by what is touched of it.
        let touched: f64 = shared.0.iter().sum();
        if spec.shared > 0.0 && touched > 0.0 {
            shares.iter_mut().zip(&shared.0).for_each(|(all, share)| *all += spec.shared * share / touched);
        }
        self.only = shares.iter().position(|share| *share > 1.0 - NONE);
        self.shares = shares;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_moved_and_never_lost() {
        let mut pages = Pages::default();
        pages.touch(Policy::Interleave, 0, 4, 1.0);
        assert_eq!(pages.pull(2, 0.5), 0.5);
        let near = |expected: [f64; 4]| pages.0.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near([0.25 / 3.0, 0.25 / 3.0, 0.75, 0.25 / 3.0]), "{pages:?}");
        assert!((pages.pull(2, 0.5) - 0.25).abs() < 1e-12);
        assert_eq!(pages.0, [0.0, 0.0, 1.0, 0.0]);
        assert_eq!(pages.pull(2, 1.0), 0.0);
    }
}
