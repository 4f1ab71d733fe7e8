//! The figures of one variant, from its runs and those of the baseline with the same seeds.

use super::energy::{EnergyResult, RunEnergy};
use super::results::{AppResult, BySeed, VariantResult};
use super::run::{AppRun, Run, geometric_mean, names};
use crate::estimate::Estimate;
use crate::scenario::{Scenario, Variant};
use corewise_core::machine_model::Distance;
use corewise_core::plan::SettingKind;
use std::collections::{BTreeMap, BTreeSet};

/// What the figures of a variant follow from. The runs are in the order of the seeds.
pub(super) struct Figures<'a> {
    pub scenario: &'a Scenario,
    /// A run of each application alone.
    pub alone: &'a [Run],
    /// The runs of the variant.
    pub runs: &'a [Run],
    /// Those of the baseline.
    pub baseline: &'a [Run],
}

impl Figures<'_> {
    pub fn result(&self, variant: &Variant) -> VariantResult {
        let own_names = names(self.scenario);
        let applications: Vec<AppResult> = own_names.iter().map(|name| self.application(name)).collect();
        let by_seed = self.by_seed(&own_names);
        let first = self.runs.first();
        VariantResult {
            name: variant.name.clone(),
            policy: variant.policy.to_string(),
            speedup: Estimate::mean_ratio(&by_seed.speedup),
            all_done_seconds: known(self.runs.iter().map(|run| run.all_done)),
            all_done_speedup: Estimate::mean_ratio(&by_seed.all_done_speedup),
            weighted_speedup: known(self.runs.iter().map(|run| self.weighted_speedup(run, &own_names))),
            weighted_speedup_over_default: Estimate::mean_ratio(&by_seed.weighted_speedup_over_default),
            fairness: known(self.runs.iter().map(|run| self.fairness(run, &own_names))),
            energy: EnergyResult::of(self.runs),
            migrations: self.migrations(),
            settings: self.settings(),
            guard: first.and_then(|run| run.guard),
            timeline: first.map(|run| run.timeline.clone()).unwrap_or_default(),
            timeline_seconds: first.map_or(0.0, |run| run.seconds),
            applications,
            by_seed,
        }
    }

    fn by_seed(&self, names: &[&str]) -> BySeed {
        let pairs = || self.baseline.iter().zip(self.runs);
        let speedup = |base: &Run, run: &Run| {
            let speedups: Option<Vec<f64>> = names.iter().map(|name| speedup(base, run, name)).collect();
            geometric_mean(speedups?.into_iter())
        };
        let sequential = |run: &Run| {
            let shares: Option<Vec<f64>> =
                names.iter().map(|name| run.apps.get(*name)?.sequential()).collect();
            Some(shares?.iter().sum::<f64>() / names.len() as f64)
        };
        BySeed {
            speedup: all(pairs().map(|(base, run)| speedup(base, run))),
            all_done_speedup: all(pairs().map(|(base, run)| Some(base.all_done? / run.all_done?))),
            weighted_speedup_over_default: all(pairs().map(|(base, run)| {
                let of = |run| self.weighted_speedup(run, names).filter(|sum| *sum > 0.0);
                Some(of(run)? / of(base)?)
            })),
            sequential_fraction: all(self.runs.iter().map(sequential)),
        }
    }

    fn application(&self, name: &str) -> AppResult {
        let amp = !self.scenario.machine.speeds.is_empty();
        let each = |figure: &dyn Fn(&Run, &AppRun) -> Option<f64>| {
            all(self.runs.iter().map(|run| figure(run, run.apps.get(name)?)))
        };
        let mean = |figure: &dyn Fn(&Run, &AppRun) -> Option<f64>| Estimate::mean(&each(figure));
        let times = each(&|_, app| app.time());
        let pairs = self.baseline.iter().zip(self.runs);
        AppResult {
            name: name.to_owned(),
            seconds: Estimate::mean(&times),
            spread: Estimate::spread(&times),
            speedup: Estimate::mean_ratio(&all(pairs.map(|(base, run)| speedup(base, run, name)))),
            progress: mean(&|run, _| self.progress(run, name)),
            sequential_fraction: mean(&|_, app| app.sequential()),
            instructions_per_second: mean(&|run, app| Some(app.instructions / run.seconds)),
            fast_share: mean(&|_, app| {
                (amp && app.cpu_ns > 0).then(|| app.fast_ns as f64 / app.cpu_ns as f64)
            }),
            joules: mean(&|_, app| app.joules),
        }
    }

    fn migrations(&self) -> BTreeMap<&'static str, Estimate> {
        let of = |distance: Distance| {
            let counts = self.runs.iter().map(|run| run.migrations.get(&distance).map_or(0.0, |n| *n as f64));
            Some((distance.word(), Estimate::mean(&counts.collect::<Vec<_>>())?))
        };
        Distance::MOVES.into_iter().filter_map(of).filter(|(_, count)| count.value > 0.0).collect()
    }

    fn settings(&self) -> BTreeMap<String, Estimate> {
        let kinds: BTreeSet<SettingKind> =
            self.runs.iter().flat_map(|run| run.settings.keys().copied()).collect();
        let of = |kind: SettingKind| {
            let counts = self.runs.iter().map(|run| run.settings.get(&kind).map_or(0.0, |n| *n as f64));
            Some((kind.to_string(), Estimate::mean(&counts.collect::<Vec<_>>())?))
        };
        kinds.into_iter().filter_map(of).collect()
    }

    /// Returns what an application gets done in a second, relative to alone.
    fn progress(&self, run: &Run, name: &str) -> Option<f64> {
        let rate = |run: &Run| Some(run.apps.get(name)?.work / run.seconds);
        let alone = rate(self.alone(name)?)?;
        (alone > 0.0).then_some(rate(run)? / alone)
    }

    fn alone(&self, name: &str) -> Option<&Run> {
        self.alone.iter().find(|run| run.apps.contains_key(name))
    }

    fn weighted_speedup(&self, run: &Run, names: &[&str]) -> Option<f64> {
        names.iter().map(|name| self.progress(run, name)).sum()
    }

    fn fairness(&self, run: &Run, names: &[&str]) -> Option<f64> {
        let progress = |name: &&str| speedup(self.alone(name)?, run, name);
        let progress: Vec<f64> = names.iter().map(progress).collect::<Option<_>>()?;
        let smallest = progress.iter().copied().fold(f64::INFINITY, f64::min);
        Some(smallest / progress.iter().copied().fold(0.0, f64::max))
    }
}

impl EnergyResult {
    /// Returns the energy of a variant's runs; `None` if the power of the machine is not described.
    fn of(runs: &[Run]) -> Option<Self> {
        let mean = |figure: fn(&RunEnergy, f64) -> f64| {
            let each = runs.iter().map(|run| Some(figure(run.energy.as_ref()?, run.seconds)));
            Estimate::mean(&each.collect::<Option<Vec<f64>>>()?)
        };
        Some(Self {
            joules: mean(|energy, _| energy.total)?,
            idle_joules: mean(|energy, _| energy.idle)?,
            uncore_joules: mean(|energy, _| energy.uncore)?,
            watts: mean(|energy, seconds| energy.total / seconds)?,
            energy_delay_joule_seconds: mean(|energy, seconds| energy.total * seconds)?,
        })
    }
}

impl AppRun {
    /// Returns the geometric mean of the times of all copies; `None` if one did not complete.
    fn time(&self) -> Option<f64> {
        let copies: Option<Vec<f64>> = self.times.iter().copied().collect();
        geometric_mean(copies?.into_iter())
    }

    fn sequential(&self) -> Option<f64> {
        (self.active_ns > 0).then(|| self.sequential_ns as f64 / self.active_ns as f64)
    }
}

/// Returns the time of an application in one run divided by that in another.
fn speedup(base: &Run, run: &Run, name: &str) -> Option<f64> {
    Some(base.apps.get(name)?.time()? / run.apps.get(name)?.time()?)
}

/// Returns the values if all are known, else none.
fn all(values: impl Iterator<Item = Option<f64>>) -> Vec<f64> {
    values.collect::<Option<_>>().unwrap_or_default()
}

fn known(values: impl Iterator<Item = Option<f64>>) -> Option<Estimate> {
    Estimate::mean(&all(values))
}
