//! Memory regions for measurements: mapped for this purpose, touched by the requesting thread, in huge pages
//! if the system provides them.
//!
//! A region begins at a multiple of 2 MiB, so that one of up to 2 MiB lies in a single huge page:
//! measurements are then free of page walks and of unlucky page colours. If transparent huge pages are
//! switched off, small pages are used and both effects occur.

use super::measuring_loop::KernelError;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// Size and alignment of a huge page on x86-64, and on aarch64 with pages of 4 KiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The distance of chain elements, and the size of a cache line nearly everywhere. Where lines are of 128
/// bytes, a chain visits each twice, far apart in time.
pub(super) const LINE_BYTES: usize = 64;

const WORD_BYTES: usize = size_of::<u64>();

/// A piece of memory, freed on drop.
#[derive(Debug)]
pub(super) struct Region {
    mapping: NonNull<c_void>,
    mapped_bytes: usize,
    begin: NonNull<u64>,
    words: usize,
}

impl Region {
    /// Allocates a region in which each word holds its own index.
    pub(super) fn new(bytes: usize) -> Result<Self, KernelError> {
        let no_memory = |source| KernelError::Memory { bytes: bytes as u64, source };
        let mapped_bytes = bytes
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .and_then(|whole_pages| whole_pages.checked_add(HUGE_PAGE_BYTES))
            .and_then(NonZeroUsize::new)
            .ok_or_else(|| no_memory(std::io::ErrorKind::OutOfMemory.into()))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new private mapping at an address of the system's choice overlays nothing.
        let mapping = unsafe { mmap_anonymous(None, mapped_bytes, access, MapFlags::MAP_PRIVATE) }
            .map_err(|errno| no_memory(errno.into()))?;
        // SAFETY: the range is the mapping above, and the advice changes no contents. A system without huge
        // pages refuses, and small ones serve too.
        let _ = unsafe { madvise(mapping, mapped_bytes.get(), MmapAdvise::MADV_HUGEPAGE) };
        let skipped = mapping.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: less than HUGE_PAGE_BYTES are skipped, by which the mapping is longer than the region.
        let begin = unsafe { mapping.byte_add(skipped) }.cast();
        let mut region = Self { mapping, mapped_bytes: mapped_bytes.get(), begin, words: bytes / WORD_BYTES };
        for (word, index) in region.words_mut().iter_mut().zip(0..) {
            *word = index;
        }
        Ok(region)
    }

    /// Returns the contents.
    pub(super) fn words(&self) -> &[u64] {
        // SAFETY: so many words from `begin` lie in the mapping, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.begin.as_ptr(), self.words) }
    }

    /// Returns the contents for modification.
    pub(super) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: so many words from `begin` lie in the mapping, which lives as long as `self` and is only
        // reachable through it.
        unsafe { std::slice::from_raw_parts_mut(self.begin.as_ptr(), self.words) }
    }

    /// Writes into the first word of each cache line the address of another line's, so that following the
    /// addresses from anywhere visits all lines in random order and comes back (Sattolo's algorithm, which
    /// yields a permutation that is one cycle). Returns one of the addresses.
    pub(super) fn link_lines_at_random(&mut self) -> u64 {
        const STEP: usize = LINE_BYTES / WORD_BYTES;
        let begin = self.begin.as_ptr() as u64;
        let words = self.words_mut();
        let lines = words.len() / STEP;
        for line in 0..lines {
            words[line * STEP] = begin + (line * LINE_BYTES) as u64;
        }
        let mut random = SplitMix64(lines as u64);
        for line in (1..lines).rev() {
            words.swap(line * STEP, random.below(line as u64) as usize * STEP);
        }
        begin
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, whole, and nobody borrows from it any more. Unmapping a mapping as it
        // was made cannot fail.
        let _ = unsafe { munmap(self.mapping, self.mapped_bytes) };
    }
}

/// Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (OOPSLA 2014).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`; the bias is below limit / 2⁶⁴.
    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_region_is_aligned_and_numbered() {
        for bytes in [4096, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 4096] {
            let region = Region::new(bytes).unwrap();
            assert_eq!(region.words().as_ptr() as usize % HUGE_PAGE_BYTES, 0);
            assert!(region.words().iter().copied().eq(0..bytes as u64 / 8));
        }
    }

    #[test]
    fn a_chain_visits_each_line_once_and_comes_back() {
        for bytes in [64, 128, 4096, 192 << 10] {
            let mut region = Region::new(bytes).unwrap();
            let start = region.link_lines_at_random();
            let begin = region.words().as_ptr() as u64;
            let mut visited = HashSet::new();
            let mut at = start;
            while visited.insert(at) {
                assert!(at >= begin && at < begin + bytes as u64 && at.is_multiple_of(LINE_BYTES as u64));
                at = region.words()[(at - begin) as usize / WORD_BYTES];
            }
            assert_eq!((at, visited.len()), (start, bytes / LINE_BYTES));
        }
    }

    #[test]
    fn a_chain_is_in_no_order_that_a_prefetcher_knows() {
        let mut region = Region::new(1 << 20).unwrap();
        region.link_lines_at_random();
        let begin = region.words().as_ptr() as u64;
        let lines: Vec<u64> = region.words().iter().step_by(8).map(|next| (next - begin) / 64).collect();
        let near = lines.iter().enumerate().filter(|(line, next)| next.abs_diff(*line as u64) <= 16).count();
        assert!(near * 100 < lines.len(), "{near} of {} lines lead to one within 1 KiB", lines.len());
    }

    #[test]
    fn too_large_a_region_is_an_error() {
        assert!(matches!(Region::new(1 << 60), Err(KernelError::Memory { .. })));
        assert!(matches!(Region::new(usize::MAX & !4095), Err(KernelError::Memory { .. })));
    }
}
