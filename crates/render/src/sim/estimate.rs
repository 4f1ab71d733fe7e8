//! Simulated figures in words, each with its 95 % interval over the seeds.

use crate::page::words::{Seconds, Share};
use corewise_sim::estimate::Estimate;

/// Formats a figure and its interval; `–` stands for unknown ones.
fn words(estimate: Option<Estimate>, format: impl Fn(f64) -> String) -> String {
    let Some(Estimate { value, low, high }) = estimate else { return "–".to_owned() };
    match low.zip(high).map(|(low, high)| (format(low), format(high))) {
        Some((low, high)) if low != high => format!("{} ({low} to {high})", format(value)),
        _ => format(value),
    }
}

/// Formats a ratio.
pub fn ratio(estimate: Option<Estimate>) -> String {
    words(estimate, |value| format!("{value:.3}"))
}

/// Formats a time in seconds.
pub fn seconds(estimate: Option<Estimate>) -> String {
    words(estimate, |value| Seconds(value).to_string())
}

/// Formats a share in percent.
pub fn share(estimate: Option<Estimate>) -> String {
    words(estimate, |value| Share(value).to_string())
}

/// Formats a figure with its unit.
pub fn figure(estimate: Option<Estimate>, unit: &str) -> String {
    words(estimate, |value| format!("{value:.2} {unit}"))
}

/// Formats a number of migrations per run; none if left out.
pub fn moved_times(count: Option<&Estimate>) -> String {
    words(Some(count.copied().unwrap_or(Estimate::exact(0.0))), |value| format!("{value:.1}"))
}
