//! Cache sizes for choosing regions of which one fits into a cache and two do not.
//!
//! A reported size is trusted only if the latency of dependent loads rises beyond it, since a hypervisor may
//! report anything. Otherwise, or if none is reported, one PE's latency is measured over the region size in
//! steps of a quarter octave: it rises at the end of each level. A level's size is the region from which the
//! latency rises most within the next octave.
//!
//! Limits: levels whose latencies differ by less than [`RISE_MIN`] count as one; a cache larger than
//! [`REGION_MAX`] / 2 is not found. An exclusive L3 that is not much larger than the L2s before it (8 MiB
//! behind 2 MiB) nearly holds two regions.

use super::halt::Halt;
use super::probe::alone;
use crate::calibrate::{Executor, Task, whole_pages};
use crate::ids::PeId;
use crate::kernels::Kernel;
use crate::topology::{DomainKind, Topology};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// The smallest and largest regions of the curve.
const REGION_MIN: f64 = 8192.0;
const REGION_MAX: f64 = (128 << 20) as f64;

/// Regions per octave.
const OCTAVE: usize = 4;

/// The factor by which the latency must rise within an octave at the end of a level.
const RISE_MIN: f64 = 1.6;

/// The duration of one repetition.
const WINDOW: Duration = Duration::from_millis(10);

/// The share of a cache that one PE's region uses.
const FILL: f64 = 0.75;

/// The levels that each PE's latency curve shows; each curve is measured once.
#[derive(Debug, Default)]
pub struct Caches {
    levels: BTreeMap<PeId, Vec<u64>>,
}

impl Caches {
    /// Returns for each PE a region of three quarters of its cache of this kind.
    pub fn regions(
        &mut self,
        executor: &mut dyn Executor,
        reported: &Topology,
        kind: DomainKind,
        pes: &[PeId],
    ) -> Result<BTreeMap<PeId, u64>, Halt> {
        let mut size_of_reported: BTreeMap<Option<u64>, u64> = BTreeMap::new();
        let mut regions = BTreeMap::new();
        for &pe in pes {
            let reported = reported.domain_of(kind, pe).and_then(|cache| cache.bytes);
            // PEs with the same reported size have the same cache.
            let size = match size_of_reported.get(&reported) {
                Some(&size) => size,
                None => self.size(executor, kind, pe, reported)?,
            };
            size_of_reported.insert(reported, size);
            regions.insert(pe, whole_pages(size as f64 * FILL));
        }
        Ok(regions)
    }

    fn size(
        &mut self,
        executor: &mut dyn Executor,
        kind: DomainKind,
        pe: PeId,
        reported: Option<u64>,
    ) -> Result<u64, Halt> {
        if let Some(bytes) = reported {
            let latencies = latencies(executor, pe, &[bytes as f64 * FILL, bytes as f64 * 2.0])?;
            if latencies[1] / latencies[0] >= RISE_MIN {
                return Ok(bytes);
            }
        }
        if let Entry::Vacant(entry) = self.levels.entry(pe) {
            entry.insert(levels(executor, pe)?);
        }
        // The first level of the curve is the L1.
        let place = if kind == DomainKind::L2 { 1 } else { 2 };
        let seen = &self.levels[&pe];
        seen.get(place).copied().ok_or_else(|| Halt::NoCache { reported, seen: seen.clone() })
    }
}

/// Returns the sizes of the caches that one PE's curve shows, smallest first.
fn levels(executor: &mut dyn Executor, pe: PeId) -> Result<Vec<u64>, Halt> {
    let count = ((REGION_MAX / REGION_MIN).log2() * OCTAVE as f64) as usize;
    let region = |step: usize| REGION_MIN * 2f64.powf(step as f64 / OCTAVE as f64);
    let latencies = latencies(executor, pe, &(0..=count).map(region).collect::<Vec<f64>>())?;
    let rises: Vec<f64> = latencies.windows(OCTAVE + 1).map(|octave| octave[OCTAVE] / octave[0]).collect();
    let mut sizes = Vec::new();
    let mut steps: Vec<usize> = (0..rises.len()).collect();
    steps.retain(|&step| rises[step] >= RISE_MIN);
    // Two levels are more than an octave apart; an interruption of a slope within an octave is noise.
    for slope in steps.chunk_by(|a, b| b - a < OCTAVE) {
        let steepest = slope.iter().copied().max_by(|&a, &b| rises[a].total_cmp(&rises[b]));
        sizes.extend(steepest.map(|step| region(step) as u64));
    }
    Ok(sizes)
}

/// Returns the median latency of a load within each region, in a unit that is the same for all regions.
fn latencies(executor: &mut dyn Executor, pe: PeId, regions: &[f64]) -> Result<Vec<f64>, Halt> {
    let task = |&region: &f64| Task::new(pe, Kernel::LoadLatency, whole_pages(region));
    let tasks: Vec<Task> = regions.iter().map(task).collect();
    let (medians, _) = alone(executor, &tasks, WINDOW)?;
    Ok(medians.iter().map(|pace| (-pace).exp()).collect())
}
