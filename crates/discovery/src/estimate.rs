//! How parallel an application was between two looks, as far as the times of its threads tell.

/// Estimates how long at least one and how long exactly one thread was runnable in an interval, from the
/// runnable time of each thread and the number of runnable threads at the end.
///
/// The state at the end stands for the whole interval, which is correct on average. Certain bounds from the
/// times correct it: at least one thread was runnable for as long as the busiest was (`first`) and for no
/// longer than all together (`sum`). Of the active time, at least `2·active - sum` had exactly one, since the
/// rest had two or more; and the busiest two overlapped for at least `first + second - elapsed`.
pub(super) fn estimate(runnable_ns: &[u64], runnable_now: u32, elapsed_ns: u64) -> (u64, u64) {
    let (mut first, mut second, mut sum) = (0, 0, 0u64);
    for &ns in runnable_ns {
        let ns = ns.min(elapsed_ns);
        sum += ns;
        if ns > first {
            (first, second) = (ns, first);
        } else {
            second = second.max(ns);
        }
    }
    let seen_active = if runnable_now > 0 { elapsed_ns } else { 0 };
    let active = seen_active.clamp(first, sum.min(elapsed_ns));
    let least = (2 * active).saturating_sub(sum);
    let most = active - (first + second).saturating_sub(elapsed_ns);
    let seen_sequential = if runnable_now == 1 { active } else { 0 };
    (active, seen_sequential.clamp(least.min(most), most))
}
