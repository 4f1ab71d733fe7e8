//! The currency of all decisions about waits: the share of a process's PE time that is lost.
//!
//! A second of a PE is lost if it is spent spinning while another thread waits for that PE, spent in the
//! kernel to block and to wake up, or idle because the thread that could run there is not awake yet. For each
//! way to wait this module says which share of the PE time of a process is lost (0: none, 1: all), either as
//! it was seen, or by a model where it cannot be seen.
//!
//! **Own waits** ([`of_own_waits`]): threads spin. For each second for which a thread runs, one waits for a
//! PE for `w` seconds. As long as any thread of the team waits, the others spin for it; of `n` threads at
//! least one does in a share `1 - (1 - w)^(n-1)` of the time. Where PEs are wanted twice (`w = 1`), all time
//! is lost: two threads of a team may share a PE, and then the team gets one step further each time slice.
//! With short waits `w` cannot be seen, because threads sleep instead of waiting. Then it follows from the PE
//! time that the process could have had (what it ran, and what was idle) and what its threads would want. A
//! program that works for longer than a time slice between two waits loses less: in a slice it gets one
//! step further, however long that step.
//!
//! **Short waits** ([`Short`]): each block costs CPU time ([`Switching`]) and leaves its PE idle for as long
//! as a wake-up takes; so does a thread that waits for a PE while another PE is idle. Spinning for as long
//! as a block costs is at most twice as expensive as the best choice, whatever comes (Karlin, Li, Manasse,
//! Owicki, "Empirical studies of competitive spinning for a shared-memory multiprocessor", SOSP'91).
//!
//! **In a quota** of a control group PE time is not free while the group is throttled: what its threads spin
//! is lost to their own team, also where nobody else runs. Of `n` threads all but one may spin, and no more
//! is lost than the time for which the quota stops them ([`in_quota`]); how much of that is spinning is not
//! seen. With short waits it is: threads that would spin rest instead, but for the time in which others wake
//! up, and own waits would lose that as far as the quota does not pay for all threads. Idle PEs beyond the
//! quota are not available, so short waits lose no time there.
//!
//! **Samples** ([`Samples`]) show spinning and the kernel's part as they are, in turns, too.
//!
//! Limits: all threads that ran lately count as one team. What the other processes lose is not counted; it is
//! about the same, as waiting is mutual.

use crate::ids::ThreadId;
use crate::machine_model::Switching;
use crate::observe::{IdleWait, IdleWaits, ProcessTimes, SampleReading};
use std::collections::HashMap;

/// What a way to wait is expected to cost before it was tried: a tenth. *Measured*: turns cost 10 to 15 %
/// over what gangs lose alone, and short waits up to 10 % in programs that are better off with them.
pub const UNTRIED: f64 = 0.1;

/// A kernel's part that is this many times as large as blocks cost has other reasons, such as page faults.
/// *Chosen*: a block is known to a factor of 1.5, and to wake another thread costs as much again.
const KERNEL_BY_BLOCKS_MAX: f64 = 4.0;

/// Returns the loss by own waits that spin, by the waiting that was seen.
pub fn of_own_waits(times: &ProcessTimes) -> f64 {
    if times.run_s > 0.0 { of_team(times.wait_s / times.run_s, times.threads) } else { 0.0 }
}

/// The loss of a team of so many threads that wait for `waiting` seconds for each second of running.
fn of_team(waiting: f64, threads: u32) -> f64 {
    // A lone thread may wait for another process.
    1.0 - (1.0 - waiting.clamp(0.0, 1.0)).powf(f64::from(threads.max(2) - 1))
}

/// Returns the most that own waits that spin can lose in a quota, by the throttling that was seen.
pub fn in_quota(times: &ProcessTimes) -> f64 {
    let ProcessTimes { run_s, wait_s, throttled_s, .. } = *times;
    let all_but_one = 1.0 - 1.0 / f64::from(times.threads.max(2));
    if throttled_s > 0.0 { (throttled_s / (run_s + wait_s + throttled_s)).min(all_but_one) } else { 0.0 }
}

/// The PE time that its quota would have permitted beyond what it ran; `None` without a quota.
fn left_of_quota(times: &ProcessTimes) -> Option<f64> {
    if times.throttled_s > 0.0 {
        return Some(0.0);
    }
    times.permitted_s.map(|permitted_s| (permitted_s - times.run_s).max(0.0))
}

/// The losses of a process while its waits are short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Short {
    /// What is lost now.
    pub short: f64,
    /// What own waits would lose because others need the PEs.
    pub own: f64,
    /// What own waits would lose of its quota; `None` if that would do for all threads.
    pub own_in_quota: Option<f64>,
}

impl Short {
    /// Returns the losses over a time; `None` if blocks or idle time are unknown.
    pub fn of(times: &ProcessTimes, waits: IdleWaits, costs: &Switching) -> Option<Short> {
        let (timeslices, idle_s) = (times.timeslices?, times.idle_s?);
        let never_block = waits.contains(IdleWait::MayYield) && !waits.contains(IdleWait::Adaptable);
        let blocks = if never_block { 0.0 } else { timeslices };
        let wake_ups_s = blocks * costs.wake_up.as_secs_f64();
        // While a PE leaves an idle state, it is not idle, but the thread still waits.
        let waking_s = times.wait_s.min(wake_ups_s).min(idle_s);
        let available_s = times.run_s + idle_s + waking_s;
        if available_s <= 0.0 {
            return None;
        }
        let left_s = left_of_quota(times);
        let late_s = (idle_s.min(wake_ups_s + times.wait_s) + waking_s).min(left_s.unwrap_or(f64::INFINITY));
        let short =
            (blocks * costs.block.as_secs_f64() + late_s) / (times.run_s + late_s).max(f64::MIN_POSITIVE);
        let wanted_s = f64::from(times.threads) * times.elapsed_s;
        let step_s = times.run_s / blocks.max(1.0);
        let slice_s = costs.slice.as_secs_f64();
        // What a quota stops nobody else keeps from its PEs.
        let waiting = (wanted_s - times.throttled_s - available_s) / available_s;
        let own = of_team(waiting, times.threads) * slice_s / (slice_s + step_s);
        let unpaid = left_s.map(|left_s| 1.0 - (times.run_s + left_s) / wanted_s);
        let unpaid = unpaid.filter(|&share| share > 0.0 && waits.contains(IdleWait::Adaptable));
        let own_in_quota = unpaid.map(|unpaid| rest(times, wake_ups_s).min(unpaid));
        Some(Short { short: short.min(1.0), own, own_in_quota })
    }
}

/// The share of the time in which its quota did not stop them that threads slept, but for so long while
/// others woke up, when they would not have waited at all.
fn rest(times: &ProcessTimes, wake_ups_s: f64) -> f64 {
    let ProcessTimes { run_s, wait_s, elapsed_s, stopped_s, .. } = *times;
    let wanted_s = f64::from(times.threads) * (elapsed_s - stopped_s).max(0.0);
    ((wanted_s - run_s - wait_s - wake_ups_s) / wanted_s.max(f64::MIN_POSITIVE)).max(0.0)
}

/// Returns the share of a process's CPU time that blocks and wake-ups cost.
pub fn by_blocks(times: &ProcessTimes, costs: &Switching) -> f64 {
    let cost_s = times.timeslices.unwrap_or(0.0) * costs.block.as_secs_f64();
    if times.run_s > 0.0 { (cost_s / times.run_s).min(1.0) } else { 0.0 }
}

/// What clock samples have shown of the threads of a process so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples(HashMap<ThreadId, Counts>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    all: u64,
    spinning: u64,
    yielding: u64,
    kernel: u64,
}

impl<'a> FromIterator<(ThreadId, &'a SampleReading)> for Samples {
    fn from_iter<I: IntoIterator<Item = (ThreadId, &'a SampleReading)>>(readings: I) -> Samples {
        let counts = |(thread, reading): (ThreadId, &SampleReading)| {
            let SampleReading { judged, spinning, yielding, kernel, unknown, .. } = *reading;
            let all = judged + spinning + kernel + unknown;
            (thread, Counts { all, spinning, yielding, kernel })
        };
        Samples(readings.into_iter().map(counts).collect())
    }
}

/// What samples show between two instants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledLoss {
    /// The number of samples.
    pub samples: u64,
    /// The share in which threads spun. Yielding is no loss: a thread that needs the PE gets it.
    pub spinning: f64,
    /// The share in which threads were in the kernel.
    pub kernel: f64,
}

impl Samples {
    /// Returns whether no thread has samples.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(|counts| counts.all == 0)
    }

    /// Returns what was seen since earlier samples, of all threads together: an idle thread has no samples.
    pub fn since(&self, before: &Samples, waits: IdleWaits) -> SampledLoss {
        let (mut all, mut spinning, mut kernel) = (0, 0u64, 0);
        for (thread, now) in &self.0 {
            let before = before.0.get(thread).copied().unwrap_or_default();
            all += now.all.saturating_sub(before.all);
            spinning += now.spinning.saturating_sub(before.spinning);
            kernel += now.kernel.saturating_sub(before.kernel);
            if waits.may_yield() {
                spinning = spinning.saturating_sub(now.yielding.saturating_sub(before.yielding));
            }
        }
        let share = |of: u64| of as f64 / all.max(1) as f64;
        SampledLoss { samples: all, spinning: share(spinning), kernel: share(kernel) }
    }
}

impl SampledLoss {
    /// Returns the loss of a process that blocks as these times show: spinning, and the kernel's part as far
    /// as blocks explain it.
    pub fn total(&self, times: &ProcessTimes, costs: &Switching) -> f64 {
        self.spinning + self.kernel.min(KERNEL_BY_BLOCKS_MAX * by_blocks(times, costs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of `threads` threads on two PEs.
    fn second(threads: u32, run_s: f64, wait_s: f64) -> ProcessTimes {
        ProcessTimes { elapsed_s: 1.0, threads, run_s, wait_s, ..ProcessTimes::default() }
    }

    fn short(threads: u32, run_s: f64, idle_s: f64, blocks: f64) -> Short {
        let times = second(threads, run_s, 0.0);
        let times = ProcessTimes { timeslices: Some(blocks), idle_s: Some(idle_s), ..times };
        Short::of(&times, IdleWait::Adaptable.into(), &Switching::default()).unwrap()
    }

    fn close(value: f64, expected: f64) -> bool {
        (value - expected).abs() < 0.015
    }

    #[test]
    fn a_team_loses_what_its_slowest_thread_waits() {
        assert_eq!(of_own_waits(&second(2, 2.0, 0.0)), 0.0);
        assert!(close(of_own_waits(&second(2, 1.5, 0.3)), 0.2));
        assert!(close(of_own_waits(&second(2, 1.0, 1.0)), 1.0), "every PE is wanted twice");
        assert!(close(of_own_waits(&second(64, 63.0, 1.0)), 0.64), "one PE is shared, all threads wait");
        assert_eq!(of_own_waits(&second(1, 0.5, 0.5)), 1.0, "one thread may wait for another process");
    }

    #[test]
    fn alone_own_waits_lose_nothing_and_short_ones_do() {
        let Short { short, own, .. } = short(2, 1.4, 0.6, 40_000.0);
        assert!(own < 0.01 && close(short, (0.2 + 0.6) / 2.0), "{short} {own}");
    }

    #[test]
    fn beside_others_short_waits_lose_less() {
        let a_copy = short(2, 1.0, 0.0, 20_000.0);
        assert!(close(a_copy.short, 0.1) && close(a_copy.own, 0.98), "{a_copy:?}");
        let beside_a_busy_thread = short(2, 1.3, 0.03, 20_000.0);
        assert!(beside_a_busy_thread.short + 0.2 < beside_a_busy_thread.own, "{beside_a_busy_thread:?}");
        let beside_a_disturbance = short(2, 1.2, 0.36, 40_000.0);
        assert!(beside_a_disturbance.short > beside_a_disturbance.own, "{beside_a_disturbance:?}");
        let of_long_steps = short(2, 1.0, 0.0, 30.0);
        assert!(of_long_steps.own < 0.1, "{of_long_steps:?}");
    }

    #[test]
    fn a_quota_loses_at_most_what_it_stops_and_what_all_threads_but_one_may_spin() {
        let of = |throttled_s| in_quota(&ProcessTimes { throttled_s, ..second(2, 1.0, 0.0) });
        assert_eq!(of(0.0), 0.0);
        assert!(close(of(0.25), 0.2) && close(of(3.0), 0.5), "{} {}", of(0.25), of(3.0));
    }

    #[test]
    fn in_a_quota_own_waits_lose_what_threads_rest_and_the_quota_does_not_pay_for() {
        let of = |run_s: f64, throttled_s, permitted_s, blocks| {
            let (timeslices, idle_s) = (Some(blocks), Some(2.0 - run_s));
            let stopped_s = throttled_s / 1.5;
            let times = ProcessTimes { throttled_s, stopped_s, permitted_s, ..second(2, run_s, 0.0) };
            let times = ProcessTimes { timeslices, idle_s, ..times };
            Short::of(&times, IdleWait::Adaptable.into(), &Switching::default()).unwrap()
        };
        let half_serial = of(1.0, 0.5, Some(1.0), 100.0);
        assert!(
            close(half_serial.own_in_quota.unwrap(), 0.25) && half_serial.short < 0.01,
            "{half_serial:?}"
        );
        assert_eq!(half_serial.own, 0.0, "nobody else needs the PEs");
        let by_a_stopped_neighbour = of(0.6, 0.9, Some(1.0), 100.0);
        assert!(close(by_a_stopped_neighbour.own_in_quota.unwrap(), 0.25), "{by_a_stopped_neighbour:?}");
        let not_stopped = of(1.5, 0.0, Some(1.6), 100.0);
        assert!(close(not_stopped.own_in_quota.unwrap(), 0.2), "own waits would be: {not_stopped:?}");
        let enough = of(1.5, 0.0, Some(2.0), 100.0);
        assert_eq!(enough.own_in_quota, None, "the quota pays for all");
        let often = of(1.0, 0.8, Some(1.0), 60_000.0);
        assert!(often.short > 0.25 && often.own_in_quota == Some(0.0), "{often:?}");
        let rests_while_others_wake_up = of(1.0, 0.5, Some(1.0), 5_000.0);
        assert!(
            close(rests_while_others_wake_up.own_in_quota.unwrap(), 0.14),
            "{rests_while_others_wake_up:?}"
        );
        let unlimited = of(1.0, 0.0, None, 100.0);
        assert_eq!(unlimited.own_in_quota, None);
        assert!(unlimited.short > half_serial.short, "an idle PE beyond a quota is not lost");
    }

    #[test]
    fn threads_that_yield_do_not_block() {
        let times = ProcessTimes { timeslices: Some(1e5), idle_s: Some(0.0), ..second(1, 0.5, 0.5) };
        let of = |waits: IdleWait| Short::of(&times, waits.into(), &Switching::default()).unwrap().short;
        assert_eq!((of(IdleWait::MayYield), of(IdleWait::Adaptable)), (0.0, 1.0));
        let both = [IdleWait::MayYield, IdleWait::Adaptable].into_iter().collect();
        assert_eq!(
            Short::of(&times, both, &Switching::default()).unwrap().short,
            1.0,
            "those of the other library do"
        );
    }

    #[test]
    fn samples_are_counted_over_all_threads_and_yielding_is_no_loss() {
        let thread = |tid| ThreadId { tid, generation: 0 };
        let reading = |judged, spinning, yielding, kernel| SampleReading {
            judged,
            spinning,
            yielding,
            kernel,
            ..SampleReading::default()
        };
        let before: Samples = [(thread(1), &reading(10, 10, 0, 0))].into_iter().collect();
        let (first, second) = (reading(10, 40, 20, 10), reading(60, 0, 0, 0));
        let now: Samples = [(thread(1), &first), (thread(2), &second)].into_iter().collect();
        let loss = now.since(&before, IdleWait::Fixed.into());
        assert_eq!(loss, SampledLoss { samples: 100, spinning: 0.3, kernel: 0.1 });
        assert_eq!(now.since(&before, IdleWait::Yield.into()).spinning, 0.1);
        let often = ProcessTimes { run_s: 1.0, timeslices: Some(50_000.0), ..ProcessTimes::default() };
        assert!(close(loss.total(&often, &Switching::default()), 0.4));
        let rarely = ProcessTimes { timeslices: Some(100.0), ..often };
        assert!(close(loss.total(&rarely, &Switching::default()), 0.3), "page faults are no blocks");
    }
}
