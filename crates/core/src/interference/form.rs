//! The forms of the model that are tried.

use super::table::Table;
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};

/// On which scale the parts of the model add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Excess time: `slowdown - 1`.
    Excess,
    /// Slowdowns multiply: their logarithm.
    Logarithm,
    /// Lost progress: `1 - 1/slowdown`.
    Lost,
    /// Demand above what there is: the excess is 0 below a soft threshold and grows linearly above it.
    Clash,
}

/// The width of the soft threshold.
const SOFT: f64 = 0.25;
/// A slowdown below this one tells how far below the threshold it is by its noise alone.
const CLASH_MIN: f64 = 1.03;
/// More progress cannot be lost by one neighbour: it keeps predictions finite.
const LOST_MAX: f64 = 0.95;
/// The range of slowdowns that are predicted.
const SLOWDOWN: (f64, f64) = (0.1, 100.0);

impl Scale {
    const ALL: [Scale; 4] = [Scale::Excess, Scale::Logarithm, Scale::Lost, Scale::Clash];

    /// Returns a slowdown on this scale.
    pub fn of(self, slowdown: f64) -> f64 {
        match self {
            Scale::Excess => slowdown - 1.0,
            Scale::Logarithm => slowdown.ln(),
            Scale::Lost => 1.0 - 1.0 / slowdown,
            Scale::Clash => SOFT * ((slowdown.max(CLASH_MIN) - 1.0) / SOFT).exp_m1().ln(),
        }
    }

    /// Returns the slowdown of a value on this scale.
    pub fn slowdown(self, value: f64) -> f64 {
        let slowdown = match self {
            Scale::Excess => 1.0 + value,
            Scale::Logarithm => value.exp(),
            Scale::Lost => 1.0 / (1.0 - value.min(LOST_MAX)),
            Scale::Clash => 1.0 + SOFT * (value / SOFT).exp().ln_1p(),
        };
        slowdown.clamp(SLOWDOWN.0, SLOWDOWN.1)
    }
}

impl Display for Scale {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Scale::Excess => "excess time adds up",
            Scale::Logarithm => "slowdowns multiply",
            Scale::Lost => "lost progress adds up",
            Scale::Clash => "clashes from a threshold on",
        })
    }
}

/// In how many ways programs differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Factors {
    /// A neighbour costs every program the same.
    None,
    /// A program has one sensitivity, alike for all neighbours: additive.
    Alike,
    /// So many sensitivities, each times a pressure of the neighbour.
    Several(usize),
}

impl Factors {
    const ALL: [Factors; 5] =
        [Factors::None, Factors::Alike, Factors::Several(1), Factors::Several(2), Factors::Several(3)];

    /// Returns the next simpler form.
    pub(super) fn simpler(self) -> Option<Factors> {
        let index = Self::ALL.iter().position(|factors| *factors == self)?;
        Some(Self::ALL[index.checked_sub(1)?])
    }
}

impl Display for Factors {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Factors::None => f.write_str("all programs alike"),
            Factors::Alike => f.write_str("one sensitivity for all neighbours"),
            Factors::Several(1) => f.write_str("1 sensitivity × pressure"),
            Factors::Several(count) => write!(f, "{count} sensitivities × pressures"),
        }
    }
}

/// How the excess grows with the intensity, a share of the greatest one.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dose {
    /// In proportion.
    Proportional,
    /// It saturates: an intensity of this size has half the effect of an infinite one.
    HalfAt(f64),
}

impl Dose {
    const ALL: [Dose; 4] = [Dose::Proportional, Dose::HalfAt(1.0), Dose::HalfAt(0.3), Dose::HalfAt(0.1)];

    /// Returns the share of the excess of intensity 1.
    pub fn share(self, intensity: f64) -> f64 {
        match self {
            Dose::Proportional => intensity,
            Dose::HalfAt(half) => intensity * (1.0 + half) / (intensity + half),
        }
    }
}

impl Display for Dose {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Dose::Proportional => f.write_str("in proportion to the intensity"),
            Dose::HalfAt(half) => write!(f, "saturating, half at intensity {half}"),
        }
    }
}

/// A form of the model.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// On which scale its parts add up.
    pub scale: Scale,
    /// In how many ways programs differ.
    pub factors: Factors,
    /// The effect of the intensity.
    pub dose: Dose,
    /// The assumed variance of a measurement on the scale: more noise, stronger regularisation.
    pub noise: f64,
}

impl Form {
    /// Deviations of 3, 6 and 13 %.
    const NOISES: [f64; 3] = [0.001, 0.004, 0.016];

    /// Returns the forms that differ for a table, the simplest first.
    pub(super) fn all(table: &Table) -> Vec<Form> {
        let has_doses = table.cells.iter().any(|cell| cell.intensity != 1.0);
        let doses = if has_doses { &Dose::ALL[..] } else { &Dose::ALL[..1] };
        let mut forms = Vec::new();
        for factors in Factors::ALL {
            for scale in Scale::ALL {
                for &dose in doses {
                    forms.extend(Self::NOISES.map(|noise| Form { scale, factors, dose, noise }));
                }
            }
        }
        forms
    }
}

impl Display for Form {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}, noise ±{:.0} %", self.scale, self.factors, 100.0 * self.noise.sqrt())
    }
}
