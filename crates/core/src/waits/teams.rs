//! How many threads the teams of a program have that shares the machine with others (`--adapt-team`).
//!
//! Problem. A runtime library takes a thread for each PE. Where several programs share the machine, or a
//! control group has a quota, there are more threads than PEs: they wait for each other while some of them
//! have no PE.
//!
//! Approach. The program starts with its fair share of the PEs as the size (`OMP_NUM_THREADS`). The share is
//! max-min fair: each of the others gets a PE for each of its threads, but no program gets more than another
//! one that wants more; so what is idle is never left over. Each quota is divided in the same way, among
//! those that it limits; the least of all these shares counts.
//!
//! The size is chosen once, before the program can ask for it, and is never changed. A program that has
//! asked (`omp_get_max_threads`) relies on the answer: it divides its work among so many threads, waits for
//! the last one of them, and has memory for so many. A team that is smaller than the answer loses work, and
//! a larger one writes behind that memory. OpenMP permits smaller teams where dyn-var is true
//! (`OMP_DYNAMIC`), but larger ones never, and what was made smaller must be given back at some time. So
//! nothing changes there either. The sizes of OpenBLAS may change at any time by its documentation, but
//! threadpoolctl, and with it scikit-learn, saves the present size and restores it later: a program would
//! keep a reduced one for good.
//!
//! *Fast and slow PEs.* A loop in equal parts, one for each thread, ends with the part on the slowest PE, so
//! a team on the `k` fastest PEs does `k` times the work of the slowest of them. [`fastest`] takes the `k`
//! for which that is most: six fast PEs beside four of half their speed do more without these, four beside
//! twelve do not (Saez et al., arXiv 2402.07664, divide the loop itself by speeds, which only its library
//! can).
//!
//! Limits. What comes later is not known: a program keeps its size when others end, and when more begin. A
//! loop whose parts are handed out as threads ask for them is best on all PEs: the caller must know which.

use crate::cpuset::CpuSet;
use crate::ids::PeId;

/// What a program shares with others.
#[derive(Debug, Clone, PartialEq)]
pub struct Shared {
    /// The PEs, or the PEs whose time a quota permits.
    pub pes: f64,
    /// The threads that want a PE of each other program that shares them.
    pub others: Vec<usize>,
}

/// Returns the number of threads for a program that shares the machine's PEs and each quota that limits it.
pub fn size(shared: &[Shared]) -> usize {
    let shares = shared.iter().map(|Shared { pes, others }| fair_share(*pes, others));
    (shares.reduce(f64::min).unwrap_or(1.0).round() as usize).max(1)
}

/// Returns on which of these PEs a loop in equal parts ends first; `None` if it does so on all of them, or
/// if the speed of any is not known. Speeds are multiples of any unit.
pub fn fastest(pes: &CpuSet, speed: impl Fn(PeId) -> Option<f64>) -> Option<CpuSet> {
    let known = pes.iter().map(|pe| Some((speed(pe)?, pe)));
    let mut fastest_first: Vec<(f64, PeId)> = known.collect::<Option<_>>()?;
    fastest_first.sort_by(|a, b| b.0.total_cmp(&a.0));
    // Of equals the last is taken, which is the larger team.
    let work = (1u32..).zip(&fastest_first).map(|(count, (slowest, _))| (f64::from(count) * slowest, count));
    let (_, count) = work.max_by(|a, b| a.0.total_cmp(&b.0))?;
    let team: CpuSet = fastest_first.iter().take(count as usize).map(|(_, pe)| *pe).collect();
    (team != *pes).then_some(team)
}

/// The PEs that are left for one more program that wants all of them.
fn fair_share(pes: f64, others: &[usize]) -> f64 {
    let mut demands = others.to_vec();
    demands.sort_unstable();
    let (mut left, mut programs) = (pes, others.len() + 1);
    for demand in demands {
        if demand as f64 >= left / programs as f64 {
            break;
        }
        (left, programs) = (left - demand as f64, programs - 1);
    }
    left / programs as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(pes: f64, others: &[usize]) -> Shared {
        Shared { pes, others: others.to_vec() }
    }

    #[test]
    fn a_program_gets_what_is_idle_and_never_less_than_its_equal_part() {
        let check = |pes, others: &[usize], expected| {
            assert_eq!(size(&[shared(pes, others)]), expected, "{pes} PEs beside {others:?}");
        };
        check(8.0, &[], 8);
        check(8.0, &[1], 7);
        check(8.0, &[3, 1], 4);
        check(8.0, &[8], 4);
        check(64.0, &[64], 32);
        check(64.0, &[500], 32);
        check(8.0, &[1, 8], 4); // 3.5 each for it and the larger one.
        check(8.0, &[1; 8], 1);
        check(2.0, &[1], 1);
        check(2.0, &[1, 1, 1, 1], 1);
        check(1.0, &[], 1);
    }

    #[test]
    fn a_team_leaves_slow_pes_out_where_they_cost_more_than_they_do() {
        let check = |fast: u32, slow: u32, speed: f64, expected: Option<u32>| {
            let of = |pe: PeId| Some(if pe.0 < fast { 1.0 } else { speed });
            let found = fastest(&CpuSet::first_n(fast + slow), of);
            assert_eq!(found, expected.map(CpuSet::first_n), "{fast} fast, {slow} at {speed}");
        };
        check(6, 4, 0.5, Some(6));
        check(4, 12, 0.5, None);
        check(8, 8, 0.6, None);
        check(8, 8, 0.4, Some(8));
        check(1, 1, 0.5, None); // As good, and others may need the threads.
        check(8, 0, 0.5, None);
    }

    #[test]
    fn of_three_kinds_the_best_team_may_hold_two_and_without_speeds_it_holds_all() {
        let speeds = [0.3, 1.0, 0.8, 0.8, 0.3];
        let pes = CpuSet::first_n(5);
        let found = fastest(&pes, |pe| Some(speeds[pe.0 as usize]));
        assert_eq!(found, Some("1-3".parse().unwrap()));
        assert_eq!(fastest(&pes, |pe| (pe.0 > 0).then_some(1.0)), None);
        assert_eq!(fastest(&CpuSet::new(), |_| None), None);
    }

    #[test]
    fn quotas_limit_it_too_and_are_divided_among_the_programs_in_them() {
        let of = |quota, others: &[usize], in_quota: &[usize]| {
            size(&[shared(8.0, others), shared(quota, in_quota)])
        };
        assert_eq!(of(2.0, &[], &[]), 2);
        assert_eq!(of(1.5, &[], &[]), 2, "a half is worth a thread");
        assert_eq!(of(0.2, &[], &[]), 1);
        assert_eq!(of(6.0, &[8], &[]), 4);
        assert_eq!(of(6.0, &[8], &[8]), 3);
        assert_eq!(size(&[shared(64.0, &[]), shared(8.0, &[2, 1]), shared(4.0, &[2])]), 2, "the least share");
    }
}
