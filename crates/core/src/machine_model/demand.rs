//! What a phase of a program asks of a machine, and where its thread runs.

use serde::{Deserialize, Deserializer};

/// The most points of a [`MissCurve`].
pub const POINTS_MAX: usize = 6;

/// Bytes in a MiB.
pub(super) const MIB: f64 = 1048576.0;

/// The demand of a phase when it runs alone at speed 1.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Demand {
    /// Share of cycles in which the FPU is busy, as a counter shows it, 0..1.
    pub fpu: f64,
    /// Share of the FPU's throughput that it takes from a neighbour, 0..1; as `fpu` if left out. Additions
    /// that depend on each other keep a pipelined FPU busy without taking much from anybody.
    pub fpu_intensity: Option<f64>,
    /// Share of a core's divider that it needs.
    pub divider: f64,
    /// Share of a core's window of instructions (its reorder buffer) that it needs.
    pub window: f64,
    /// Instructions per cycle.
    pub ipc: f64,
    /// Accesses that reach the L2, per 100 cycles: as many could miss. At least as many as do miss alone.
    pub l2_accesses_per_100_cycles: f64,
    /// The share of these accesses that miss, by the cache that the thread has, in place of the next four.
    pub miss_ratio: Option<MissCurve>,
    /// L2 misses per 100 cycles.
    pub l2_misses_per_100_cycles: f64,
    /// Share of the L2 misses that the L3 does not serve, 0..1.
    pub l3_miss_share: f64,
    /// Share of its misses, 0..1, that a prefetcher foresees: they take the channel, and cost no time beyond
    /// the wait for it.
    pub prefetched: f64,
    /// The working set, in MiB.
    pub working_set_mib: f64,
    /// Exponent of the miss rate where the working set exceeds the cache.
    pub miss_exponent: f64,
    /// Branches per instruction, 0..1.
    pub branches: f64,
    /// Mispredicted branches per branch, 0..1.
    pub branch_misses: f64,
}

impl Default for Demand {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Demand {
    /// What a parameter that is left out is. The accesses are those of a program with 20 L1 misses in 1000
    /// instructions at one instruction per cycle: a round number of the order of SPEC CPU2006 (Navarro-Torres
    /// et al., "Memory hierarchy characterization of SPEC CPU2006 and SPEC CPU2017", PLOS ONE 2019).
    pub const DEFAULT: Demand = Demand {
        fpu: 0.0,
        fpu_intensity: None,
        divider: 0.0,
        window: 0.0,
        ipc: 1.0,
        l2_accesses_per_100_cycles: 2.0,
        miss_ratio: None,
        l2_misses_per_100_cycles: 0.0,
        l3_miss_share: 1.0,
        prefetched: 0.0,
        working_set_mib: 0.0,
        miss_exponent: 0.5,
        branches: 0.15,
        branch_misses: 0.03,
    };

    /// The demand of a busy-wait loop on a local variable: many instructions, nothing else.
    pub const SPIN: Demand = Demand { ipc: 2.0, branches: 0.33, branch_misses: 0.0, ..Demand::DEFAULT };

    /// Returns the working set in bytes: what it needs in order to miss no more than it must.
    pub fn working_set(&self) -> f64 {
        MIB * self.miss_ratio.map_or(self.working_set_mib, |curve| curve.enough_mib())
    }

    /// Returns whether it ever leaves the first-level caches.
    pub fn uses_memory(&self) -> bool {
        self.miss_ratio.is_some() || self.working_set_mib > 0.0 || self.l2_misses_per_100_cycles > 0.0
    }

    /// Returns the demand with factors on its misses and its working set.
    pub fn scaled(&self, misses: f64, working_set: f64) -> Demand {
        Demand {
            l2_accesses_per_100_cycles: self.l2_accesses_per_100_cycles * misses,
            miss_ratio: self.miss_ratio.map(|curve| curve.stretched(working_set)),
            l2_misses_per_100_cycles: self.l2_misses_per_100_cycles * misses,
            working_set_mib: self.working_set_mib * working_set,
            ..*self
        }
    }

    /// Returns the first parameter that is out of its range, with the range.
    pub fn fault(&self) -> Option<(&'static str, &'static str)> {
        let share = |x: f64| (0.0..=1.0).contains(&x);
        let amount = |x: f64| x >= 0.0 && x.is_finite();
        let old = self.l2_misses_per_100_cycles == 0.0 && self.working_set_mib == 0.0;
        [
            ("fpu", share(self.fpu), "0 to 1"),
            ("fpu_intensity", self.fpu_intensity.is_none_or(share), "0 to 1"),
            ("divider", share(self.divider), "0 to 1"),
            ("window", share(self.window), "0 to 1"),
            ("ipc", amount(self.ipc), "0 or more"),
            ("l2_accesses_per_100_cycles", amount(self.l2_accesses_per_100_cycles), "0 or more"),
            (
                "miss_ratio",
                self.miss_ratio.is_none() || old,
                "given without l2_misses_per_100_cycles and working_set_mib, which it replaces",
            ),
            ("l2_misses_per_100_cycles", amount(self.l2_misses_per_100_cycles), "0 or more"),
            ("l3_miss_share", share(self.l3_miss_share), "0 to 1"),
            ("prefetched", share(self.prefetched), "0 to 1"),
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

/// Miss ratios at several sizes: without any cache every access misses, between two sizes the ratio is
/// linear, and beyond the last it stays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MissCurve {
    /// Sizes in MiB with ratios; the last one is repeated.
    points: [(f64, f64); POINTS_MAX],
}

impl MissCurve {
    /// Creates the curve through points of MiB, ascending, and ratio, falling from at most 1; the error is
    /// what is wrong.
    pub fn new(points: &[(f64, f64)]) -> Result<Self, String> {
        let last = *points.last().ok_or("a miss_ratio needs a point: [MiB, ratio]")?;
        if points.len() > POINTS_MAX {
            return Err(format!("a miss_ratio has at most {POINTS_MAX} points"));
        }
        let ascends = points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 >= pair[1].1);
        let in_range =
            |&(mib, ratio): &(f64, f64)| mib > 0.0 && mib.is_finite() && (0.0..=1.0).contains(&ratio);
        if !ascends || !points.iter().all(in_range) {
            return Err("in a miss_ratio sizes (above 0) ascend and ratios (0 to 1) fall".to_owned());
        }
        let mut all = [last; POINTS_MAX];
        all[..points.len()].copy_from_slice(points);
        Ok(Self { points: all })
    }

    /// Returns the miss ratio with a cache of this size.
    pub(super) fn ratio(&self, mib: f64) -> f64 {
        let (ratio, slope) = self.segment_where(|size, _| mib * MIB < size);
        ratio - slope * mib * MIB
    }

    /// Returns the first segment to whose end, in bytes and ratio, this applies: the ratio to which it leads
    /// back at no size, and how much the ratio falls per byte.
    pub(super) fn segment_where(&self, applies: impl Fn(f64, f64) -> bool) -> (f64, f64) {
        let mut before = (0.0, 1.0);
        for (mib, ratio) in self.points {
            let end = (mib * MIB, ratio);
            if end.0 > before.0 && applies(end.0, ratio) {
                let slope = (before.1 - ratio) / (end.0 - before.0);
                return (before.1 + slope * before.0, slope);
            }
            before = end;
        }
        (before.1, 0.0)
    }

    /// Returns the smallest size at which it misses no more than with any larger one.
    fn enough_mib(&self) -> f64 {
        let least = self.points[POINTS_MAX - 1].1;
        self.points.iter().find(|point| point.1 == least).map_or(0.0, |point| point.0)
    }

    fn stretched(&self, factor: f64) -> Self {
        Self { points: self.points.map(|(mib, ratio)| (mib * factor, ratio)) }
    }
}

impl<'de> Deserialize<'de> for MissCurve {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let points = Vec::<(f64, f64)>::deserialize(deserializer)?;
        Self::new(&points).map_err(serde::de::Error::custom)
    }
}

/// A thread running on a PE.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// The PE's index.
    pub pe: usize,
    /// Its demand.
    pub demand: Demand,
    /// Share of its misses that other nodes serve, 0..1.
    pub remote: f64,
    /// The data that it shares.
    pub common: Common,
}

impl Load {
    /// A thread whose memory is on its own node, and that shares no data.
    pub fn new(pe: usize, demand: Demand) -> Self {
        Self { pe, demand, remote: 0.0, common: Common::default() }
    }
}

/// Data that the threads of a process share.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Common {
    /// The process.
    pub process: usize,
    /// The part of a thread's working set, 0..1.
    pub share: f64,
}
