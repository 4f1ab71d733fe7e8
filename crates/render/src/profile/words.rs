//! Formats of the figures of a machine profile.

use corewise_core::kernels::{Focus, Kernel};
use corewise_core::profile::{MachineProfile, Measurement};

/// Returns the name of a pair class by its index.
pub fn class(profile: &MachineProfile, index: usize) -> &str {
    profile.classes.get(index).map_or("?", |class| &class.name)
}

/// Returns the unit of a rate, and the rate in it.
///
/// Waiting is shown as a time (nanoseconds per unit of work), transfers as GB/s, computation as 10⁹ units per
/// second.
pub fn in_unit(kernel: Kernel, rate: Measurement) -> (String, Measurement) {
    let scaled = |f: &dyn Fn(f64) -> f64| {
        let (a, b) = (f(rate.low), f(rate.high));
        Measurement { value: f(rate.value), low: a.min(b), high: a.max(b), ..rate }
    };
    match kernel.focus() {
        Focus::Memory if kernel != Kernel::LoadLatency => ("GB/s".to_owned(), scaled(&|rate| rate / 1e9)),
        Focus::Synchronisation | Focus::Memory => {
            let one = kernel.unit().trim_end_matches('s');
            (format!("ns per {one}"), scaled(&|rate| 1e9 / rate))
        }
        Focus::Computation => (format!("10⁹ {}/s", kernel.unit()), scaled(&|rate| rate / 1e9)),
    }
}

/// Returns what could not be measured, grouped by the reason: one reason often has many cases.
pub fn missing(profile: &MachineProfile) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<&str>)> = Vec::new();
    for missing in &profile.missing {
        match by_reason.iter_mut().find(|(why, _)| *why == missing.why) {
            Some((_, cases)) => cases.push(&missing.what),
            None => by_reason.push((&missing.why, vec![&missing.what])),
        }
    }
    by_reason.into_iter().map(|(why, cases)| format!("{}: {why}", cases.join(", "))).collect()
}

/// Returns the number of decimals for three significant digits: at most two, four for small values.
fn decimals(value: f64) -> usize {
    match value.abs() {
        x if x >= 99.95 => 0,
        x if x >= 9.995 => 1,
        x if x >= 0.0995 || x == 0.0 => 2,
        _ => 4,
    }
}

/// `1.93 [1.90, 1.96]`.
pub fn interval(estimate: Measurement) -> String {
    let Measurement { value, low, high, .. } = estimate;
    let decimals = decimals(value);
    format!("{value:.decimals$} [{low:.decimals$}, {high:.decimals$}]")
}

/// `1.93 ±0.03`: half of the interval's width, where there is no room for its ends.
pub fn margin(estimate: Measurement) -> String {
    let Measurement { value, low, high, .. } = estimate;
    let decimals = decimals(value);
    format!("{value:.decimals$} ±{:.decimals$}", (high - low) / 2.0)
}

/// `-0.48 [-0.50, -0.46]`, with its sign in any case.
pub fn signed(estimate: Measurement) -> String {
    format!("{:+.2} [{:+.2}, {:+.2}]", estimate.value, estimate.low, estimate.high)
}

/// `2026-11-21 16:11 UTC`, from seconds since 1970.
pub fn utc(unix_time: u64) -> String {
    let (days, seconds) = (unix_time / 86_400, unix_time % 86_400);
    // Days are counted from 1 March of the year 0, so that a leap day is the last of its year; 400 years have
    // 146,097 days (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months + 2) / 5 + 1;
    let month = if months < 10 { months + 3 } else { months - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_340), "2000-02-28 23:59 UTC");
        assert_eq!(utc(951_827_640), "2000-02-29 12:34 UTC");
        assert_eq!(utc(1_767_225_600), "2026-01-01 00:00 UTC");
    }

    #[test]
    fn waiting_is_given_as_a_time_and_its_interval_turns_round() {
        let rate = Measurement { value: 2e7, low: 1e7, high: 4e7, repetitions: 3 };
        let (unit, time) = in_unit(Kernel::HandOver, rate);
        assert_eq!((unit.as_str(), interval(time)), ("ns per hand-over", "50.0 [25.0, 100.0]".to_owned()));
        let (unit, speed) = in_unit(Kernel::Read, rate);
        assert_eq!((unit.as_str(), interval(speed)), ("GB/s", "0.0200 [0.0100, 0.0400]".to_owned()));
    }
}
