//! How many threads the teams of a program have that shares the machine with others (`--adapt-team`).
//!
//! Problem. A runtime library takes a thread for each PE. Where several programs share the machine, or a
//! control group has a quota, there are more threads than PEs: they wait for each other while some of them
//! have no PE.
//!
//! Approach. The program starts with its fair share of the PEs as the size (`OMP_NUM_THREADS`). The share is
//! max-min fair: each of the others gets a PE for each of its threads, but no program gets more than another
//! one that wants more; so what is idle is never left over.
//!
//! The size is chosen once, before the program can ask for it, and is never changed. A program that has asked
//! (`omp_get_max_threads`) relies on the answer: it divides its work among so many threads, waits for the
//! last one of them, and has memory for so many. A team that is smaller than the answer loses work, and a
//! larger one writes behind that memory. OpenMP permits smaller teams where dyn-var is true
//! (`OMP_DYNAMIC`), but larger ones never, and what was made smaller must be given back at some time. So
//! nothing changes there either. The sizes of OpenBLAS may change at any time by its documentation, but
//! threadpoolctl, and with it scikit-learn, saves the present size and restores it later: a program would
//! keep a reduced one for good.
//!
//! Limits. What comes later is not known: a program keeps its size when others end, and when more begin.

/// Returns the number of threads for a program on so many PEs, of whose time its quota permits so many,
/// beside other programs with so many threads each that want a PE.
pub fn size(pes: usize, quota: Option<f64>, others: &[usize]) -> usize {
    let share = fair_share(pes, others);
    let permitted = quota.map_or(share, |quota| share.min(quota));
    (permitted.round() as usize).max(1)
}

/// The PEs that are left for one more program that wants all of them.
fn fair_share(pes: usize, others: &[usize]) -> f64 {
    let mut demands = others.to_vec();
    demands.sort_unstable();
    let (mut left, mut programs) = (pes as f64, others.len() + 1);
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

    #[test]
    fn a_program_gets_what_is_idle_and_never_less_than_its_equal_part() {
        let check = |pes, others: &[usize], expected| {
            assert_eq!(size(pes, None, others), expected, "{pes} PEs beside {others:?}");
        };
        check(8, &[], 8);
        check(8, &[1], 7);
        check(8, &[3, 1], 4);
        check(8, &[8], 4);
        check(64, &[64], 32);
        check(64, &[500], 32);
        check(8, &[1, 8], 4); // 3.5 each for it and the larger one.
        check(8, &[1; 8], 1);
        check(2, &[1], 1);
        check(2, &[1, 1, 1, 1], 1);
        check(1, &[], 1);
    }

    #[test]
    fn a_quota_limits_it_too() {
        assert_eq!(size(8, Some(2.0), &[]), 2);
        assert_eq!(size(8, Some(1.5), &[]), 2, "a half is worth a thread");
        assert_eq!(size(8, Some(0.2), &[]), 1);
        assert_eq!(size(8, Some(6.0), &[8]), 4);
    }
}
