//! Formats of figures.

use std::fmt::{Display, Formatter, Result};

/// A share, 0..1, in percent.
pub struct Share(pub f64);

impl Display for Share {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let percent = self.0 * 100.0;
        let decimals = if percent.abs() < 9.95 && percent != 0.0 { 1 } else { 0 };
        write!(f, "{percent:.decimals$} %")
    }
}

/// A time in seconds, shown in a suitable unit.
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
