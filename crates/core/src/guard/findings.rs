//! The findings of a guard, for reports and in words.

use super::trial::{Found, Verdict};
use crate::observe::ProgressSource;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The findings of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Findings {
    /// The final state of the placement.
    pub state: State,
    /// The meter by which it was judged; `null` if progress could not be measured.
    pub meter: Option<ProgressSource>,
    /// The result of the last finished trial: the progress with the placement over that without, less 1.
    pub gain: Option<Gain>,
    /// The number of finished trials.
    pub trials: u32,
    /// Their total time, in seconds.
    pub trial_seconds: f64,
    /// The time from when the placement was first wanted until it was first reverted; `null` if it never was.
    pub taken_back_after_seconds: Option<f64>,
    /// How often a placement that had helped was reverted because progress fell.
    pub fallen: u32,
    #[serde(skip)]
    pub(super) wanted_at: Option<Time>,
}

/// The state of a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No trial was finished.
    #[default]
    NotJudged,
    /// It helps, and was kept.
    Kept,
    /// It hurts, and was reverted.
    TakenBack,
    /// It had helped, then progress fell below that without it, and it was reverted.
    Fell,
    /// Its effect is unclear, and it was reverted.
    #[serde(rename = "not_told")]
    Unclear,
}

impl State {
    /// Those that are verdicts.
    pub const VERDICTS: [State; 4] = [State::Kept, State::TakenBack, State::Fell, State::Unclear];
}

/// A gain with its interval, which is valid however often it is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The gain; below 0 is a loss.
    pub value: f64,
    /// Lower end of the 95 % interval; `null` if it is not known.
    pub low: Option<f64>,
    /// Upper end, likewise.
    pub high: Option<f64>,
}

impl Findings {
    /// Returns whether any thread was to be bound.
    pub fn is_about_something(&self) -> bool {
        self.wanted_at.is_some()
    }

    /// Returns the verdict of the last trial.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        match self.state {
            State::NotJudged => None,
            State::Kept | State::Fell => Some(Verdict::Helps),
            State::TakenBack => Some(Verdict::Hurts),
            State::Unclear => Some(Verdict::Unclear),
        }
    }

    pub(super) fn take(&mut self, now: Time, found: &Found) {
        self.state = match found.verdict {
            Verdict::Helps => State::Kept,
            Verdict::Hurts => State::TakenBack,
            Verdict::Unclear => State::Unclear,
        };
        self.gain = Some(Gain::of(found.effect, found.interval));
        self.trials += 1;
        self.trial_seconds += found.took.as_secs_f64();
        if found.verdict == Verdict::Hurts {
            self.took_back(now);
        }
    }

    pub(super) fn fell(&mut self, now: Time) {
        self.state = State::Fell;
        self.fallen += 1;
        self.took_back(now);
    }

    fn took_back(&mut self, now: Time) {
        let after = self.wanted_at.map(|at| now.since(at).as_secs_f64());
        self.taken_back_after_seconds = self.taken_back_after_seconds.or(after);
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(meter) = self.meter.map(ProgressSource::words) else {
            return f.write_str("not guarded: no progress meter");
        };
        let after = self.taken_back_after_seconds.unwrap_or_default();
        match (self.state, self.gain) {
            (State::Kept, Some(gain)) => write!(f, "placement gained {gain} by {meter}"),
            (State::TakenBack, Some(gain)) => {
                write!(f, "placement reverted after {after:.1} s: {gain} by {meter}")
            }
            (State::Fell, _) => write!(f, "placement reverted: progress fell, by {meter}"),
            (State::Unclear, Some(gain)) => {
                write!(f, "placement reverted: its gain is unclear ({gain} by {meter})")
            }
            (State::NotJudged, _) | (State::Kept | State::TakenBack | State::Unclear, None) => {
                write!(f, "placement not judged: the time was too short")
            }
        }
    }
}

impl Gain {
    /// Takes the logarithms of the ratio of progress and of the ends of its interval.
    pub(super) fn of(effect: f64, interval: Option<(f64, f64)>) -> Gain {
        let (low, high) = interval.map(|(low, high)| (low.exp_m1(), high.exp_m1())).unzip();
        Gain { value: effect.exp_m1(), low, high }
    }
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gain { value, low, high } = *self;
        write!(f, "{:+.1} %", 100.0 * value)?;
        match (low, high) {
            (Some(low), Some(high)) => write!(f, " [{:.1}, {:.1}]", 100.0 * low, 100.0 * high),
            _ => Ok(()),
        }
    }
}
