//! The guard on made-up programs: a column is a second, `~` a trial, `#` a kept placement, `.` a reverted one
//! or none.

use super::*;
use crate::observe::{ProgressReading, ProgressSource};

/// A thread and its work per second, with the placement (`true`) and without, at each time.
struct Program {
    rate: fn(f64, bool) -> f64,
    /// Standard deviation of the reported progress between two looks.
    noise: f64,
}

fn reading(work: Option<f64>) -> ThreadReading {
    let progress = |work: f64| ProgressReading { work: work as u64, source: ProgressSource::Simulated };
    ThreadReading { progress: work.map(progress), ..ThreadReading::example(1) }
}

/// Runs a program for some seconds, with a loop that looks each second and when the guard asks for it.
fn run(program: &Program, seconds: usize) -> (Guard, String) {
    let (mut guard, mut noise) = (Guard::new(1), Random::new(1, 1));
    let (mut now_ms, mut work, mut drawn) = (0u64, 0.0, String::new());
    while now_ms < seconds as u64 * 1000 {
        let now = Time(now_ms * 1_000_000);
        guard.take(now, [reading(Some(work))].iter(), true);
        if drawn.len() as u64 <= now_ms / 1000 {
            drawn.push(match (&guard.mode, guard.is_in_force()) {
                (Mode::Trying(_), _) => '~',
                (_, true) => '#',
                (_, false) => '.',
            });
        }
        let due_ms = guard.due().map_or(u64::MAX, |due| due.0.div_ceil(1_000_000));
        let next_ms = (now_ms / 1000 * 1000 + 1000).min(due_ms.max(now_ms + 1));
        let error = 1.0 + program.noise * noise.normal();
        let placed = guard.is_in_force();
        work += (program.rate)(now_ms as f64 / 1e3, placed) * (next_ms - now_ms) as f64 * error.max(0.0);
        now_ms = next_ms;
    }
    (guard, drawn)
}

#[track_caller]
fn check(program: &Program, seconds: usize, expected: &str) -> Findings {
    let (guard, drawn) = run(program, seconds);
    let is_as_drawn = drawn.len() == expected.len()
        && drawn.chars().zip(expected.chars()).all(|(found, drawn)| drawn == '?' || found == drawn);
    assert!(is_as_drawn, "{drawn}\n{expected}");
    *guard.findings()
}

const STEADY: f64 = 10_000.0;

#[test]
fn a_harmful_placement_is_taken_back_within_a_second_or_two_and_not_tried_again() {
    let program = Program { rate: |_, placed| if placed { STEADY / 2.0 } else { STEADY }, noise: 0.02 };
    let found = check(&program, 40, "~.......................................");
    assert_eq!((found.state, found.trials), (State::TakenBack, 1));
    assert!(found.taken_back_after_seconds.is_some_and(|after| after < 2.0), "{found:?}");
    let words = found.to_string();
    assert!(words.starts_with("placement reverted after 0."), "{words}");
    assert!(words.contains(" s: -") && words.contains(" [-5"), "{words}");
}

#[test]
fn a_helpful_placement_is_kept_and_tried_again_ever_more_rarely() {
    let program = Program { rate: |_, placed| if placed { 1.3 * STEADY } else { STEADY }, noise: 0.02 };
    let (guard, drawn) = run(&program, 600);
    assert!(drawn.starts_with("~####"), "{drawn}");
    let tried = drawn.chars().filter(|c| *c == '~').count();
    assert!((3..=14).contains(&tried) && !drawn.contains('.'), "{tried}: {drawn}");
    let found = guard.findings();
    assert!(found.trials >= 2 && found.trial_seconds < 10.0, "{found:?}");
    let gain = found.gain.unwrap();
    assert!(
        gain.low.unwrap() < 0.3 && gain.high.unwrap() > 0.3 && (gain.value - 0.3).abs() < 0.05,
        "{gain:?}"
    );
    assert!(found.to_string().starts_with("placement gained +"), "{found}");
}

#[test]
fn a_placement_without_effect_is_taken_back() {
    let program = Program { rate: |_, _| STEADY, noise: 0.05 };
    let found = run(&program, 40).0.findings().to_owned();
    assert_eq!((found.state, found.trials), (State::Unclear, 1));
}

#[test]
fn another_phase_is_judged_anew() {
    // It hurts for a minute; then the program does twice as much, and the placement helps.
    let rate = |at: f64, placed| match (at < 60.0, placed) {
        (true, false) => STEADY,
        (true, true) => STEADY / 2.0,
        (false, false) => 2.0 * STEADY,
        (false, true) => 2.6 * STEADY,
    };
    let (guard, drawn) = run(&Program { rate, noise: 0.02 }, 100);
    assert!(!drawn[2..60].contains(['~', '#']) && drawn.ends_with("####"), "{drawn}");
    assert_eq!(guard.findings().state, State::Kept);
}

#[test]
fn when_progress_falls_the_placement_is_taken_back_at_once() {
    let rate = |at: f64, placed| match (at < 20.0, placed) {
        (true, true) => 1.3 * STEADY,
        (false, true) => STEADY / 2.0,
        (_, false) => STEADY,
    };
    let (guard, drawn) = run(&Program { rate, noise: 0.02 }, 40);
    assert_eq!(&drawn[19..23], "##..", "{drawn}");
    assert!(guard.findings().fallen >= 1, "{:?}", guard.findings());
}

#[test]
fn without_a_meter_nothing_is_guarded() {
    let mut guard = Guard::new(1);
    for second in 0..10 {
        guard.take(Time(second * 1_000_000_000), [reading(None)].iter(), true);
        assert_eq!((guard.is_in_force(), guard.due()), (true, None));
    }
    assert_eq!(guard.findings().to_string(), "not guarded: no progress meter");
}

#[test]
fn a_thread_bound_before_there_was_a_meter_is_free_for_a_second_before_the_trial() {
    let mut guard = Guard::new(1);
    for (at_ms, work, is_tried) in
        [(0, None, false), (200, None, false), (400, Some(1.0), false), (1200, Some(2.0), false)]
            .into_iter()
            .chain([(1400, Some(3.0), true)])
    {
        guard.take(Time(at_ms * 1_000_000), [reading(work)].iter(), true);
        assert_eq!(matches!(guard.mode, Mode::Trying(_)), is_tried, "{at_ms}");
        assert_eq!(guard.is_in_force() && !is_tried, work.is_none(), "{at_ms}");
    }
}

#[test]
fn before_the_first_trial_and_after_a_revert_the_placement_is_not_in_force() {
    let mut guard = Guard::new(1);
    guard.take(Time(0), [reading(Some(0.0))].iter(), false);
    assert!(!guard.is_in_force());
    let program = Program { rate: |_, placed| if placed { STEADY / 2.0 } else { STEADY }, noise: 0.0 };
    let (guard, _) = run(&program, 3);
    assert_eq!((guard.findings().state, guard.is_in_force()), (State::TakenBack, false));
}

#[test]
fn what_a_trial_has_stirred_up_is_not_taken_for_where_threads_were() {
    let mut guard = Guard::new(1);
    let (mut now, mut work, mut looks) = (Time(0), 0.0, 0);
    while !matches!(guard.mode, Mode::Decided(_)) {
        // Whenever it is freed, the operating system leaves the thread somewhere else.
        let moved = ThreadReading { last_pe: Some(PeId(looks % 4)), ..reading(Some(work)) };
        guard.take(now, [moved].iter(), true);
        looks += 1;
        let next = guard.due().unwrap_or(now);
        let rate = if guard.is_in_force() { STEADY / 2.0 } else { STEADY };
        work += rate * next.since(now).as_secs_f64();
        now = next;
    }
    assert_eq!(guard.findings().state, State::TakenBack);
    assert_eq!(guard.before(reading(None).thread), Some(PeId(0)));
}
