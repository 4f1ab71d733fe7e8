//! The guard of waits on made-up runs: a column is a second, `#` with the changes, `.` without, and `~` with
//! a pair of epochs.

use super::*;
use crate::observe::{ProgressReading, SampleReading};
use crate::random::Random;

/// The work of a run per second, by time, its number, whether its own changes are off, and those of all.
type Rate<'a> = &'a dyn Fn(f64, usize, bool, bool) -> f64;

fn reading(work: Option<f64>) -> ThreadReading {
    let progress = |work| ProgressReading { work: work as u64, source: ProgressSource::Heartbeat };
    ThreadReading { progress: work.map(progress), ..ThreadReading::example(1) }
}

/// A run, and from when to when it lives, in milliseconds of the common clock.
struct Run {
    guard: WaitsGuard,
    lives: (u64, u64),
    next_ms: u64,
    work: f64,
    /// The same without scatter.
    expected: f64,
    drawn: String,
}

struct Runs {
    all: Vec<Run>,
    noise: Random,
    /// Standard deviation of the work between two looks.
    scatter: f64,
    gangs: u32,
    is_metered: bool,
}

/// When the first run begins, by the common clock.
const BEGIN_MS: u64 = 7_123_300;

impl Runs {
    fn new(lives_s: &[(u64, u64)]) -> Runs {
        let run = |(number, (from, to)): (usize, &(u64, u64))| {
            // They do not begin together.
            let begins_ms = BEGIN_MS + from * 1000 + 170 * number as u64;
            let lives = (begins_ms, BEGIN_MS + to * 1000);
            Run {
                guard: WaitsGuard::default(),
                lives,
                next_ms: begins_ms,
                work: 0.0,
                expected: 0.0,
                drawn: String::new(),
            }
        };
        let all = lives_s.iter().enumerate().map(run).collect();
        Runs { all, noise: Random::new(1, 1), scatter: 0.0, gangs: 0, is_metered: true }
    }

    fn lives(&self, run: usize, now_ms: u64) -> bool {
        (self.all[run].lives.0..self.all[run].lives.1).contains(&now_ms)
    }

    fn board(&self, reader: usize, now_ms: u64) -> Board {
        let others = (0..self.all.len()).filter(|&run| run != reader && self.lives(run, now_ms));
        let notes = others.filter_map(|run| Some((run as u32, self.all[run].guard.note()?.clone())));
        Board { clock: Time(now_ms * 1_000_000), notes: notes.collect() }
    }

    /// Lets them run for some seconds.
    fn go(mut self, seconds: u64, rate: Rate<'_>) -> Runs {
        let (mut now_ms, end_ms) = (BEGIN_MS, BEGIN_MS + seconds * 1000);
        while now_ms < end_ms {
            for run in 0..self.all.len() {
                if self.all[run].next_ms <= now_ms && self.lives(run, now_ms) {
                    self.look(run, now_ms);
                }
            }
            let next = self.all.iter().map(|run| run.next_ms).filter(|next| *next > now_ms).min();
            // Turns begin between looks.
            let turn_ms = if self.gangs > 0 { now_ms / TURN_MS * TURN_MS + TURN_MS } else { end_ms };
            let next_ms = next.unwrap_or(end_ms).min(end_ms).min(turn_ms);
            let is_off: Vec<bool> = self.all.iter().map(|run| run.guard.is_off()).collect();
            for run in 0..self.all.len() {
                if self.lives(run, now_ms) {
                    let others = (0..self.all.len()).filter(|&other| self.lives(other, now_ms));
                    let all_off = others.into_iter().all(|other| is_off[other]);
                    let scatter = 1.0 + self.scatter * self.noise.normal();
                    let per_s = rate((now_ms - BEGIN_MS) as f64 / 1e3, run, is_off[run], all_off);
                    let work = per_s * (next_ms - now_ms) as f64 / 1e3;
                    self.all[run].work += work * scatter.max(0.0);
                    self.all[run].expected += work;
                }
            }
            now_ms = next_ms;
        }
        self
    }

    fn look(&mut self, number: usize, now_ms: u64) {
        let board = self.board(number, now_ms);
        let work = self.is_metered.then_some(self.all[number].work);
        let run = &mut self.all[number];
        let now = Time((now_ms - run.lives.0) * 1_000_000);
        let threads = [reading(work)];
        run.guard.take(&board, Present { now, threads: &threads, changes: true, gangs: self.gangs });
        if run.drawn.len() as u64 <= (now_ms - run.lives.0) / 1000 {
            let is_pair = run.guard.pairs.iter().any(|pair| pair.second() <= now_ms / 1000 + 1);
            run.drawn.push(if is_pair {
                '~'
            } else if run.guard.note.verdict.is_off {
                '.'
            } else {
                '#'
            });
        }
        let due = run.guard.due().map_or(u64::MAX, |due| run.lives.0 + due.0.div_ceil(1_000_000));
        run.next_ms = (now_ms + 1000).min(due.max(now_ms + 2));
    }
}

/// The work of two runs of 10,000 a second each that get so much of it without the changes.
fn without(share: f64) -> impl Fn(f64, usize, bool, bool) -> f64 {
    move |_, _, off, all_off| {
        if !off {
            1e4
        } else if all_off {
            share * 1e4
        } else {
            1.5e4
        }
    }
}

#[track_caller]
fn check(runs: &Runs, drawn: &[&str], findings: &str) {
    let seen: Vec<&str> = runs.all.iter().map(|run| run.drawn.as_str()).collect();
    assert_eq!(seen, drawn);
    assert_eq!(runs.all[0].guard.findings().unwrap().to_string(), findings);
}

#[test]
fn changes_that_hurt_all_runs_are_taken_back_in_all() {
    let runs = Runs::new(&[(0, 60), (0, 60)]).go(40, &without(1.25));
    let drawn = ["#############~##~~~~~~~~~~~.............", "#############~##~~~~~~~~~~~~~~~~~~~~..~."];
    let findings =
        "waits taken back after 26.2 s: -20.0 % [-24.1, -15.7] by heartbeats of the program in 2 runs";
    check(&runs, &drawn, findings);
    assert_eq!(runs.all[0].guard.note.verdict, runs.all[1].guard.note.verdict);
}

#[test]
fn changes_that_help_stay_though_each_run_would_gain_by_spinning_alone() {
    let runs = Runs::new(&[(0, 300), (0, 300)]).go(120, &without(0.05));
    let tried = "#############~#####~########~########~########~########~#######~########~########~########~";
    let drawn = tried.to_owned() + &"#".repeat(29);
    let findings = "waits gained at least +305.5 % [285.0, 327.2] by heartbeats of the program in 2 runs";
    check(&runs, &[&drawn, &drawn], findings);
}

#[test]
fn the_mean_over_all_runs_decides() {
    let of = |shares: [f64; 2]| {
        move |_: f64, run: usize, off: bool, _: bool| if off { 1e4 * shares[run] } else { 1e4 }
    };
    let runs = Runs::new(&[(0, 60), (0, 60)]).go(60, &of([1.1, 0.7]));
    assert!(runs.all.iter().all(|run| !run.drawn.contains('.')), "{}", runs.all[0].drawn);
    let runs = Runs::new(&[(0, 60), (0, 60)]).go(60, &of([1.4, 0.95]));
    assert!(runs.all.iter().all(|run| run.guard.note.verdict.is_off), "{}", runs.all[0].drawn);
}

#[test]
fn without_a_meter_the_rules_hold_and_nothing_costs_anything() {
    let runs = Runs { is_metered: false, ..Runs::new(&[(0, 30)]) }.go(30, &without(2.0));
    check(&runs, &["##############################"], "waits not guarded: no progress meter");
    assert_eq!(runs.all[0].guard.findings.off_seconds, 0.0);
}

#[test]
fn a_run_that_lives_for_seconds_sees_no_epoch() {
    let runs = Runs::new(&[(0, 10), (0, 10)]).go(10, &without(2.0));
    let findings = "waits changed; the time was too short to measure their gain";
    check(&runs, &["##########", "##########"], findings);
}

#[test]
fn changed_waits_are_in_force_again_as_soon_as_progress_falls() {
    // From the 40th second on the programs spin against each other.
    let rate = |at: f64, _: usize, off: bool, _: bool| match (off, at < 40.0) {
        (true, true) => 12e3,
        (true, false) => 500.0,
        (false, _) => 1e4,
    };
    let runs = Runs::new(&[(0, 90), (0, 90)]).go(60, &rate);
    let drawn = [
        "#############~##~~~~~~~~~~~..............~##################",
        "#############~##~~~~~~~~~~~~~~~~~~~~~~~~.~##################",
    ];
    let findings =
        "waits taken back after 26.2 s and changed again: progress fell, by heartbeats of the program";
    check(&runs, &drawn, findings);
}

#[test]
fn when_a_run_comes_or_goes_all_begins_anew() {
    let runs = Runs::new(&[(0, 90), (35, 60)]).go(60, &|_, _, off, _| if off { 1e4 } else { 9e3 });
    // The other one is of the same mind as soon as it comes, until both know that it has come.
    let taken_back = "#############~##~~~~~~~~~~~.........";
    let drawn = [taken_back.to_owned() + &"#".repeat(24), "~########################".to_owned()];
    let findings =
        "waits taken back after 26.2 s: -10.0 % [-14.6, -5.2] by heartbeats of the program in 2 runs";
    check(&runs, &[&drawn[0], &drawn[1]], findings);
}

#[test]
fn gangs_have_their_turns_within_an_epoch() {
    // Two gangs: one of them works in each 100 ms, both slowly without turns.
    let turn =
        |at: f64, run: usize, off: bool, _: bool| match ((at * 1e3).round() as u64 + BEGIN_MS) / TURN_MS % 2
            == run as u64
        {
            _ if off => 6e3,
            true => 1e4,
            false => 0.0,
        };
    let runs = Runs { gangs: 1, ..Runs::new(&[(0, 90), (0, 90)]) }.go(60, &turn);
    let drawn = [
        "############################~##~##########..................",
        "############################~##~~~~~~~~~~~~~~~~...~...~....~",
    ];
    let findings =
        "waits taken back after 41.2 s: -16.7 % [-20.9, -12.2] by heartbeats of the program in 2 runs";
    check(&runs, &drawn, findings);
}

#[test]
fn a_pair_in_which_any_run_was_late_is_not_judged() {
    let note = |log| Note { results: vec![(7, log)], ..Note::default() };
    let mut guard = WaitsGuard { note: note(Some(-0.5)), ..WaitsGuard::default() };
    for (of_other, pairs) in [(None, 0), (Some(-0.1), 1)] {
        guard.take_results(7, &Board { notes: vec![(3, note(of_other))], ..Board::default() });
        assert_eq!((guard.findings.pairs, guard.shown.evidence.pairs()), (pairs, pairs as usize));
    }
    assert_eq!(guard.findings.runs, 2);
}

#[test]
fn notes_that_no_run_writes_do_not_count() {
    let second = BEGIN_MS / 1000;
    let sound = Note {
        asks: vec![Ask { second: u64::MAX, off_ms: TURN_MS }],
        results: vec![(u64::MAX, Some(-LOG_MAX)), (0, None)],
        verdict: Agreed { second: second + 1, is_off: true },
        ..Note::default()
    };
    let of_results = |log| Note { results: vec![(second, Some(log))], ..sound.clone() };
    let notes = [
        sound.clone(),
        Note { gangs: u32::MAX, ..sound.clone() },
        Note { asks: vec![Ask { second, off_ms: u64::MAX }], ..sound.clone() },
        Note { verdict: Agreed { second: second + 2, is_off: true }, ..sound.clone() },
        of_results(f64::MAX),
        of_results(f64::NAN),
    ];
    let board = Board { clock: Time(BEGIN_MS * 1_000_000), notes: (0..).zip(notes).collect() };
    assert_eq!(super::sound(&board).notes, [(0, sound)]);
}

#[test]
fn samples_tell_how_much_was_done_without_spinning() {
    let sample =
        SampleReading { judged: 60, spinning: 30, kernel: 5, unknown: 4, ..SampleReading::default() };
    let counters = Some(CounterReading::Sample(sample));
    let look_at =
        |at_s: u64, reading: ThreadReading| look(Time(at_s * SECOND_NS), &[reading], &mut BTreeSet::new());
    let sampled = |counters| ThreadReading { counters, ..reading(None) };
    let none = Some(CounterReading::Sample(SampleReading::default()));
    let [before, after] = [look_at(0, sampled(none)), look_at(1, sampled(counters.clone()))];
    assert_eq!(after.source, Some(ProgressSource::WorkingTime));
    let twice = look_at(2, sampled(counters.clone()));
    let rates = after.since(&before);
    assert!((rates.log_over(&rates.times(1.0 / 64.0)).unwrap() - 64f64.ln()).abs() < 1e-9);
    assert_eq!(twice.since(&after).log_over(&Rates::default()), None);
    // Instructions count spinning.
    let instructions = ProgressReading { work: 7, source: ProgressSource::Instructions };
    assert_eq!(look_at(0, ThreadReading { progress: Some(instructions), ..reading(None) }).source, None);
    // Heartbeats come first, and a program that has reported some is not judged by samples any more.
    let mut reporting = BTreeSet::new();
    let heartbeats = ThreadReading { counters: counters.clone(), ..reading(Some(9.0)) };
    assert_eq!(look(Time(0), &[heartbeats], &mut reporting).source, Some(ProgressSource::Heartbeat));
    assert_eq!(look(Time(1), &[sampled(counters)], &mut reporting).source, None);
}

/// What 200 random pairs of runs lose by the guard, where the effect of the changes on each is random, is
/// another one after a random time, and progress scatters: as the share of the work that both do without the
/// guard.
#[test]
fn whatever_changes_do_the_guard_costs_little() {
    const SEEDS: u64 = 200;
    const SECONDS: u64 = 90;
    let mut losses = Vec::new();
    for seed in 0..SEEDS {
        let mut random = Random::new(seed, 3);
        // Half of all effects are far apart: what helps may help 70 times.
        let mut share = || match random.below(4) {
            0 => 0.015 + 0.1 * random.unit(),
            1 => 1.0,
            2 => 0.7 + 0.25 * random.unit(),
            _ => 1.0 + 0.6 * random.unit(),
        };
        let shares = [[share(), share()], [share(), share()]];
        let at = 20.0 + 60.0 * random.unit();
        let scatter = [0.0, 0.03, 0.2][random.below(3)];
        let rate = |now: f64, run: usize, off: bool, _: bool| {
            if off { 1e4 * shares[usize::from(now >= at)][run] } else { 1e4 }
        };
        let mut runs = Runs::new(&[(0, SECONDS), (0, SECONDS)]);
        (runs.scatter, runs.noise) = (scatter, Random::new(seed, 4));
        let runs = runs.go(SECONDS, &rate);
        let mut unguarded = 0.0;
        for run in &runs.all {
            unguarded += 1e4 * (run.lives.1 - run.lives.0) as f64 / 1e3;
        }
        let done: f64 = runs.all.iter().map(|run| run.expected).sum();
        losses.push((1.0 - done / unguarded, seed, shares, at, scatter));
    }
    losses.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mean = losses.iter().map(|loss| loss.0).sum::<f64>() / SEEDS as f64;
    assert!(mean < 0.0 && losses[0].0 < 0.01, "{mean}, {:?}", &losses[..12]);
}
