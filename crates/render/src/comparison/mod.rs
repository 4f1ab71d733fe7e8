//! The results of `corewise compare`: the stored comparison and its forms of presentation.

pub mod csv;
pub mod demonstration;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixture;
pub mod page;
pub mod table;
#[cfg(test)]
mod tests;

use corewise_core::comparison::{Effect, Findings, Metric, Plan, Setting, Trial, Variant, Verdict, findings};
use corewise_core::profile::Evidence;
use serde::{Deserialize, Serialize};

/// The name of the unchanged command's variant.
pub const DEFAULT: &str = "default";

/// A comparison so far: everything that is needed to continue it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The plan.
    pub plan: Plan,
    /// The machine, which must not change.
    pub setting: Setting,
    /// The runs.
    pub trials: Vec<Trial>,
}

impl Comparison {
    /// Returns the findings of the runs.
    pub fn findings(&self) -> Findings {
        findings(&self.plan, &self.trials)
    }

    /// Describes the machine.
    pub fn machine(&self) -> String {
        let setting = &self.setting;
        let kernel = setting.kernel.as_ref().map(|release| format!("Linux {release}"));
        let known = [&setting.processor, &kernel, &setting.scheduler, &setting.frequency];
        known.into_iter().flatten().cloned().collect::<Vec<_>>().join(", ")
    }
}

/// The evidence of every figure.
pub const EVIDENCE: Evidence = Evidence::Measured;

/// Returns a variant's commands as one line for a shell.
pub fn command_line(variant: &Variant) -> String {
    let commands = variant.workload.applications.iter().map(|application| {
        let words = application.command.iter().map(String::as_str);
        // A zero byte is all that cannot be quoted, and plans with one are refused.
        shlex::try_join(words).unwrap_or_else(|_| application.command.join(" "))
    });
    commands.collect::<Vec<_>>().join(" & ")
}

/// Formats a ratio with its interval: `0.949 [0.931, 0.967]`.
pub fn ratio(effect: &Effect) -> String {
    format!("{:.3} [{:.3}, {:.3}]", effect.ratio, effect.low, effect.high)
}

/// Describes the verdict on the time of a variant, or of the control: that on typical runs, and that on the
/// mean where it says something else.
pub fn time_verdict(effects: &[(Metric, Effect)]) -> Option<String> {
    let of = |metric| effects.iter().find(|(one, _)| *one == metric).map(|(_, effect)| effect);
    let typical = of(Metric::Wall)?;
    let mean = of(Metric::MeanWall).filter(|mean| says_more(typical, mean)).and_then(speed);
    Some(match (mean, speed(typical)) {
        (Some(mean), Some(typical)) => format!("typical runs are {typical}, but on average {mean}"),
        (Some(mean), None) => format!("on average {mean}; {}", verdict(typical)),
        (None, _) => verdict(typical),
    })
}

/// Returns whether the verdict on the mean is one that typical runs do not show.
pub fn says_more(typical: &Effect, mean: &Effect) -> bool {
    mean.verdict != typical.verdict && speed(mean).is_some()
}

fn verdict(typical: &Effect) -> String {
    let Effect { blocks, blocks_below: below, blocks_above: above, .. } = typical;
    match (speed(typical), typical.verdict) {
        (Some(speed), Verdict::Less) => format!("{speed}, in {below} of {blocks} blocks"),
        (Some(speed), _) => format!("{speed}, in {above} of {blocks} blocks"),
        (None, Verdict::TooFew) => format!("too few runs for a verdict ({blocks} blocks)"),
        (None, _) => {
            let found = format!("no difference found in typical runs (less in {below} of {blocks} blocks)");
            let least = typical.detectable.map(|least| format!("; {} or more would be", share(least)));
            found + &least.unwrap_or_default()
        }
    }
}

/// Returns how much faster or slower something is; `None` without such a verdict.
fn speed(effect: &Effect) -> Option<String> {
    let percent = (effect.ratio - 1.0).abs() * 100.0;
    match effect.verdict {
        Verdict::Less => Some(format!("faster: {percent:.1} % less time")),
        Verdict::More => Some(format!("slower: {percent:.1} % more time")),
        Verdict::Unclear | Verdict::TooFew => None,
    }
}

/// Describes the verdict on another figure.
pub fn short_verdict(effect: &Effect) -> &'static str {
    match effect.verdict {
        Verdict::Less => "less",
        Verdict::More => "more",
        Verdict::Unclear => "no difference found",
        Verdict::TooFew => "too few runs",
    }
}

/// Formats a deviation from 1 in percent, small ones with one decimal; from twice as much on as a factor.
pub fn share(share: f64) -> String {
    match share {
        ..0.0995 => format!("{:.1} %", share * 100.0),
        ..1.0 => format!("{:.0} %", share * 100.0),
        _ => format!("a factor of {:.1}", 1.0 + share),
    }
}
