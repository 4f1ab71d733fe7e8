//! The results of `corewise compare`: the stored comparison and its forms of presentation.

pub mod csv;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixture;
pub mod page;
pub mod table;
#[cfg(test)]
mod tests;

use corewise_core::comparison::{Effect, Findings, Plan, Setting, Trial, Variant, Verdict, findings};
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

/// Describes the verdict on a time.
pub fn verdict(effect: &Effect) -> String {
    let percent = (effect.ratio - 1.0).abs() * 100.0;
    match effect.verdict {
        Verdict::Less => format!("faster: {percent:.1} % less time"),
        Verdict::More => format!("slower: {percent:.1} % more time"),
        Verdict::NotTold => format!("no difference found; {} or more would be", share(effect.detectable)),
        Verdict::TooFew => format!("too few runs for a verdict ({} blocks)", effect.blocks),
    }
}

/// Describes the verdict on another figure.
pub fn short_verdict(effect: &Effect) -> &'static str {
    match effect.verdict {
        Verdict::Less => "less",
        Verdict::More => "more",
        Verdict::NotTold => "no difference found",
        Verdict::TooFew => "too few runs",
    }
}

/// Formats a share in percent; small ones with one decimal.
pub fn share(share: f64) -> String {
    if share < 0.0995 { format!("{:.1} %", share * 100.0) } else { format!("{:.0} %", share * 100.0) }
}
