//! Time as the engine sees it: nanoseconds since a start that the world chooses; never a clock.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// An instant: nanoseconds since the world's start. Monotonic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// Returns the time that passed since `earlier`, or zero if that is in the future.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the seconds since the world's start.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(d.as_nanos() as u64))
    }
}

/// Why a text is not a valid duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a duration: write a number and a unit (ns, us, ms, s, min, h, d), for instance 250ms"
)]
pub struct DurationError {
    /// The given text.
    pub text: String,
}

/// Parses `250ms`, `2s`, `1.5s`, `100us`, `5min`, `1h`, `30d`. A unit is required, as a bare number is
/// ambiguous.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let error = || DurationError { text: text.to_owned() };
    let split = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(error)?;
    let (number, unit) = text.split_at(split);
    let number: f64 = number.trim().parse().map_err(|_| error())?;
    let unit_ns = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" | "m" => 60e9,
        "h" => 3600e9,
        "d" => 86_400e9,
        _ => return Err(error()),
    };
    let ns = number * unit_ns;
    if !ns.is_finite() || !(0.0..9e18).contains(&ns) {
        return Err(error());
    }
    Ok(Duration::from_nanos(ns.round() as u64))
}

/// Durations in files: whole nanoseconds, for `#[serde(with = "nanoseconds")]`.
pub(crate) mod nanoseconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    /// Writes a duration.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Reads a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_number_and_a_unit() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2 min"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse_duration("30d"), Ok(Duration::from_secs(30 * 86_400)));
        for bad in ["", "1", "s", "-1s", "1w", "nans", "infs", "1e300s"] {
            assert_eq!(parse_duration(bad), Err(DurationError { text: bad.into() }), "{bad}");
        }
    }

    #[test]
    fn a_clock_that_went_backwards_counts_as_no_time() {
        assert_eq!(Time(5).since(Time(9)), Duration::ZERO);
    }
}
