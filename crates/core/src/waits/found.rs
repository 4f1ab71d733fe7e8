//! Why turns may help a process.

use crate::time::Time;

/// See the module's text.
#[derive(Debug)]
pub(super) enum Found {
    /// They would not, as far as is known.
    Nothing,
    /// It spins although its library's waits were short, or cannot be, in this share of its samples.
    Spins { share: f64 },
    /// It wastes this share of its samples while its library's waits are short.
    Blocks { share: f64 },
    /// They did not help; that holds until then. Meanwhile short waits are right for it, or nothing is.
    InVain { until: Time, short_waits: bool },
}

impl Found {
    /// In words, if turns may help.
    pub fn reason(&self) -> Option<String> {
        match self {
            Found::Nothing | Found::InVain { .. } => None,
            Found::Spins { share } => {
                let percent = 100.0 * share;
                let spins = format!("spin for {percent:.0} % of their time in waits that cannot be changed");
                Some(format!("its threads are held up, and {spins}"))
            }
            Found::Blocks { share } => {
                Some(format!("short waits waste {:.0} % of its CPU time", 100.0 * share))
            }
        }
    }
}
