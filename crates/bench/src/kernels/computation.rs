//! Kernels of computation: additions and divisions that saturate the integer or the floating-point units from
//! registers alone (interdependencies, §3.3).
//!
//! Unit: one addition or division of 64-bit integers or double-precision numbers. The independent kernels
//! keep as many results under way as the widest units known can take: eight integer additions, twelve
//! floating-point ones, eight divisions. The chains have one under way, so they show latency.
//!
//! Traps, and how they are avoided:
//! - Some processors add small constants while renaming registers, in no time. The addend is in a register.
//! - Dividers stop early when few bits of a quotient are wanted, and are fast when the divisor is simple.
//!   Integer quotients have 32 bits throughout; floating-point divisors have a full mantissa.
//! - Denormal numbers are slow. Additions count up from 0; divisions go back and forth by two divisors whose
//!   product is nearly 1.
//! - A result that could be known without the work proves nothing. Each integer division has its own
//!   dividend, and the drift of the floating-point ones tells how many there were.

use super::measuring_loop::{Facts, Loop, Made};
use corewise_core::kernels::Kernel;
use std::arch::asm;
use std::sync::atomic::AtomicBool;

pub(super) const FACTS: &[Facts] = &[
    Facts { kernel: Kernel::IntAdd, bytes_read: 0, bytes_written: 0, operations: 1 },
    Facts { kernel: Kernel::IntAddChain, bytes_read: 0, bytes_written: 0, operations: 1 },
    Facts { kernel: Kernel::IntDiv, bytes_read: 0, bytes_written: 0, operations: 1 },
    Facts { kernel: Kernel::IntDivChain, bytes_read: 0, bytes_written: 0, operations: 1 },
    Facts { kernel: Kernel::FpAdd, bytes_read: 0, bytes_written: 0, operations: 1 },
    Facts { kernel: Kernel::FpAddChain, bytes_read: 0, bytes_written: 0, operations: 1 },
    Facts { kernel: Kernel::FpDiv, bytes_read: 0, bytes_written: 0, operations: 1 },
    Facts { kernel: Kernel::FpDivChain, bytes_read: 0, bytes_written: 0, operations: 1 },
];

/// Prepares a kernel of this family.
pub(super) fn prepare(kernel: Kernel) -> Option<Made> {
    Some(Ok(match kernel {
        Kernel::IntAdd => repeat(2000, int_add, INT_ADDS),
        Kernel::IntAddChain => repeat(500, int_add_chain, INT_ADDS),
        Kernel::IntDiv => repeat(600, int_div, INT_DIVS),
        Kernel::IntDivChain => repeat(300, int_div_chain, INT_DIVS),
        Kernel::FpAdd => repeat(1500, fp_add, FP_ADDS),
        Kernel::FpAddChain => repeat(250, fp_add_chain, FP_ADDS),
        Kernel::FpDiv => repeat(400, fp_div, FP_DIVS),
        Kernel::FpDivChain => repeat(150, fp_div_chain, FP_DIVS),
        _ => return None,
    }))
}

/// Returns a loop of this many rounds of operations.
fn repeat<R: 'static>(rounds: u64, run: fn(u64) -> R, operations_per_round: u64) -> Box<dyn Loop> {
    Box::new(Rounds { rounds, run, operations_per_round })
}

struct Rounds<R> {
    rounds: u64,
    run: fn(u64) -> R,
    operations_per_round: u64,
}

impl<R> Loop for Rounds<R> {
    fn chunk(&mut self, _stop: &AtomicBool) -> f64 {
        (self.run)(self.rounds);
        (self.rounds * self.operations_per_round) as f64
    }
}

/// Additions in a round of the integer kernels.
const INT_ADDS: u64 = 64;
/// Divisions in a round of the integer kernels.
const INT_DIVS: u64 = 8;
/// Additions in a round of the floating-point kernels.
const FP_ADDS: u64 = 48;
/// Divisions in a round of the floating-point kernels.
const FP_DIVS: u64 = 16;

/// What the integer kernels add.
const ADDEND: u64 = 0x1234_5678_9abc_def1;

/// Eight sums, to each of which [`ADDEND`] is added eight times a round.
fn int_add(rounds: u64) -> [u64; 8] {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = [0; 8];
    // SAFETY: only registers are used.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept 8",
            ".irp sum,rax,rcx,rdx,rsi,rdi,r8,r9,r10",
            "add \\sum, {addend}",
            ".endr",
            ".endr",
            "dec {rounds}",
            "jnz 2b",
            inout("rax") a, inout("rcx") b, inout("rdx") c, inout("rsi") d,
            inout("rdi") e, inout("r8") f, inout("r9") g, inout("r10") h,
            addend = in(reg) ADDEND,
            rounds = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    // SAFETY: as for x86-64 above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept 8",
            ".irp sum,x0,x1,x2,x3,x4,x5,x6,x7",
            "add \\sum, \\sum, {addend}",
            ".endr",
            ".endr",
            "subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            inout("x0") a, inout("x1") b, inout("x2") c, inout("x3") d,
            inout("x4") e, inout("x5") f, inout("x6") g, inout("x7") h,
            addend = in(reg) ADDEND,
            rounds = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    [a, b, c, d, e, f, g, h]
}

/// One sum, to which [`ADDEND`] is added 64 times a round.
fn int_add_chain(rounds: u64) -> u64 {
    let mut sum = 0;
    // SAFETY: only registers are used.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept 64",
            "add {sum}, {addend}",
            ".endr",
            "dec {rounds}",
            "jnz 2b",
            sum = inout(reg) sum,
            addend = in(reg) ADDEND,
            rounds = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    // SAFETY: as for x86-64 above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept 64",
            "add {sum}, {sum}, {addend}",
            ".endr",
            "subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            sum = inout(reg) sum,
            addend = in(reg) ADDEND,
            rounds = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    sum
}

/// The first dividend.
const DIVIDEND: u64 = 0xe123_4567_89ab_cdef;
/// What is added to the dividend after each division.
const DIVIDEND_STEP: u64 = 0x1_2345_6789;
/// A divisor near the root of the dividends: quotients have 32 bits.
const DIVISOR: u64 = 0xf000_0001;

/// The sum of the quotients of the dividends by [`DIVISOR`], eight a round.
fn int_div(rounds: u64) -> u64 {
    let mut sum = 0;
    // SAFETY: only registers are used. The upper half of the dividend is 0, so no quotient overflows.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept 8",
            "mov rax, {dividend}",
            "xor edx, edx",
            "div {divisor}",
            "add {sum}, rax",
            "add {dividend}, {step}",
            ".endr",
            "dec {rounds}",
            "jnz 2b",
            sum = inout(reg) sum,
            dividend = inout(reg) DIVIDEND => _,
            divisor = in(reg) DIVISOR,
            step = in(reg) DIVIDEND_STEP,
            rounds = inout(reg) rounds => _,
            out("rax") _, out("rdx") _,
            options(nomem, nostack),
        );
    }
    // SAFETY: as for x86-64 above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept 8",
            "udiv {quotient}, {dividend}, {divisor}",
            "add {sum}, {sum}, {quotient}",
            "add {dividend}, {dividend}, {step}",
            ".endr",
            "subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            sum = inout(reg) sum,
            dividend = inout(reg) DIVIDEND => _,
            divisor = in(reg) DIVISOR,
            step = in(reg) DIVIDEND_STEP,
            quotient = out(reg) _,
            rounds = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    sum
}

/// Divides the dividends in turn by the quotient before, eight a round; returns the last quotient.
fn int_div_chain(rounds: u64) -> u64 {
    let mut quotient = DIVISOR;
    // SAFETY: only registers are used. The upper half of the dividend is 0 and no quotient is, so nothing
    // overflows.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept 8",
            "mov rax, {dividend}",
            "xor edx, edx",
            "div {quotient}",
            "mov {quotient}, rax",
            "add {dividend}, {step}",
            ".endr",
            "dec {rounds}",
            "jnz 2b",
            quotient = inout(reg) quotient,
            dividend = inout(reg) DIVIDEND => _,
            step = in(reg) DIVIDEND_STEP,
            rounds = inout(reg) rounds => _,
            out("rax") _, out("rdx") _,
            options(nomem, nostack),
        );
    }
    // SAFETY: as for x86-64 above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept 8",
            "udiv {quotient}, {dividend}, {quotient}",
            "add {dividend}, {dividend}, {step}",
            ".endr",
            "subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            quotient = inout(reg) quotient,
            dividend = inout(reg) DIVIDEND => _,
            step = in(reg) DIVIDEND_STEP,
            rounds = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    quotient
}

/// Runs instructions on double-precision numbers in registers: `fp_rounds!(numbers, constants, rounds, x86-64
/// instructions; aarch64 instructions)`. Number `i` is in register `i`, and comes back; the two constants are
/// in registers 14 and 15.
macro_rules! fp_rounds {
    ($numbers:expr, $constants:expr, $rounds:expr, $($x86:literal),+; $($arm:literal),+) => {
        // SAFETY: reads and writes the twelve numbers, reads the two constants; otherwise only registers.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            asm!(
                ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
                "movsd xmm\\i, [{numbers} + 8*\\i]",
                ".endr",
                "movsd xmm14, [{constants}]",
                "movsd xmm15, [{constants} + 8]",
                ".p2align 6",
                "2:",
                $($x86,)+
                "dec {rounds}",
                "jnz 2b",
                ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
                "movsd [{numbers} + 8*\\i], xmm\\i",
                ".endr",
                numbers = in(reg) $numbers.as_mut_ptr(),
                constants = in(reg) $constants.as_ptr(),
                rounds = inout(reg) $rounds => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm14") _, out("xmm15") _,
                options(nostack),
            );
        }
        // SAFETY: as for x86-64 above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            asm!(
                ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
                "ldr d\\i, [{numbers}, #8*\\i]",
                ".endr",
                "ldp d14, d15, [{constants}]",
                ".p2align 6",
                "2:",
                $($arm,)+
                "subs {rounds}, {rounds}, #1",
                "b.ne 2b",
                ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
                "str d\\i, [{numbers}, #8*\\i]",
                ".endr",
                numbers = in(reg) $numbers.as_mut_ptr(),
                constants = in(reg) $constants.as_ptr(),
                rounds = inout(reg) $rounds => _,
                out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _,
                out("v7") _, out("v8") _, out("v9") _, out("v10") _, out("v11") _, out("v14") _, out("v15") _,
                options(nostack),
            );
        }
    };
}

/// Twelve sums, to each of which 1 is added four times a round.
fn fp_add(rounds: u64) -> [f64; 12] {
    let mut sums = [0.0; 12];
    let one = [1.0, 1.0];
    fp_rounds!(sums, one, rounds,
        ".rept 4", ".irp i,0,1,2,3,4,5,6,7,8,9,10,11", "addsd xmm\\i, xmm15", ".endr", ".endr";
        ".rept 4", ".irp i,0,1,2,3,4,5,6,7,8,9,10,11", "fadd d\\i, d\\i, d15", ".endr", ".endr");
    sums
}

/// One sum, to which 1 is added 48 times a round.
fn fp_add_chain(rounds: u64) -> f64 {
    let mut sums = [0.0; 12];
    let one = [1.0, 1.0];
    fp_rounds!(sums, one, rounds,
        ".rept 48", "addsd xmm0, xmm15", ".endr";
        ".rept 48", "fadd d0, d0, d15", ".endr");
    sums[0]
}

/// By these the floating-point kernels divide in turn. Their product is a little above 1, so that quotients
/// shrink slowly.
const FP_DIVISORS: [f64; 2] = [1.700_000_123, 0.588_235_3];

/// Eight quotients, each divided by both [`FP_DIVISORS`] once a round.
fn fp_div(rounds: u64) -> [f64; 8] {
    let mut quotients = [1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.0, 1.0, 1.0, 1.0];
    fp_rounds!(quotients, FP_DIVISORS, rounds,
        ".irp i,0,1,2,3,4,5,6,7", "divsd xmm\\i, xmm14", ".endr",
        ".irp i,0,1,2,3,4,5,6,7", "divsd xmm\\i, xmm15", ".endr";
        ".irp i,0,1,2,3,4,5,6,7", "fdiv d\\i, d\\i, d14", ".endr",
        ".irp i,0,1,2,3,4,5,6,7", "fdiv d\\i, d\\i, d15", ".endr");
    std::array::from_fn(|i| quotients[i])
}

/// One quotient, divided by both [`FP_DIVISORS`] eight times a round.
fn fp_div_chain(rounds: u64) -> f64 {
    let mut quotients = [1.1; 12];
    fp_rounds!(quotients, FP_DIVISORS, rounds,
        ".rept 8", "divsd xmm0, xmm14", "divsd xmm0, xmm15", ".endr";
        ".rept 8", "fdiv d0, d0, d14", "fdiv d0, d0, d15", ".endr");
    quotients[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: [u64; 4] = [1, 2, 99, 1000];

    #[test]
    fn integer_sums_tell_the_additions() {
        for rounds in ROUNDS {
            assert_eq!(int_add(rounds), [ADDEND.wrapping_mul(rounds * INT_ADDS / 8); 8]);
            assert_eq!(int_add_chain(rounds), ADDEND.wrapping_mul(rounds * INT_ADDS));
        }
    }

    #[test]
    fn integer_quotients_tell_the_divisions() {
        for rounds in ROUNDS {
            let dividends = (0..rounds * INT_DIVS).map(|i| DIVIDEND.wrapping_add(i * DIVIDEND_STEP));
            let sum = dividends.clone().fold(0, |sum: u64, dividend| sum.wrapping_add(dividend / DIVISOR));
            assert_eq!(int_div(rounds), sum);
            let last = dividends.fold(DIVISOR, |quotient, dividend| dividend / quotient);
            assert_eq!(int_div_chain(rounds), last);
        }
    }

    #[test]
    fn integer_quotients_keep_their_width() {
        let mut quotient = DIVISOR;
        for i in 0..10_000 {
            let dividend = DIVIDEND + i * DIVIDEND_STEP;
            quotient = dividend / quotient;
            assert_eq!((quotient.ilog2(), (dividend / DIVISOR).ilog2()), (31, 31), "division {i}");
        }
    }

    #[test]
    fn floating_point_sums_tell_the_additions() {
        for rounds in ROUNDS {
            assert_eq!(fp_add(rounds), [(rounds * FP_ADDS / 12) as f64; 12]);
            assert_eq!(fp_add_chain(rounds), (rounds * FP_ADDS) as f64);
        }
    }

    #[test]
    fn floating_point_quotients_tell_the_divisions_and_stay_normal() {
        fn divide(start: f64, pairs: u64) -> f64 {
            (0..pairs).fold(start, |quotient, _| quotient / FP_DIVISORS[0] / FP_DIVISORS[1])
        }
        for rounds in ROUNDS {
            let pairs = rounds * FP_DIVS / 8 / 2;
            let starts = [1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8];
            assert_eq!(fp_div(rounds), starts.map(|start| divide(start, pairs)));
            assert_eq!(fp_div_chain(rounds), divide(1.1, rounds * FP_DIVS / 2));
            assert!(fp_div_chain(rounds) > 1.0 && fp_div_chain(rounds) < divide(1.1, 1));
        }
    }
}
