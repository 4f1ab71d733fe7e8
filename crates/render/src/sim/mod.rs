//! Comparisons of simulated variants.

pub mod page;
