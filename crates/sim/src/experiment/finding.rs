//! Claims of a paper, and whether the simulation agrees with them.

use super::measure::{Figure, Measure, mean};
use super::scenario::ScenarioResult;
use crate::estimate::Estimate;
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
    /// The one in the middle; the upper one for an even number.
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
    /// Whether they agree.
    pub agreement: Agreement,
}

/// Whether the simulation agrees with a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// The whole 95 % interval of each figure does.
    Agrees,
    /// The whole interval of a figure does not.
    Disagrees,
    /// An interval contains both: more seeds would tell.
    Undecided,
    /// There is no result to check.
    NotChecked,
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

/// Formats an effect in percent with its sign and the half width of its interval.
pub fn signed_percent(effect: &Estimate) -> String {
    format!("{:+.1}{} %", 100.0 * effect.value, plus_minus(effect))
}

/// Formats a share in percent with the half width of its interval.
pub fn percent(share: &Estimate) -> String {
    format!("{:.1}{} %", 100.0 * share.value, plus_minus(share))
}

fn plus_minus(estimate: &Estimate) -> String {
    estimate.half_width().map_or_else(String::new, |half| format!(" ±{:.1}", 100.0 * half))
}

impl Finding {
    /// Returns whether the results agree with the claim.
    pub fn judge(&self, results: &[ScenarioResult]) -> Judgement {
        let (ours, agreement) = match self.parts(results) {
            Some(parts) => (words(&parts), Agreement::of_all(parts.iter().map(|part| part.agreement))),
            None => ("cannot be checked".to_owned(), Agreement::NotChecked),
        };
        Judgement { claim: self.claim.clone(), paper: self.paper.clone(), ours, agreement }
    }

    /// Returns whether exact results agree with the claim, and the mean of its figures; `None` if it cannot
    /// be checked.
    pub(super) fn outcome(&self, results: &[ScenarioResult]) -> Option<(bool, f64)> {
        let parts = self.parts(results)?;
        let agreement = Agreement::of_all(parts.iter().map(|part| part.agreement));
        let mean = parts.iter().map(|part| part.figure.value).sum::<f64>() / parts.len() as f64;
        Some((agreement == Agreement::Agrees, mean))
    }

    fn parts(&self, results: &[ScenarioResult]) -> Option<Vec<Part>> {
        let chosen: Vec<&ScenarioResult> =
            results.iter().filter(|result| names(&self.scenarios, &result.name)).collect();
        self.check.parts(&chosen).filter(|parts| !parts.is_empty())
    }
}

impl Agreement {
    /// Returns the agreement of a claim that consists of several.
    fn of_all(mut parts: impl Iterator<Item = Agreement> + Clone) -> Agreement {
        if parts.clone().any(|agreement| agreement == Agreement::Disagrees) {
            Agreement::Disagrees
        } else if parts.all(|agreement| agreement == Agreement::Agrees) {
            Agreement::Agrees
        } else {
            Agreement::Undecided
        }
    }

    /// Returns whether a figure lies in a range. Without an interval that is undecided.
    fn within(figure: &Estimate, lowest: f64, highest: f64) -> Agreement {
        let Some((low, high)) = figure.low.zip(figure.high) else { return Agreement::Undecided };
        if lowest <= low && high <= highest {
            Agreement::Agrees
        } else if high < lowest || highest < low {
            Agreement::Disagrees
        } else {
            Agreement::Undecided
        }
    }

    /// Returns whether a figure is greater than a bound.
    fn above(figure: &Estimate, bound: f64) -> Agreement {
        match Agreement::within(figure, bound, f64::INFINITY) {
            Agreement::Agrees if figure.low == Some(bound) => {
                if figure.high == Some(bound) {
                    Agreement::Disagrees
                } else {
                    Agreement::Undecided
                }
            }
            agreement => agreement,
        }
    }
}

/// One figure of a claim.
struct Part {
    /// What it is the figure of.
    name: String,
    figure: Estimate,
    /// The figure in words.
    shown: String,
    agreement: Agreement,
}

impl Part {
    fn new(name: &str, figure: Estimate, agreement: Agreement) -> Self {
        Self { name: name.to_owned(), figure, shown: signed_percent(&figure), agreement }
    }
}

/// Returns the range of the figures, and where they do not agree.
fn words(parts: &[Part]) -> String {
    let named = |part: &Part| match part.name.as_str() {
        "" => part.shown.clone(),
        name => format!("{} ({name})", part.shown),
    };
    let order = |a: &&Part, b: &&Part| a.figure.value.total_cmp(&b.figure.value);
    let (Some(least), Some(most)) = (parts.iter().min_by(order), parts.iter().max_by(order)) else {
        return String::new();
    };
    if let [part] = parts {
        return named(part);
    }
    let agree = parts.iter().filter(|part| part.agreement == Agreement::Agrees).count();
    let list = |agreement: Agreement, words: &str| {
        let those: Vec<String> = parts.iter().filter(|part| part.agreement == agreement).map(named).collect();
        if those.is_empty() { String::new() } else { format!("; {words} {}", those.join(", ")) }
    };
    let (not, open) = (list(Agreement::Disagrees, "not"), list(Agreement::Undecided, "undecided"));
    format!("{agree} of {}: {} to {}{not}{open}", parts.len(), least.shown, most.shown)
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

    /// Returns the range of a figure, if the claim is that it lies in one.
    pub(super) fn range(&self) -> Option<(f64, f64)> {
        match self {
            Check::Within { lowest, highest, .. } => Some((*lowest, *highest)),
            Check::Ahead { .. } | Check::Falling { .. } | Check::Drop { .. } | Check::Steadier { .. } => None,
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

    /// Returns the figures that are checked; `None` if one is not known.
    fn parts(&self, results: &[&ScenarioResult]) -> Option<Vec<Part>> {
        match self {
            Check::Ahead { variants, of, by } => {
                results.iter().map(|result| ahead(result, variants, of, *by)).collect()
            }
            Check::Within { variants, over, measure, take, lowest, highest } => {
                let mut figures = Vec::new();
                for result in results {
                    let base = result.variant(over)?;
                    for name in variants {
                        let figure = measure.figure_over(result.variant(name)?, base)?;
                        figures.push((format!("{}, {name}", result.name), figure));
                    }
                }
                within(&figures, *measure, *take, (*lowest, *highest))
            }
            Check::Falling { variants, measure, slack } => {
                results.iter().map(|result| falling(result, variants, *measure, *slack)).collect()
            }
            Check::Drop { variants, from, to, measure, by } => {
                let figure = |scenario: &String, name: &String| {
                    measure.figure(results.iter().find(|result| result.name == *scenario)?.variant(name)?)
                };
                let part = |name: &String| {
                    let drop = figure(from, name)?.minus(&figure(to, name)?)?;
                    Some(Part::new(name, drop, Agreement::above(&drop, *by)))
                };
                variants.iter().map(part).collect()
            }
            Check::Steadier { variants, than } => steadier(results, variants, than).map(|part| vec![part]),
        }
    }
}

/// Returns the smallest lead of one of the variants over one of the others.
fn ahead(result: &ScenarioResult, variants: &[String], of: &[String], by: f64) -> Option<Part> {
    let mut leads = Vec::new();
    for name in variants {
        for rival in of {
            leads.push(Measure::Speedup.over(result.variant(name)?, result.variant(rival)?)?);
        }
    }
    let agreement = Agreement::of_all(leads.iter().map(|lead| Agreement::above(lead, by)));
    let least = leads.into_iter().min_by(|a, b| a.value.total_cmp(&b.value))?;
    Some(Part::new(&result.name, least, agreement))
}

fn within(
    figures: &[(String, Figure)],
    measure: Measure,
    take: Take,
    (lowest, highest): (f64, f64),
) -> Option<Vec<Part>> {
    let shown = |figure: &Estimate| match measure {
        Measure::Speedup | Measure::AllDone | Measure::WeightedSpeedup | Measure::Delta => {
            signed_percent(figure)
        }
        Measure::Spread | Measure::Sequential => percent(figure),
    };
    let part = |name: &str, figure: Estimate| Part {
        name: name.to_owned(),
        shown: shown(&figure),
        agreement: Agreement::within(&figure, lowest, highest),
        figure,
    };
    if take == Take::Mean {
        let all: Vec<Figure> = figures.iter().map(|(_, figure)| figure.clone()).collect();
        return Some(vec![part("on average", mean(&all)?)]);
    }
    let mut parts: Vec<Part> =
        figures.iter().map(|(name, figure)| Some(part(name, figure.effect()?))).collect::<Option<_>>()?;
    if take == Take::Each {
        return Some(parts);
    }
    parts.sort_by(|a, b| a.figure.value.total_cmp(&b.figure.value));
    let place = match take {
        Take::Least => 0,
        Take::Most => parts.len().checked_sub(1)?,
        Take::Median | Take::Each | Take::Mean => parts.len() / 2,
    };
    (place < parts.len()).then(|| vec![parts.swap_remove(place)])
}

/// Returns the change along the list, or the largest rise if that contradicts the claim.
fn falling(result: &ScenarioResult, variants: &[String], measure: Measure, slack: f64) -> Option<Part> {
    let figures: Vec<Figure> =
        variants.iter().map(|name| measure.figure(result.variant(name)?)).collect::<Option<_>>()?;
    let change = figures.last()?.minus(figures.first()?)?;
    let falls = Agreement::above(&change.negated(), slack.abs());
    let rises = figures.windows(2).map(|pair| pair[1].minus(&pair[0]));
    let rises: Vec<Estimate> = rises.collect::<Option<_>>()?;
    let no_rise = |rise: &Estimate| Agreement::within(rise, f64::NEG_INFINITY, slack);
    let agreement = Agreement::of_all(rises.iter().map(no_rise).chain([falls]));
    let worst = rises.into_iter().max_by(|a, b| a.value.total_cmp(&b.value));
    let shown = worst.filter(|rise| rise.value > slack).unwrap_or(change);
    Some(Part::new(&result.name, shown, agreement))
}

/// Compares the greatest differences between the best and the worst of two lists, each in the scenario where
/// it is greatest.
fn steadier(results: &[&ScenarioResult], variants: &[String], than: &[String]) -> Option<Part> {
    let range = |names: &[String]| -> Option<(Figure, Estimate)> {
        let of = |result: &&ScenarioResult| {
            let mut all = Vec::new();
            for name in names {
                let variant = result.variant(name)?;
                all.push((Measure::Speedup.of(variant)?.value, variant));
            }
            let best = all.iter().max_by(|a, b| a.0.total_cmp(&b.0))?.1;
            let worst = all.iter().min_by(|a, b| a.0.total_cmp(&b.0))?.1;
            let range = Measure::Speedup.figure_over(best, worst)?;
            let effect = range.effect()?;
            Some((range, effect))
        };
        let ranges: Vec<(Figure, Estimate)> = results.iter().map(of).collect::<Option<_>>()?;
        ranges.into_iter().max_by(|a, b| a.1.value.total_cmp(&b.1.value))
    };
    let ((own, own_effect), (other, other_effect)) = (range(variants)?, range(than)?);
    let difference = other.minus(&own)?;
    let shown =
        format!("at most {} apart, the others up to {}", percent(&own_effect), percent(&other_effect));
    Some(Part {
        name: String::new(),
        figure: difference,
        shown,
        agreement: Agreement::above(&difference, 0.0),
    })
}
