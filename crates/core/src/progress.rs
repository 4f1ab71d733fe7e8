//! The speed of a thread, from how often it passes points of its own code.
//!
//! Problem. Without a PMU nothing shows how much an unmodified thread does. But most programs pass some place
//! of their code, the head of a loop or the return from a call, again and again, with the same work in
//! between. The rate at which such a point is passed is the thread's speed, up to a factor that cancels out
//! relative to a baseline. Which place is suitable is not known beforehand, and a point with varying work
//! would look like a change of speed.
//!
//! Approach. Several points are counted for a while, in slices of some 100 ms ([`choose`]). A point is
//! suitable if it is passed neither too rarely for a result nor so often that counting costs too much, and
//! if its passes per CPU time are steady. If the machine itself changes its speed meanwhile, rates change,
//! but the *ratios* of points stay the same: a second point, the *companion*, then shows that the first is
//! suitable. Later ([`ratio`]), rates are passes per time in which the thread wanted to run (on a PE or in
//! the queue), and the companion must still keep pace. If it does not, the program does something else, and
//! the result is "unknown". Without a companion it is unknown, too, once the passes per CPU time have
//! changed much.
//!
//! Source. Counting heartbeats for progress: Hoffmann et al., "Application Heartbeats" (ICAC 2010), where the
//! program reports them; intervals of a ratio of sums by linearisation (Cochran, "Sampling Techniques", ch.
//! 6).
//!
//! Limits. A program whose work per pass changes by the same factor at both points is not distinguished from
//! one whose speed changes. Time asleep does not count: a thread that waits for others is not slow by this
//! measure.

use crate::stats::{Interval, t_quantile_975};

/// The minimum of passes per second for a useful result.
pub const RATE_MIN: f64 = 20.0;

/// The maximum of passes per second: counting more may cost more than 0.5 %, because a pass costs a
/// microsecond and more.
pub const RATE_MAX: f64 = 3000.0;

/// The maximum of passes per second of all points together. Counting more would slow the program down so much
/// that it affects the result: some 2 %.
const TOGETHER_MAX: f64 = 4.0 * RATE_MAX;

/// The minimum CPU time for a judgement, in seconds.
const CPU_MIN_S: f64 = 0.1;

/// The minimum number of slices for a judgement.
pub const SLICES_MIN: usize = 8;

/// The tolerance for a steady point: for the relative difference between both halves of its slices, and for
/// the half width of its mean's interval.
const STEADY: f64 = 0.1;

/// The same tolerance, for two points that keep pace with each other.
const IN_PACE: f64 = 0.04;

/// Below this number of passes, one more or less at either end of an interval is an error of more than 5 %.
const PASSES_MIN: f64 = 20.0;

/// A larger change of the passes per CPU time is not caused by the machine.
const DRIFT_MAX: f64 = 2.0;

/// The same for a point without a companion: a larger change may be one of the machine or of the work.
const ALONE_MAX: f64 = 1.2;

/// A stretch of one thread's life.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    /// Time on a PE, in seconds.
    pub cpu_s: f64,
    /// Time on a PE or in the queue for one, in seconds.
    pub wanted_s: f64,
    /// How often each point was passed.
    pub passes: Vec<u64>,
}

/// The points that measure the progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The index of the counted point.
    pub point: usize,
    /// The companion, which must keep pace with it, if there is one.
    pub companion: Option<usize>,
}

/// Why the speed is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The thread hardly ran.
    #[error("the thread hardly ran")]
    Idle,
    /// No point is passed often enough, and not too often.
    #[error("it passes no point at a rate that can be counted")]
    NoPoint,
    /// There are points, but their rates vary.
    #[error("it passes no point at a steady rate")]
    Wanders,
    /// The chosen point is no longer passed as it was.
    #[error("it does something else now")]
    OtherPhase,
    /// Its only point is passed at another rate.
    #[error("its pace has changed, and there is no second point to show whether its work has")]
    Alone,
    /// The counts leave open whether it still does the same.
    #[error("too few passes were counted")]
    TooLittle,
}

/// Returns the indices of the points that may be counted at the same time: the rarest ones. Each alone costs
/// little, but many slow the program down, and then all look rarer than they are.
pub fn affordable(rates: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rates.len()).collect();
    order.sort_by(|&a, &b| rates[a].total_cmp(&rates[b]));
    let mut together = 0.0;
    order.retain(|&point| {
        together += rates[point];
        together <= TOGETHER_MAX
    });
    order.sort_unstable();
    order
}

/// Returns the point that is passed most often at a rate that can be counted, and the CPU time between two
/// passes, in nanoseconds. All points must have been counted in each slice.
///
/// How steadily the point is passed does not matter to [the guard](crate::guard), which compares rates in
/// pairs in random order: a varying rate makes noise there, not errors, and few passes in a short epoch make
/// more noise.
pub fn most_passed(slices: &[Slice]) -> Option<(usize, f64)> {
    let ran: Vec<&Slice> = slices.iter().filter(|slice| slice.cpu_s > 0.0).collect();
    let cpu_s: f64 = ran.iter().map(|slice| slice.cpu_s).sum();
    let points = slices.iter().map(|slice| slice.passes.len()).max().unwrap_or(0);
    let rates = (0..points).map(|point| (point, sum(&ran, point) / cpu_s));
    let fit = rates.filter(|(_, rate)| (RATE_MIN..=RATE_MAX).contains(rate));
    let (point, rate) = fit.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    Some((point, 1e9 / rate))
}

/// Chooses among points that were all counted in each slice.
pub fn choose(slices: &[Slice]) -> Result<Choice, Unknown> {
    let ran: Vec<&Slice> = slices.iter().filter(|slice| slice.cpu_s > 0.0).collect();
    let cpu_s: f64 = ran.iter().map(|slice| slice.cpu_s).sum();
    let points = slices.iter().map(|slice| slice.passes.len()).max().unwrap_or(0);
    if ran.len() < SLICES_MIN || cpu_s < CPU_MIN_S {
        return Err(Unknown::Idle);
    }
    let rate = |point: usize| sum(&ran, point) / cpu_s;
    let fit: Vec<usize> = (0..points).filter(|&point| (RATE_MIN..=RATE_MAX).contains(&rate(point))).collect();
    if fit.is_empty() {
        return Err(Unknown::NoPoint);
    }
    let spread_of = |point| spread(&pairs(&ran, |slice| (count(slice, point), slice.cpu_s)));
    // In a second, one pass more or less at either end may be counted.
    let error_of = |point| spread_of(point).max(2.0 / rate(point));
    let mut errors: Vec<(f64, usize)> = fit.into_iter().map(|point| (error_of(point), point)).collect();
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let fit: Vec<usize> = errors.into_iter().map(|(_, point)| point).collect();
    // Points with equal rates are the same point for this purpose: one always follows the other.
    let is_another = |a: usize, b: usize| (rate(a) / rate(b)).ln().abs() > 0.02;
    let in_pace = |a: usize, b: usize| {
        is_another(a, b) && spread(&pairs(&ran, |slice| (count(slice, a), count(slice, b)))) <= IN_PACE
    };
    let companion_of = |point: usize| fit.iter().copied().find(|&other| in_pace(point, other));
    let vouched = fit.iter().find_map(|&point| Some(Choice { point, companion: Some(companion_of(point)?) }));
    let steady = || fit.iter().find(|&&point| spread_of(point) <= STEADY);
    let choice = vouched.filter(|choice| drift(&ran, choice.point) <= DRIFT_MAX);
    choice.or_else(|| Some(Choice { point: *steady()?, companion: None })).ok_or(Unknown::Wanders)
}

/// Returns the speed in `now` over that in the `baseline`, with its interval of 95 %. The slices of both
/// contain the counts of the chosen points.
pub fn ratio(choice: Choice, baseline: &[Slice], now: &[Slice]) -> Result<Interval, Unknown> {
    let both = [baseline, now].map(|slices| slices.iter().collect::<Vec<_>>());
    if both.iter().any(|slices| slices.iter().filter(|slice| slice.cpu_s > 0.0).count() < SLICES_MIN) {
        return Err(Unknown::Idle);
    }
    let per_cpu = both
        .each_ref()
        .map(|slices| sum(slices, choice.point) / slices.iter().map(|slice| slice.cpu_s).sum::<f64>());
    if !within(per_cpu[1] / per_cpu[0], DRIFT_MAX) {
        return Err(Unknown::OtherPhase);
    }
    if choice.companion.is_none() && !within(per_cpu[1] / per_cpu[0], ALONE_MAX) {
        return Err(Unknown::Alone);
    }
    // So few passes do not even show whether the point is still passed.
    let passes = sum(&both[1], choice.point);
    if 0.0 < passes && passes < PASSES_MIN {
        return Err(Unknown::TooLittle);
    }
    let mut doubt = 0.0;
    if let Some(companion) = choice.companion {
        let mix = both.each_ref().map(|slices| {
            Quotient::of(&pairs(slices, |slice| (count(slice, choice.point), count(slice, companion))))
        });
        let change = mix[1].over(&mix[0]);
        // It must keep pace, and with enough passes to show it.
        if change.low > 1.0 + IN_PACE || change.high < 1.0 - IN_PACE {
            return Err(Unknown::OtherPhase);
        }
        if change.high - change.low > 4.0 * IN_PACE || change.value.is_nan() {
            return Err(Unknown::TooLittle);
        }
        // Either of the two may be wrong by their difference.
        doubt = (change.value - 1.0).abs();
    }
    let rates = both
        .each_ref()
        .map(|slices| Quotient::of(&pairs(slices, |slice| (count(slice, choice.point), slice.wanted_s))));
    let speed = rates[1].over(&rates[0]);
    let doubt = doubt * speed.value;
    Ok(Interval { low: speed.low - doubt, high: speed.high + doubt, ..speed })
}

fn within(change: f64, factor: f64) -> bool {
    (1.0 / factor..=factor).contains(&change)
}

fn count(slice: &Slice, point: usize) -> f64 {
    slice.passes.get(point).map_or(0.0, |&passes| passes as f64)
}

fn sum(slices: &[&Slice], point: usize) -> f64 {
    slices.iter().map(|slice| count(slice, point)).sum()
}

fn pairs(slices: &[&Slice], pair: impl Fn(&Slice) -> (f64, f64)) -> Vec<(f64, f64)> {
    slices.iter().map(|slice| pair(slice)).collect()
}

/// Returns how unsteady a quotient is, relatively: the difference between both halves of the slices, or the
/// half width of the interval, whichever is larger.
fn spread(pairs: &[(f64, f64)]) -> f64 {
    let (first, second) = pairs.split_at(pairs.len() / 2);
    let halves = Quotient::of(second).value / Quotient::of(first).value;
    let whole = Quotient::of(pairs);
    let width = t_quantile_975(whole.degrees) * whole.relative_error;
    let spread = halves.ln().abs().max(width);
    if spread.is_nan() { f64::INFINITY } else { spread }
}

/// Returns the factor by which the passes per CPU time differ between blocks.
fn drift(slices: &[&Slice], point: usize) -> f64 {
    let blocks = blocks(&pairs(slices, |slice| (count(slice, point), slice.cpu_s)));
    let rates = || blocks.iter().map(|(passes, cpu_s)| passes / cpu_s);
    rates().fold(0.0, f64::max) / rates().fold(f64::INFINITY, f64::min)
}

/// Joins the slices into [`SLICES_MIN`] blocks of equal length, because successive slices are similar and the
/// kernel reports their times in ticks.
fn blocks(pairs: &[(f64, f64)]) -> Vec<(f64, f64)> {
    pairs.chunks_exact((pairs.len() / SLICES_MIN).max(1)).map(total).collect()
}

fn total(pairs: &[(f64, f64)]) -> (f64, f64) {
    pairs.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1))
}

/// A sum over a sum, with its relative standard error.
struct Quotient {
    value: f64,
    relative_error: f64,
    degrees: usize,
    count: usize,
}

impl Quotient {
    fn of(pairs: &[(f64, f64)]) -> Quotient {
        let blocks = blocks(pairs);
        let (above, below) = total(&blocks);
        let value = above / below;
        let squares: f64 = blocks.iter().map(|(a, b)| (a - value * b).powi(2)).sum();
        let n = blocks.len() as f64;
        // A count is known to one pass at best.
        let error = (n / (n - 1.0) * squares).sqrt().max(1.0);
        let degrees = blocks.len().saturating_sub(1).max(1);
        Quotient { value, relative_error: error / above, degrees, count: pairs.len() }
    }

    fn over(&self, baseline: &Quotient) -> Interval {
        let value = self.value / baseline.value;
        let error = value * self.relative_error.hypot(baseline.relative_error);
        Interval::around(value, error, self.degrees.min(baseline.degrees), self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Slices of 100 ms. Each point is passed that often per unit of work; `speed` is the work per second of
    /// CPU time in a slice, `share` the share of the time that the thread gets.
    fn slices(seed: u64, count: u32, points: &[f64], share: f64, speed: impl Fn(u32) -> f64) -> Vec<Slice> {
        let mut random = Random::new(seed, 0);
        let slice = |index| {
            let cpu_s = 0.1 * share;
            let passes = points.iter().map(|per_work| {
                // Up to a pass more or less at each end of the slice.
                (per_work * cpu_s * speed(index) + random.unit() * 2.0 - 1.0).round().max(0.0) as u64
            });
            Slice { cpu_s, wanted_s: 0.1, passes: passes.collect() }
        };
        (0..count).map(slice).collect()
    }

    #[test]
    fn for_pairs_the_most_frequent_affordable_point_is_counted() {
        let found = most_passed(&slices(1, 40, &[5.0, 900.0, 4500.0, 200.0], 1.0, |_| 1.0));
        let (point, ns) = found.unwrap();
        assert!(point == 1 && (ns / 1e9 * 900.0 - 1.0).abs() < 0.01, "{found:?}");
        assert_eq!(most_passed(&slices(1, 40, &[5.0, 4500.0], 1.0, |_| 1.0)), None);
        assert_eq!(most_passed(&[]), None);
    }

    #[test]
    fn many_points_at_once_are_counted_only_if_they_cost_little_together() {
        assert_eq!(affordable(&[5_000.0, 0.0, 6_000.0, 900.0, 5_500.0]), [0, 1, 3, 4]);
        assert_eq!(affordable(&[13_000.0]), [0; 0]);
        assert_eq!(affordable(&[3_000.0; 9]).len(), 4);
    }

    #[test]
    fn a_steady_point_is_chosen_and_tells_the_share_of_the_time() {
        let before = slices(1, 30, &[3.0, 800.0, 90_000.0], 1.0, |_| 1.0);
        let choice = choose(&before).unwrap();
        assert_eq!(choice, Choice { point: 1, companion: None });
        for share in [0.5, 0.7, 0.9, 1.0] {
            let now = slices(2, 30, &[3.0, 800.0, 90_000.0], share, |_| 1.0);
            let ratio = ratio(choice, &before, &now).unwrap();
            assert!(ratio.low <= share && share <= ratio.high, "{share}: {ratio:?}");
            assert!(ratio.high - ratio.low < 0.05, "{share}: {ratio:?}");
        }
    }

    #[test]
    fn a_machine_that_changes_its_speed_makes_no_point_unfit_where_another_vouches() {
        let drifting = |index: u32| if index < 15 { 1.0 } else { 0.7 };
        let one = slices(1, 30, &[800.0], 1.0, drifting);
        assert_eq!(choose(&one), Err(Unknown::Wanders));
        let two = slices(1, 30, &[800.0, 300.0], 1.0, drifting);
        let choice = choose(&two).unwrap();
        assert!(choice.companion.is_some(), "{choice:?}");
        let now = slices(2, 30, &[800.0, 300.0], 1.0, |_| 0.85);
        let ratio = ratio(choice, &two, &now).unwrap();
        assert!((ratio.value - 1.0).abs() < 0.03 && ratio.low < 1.0 && ratio.high > 1.0, "{ratio:?}");
    }

    #[test]
    fn a_point_alone_does_not_tell_the_machine_from_the_work() {
        let choice = Choice { point: 0, companion: None };
        let at = |seed, speed: f64| slices(seed, 30, &[800.0, 300.0], 0.5, move |_| speed);
        assert!(ratio(choice, &at(1, 1.0), &at(2, 0.9)).is_ok());
        assert_eq!(ratio(choice, &at(1, 1.0), &at(2, 0.6)), Err(Unknown::Alone));
        let vouched = ratio(Choice { companion: Some(1), ..choice }, &at(1, 1.0), &at(2, 0.6)).unwrap();
        assert!((vouched.value - 0.6).abs() < 0.03, "{vouched:?}");
    }

    #[test]
    fn another_phase_is_unknown_and_no_change_of_speed() {
        let before = slices(1, 30, &[800.0, 300.0], 1.0, |_| 1.0);
        let choice = choose(&before).unwrap();
        let other = slices(2, 30, &[640.0, 330.0], 1.0, |_| 1.0);
        assert_eq!(ratio(choice, &before, &other), Err(Unknown::OtherPhase));
        let gone = slices(2, 30, &[0.0, 0.0], 1.0, |_| 1.0);
        assert_eq!(ratio(choice, &before, &gone), Err(Unknown::OtherPhase));
        let asleep = slices(2, 4, &[800.0, 300.0], 1.0, |_| 1.0);
        assert_eq!(ratio(choice, &before, &asleep), Err(Unknown::Idle));
    }

    #[test]
    fn points_that_hardly_keep_pace_are_doubted_and_noisy_ones_tell_nothing_yet() {
        let before = slices(1, 40, &[2000.0, 700.0], 1.0, |_| 1.0);
        let choice = Choice { point: 0, companion: Some(1) };
        let now = slices(2, 40, &[2000.0, 728.0], 1.0, |_| 1.0);
        let doubted = ratio(choice, &before, &now).unwrap();
        assert!(doubted.high - 1.0 > 0.03 && 1.0 - doubted.low > 0.03, "{doubted:?}");
        let alone = Choice { point: 0, companion: None };
        let rare = |seed, count| slices(seed, count, &[18.0], 1.0, |_| 1.0);
        assert_eq!(ratio(alone, &rare(1, 40), &rare(2, 10)), Err(Unknown::TooLittle));
        assert!(ratio(alone, &rare(1, 40), &rare(2, 20)).is_ok());
        // Whether a companion that comes in bursts keeps pace is only known after a while.
        let mut bursts = slices(2, 80, &[2000.0, 700.0], 1.0, |_| 1.0);
        for (index, slice) in bursts.iter_mut().enumerate() {
            slice.passes[1] = if index % 5 == 0 { 350 } else { 0 };
        }
        assert_eq!(ratio(choice, &before, &bursts[..10]), Err(Unknown::TooLittle));
        assert!(ratio(choice, &before, &bursts).is_ok());
    }

    #[test]
    fn an_uninformative_point_is_not_chosen() {
        assert_eq!(choose(&[]), Err(Unknown::Idle));
        assert_eq!(choose(&slices(1, 30, &[2.0, 1e6], 1.0, |_| 1.0)), Err(Unknown::NoPoint));
        let wandering = slices(1, 30, &[800.0], 1.0, |index| 1.0 + f64::from(index) / 20.0);
        assert_eq!(choose(&wandering), Err(Unknown::Wanders));
        // Both points are the same loop: no companion.
        let twins = slices(1, 30, &[800.0, 800.0], 1.0, |index| if index < 15 { 1.0 } else { 0.7 });
        assert_eq!(choose(&twins), Err(Unknown::Wanders));
    }
}
