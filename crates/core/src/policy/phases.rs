//! Phases of applications: how parallel each one is, for longer than a moment.
//!
//! Problem: a thread whose application has just become sequential should get a fast PE at once. But at every
//! barrier the last thread to arrive is alone for a moment, too. A policy that takes this for a phase moves
//! threads at every barrier, and takes the fast PE from those that need it.
//!
//! Approach: an application is as parallel as at its most parallel instant of the last 100 ms ([`patience`]).
//! So a parallel phase begins at once, and a sequential one counts when it has lasted. Where it can be
//! expected, it counts at once: real sequential phases are the work of one certain thread, the end of a
//! barrier is that of whichever thread comes last. So what is expected follows from how many of the
//! application's phases were worth a move and the work of the same thread as the phase before. An expectation
//! that fails is given up.
//!
//! Source: the paper swaps threads periodically "instead of reacting to those transitions immediately" (Saez
//! et al., CF'10, §2.1), for the same reason; the expectation is ours.
//!
//! Threads whose samples show that they spin do no work and do not count, as if their runtime library had
//! said so (§2.2.1).
//!
//! Limits: spinning is seen only where it lasts for most of a window. Where the world does not report every
//! change, the number of runnable threads is the rounded mean of the last window, and nothing is known of
//! shorter phases.

use super::claims::Claims;
use super::interface::{Cause, Scene, Subject};
use super::kind::Parameters;
use crate::ids::{AppId, ThreadId};
use crate::observe::Event;
use crate::time::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a phase must last to be worth moving a thread: the scheduling tick of the paper, in which its
/// scheduler swaps (§2.1). A move there and back costs some reactions of 2 ms and cold caches.
const WORTH: Duration = Duration::from_millis(10);

/// How long an unexpected phase must last to count, if not said otherwise: ten times that, so that a phase
/// that ends right after the move has cost a tenth.
const PATIENCE: Duration = Duration::from_millis(100);

/// Takes the common parameter of the policies that follow phases.
pub fn patience(parameters: &mut Parameters<'_>) -> Duration {
    let range = Duration::ZERO..=Duration::from_secs(10);
    parameters.duration(
        "patience",
        PATIENCE,
        range,
        "how long a phase with fewer runnable threads must last to count, unless it is expected (ours; the \
            paper swaps periodically, §2.1, and does not say how often)",
    )
}

/// The weight of the last phase in what is expected of the next one.
const LEARNING: f64 = 0.25;

/// The least share of phases at which the next one is expected: of threads that come last by chance, hardly
/// any is the same five times in a row.
const EXPECTED: f64 = 0.75;

/// The phases of all applications.
#[derive(Debug)]
pub struct Phases {
    patience: Duration,
    of: BTreeMap<AppId, Phase>,
}

/// How parallel one application has been.
#[derive(Debug)]
struct Phase {
    /// Numbers of runnable threads, falling, each with the time when the application last had as many. The
    /// last one is the present number; earlier ones count for `patience`.
    falling: VecDeque<(usize, Time)>,
    /// Since when at most one thread is runnable, if more were before.
    alone_since: Option<Time>,
    /// The thread whose work the last phase was.
    alone: Option<ThreadId>,
    /// The share of phases that were worth a move and the work of the same thread as the phase before.
    usual: f64,
    /// Whether the present sequential phase was expected.
    is_expected: bool,
    /// Its only runnable thread as last reported.
    only: Option<ThreadId>,
    patience: Duration,
}

impl Phase {
    fn new(count: usize, now: Time, patience: Duration) -> Phase {
        Phase {
            patience,
            falling: [(count, now)].into(),
            alone_since: None,
            alone: None,
            usual: 0.0,
            is_expected: false,
            only: None,
        }
    }

    /// Takes in the present number of runnable threads, and the only one.
    fn take(&mut self, count: usize, only: Option<ThreadId>, now: Time) {
        let before = self.present();
        if let Some(last) = self.falling.back_mut() {
            last.1 = now;
        }
        while self.falling.back().is_some_and(|(earlier, _)| *earlier <= count) {
            self.falling.pop_back();
        }
        self.falling.push_back((count, now));
        match (before, count) {
            (2.., 0..=1) => {
                self.alone_since = Some(now);
                self.is_expected = self.usual > EXPECTED;
            }
            (_, 2..) => {
                if let Some(since) = self.alone_since.take() {
                    self.learn(now.since(since));
                }
                self.is_expected = false;
            }
            _ => {}
        }
        self.only = only.or(self.only);
        self.expire(now);
    }

    /// Takes in how long a sequential phase was.
    fn learn(&mut self, length: Duration) {
        let is_usual = length >= WORTH && self.only.is_some() && self.only == self.alone;
        self.alone = self.only;
        self.usual += (f64::from(u8::from(is_usual)) - self.usual) * LEARNING;
    }

    /// Forgets numbers that are too long ago.
    fn expire(&mut self, now: Time) {
        while self.falling.len() > 1
            && self.falling.front().is_some_and(|(_, last)| now.since(*last) >= self.patience)
        {
            self.falling.pop_front();
        }
    }

    fn present(&self) -> usize {
        self.falling.back().map_or(0, |(count, _)| *count)
    }

    fn width(&self) -> usize {
        if self.is_expected { 1 } else { self.falling.front().map_or(0, |(count, _)| *count) }
    }

    /// Returns when the width changes if nothing happens.
    fn due(&self) -> Option<Time> {
        let is_waiting = self.falling.len() > 1 && !self.is_expected;
        self.falling.front().filter(|_| is_waiting).map(|(_, last)| *last + self.patience)
    }
}

impl Phases {
    /// Nothing is known yet.
    pub fn new(patience: Duration) -> Phases {
        Phases { patience, of: BTreeMap::new() }
    }

    /// Takes in the present parallelism of all applications. Returns whether that of any has changed, or the
    /// thread whose work a sequential phase is.
    pub fn follow(&mut self, scene: &Scene<'_>) -> bool {
        let known = self.of.len();
        self.of.retain(|app, _| scene.applications.contains_key(app));
        let mut is_new = self.of.len() != known;
        let spinning = spinning(scene);
        for (&app, view) in scene.applications {
            let count = view.runnable.map_or(view.tlp_mean.round() as usize, |count| count as usize);
            let count = count.saturating_sub(spinning.get(&app).copied().unwrap_or(0)).max(count.min(1));
            let phase = self.of.entry(app).or_insert_with(|| {
                is_new = true;
                Phase::new(count, scene.now, self.patience)
            });
            let before = (phase.width(), phase.only, phase.present() == 0);
            match view.runnable {
                Some(_) => phase.take(count, view.only, scene.now),
                None => *phase = Phase::new(count, scene.now, self.patience),
            }
            // Where others are kept from the PE of a thread, it matters whether that works, too.
            let is_other =
                phase.only != before.1 || scene.claims == Claims::Masks && (phase.present() == 0) != before.2;
            is_new |= phase.width() != before.0 || phase.width() <= 1 && is_other;
        }
        is_new
    }

    /// Returns how many threads of an application are runnable, apart from moments with fewer. `None` if
    /// nothing is known about it.
    pub fn width(&self, app: AppId) -> Option<usize> {
        self.of.get(&app).map(Phase::width)
    }

    /// Returns when a phase will have lasted, if nothing happens until then.
    pub fn due(&self) -> Option<Time> {
        self.of.values().filter_map(Phase::due).min()
    }

    /// Returns whether the events in the scene's cause may change which threads have a claim to fast PEs, or
    /// what the others may use meanwhile.
    pub fn answer(&mut self, scene: &Scene<'_>) -> bool {
        let Cause::Events(events) = scene.cause else { return true };
        let mut is_new = self.follow(scene);
        // The effects of others are reported by these or by the next observation.
        is_new |= events.iter().any(|event| matches!(event, Event::Hint { .. } | Event::AllowedChanged(_)));
        is_new
    }
}

/// Returns how many threads of each application spin although they count as runnable. (Those whose runtime
/// library says so do not count.)
fn spinning(scene: &Scene<'_>) -> BTreeMap<AppId, usize> {
    let mut spinning = BTreeMap::new();
    let seen = |subject: &&Subject| subject.runnable && !subject.hints.spinning && subject.is_seen_spinning();
    for subject in scene.threads.iter().filter(seen) {
        *spinning.entry(subject.view.app).or_default() += 1;
    }
    spinning
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: u32 = 1;

    /// Draws the width of an application once per 20 ms, from the number of its runnable threads for some
    /// milliseconds each, and the only one.
    fn widths(counts: &[(u64, usize, u32)]) -> String {
        let ms = |ms| Time(ms * 1_000_000);
        let mut phase = Phase::new(counts[0].1, ms(0), PATIENCE);
        let mut drawn = String::new();
        let mut at = 0;
        for &(duration, count, only) in counts {
            let only = (count == 1).then_some(ThreadId { tid: only, generation: 0 });
            phase.take(count, only, ms(at));
            for now in at..at + duration {
                phase.expire(ms(now));
                if now % 20 == 0 {
                    drawn.push_str(&phase.width().to_string());
                }
            }
            at += duration;
        }
        drawn
    }

    /// Phases of 60 ms that belong to the main thread, after parallel ones of 40 ms.
    fn sequential(times: usize) -> Vec<(u64, usize, u32)> {
        [(40, 4, 0), (60, 1, MAIN)].repeat(times)
    }

    #[test]
    fn the_end_of_a_barrier_is_no_sequential_phase() {
        let barriers = |tail| (0..8).flat_map(move |last| [(40, 4, 0), (10, 2, 0), (tail, 1, last)]);
        assert_eq!(widths(&barriers(50).collect::<Vec<_>>()), "44444".repeat(8));
        assert_eq!(widths(&barriers(10).collect::<Vec<_>>()), "444".repeat(8));
    }

    #[test]
    fn a_sequential_phase_counts_when_it_has_lasted_and_a_parallel_one_at_once() {
        assert_eq!(widths(&[(40, 4, 0), (200, 1, MAIN), (40, 4, 0)]), "44444441111144");
    }

    #[test]
    fn phases_that_are_always_the_work_of_one_thread_are_expected() {
        // The first one is the work of no known thread, the next five confirm it.
        assert_eq!(widths(&sequential(8)), ["44444".repeat(6), "44111".repeat(2)].concat());
    }

    #[test]
    fn an_expectation_that_fails_is_given_up() {
        let short = [(55, 4, 0), (5, 1, MAIN)].repeat(3);
        let drawn = widths(&[sequential(7), short, sequential(2)].concat());
        assert_eq!(drawn[30..], ["44111", "444".repeat(3).as_str(), "44444", "44444"].concat());
    }

    #[test]
    fn threads_that_are_seldom_all_at_work_make_the_application_as_wide_as_their_maximum() {
        assert_eq!(widths(&[(20, 3, 0), (60, 2, 0)].repeat(3)), "333333333333");
        assert_eq!(widths(&[(20, 3, 0), (140, 2, 0)].repeat(2)), "3333332233333322");
    }

    #[test]
    fn without_patience_a_phase_counts_at_once() {
        let mut phase = Phase::new(4, Time(0), Duration::ZERO);
        phase.take(1, None, Time(3));
        assert_eq!((phase.width(), phase.due()), (1, None));
        phase.take(4, None, Time(4));
        assert_eq!(phase.width(), 4);
    }

    #[test]
    fn the_time_when_a_phase_will_have_lasted_is_known() {
        let mut phase = Phase::new(4, Time(0), PATIENCE);
        assert_eq!(phase.due(), None);
        phase.take(1, None, Time(3_000_000));
        assert_eq!(phase.due(), Some(Time(3_000_000) + PATIENCE));
        phase.expire(Time(103_000_000));
        assert_eq!((phase.width(), phase.due()), (1, None));
    }
}
