//! How much of a run a page shows.

/// The maximum number of threads that are drawn and listed, busiest first.
pub const THREADS_SHOWN_MAX: usize = 60;

/// The maximum number of programs that are listed, busiest first.
pub const PROGRAMS_SHOWN_MAX: usize = 20;

/// The maximum number of bindings that are drawn, the longest of each thread first.
pub const BINDINGS_SHOWN_MAX: usize = 600;

/// The maximum number of decisions that are marked and listed, first ones first.
pub const DECISIONS_SHOWN_MAX: usize = 500;
