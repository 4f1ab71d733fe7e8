//! Recordings in the formats of other tools.
//!
//! There are two kinds of readers. Compilers and link-time optimisers need to know how often each branch goes
//! where: [`counts`] makes these figures from windows; [`llvm_profgen`], [`bolt`] and [`perf_script`] write
//! them, and by source line ([`source`]) also [`autofdo_text`], [`gcov`] and [`pprof`]. People want to see
//! where time goes: [`stacks`] finds the calls that windows show, and [`folded`] and [`firefox`] write them.
//!
//! A profile for an optimiser is of one module, and its addresses are as linked, so it does not matter where
//! a process had loaded it. Code made at run time has no address as linked and is in no profile.

pub mod autofdo_text;
pub mod bolt;
pub mod counts;
pub mod firefox;
pub mod folded;
mod format;
pub mod gcov;
pub mod llvm_profgen;
pub mod perf_script;
pub mod pprof;
pub mod source;
pub mod stacks;

#[cfg(test)]
pub(crate) mod fixture;

pub use format::{Format, ModuleFile, Needs, OfModule, Segment, Writer};

/// All formats, in the order of the help.
pub const FORMATS: [Format; 8] = [
    llvm_profgen::FORMAT,
    bolt::FORMAT,
    autofdo_text::FORMAT,
    gcov::FORMAT,
    pprof::FORMAT,
    perf_script::FORMAT,
    folded::FORMAT,
    firefox::FORMAT,
];
