//! The kinds of values that options take: one parser for each, which says what to write instead.
//!
//! Problem: the parsers of the standard library say what they stumbled over ("invalid digit found in
//! string"), not what is wanted. Approach: an option takes its parser from here, and the message of a parser
//! begins with what to write. Words come with their list, which messages, help and completions show. The test
//! `mistyped` gives every option wrong values.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use corewise_core::policy::PolicySpec;
use corewise_core::time::parse_duration;
use corewise_render::terminal::Name;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// No limit of a time.
const LONGEST: Duration = Duration::MAX;

/// A whole number of a range.
pub fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    within("a whole number", range)
}

/// A number of a range.
pub fn number(range: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone {
    within("a number", range)
}

fn within<T>(what: &'static str, range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| {
        let value = text.parse().ok().filter(|value| range.contains(value));
        value.ok_or_else(|| format!("write {what} from {} to {}", range.start(), range.end()))
    }
}

/// A time of a range, with its unit.
pub fn time(range: RangeInclusive<Duration>) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        let time = parse_duration(text).map_err(|error| error.to_string())?;
        match (range.contains(&time), *range.end()) {
            (true, _) => Ok(time),
            (false, LONGEST) => Err(format!("write a time of at least {:?}", range.start())),
            (false, longest) => Err(format!("write a time from {:?} to {longest:?}", range.start())),
        }
    }
}

/// One of a list of words, which are joined by `|`.
pub fn word<T>(words: &'static str) -> impl TypedValueParser<Value = T>
where
    T: FromStr + Clone + Send + Sync + 'static,
{
    word_by(words, |word| word.parse().ok())
}

/// The same with a function that knows the words.
pub fn word_by<T>(words: &'static str, meaning: fn(&str) -> Option<T>) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + 'static,
{
    let known = PossibleValuesParser::new(words.split('|'));
    known.try_map(move |word| meaning(&word).ok_or_else(|| format!("write one of {words}")))
}

/// The number of a process; whether there is one is checked later.
pub fn pid(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|pid| *pid > 0).ok_or_else(|| {
        let name = if text.is_empty() { "NAME" } else { text };
        format!("write the number of a process (`pgrep {}` prints those of a name)", Name(name))
    })
}

/// A policy as it is written, once it is known to be one.
pub fn policy(text: &str) -> Result<String, String> {
    text.parse::<PolicySpec>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// An address with a port.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok());
        format!("write a number of an address and a port, such as 127.0.0.1:{}", port.unwrap_or("9775"))
    })
}

/// A time that is not shorter, with its unit.
pub fn at_least(shortest: Duration) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    time(shortest..=LONGEST)
}

/// Any time, with its unit.
pub fn any_time(text: &str) -> Result<Duration, String> {
    at_least(Duration::ZERO)(text)
}

/// A time as it is written, once it is known to be one.
pub fn time_text(text: &str) -> Result<String, String> {
    any_time(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_to_write() {
        assert_eq!(whole(1..=9)("9"), Ok(9));
        for text in ["", "0", "10", "-1", "1.5", "x", "99999999999999999999"] {
            assert_eq!(whole(1..=9)(text), Err("write a whole number from 1 to 9".to_owned()), "{text}");
        }
        assert!(["nan", "inf", "2", ""].iter().all(|text| number(0.0..=1.0)(text).is_err()));
        let second = Duration::from_secs(1);
        assert_eq!(at_least(second)("1ms"), Err("write a time of at least 1s".to_owned()));
        assert_eq!(time(Duration::ZERO..=second)("2s"), Err("write a time from 0ns to 1s".to_owned()));
        assert!(pid("").unwrap_err().contains("`pgrep NAME`"));
    }
}
