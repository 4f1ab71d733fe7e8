//! A trial: alternating epochs with and without the placement, until its effect is clear.

use super::meter::{Look, Rates};
use crate::evidence::{Evidence, PAIRS_MAX};
use crate::random::Random;
use crate::time::Time;
use std::time::Duration;

/// The maximum time of a trial: a program may stop reporting progress.
const TIME_MAX: Duration = Duration::from_secs(60);

/// A placement has no effect if the interval shows a change of the progress by less than this share.
const NOTHING: f64 = 0.01;

/// At the beginning of an epoch this part of its length is not measured, because threads move and caches
/// fill.
const SETTLES: u32 = 4;

/// A trial.
#[derive(Debug, Clone)]
pub struct Trial {
    began: Time,
    evidence: Evidence,
    /// Whether the pair's first epoch is the one with the placement.
    placed_first: bool,
    /// The rates of the pair's first epoch, once it is over.
    first: Option<Rates>,
    /// The beginning of the measured part of the present epoch; `None` while it settles.
    from: Option<Look>,
    until: Time,
    /// The mean rates without the placement.
    without: Rates,
}

/// The effect of a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It helps.
    Helps,
    /// It hurts.
    Hurts,
    /// Its effect is none, or unclear after the trial's time.
    Unclear,
}

/// The result of a trial.
#[derive(Debug, Clone)]
pub struct Found {
    /// The verdict.
    pub verdict: Verdict,
    /// The logarithm of the progress with the placement over that without.
    pub effect: f64,
    /// The ends of its interval; `None` if they are not known.
    pub interval: Option<(f64, f64)>,
    /// The duration of the trial.
    pub took: Duration,
    /// The rates without the placement.
    pub without: Rates,
}

impl Trial {
    /// Begins a trial.
    pub fn new(now: Time, random: &mut Random) -> Trial {
        let mut trial = Trial {
            began: now,
            evidence: Evidence::default(),
            placed_first: false,
            first: None,
            from: None,
            until: now,
            without: Rates::default(),
        };
        trial.begin_pair(now, random);
        trial
    }

    /// Returns whether the placement is in force in the present epoch.
    pub fn is_placed(&self) -> bool {
        self.placed_first == self.first.is_none()
    }

    /// Returns when the next look is due.
    pub fn due(&self) -> Time {
        self.until
    }

    /// Begins another pair. Measurements of the present pair are discarded.
    pub fn begin_pair(&mut self, now: Time, random: &mut Random) {
        self.placed_first = random.unit() < 0.5;
        self.first = None;
        self.begin_epoch(now);
    }

    fn begin_epoch(&mut self, now: Time) {
        self.from = None;
        self.until = now + self.length() / SETTLES;
    }

    /// Returns the length of the measured part of an epoch. Short ones suffice to detect much harm.
    fn length(&self) -> Duration {
        Duration::from_millis(match self.evidence.pairs() {
            0..12 => 24,
            12..20 => 100,
            _ => 200,
        })
    }

    /// Takes in a look that was due; returns the result once the trial is over.
    pub fn take(&mut self, look: &Look, random: &mut Random) -> Option<Found> {
        let Some(from) = &self.from else {
            self.until = look.at() + self.length();
            self.from = Some(look.clone());
            return None;
        };
        let rates = look.since(from);
        if !self.is_placed() {
            let share = 1.0 / (1.0 + self.evidence.pairs() as f64);
            self.without.approach(&rates, share);
        }
        let Some(first) = self.first.take() else {
            self.first = Some(rates);
            self.begin_epoch(look.at());
            return None;
        };
        let (with, without) = if self.placed_first { (first, rates) } else { (rates, first) };
        if let Some(log) = with.log_over(&without) {
            self.evidence.take(log);
        }
        self.begin_pair(look.at(), random);
        let interval = self.evidence.interval();
        let verdict = match interval {
            Some((low, _)) if low > 0.0 => Verdict::Helps,
            Some((_, high)) if high < 0.0 => Verdict::Hurts,
            Some((low, high)) if low > -NOTHING && high < NOTHING => Verdict::Unclear,
            _ if self.evidence.pairs() >= PAIRS_MAX || look.at().since(self.began) >= TIME_MAX => {
                Verdict::Unclear
            }
            _ => return None,
        };
        let (effect, took) = (self.evidence.estimate(), look.at().since(self.began));
        Some(Found { verdict, effect, interval, took, without: self.without.clone() })
    }
}
