//! The power probe: fused multiply-adds in the widest vector unit, the highest power that one PE can draw. It
//! shows whether such a neighbour lowers the clock.
//!
//! Twelve vectors are multiplied alternately by two factors that nearly cancel out, so that most bits of the
//! result change in every operation and no value approaches 0 or infinity. Unit: one multiplication and
//! addition of one pair of double-precision numbers, so an AVX-512 instruction makes eight.

use super::measuring_loop::{Facts, KernelError, Loop, Made};
use super::vector::Vector;
use corewise_core::kernels::Kernel;
use std::arch::asm;
use std::sync::atomic::AtomicBool;

pub(super) const FACTS: &[Facts] =
    &[Facts { kernel: Kernel::WideFma, bytes_read: 0, bytes_written: 0, operations: 2 }];

/// Prepares the kernel.
pub(super) fn prepare(kernel: Kernel) -> Option<Made> {
    (kernel == Kernel::WideFma).then(wide_fma)
}

fn wide_fma() -> Made {
    let unit = Vector::widest();
    #[cfg(target_arch = "x86_64")]
    if unit == Vector::Sse2 {
        return Err(KernelError::Unit {
            kernel: Kernel::WideFma,
            unit: "fused multiply-add (AVX2 or AVX-512)",
        });
    }
    Ok(Box::new(WideFma { unit }))
}

struct WideFma {
    unit: Vector,
}

const ROUNDS: u64 = 1500;

impl Loop for WideFma {
    fn chunk(&mut self, _stop: &AtomicBool) -> f64 {
        multiply_add(self.unit, ROUNDS);
        (ROUNDS * 2 * VECTORS as u64) as f64 * self.unit.words() as f64
    }
}

/// Vectors under way.
const VECTORS: usize = 12;

/// `x + x·f` for these f in turn: times 1.7 and times 0.588…, together a little less than 1.
const FACTORS: [f64; 2] = [0.7, -0.411_764_72];

/// Returns the initial value in all places of vector `i`.
fn start(i: usize) -> f64 {
    1.0 + i as f64 / 16.0
}

/// The loop of [`multiply_add`] on registers of this name.
#[cfg(target_arch = "x86_64")]
macro_rules! fma {
    ($register:literal, $numbers:expr, $rounds:expr) => {
        asm!(
            ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
            concat!("vbroadcastsd ", $register, "\\i, qword ptr [{numbers} + 8*\\i]"),
            ".endr",
            concat!("vbroadcastsd ", $register, "14, qword ptr [{factors}]"),
            concat!("vbroadcastsd ", $register, "15, qword ptr [{factors} + 8]"),
            ".p2align 6",
            "2:",
            ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
            concat!("vfmadd231pd ", $register, "\\i, ", $register, "\\i, ", $register, "14"),
            ".endr",
            ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
            concat!("vfmadd231pd ", $register, "\\i, ", $register, "\\i, ", $register, "15"),
            ".endr",
            "dec {rounds}",
            "jnz 2b",
            ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
            "vmovsd [{numbers} + 8*\\i], xmm\\i",
            ".endr",
            "vzeroupper",
            numbers = in(reg) $numbers.as_mut_ptr(),
            factors = in(reg) FACTORS.as_ptr(),
            rounds = inout(reg) $rounds => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
            out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm14") _, out("xmm15") _,
            options(nostack),
        )
    };
}

/// Multiplies each vector by both factors, once a round; returns the first word of each.
fn multiply_add(unit: Vector, rounds: u64) -> [f64; VECTORS] {
    let mut numbers: [f64; VECTORS] = std::array::from_fn(start);
    // SAFETY: reads and writes the numbers, reads the factors; otherwise only registers. The unit is there.
    unsafe {
        match unit {
            #[cfg(target_arch = "x86_64")]
            Vector::Avx512 => fma!("zmm", numbers, rounds),
            #[cfg(target_arch = "x86_64")]
            Vector::Avx2 => fma!("ymm", numbers, rounds),
            #[cfg(target_arch = "x86_64")]
            Vector::Sse2 => unreachable!("prepare() refuses processors without fused multiply-add"),
            #[cfg(target_arch = "aarch64")]
            Vector::Neon => asm!(
                ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
                "ldr d\\i, [{numbers}, #8*\\i]",
                "dup v\\i\\().2d, v\\i\\().d[0]",
                ".endr",
                "ldp d14, d15, [{factors}]",
                "dup v14.2d, v14.d[0]",
                "dup v15.2d, v15.d[0]",
                ".p2align 6",
                "2:",
                ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
                "fmla v\\i\\().2d, v\\i\\().2d, v14.2d",
                ".endr",
                ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
                "fmla v\\i\\().2d, v\\i\\().2d, v15.2d",
                ".endr",
                "subs {rounds}, {rounds}, #1",
                "b.ne 2b",
                ".irp i,0,1,2,3,4,5,6,7,8,9,10,11",
                "str d\\i, [{numbers}, #8*\\i]",
                ".endr",
                numbers = in(reg) numbers.as_mut_ptr(),
                factors = in(reg) FACTORS.as_ptr(),
                rounds = inout(reg) rounds => _,
                out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _,
                out("v7") _, out("v8") _, out("v9") _, out("v10") _, out("v11") _, out("v14") _, out("v15") _,
                options(nostack),
            ),
        }
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_tell_the_operations_and_stay_normal() {
        for unit in Vector::available() {
            #[cfg(target_arch = "x86_64")]
            if unit == Vector::Sse2 {
                continue;
            }
            for rounds in [1, 2, 99, 10_000] {
                let expected: [f64; VECTORS] = std::array::from_fn(|i| {
                    let round = |x: f64, _| {
                        let x = x.mul_add(FACTORS[0], x);
                        x.mul_add(FACTORS[1], x)
                    };
                    (0..rounds).fold(start(i), round)
                });
                assert_eq!(multiply_add(unit, rounds), expected, "{unit:?}, {rounds} rounds");
                assert!(expected.iter().all(|x| *x > 0.9 && *x < 2.0));
            }
        }
    }
}
