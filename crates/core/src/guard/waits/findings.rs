//! The findings about waits, for reports and in words.

use super::super::findings::Gain;
use super::LOG_MAX;
use crate::observe::ProgressSource;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The findings of the guard of waits.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct WaitsFindings {
    /// The final state of the changes.
    pub state: WaitsState,
    /// The meter of this run; `null` if its progress could not be measured.
    pub meter: Option<ProgressSource>,
    /// The progress with the changes over that without, less 1, as a mean over all runs; `null` before a pair
    /// was measured.
    pub gain: Option<Gain>,
    /// The number of measured pairs of epochs.
    pub pairs: u64,
    /// The number of runs in the last of them.
    pub runs: u32,
    /// The time in epochs without the changes, in seconds.
    pub off_seconds: f64,
    /// The time from the first change until all changes were first taken back; `null` if they never were.
    pub taken_back_after_seconds: Option<f64>,
}

/// The state of the changes of waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsState {
    /// There were too few pairs for a verdict; the rules hold.
    #[default]
    NotJudged,
    /// They help.
    Kept,
    /// They hurt, and were taken back.
    TakenBack,
    /// They were taken back, then progress fell below that with them, and they are in force again.
    Fell,
    /// Their effect is none, or unclear after many pairs; the rules hold.
    #[serde(rename = "not_told")]
    Unclear,
}

impl WaitsState {
    /// Those that are verdicts.
    pub const VERDICTS: [WaitsState; 4] =
        [WaitsState::Kept, WaitsState::TakenBack, WaitsState::Fell, WaitsState::Unclear];
}

impl fmt::Display for WaitsFindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(meter) = self.meter.map(ProgressSource::words) else {
            return f.write_str("waits not guarded: no progress meter");
        };
        let after = self.taken_back_after_seconds.unwrap_or_default();
        // Single pairs are cut off there.
        let least = |gain: Gain| if gain.value > 0.99 * LOG_MAX.exp_m1() { "at least " } else { "" };
        let runs = if self.runs > 1 { format!(" in {} runs", self.runs) } else { String::new() };
        match (self.state, self.gain) {
            (WaitsState::Kept, Some(gain)) => {
                write!(f, "waits gained {}{gain} by {meter}{runs}", least(gain))
            }
            (WaitsState::TakenBack, Some(gain)) => {
                write!(f, "waits taken back after {after:.1} s: {gain} by {meter}{runs}")
            }
            (WaitsState::Fell, _) => {
                write!(f, "waits taken back after {after:.1} s and changed again: progress fell, by {meter}")
            }
            (WaitsState::Unclear, Some(gain)) => {
                write!(f, "waits changed; their gain is unclear ({gain} by {meter}{runs})")
            }
            (WaitsState::NotJudged, Some(gain)) => {
                let least = least(gain);
                write!(f, "waits changed; {least}{gain} by {meter}{runs}, too few trials for a verdict")
            }
            (
                WaitsState::NotJudged | WaitsState::Kept | WaitsState::TakenBack | WaitsState::Unclear,
                None,
            ) => f.write_str("waits changed; the time was too short to measure their gain"),
        }
    }
}
