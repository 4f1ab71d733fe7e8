//! What comes of `corewise compare`: its file, and its views, one format a file.

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

/// The variant that is the command as it is.
pub const DEFAULT: &str = "default";

/// A comparison as far as it is: all that is needed to continue it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What is compared.
    pub plan: Plan,
    /// The machine, which must not change.
    pub setting: Setting,
    /// The runs.
    pub trials: Vec<Trial>,
}

impl Comparison {
    /// What the runs show.
    pub fn findings(&self) -> Findings {
        findings(&self.plan, &self.trials)
    }

    /// The machine in words.
    pub fn machine(&self) -> String {
        let setting = &self.setting;
        let kernel = setting.kernel.as_ref().map(|release| format!("Linux {release}"));
        let known = [&setting.processor, &kernel, &setting.scheduler, &setting.frequency];
        known.into_iter().flatten().cloned().collect::<Vec<_>>().join(", ")
    }
}

/// Every figure here is of this kind.
pub const EVIDENCE: Evidence = Evidence::Measured;

/// A variant's commands as one line, for a shell.
pub fn command_line(variant: &Variant) -> String {
    let commands = variant.workload.applications.iter().map(|application| {
        let words = application.command.iter().map(String::as_str);
        // Only a zero byte cannot be quoted, and a plan with one was refused.
        shlex::try_join(words).unwrap_or_else(|_| application.command.join(" "))
    });
    commands.collect::<Vec<_>>().join(" & ")
}

/// A ratio with its interval: `0.949 [0.931, 0.967]`.
pub fn ratio(effect: &Effect) -> String {
    format!("{:.3} [{:.3}, {:.3}]", effect.ratio, effect.low, effect.high)
}

/// A verdict on a time in words.
pub fn verdict(effect: &Effect) -> String {
    let percent = (effect.ratio - 1.0).abs() * 100.0;
    match effect.verdict {
        Verdict::Less => format!("faster: {percent:.1} % less time"),
        Verdict::More => format!("slower: {percent:.1} % more time"),
        Verdict::NotTold => format!("no difference told, {} or more would be", share(effect.detectable)),
        Verdict::TooFew => format!("too few runs for a verdict ({} blocks)", effect.blocks),
    }
}

/// A verdict on another figure.
pub fn short_verdict(effect: &Effect) -> &'static str {
    match effect.verdict {
        Verdict::Less => "less",
        Verdict::More => "more",
        Verdict::NotTold => "no difference told",
        Verdict::TooFew => "too few runs",
    }
}

/// A share in percent; a tenth matters in small ones only.
pub fn share(share: f64) -> String {
    if share < 0.0995 { format!("{:.1} %", share * 100.0) } else { format!("{:.0} %", share * 100.0) }
}
