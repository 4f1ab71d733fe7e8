//! The guard: does the placement help *this* program, now? What hurts is taken back.
//!
//! Problem. A policy goes by a model of the machine and by what it can see of the threads. Where the model is
//! wrong, or a program is of another kind than those that the policy was made for, its placement is worse
//! than none, and nobody would notice: programs pinned to the wrong PEs run on, slowly. A comparison
//! beforehand says nothing about another input or the next phase.
//!
//! Approach. The program itself is asked, by how much its threads get done ([`ProgressReading`]):
//!
//! 1. *Trial.* From the first placement on, short epochs with it and without it follow each other in pairs,
//!    the order of each pair drawn by chance. The ratio of the progress in both is one number ([`meter`]: the
//!    mean over the applications, so none is sacrificed for another); a test that stays valid however often
//!    one looks ([`evidence`]) says when the numbers are enough. Epochs are 24 ms at first and grow to 200:
//!    what does much harm is told within ten short pairs, about a second, and costs half of that.
//! 2. *What hurts is taken back*, and not tried again in this phase of the program. Another phase is when
//!    its progress changes by more than a fourth for some looks in a row.
//! 3. *What helps is kept*, and tried again ever more rarely. Should the progress fall below what it was
//!    without the placement, this is taken back at once and tried again.
//! 4. *What cannot be told* within 60 pairs (some 25 s), or changes the progress by less than one percent, is
//!    taken back, and tried again ever more rarely: nobody's threads are moved without a proof that it helps.
//!    An error costs little, for what is not told by then is small or drowns in how the program wanders.
//!
//! Every trial costs something: one of its modes is the worse one. The next trial waits until the cost of the
//! last, spread over the time since, is less than [`COST_MAX`] (taken as 5 % of half of its time at least).
//! So epochs cost less than that in the long run, and a policy that changes its mind all the time cannot do
//! more harm than that, either.
//!
//! Threads that were bound and are free again stay where they are, often for long, even where that is worse
//! than where they were. So "without the placement" begins with each thread bound for a moment to the PE
//! where it ran before: what is taken back is as if it had not been. That is where it ran before the
//! trial: what its own epochs stir up would add up from pair to pair.
//!
//! The placement is judged as a whole, with whatever the policy wanted meanwhile: to the guard a policy that
//! flaps is one that hurts.
//!
//! Source. Paired epochs in random order: randomised block designs (Fisher, 1935), as "duet" or A/B epochs in
//! datacentres (X. Zhang et al., "CPI²: CPU performance isolation for shared compute clusters", EuroSys 2013,
//! takes back by the victim's own counter); the test's sources stand in [`evidence`]; phases by the change of
//! a rate: T. Sherwood et al., "Discovering and exploiting program phases", IEEE Micro 23(6), 2003. The
//! arrangement is ours.
//!
//! Limits. Instructions executed while waiting busily count as progress. What takes effect later than an
//! epoch (memory that moves to another node, heat) is not seen. What helps one thread and slows another of
//! the same application by as much counts as nothing. Only bound threads are judged: how threads wait
//! ([`crate::waits`]) has a test of its own. Without progress readings nothing is guarded.

mod evidence;
mod findings;
mod meter;
mod trial;

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

/// The most that trials may cost in the long run, as a share of the progress.
pub const COST_MAX: f64 = 0.005;

/// What a trial is taken to cost at least: its effect may be less, but switching costs, too.
const EFFECT_MIN: f64 = 0.05;

/// The time until the next trial doubles with each one that says the same, so often at most.
const DOUBLINGS_MAX: u32 = 6;

/// A change of the progress, as a logarithm, that makes another phase, if so many looks in a row show it.
const OTHER_PHASE: f64 = 0.25;
const LOOKS: u32 = 3;

/// The progress has fallen if it is by so much, as a logarithm, below what it was without the placement.
const FALLEN: f64 = 0.1;

/// Time between two looks at the progress while a placement is kept, and while it is not.
const LOOK_KEPT: Duration = Duration::from_millis(250);
const LOOK_TAKEN_BACK: Duration = Duration::from_secs(1);

/// For how long threads are bound to where they ran before, when their placement is taken back: until all
/// have run there, as who sleeps moves when it wakes, but at least and at most so long.
const RETURN: Duration = Duration::from_millis(10);
const RETURN_MAX: Duration = Duration::from_millis(500);

/// How long threads are free before the first trial, if they were bound before there was a meter.
const FREED: Duration = Duration::from_secs(1);

/// How far the reference follows the progress with each look: machines change their speed slowly.
const FOLLOWS: f64 = 0.05;

/// The reason of who is free for an epoch.
pub const EPOCH: &str = "an epoch without the placement, to measure what it gains";

/// The reason of who is bound for a moment, at the beginning of such an epoch or of the time after.
pub const BACK: &str = "back to where it ran without the placement";

/// What may be in force now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum InForce<'a> {
    /// The placement.
    Placement,
    /// Threads are bound to where they ran without it, for a moment.
    Before(&'a BTreeMap<ThreadId, PeId>),
    /// Nobody is bound.
    Nothing,
}

/// The guard of one run.
#[derive(Debug)]
pub struct Guard {
    random: Random,
    mode: Mode,
    /// Whether a placement was in force before there was a meter, and since when there is one.
    was_unguarded: bool,
    metered_since: Option<Time>,
    /// The last look by which the phase was judged.
    last: Look,
    /// Where threads ran without the placement.
    before: BTreeMap<ThreadId, PeId>,
    /// Trials in a row that said the same.
    repeated: u32,
    /// Before then the last trial's cost is not yet spread.
    free_at: Time,
    findings: Findings,
}

#[derive(Debug)]
enum Mode {
    /// Nobody has told of progress yet, or the policy has wanted nothing.
    Unguarded,
    Trying(Box<Trial>),
    Decided(Decided),
}

/// What follows from a trial.
#[derive(Debug)]
struct Decided {
    is_kept: bool,
    /// The logarithm of the progress in force over that without the placement.
    effect: f64,
    /// The progress without the placement.
    without: Rates,
    /// Looks in a row that showed another phase.
    otherwise: u32,
    /// While threads are bound to where they were before.
    returning: Option<Returning>,
    /// When it is tried again; `None`: when another phase begins.
    again_at: Option<Time>,
}

/// Threads on their way back to where they ran before.
#[derive(Debug)]
struct Returning {
    until: Time,
    look_at: Time,
}

impl Returning {
    fn new(now: Time) -> Returning {
        Returning { until: now + RETURN_MAX, look_at: now + RETURN }
    }

    /// Whether all have run where they ran before, or it has taken too long.
    fn is_over(&mut self, look: &Look, before: &BTreeMap<ThreadId, PeId>) -> bool {
        let now = look.at();
        if now < self.look_at {
            return false;
        }
        self.look_at = now + RETURN;
        let is_back = |(thread, pe)| look.places.get(thread).is_none_or(|place| place == pe);
        now >= self.until || before.iter().all(is_back)
    }
}

impl Guard {
    /// A guard; the seed decides the order of epochs.
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

    /// What may be in force now.
    pub fn in_force(&self) -> InForce<'_> {
        match &self.mode {
            // Where it can be judged, it is not in force before that.
            Mode::Unguarded if self.findings.meter.is_none() => InForce::Placement,
            Mode::Unguarded => InForce::Nothing,
            Mode::Trying(trial) if trial.is_placed() => InForce::Placement,
            Mode::Trying(trial) if trial.is_settling() => InForce::Before(&self.before),
            Mode::Decided(decided) if decided.is_kept => InForce::Placement,
            Mode::Decided(decided) if decided.returning.is_some() => InForce::Before(&self.before),
            Mode::Trying(_) | Mode::Decided(_) => InForce::Nothing,
        }
    }

    /// Why a placement is not in force now.
    pub fn reason(&self) -> String {
        match &self.mode {
            Mode::Decided(_) => self.findings.to_string(),
            Mode::Unguarded | Mode::Trying(_) => EPOCH.to_owned(),
        }
    }

    /// When the next look is due; `None` if at no special time.
    pub fn due(&self) -> Option<Time> {
        match &self.mode {
            Mode::Unguarded => None,
            Mode::Trying(trial) => Some(trial.due()),
            Mode::Decided(decided) if decided.is_kept => Some(self.last.at() + LOOK_KEPT),
            Mode::Decided(decided) => decided.returning.as_ref().map(|returning| returning.look_at),
        }
    }

    /// What was found so far.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Takes in what an observation tells. `wanted` is whether the policy wants anybody bound.
    pub fn take(&mut self, now: Time, threads: &[ThreadReading], wanted: bool) {
        let look = Look::new(now, threads);
        self.findings.meter = look.source.or(self.findings.meter);
        if wanted && self.findings.wanted_at.is_none() {
            self.findings.wanted_at = Some(now);
        }
        if self.in_force() == InForce::Nothing {
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
            // The loop may come a moment early.
            Mode::Trying(trial) if now + Duration::from_millis(1) < trial.due() => {}
            Mode::Trying(trial) => {
                if let Some(found) = trial.take(&look, &mut self.random) {
                    self.decide(found, look);
                }
            }
            Mode::Decided(_) => self.judge_phase(look, wanted),
        }
    }

    /// Takes in where threads run while nobody is bound.
    fn see_places(&mut self, places: &BTreeMap<ThreadId, PeId>) {
        if !matches!(self.mode, Mode::Trying(_)) {
            return self.before.clone_from(places);
        }
        // Where a trial has left threads is not where they were: only who is new has its place there.
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
            returning: (!is_kept).then(|| Returning::new(now)),
            again_at,
        });
        self.last = look;
    }

    /// Looks whether the program still does what it did in the last trial.
    fn judge_phase(&mut self, look: Look, wanted: bool) {
        let now = look.at();
        let Mode::Decided(decided) = &mut self.mode else { return };
        if decided.returning.as_mut().is_some_and(|returning| returning.is_over(&look, &self.before)) {
            decided.returning = None;
        }
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
            decided.returning = Some(Returning::new(now));
            self.findings.fell(now);
        } else if decided.otherwise >= LOOKS {
            decided.again_at = Some(decided.again_at.unwrap_or(self.free_at).min(self.free_at));
        }
        decided.without.approach(&rates.times((-decided.effect).exp()), FOLLOWS);
    }
}

#[cfg(test)]
mod tests;
