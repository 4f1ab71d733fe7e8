//! What pairs of programs gain: as text, page and CSV.

pub mod csv;
pub mod page;
pub mod table;

use corewise_core::pairs::{Findings, Pair, Plan};
use corewise_core::profile::Measurement;

/// The figures come from runs on a real machine; those of pairs that did not run are predicted.
pub const EVIDENCE: &str = "measured";

/// `+12 %`.
fn gain(figure: &Measurement) -> String {
    format!("{:+.0} %", 100.0 * figure.value)
}

/// `+12 % [+10, +14]`; a prediction has no interval.
fn gain_with_interval(pair: &Pair) -> String {
    match pair.measured {
        true => {
            let Measurement { low, high, .. } = pair.gain;
            format!("{} [{:+.0}, {:+.0}]", gain(&pair.gain), 100.0 * low, 100.0 * high)
        }
        false => format!("{} predicted", gain(&pair.gain)),
    }
}

/// `How many pairs ran, and how sure the others are`.
fn summary(plan: &Plan, findings: &Findings) -> String {
    let measured = findings.pairs.iter().filter(|pair| pair.measured).count();
    let all = plan.programs.len() * (plan.programs.len() + 1) / 2;
    let predicted = findings.prediction_error.map_or_else(String::new, |error| {
        format!("; the others are predicted: slowdowns that are left out err by {:.1} %", 100.0 * error)
    });
    format!("{measured} of {all} pairs measured on the PEs {} and {}{predicted}", plan.pes[0], plan.pes[1])
}

/// Returns what is known of the pair of two programs, in either order.
fn pair_of(findings: &Findings, one: usize, other: usize) -> Option<&Pair> {
    findings.pairs.iter().find(|pair| (pair.a, pair.b) == (one.min(other), one.max(other)))
}
