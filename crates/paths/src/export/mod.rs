//! Recordings in the formats of other tools.
//!
//! Two kinds of readers want two kinds of figures. Compilers and link-time optimisers want to know how often
//! each branch goes where: [`counts`] makes these of windows, and [`llvm_profgen`], [`bolt`],
//! [`autofdo_text`] and [`perf_script`] write them. People want to see where time goes: [`stacks`] finds the
//! calls that windows show, and [`folded`] and [`firefox`] write them.
//!
//! A profile for an optimiser is of one module, and its addresses are as linked, so it does not matter where
//! any process had loaded it. Code made at run time has no address as linked and is in no profile.

pub mod autofdo_text;
pub mod bolt;
pub mod counts;
pub mod firefox;
pub mod folded;
pub mod llvm_profgen;
pub mod perf_script;
pub mod stacks;

#[cfg(test)]
mod fixture;
