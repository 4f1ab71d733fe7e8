//! The waits of one process: its state, and when that changes.
//!
//! ```text
//!               lost 6 ms          turns are better        another one offers
//!   ┌─────┐ ────────────▶ ┌───────┐ ────────────▶ ┌──────────┐ ────────────▶ ┌───────┐
//!   │ own │               │ short │               │ offering │               │ turns │
//!   └─────┘ ◀──────────── └───────┘ ◀──────────── └──────────┘ ◀──────────── └───────┘
//!    │ ▲ │  calm, no help           waits change             nobody takes turns  │ ▲
//!    │ │ │                                                                       │ │
//!    │ │ │ lacks PEs for 0.5 s, yields   ┌───────┐                               │ │
//!    │ │ └─────────────────────────────▶ │ apart │    turns did not help, calm   │ │
//!    │ │                                 └───────┘                               │ │
//!    │ └─────────────────────────────────────────────────────────────────────────┘ │
//!    └────────────── lacks PEs, spins in waits that cannot be changed ─────────────┘
//!   any of them ── somebody else sets the spin count ──▶ left alone
//! ```
//!
//! | state | here | what leads there | how soon |
//! | --- | --- | --- | --- |
//! | own | [`State::Own`] | the start; calm waits | – |
//! | short: PEs lack | [`State::Short`] | [`CHANGE`] is lost | 2 looks of 5 to 50 ms |
//! | short: quota spent | `is_in_quota` | [`CHANGE`] is lost of the quota | 2 periods of 100 ms |
//! | offering | `offer` | samples: blocks lose a tenth | 0.2 s of CPU time (40 samples) |
//! | turns | [`State::Turns`] | a gang on the same PEs | the next look; turns of 100 ms |
//! | apart | [`Process::is_apart`] | it yields and lacks PEs | [`APART_AFTER`] |
//! | left alone | [`State::Left`] | somebody else's value | the next look |
//!
//! Of the two exits of short waits, *calm* (nobody waits any more, and the quota would do) is free after
//! [`OWN_AGAIN`], and *did not help* bars the way back for [`SHORT_AGAIN`]; turns that did not help are
//! barred for [`TURNS_AGAIN`]. The epochs of the [guard](crate::guard::waits) interrupt all of this for 24 to
//! 100 ms, and what happens in them counts for none of it.
//!
//! Two questions are asked in each state. *Has it lost enough to change?* Own and short waits are compared by
//! what the kernel counts, which has no noise; [`Regret`] answers. *Do samples show a difference?* What is
//! lost by spinning, and in turns, is known by samples only; [`Evidence`] answers. A change that did not help
//! is tried again after a [`Backoff`].

use super::losses::{self, Samples, Short, UNTRIED};
use crate::backoff::Backoff;
use crate::cadence::Cadence;
use crate::evidence::{Evidence, PAIRS_MAX};
use crate::machine_model::Switching;
use crate::observe::{IdleWait, IdleWaits, ProcessReading, ProcessTimes};
use crate::plan::Setting;
use crate::time::Time;
use crate::wait_changes::WaitChanges;
use std::sync::Arc;
use std::time::Duration;

/// How the reason begins for which waits are short in a quota.
pub const QUOTA_IS_SPENT: &str = "its quota is spent";

/// What a change costs, as time of the whole process: a disturbance that does not last takes about this long.
/// *Measured*: what starts beside a program, corewise included, takes PEs from it for some milliseconds.
const CHANGE: Duration = Duration::from_millis(6);

/// What it costs to open clock samples and what they need, in CPU time. *Measured*.
const SAMPLES_OPEN: Duration = Duration::from_millis(40);

/// How long own waits are left alone after a relapse. *Chosen*: from what people notice (0.1 s) to a phase of
/// a program.
const OWN_AGAIN: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];

/// The time in which a quota of a control group is counted: the default of `cpu.max`, which Docker and
/// Kubernetes use.
const QUOTA_PERIOD: Duration = Duration::from_millis(100);

/// How long short waits are left alone that did not help. *Derived*: a trial takes a tenth of a second and
/// loses at most all of it, so the first wait bounds its cost by a fifth, the last one by 0.2 %.
const SHORT_AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(60)];

/// The same of turns, a trial of which takes a second and loses about a tenth of it: 1 % at first, 0.02 % at
/// last.
const TURNS_AGAIN: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(600)];

/// How long a process lacks PEs before its threads are kept apart: binding them has cost up to a third of the
/// time of programs that ran for half a second. *Measured*.
const APART_AFTER: Duration = Duration::from_millis(500);

/// Samples that make a number for the test. *Derived*: of a share near [`UNTRIED`], fewer samples are mostly
/// 0, and the test needs numbers that scatter symmetrically.
const BATCH: u64 = 4;

/// Time between two observations while samples are judged, which grows with the time that it takes.
/// *Derived*: at 199 samples in a second of CPU time, two PEs make [`BATCH`] of them in 10 ms at best; a look
/// that finds fewer only costs.
const JUDGED_EVERY: [Duration; 2] = [Duration::from_millis(25), Duration::from_secs(1)];

/// How a process waits now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As its runtime library chose.
    Own,
    /// Its idle threads spin for no longer than a block costs.
    Short,
    /// It takes turns with others, each with its own waits (gang scheduling).
    Turns,
    /// As its runtime library chose, for good: somebody else decides.
    Left,
}

/// What staying has cost over a change so far, as a time.
///
/// Rent or buy: a process that changes when staying has cost as much as a change loses at most twice as
/// much as one that knows the future (Karlin, Manasse, Rudolph, Sleator, "Competitive snoopy caching",
/// Algorithmica 3, 1988). What is over by the next look is no reason to change, so one look is never enough.
#[derive(Debug, Clone, Copy)]
struct Regret {
    seconds: f64,
    price_s: f64,
}

impl Regret {
    fn with_price(price: Duration) -> Regret {
        Regret { seconds: 0.0, price_s: price.as_secs_f64() }
    }

    fn take(&mut self, seconds: f64) {
        self.seconds = (self.seconds + seconds.min(self.price_s / 2.0)).clamp(0.0, self.price_s);
    }

    fn is_due(&self) -> bool {
        self.seconds >= self.price_s
    }

    fn is_none(&self) -> bool {
        self.seconds == 0.0
    }

    fn reset(&mut self) {
        self.seconds = 0.0;
    }
}

/// When something may be tried again.
#[derive(Debug, Clone, Copy)]
struct Backoffs {
    /// Short waits, which did not help.
    short: Backoff,
    /// Own waits, after which it lacked PEs again.
    own: Backoff,
    turns: Backoff,
}

/// What samples have shown in the present state.
#[derive(Debug, Default)]
struct Judgement {
    began: Option<Time>,
    from: Option<(Samples, ProcessReading)>,
    evidence: Evidence,
}

/// The times from some reading on.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: ProcessReading,
    /// The most threads at once since then.
    threads: u32,
}

impl Window {
    fn from(reading: &ProcessReading) -> Window {
        Window { from: *reading, threads: reading.threads }
    }

    fn take(&mut self, reading: &ProcessReading) {
        self.threads = self.threads.max(reading.threads);
    }

    fn until(&self, reading: &ProcessReading) -> ProcessTimes {
        ProcessTimes { threads: self.threads, ..reading.since(&self.from) }
    }

    /// Returns whether it is a period of a quota: throttling is known when it is over.
    fn is_period(&self, reading: &ProcessReading) -> bool {
        let is_long = reading.at.since(self.from.at) >= 2 * QUOTA_PERIOD;
        is_long || reading.throttled_ns > self.from.throttled_ns
    }
}

/// The waits of one process.
#[derive(Debug)]
pub struct Process {
    /// What may be changed about them.
    may: WaitChanges,
    /// What stopping its threads costs here.
    costs: Switching,
    state: State,
    reason: Arc<str>,
    last: ProcessReading,
    /// Since the last reading with idle time.
    idle: Window,
    regret: Regret,
    /// Since its quota was last looked at, and what own waits may have lost of that.
    quota: Window,
    quota_regret: Regret,
    /// Whether its waits are short for the sake of its quota alone.
    is_in_quota: bool,
    /// Since when it lacks PEs.
    lacks_pes: Option<Time>,
    backoffs: Backoffs,
    judgement: Judgement,
    /// The share that it loses without turns, if turns are better.
    offer: Option<f64>,
    /// The loss by short waits at their end, and the loss by own waits that samples have shown since.
    short_seen: f64,
    own_seen: f64,
    /// What was lost for lack of samples, in CPU time.
    unsampled: Regret,
}

impl Process {
    /// Creates the state of a process at its first reading.
    pub fn new(reading: &ProcessReading, may: WaitChanges, costs: Switching) -> Process {
        let backoff = |[first, most]: [Duration; 2]| Backoff::new(first, most);
        Process {
            may,
            costs,
            state: State::Own,
            reason: "".into(),
            last: *reading,
            idle: Window::from(reading),
            regret: Regret::with_price(CHANGE),
            quota: Window::from(reading),
            quota_regret: Regret::with_price(CHANGE),
            is_in_quota: false,
            lacks_pes: None,
            backoffs: Backoffs {
                short: backoff(SHORT_AGAIN),
                own: backoff(OWN_AGAIN),
                turns: backoff(TURNS_AGAIN),
            },
            judgement: Judgement::default(),
            offer: None,
            short_seen: 1.0,
            own_seen: 0.0,
            unsampled: Regret::with_price(SAMPLES_OPEN),
        }
    }

    /// Takes note of what may be changed from now on.
    pub fn limit(&mut self, may: WaitChanges) {
        self.may = may;
        let is_permitted = match self.state {
            State::Own | State::Left => true,
            State::Short => may.spin,
            State::Turns => may.turns,
        };
        if !is_permitted {
            self.enter(State::Own, "".into());
        }
    }

    /// Takes in a reading. Returns whether other settings are wanted from now on.
    pub fn take(&mut self, reading: &ProcessReading, now: Time) -> bool {
        let times = reading.since(&self.last);
        self.last = *reading;
        if times.elapsed_s <= 0.0 {
            return false;
        }
        match self.state {
            State::Own => self.take_own(&times, now),
            State::Short => self.take_short(&times, now),
            State::Turns => self.take_turns(&times, now),
            State::Left => false,
        }
    }

    /// Takes in a reading of a time that says nothing, because its changes were undone.
    pub fn skip(&mut self, reading: &ProcessReading) {
        self.last = *reading;
        (self.idle, self.quota) = (Window::from(reading), Window::from(reading));
        self.judgement.from = None;
    }

    fn take_own(&mut self, times: &ProcessTimes, now: Time) -> bool {
        let loss = losses::of_own_waits(times);
        self.regret.take((loss - UNTRIED) * times.elapsed_s);
        let waits = self.waits();
        // Yielding is no loss, but it may spin in its own code, too.
        let may_spin = waits.contains(IdleWait::Fixed) && !waits.is_adaptable() || self.is_apart(now);
        if may_spin || !self.backoffs.short.is_over(now) {
            self.miss_samples(times);
        }
        if self.regret.is_none() && (!waits.contains(IdleWait::Yield) || self.backoffs.own.is_over(now)) {
            self.lacks_pes = None;
        }
        if self.saves_quota(waits, now) {
            return true;
        }
        if !self.regret.is_due() {
            return false;
        }
        if self.lacks_pes.is_none() {
            self.lacks_pes = Some(now);
            self.backoffs.own.fail(now);
        }
        if !waits.is_adaptable() || !self.may_be_short(now) {
            return false;
        }
        let (lost, waited) = (100.0 * loss, 100.0 * times.waiting_share());
        let why = format!("its threads waited for a PE for {waited:.0} % of their time");
        self.enter(State::Short, format!("{why}: spinning loses {lost:.0} % of its PE time").into());
        true
    }

    fn may_be_short(&self, now: Time) -> bool {
        self.backoffs.short.is_over(now) || self.own_seen > self.short_seen
    }

    /// Returns whether its waits are short from now on for the sake of its quota.
    fn saves_quota(&mut self, waits: IdleWaits, now: Time) -> bool {
        self.quota.take(&self.last);
        if !self.quota.is_period(&self.last) {
            return false;
        }
        let times = self.quota.until(&self.last);
        self.quota = Window::from(&self.last);
        let loss = losses::in_quota(&times);
        self.quota_regret.take((loss - UNTRIED) * times.elapsed_s);
        if !self.quota_regret.is_due() || !waits.contains(IdleWait::Adaptable) || !self.may_be_short(now) {
            return false;
        }
        self.backoffs.own.fail(now);
        let why = format!("{QUOTA_IS_SPENT}, and spinning may lose {:.0} % of it", 100.0 * loss);
        self.enter(State::Short, why.into());
        self.is_in_quota = true;
        true
    }

    fn take_short(&mut self, times: &ProcessTimes, now: Time) -> bool {
        self.miss_samples(times);
        self.idle.take(&self.last);
        if self.last.other_gangs > 0 && self.may.turns && self.offer.is_some() {
            self.enter(State::Turns, self.reason_for_turns().unwrap_or_default());
            return true;
        }
        let is_limited = self.last.quota_permille.is_some();
        if self.last.idle_ns.is_none() || is_limited && !self.idle.is_period(&self.last) {
            return false;
        }
        let window = self.idle.until(&self.last);
        self.idle = Window::from(&self.last);
        let Some(Short { short, own, own_in_quota }) = Short::of(&window, self.last.waits, &self.costs)
        else {
            return false;
        };
        self.is_in_quota = own < UNTRIED && own_in_quota.is_some();
        let is_calm = own < UNTRIED && own_in_quota.is_none();
        let own = own.max(own_in_quota.unwrap_or(0.0));
        // What was seen is better than what is expected.
        let own = if is_calm { own } else { own.max(self.own_seen) };
        self.regret.take((short - own) * window.elapsed_s);
        if !self.regret.is_due() || is_calm && !self.backoffs.own.is_over(now) {
            return false;
        }
        if !is_calm {
            self.backoffs.short.fail(now);
            (self.short_seen, self.own_seen) = (short, 0.0);
        }
        self.enter(State::Own, "".into());
        true
    }

    fn take_turns(&mut self, times: &ProcessTimes, now: Time) -> bool {
        if self.last.other_gangs > 0 {
            self.regret.reset();
            return false;
        }
        if self.waits().is_adaptable() {
            self.enter(State::Short, "no other program takes turns any more".into());
            return true;
        }
        self.regret.take((UNTRIED - losses::of_own_waits(times)) * times.elapsed_s);
        let is_over = self.regret.is_due() && self.backoffs.own.is_over(now);
        if is_over {
            self.enter(State::Own, "".into());
        }
        is_over
    }

    /// Adds what may be lost by blocks, and by spinning that only samples show. As long as any thread rests,
    /// the team waits by sleeping.
    fn miss_samples(&mut self, times: &ProcessTimes) {
        let wanted_s = f64::from(times.threads) * times.elapsed_s;
        let rest_s = (wanted_s - times.run_s - times.wait_s).max(0.0);
        let spinning = losses::of_own_waits(times) - rest_s / times.elapsed_s;
        self.unsampled.take((spinning.max(losses::by_blocks(times, &self.costs)) - UNTRIED) * times.run_s);
    }

    fn enter(&mut self, state: State, reason: Arc<str>) {
        (self.state, self.reason) = (state, reason);
        self.regret.reset();
        self.quota_regret.reset();
        (self.idle, self.quota) = (Window::from(&self.last), Window::from(&self.last));
        self.is_in_quota = false;
        self.judgement = Judgement::default();
        if state == State::Own {
            (self.lacks_pes, self.offer) = (None, None);
        }
    }

    /// How its idle threads wait, as far as that may be changed.
    fn waits(&self) -> IdleWaits {
        if self.may.spin { self.last.waits } else { self.last.waits.fixed() }
    }

    /// Somebody else decides from now on.
    pub fn leave_alone(&mut self) {
        self.enter(State::Left, "".into());
    }

    /// Returns whether samples can show that another state is better.
    pub fn is_to_be_judged(&self) -> bool {
        let may_be_better = match self.state {
            State::Own => self.lacks_pes.is_some(),
            State::Short => self.offer.is_none(),
            State::Turns => self.last.other_gangs > 0,
            State::Left => false,
        };
        self.may.turns && may_be_better
    }

    /// Takes in what samples have shown of its threads so far.
    pub fn judge(&mut self, samples: Samples, now: Time) {
        let Judgement { began, from, evidence } = &mut self.judgement;
        began.get_or_insert(now);
        let Some((before, reading)) = from else {
            // It is observed often from the first samples on, which may come late.
            if !samples.is_empty() {
                (*began, *from) = (Some(now), Some((samples, self.last)));
            }
            return;
        };
        let loss = samples.since(before, self.last.waits);
        if loss.samples < BATCH {
            return;
        }
        let total = loss.total(&self.last.since(reading), &self.costs);
        if self.state == State::Own && self.last.waits.is_adaptable() && self.may.spin {
            self.own_seen = loss.spinning;
            return;
        }
        *from = Some((samples, self.last));
        let more = match self.state {
            State::Own => loss.spinning - UNTRIED,
            State::Short | State::Left => total - UNTRIED,
            // Turns are no better, and cost something.
            State::Turns => total + UNTRIED - self.offer.unwrap_or_default(),
        };
        evidence.take(more);
        let is_shown = evidence.interval().is_some_and(|(low, _)| low > 0.0);
        let estimate = evidence.estimate();
        if is_shown || evidence.pairs() >= PAIRS_MAX {
            *evidence = Evidence::default();
        }
        if is_shown {
            self.change_by_samples(estimate + UNTRIED, now);
        }
    }

    /// Samples show that so large a share is lost, and that it need not be.
    fn change_by_samples(&mut self, lost: f64, now: Time) {
        let is_possible = self.backoffs.turns.is_over(now);
        match self.state {
            State::Own | State::Short if is_possible => {
                self.offer = Some(lost);
                if self.state == State::Own {
                    self.enter(State::Turns, self.reason_for_turns().unwrap_or_default());
                }
            }
            State::Turns => {
                self.backoffs.turns.fail(now);
                self.offer = None;
                let is_short = self.waits().is_adaptable();
                self.enter(if is_short { State::Short } else { State::Own }, "turns did not help".into());
            }
            State::Own | State::Short | State::Left => {}
        }
    }

    /// Forgets samples that were taken while its changes were undone.
    pub fn judge_anew(&mut self) {
        self.judgement.from = None;
    }

    /// Returns the time until the next observation, if samples are to be judged.
    pub fn judged_within(&self, now: Time) -> Option<Duration> {
        let [least, most] = JUDGED_EVERY;
        let within = |began: Option<Time>| Cadence::new(least, most, began.unwrap_or(now)).within(now);
        self.is_to_be_judged().then(|| within(self.judgement.began))
    }

    /// Returns whether it has lost enough for lack of samples that opening them is worth it.
    pub fn needs_samples(&self) -> bool {
        self.may.turns && (self.unsampled.is_due() || self.state == State::Short && self.last.other_gangs > 0)
    }

    /// Returns its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns whether its threads wait in another way than their own.
    pub fn is_changed(&self) -> bool {
        matches!(self.state, State::Short | State::Turns)
    }

    /// Returns whether its waits are changed because other threads want its PEs.
    pub fn is_changed_for_others(&self) -> bool {
        self.is_changed() && !self.is_in_quota
    }

    /// Returns whether no two of its threads should share a PE: they yield to each other in vain.
    pub fn is_apart(&self, now: Time) -> bool {
        let lacks_for = self.lacks_pes.map_or(Duration::ZERO, |since| now.since(since));
        let has_all_pes = matches!(self.state, State::Own | State::Short);
        let yields = has_all_pes && self.waits().contains(IdleWait::Yield);
        self.may.turns && yields && lacks_for >= APART_AFTER
    }

    /// Returns the settings that it should have, with the reasons.
    pub fn settings(&self) -> Vec<(Setting, Arc<str>)> {
        match self.state {
            State::Own | State::Left => Vec::new(),
            State::Turns => vec![(Setting::InTurns, self.reason.clone())],
            State::Short => {
                let offer = self.reason_for_turns().filter(|_| self.may.turns);
                let offer = offer.map(|reason| (Setting::MayTakeTurns, reason));
                [(Setting::SpinCount(self.costs.spins_per_block), self.reason.clone())]
                    .into_iter()
                    .chain(offer)
                    .collect()
            }
        }
    }

    fn reason_for_turns(&self) -> Option<Arc<str>> {
        let lost = 100.0 * self.offer?;
        let how = match self.state {
            State::Short => "spends on short waits",
            State::Own | State::Turns | State::Left => "spins, while its threads wait for PEs,",
        };
        Some(format!("it {how} {lost:.0} % of its CPU time").into())
    }
}
