//! The guard: measures whether the placement helps *this* program, now, and reverts it if not.
//!
//! Problem. A policy relies on a model of the machine and on what it sees of the threads. If the model is
//! wrong, or a program is of another kind than those that the policy was made for, its placement is worse
//! than none, and nobody would notice: programs on the wrong PEs only get slower. A comparison beforehand
//! says nothing about another input or the next phase.
//!
//! Approach. The guard measures how much the program's threads get done ([`ProgressReading`]):
//!
//! 1. *Trial.* From the first placement on, short epochs with it and without it alternate in pairs, in an
//!    order that is drawn at random for each pair. The ratio of the progress in both is one number
//!    ([`meter`]: the mean over the applications, so that none is sacrificed for another). A test that stays
//!    valid however often it is evaluated ([`evidence`]) decides when there are enough numbers. Epochs are 24
//!    ms at first and grow to 200: much harm is detected within ten short pairs, about a second, and costs
//!    half of that.
//! 2. *A placement that hurts is reverted*, and not tried again in this phase of the program. Another phase
//!    begins when its progress changes by more than a fourth for some looks in a row.
//! 3. *A placement that helps is kept*, and tried again ever more rarely. If the progress falls below what it
//!    was without the placement, the placement is reverted at once and tried again.
//! 4. *A placement whose effect is unclear* after 60 pairs (some 25 s), or less than one percent, is
//!    reverted, and tried again ever more rarely: no thread is moved without proof that it helps. An error
//!    costs little, because an effect that is still unclear then is small, or drowns in the program's own
//!    variation.
//!
//! Every trial has a cost: one of its two modes is the worse one. The next trial waits until the cost of the
//! last, spread over the time since, is less than [`COST_MAX`] (taken as 5 % of half of its time at least).
//! In the long run epochs cost less than that, and a policy that changes its mind all the time cannot do more
//! harm, either.
//!
//! "Without the placement" means that no thread is bound: a mask that the policy did not ask for would be
//! handed to whatever the thread starts. But threads that were bound and are free again stay where they are,
//! often for long, even if that is worse than where they were. So each thread that is freed is first moved to
//! the PE where it ran before the trial (the moves by the trial's own epochs would add up from pair to pair):
//! it is bound there and freed at once. A sleeping thread is not moved by that; it wakes where it slept.
//!
//! The placement is judged as a whole, with all changes by the policy in the meantime: to the guard a policy
//! that flaps is one that hurts.
//!
//! Source. Paired epochs in random order: randomised block designs (Fisher, 1935), as "duet" or A/B epochs in
//! datacentres (X. Zhang et al., "CPI²: CPU performance isolation for shared compute clusters", EuroSys 2013,
//! which reverts by the victim's own counter); for the test, see [`evidence`]; phases by the change of a
//! rate: T. Sherwood et al., "Discovering and exploiting program phases", IEEE Micro 23(6), 2003. The
//! combination is ours.
//!
//! Limits. Instructions executed while busy-waiting count as progress. Effects later than an epoch (memory
//! that moves to another node, heat) are not seen. If one thread gains and another of the same application
//! loses as much, that counts as no effect. Only bound threads are judged here; how threads wait is judged in
//! [`waits`]. Without progress readings nothing is guarded.

mod findings;
mod meter;
mod trial;
pub mod waits;

pub use findings::{Findings, Gain, State};
pub use trial::Verdict;

use crate::ids::{PeId, ThreadId};
#[cfg(doc)]
use crate::observe::ProgressReading;
use crate::observe::ThreadReading;
use crate::random::Random;
use crate::time::Time;
use meter::{Look, Rates};
use std::collections::BTreeMap;
use std::time::Duration;
use trial::{Found, Trial};

/// The limit of the cost of trials in the long run, as a share of the progress.
pub const COST_MAX: f64 = 0.005;

/// The minimum assumed cost of a trial: its effect may be smaller, but switching has a cost, too.
const EFFECT_MIN: f64 = 0.05;

/// The time until the next trial doubles with each one of the same verdict, at most this often.
const DOUBLINGS_MAX: u32 = 6;

/// A change of the progress by this much, as a logarithm, in this many looks in a row is another phase.
const OTHER_PHASE: f64 = 0.25;
const LOOKS: u32 = 3;

/// The progress has fallen if it is this much, as a logarithm, below that without the placement.
const FALLEN: f64 = 0.1;

/// Time between two looks at the progress: while a placement is kept, and while it is not.
const LOOK_KEPT: Duration = Duration::from_millis(250);
const LOOK_TAKEN_BACK: Duration = Duration::from_secs(1);

/// How long threads are free before the first trial, if they were bound before there was a meter.
const FREED: Duration = Duration::from_secs(1);

/// How far the reference follows the progress with each look, because machines slowly change their speed.
const FOLLOWS: f64 = 0.05;

/// The reason for freeing a thread for an epoch.
pub const EPOCH: &str = "an epoch without the placement, to measure what it gains";

/// The reason for binding a thread that is freed in the same step: it is moved back.
pub const BACK: &str = "back to where it ran without the placement";

/// The guard of one run.
#[derive(Debug)]
pub struct Guard {
    random: Random,
    mode: Mode,
    /// Whether a placement was in force before there was a meter, and since when there is one.
    was_unguarded: bool,
    metered_since: Option<Time>,
    /// The last look for judging the phase.
    last: Look,
    /// Where threads ran without the placement.
    before: BTreeMap<ThreadId, PeId>,
    /// The number of trials in a row with the same verdict.
    repeated: u32,
    /// When the cost of the last trial has been spread sufficiently.
    free_at: Time,
    findings: Findings,
}

#[derive(Debug)]
enum Mode {
    /// There is no meter yet, or the policy has not bound any thread.
    Unguarded,
    Trying(Box<Trial>),
    Decided(Decided),
}

/// The state after a trial.
#[derive(Debug)]
struct Decided {
    is_kept: bool,
    /// The logarithm of the progress in force over that without the placement.
    effect: f64,
    /// The progress without the placement.
    without: Rates,
    /// Looks in a row that showed another phase.
    otherwise: u32,
    /// When the next trial begins; `None` means in another phase.
    again_at: Option<Time>,
}

impl Guard {
    /// Makes a guard; the seed decides the order of epochs.
    pub fn new(seed: u64) -> Guard {
        Guard {
            random: Random::new(seed, 0),
            mode: Mode::Unguarded,
            was_unguarded: false,
            metered_since: None,
            last: Look::default(),
            before: BTreeMap::new(),
            repeated: 0,
            free_at: Time(0),
            findings: Findings::default(),
        }
    }

    /// Returns whether the placement is in force now; if not, no thread is bound.
    pub fn is_in_force(&self) -> bool {
        match &self.mode {
            // A placement that can be judged is not in force before its trial.
            Mode::Unguarded => self.findings.meter.is_none(),
            Mode::Trying(trial) => trial.is_placed(),
            Mode::Decided(decided) => decided.is_kept,
        }
    }

    /// Returns why a placement is not in force now.
    pub fn reason(&self) -> String {
        match &self.mode {
            Mode::Decided(_) => self.findings.to_string(),
            Mode::Unguarded | Mode::Trying(_) => EPOCH.to_owned(),
        }
    }

    /// Returns when the next look is due; `None` if there is no particular time.
    pub fn due(&self) -> Option<Time> {
        match &self.mode {
            Mode::Unguarded => None,
            Mode::Trying(trial) => Some(trial.due()),
            Mode::Decided(decided) => decided.is_kept.then(|| self.last.at() + LOOK_KEPT),
        }
    }

    /// Returns the findings so far.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Takes in an observation of the threads that it guards. `wanted` says whether the policy wants any of
    /// them bound.
    pub fn take<'a>(
        &mut self,
        now: Time,
        threads: impl Iterator<Item = &'a ThreadReading> + Clone,
        wanted: bool,
    ) {
        let look = Look::new(now, threads);
        self.findings.meter = look.source.or(self.findings.meter);
        if wanted && self.findings.wanted_at.is_none() {
            self.findings.wanted_at = Some(now);
        }
        if !self.is_in_force() {
            self.see_places(&look.places);
        }
        match &mut self.mode {
            Mode::Unguarded if wanted && look.source.is_some() => {
                let free = now.since(*self.metered_since.get_or_insert(now));
                if !self.was_unguarded || free >= FREED {
                    self.begin_trial(now);
                }
            }
            Mode::Unguarded => self.was_unguarded |= wanted,
            // Both modes are the same now.
            Mode::Trying(trial) if !wanted => trial.begin_pair(now, &mut self.random),
            // The loop may be a moment early.
            Mode::Trying(trial) if now + Duration::from_millis(1) < trial.due() => {}
            Mode::Trying(trial) => {
                if let Some(found) = trial.take(&look, &mut self.random) {
                    self.decide(found, look);
                }
            }
            Mode::Decided(_) => self.judge_phase(look, wanted),
        }
    }

    /// Returns where a thread ran without the placement, if known.
    pub fn before(&self, thread: ThreadId) -> Option<PeId> {
        self.before.get(&thread).copied()
    }

    /// Records where threads run while none is bound.
    fn see_places(&mut self, places: &BTreeMap<ThreadId, PeId>) {
        if !matches!(self.mode, Mode::Trying(_)) {
            return self.before.clone_from(places);
        }
        // Where a trial has moved a thread does not count: only new threads are recorded.
        self.before.retain(|thread, _| places.contains_key(thread));
        for (thread, pe) in places {
            self.before.entry(*thread).or_insert(*pe);
        }
    }

    fn begin_trial(&mut self, now: Time) {
        self.mode = Mode::Trying(Box::new(Trial::new(now, &mut self.random)));
    }

    fn decide(&mut self, found: Found, look: Look) {
        let now = look.at();
        let cost = found.took.mul_f64(found.effect.abs().max(EFFECT_MIN) / 2.0);
        let pause = cost.mul_f64(1.0 / COST_MAX);
        self.repeated = if self.findings.verdict() == Some(found.verdict) {
            (self.repeated + 1).min(DOUBLINGS_MAX)
        } else {
            0
        };
        self.free_at = now + pause;
        let is_kept = found.verdict == Verdict::Helps;
        let again_at = (found.verdict != Verdict::Hurts).then(|| now + pause * (1 << self.repeated));
        self.findings.take(now, &found);
        self.mode = Mode::Decided(Decided {
            is_kept,
            effect: if is_kept { found.effect } else { 0.0 },
            without: found.without,
            otherwise: 0,
            again_at,
        });
        self.last = look;
    }

    /// Checks whether the program is still in the phase of the last trial.
    fn judge_phase(&mut self, look: Look, wanted: bool) {
        let now = look.at();
        let Mode::Decided(decided) = &mut self.mode else { return };
        if wanted && decided.again_at.is_some_and(|at| at <= now) && look.source.is_some() {
            return self.begin_trial(now);
        }
        let apart = if decided.is_kept { LOOK_KEPT } else { LOOK_TAKEN_BACK };
        if now.since(self.last.at()) + Duration::from_millis(1) < apart {
            return;
        }
        let rates = look.since(&self.last);
        self.last = look;
        let Some(level) = rates.log_over(&decided.without) else { return };
        decided.otherwise =
            if (level - decided.effect).abs() > OTHER_PHASE { decided.otherwise + 1 } else { 0 };
        if decided.is_kept && level < -FALLEN {
            (decided.is_kept, decided.effect, decided.otherwise) = (false, 0.0, 0);
            decided.again_at = Some(self.free_at);
            self.findings.fell(now);
        } else if decided.otherwise >= LOOKS {
            decided.again_at = Some(decided.again_at.unwrap_or(self.free_at).min(self.free_at));
        }
        decided.without.approach(&rates.times((-decided.effect).exp()), FOLLOWS);
    }
}

#[cfg(test)]
mod tests;
