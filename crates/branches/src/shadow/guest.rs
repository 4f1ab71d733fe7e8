//! What an emulated thread shows: its pages and its vector registers.

use super::state::State;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// A page's bytes at a page's alignment, so that addresses in it are aligned like the real ones.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(4096))]
pub struct Page(pub [u8; PAGE]);

/// The stopped thread that is emulated.
pub trait Guest {
    /// Reads pages at page addresses, in this order until one cannot be read; returns their number.
    fn read_pages(&mut self, addresses: &[u64], pages: &mut [Page]) -> usize;

    /// Reads the vector registers; returns false if that failed.
    fn read_vectors(&mut self, state: &mut State) -> bool;
}
