//! The last values of a figure.

use std::collections::VecDeque;

/// The number of values that are kept: a minute at the usual interval.
pub const HISTORY_MAX: usize = 60;

/// The last values of a figure, the oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History(VecDeque<f32>);

impl History {
    /// Adds a value; the oldest of too many is forgotten.
    pub fn push(&mut self, value: f64) {
        if self.0.len() == HISTORY_MAX {
            self.0.pop_front();
        }
        self.0.push_back(value as f32);
    }

    /// Returns at most the last `count` values, the oldest first.
    pub fn last(&self, count: usize) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.0.iter().skip(self.0.len().saturating_sub(count)).map(|value| f64::from(*value))
    }

    /// Returns the largest value; 0 if there is none.
    pub fn max(&self) -> f64 {
        self.0.iter().fold(0.0, |max, value| f64::from(*value).max(max))
    }
}
