//! How texts and figures are written into the page.

use crate::terminal::is_invisible;
use std::fmt::{Display, Formatter, Result, Write};

/// Colours that stay apart for colour-blind eyes and on light and dark ground; further ones are
/// hues in golden-angle steps.
const COLOURS: [&str; 8] =
    ["#3f7fd6", "#e08a1e", "#2aa179", "#c2569a", "#8a6fd1", "#c9543c", "#3fa7b8", "#8f8a2c"];

/// A text from outside, safe in an element and in a quoted attribute. Characters that nobody sees, or that
/// would turn the direction of what follows, are spelled out.
pub struct Text<'a>(pub &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c if is_invisible(c) => write!(f, "{}", c.escape_unicode())?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A value, or a dash where it is not known.
pub struct Known<T>(pub Option<T>);

impl<T: Display> Display for Known<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("<span class=\"unknown\" title=\"not known\">–</span>"),
        }
    }
}

/// A share, 0..1, in percent.
pub struct Share(pub f64);

impl Display for Share {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let percent = self.0 * 100.0;
        let decimals = if percent.abs() < 9.95 && percent != 0.0 { 1 } else { 0 };
        write!(f, "{percent:.decimals$} %")
    }
}

/// A time in seconds, in the unit that suits its size.
pub struct Seconds(pub f64);

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let seconds = self.0;
        match seconds {
            s if s >= 600.0 => write!(f, "{:.1} min", s / 60.0),
            s if s >= 100.0 => write!(f, "{s:.0} s"),
            s if s >= 1.0 => write!(f, "{s:.2} s"),
            s => write!(f, "{:.1} ms", s * 1e3),
        }
    }
}

/// The colour of the `index`th of several things that are drawn side by side.
pub fn colour(index: usize) -> String {
    match COLOURS.get(index) {
        Some(colour) => (*colour).to_owned(),
        None => format!("hsl({:.0} 50% 52%)", (index as f64 * 137.508) % 360.0),
    }
}
