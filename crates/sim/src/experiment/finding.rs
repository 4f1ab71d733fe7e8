//! Claims of a paper, and whether the simulation agrees with them.

use super::{Measure, ScenarioResult};
use serde::{Deserialize, Serialize};

/// A claim of a paper about some scenarios.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The claim, with the place in the paper.
    pub claim: String,
    /// The paper's number, in words.
    #[serde(default)]
    pub paper: String,
    /// The scenarios that it is about; all if left out. `*` stands for any text.
    #[serde(default)]
    pub scenarios: Vec<String>,
    /// The claim in a checkable form.
    pub check: Check,
}

/// A checkable claim. Effects are relative: 0.1 is 10 % faster.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// In each scenario every one of `variants` is faster than all of the others in `of` by more than `by`.
    Ahead {
        /// The faster ones.
        variants: Vec<String>,
        /// The slower ones.
        of: Vec<String>,
        /// The minimum difference.
        #[serde(default)]
        by: f64,
    },
    /// The figures of the variants over that of `over` are within a range.
    Within {
        /// The variants.
        variants: Vec<String>,
        /// The variants that they are compared with; the default if left out.
        #[serde(default = "default_variant")]
        over: String,
        /// The figure.
        #[serde(default)]
        measure: Measure,
        /// Which of the figures of all scenarios and variants count.
        #[serde(default)]
        take: Take,
        /// The lower end.
        #[serde(default = "lowest")]
        lowest: f64,
        /// The upper end.
        #[serde(default = "highest")]
        highest: f64,
    },
    /// The figure falls along the list in every scenario: by more than `slack` from the first to the last,
    /// and it never rises by more than that from one to the next.
    Falling {
        /// The variants in order.
        variants: Vec<String>,
        /// The figure.
        #[serde(default)]
        measure: Measure,
        /// The largest change that counts as neither a rise nor a fall. If negative: how much it must fall
        /// from each to the next.
        #[serde(default)]
        slack: f64,
    },
    /// The figure of each variant is lower in the scenario `to` than in `from`, by more than `by`.
    Drop {
        /// The variants.
        variants: Vec<String>,
        /// The scenario with the higher figure.
        from: String,
        /// The scenario with the lower figure.
        to: String,
        /// The figure.
        #[serde(default)]
        measure: Measure,
        /// The minimum difference.
        #[serde(default)]
        by: f64,
    },
    /// The difference between the best and the worst of `variants` is smaller than that of `than`, each in
    /// the scenario where it is largest.
    Steadier {
        /// The steadier ones.
        variants: Vec<String>,
        /// The others.
        than: Vec<String>,
    },
}

/// Which of several figures counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Take {
    /// Every one of them.
    #[default]
    Each,
    /// The largest.
    Most,
    /// The smallest.
    Least,
    /// The median; the upper one for an even number.
    Median,
    /// The mean.
    Mean,
}

/// The result of checking a claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    /// The claim.
    pub claim: String,
    /// The paper's number.
    pub paper: String,
    /// Our result, in words.
    pub ours: String,
    /// Whether they agree; `null` if the claim could not be checked.
    pub agrees: Option<bool>,
}

fn default_variant() -> String {
    "default".to_owned()
}

fn lowest() -> f64 {
    f64::NEG_INFINITY
}

fn highest() -> f64 {
    f64::INFINITY
}

/// Returns whether a name is in a list, in which `*` stands for any text; an empty list contains all names.
pub fn names(patterns: &[String], name: &str) -> bool {
    let fits = |pattern: &String| match pattern.split_once('*') {
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
        None => pattern == name,
    };
    patterns.is_empty() || patterns.iter().any(fits)
}

/// Formats an effect in percent with its sign.
pub fn signed_percent(effect: f64) -> String {
    format!("{:+.1} %", 100.0 * effect)
}

impl Finding {
    /// Returns whether the results agree with the claim.
    pub fn judge(&self, results: &[ScenarioResult]) -> Judgement {
        let chosen: Vec<&ScenarioResult> =
            results.iter().filter(|result| names(&self.scenarios, &result.name)).collect();
        let (ours, agrees) = match self.check.judge(&chosen) {
            Some((ours, agrees)) => (ours, Some(agrees)),
            None => ("not to be told".to_owned(), None),
        };
        Judgement { claim: self.claim.clone(), paper: self.paper.clone(), ours, agrees }
    }
}

impl Check {
    /// Returns every variant that the claim names.
    pub fn variants(&self) -> Vec<&String> {
        match self {
            Check::Ahead { variants, of, .. } => variants.iter().chain(of).collect(),
            Check::Within { variants, over, .. } => variants.iter().chain([over]).collect(),
            Check::Falling { variants, .. } | Check::Drop { variants, .. } => variants.iter().collect(),
            Check::Steadier { variants, than } => variants.iter().chain(than).collect(),
        }
    }

    /// Returns the scenarios that the check itself names.
    pub fn scenarios(&self) -> Vec<&String> {
        match self {
            Check::Drop { from, to, .. } => vec![from, to],
            Check::Ahead { .. } | Check::Within { .. } | Check::Falling { .. } | Check::Steadier { .. } => {
                Vec::new()
            }
        }
    }

    /// Returns the result in words and whether it agrees; `None` if there is no result to check.
    fn judge(&self, results: &[&ScenarioResult]) -> Option<(String, bool)> {
        if results.is_empty() {
            return None;
        }
        match self {
            Check::Ahead { variants, of, by } => {
                let lead = |result: &ScenarioResult| {
                    let slowest = extreme(result, variants, Measure::Speedup, f64::min)?;
                    let rival = extreme(result, of, Measure::Speedup, f64::max)?;
                    Some((1.0 + slowest) / (1.0 + rival) - 1.0)
                };
                of_each(results, lead, |lead| lead > *by)
            }
            Check::Within { variants, over, measure, take, lowest, highest } => {
                let figures = |result: &ScenarioResult| -> Option<Vec<(String, f64)>> {
                    let base = result.variant(over)?;
                    let figure = |name: &String| {
                        let value = measure.over(result.variant(name)?, base)?;
                        Some((format!("{}, {name}", result.name), value))
                    };
                    variants.iter().map(figure).collect()
                };
                let all: Option<Vec<Vec<(String, f64)>>> = results.iter().map(|r| figures(r)).collect();
                within(&all?.concat(), *measure, *take, *lowest..=*highest)
            }
            Check::Falling { variants, measure, slack } => {
                // The change along the list, or the rise that contradicts it.
                let change = |result: &ScenarioResult| -> Option<f64> {
                    let figures = figures(result, variants, *measure)?;
                    let rises = figures.windows(2).map(|pair| pair[1] - pair[0]);
                    let rise = rises.fold(f64::NEG_INFINITY, f64::max);
                    Some(if rise > *slack { rise } else { figures.last()? - figures.first()? })
                };
                of_each(results, change, |change| change < -slack.abs())
            }
            Check::Drop { variants, from, to, measure, by } => {
                let figures = |name: &String| {
                    figures(results.iter().find(|result| result.name == *name)?, variants, *measure)
                };
                let drops = figures(from)?.into_iter().zip(figures(to)?).map(|(from, to)| from - to);
                let drops: Vec<(String, f64)> = variants.iter().cloned().zip(drops).collect();
                of_each_value(&drops, |drop| drop > *by)
            }
            Check::Steadier { variants, than } => {
                let widest = |names: &[String]| -> Option<f64> {
                    let range = |result: &&ScenarioResult| {
                        let best = extreme(result, names, Measure::Speedup, f64::max)?;
                        let worst = extreme(result, names, Measure::Speedup, f64::min)?;
                        Some((1.0 + best) / (1.0 + worst) - 1.0)
                    };
                    let ranges: Option<Vec<f64>> = results.iter().map(range).collect();
                    ranges.map(|ranges| ranges.into_iter().fold(0.0, f64::max))
                };
                let (own, other) = (widest(variants)?, widest(than)?);
                let words =
                    format!("at most {:.1} % apart, the others up to {:.1} %", 100.0 * own, 100.0 * other);
                Some((words, own < other))
            }
        }
    }
}

fn figures(result: &ScenarioResult, names: &[String], measure: Measure) -> Option<Vec<f64>> {
    names.iter().map(|name| measure.of(result.variant(name)?)).collect()
}

fn extreme(
    result: &ScenarioResult,
    names: &[String],
    measure: Measure,
    pick: fn(f64, f64) -> f64,
) -> Option<f64> {
    figures(result, names, measure)?.into_iter().reduce(pick)
}

/// Checks a claim about each scenario; reports the range of the figures, and where it does not hold.
fn of_each(
    results: &[&ScenarioResult],
    figure: impl Fn(&ScenarioResult) -> Option<f64>,
    holds: impl Fn(f64) -> bool,
) -> Option<(String, bool)> {
    let values: Option<Vec<(String, f64)>> =
        results.iter().map(|result| Some((result.name.clone(), figure(result)?))).collect();
    of_each_value(&values?, holds)
}

/// Checks a claim about each of the named values.
fn of_each_value(values: &[(String, f64)], holds: impl Fn(f64) -> bool) -> Option<(String, bool)> {
    let failing: Vec<String> = values
        .iter()
        .filter(|(_, value)| !holds(*value))
        .map(|(name, value)| format!("{name} ({})", signed_percent(*value)))
        .collect();
    let held = values.len() - failing.len();
    let but = if failing.is_empty() { String::new() } else { format!("; not {}", failing.join(", ")) };
    Some((format!("{held} of {}: {}{but}", values.len(), range(values)), failing.is_empty()))
}

fn within(
    values: &[(String, f64)],
    measure: Measure,
    take: Take,
    wanted: std::ops::RangeInclusive<f64>,
) -> Option<(String, bool)> {
    let numbers = || values.iter().map(|(_, value)| *value);
    let shown = |value: f64| match measure {
        Measure::Speedup | Measure::AllDone | Measure::Throughput | Measure::Delta => signed_percent(value),
        Measure::Spread | Measure::Sequential => format!("{:.1} %", 100.0 * value),
    };
    let one = |(name, value): &(String, f64)| (format!("{} ({name})", shown(*value)), wanted.contains(value));
    let by_value = |a: &&(String, f64), b: &&(String, f64)| a.1.total_cmp(&b.1);
    match take {
        Take::Each => {
            let outside: Vec<String> =
                values.iter().map(one).filter(|(_, inside)| !inside).map(|(words, _)| words).collect();
            let but =
                if outside.is_empty() { String::new() } else { format!("; not {}", outside.join(", ")) };
            let least = numbers().reduce(f64::min)?;
            let most = numbers().reduce(f64::max)?;
            Some((format!("{} to {}{but}", shown(least), shown(most)), outside.is_empty()))
        }
        Take::Most => values.iter().max_by(by_value).map(one),
        Take::Least => values.iter().min_by(by_value).map(one),
        Take::Median => {
            let mut sorted: Vec<&(String, f64)> = values.iter().collect();
            sorted.sort_by(by_value);
            sorted.get(sorted.len() / 2).copied().map(one)
        }
        Take::Mean => {
            let mean = numbers().sum::<f64>() / values.len().max(1) as f64;
            Some((format!("{} on average", shown(mean)), wanted.contains(&mean)))
        }
    }
}

fn range(values: &[(String, f64)]) -> String {
    let least = values.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
    let most = values.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max);
    if values.len() == 1 {
        signed_percent(least)
    } else {
        format!("{} to {}", signed_percent(least), signed_percent(most))
    }
}
