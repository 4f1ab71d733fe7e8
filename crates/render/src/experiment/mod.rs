//! Results of experiments.

pub mod index;
pub mod page;
pub mod table;
pub mod worlds;

#[cfg(test)]
mod tests;
