//! The figures that experiments show and check.

use super::scenario::ScenarioResult;
use crate::comparison::VariantResult;
use crate::estimate::Estimate;
use serde::{Deserialize, Serialize};

/// A figure of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Geometric mean of the applications' speedups over the default, less one.
    #[default]
    Speedup,
    /// The same for the time until all have completed once.
    AllDone,
    /// The sum of what all applications get done, each relative to alone, over the default's, less one.
    WeightedSpeedup,
    /// Largest run-to-run spread of an application's time.
    Spread,
    /// Mean share of the applications' active time with one runnable thread, as the system sees it.
    Sequential,
    /// Benefit of close over distant placement, of `[placements]`: Δ.
    Delta,
}

/// A figure before its mean is taken.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Figure {
    /// A ratio in each seed; its effect is the ratio less one.
    Ratios(Vec<f64>),
    /// A value in each seed.
    Values(Vec<f64>),
    /// A figure that is not known by seed.
    Known(Estimate),
}

impl Measure {
    /// Returns the figure of a variant: effects are relative, 0.1 is 10 % faster. `None` if an application
    /// did not complete.
    pub fn of(self, variant: &VariantResult) -> Option<Estimate> {
        self.figure(variant)?.effect()
    }

    /// Returns the figure of one variant over that of another: a ratio for speeds, else the figure itself.
    pub fn over(self, variant: &VariantResult, base: &VariantResult) -> Option<Estimate> {
        self.figure_over(variant, base)?.effect()
    }

    /// Returns the figure by which variants are compared where this one is no effect.
    pub(super) fn or_speedup(self) -> Measure {
        match self {
            Measure::Spread | Measure::Sequential => Measure::Speedup,
            effect => effect,
        }
    }

    pub(super) fn figure_over(self, variant: &VariantResult, base: &VariantResult) -> Option<Figure> {
        match (self.figure(variant)?, self.figure(base)?) {
            (Figure::Ratios(own), Figure::Ratios(base)) => {
                Some(Figure::Ratios(own.iter().zip(&base).map(|(own, base)| own / base).collect()))
            }
            (own, _) => Some(own),
        }
    }

    pub(super) fn figure(self, variant: &VariantResult) -> Option<Figure> {
        let by_seed = &variant.by_seed;
        let figure = match self {
            Measure::Speedup => match variant.speedup {
                // Without chance it is the same in any seeds.
                Some(exact) if by_seed.speedup.is_empty() => Figure::Ratios(vec![exact.value; 2]),
                _ => Figure::Ratios(by_seed.speedup.clone()),
            },
            Measure::AllDone => Figure::Ratios(by_seed.all_done_speedup.clone()),
            Measure::WeightedSpeedup => Figure::Ratios(by_seed.weighted_speedup_over_default.clone()),
            Measure::Sequential => Figure::Values(by_seed.sequential_fraction.clone()),
            Measure::Spread => {
                let spreads: Option<Vec<Estimate>> =
                    variant.applications.iter().map(|app| app.spread).collect();
                Figure::Known(spreads?.into_iter().max_by(|a, b| a.value.total_cmp(&b.value))?)
            }
            Measure::Delta => Figure::Known(
                variant.speedup?.map(|ratio| if ratio >= 1.0 { ratio - 1.0 } else { 1.0 - 1.0 / ratio }),
            ),
        };
        let is_known =
            !matches!(&figure, Figure::Ratios(values) | Figure::Values(values) if values.is_empty());
        is_known.then_some(figure)
    }
}

impl Figure {
    /// Returns the mean as an effect.
    pub fn effect(&self) -> Option<Estimate> {
        match self {
            Figure::Ratios(ratios) => Some(Estimate::mean_ratio(ratios)?.map(|ratio| ratio - 1.0)),
            Figure::Values(values) => Estimate::mean(values),
            Figure::Known(estimate) => Some(*estimate),
        }
    }

    /// Returns the effect in each seed.
    fn effects(&self) -> Option<Vec<f64>> {
        match self {
            Figure::Ratios(ratios) => Some(ratios.iter().map(|ratio| ratio - 1.0).collect()),
            Figure::Values(values) => Some(values.clone()),
            Figure::Known(_) => None,
        }
    }

    /// Returns by how much the effect is above another one's: seed by seed, where both are known so.
    pub fn minus(&self, other: &Figure) -> Option<Estimate> {
        match (self.effects(), other.effects()) {
            (Some(own), Some(other)) => {
                Estimate::mean(&own.iter().zip(&other).map(|(own, other)| own - other).collect::<Vec<_>>())
            }
            _ => Some(self.effect()?.minus(&other.effect()?)),
        }
    }
}

/// Returns the mean of the effects of several figures: of each seed first, where all are known so.
pub(super) fn mean(figures: &[Figure]) -> Option<Estimate> {
    let by_seed: Option<Vec<Vec<f64>>> = figures.iter().map(Figure::effects).collect();
    let count = figures.len() as f64;
    if let Some(by_seed) = by_seed {
        let seeds = by_seed.iter().map(Vec::len).min()?;
        let mean = |seed: usize| by_seed.iter().map(|values| values[seed]).sum::<f64>() / count;
        return Estimate::mean(&(0..seeds).map(mean).collect::<Vec<_>>());
    }
    let effects: Vec<Estimate> = figures.iter().map(Figure::effect).collect::<Option<_>>()?;
    let value = effects.iter().map(|effect| effect.value).sum::<f64>() / count;
    let halves: Option<Vec<f64>> = effects.iter().map(Estimate::half_width).collect();
    let half = halves.map(|halves| halves.iter().map(|half| half * half).sum::<f64>().sqrt() / count);
    Some(Estimate { value, low: half.map(|half| value - half), high: half.map(|half| value + half) })
}

/// Returns the mean of a measure over several scenarios.
pub(super) fn mean_over<'a>(
    measure: Measure,
    results: impl Iterator<Item = &'a ScenarioResult>,
    variant: &str,
) -> Option<Estimate> {
    let figures: Option<Vec<Figure>> =
        results.filter_map(|result| result.variant(variant)).map(|variant| measure.figure(variant)).collect();
    mean(&figures?)
}
