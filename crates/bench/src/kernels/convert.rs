//! Kernels of conversion: the paper's example of what vector units are for in audio software
//! (interdependencies, §3.3).
//!
//! - **ConvertF32** copies an array of 32-bit floating-point numbers to one of 64-bit floating-point numbers.
//! - **ConvertI24** copies an array of 24-bit integers, packed in three bytes each, to one of 64-bit
//!   floating-point numbers.
//!
//! Unit: a number converted. The arrays, of 1024 numbers, fit the first-level cache together (of two threads
//! as well), and the widest vector unit is used: what is measured is the units, not memory.

use super::measuring_loop::{Facts, Loop, Made};
use super::vector::{Sweep, Vector, sweep};
use corewise_core::kernels::Kernel;
use std::sync::atomic::AtomicBool;

pub(super) const FACTS: &[Facts] = &[
    Facts { kernel: Kernel::ConvertF32, bytes_read: 4, bytes_written: 8, operations: 1 },
    Facts { kernel: Kernel::ConvertI24, bytes_read: 3, bytes_written: 8, operations: 1 },
];

/// Numbers in an array.
const NUMBERS: usize = 1024;
/// Passes over the array in a chunk.
const PASSES: u64 = 100;

/// Prepares a conversion kernel.
pub(super) fn prepare(kernel: Kernel) -> Option<Made> {
    let (arrays, convert): (_, fn(Vector, &mut Arrays, u64)) = match kernel {
        Kernel::ConvertF32 => (Arrays::of_f32(), convert_f32),
        Kernel::ConvertI24 => (Arrays::of_i24(), convert_i24),
        _ => return None,
    };
    Some(Ok(Box::new(Convert { arrays, convert, unit: Vector::widest() })))
}

struct Convert {
    arrays: Box<Arrays>,
    convert: fn(Vector, &mut Arrays, u64),
    unit: Vector,
}

impl Loop for Convert {
    fn chunk(&mut self, _stop: &AtomicBool) -> f64 {
        (self.convert)(self.unit, &mut self.arrays, PASSES);
        (NUMBERS as u64 * PASSES) as f64
    }
}

/// The input and output arrays.
#[repr(C, align(64))]
struct Arrays {
    /// Numbers of up to four bytes, and a cache line more: the conversion of three bytes reads a little
    /// beyond the last.
    input: [u8; NUMBERS * 4 + 64],
    output: [f64; NUMBERS],
}

impl Arrays {
    fn new(sample_bytes: usize, sample: impl Fn(usize) -> [u8; 4]) -> Box<Self> {
        let mut arrays = Box::new(Self { input: [0; _], output: [0.0; _] });
        for (index, bytes) in arrays.input.chunks_exact_mut(sample_bytes).take(NUMBERS).enumerate() {
            bytes.copy_from_slice(&sample(index)[..sample_bytes]);
        }
        arrays
    }

    /// With numbers of 32 bits as input.
    fn of_f32() -> Box<Self> {
        Self::new(4, |index| f32_sample(index).to_le_bytes())
    }

    /// With numbers of 24 bits as input.
    fn of_i24() -> Box<Self> {
        Self::new(3, |index| i24_sample(index).to_le_bytes())
    }

    /// A sweep from all numbers of the input, of so many bytes each, to the output.
    fn sweep(&mut self, sample_bytes: usize, passes: u64) -> Sweep {
        Sweep {
            from: self.input.as_ptr(),
            to: self.output.as_mut_ptr().cast(),
            bytes: NUMBERS * sample_bytes,
            passes,
            lanes: [0; 8],
        }
    }
}

/// A number between -1 and 1, none of them denormal.
fn f32_sample(index: usize) -> f32 {
    (i24_sample(index) as f32 + 0.5) / (1 << 23) as f32
}

/// A number that fits 24 bits, negative ones among them.
fn i24_sample(index: usize) -> i32 {
    (index as u32).wrapping_mul(0x9e37_79b1) as i32 >> 8
}

/// Converts all numbers of 32 bits, so many times.
fn convert_f32(unit: Vector, arrays: &mut Arrays, passes: u64) {
    let mut sweep = arrays.sweep(4, passes);
    // SAFETY: reads four bytes of `input` and writes eight of `output` for each of the NUMBERS, and `lanes`.
    // The unit is there.
    unsafe {
        match unit {
            #[cfg(target_arch = "x86_64")]
            Vector::Avx512 => sweep!(avx512, sweep, 256 => 512;
                "vcvtps2pd zmm\\i, ymmword ptr [{from} + 32*\\i]",
                "vmovapd [{to} + 64*\\i], zmm\\i"),
            #[cfg(target_arch = "x86_64")]
            Vector::Avx2 => sweep!(avx2, sweep, 128 => 256;
                "vcvtps2pd ymm\\i, xmmword ptr [{from} + 16*\\i]",
                "vmovapd [{to} + 32*\\i], ymm\\i"),
            #[cfg(target_arch = "x86_64")]
            Vector::Sse2 => sweep!(sse2, sweep, 64 => 128;
                "cvtps2pd xmm\\i, qword ptr [{from} + 8*\\i]",
                "movapd [{to} + 16*\\i], xmm\\i"),
            #[cfg(target_arch = "aarch64")]
            Vector::Neon => sweep!(neon, sweep, 128 => 256;
                "ldr q1\\i, [{from}, #16*\\i]",
                "fcvtl v2\\i\\().2d, v1\\i\\().2s",
                "fcvtl2 v1\\i\\().2d, v1\\i\\().4s",
                "stp q2\\i, q1\\i, [{to}, #32*\\i]"),
        }
    }
}

/// For four integers of three bytes: the bytes that make up the upper 24 bits of each of four words. 0x80
/// makes a 0, so that shifting right by 8 bits extends the sign.
const SPREAD: u128 = u128::from_le_bytes([0x80, 0, 1, 2, 0x80, 3, 4, 5, 0x80, 6, 7, 8, 0x80, 9, 10, 11]);

/// Converts all numbers of 24 bits, so many times.
fn convert_i24(unit: Vector, arrays: &mut Arrays, passes: u64) {
    let mut sweep = arrays.sweep(3, passes);
    // Registers 0 to 8; the steps use the last.
    sweep.lanes = std::array::from_fn(|word| (SPREAD >> (64 * (word % 2))) as u64);
    // SAFETY: reads three bytes of `input`, and four more after the last, and writes eight of `output` for
    // each of the NUMBERS, and `lanes`. The unit is there.
    unsafe {
        match unit {
            #[cfg(target_arch = "x86_64")]
            Vector::Avx512 => sweep!(avx512, sweep, 192 => 512;
                "vmovdqu xmm\\i, [{from} + 24*\\i]",
                "vinserti128 ymm\\i, ymm\\i, xmmword ptr [{from} + 24*\\i + 12], 1",
                "vpshufb ymm\\i, ymm\\i, ymm8",
                "vpsrad ymm\\i, ymm\\i, 8",
                "vcvtdq2pd zmm\\i, ymm\\i",
                "vmovapd [{to} + 64*\\i], zmm\\i"),
            #[cfg(target_arch = "x86_64")]
            Vector::Avx2 => sweep!(avx2, sweep, 96 => 256;
                "vmovdqu xmm\\i, [{from} + 12*\\i]",
                "vpshufb xmm\\i, xmm\\i, xmm8",
                "vpsrad xmm\\i, xmm\\i, 8",
                "vcvtdq2pd ymm\\i, xmm\\i",
                "vmovapd [{to} + 32*\\i], ymm\\i"),
            #[cfg(target_arch = "x86_64")]
            Vector::Sse2 => sweep!(sse2, sweep, 96 => 256;
                "movdqu xmm\\i, [{from} + 12*\\i]",
                "movdqa xmm9, xmm\\i",
                "movdqa xmm10, xmm\\i",
                "movdqa xmm11, xmm\\i",
                "psrldq xmm9, 3",
                "psrldq xmm10, 6",
                "psrldq xmm11, 9",
                "punpckldq xmm\\i, xmm9",
                "punpckldq xmm10, xmm11",
                "punpcklqdq xmm\\i, xmm10",
                "pslld xmm\\i, 8",
                "psrad xmm\\i, 8",
                "cvtdq2pd xmm9, xmm\\i",
                "pshufd xmm\\i, xmm\\i, 0xee",
                "cvtdq2pd xmm\\i, xmm\\i",
                "movapd [{to} + 32*\\i], xmm9",
                "movapd [{to} + 32*\\i + 16], xmm\\i"),
            #[cfg(target_arch = "aarch64")]
            Vector::Neon => sweep!(neon, sweep, 96 => 256;
                "ldur q1\\i, [{from}, #12*\\i]",
                "tbl v1\\i\\().16b, {{ v1\\i\\().16b }}, v8.16b",
                "sshr v1\\i\\().4s, v1\\i\\().4s, #8",
                "sxtl v2\\i\\().2d, v1\\i\\().2s",
                "sxtl2 v1\\i\\().2d, v1\\i\\().4s",
                "scvtf v2\\i\\().2d, v2\\i\\().2d",
                "scvtf v1\\i\\().2d, v1\\i\\().2d",
                "stp q2\\i, q1\\i, [{to}, #32*\\i]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_converts_as_the_language_does() {
        for unit in Vector::available() {
            let mut arrays = Arrays::of_f32();
            convert_f32(unit, &mut arrays, 2);
            for (index, converted) in arrays.output.iter().enumerate() {
                assert_eq!(*converted, f64::from(f32_sample(index)), "{unit:?}, number {index}");
            }
            let mut arrays = Arrays::of_i24();
            convert_i24(unit, &mut arrays, 2);
            for (index, converted) in arrays.output.iter().enumerate() {
                assert_eq!(*converted, f64::from(i24_sample(index)), "{unit:?}, number {index}");
            }
        }
    }

    #[test]
    fn samples_are_normal_and_of_both_signs() {
        assert!((0..NUMBERS).all(|index| f32_sample(index).is_normal() && f32_sample(index).abs() < 1.0));
        assert!((0..NUMBERS).any(|index| i24_sample(index) > 1 << 22));
        assert!((0..NUMBERS).any(|index| i24_sample(index) < -(1 << 22)));
    }
}
