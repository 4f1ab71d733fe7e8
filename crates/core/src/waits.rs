//! How long the idle threads of a process spin before they sleep.
//!
//! Problem: whoever waits for work can spin, which answers at once but takes a PE, or sleep, which costs a
//! block and a wake-up (some microseconds). Runtime libraries spin for milliseconds. That is right as long as
//! nobody else needs the PE; where several programs share a machine, threads spin on the PEs that those need
//! for whom they wait, and everything takes ten times as long.
//!
//! Approach: as long as the threads of a process are held up (they want a PE but wait for it), its idle
//! threads spin no longer than a block costs: whatever comes, that takes at most twice the time of the best
//! choice (Karlin, Li, Manasse, Owicki, "Empirical studies of competitive spinning for a shared-memory
//! multiprocessor", SOSP'91). When they have not been held up for a while, the library's own choice holds
//! again; each relapse doubles that while ([`CALM_MIN`] to [`CALM_MAX`]), so that it does not go to and fro.
//! It is the spin-then-notify of "parallelism-aware scheduling", section 3.2, for programs that know nothing
//! of it. That is done in two steps: who is still held up while its threads spin for a few blocks' time
//! ([`SHORT_SPIN_COUNT`]) spins for no longer than one ([`SHORTEST_SPIN_COUNT`]), as whoever needs its PE is
//! there at once. One that was held up by a disturbance stays with the first, which costs a lone program half
//! as much.
//!
//! Some programs spin in their own code, too, or in a library whose waits cannot be changed. Where the
//! threads of a process are held up and still spin ([`SPINNING_MIN`] by sampled code), it takes turns
//! with the others of its kind ([`Setting::InTurns`]): as a whole, so that who waits and who is waited
//! for have PEs at the same time (gang scheduling: Ousterhout, "Scheduling techniques for concurrent
//! systems", ICDCS'82). Its library's own choice holds again then: short waits make the rest spin the
//! more. A program that is the only one keeps short waits: it may be held up by itself, as one with two
//! libraries that have threads of their own.
//!
//! Short waits cost blocks and wake-ups. A program that waits every few microseconds spends its time in
//! these ([`WASTED_MIN`] by samples, and its [`Timeslices`] are short), while in turns its threads would have
//! PEs at the same time and hardly wait. Such a program may take turns ([`Setting::MayTakeTurns`]): as soon
//! as another one does, or may, too, it does so with its library's own choice; until then its waits stay
//! short.
//!
//! Turns help only if all who contend take them. Where the share of spinning does not fall
//! ([`TURNS_HELP_BELOW`]), short waits come back for a while, unless it hardly worked with these.
//!
//! Short waits help only if other threads use the PEs that waiting threads leave. If something takes a PE for
//! a moment now and then, threads are delayed although PEs are idle ([`IDLE_FROM`]), and a program with short
//! loops takes several times as long with short waits as with the library's own choice. Then the library's
//! own choice holds again, and short waits are suspended, four times as long with each such case
//! ([`SUSPENDED_MIN`] to [`CALM_MAX`]): each trial takes a tenth of a second, in which the program does a
//! third of its work.
//!
//! LLVM's OpenMP lets its idle threads give their PE away while they spin, and loses by turns. So those waits
//! do not count there, only what the program spins in code of its own. Two of its threads on one PE give it
//! to each other in vain, and the system leaves them there for seconds; so while such a program is held up,
//! its threads are kept apart ([`Waits::apart`]).
//!
//! Limits: who is held up without having idle threads (more working threads than PEs) gains nothing.

mod calm;
mod found;
mod idle;
mod samples;
mod timeslices;

use self::calm::Calm;
use self::found::Found;
pub use self::idle::IDLE_FROM;
use self::idle::SinceIdle;
pub use self::samples::Samples;
use self::samples::Shares;
pub use self::timeslices::Timeslices;
use crate::ids::ThreadId;
use crate::observe::ProcessDelay;
use crate::plan::{Outcome, OutcomeKind, Placement, Setting, SettingKind, WantedSetting};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Turns of its loop that an idle thread spins while its process is held up: some 5 to 10 µs on the
/// processors of the last years (a turn is one PAUSE, 40 to 140 cycles), two or three times what a block
/// costs.
pub const SHORT_SPIN_COUNT: u64 = 200;

/// The same while it is held up all the same: 1 to 3 µs.
pub const SHORTEST_SPIN_COUNT: u64 = 50;

/// Share of the time in which threads want a PE but wait for it, from which on they count as held up.
pub const DELAYED_FROM: f64 = 0.1;

/// For how long a thread that wants a PE must have waited for one, in the mean, before anything is done: what
/// starts beside them, corewise too, takes PEs for some milliseconds.
pub const WAITED_MIN: Duration = Duration::from_millis(6);

/// The same where a single look says so. A lone program is looked at every 50 ms; a command that it had
/// started made its threads wait for 8 to 9 ms within one, and by the next it was over. *Measured*.
pub const WAITED_AT_ONCE_MIN: Duration = Duration::from_millis(12);

/// The share below which they count as not held up, over [`CALM_MIN`]. A thread that sleeps often waits
/// briefly at each wake-up, even for an idle PE: with short waits this was up to 0.03 of the time in programs
/// that ran alone, and 0.3 or more in programs that shared the PEs.
pub const CALM_BELOW: f64 = 0.06;

/// For how long they must not be held up at least before the library's own choice holds again.
pub const CALM_MIN: Duration = Duration::from_millis(100);
/// And at most, after many relapses.
pub const CALM_MAX: Duration = Duration::from_secs(10);

/// For how long short waits that did not help are suspended at first.
pub const SUSPENDED_MIN: Duration = Duration::from_millis(500);

/// Share of a held-up process's samples in which it spins, from which on it takes turns.
pub const SPINNING_MIN: f64 = 0.3;

/// The same where its library's waits are short: those still spin a little, and are better than turns.
pub const SPINNING_SHORTLY_MIN: f64 = 0.5;

/// Share of the samples of a process whose waits are short in which it spins or is in the kernel, from which
/// on it may take turns. *Measured*, two copies at once on two PEs: programs that turns made 1.3 and 1.7
/// times as fast as short waits wasted 0.19 to 0.40 and 0.42 to 0.62; one that they made 7 % slower wasted
/// up to 0.07, one as fast as before up to 0.10. Of 60 samples, fewer than 1 in 1,000 say so of one that
/// wastes a tenth.
pub const WASTED_MIN: f64 = 0.25;

/// The same while others take turns, or may: who does not follow them disturbs their turns.
pub const WASTED_BESIDE_GANGS_MIN: f64 = 0.1;

/// For how long who takes turns must not be held up: in its own turn nobody is.
pub const TURNS_CALM_MIN: Duration = Duration::from_secs(1);

/// Turns help if they bring that share below this part of what it was, or chance may have kept it above.
pub const TURNS_HELP_BELOW: f64 = 0.75;

/// For how long turns that did not help are not tried again.
pub const TURNS_TRIED_AGAIN_AFTER: Duration = Duration::from_secs(20);

/// Over which time that share is taken at least; nothing from before it was held up, or its waits became
/// short, counts.
pub const JUDGED_OVER: Duration = Duration::from_millis(300);

/// The same of one that takes turns: every gang had several. As long before, the others find out that they
/// spin; until they take turns, too, nobody's help.
pub const JUDGED_IN_TURNS_OVER: Duration = Duration::from_secs(1);

/// And over how many samples. (Of 40, fewer than 1 in 1,000 say so of one that spins for a tenth of its
/// time.)
pub const JUDGED_BY: u64 = 40;
/// Where so large a share of the samples says so, this time and so many of them do. (Of 16, fewer than 1 in
/// 1,000 say so of one that spins for a third of its time.)
pub const CLEAR_FROM: f64 = 0.75;
/// The same of what short waits waste. (Of 16, fewer than 1 in 1,000 say so of one that wastes a tenth.)
pub const CLEARLY_WASTED_FROM: f64 = 0.4;
/// See [`CLEAR_FROM`].
pub const CLEAR_OVER: Duration = Duration::from_millis(80);
/// See [`CLEAR_FROM`].
pub const CLEAR_BY: u64 = 16;

/// For so long it is looked often whether a process spins.
const JUDGED_OFTEN_FOR: Duration = Duration::from_secs(2);

/// What may be done about waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cures {
    /// Idle threads may spin for a shorter time.
    pub spin: bool,
    /// Programs that spin may take turns.
    pub turns: bool,
}

impl Cures {
    /// Whether anything may be done.
    pub fn any(self) -> bool {
        self.spin || self.turns
    }
}

/// What is known of the waits of every process that is, or was, held up.
#[derive(Debug, Default)]
pub struct Waits {
    cures: Cures,
    processes: HashMap<ThreadId, Process>,
}

/// How the waits of one process are now.
#[derive(Debug)]
struct Process {
    state: State,
    /// Whether its library's waits can be changed.
    adaptable: bool,
    /// Whether they need no change.
    gives_way: bool,
    /// How many others take turns, or may.
    other_gangs: u32,
    /// Since it was held up although they need none: for how long it has been calm.
    apart: Option<Calm>,
    /// Why turns may help it.
    found: Found,
    /// Since when it is held up, if its waits are its own, and for how long a thread has waited since then.
    delayed_since: Option<Time>,
    waited: Duration,
    /// How long it must be calm before its own choice holds again.
    calm: Duration,
    /// When its own choice began to hold again.
    calm_from: Option<Time>,
    /// Until when short waits are suspended because they did not help, and for how long in all.
    suspended: Option<(Time, Duration)>,
    /// From when on it is judged now, its threads' samples by then, and their timeslices since then.
    judged_from: Option<(Time, HashMap<ThreadId, Samples>)>,
    timeslices: Timeslices,
    /// The time since it was last told how idle its PEs were.
    since_idle: SinceIdle,
}

#[derive(Debug)]
enum State {
    /// The library's own choice.
    Own,
    /// A cure, since then; and how long the process has been calm.
    Cured { cure: Setting, since: Time, calm: Calm, reason: Arc<str> },
    /// The library's own choice for good: somebody else has decided.
    Left,
}

impl Waits {
    /// With these cures.
    pub fn new(cures: Cures) -> Self {
        Self { cures, processes: HashMap::new() }
    }

    /// Takes in for how long a process was held up. Whether something else is wanted now.
    pub fn take(&mut self, delay: &ProcessDelay, now: Time) -> bool {
        let (share, cures) = (delay.share(), self.cures);
        let is_new = !self.processes.contains_key(&delay.leader);
        let process = self.processes.entry(delay.leader).or_insert_with(Process::new);
        (process.adaptable, process.gives_way) = (delay.adaptable, delay.gives_way);
        process.note_others(delay.other_gangs, now);
        process.timeslices.take(delay);
        // Whoever spins all the same is not held up by others alone.
        let leaves_pes_idle =
            process.since_idle.leaves_pes_idle(delay) && !matches!(process.found, Found::Spins { .. });
        if let Some(count) = delay.spin_count.filter(|_| is_new) {
            process.state = State::Cured {
                cure: Setting::SpinCount(count),
                since: now,
                calm: Calm::default(),
                reason: "it was held up before all was watched".into(),
            };
            return true;
        }
        if process.follow_others(cures, now) {
            return true;
        }
        process.apart.take_if(|calm| !delay.gives_way || calm.take(delay) >= TURNS_CALM_MIN);
        match &mut process.state {
            State::Own if share >= DELAYED_FROM => {
                if !process.has_waited_enough(delay, now) {
                    return false;
                }
                if process.gives_way && cures.turns {
                    process.apart.get_or_insert_default();
                }
                let Some(cure) = process.cure(cures, now) else { return false };
                process.calm = process.calm_after_relapse(now);
                let reason = format!("its threads waited for a PE for {:.0} % of their time", 100.0 * share);
                process.state =
                    State::Cured { cure, since: now, calm: Calm::default(), reason: reason.into() };
                process.waited = Duration::ZERO;
                true
            }
            State::Own => {
                if share < CALM_BELOW {
                    process.be_held_up_less(Duration::from_nanos(delay.elapsed_ns));
                }
                false
            }
            State::Left => false,
            State::Cured { cure: Setting::SpinCount(_), .. } if leaves_pes_idle => {
                process.suspend(now);
                true
            }
            State::Cured { calm, cure, reason, .. } => {
                let least = if *cure == Setting::InTurns { TURNS_CALM_MIN } else { CALM_MIN };
                if calm.take(delay) >= process.calm.max(least) {
                    (process.state, process.calm_from) = (State::Own, Some(now));
                    process.be_held_up_no_longer();
                    return true;
                }
                let is_too_long = is_too_long(*cure, delay, &mut process.waited);
                if is_too_long {
                    *cure = Setting::SpinCount(SHORTEST_SPIN_COUNT);
                    let still = format!("{:.0} % while its waits were short", 100.0 * share);
                    *reason = format!("its threads waited for a PE for {still}").into();
                }
                is_too_long
            }
        }
    }

    /// Takes in what became of a change.
    pub fn take_outcome(&mut self, outcome: &Outcome) {
        match (outcome.change.setting_kind(), &outcome.result) {
            // It is another program now, or has unloaded the library: all begins anew.
            (Some(SettingKind::SpinCount), OutcomeKind::Gone) => self.forget(outcome.thread),
            // Somebody else decides from now on.
            (Some(SettingKind::SpinCount), OutcomeKind::NotOurs) => {
                if let Some(process) = self.processes.get_mut(&outcome.thread) {
                    process.state = State::Left;
                }
            }
            (
                Some(SettingKind::SpinCount),
                OutcomeKind::Done | OutcomeKind::Refused(_) | OutcomeKind::Unsupported,
            )
            | (Some(SettingKind::Turns | SettingKind::Weight) | None, _) => {}
        }
    }

    /// Takes in what samples have told of a process's threads, and judges whether it spins. (By their number,
    /// not by thread: an idle one has none, whatever it did last.)
    pub fn judge(&mut self, leader: ThreadId, samples: HashMap<ThreadId, Samples>, now: Time) {
        let Some(process) = self.processes.get_mut(&leader) else { return };
        let Some(since) = process.to_judge_since() else { return };
        let Some((from, before)) = process.judged_from.take_if(|(from, _)| *from >= since) else {
            process.judge_from(now, samples);
            return;
        };
        let (gives_way, blocks) = (process.gives_way, process.timeslices.may_tell_of_blocks());
        let shares = Shares::between(&before, &samples, gives_way, blocks);
        let (over, is_enough) = (now.since(from), shares.all >= CLEAR_BY && !process.takes_turns());
        let is_clear = process.is_clear(&shares) && over >= CLEAR_OVER && is_enough;
        if !is_clear && (over < process.judged_over() || shares.all < JUDGED_BY) {
            process.judged_from = Some((from, before));
            return;
        }
        process.judge_from(now, samples);
        process.find(shares, self.cures.turns, now);
    }

    /// The processes of which it is to be judged whether they spin.
    pub fn to_judge(&self) -> Vec<ThreadId> {
        let held_up = self.processes.iter().filter(|(_, process)| process.to_judge_since().is_some());
        held_up.map(|(&leader, _)| leader).collect()
    }

    /// The processes that take turns.
    pub fn in_turns(&self) -> impl Iterator<Item = ThreadId> {
        self.processes.iter().filter(|(_, process)| process.takes_turns()).map(|(&leader, _)| leader)
    }

    /// The held-up processes whose idle threads give way: no two of their threads should share a PE.
    pub fn apart(&self) -> impl Iterator<Item = ThreadId> {
        let apart = |process: &Process| process.apart.is_some() && !process.takes_turns();
        self.processes.iter().filter(move |(_, process)| apart(process)).map(|(&leader, _)| leader)
    }

    /// Whether the waits of any process are changed, or it takes turns.
    pub fn is_any_cured(&self) -> bool {
        self.processes.values().any(|process| matches!(process.state, State::Cured { .. }))
    }

    /// What samples have told so far says nothing of how processes are now.
    pub fn judge_anew(&mut self) {
        self.processes.values_mut().for_each(|process| process.judged_from = None);
    }

    /// Whether one of them is to be judged as soon as there are samples of it.
    pub fn is_judged_soon(&self, now: Time) -> bool {
        let soon = |since: Time| now < since + JUDGED_OFTEN_FOR;
        let mut disturbed = self.processes.values().filter(|process| !process.gives_way);
        disturbed.any(|process| process.to_judge_since().is_some_and(soon))
    }

    /// Adds what is wanted.
    pub fn add_to(&self, wanted: &mut Placement) {
        // That is decided here, whatever the policy. What it wanted before is what is in force now.
        wanted.settings.retain(|(_, kind), _| !KINDS.contains(kind));
        for (&leader, process) in &self.processes {
            if let State::Cured { cure, reason, .. } = &process.state {
                let setting = WantedSetting { setting: *cure, reason: reason.clone() };
                wanted.settings.insert((leader, cure.kind()), setting);
                if let Some(reason) = process.may_take_turns(self.cures) {
                    let setting = WantedSetting { setting: Setting::MayTakeTurns, reason: reason.into() };
                    wanted.settings.insert((leader, SettingKind::Turns), setting);
                }
            }
        }
    }

    /// A thread has ended.
    pub fn forget(&mut self, thread: ThreadId) {
        self.processes.remove(&thread);
    }
}

/// Whether threads that spin shortly have waited for PEs for long all the same, with what they waited now.
fn is_too_long(cure: Setting, delay: &ProcessDelay, waited: &mut Duration) -> bool {
    if cure != Setting::SpinCount(SHORT_SPIN_COUNT) || delay.share() < DELAYED_FROM {
        return false;
    }
    *waited += delay.waited();
    *waited >= WAITED_MIN
}

/// The settings that are decided here.
const KINDS: [SettingKind; 2] = [SettingKind::SpinCount, SettingKind::Turns];

impl Process {
    fn new() -> Self {
        Self {
            state: State::Own,
            adaptable: false,
            gives_way: false,
            apart: None,
            other_gangs: 0,
            found: Found::Nothing,
            delayed_since: None,
            waited: Duration::ZERO,
            calm: CALM_MIN,
            calm_from: None,
            suspended: None,
            judged_from: None,
            timeslices: Timeslices::default(),
            since_idle: SinceIdle::default(),
        }
    }

    /// Since when it is as it is, if it is to be judged whether it spins: not if it is not held up, or
    /// nothing can be done.
    fn to_judge_since(&self) -> Option<Time> {
        match (&self.state, &self.found) {
            // Its spinning is its library's, which does not matter while nobody needs the PEs.
            (State::Own, Found::Nothing) if self.adaptable && self.suspended.is_some() => None,
            (State::Own, Found::Nothing | Found::Spins { .. }) => self.delayed_since,
            (State::Cured { cure: Setting::InTurns, since, .. }, _) => Some(*since + JUDGED_IN_TURNS_OVER),
            (State::Cured { since, .. }, _) => Some(*since),
            (State::Own, Found::Blocks { .. } | Found::InVain { .. }) | (State::Left, _) => None,
        }
    }

    /// Takes in a look at which it was held up. Whether that is enough to act.
    fn has_waited_enough(&mut self, delay: &ProcessDelay, now: Time) -> bool {
        let since = *self.delayed_since.get_or_insert(now);
        // No more than that, for it takes as long a calm to be forgotten.
        self.waited = (self.waited + delay.waited()).min(WAITED_AT_ONCE_MIN);
        self.waited >= if since == now { WAITED_AT_ONCE_MIN } else { WAITED_MIN }
    }

    /// It was not held up for so long. Between two looks, threads that share PEs can have them by chance; so
    /// what they waited counts until they have had them for as long.
    fn be_held_up_less(&mut self, calm: Duration) {
        self.waited = self.waited.saturating_sub(calm);
        if self.waited.is_zero() {
            self.be_held_up_no_longer();
        }
    }

    fn be_held_up_no_longer(&mut self) {
        (self.delayed_since, self.waited) = (None, Duration::ZERO);
    }

    /// How long it must be calm if it is held up again.
    fn calm_after_relapse(&self, now: Time) -> Duration {
        match self.calm_from {
            Some(from) if now.since(from) < 10 * self.calm => (2 * self.calm).min(CALM_MAX),
            Some(_) | None => CALM_MIN,
        }
    }

    /// The library's own choice holds again, and short waits are suspended, because they do not help.
    fn suspend(&mut self, now: Time) {
        let wait = match self.suspended {
            Some((until, last)) if now.since(until) < 10 * last => (4 * last).min(CALM_MAX),
            Some(_) | None => SUSPENDED_MIN,
        };
        self.suspended = Some((now + wait, wait));
        self.state = State::Own;
        self.be_held_up_no_longer();
    }

    fn is_suspended(&self, now: Time) -> bool {
        self.suspended.is_some_and(|(until, _)| now < until)
    }

    fn takes_turns(&self) -> bool {
        matches!(self.state, State::Cured { cure: Setting::InTurns, .. })
    }

    fn judged_over(&self) -> Duration {
        if self.takes_turns() { JUDGED_IN_TURNS_OVER } else { JUDGED_OVER }
    }

    /// What is to be done now that it is held up.
    fn cure(&mut self, cures: Cures, now: Time) -> Option<Setting> {
        if matches!(self.found, Found::InVain { until, .. } if until <= now) {
            self.found = Found::Nothing;
        }
        let may_be_short = self.adaptable && cures.spin && !self.is_suspended(now);
        match self.found {
            Found::InVain { short_waits: false, .. } => None,
            Found::Spins { share } if !cures.turns && share >= CLEAR_FROM => None,
            Found::Spins { .. } if !may_be_short => cures.turns.then_some(Setting::InTurns),
            Found::Nothing | Found::Spins { .. } | Found::Blocks { .. } | Found::InVain { .. } => {
                may_be_short.then_some(Setting::SpinCount(SHORT_SPIN_COUNT))
            }
        }
    }

    /// Why it may take turns although its waits are short, if it may.
    fn may_take_turns(&self, cures: Cures) -> Option<String> {
        match (&self.state, &self.found) {
            (State::Cured { cure: Setting::SpinCount(_), .. }, found) if cures.turns => found.reason(),
            _ => None,
        }
    }

    /// What is told from now on is judged next.
    fn judge_from(&mut self, now: Time, samples: HashMap<ThreadId, Samples>) {
        (self.judged_from, self.timeslices) = (Some((now, samples)), Timeslices::default());
    }

    /// With how many it takes turns. When one more does, or one less, it is to be judged anew.
    fn note_others(&mut self, other_gangs: u32, now: Time) {
        if let State::Cured { cure: Setting::InTurns, since, .. } = &mut self.state
            && self.other_gangs != other_gangs
        {
            *since = now;
        }
        self.other_gangs = other_gangs;
    }

    /// Who may take turns does so when others do, and has short waits again when they do no more. Whether
    /// that changes something now.
    fn follow_others(&mut self, cures: Cures, now: Time) -> bool {
        let may_be_short = self.adaptable && cures.spin;
        let (State::Cured { cure, since, calm, .. }, Found::Blocks { .. } | Found::Spins { .. }) =
            (&mut self.state, &self.found)
        else {
            return false;
        };
        let follows = match (*cure, self.other_gangs > 0) {
            (Setting::SpinCount(_), true) if cures.turns => Setting::InTurns,
            (Setting::InTurns, false) if may_be_short => Setting::SpinCount(SHORTEST_SPIN_COUNT),
            _ => return false,
        };
        (*cure, *since, *calm) = (follows, now, Calm::default());
        true
    }

    /// Whether few samples that tell this are enough.
    fn is_clear(&self, shares: &Shares) -> bool {
        let is_short = matches!(self.state, State::Cured { .. });
        shares.spinning >= CLEAR_FROM || is_short && shares.wasted >= CLEARLY_WASTED_FROM
    }

    /// What follows from what its samples tell.
    fn find(&mut self, shares: Shares, may_take_turns: bool, now: Time) {
        let Shares { spinning, wasted, .. } = shares;
        if self.takes_turns() {
            let (share, before, short_waits) = match self.found {
                Found::Spins { share } => (spinning, share, share < CLEAR_FROM),
                Found::Blocks { share } => (wasted, share, true),
                Found::Nothing | Found::InVain { .. } => (spinning, 1.0, false),
            };
            if shares.is_at_least(share, TURNS_HELP_BELOW * before) {
                self.found = Found::InVain { until: now + TURNS_TRIED_AGAIN_AFTER, short_waits };
                self.state = State::Own;
                self.be_held_up_no_longer();
            }
            return;
        }
        if matches!(self.found, Found::InVain { until, .. } if now < until) {
            return;
        }
        let is_short = matches!(self.state, State::Cured { .. });
        if spinning < if is_short { SPINNING_SHORTLY_MIN } else { SPINNING_MIN } {
            let least = if self.other_gangs > 0 { WASTED_BESIDE_GANGS_MIN } else { WASTED_MIN };
            if is_short && wasted >= least {
                // Who only follows others has less to gain by turns, and is to give them up only if it loses.
                self.found = Found::Blocks { share: wasted.max(WASTED_MIN) };
            }
            return;
        }
        self.found = Found::Spins { share: spinning };
        self.state = match std::mem::replace(&mut self.state, State::Own) {
            // Its library's waits may contend with the others: short ones are right until others take turns.
            short @ State::Cured { .. } if may_take_turns || spinning < CLEAR_FROM => short,
            _ if may_take_turns => {
                let reason = self.found.reason().unwrap_or_default().into();
                State::Cured { cure: Setting::InTurns, since: now, calm: Calm::default(), reason }
            }
            _ => State::Own,
        };
    }
}

#[cfg(test)]
mod tests;
