//! Machine profiles.

mod comparisons;
pub mod csv;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixture;
pub mod page;
pub mod table;
pub mod words;
