//! Reports of runs.

pub mod closing;
pub mod explanation;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixture;
pub mod page;
pub mod programs;
pub mod table;
pub mod words;
