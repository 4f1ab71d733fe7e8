//! Reports of runs.

pub mod page;
pub mod table;
pub mod words;
