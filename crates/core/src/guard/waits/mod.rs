//! The guard of waits: epochs common to all runs tell whether changed waits and turns help.
//!
//! Problem. [`crate::waits`] changes how threads wait by rules about delay and spinning.
//! Where a rule is wrong, nobody notices that programs are slower. Switching the changes of *one* run on and
//! off shows nothing: a program that alone returns to spinning takes PEs from the others, so it measures a
//! loss by the changes where all programs gain.
//!
//! Approach. In an epoch without the changes all runs of a user let waits and turns be as they are
//! without corewise. No run leads:
//!
//! 1. *Common epochs.* Each second of the machine's clock may hold a pair of epochs, one with the changes and
//!    one without, in an order that follows from the number of the second ([`pair`]). A run that wants a pair
//!    writes its second on a board that all runs read ([`Board`]), more than a second ahead; a second holds a
//!    pair if any living run has asked for it.
//! 2. *Mean over all runs.* Each run writes down the logarithm of the ratio of its progress in both epochs.
//!    The number of a pair is the mean over the runs, so all of them compute the same from the same numbers.
//!    The numbers go into the test that stays valid however often it is evaluated ([`crate::evidence`]).
//! 3. *What hurts is taken back*: where the interval lies below 0, that run writes the verdict on the board,
//!    and all runs follow the newest one. It holds for a time that doubles with each repetition. Meanwhile
//!    pairs go on; if the changes help after all, or a run's progress falls below what it was with them, they
//!    are in force again.
//! 4. *What helps, or is unclear, stays* with the rules, and is tried again ever more rarely. Unlike for a
//!    placement, the doubt favours the change: programs that spin against each other may take 70 times as
//!    long.
//!
//! Cost. What an epoch costs is known from its result. A run asks for a pair only when that and what all
//! earlier pairs have cost is less than [`COST_MAX`] of the time in which it had anything changed. So helpful
//! changes are tried rarely and for 24 ms only, harmful ones every second. A program that runs for some
//! seconds only sees no epoch.
//!
//! Meter. Heartbeats, or else CPU time in which a thread did not spin, by clock samples. Instructions count
//! spinning as progress; points of code that are passed at a rate that can be counted hardly exist in
//! programs that wait every 50 µs, and those in runtime libraries are passed by waiting.
//!
//! Source. Epochs in random order: see [`super`]; the common clock as in our turns; that each run must count
//! the others' losses: externalities (Pigou, "The economics of welfare", 1920). The combination is ours.
//!
//! Limits. All changes of all runs are judged as one. When a run comes or goes, all begins anew: where many
//! short programs come and go, nothing is ever judged. Runs of other users, and programs without corewise, do
//! not count. Spinning that samples do not recognise counts as progress.

mod findings;
mod pair;

pub use findings::{WaitsFindings, WaitsState};

use super::COST_MAX;
use super::findings::Gain;
use super::meter::{Look, Rates, Work};
use crate::backoff::Backoff;
use crate::board::{Agreed, Ask, Board, Note};
use crate::evidence::{Evidence, PAIRS_MAX};
use crate::ids::AppId;
use crate::observe::{CounterReading, ProgressSource, ThreadReading};
use crate::plan::TURN;
use crate::time::Time;
use pair::{MOMENT, Pair, SETTLES};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const SECOND_NS: u64 = 1_000_000_000;

/// The length of an epoch without the changes, in milliseconds. *Derived*: eight time slices of 3 ms, so that
/// four threads on a PE run twice. Where processes take turns, an epoch is as long as a turn.
const EPOCH_MS: u64 = 24;
const TURN_MS: u64 = TURN.as_millis() as u64;

/// More gangs than any run has: a bound for what a hostile board may say.
const GANGS_MAX: u32 = 1 << 16;

/// The longest epoch with the changes: a round of turns of so many gangs. A pair must fit into a second.
const ROUND_MAX_MS: u64 = 600;

/// What switching costs: a pair costs so much at least, in seconds. *Chosen*: some tens of writes
/// into programs and of calls that set nice levels.
const SWITCHING_S: f64 = 0.002;

/// A single pair of one run counts as this much, as a logarithm, at most: a factor of four, so that of two
/// runs none outvotes the other by one extreme pair.
pub(crate) const LOG_MAX: f64 = 1.4;

/// So many pairs in a row that show a gain end that the changes are taken back: the doubt favours them. By
/// chance that happens once in 2⁵.
const BETTER_PAIRS: u32 = 5;

/// How long a verdict holds, at first and at most. *Derived*: a harmful change that is tried again after a
/// minute costs some pairs of 24 ms, 0.2 % of it.
const HOLDS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(3_600)];

/// While the changes are taken back: time between two looks, and how far, as a logarithm, progress must be
/// below that with them in two looks. *Chosen*: by a quarter, more than phases of a program differ, and less
/// than the factors of 2 to 70 that spinning costs.
const LOOK: Duration = Duration::from_millis(250);
const FALLEN: f64 = 0.3;

/// Results that stay on the board: those of the last second and of runs that read it late.
const RESULTS_KEPT: usize = 4;

/// The reason for undoing a change for an epoch.
pub const EPOCH: &str = "an epoch without changed waits in all runs, to measure what they gain";

/// The reason for undoing a change because changes hurt.
pub const TAKEN_BACK: &str = "the changes of all runs together make them slower";

/// What is known of the run at an instant.
#[derive(Debug, Clone, Copy)]
pub struct Present<'a> {
    /// Its time.
    pub now: Time,
    /// Its threads.
    pub threads: &'a [ThreadReading],
    /// Whether its rules want anything changed.
    pub changes: bool,
    /// How many of its processes are to take turns.
    pub gangs: u32,
}

/// The guard of waits of one run.
#[derive(Debug, Default)]
pub struct WaitsGuard {
    /// The common clock at the run's time 0.
    ahead_ns: u64,
    /// The second in whose middle plans are made next; 0 before the first.
    plans_in: u64,
    /// The runs whose notes were on the board.
    members: BTreeSet<u32>,
    /// The present pair, and the next one.
    pairs: VecDeque<Pair>,
    shown: Shown,
    costs: Costs,
    fall: Fall,
    /// Until when a verdict holds, by the common clock: longer with each one that follows.
    holds: Option<Backoff>,
    /// Since when the present has not been disturbed by an epoch.
    undisturbed_from: Time,
    now: Time,
    began: Option<Time>,
    takes_part: bool,
    /// The applications whose programs have reported progress.
    reporting: BTreeSet<AppId>,
    note: Note,
    findings: WaitsFindings,
}

/// What pairs have shown since the last verdict.
#[derive(Debug, Default)]
struct Shown {
    evidence: Evidence,
    /// The number of the last pair, and how many in a row have shown that the changes help.
    last: Option<f64>,
    better: u32,
}

impl Shown {
    fn take(&mut self, number: f64) {
        self.evidence.take(number);
        self.last = Some(number);
        self.better = if number > 0.0 { self.better + 1 } else { 0 };
    }
}

/// What pairs cost, in seconds.
#[derive(Debug, Default)]
struct Costs {
    /// The time with changes, and what pairs have cost.
    in_force_s: f64,
    spent_s: f64,
    /// What was added to the cost for pairs that this run has asked for, by their seconds.
    reserved: BTreeMap<u64, f64>,
}

impl Costs {
    fn reserve(&mut self, second: u64, expected_s: f64) {
        self.reserved.insert(second, expected_s);
        self.spent_s += expected_s;
    }

    /// The pair of this second has cost so much.
    fn pay(&mut self, second: u64, cost_s: f64) {
        let reserved_s = self.reserved.remove(&second).unwrap_or(0.0);
        self.spent_s = (self.spent_s + cost_s - reserved_s).max(0.0);
    }

    fn can_afford(&self, expected_s: f64) -> bool {
        self.spent_s + expected_s <= COST_MAX * self.in_force_s
    }
}

/// Whether a run gets less done than with the changes, while these are taken back.
#[derive(Debug, Default)]
struct Fall {
    /// Progress with the changes.
    with: Rates,
    /// The look that a fall is measured from, and looks in a row that showed one.
    last: Look,
    looks: u32,
}

impl Fall {
    /// Takes in a look. Returns whether the progress has fallen.
    fn take(&mut self, look: &Look) -> bool {
        let Some(level) = look.since(&self.last).log_over(&self.with) else { return false };
        self.looks = if level < -FALLEN { self.looks + 1 } else { 0 };
        self.looks > 1
    }
}

impl WaitsGuard {
    /// Returns whether the changes are off now.
    pub fn is_off(&self) -> bool {
        self.pairs.front().and_then(Pair::is_off).unwrap_or(self.note.verdict.is_off)
    }

    /// Returns why changes are undone now.
    pub fn reason(&self) -> &'static str {
        if self.note.verdict.is_off { TAKEN_BACK } else { EPOCH }
    }

    /// Returns whether what happened from then on says nothing about the rules.
    pub fn disturbs(&self, since: Time) -> bool {
        let is_amid_pair = self.pairs.front().is_some_and(|pair| pair.is_off().is_some());
        self.is_off() || is_amid_pair || since < self.undisturbed_from
    }

    /// Returns when the next look is due, in the run's time; `None` if there is nothing to do.
    pub fn due(&self) -> Option<Time> {
        // In the middle of each second the board is read and written for the next ones.
        let plans = self.plans_in * SECOND_NS + SECOND_NS / 2;
        let pair = self.pairs.front().and_then(Pair::due_ns);
        let common = self.takes_part.then(|| pair.map_or(plans, |pair| pair.min(plans)))?;
        let own = Time(common.saturating_sub(self.ahead_ns));
        let look = self.fall.last.at() + LOOK;
        Some(if self.note.verdict.is_off { own.min(look) } else { own })
    }

    /// Returns what the other runs are to know; `None` as long as this one has never changed anything.
    pub fn note(&self) -> Option<&Note> {
        self.began.map(|_| &self.note)
    }

    /// Returns the findings so far; `None` if nothing was ever changed.
    pub fn findings(&self) -> Option<&WaitsFindings> {
        self.began.map(|_| &self.findings)
    }

    /// Takes in the board and what is known of the run.
    pub fn take(&mut self, board: &Board, present: Present<'_>) {
        let board = &sound(board);
        let clock = board.clock.0;
        (self.now, self.ahead_ns) = (present.now, clock.saturating_sub(present.now.0));
        let look = look(present.now, present.threads, &mut self.reporting);
        self.findings.meter = look.source.or(self.findings.meter);
        (self.note.changes, self.note.gangs) = (present.changes, present.gangs);
        if present.changes {
            self.began.get_or_insert(present.now);
        }
        self.takes_part = present.changes
            || self.note.verdict.is_off
            || board.notes.iter().any(|(_, note)| note.changes || note.verdict.is_off);
        let is_amid_pair = self.take_epochs(clock, &look);
        if is_amid_pair || !self.note.verdict.is_off {
            self.fall.last = look;
        } else if self.fall.last.at() + LOOK <= look.at() + MOMENT {
            self.watch_for_a_fall(clock / SECOND_NS, &look);
            self.fall.last = look;
        }
        if self.plans_in * SECOND_NS + SECOND_NS / 2 <= clock + MOMENT.as_nanos() as u64 {
            let second = clock / SECOND_NS;
            self.plan(second, board);
            self.plans_in = second + 1;
        }
    }

    /// Takes in a look for the present pair. Returns whether there was one.
    fn take_epochs(&mut self, clock: u64, look: &Look) -> bool {
        let Some(pair) = self.pairs.front_mut() else { return false };
        pair.take(clock, look);
        if pair.is_off().is_some() {
            self.undisturbed_from = look.at() + SETTLES;
            return true;
        }
        let is_over = pair.due_ns().is_none();
        if is_over {
            self.end_pair();
        }
        is_over
    }

    /// Writes down what a pair has shown of this run.
    fn end_pair(&mut self) {
        let Some(pair) = self.pairs.pop_front() else { return };
        if self.findings.meter.is_none() {
            return;
        }
        let mut result = None;
        if let Some((with, without)) = pair.rates() {
            self.fall.with.approach(with, 1.0 / (1.0 + self.shown.evidence.pairs().min(9) as f64));
            // Without any work there is no result; others need not wait for one.
            let Some(log) = with.log_over(without) else { return };
            result = Some(log.clamp(-LOG_MAX, LOG_MAX));
        }
        self.note.results.push((pair.second(), result));
        let old = self.note.results.len().saturating_sub(RESULTS_KEPT);
        self.note.results.drain(..old);
    }

    /// In the middle of a second: takes in the pair of the last one, and plans those of the next.
    fn plan(&mut self, second: u64, board: &Board) {
        if self.note.changes && self.plans_in != 0 {
            self.costs.in_force_s += 1.0;
        }
        let members: BTreeSet<u32> = board.notes.iter().map(|(run, _)| *run).collect();
        if members != self.members {
            self.members = members;
            self.begin_anew(second);
        }
        let newest = board.notes.iter().map(|(_, note)| note.verdict).max_by_key(|agreed| agreed.second);
        if let Some(newest) = newest.filter(|newest| newest.second > self.note.verdict.second) {
            self.agree(newest, second);
        }
        self.take_results(second.saturating_sub(1), board);
        if self.note.verdict.is_off && !self.holds(second) {
            self.agree(Agreed { second, is_off: false }, second);
        }
        if self.takes_part && self.may_ask(second) {
            self.ask(second + 2);
        }
        let asks = board.notes.iter().map(|(_, note)| note).chain([&self.note]).flat_map(|note| &note.asks);
        let asked = asks.filter(|ask| ask.second == second + 1).map(|ask| ask.off_ms).max();
        if let Some(off_ms) = asked.filter(|_| self.takes_part) {
            let gangs = self.note.gangs + board.notes.iter().map(|(_, note)| note.gangs).sum::<u32>();
            let on_ms = (TURN_MS * u64::from(gangs)).min(ROUND_MAX_MS).max(off_ms);
            let [off, on] = [off_ms, on_ms].map(Duration::from_millis);
            self.pairs.push_back(Pair::new(second + 1, off, on));
            self.findings.off_seconds += off_ms as f64 / 1e3;
        }
    }

    /// Another set of runs, or another verdict: what was measured says nothing about it.
    fn begin_anew(&mut self, second: u64) {
        (self.shown.evidence, self.shown.last) = (Evidence::default(), None);
        self.note.results.clear();
        if self.note.verdict.is_off {
            self.agree(Agreed { second, is_off: false }, second);
        }
    }

    /// From now on this verdict holds.
    fn agree(&mut self, agreed: Agreed, second: u64) {
        if agreed.is_off && !self.note.verdict.is_off {
            self.findings.state = WaitsState::TakenBack;
            let after = self.began.map(|began| self.now.since(began).as_secs_f64());
            self.findings.taken_back_after_seconds = self.findings.taken_back_after_seconds.or(after);
            // What another run has found holds here, too.
            if !self.holds(second) {
                self.hold(second);
            }
        }
        self.note.verdict = agreed;
        self.shown.evidence = Evidence::default();
        (self.fall.looks, self.shown.better) = (0, 0);
    }

    /// A verdict holds from now on.
    fn hold(&mut self, second: u64) {
        let [first, most] = HOLDS;
        self.holds.get_or_insert(Backoff::new(first, most)).fail(Time(second * SECOND_NS));
    }

    fn holds(&self, second: u64) -> bool {
        self.holds.is_some_and(|holds| !holds.is_over(Time(second * SECOND_NS)))
    }

    /// Takes in the results of all runs of a pair.
    fn take_results(&mut self, second: u64, board: &Board) {
        let notes = board.notes.iter().map(|(_, note)| note).chain([&self.note]);
        let of_pair = notes.flat_map(|note| note.results.iter().filter(|(of, _)| *of == second));
        // A run is late where threads spin: the mean over the others would say too little of that.
        let logs: Option<Vec<f64>> = of_pair.map(|(_, log)| *log).collect();
        let Some(logs) = logs.filter(|logs| !logs.is_empty()) else { return };
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let cost_s = cost_s(self.lost(mean), self.off_ms());
        self.costs.pay(second, cost_s);
        self.shown.take(mean);
        self.findings.pairs += 1;
        self.findings.runs = logs.len() as u32;
        self.judge(second + 1);
    }

    fn judge(&mut self, second: u64) {
        let (effect, interval) = (self.shown.evidence.estimate(), self.shown.evidence.interval());
        let is_off = self.note.verdict.is_off;
        let state = match interval {
            Some((low, _)) if low > 0.0 => Some(WaitsState::Kept),
            Some((_, high)) if high < 0.0 => Some(WaitsState::TakenBack),
            _ if is_off && self.shown.better >= BETTER_PAIRS => Some(WaitsState::Kept),
            _ => (self.shown.evidence.pairs() >= PAIRS_MAX).then_some(WaitsState::Unclear),
        };
        if !is_off && (state.is_some() || self.findings.state == WaitsState::NotJudged) {
            self.findings.gain = Some(Gain::of(effect, interval));
        }
        let Some(state) = state else { return };
        self.hold(second);
        match (state, is_off) {
            (WaitsState::Kept | WaitsState::Unclear, false) => self.findings.state = state,
            (WaitsState::TakenBack, _) => self.agree(Agreed { second, is_off: true }, second),
            (WaitsState::Kept, true) => {
                self.findings.state = WaitsState::Fell;
                self.agree(Agreed { second, is_off: false }, second);
            }
            _ => {}
        }
        self.shown.evidence = Evidence::default();
    }

    /// The share of an epoch's progress that is lost because it is not as it is between pairs.
    fn lost(&self, log: f64) -> f64 {
        let better = if self.note.verdict.is_off { -log } else { log };
        -(-better).exp_m1()
    }

    /// The length of the next epoch without the changes.
    fn off_ms(&self) -> u64 {
        if self.note.gangs == 0 { EPOCH_MS } else { TURN_MS }
    }

    /// Whether this run may ask for a pair: no verdict holds, and its cost is little.
    fn may_ask(&self, second: u64) -> bool {
        let holds = self.holds(second) && !self.note.verdict.is_off;
        let is_metered = self.findings.meter.is_some() && self.note.changes;
        is_metered && !holds && self.costs.can_afford(self.expected_s())
    }

    /// What the next pair costs, by the last one; a first one may lose all.
    fn expected_s(&self) -> f64 {
        cost_s(self.shown.last.map_or(1.0, |number| self.lost(number)), self.off_ms())
    }

    fn ask(&mut self, second: u64) {
        let expected_s = self.expected_s();
        let off_ms = self.off_ms();
        self.note.asks.retain(|ask| ask.second + 1 == second);
        self.note.asks.push(Ask { second, off_ms });
        self.costs.reserve(second, expected_s);
    }

    /// While the changes are taken back: whether this run gets less done than with them.
    fn watch_for_a_fall(&mut self, second: u64, look: &Look) {
        if self.fall.take(look) {
            self.hold(second);
            self.findings.state = WaitsState::Fell;
            self.agree(Agreed { second: second.max(self.note.verdict.second + 1), is_off: false }, second);
        }
    }
}

/// Returns the board without notes that no run of this version on this machine's clock would write: they
/// would count as a mean, or hold for ever.
fn sound(board: &Board) -> Board {
    let second = board.clock.0 / SECOND_NS;
    let notes = board.notes.iter().filter(|(_, note)| is_sound(note, second));
    Board { clock: board.clock, notes: notes.cloned().collect() }
}

fn is_sound(note: &Note, second: u64) -> bool {
    note.gangs <= GANGS_MAX
        && note.verdict.second <= second + 1
        && note.asks.iter().all(|ask| ask.off_ms <= TURN_MS)
        && note.results.iter().all(|(_, log)| log.is_none_or(|log| log.abs() <= LOG_MAX))
}

/// What a pair costs in seconds if this share of the progress is lost in one of its epochs.
fn cost_s(lost: f64, length_ms: u64) -> f64 {
    let length = Duration::from_millis(length_ms) + 2 * SETTLES;
    lost * length.as_secs_f64() + SWITCHING_S
}

/// The work of the threads of each application: what its program reports, if it ever did, or else samples in
/// which they did not spin.
fn look(now: Time, threads: &[ThreadReading], reporting: &mut BTreeSet<AppId>) -> Look {
    let reported = |reading: &ThreadReading| {
        let progress = reading.progress?;
        let counts = matches!(progress.source, ProgressSource::Heartbeat | ProgressSource::Simulated);
        counts.then_some(progress)
    };
    reporting.extend(threads.iter().filter(|reading| reported(reading).is_some()).map(|reading| reading.app));
    let work = threads.iter().filter_map(|reading| {
        if reporting.contains(&reading.app) {
            return reported(reading).map(|progress| (reading, progress.work, progress.source));
        }
        match &reading.counters {
            // The kernel's part is waking and switching, more so with short waits.
            Some(CounterReading::Sample(sample)) => {
                Some((reading, sample.judged + sample.unknown, ProgressSource::WorkingTime))
            }
            Some(CounterReading::Pmu(_)) | None => None,
        }
    });
    let work: Vec<_> = work.collect();
    let source = work.first().map(|(.., source)| *source);
    let work = work
        .into_iter()
        .map(|(reading, work, _)| (reading.thread, Work { app: reading.app, work, cpu_ns: reading.cpu_ns }));
    Look::of_work(now, work, source)
}

#[cfg(test)]
mod tests;
