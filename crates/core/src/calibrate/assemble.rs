//! Derives the profile's figures from the measurements.

use super::cell::{ClassArms, Contrast, CurveArm, Place, Purpose};
use super::samples::{Measured, Usual, lost_share};
use super::{ExecutorError, Settings, TaskRun};
use crate::ids::PeId;
use crate::kernels::{Focus, Kernel, Nas, ProblemClass};
use crate::profile::{
    Circumstances, ContentionCurve, Delta, Load, MachineProfile, Measurement, MemoryPoint, Missing,
    NasResult, PairLatency, PairResult, PeSpeed, Preference, Resource, Subject, Workload,
};
use crate::stats::{self, Interval, VALUES_MIN};
use std::collections::BTreeMap;

/// The ratio of the 95th to the 5th percentile of the clock above which a note is added.
const CLOCK_SPREAD: f64 = 1.03;

/// The share of its time that a PE usually loses above which a note is added, 0..1.
const USUALLY_LOST: f64 = 0.05;

/// Adds to the profile the figures, what is missing, and the circumstances that the measurements show.
pub(super) fn assemble(
    cells: &[Measured],
    settings: &Settings,
    interrupted: bool,
    profile: &mut MachineProfile,
) {
    let usual = Usual::learn(cells);
    for cell in cells {
        Reader { cell, usual: &usual, settings }.add_figures(profile);
    }
    let shortage = missing(cells, &usual, interrupted, &mut profile.missing);
    profile.complete = !interrupted && !shortage;
    circumstances(cells, &usual, &mut profile.circumstances);
}

/// Computes the figures of one cell.
struct Reader<'a> {
    cell: &'a Measured,
    usual: &'a Usual,
    settings: &'a Settings,
}

impl Reader<'_> {
    fn add_figures(&self, profile: &mut MachineProfile) {
        match &self.cell.cell.purpose {
            Purpose::Pair { workload, alone, classes } => {
                self.add_memory(*workload, *alone, profile);
                for class in classes {
                    self.add_pair(*workload, *alone, class, profile);
                }
                let arms: Vec<_> = classes.iter().map(|class| (class.class, class.together)).collect();
                self.add_deltas(Subject::Workload(*workload), &arms, profile);
            }
            Purpose::Contention { resource, load, points } => {
                self.add_contention(*resource, *load, points, profile);
            }
            Purpose::Speeds { kernel, places } => self.add_speeds(*kernel, places, profile),
            Purpose::Latencies { kernel, pairs } => self.add_latencies(*kernel, pairs, profile),
            Purpose::Check { class } => {
                let found = &mut profile.classes[*class].largest_deviation;
                *found = found.iter().copied().chain(self.largest_deviation()).reduce(f64::max);
            }
            Purpose::Nas { nas, size, classes } => {
                self.add_nas(*nas, *size, classes, profile);
                let arms: Vec<_> = classes.iter().copied().zip(1..).collect();
                self.add_deltas(Subject::Nas(*nas, *size), &arms, profile);
            }
        }
    }

    /// Returns a monotone function of a contrast.
    fn estimate(&self, contrast: &Contrast, f: impl Fn(f64) -> f64) -> Option<Measurement> {
        let Interval { value, low, high, count } = self.cell.interval(contrast, self.usual)?;
        let (a, b) = (f(low), f(high));
        Some(Measurement { value: f(value), low: a.min(b), high: a.max(b), repetitions: count as u32 })
    }

    /// Returns the logarithm of the mean rate of an arm's threads.
    fn mean_rate(&self, arm: usize) -> Contrast {
        self.cell.cell.arms[arm].rate(arm)
    }

    fn add_memory(&self, workload: Workload, alone: Option<usize>, profile: &mut MachineProfile) {
        let load = workload.first;
        let is_curve = workload.second == load && load.kernel.focus() == Focus::Memory;
        let Some(arm) = alone.filter(|_| is_curve) else { return };
        if profile.memory.iter().all(|point| point.load != load) {
            let rate = self.estimate(&Contrast::rate(arm, 0), f64::exp);
            profile.memory.extend(rate.map(|rate| MemoryPoint { load, rate }));
        }
    }

    fn add_pair(
        &self,
        workload: Workload,
        alone: Option<usize>,
        arms: &ClassArms,
        profile: &mut MachineProfile,
    ) {
        let is_known = |other: &PairResult| (other.class, other.workload) == (arms.class, workload);
        let Some(rate) = self.estimate(&self.mean_rate(arms.together), f64::exp) else { return };
        if profile.pairs.iter().any(is_known) {
            return;
        }
        let against_alone = arms.against_alone(&self.cell.cell.arms, alone);
        let slowdown = |alone: Option<usize>, task| {
            let contrast = Contrast::rate(alone?, 0).minus(Contrast::rate(arms.together, task));
            self.estimate(&contrast, f64::exp)
        };
        let of_class = [alone, arms.alone, Some(arms.together)].into_iter().flatten();
        profile.pairs.push(PairResult {
            class: arms.class,
            workload,
            rate,
            delta_alone: against_alone.and_then(|contrast| self.estimate(&contrast, delta)),
            slowdowns: slowdown(alone, 0).zip(slowdown(arms.alone, 1)),
            discarded: of_class.map(|arm| self.cell.counts(arm, self.usual).1).sum(),
        });
    }

    /// Adds the times with one thread and on each class's pair.
    fn add_nas(&self, nas: Nas, class: ProblemClass, classes: &[usize], profile: &mut MachineProfile) {
        let own = self.settings.nas_own;
        let places = std::iter::once(None).chain(classes.iter().copied().map(Some));
        for (arm, pair_class) in places.enumerate() {
            let is_known =
                |other: &NasResult| (other.nas, other.class, other.pair_class) == (nas, class, pair_class);
            let seconds = self.estimate(&self.mean_rate(arm), |log_rate| (-log_rate).exp());
            let Some(seconds) = seconds.filter(|_| !profile.nas.iter().any(is_known)) else { continue };
            let verified = self.cell.verified;
            profile.nas.push(NasResult { nas, class, own, pair_class, seconds, verified });
        }
    }

    /// Adds Δ for every two classes, given as class and arm, closest first.
    fn add_deltas(&self, subject: Subject, arms: &[(usize, usize)], profile: &mut MachineProfile) {
        for (at, &(close, close_arm)) in arms.iter().enumerate() {
            for &(distant, distant_arm) in &arms[at + 1..] {
                let is_known =
                    |other: &Delta| (other.close, other.distant, other.subject) == (close, distant, subject);
                let contrast = self.mean_rate(close_arm).minus(self.mean_rate(distant_arm));
                let Some(delta) = self.estimate(&contrast, delta) else { continue };
                if !profile.deltas.iter().any(is_known) {
                    let preference = Preference::of(&delta);
                    profile.deltas.push(Delta { close, distant, subject, delta, preference });
                }
            }
        }
    }

    fn add_contention(
        &self,
        resource: Resource,
        load: Load,
        arms: &[CurveArm],
        profile: &mut MachineProfile,
    ) {
        for class_arms in arms.chunk_by(|a, b| a.class == b.class) {
            let point = |arm: &CurveArm| {
                let slowdown = Contrast::rate(0, 0).minus(Contrast::rate(arm.arm, 0));
                Some((arm.duty, self.estimate(&slowdown, f64::exp)?))
            };
            let points: Vec<_> = class_arms.iter().filter_map(point).collect();
            if !points.is_empty() {
                let class = class_arms[0].class;
                profile.contention.push(ContentionCurve { class, resource, load, points });
            }
        }
    }

    fn add_speeds(&self, kernel: Kernel, places: &[Place], profile: &mut MachineProfile) {
        let rate = |place: &Place| Contrast::rate(place.arm, place.task);
        let log_rate = |place: &Place| self.cell.interval(&rate(place), self.usual).map(|rate| rate.value);
        let rates = places.iter().filter_map(|place| Some((log_rate(place)?, place)));
        let Some((_, fastest)) = rates.max_by(|a, b| a.0.total_cmp(&b.0)) else { return };
        let speed = |place: &Place| {
            let relative = self.estimate(&rate(place).minus(rate(fastest)), f64::exp)?;
            Some(PeSpeed { pe: place.pe, kernel, relative })
        };
        profile.speeds.extend(places.iter().filter_map(speed));
    }

    fn add_latencies(&self, kernel: Kernel, pairs: &[(PeId, PeId)], profile: &mut MachineProfile) {
        let latency = |(arm, &(a, b)): (usize, &(PeId, PeId))| {
            let ns = self.estimate(&self.mean_rate(arm), |log_rate| 1e9 * (-log_rate).exp())?;
            Some(PairLatency { a, b, kernel, ns })
        };
        profile.latencies.extend(pairs.iter().enumerate().filter_map(latency));
    }

    /// Returns the largest ratio of the rates of a random pair and the representative, in either direction.
    fn largest_deviation(&self) -> Option<f64> {
        let ratio = |contrast| Some(self.cell.interval(contrast, self.usual)?.value.abs().exp());
        self.cell.cell.wanted.iter().filter_map(ratio).reduce(f64::max)
    }
}

/// Returns Δ from the logarithm of `t_distant / t_close` (interdependencies, §3).
fn delta(log_ratio: f64) -> f64 {
    if log_ratio >= 0.0 { log_ratio.exp() - 1.0 } else { 1.0 - (-log_ratio).exp() }
}

/// Returns which figures are missing and why, and whether any cell lacks repetitions.
fn missing(cells: &[Measured], usual: &Usual, interrupted: bool, missing: &mut Vec<Missing>) -> bool {
    let mut shortage = false;
    for cell in cells {
        let lacks =
            |contrast: &&Contrast| cell.is_possible(contrast) && cell.interval(contrast, usual).is_none();
        let label = || cell.cell.label.clone();
        let failures = cell.failures.iter().flatten().map(|error| match error {
            ExecutorError::Pe { pe, .. } => Missing { what: format!("PE {pe}"), why: error.to_string() },
            ExecutorError::Unavailable { .. } => Missing { what: label(), why: error.to_string() },
        });
        let mut found: Vec<Missing> = failures.collect();
        if cell.cell.wanted.iter().any(|contrast| lacks(&contrast)) {
            shortage = true;
            found.push(Missing { what: label(), why: shortage_words(cell, interrupted) });
        }
        for entry in found {
            if !missing.contains(&entry) {
                missing.push(entry);
            }
        }
    }
    shortage
}

fn shortage_words(cell: &Measured, interrupted: bool) -> String {
    let visits = cell.visits.len();
    if visits >= VALUES_MIN {
        return format!(
            "of {visits} repetitions fewer than {VALUES_MIN} were whole and undisturbed: end other load"
        );
    }
    let end = if interrupted { "the calibration was interrupted" } else { "the time ended" };
    let advice =
        if cell.is_nas() { "a larger budget or fewer benchmarks help" } else { "a larger budget helps" };
    format!("{end} after {visits} of at least {VALUES_MIN} repetitions: {advice}")
}

/// Records the circumstances that the measurements show.
fn circumstances(cells: &[Measured], usual: &Usual, circumstances: &mut Circumstances) {
    let mut by_pe: BTreeMap<PeId, Vec<&TaskRun>> = BTreeMap::new();
    for (pe, run) in cells.iter().flat_map(Measured::task_runs) {
        by_pe.entry(pe).or_default().push(run);
    }
    for cell in cells {
        for arm in 0..cell.cell.arms.len() {
            let (kept, discarded) = cell.counts(arm, usual);
            circumstances.repetitions += u64::from(kept);
            circumstances.discarded += u64::from(discarded);
        }
    }
    let runs = || by_pe.values().flatten();
    let lost: f64 = runs().map(|run| run.lost.as_secs_f64()).sum();
    let elapsed: f64 = runs().map(|run| run.elapsed.as_secs_f64()).sum();
    circumstances.lost_share = if elapsed > 0.0 { lost / elapsed } else { 0.0 };
    let wide = cells.iter().filter(|cell| !cell.done && !cell.visits.is_empty()).count();
    if wide > 0 {
        let note = format!(
            "when the time ended, {wide} of {} cells had wider intervals than asked for",
            cells.len()
        );
        circumstances.notes.push(note);
    }
    for (pe, runs) in &by_pe {
        circumstances.notes.extend(pe_notes(*pe, runs));
    }
}

/// Adds notes about unusual behaviour of a PE.
fn pe_notes(pe: PeId, runs: &[&TaskRun]) -> Vec<String> {
    let mut notes = Vec::new();
    let lost: Vec<f64> = runs.iter().map(|run| lost_share(run)).collect();
    if let Some(usual) = stats::median(&lost).filter(|&usual| usual > USUALLY_LOST) {
        notes.push(format!("PE {pe} usually loses {:.0} % of its time to others", 100.0 * usual));
    }
    let clocks: Vec<f64> = runs.iter().filter_map(|run| run.clock_ghz).collect();
    let range = stats::quantile(&clocks, 0.05).zip(stats::quantile(&clocks, 0.95));
    if let Some((low, high)) = range.filter(|(low, high)| high > &(low * CLOCK_SPREAD)) {
        notes.push(format!("PE {pe} ran at clocks from {low:.2} to {high:.2} GHz"));
    }
    notes
}
