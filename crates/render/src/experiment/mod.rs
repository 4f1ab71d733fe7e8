//! Results of experiments.

pub mod page;
pub mod table;
