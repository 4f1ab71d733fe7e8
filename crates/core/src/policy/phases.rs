//! Phases of applications: how parallel each one is, for longer than a moment.
//!
//! Problem: a thread whose application has just become sequential should get a fast PE at once. But at every
//! barrier the last thread to arrive is alone for a moment, too. A policy that takes this for a phase moves
//! threads at every barrier, and takes the fast PE from those that need it.
//!
//! Approach: an application is as parallel as at its most parallel instant of the last [`LASTS`], so a
//! parallel phase begins at once and a sequential one counts when it has lasted. To wait that long before a
//! phase of unknown length is acted on costs at most twice what knowing it would (rent or buy, Karlin et al.,
//! SODA'90). Where the sequential phases of an application were mostly longer so far, the next one is
//! expected to be, too, and counts at once. If such an expectation is wrong a few times, it is given up.
//!
//! Source: the paper swaps threads periodically "instead of reacting to those transitions immediately" (Saez
//! et al., CF'10, §2.1), for the same reason; the expectation is ours.
//!
//! Limits: where the world does not report every change, the number of runnable threads is the rounded mean
//! of the last window, and nothing is known of shorter phases.

use super::claims::Claims;
use super::{Cause, Scene};
use crate::ids::{AppId, ThreadId};
use crate::observe::{Event, RunnableThreads};
use crate::time::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a phase must last to be worth moving a thread: the scheduling tick of the paper, in which its
/// scheduler swaps (§2.1). A move there and back costs some reactions of 2 ms and cold caches.
const LASTS: Duration = Duration::from_millis(10);

/// The weight of the last phase in what is expected of the next one.
const LEARNING: f64 = 0.25;

/// The phases of all applications.
#[derive(Debug, Default)]
pub struct Phases(BTreeMap<AppId, Phase>);

/// How parallel one application has been.
#[derive(Debug)]
struct Phase {
    /// Numbers of runnable threads, falling, each with the time when the application last had as many. The
    /// last one is the present number; earlier ones count for [`LASTS`].
    falling: VecDeque<(usize, Time)>,
    /// Since when only one thread is runnable, if more were before.
    alone_since: Option<Time>,
    /// The expected share of sequential phases that last.
    lasting: f64,
    /// Whether the present sequential phase counts, because it was expected to last or has lasted.
    is_sequential: bool,
    /// Its only runnable thread as last reported.
    only: Option<ThreadId>,
}

impl Phase {
    fn new(count: usize, now: Time) -> Phase {
        let falling = [(count, now)].into();
        Phase { falling, alone_since: None, lasting: 0.0, is_sequential: false, only: None }
    }

    /// Takes in the present number of runnable threads.
    fn take(&mut self, count: usize, now: Time) {
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
                self.is_sequential = self.lasting > 0.5;
            }
            (_, 2..) => {
                if let Some(since) = self.alone_since.take() {
                    let lasted = f64::from(u8::from(now.since(since) >= LASTS));
                    self.lasting += (lasted - self.lasting) * LEARNING;
                }
                self.is_sequential = false;
            }
            _ => {}
        }
        self.expire(now);
    }

    /// Forgets numbers that are too long ago.
    fn expire(&mut self, now: Time) {
        while self.falling.len() > 1
            && self.falling.front().is_some_and(|(_, last)| now.since(*last) >= LASTS)
        {
            self.falling.pop_front();
        }
    }

    fn present(&self) -> usize {
        self.falling.back().map_or(0, |(count, _)| *count)
    }

    fn width(&self) -> usize {
        if self.is_sequential { 1 } else { self.falling.front().map_or(0, |(count, _)| *count) }
    }

    /// Returns when the width changes if nothing happens.
    fn due(&self) -> Option<Time> {
        let is_waiting = self.falling.len() > 1 && !self.is_sequential;
        self.falling.front().filter(|_| is_waiting).map(|(_, last)| *last + LASTS)
    }
}

impl Phases {
    /// Takes in the present parallelism of all applications. Returns whether that of any has changed.
    pub fn follow(&mut self, scene: &Scene<'_>) -> bool {
        let known = self.0.len();
        self.0.retain(|app, _| scene.applications.contains_key(app));
        let mut is_new = self.0.len() != known;
        for (&app, view) in scene.applications {
            let count = view.runnable.map_or(view.tlp_mean.round() as usize, |count| count as usize);
            let phase = self.0.entry(app).or_insert_with(|| {
                is_new = true;
                Phase::new(count, scene.now)
            });
            let before = phase.width();
            match view.runnable {
                Some(_) => phase.take(count, scene.now),
                None => *phase = Phase::new(count, scene.now),
            }
            is_new |= phase.width() != before;
        }
        is_new
    }

    /// Returns how many threads of an application are runnable, apart from moments with fewer. `None` if
    /// nothing is known about it.
    pub fn width(&self, app: AppId) -> Option<usize> {
        self.0.get(&app).map(Phase::width)
    }

    /// Returns when a phase will have lasted, if nothing happens until then.
    pub fn due(&self) -> Option<Time> {
        self.0.values().filter_map(Phase::due).min()
    }

    /// Returns whether the events in the scene's cause may change which threads have a claim to fast PEs, or
    /// what the others may use meanwhile.
    pub fn answer(&mut self, scene: &Scene<'_>) -> bool {
        let Cause::Events(events) = scene.cause else { return true };
        let mut is_new = self.follow(scene);
        for event in events {
            is_new |= match event {
                Event::TlpChanged(runnable) => self.is_another(runnable, scene.claims),
                Event::Hint { .. } | Event::AllowedChanged(_) => true,
                // Their effects are reported by the events above or by the next observation.
                Event::ThreadStarted(_)
                | Event::ThreadEnded(_)
                | Event::ThreadRenamed { .. }
                | Event::Process(_) => false,
            };
        }
        is_new
    }

    /// Returns whether another thread than before is the one that works in a sequential phase. Where others
    /// are kept from its PE, whether it works at all matters, too.
    fn is_another(&mut self, runnable: &RunnableThreads, claims: Claims) -> bool {
        let Some(phase) = self.0.get_mut(&runnable.app).filter(|phase| phase.width() <= 1) else {
            return false;
        };
        let is_rest = runnable.count == 0;
        let same = phase.only == runnable.only || is_rest && claims == Claims::Weights;
        if !same {
            phase.only = runnable.only;
        }
        !same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws the width of an application once per 5 ms, from its number of runnable threads in each
    /// millisecond from 0 on, given as (milliseconds, number).
    fn widths(counts: &[(u64, usize)]) -> String {
        let ms = |ms| Time(ms * 1_000_000);
        let mut phase = Phase::new(counts[0].1, ms(0));
        let mut drawn = String::new();
        let mut at = 0;
        for &(duration, count) in counts {
            phase.take(count, ms(at));
            for now in at..at + duration {
                phase.expire(ms(now));
                if now % 5 == 0 {
                    drawn.push_str(&phase.width().to_string());
                }
            }
            at += duration;
        }
        drawn
    }

    #[test]
    fn the_end_of_a_barrier_is_no_sequential_phase() {
        let barriers = [(20, 4), (1, 3), (1, 2), (3, 1)].repeat(4);
        assert_eq!(widths(&barriers), "44444".repeat(4));
    }

    #[test]
    fn a_sequential_phase_counts_when_it_has_lasted_and_a_parallel_one_at_once() {
        assert_eq!(widths(&[(20, 4), (30, 1), (20, 4)]), format!("{}{}{}", "4444", "441111", "4444"));
    }

    #[test]
    fn phases_that_mostly_lasted_are_expected_to_last() {
        let drawn = widths(&[(20, 4), (30, 1)].repeat(5));
        assert_eq!(drawn, ["4444441111".repeat(3), "4444111111".repeat(2)].concat());
    }

    #[test]
    fn expectations_that_were_wrong_are_given_up() {
        let lasting = [(20, 4), (30, 1)].repeat(4);
        let short = [(20, 4), (5, 1)].repeat(4);
        let drawn = widths(&[lasting, short].concat());
        assert_eq!(drawn[30..], ["4444111111", "44441", "44441", "44444", "44444"].concat());
    }

    #[test]
    fn threads_that_are_never_all_at_work_make_the_application_as_wide_as_their_maximum() {
        // One of three threads rests most of the time.
        assert_eq!(widths(&[(5, 3), (5, 2)].repeat(4)), "33333333");
        assert_eq!(widths(&[(5, 3), (15, 2)].repeat(2)), "33323332");
    }

    #[test]
    fn the_time_when_a_phase_will_have_lasted_is_known() {
        let mut phase = Phase::new(4, Time(0));
        assert_eq!(phase.due(), None);
        phase.take(1, Time(3_000_000));
        assert_eq!(phase.due(), Some(Time(3_000_000) + LASTS));
        phase.expire(Time(13_000_000));
        assert_eq!((phase.width(), phase.due()), (1, None));
    }
}
