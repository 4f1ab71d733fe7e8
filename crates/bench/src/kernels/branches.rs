//! The kernel of branches in unpredictable directions.
//!
//! A linear congruential generator (Knuth's MMIX) continues from chunk to chunk and never repeats a state;
//! its highest bit decides a branch over one instruction. Half of the branches are taken, so a predictor
//! mispredicts every second one, and the front end restarts. Unit: a branch decided; the branch that closes
//! the loop is not counted.

use super::measuring_loop::{Facts, Loop, Made};
use corewise_core::kernels::Kernel;
use std::arch::asm;
use std::sync::atomic::AtomicBool;

pub(super) const FACTS: &[Facts] =
    &[Facts { kernel: Kernel::Branches, bytes_read: 0, bytes_written: 0, operations: 1 }];

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

const BRANCHES_PER_ROUND: u64 = 8;
const ROUNDS: u64 = 400;

/// Prepares the kernel.
pub(super) fn prepare(kernel: Kernel) -> Option<Made> {
    (kernel == Kernel::Branches).then(|| Ok(Box::new(Branches { state: 1 }) as Box<dyn Loop>))
}

struct Branches {
    state: u64,
}

impl Loop for Branches {
    fn chunk(&mut self, _stop: &AtomicBool) -> f64 {
        (self.state, _) = branch(self.state, ROUNDS);
        (ROUNDS * BRANCHES_PER_ROUND) as f64
    }
}

/// Branches this many rounds; returns the generator's state and how often its highest bit was set.
fn branch(state: u64, rounds: u64) -> (u64, u64) {
    let mut state = state;
    let mut set = 0;
    // SAFETY: only registers are used.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept {per_round}",
            "imul {state}, {multiplier}",
            "add {state}, {increment}",
            "jns 3f",
            "inc {set}",
            "3:",
            ".endr",
            "dec {rounds}",
            "jnz 2b",
            state = inout(reg) state,
            set = inout(reg) set,
            multiplier = in(reg) MULTIPLIER,
            increment = in(reg) INCREMENT,
            rounds = inout(reg) rounds => _,
            per_round = const BRANCHES_PER_ROUND,
            options(nomem, nostack),
        );
    }
    // SAFETY: as for x86-64 above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept {per_round}",
            "madd {state}, {state}, {multiplier}, {increment}",
            "tbz {state}, #63, 3f",
            "add {set}, {set}, #1",
            "3:",
            ".endr",
            "subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            state = inout(reg) state,
            set = inout(reg) set,
            multiplier = in(reg) MULTIPLIER,
            increment = in(reg) INCREMENT,
            rounds = inout(reg) rounds => _,
            per_round = const BRANCHES_PER_ROUND,
            options(nomem, nostack),
        );
    }
    (state, set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_count_tell_the_branches() {
        for rounds in [1, 7, 1000] {
            let mut expected = (42u64, 0);
            for _ in 0..rounds * BRANCHES_PER_ROUND {
                expected.0 = expected.0.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
                expected.1 += expected.0 >> 63;
            }
            assert_eq!(branch(42, rounds), expected);
        }
    }

    #[test]
    fn half_of_the_branches_are_taken_and_neighbours_are_independent() {
        let (mut state, mut set, mut changes, mut before) = (1, 0, 0, 0);
        const BRANCHES: u64 = 80_000;
        for _ in 0..BRANCHES {
            state = MULTIPLIER.wrapping_mul(state).wrapping_add(INCREMENT);
            set += state >> 63;
            changes += (state >> 63) ^ before;
            before = state >> 63;
        }
        // Three standard deviations of a fair coin are 424.
        assert!(set.abs_diff(BRANCHES / 2) < 424 && changes.abs_diff(BRANCHES / 2) < 424, "{set}, {changes}");
    }
}
