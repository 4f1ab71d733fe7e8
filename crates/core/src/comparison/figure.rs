//! Numbers as programs print them, in whatever locale.
//!
//! `12,345.60` and `12.345,60` are the same number in two locales, and `12,345` is a different one in each.
//! A number counts only if one reading is possible: of two separators the last is the decimal one, one that
//! occurs twice divides groups of digits, and so does not one that the wrong number of digits follows. A
//! single point is decimal, as programs print it that do not ask for a locale.

use crate::time::parse_duration;

/// A number has two readings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` may be {with_groups} or {with_fraction}: let the command print in one locale, for instance by \
     `env LC_ALL=C` in front of it, or match another figure"
)]
pub struct Ambiguous {
    /// The text.
    pub text: String,
    /// The number if the separator divides groups of digits, and if it is a decimal one.
    pub with_groups: String,
    /// See there.
    pub with_fraction: String,
}

/// Parses a number, or a time with its unit in seconds. `None` if the text is neither, or not above 0: such a
/// value has no ratio.
pub fn value(text: &str) -> Result<Option<f64>, Ambiguous> {
    let text = text.trim();
    let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let begin = text.find(is_of_number).unwrap_or(0);
    let end = text[begin..].find(|c| !is_of_number(c)).map_or(text.len(), |length| begin + length);
    let Some(number) = plain(&text[begin..end])? else { return Ok(None) };
    let whole = format!("{}{number}{}", &text[..begin], &text[end..]);
    let spaceless = || whole.replace(char::is_whitespace, "").replace('µ', "u");
    let seconds = || Some(parse_duration(&spaceless()).ok()?.as_secs_f64());
    let value = whole.parse::<f64>().ok().or_else(seconds);
    Ok(value.filter(|value| value.is_finite() && *value > 0.0))
}

/// Writes digits with separators as Rust does; `None` if they are no number.
fn plain(digits: &str) -> Result<Option<String>, Ambiguous> {
    let count = |separator| digits.matches(separator).count();
    let last = digits.rfind(['.', ',']).map(|at| &digits[at..=at]);
    let decimal = match (count('.'), count(','), last) {
        (0 | 1, 0, _) => Some("."),
        (0, 1, _) if is_grouped(digits, ",") => {
            let (with_groups, with_fraction) = (digits.replace(',', ""), digits.replace(',', "."));
            return Err(Ambiguous { text: digits.to_owned(), with_groups, with_fraction });
        }
        (0, 1, _) => Some(","),
        (0, _, _) | (_, 0, _) => None,
        (_, _, last) => last,
    };
    let (whole, fraction) = match decimal.map(|decimal| (decimal, digits.split_once(decimal))) {
        Some((_, Some((whole, fraction)))) => (whole, Some(fraction)),
        Some((_, None)) | None => (digits, None),
    };
    let grouping = if whole.contains(',') { "," } else { "." };
    let is_number = (!whole.contains(['.', ',']) || is_grouped(whole, grouping))
        && fraction.is_none_or(|fraction| !fraction.contains(['.', ',']));
    let whole = whole.replace(grouping, "");
    Ok(is_number.then(|| fraction.map_or(whole.clone(), |fraction| format!("{whole}.{fraction}"))))
}

/// Whether a separator divides digits as some locale does: the last group has three, those between three or
/// two (India), the first has at most three and does not begin with 0.
fn is_grouped(digits: &str, separator: &str) -> bool {
    let groups: Vec<&str> = digits.split(separator).collect();
    let is_digits = |group: &&str| group.bytes().all(|byte| byte.is_ascii_digit());
    let [first, between @ .., last] = &groups[..] else { return false };
    groups.iter().all(is_digits)
        && (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && between.iter().all(|group| (2..=3).contains(&group.len()))
        && last.len() == 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_with_one_reading_is_read_in_any_locale() {
        for (text, expected) in [
            ("97", 97.0),
            ("0.97", 0.97),
            ("1.234", 1.234),
            ("12,345.60", 12345.6),
            ("1,234,567", 1_234_567.0),
            ("12,34,567.5", 1_234_567.5),
            ("0,97", 0.97),
            ("0,975", 0.975),
            ("1,5", 1.5),
            ("1234,567", 1234.567),
            ("1.234,5", 1234.5),
            ("1.234.567", 1_234_567.0),
            ("1.234.567,25", 1_234_567.25),
            ("1.5e3", 1500.0),
            ("1,5e3", 1500.0),
            ("+2.5", 2.5),
            (".5", 0.5),
            ("0,97 s", 0.97),
            ("3.25ms", 0.00325),
            ("1.234,5 ms", 1.2345),
            ("1,234,567us", 1.234567),
            ("750µs", 0.00075),
        ] {
            assert_eq!(value(text), Ok(Some(expected)), "{text}");
        }
    }

    #[test]
    fn a_number_with_two_readings_is_refused_with_both() {
        for text in ["12,345", "1,234 ms", "123,456e2"] {
            assert!(value(text).is_err(), "{text}");
        }
        let error = value("12,345 ms").unwrap_err().to_string();
        assert!(error.starts_with("`12,345` may be 12345 or 12.345: "), "{error}");
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in [
            "",
            "nonsense",
            "0",
            "-1",
            "-0,5",
            "10.0.0.1",
            "1.2.3",
            "1,2,3",
            "1.234,5,6",
            "1,234.5.6",
            "1234,567.5",
            "99.9 requests",
            "inf",
            "nan",
            ",",
            ".",
            "5 000",
        ] {
            assert_eq!(value(text), Ok(None), "{text}");
        }
    }
}
