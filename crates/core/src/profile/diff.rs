//! Differences between two profiles of a machine, for example after a firmware update, a migration of the
//! virtual machine, or a change of limits.
//!
//! Problem: two calibrations never give the same figures. Approach: a figure has changed if its two 95 %
//! intervals do not overlap. For two independent estimates of equal precision this happens by chance in about
//! 0.6 % of the cells (N. Schenker, J. F. Gentleman, The American Statistician 55(3), 2001), so few unchanged
//! cells are reported as changed. Cells are matched by what was measured (class by name, workload, PEs), not
//! by their position in the file.
//!
//! Limits: a small change within wide intervals is not detected; [`ProfileDiff::unclear`] counts the cells
//! whose intervals are too wide to show a change of a tenth.

use super::{MachineProfile, Measurement};
use crate::cpuset::CpuSet;
use crate::topology::DomainKind;
use std::collections::BTreeMap;

/// Intervals wider than this share of their value hide a change of a tenth.
const WIDE: f64 = 0.2;

/// The differences between two profiles.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
pub struct ProfileDiff {
    /// The figures whose intervals do not overlap, the largest change first.
    pub changed: Vec<Change>,
    /// The number of figures that are in both.
    pub compared: usize,
    /// The number of these with overlapping intervals of which at least one is too wide to show a change of
    /// 10 %.
    pub unclear: usize,
    /// The differences between the two topologies, as reported and as measured, in words.
    pub topology: Vec<String>,
    /// Figures that only the first profile has.
    pub only_first: Vec<String>,
    /// Figures that only the second profile has.
    pub only_second: Vec<String>,
}

/// One figure that changed.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Change {
    /// The figure in words: `Δ of read of 4 MiB, same L2 against across`.
    pub what: String,
    /// The old value.
    pub before: Measurement,
    /// The new value.
    pub after: Measurement,
    /// The size of the change: `after / before - 1` for ratios and amounts, the difference for Δ. `None` if
    /// the old value was 0, so that there is no ratio.
    pub size: Option<f64>,
}

/// Compares `after` with `before`.
pub fn diff(before: &MachineProfile, after: &MachineProfile) -> ProfileDiff {
    let (first, second) = (figures(before), figures(after));
    let mut diff = ProfileDiff { topology: topology(before, after), ..ProfileDiff::default() };
    for (what, (old, is_delta)) in &first {
        let Some((new, _)) = second.get(what) else {
            diff.only_first.push(what.clone());
            continue;
        };
        diff.compared += 1;
        if old.high < new.low || new.high < old.low {
            let size = if *is_delta { new.value - old.value } else { new.value / old.value - 1.0 };
            let size = Some(size).filter(|size| size.is_finite());
            diff.changed.push(Change { what: what.clone(), before: *old, after: *new, size });
        } else if is_wide(old, *is_delta) || is_wide(new, *is_delta) {
            diff.unclear += 1;
        }
    }
    diff.only_second = second.into_keys().filter(|what| !first.contains_key(what)).collect();
    let largest_first = |change: &Change| -change.size.map_or(f64::INFINITY, f64::abs);
    diff.changed.sort_by(|a, b| largest_first(a).total_cmp(&largest_first(b)));
    diff
}

fn is_wide(estimate: &Measurement, is_delta: bool) -> bool {
    let scale = if is_delta { 1.0 } else { estimate.value };
    estimate.high - estimate.low > WIDE * scale
}

/// Returns every figure of a profile by its name, and whether it is a Δ.
fn figures(profile: &MachineProfile) -> BTreeMap<String, (Measurement, bool)> {
    let class = |index: usize| profile.classes.get(index).map_or("no class", |class| class.name.as_str());
    let mut figures = BTreeMap::new();
    let mut put = |what: String, estimate: Measurement, is_delta| figures.insert(what, (estimate, is_delta));
    for pair in &profile.pairs {
        let (workload, class) = (pair.workload, class(pair.class));
        put(format!("rate of {workload}, {class}"), pair.rate, false);
        if let Some(delta) = pair.delta_alone {
            put(format!("Δ of {workload}, {class} against alone"), delta, true);
        }
    }
    for delta in &profile.deltas {
        let (close, distant) = (class(delta.close), class(delta.distant));
        put(format!("Δ of {}, {close} against {distant}", delta.subject), delta.delta, true);
    }
    for latency in &profile.latencies {
        let (kernel, a, b) = (latency.kernel.name(), latency.a, latency.b);
        put(format!("latency of {kernel}, PEs {a} and {b}"), latency.ns, false);
    }
    for point in &profile.memory {
        put(format!("rate of {} alone", point.load), point.rate, false);
    }
    for curve in &profile.contention {
        for (duty, slowdown) in &curve.points {
            let (resource, class) = (curve.resource, class(curve.class));
            put(format!("slowdown by {resource}, {class}, neighbour at {duty:.2}"), *slowdown, false);
        }
    }
    for speed in &profile.speeds {
        put(format!("speed of PE {} at {}", speed.pe, speed.kernel.name()), speed.relative, false);
    }
    for nas in &profile.nas {
        let place = nas.pair_class.map_or("one thread", class);
        let program = if nas.own { "" } else { " (NPB binary)" };
        put(format!("time of {}.{:?}{program}, {place}", nas.nas.name(), nas.class), nas.seconds, false);
    }
    figures
}

/// Returns the differences of the topologies, in words.
fn topology(before: &MachineProfile, after: &MachineProfile) -> Vec<String> {
    let mut words = Vec::new();
    for (what, a, b) in [
        ("PEs", &before.reported.pes, &after.reported.pes),
        ("allowed PEs", &before.reported.allowed, &after.reported.allowed),
    ] {
        if a != b {
            words.push(format!("{what}: {a} before, {b} after"));
        }
    }
    let reported = |profile: &MachineProfile| {
        profile.reported.domains.iter().map(|domain| (domain.kind, domain.pes.clone())).collect()
    };
    let found = |profile: &MachineProfile| {
        profile.discovered.as_ref().map(|discovery| discovery.groups.clone()).unwrap_or_default()
    };
    let mut compare = |how: &str, a: Vec<(DomainKind, CpuSet)>, b: Vec<(DomainKind, CpuSet)>| {
        for (these, those, when) in [(&a, &b, "before"), (&b, &a, "after")] {
            let lost = these.iter().filter(|group| !those.contains(group));
            words.extend(lost.map(|(kind, pes)| format!("{how} only {when}: {} {{{pes}}}", kind.word())));
        }
    };
    compare("reported", reported(before), reported(after));
    compare("found", found(before), found(after));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PeId;
    use crate::kernels::Kernel;
    use crate::profile::{Discovery, Evidence, Load, MemoryPoint, PairClass, PairResult, PeSpeed, Workload};
    use crate::topology::Topology;

    fn estimate(value: f64, half: f64) -> Measurement {
        Measurement { value, low: value - half, high: value + half, repetitions: 9 }
    }

    fn profile() -> MachineProfile {
        let reported = Topology::synthetic("core:2 pu:2").unwrap();
        let mut profile = MachineProfile::empty(reported, Evidence::Simulated);
        let class = |name: &str, closest| PairClass {
            name: name.into(),
            closest: Some(closest),
            pairs: 2,
            measured: Vec::new(),
            largest_deviation: None,
        };
        profile.classes =
            vec![class("same core", DomainKind::Core), class("same node", DomainKind::NumaNode)];
        profile.pairs = vec![PairResult {
            class: 1,
            workload: Workload::both(Kernel::FpAdd, 0),
            rate: estimate(2e9, 1e7),
            delta_alone: Some(estimate(-0.1, 0.01)),
            slowdowns: None,
            discarded: 0,
        }];
        let load = Load { kernel: Kernel::Read, region_bytes: 4096 };
        profile.memory = vec![MemoryPoint { load, rate: estimate(1e10, 2e9) }];
        profile.speeds = vec![PeSpeed { pe: PeId(1), kernel: Kernel::IntAdd, relative: estimate(0.9, 0.02) }];
        profile
    }

    #[test]
    fn the_same_profile_has_not_changed() {
        let found = diff(&profile(), &profile());
        assert_eq!(found, ProfileDiff { compared: 4, unclear: 1, ..ProfileDiff::default() });
    }

    #[test]
    fn changes_are_listed_with_their_size_the_largest_first() {
        let mut after = profile();
        after.pairs[0].rate = estimate(1e9, 1e7);
        after.pairs[0].delta_alone = Some(estimate(-0.9, 0.02));
        after.speeds[0].relative = estimate(0.92, 0.02);
        after.classes.swap(0, 1);
        after.pairs[0].class = 0;
        let found = diff(&profile(), &after);
        let changed: Vec<_> = found
            .changed
            .iter()
            .map(|it| format!("{} {:+.2}", it.what, it.size.unwrap_or(f64::NAN)))
            .collect();
        assert_eq!(
            changed,
            ["Δ of fp-add, same node against alone -0.80", "rate of fp-add, same node -0.50"],
            "classes are matched by name, and overlapping intervals are no change"
        );
    }

    #[test]
    fn what_only_one_profile_has_is_listed() {
        let mut after = profile();
        after.memory[0].load.region_bytes = 8192;
        after.reported = Topology::synthetic("core:4 pu:1").unwrap();
        let groups = vec![(DomainKind::Core, "0-1".parse().unwrap())];
        after.discovered = Some(Discovery { groups, ..Discovery::default() });
        let found = diff(&profile(), &after);
        assert_eq!(found.only_first, ["rate of read 4 KiB alone"]);
        assert_eq!(found.only_second, ["rate of read 8 KiB alone"]);
        assert_eq!(
            found.topology,
            [
                "reported only before: core {0-1}",
                "reported only before: core {2-3}",
                "reported only after: core {0}",
                "reported only after: core {1}",
                "reported only after: core {2}",
                "reported only after: core {3}",
                "found only after: core {0-1}",
            ]
        );
    }
}
