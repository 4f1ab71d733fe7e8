//! What the loops of two threads share.

use std::sync::atomic::AtomicU64;

/// A variable alone in its cache line, and in the neighbouring lines that a prefetcher might fetch with it.
#[derive(Debug, Default)]
#[repr(align(256))]
pub struct Line(pub AtomicU64);

/// The memory shared by two threads. Use a new one for each pair of loops.
#[derive(Debug, Default)]
pub struct SharedLines {
    /// Written by the first thread; Alternate and FetchAdd use it for both.
    pub(super) first: Line,
    /// Written by the second thread.
    pub(super) second: Line,
}

/// Which of the two threads a loop is for. Each pair needs one of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Its number is 0, and it hands over first.
    First,
    /// Its number is 1; it answers.
    Second,
}
