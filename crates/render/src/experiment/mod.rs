//! Results of experiments.

pub mod index;
pub mod page;
pub mod table;

#[cfg(test)]
mod tests;
