//! Kernels of memory: bandwidth and latency of each level of the hierarchy (interdependencies, §3.2).
//!
//! - **Read** adds up all words of the region, eight vectors of the widest unit at a time. Unit: a byte read.
//! - **Write** stores one value to all words, by ordinary stores. Unit: a byte written. A line that is not in
//!   the cache is fetched first, so memory carries twice as much.
//! - **Copy** copies the first half of the region to the second, by ordinary loads and stores. Unit: a byte
//!   copied, counted once as `bw_mem cp` of lmbench does, though one is read, one written, and one fetched.
//! - **LoadLatency** follows a chain of addresses that visits all cache lines of the region in random order.
//!   Unit: a load, which begins when the one before has ended.
//!
//! The paper ran lmbench's `bw_mem`, which moves words of 32 bits (and of which `rd`, `wr` and `cp` touch
//! only one in four). Here whole vectors move: what a region's level gives at most is what neighbours
//! take from each other.
//!
//! A chunk repeats small regions and takes large ones in slices, in order and round and round.

use super::measuring_loop::{Facts, KernelError, Loop};
use super::region::Region;
use super::vector::{Sweep, Vector, sweep};
use corewise_core::kernels::Kernel;
use std::arch::asm;
use std::sync::atomic::AtomicBool;

pub(super) const FACTS: &[Facts] = &[
    Facts { kernel: Kernel::Read, bytes_read: 1, bytes_written: 0, operations: 0 },
    Facts { kernel: Kernel::Write, bytes_read: 0, bytes_written: 1, operations: 0 },
    Facts { kernel: Kernel::Copy, bytes_read: 1, bytes_written: 1, operations: 0 },
    Facts { kernel: Kernel::LoadLatency, bytes_read: 8, bytes_written: 0, operations: 0 },
];

/// Regions are whole multiples of this, so that half a region is whole blocks of any vector unit.
const REGION_UNIT_BYTES: u64 = 4096;

/// Prepares a memory kernel.
pub(super) fn prepare(kernel: Kernel, region_bytes: u64) -> Result<Box<dyn Loop>, KernelError> {
    if region_bytes == 0 || !region_bytes.is_multiple_of(REGION_UNIT_BYTES) {
        return Err(KernelError::RegionSize { kernel, bytes: region_bytes });
    }
    let mut region = Region::new(region_bytes as usize)?;
    if kernel == Kernel::LoadLatency {
        let at = region.link_lines_at_random();
        let loads = if region_bytes <= 1 << 20 { 8192 } else { 1024 };
        return Ok(Box::new(Follow { at, loads, _region: region }));
    }
    let moved_words = region.words().len() / if kernel == Kernel::Copy { 2 } else { 1 };
    let slices = Slices::new(moved_words);
    let unit = Vector::widest();
    Ok(match kernel {
        Kernel::Read => Box::new(Read { region, slices, unit, sum: 0 }),
        Kernel::Write => Box::new(Write { region, slices, unit, value: 0 }),
        Kernel::Copy => Box::new(Copy { region, slices, unit }),
        _ => return Err(KernelError::Unwritten(kernel)),
    })
}

/// How a region is divided into chunks of work.
struct Slices {
    words: usize,
    at: usize,
}

impl Slices {
    fn new(words: usize) -> Self {
        Self { words, at: 0 }
    }

    /// Returns the next words to work on, and the number of passes: about as much as the level transfers in 5
    /// to 50 µs.
    fn next(&mut self) -> (std::ops::Range<usize>, u64) {
        let chunk_words = if self.words <= 8 << 10 { 512 << 10 } else { 128 << 10 };
        if self.words <= chunk_words {
            return (0..self.words, (chunk_words / self.words) as u64);
        }
        let slice = self.at..self.words.min(self.at + chunk_words);
        self.at = slice.end % self.words;
        (slice, 1)
    }
}

/// Returns the bytes in this many sweeps over this many words.
fn bytes(words: usize, passes: u64) -> f64 {
    (words * size_of::<u64>()) as f64 * passes as f64
}

struct Read {
    region: Region,
    slices: Slices,
    unit: Vector,
    /// Sum of all words read, modulo 2⁶⁴; proves that they were read.
    sum: u64,
}

impl Loop for Read {
    fn chunk(&mut self, _stop: &AtomicBool) -> f64 {
        let (slice, passes) = self.slices.next();
        let words = &self.region.words()[slice];
        self.sum = self.sum.wrapping_add(read(self.unit, words, passes));
        bytes(words.len(), passes)
    }
}

struct Write {
    region: Region,
    slices: Slices,
    unit: Vector,
    /// Another one each time.
    value: u64,
}

impl Loop for Write {
    fn chunk(&mut self, _stop: &AtomicBool) -> f64 {
        let (slice, passes) = self.slices.next();
        let words = &mut self.region.words_mut()[slice];
        self.value += 1;
        write(self.unit, words, self.value, passes);
        bytes(words.len(), passes)
    }
}

struct Copy {
    region: Region,
    slices: Slices,
    unit: Vector,
}

impl Loop for Copy {
    fn chunk(&mut self, _stop: &AtomicBool) -> f64 {
        let (slice, passes) = self.slices.next();
        let (from, to) = self.region.words_mut().split_at_mut(self.slices.words);
        copy(self.unit, &from[slice.clone()], &mut to[slice.clone()], passes);
        bytes(slice.len(), passes)
    }
}

struct Follow {
    /// The address to be loaded from next.
    at: u64,
    /// In a chunk.
    loads: u64,
    /// Holds the chain.
    _region: Region,
}

impl Loop for Follow {
    fn chunk(&mut self, _stop: &AtomicBool) -> f64 {
        // SAFETY: `at` is in the chain that the region holds.
        self.at = unsafe { follow(self.at, self.loads) };
        self.loads as f64
    }
}

/// Reads the words so many times; returns the sum of all that was read.
fn read(unit: Vector, words: &[u64], passes: u64) -> u64 {
    let mut sweep = Sweep::over(words, passes);
    // SAFETY: reads `bytes` from the begin of `words`, and writes only to `lanes`. The unit is there.
    unsafe {
        match unit {
            #[cfg(target_arch = "x86_64")]
            Vector::Avx512 => sweep!(avx512, sweep, 512 => 0;
                "vpaddq zmm\\i, zmm\\i, [{from} + 64*\\i]"),
            #[cfg(target_arch = "x86_64")]
            Vector::Avx2 => sweep!(avx2, sweep, 256 => 0;
                "vpaddq ymm\\i, ymm\\i, [{from} + 32*\\i]"),
            #[cfg(target_arch = "x86_64")]
            Vector::Sse2 => sweep!(sse2, sweep, 128 => 0;
                "paddq xmm\\i, [{from} + 16*\\i]"),
            #[cfg(target_arch = "aarch64")]
            Vector::Neon => sweep!(neon, sweep, 128 => 0;
                "ldr q1\\i, [{from}, #16*\\i]",
                "add v\\i\\().2d, v\\i\\().2d, v1\\i\\().2d"),
        }
    }
    sweep.lanes[..unit.words()].iter().fold(0, |sum: u64, lane| sum.wrapping_add(*lane))
}

/// Writes `value` to all words, so many times.
fn write(unit: Vector, words: &mut [u64], value: u64, passes: u64) {
    let mut sweep = Sweep::over(words, passes);
    sweep.to = words.as_mut_ptr().cast();
    sweep.lanes = [value; 8];
    // SAFETY: writes `bytes` from the begin of `words`, and to `lanes`. The unit is there.
    unsafe {
        match unit {
            #[cfg(target_arch = "x86_64")]
            Vector::Avx512 => sweep!(avx512, sweep, 512 => 512;
                "vmovdqa64 [{to} + 64*\\i], zmm\\i"),
            #[cfg(target_arch = "x86_64")]
            Vector::Avx2 => sweep!(avx2, sweep, 256 => 256;
                "vmovdqa [{to} + 32*\\i], ymm\\i"),
            #[cfg(target_arch = "x86_64")]
            Vector::Sse2 => sweep!(sse2, sweep, 128 => 128;
                "movdqa [{to} + 16*\\i], xmm\\i"),
            #[cfg(target_arch = "aarch64")]
            Vector::Neon => sweep!(neon, sweep, 128 => 128;
                "str q\\i, [{to}, #16*\\i]"),
        }
    }
}

/// Copies words, so many times the same.
fn copy(unit: Vector, from: &[u64], to: &mut [u64], passes: u64) {
    assert_eq!(from.len(), to.len());
    let mut sweep = Sweep::over(from, passes);
    sweep.to = to.as_mut_ptr().cast();
    // SAFETY: reads `bytes` from the begin of `from`, writes as many from the begin of `to`, which is as
    // long, and writes to `lanes`. The unit is there.
    unsafe {
        match unit {
            #[cfg(target_arch = "x86_64")]
            Vector::Avx512 => sweep!(avx512, sweep, 512 => 512;
                "vmovdqa64 zmm\\i, [{from} + 64*\\i]",
                "vmovdqa64 [{to} + 64*\\i], zmm\\i"),
            #[cfg(target_arch = "x86_64")]
            Vector::Avx2 => sweep!(avx2, sweep, 256 => 256;
                "vmovdqa ymm\\i, [{from} + 32*\\i]",
                "vmovdqa [{to} + 32*\\i], ymm\\i"),
            #[cfg(target_arch = "x86_64")]
            Vector::Sse2 => sweep!(sse2, sweep, 128 => 128;
                "movdqa xmm\\i, [{from} + 16*\\i]",
                "movdqa [{to} + 16*\\i], xmm\\i"),
            #[cfg(target_arch = "aarch64")]
            Vector::Neon => sweep!(neon, sweep, 128 => 128;
                "ldr q\\i, [{from}, #16*\\i]",
                "str q\\i, [{to}, #16*\\i]"),
        }
    }
}

impl Sweep {
    /// Reads these words, and writes none yet.
    fn over(words: &[u64], passes: u64) -> Self {
        assert!(words.as_ptr().addr().is_multiple_of(64), "aligned vectors");
        let to = std::ptr::null_mut();
        Sweep { from: words.as_ptr().cast(), to, bytes: size_of_val(words), passes, lanes: [0; 8] }
    }
}

/// Loads an address from address `at`, and so on, `loads` times (a multiple of [`LOADS_PER_ROUND`]); returns
/// the last address loaded.
///
/// # Safety
/// `at` is in a chain of addresses that is in memory of ours and never leaves it.
unsafe fn follow(at: u64, loads: u64) -> u64 {
    let mut at = at;
    let rounds = loads / LOADS_PER_ROUND;
    // SAFETY: the caller's promise; nothing is written.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept {per_round}",
            "mov {at}, [{at}]",
            ".endr",
            "dec {rounds}",
            "jnz 2b",
            at = inout(reg) at,
            rounds = inout(reg) rounds => _,
            per_round = const LOADS_PER_ROUND,
            options(nostack, readonly),
        );
    }
    // SAFETY: as for x86-64 above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            ".p2align 6",
            "2:",
            ".rept {per_round}",
            "ldr {at}, [{at}]",
            ".endr",
            "subs {rounds}, {rounds}, #1",
            "b.ne 2b",
            at = inout(reg) at,
            rounds = inout(reg) rounds => _,
            per_round = const LOADS_PER_ROUND,
            options(nostack, readonly),
        );
    }
    at
}

const LOADS_PER_ROUND: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_reads_every_word_as_often_as_it_says() {
        for unit in Vector::available() {
            for (bytes, passes) in [(4096, 1), (4096, 1000), (12 << 10, 7), (1 << 20, 2)] {
                let region = Region::new(bytes).unwrap();
                let expected = region.words().iter().sum::<u64>() * passes;
                assert_eq!(read(unit, region.words(), passes), expected, "{unit:?}, {bytes} bytes");
            }
        }
    }

    #[test]
    fn write_writes_every_word_and_none_beside() {
        for unit in Vector::available() {
            let mut region = Region::new(16 << 10).unwrap();
            write(unit, &mut region.words_mut()[512..1536], u64::MAX, 3);
            for (word, index) in region.words().iter().zip(0..) {
                let expected = if (512..1536).contains(&index) { u64::MAX } else { index };
                assert_eq!(*word, expected, "{unit:?}, word {index}");
            }
        }
    }

    #[test]
    fn copy_copies_every_word_and_none_beside() {
        for unit in Vector::available() {
            let mut region = Region::new(16 << 10).unwrap();
            let (from, to) = region.words_mut().split_at_mut(1024);
            copy(unit, &from[64..576], &mut to[64..576], 2);
            for (word, index) in to.iter().zip(0..) {
                let expected = if (64..576).contains(&index) { index } else { index + 1024 };
                assert_eq!(*word, expected, "{unit:?}, word {index}");
            }
            assert!(from.iter().copied().eq(0..1024));
        }
    }

    /// Runs chunks until the bytes make up whole passes over the region, more than one.
    fn run(kernel: &mut dyn Loop, pass_bytes: usize) -> f64 {
        let mut work = 0.0;
        while work < 2.0 * pass_bytes as f64 || work % pass_bytes as f64 != 0.0 {
            work += kernel.chunk(&AtomicBool::new(false));
        }
        work
    }

    #[test]
    fn chunks_cover_regions_of_all_sizes() {
        for bytes in [4096, 60 << 10, 64 << 10, 68 << 10, 1 << 20, (1 << 20) + 4096, 5 << 20] {
            let region = Region::new(bytes).unwrap();
            let sum = region.words().iter().sum::<u64>();
            let unit = Vector::widest();
            let slices = Slices::new(region.words().len());
            let mut kernel = Read { region, slices, unit, sum: 0 };
            let passes = run(&mut kernel, bytes) as u64 / bytes as u64;
            assert_eq!(kernel.sum, sum.wrapping_mul(passes), "{bytes} bytes");

            let region = Region::new(bytes).unwrap();
            let slices = Slices::new(region.words().len());
            let mut kernel = Write { region, slices, unit, value: 0x5eed };
            run(&mut kernel, bytes);
            assert!(kernel.region.words().iter().all(|word| *word > 0x5eed), "{bytes} bytes");

            let region = Region::new(bytes).unwrap();
            let half = region.words().len() / 2;
            let mut kernel = Copy { region, slices: Slices::new(half), unit };
            run(&mut kernel, bytes / 2);
            let (from, to) = kernel.region.words().split_at(half);
            assert_eq!(from, to, "{bytes} bytes");
        }
    }

    #[test]
    fn following_a_chain_makes_every_load() {
        for (bytes, loads) in [(4096, 16), (4096, 8192), (2 << 20, 1024)] {
            let mut region = Region::new(bytes).unwrap();
            let start = region.link_lines_at_random();
            let begin = region.words().as_ptr() as u64;
            let expected = (0..loads).fold(start, |at, _| region.words()[(at - begin) as usize / 8]);
            // SAFETY: `start` is in the chain that the region holds.
            assert_eq!(unsafe { follow(start, loads) }, expected, "{bytes} bytes, {loads} loads");
        }
    }

    #[test]
    fn a_region_of_no_whole_pages_is_refused() {
        for bytes in [0, 1, 4095, 6144] {
            let refused = prepare(Kernel::Read, bytes);
            assert!(matches!(refused, Err(KernelError::RegionSize { bytes: named, .. }) if named == bytes));
        }
    }
}
