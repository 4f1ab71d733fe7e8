//! Comparisons of simulated variants.

pub mod estimate;
pub mod page;
