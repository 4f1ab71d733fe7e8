//! What the runs of one user share, though none of them leads: files in the runtime directory.

pub mod board;
pub mod gangs;
pub mod places;
