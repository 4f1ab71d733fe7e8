//! How long the idle threads of LLVM's OpenMP runtime spin, and of Intel's, which is its relative.
//!
//! Problem: both keep the time, their "blocktime", in a variable that they do not export, and read
//! `KMP_BLOCKTIME` once. Their exported `kmp_set_blocktime` changes it for the calling thread alone.
//! Approach: where nobody has chosen a time, a team takes the common variable's, each time that it comes to a
//! barrier. The exported `kmp_get_blocktime` compares that variable with the number that means "for ever", so
//! its code tells where it is. Nothing is planted, so programs that run already are as good.
//!
//! Limits: only the default's value is taken for nobody's choice (0, hybrid processors' default, needs no
//! change). Before LLVM 18 it is one of milliseconds, of which none is as short as a block: that stays. The
//! library's idle threads give their PE away to others while they spin, so there is less to gain than with
//! libgomp. x86-64 only. A thread that waits already does so to the end.

use super::loaded::Loaded;
use super::variable::Variable;
use corewise_code::referenced::compared_with;

pub(super) const EXPORTED: &str = "kmp_get_blocktime";

/// What means "for ever".
const FOR_EVER: u32 = i32::MAX as u32;

/// The default, in microseconds.
const DEFAULT: u64 = 200_000;

/// What is written instead, so that idle threads spin shortly: about as long as a block costs. (Not 0: a
/// program of many short regions that has its PEs for itself takes eight times as long then, with this half
/// as long again.)
pub const SHORT: u64 = 10;

/// The variables of every copy, where they have the default value.
pub fn find(loaded: &Loaded) -> Vec<Variable> {
    let found = loaded.defining(EXPORTED).filter_map(|(copy, function)| {
        let address = compared_with(&loaded.code(function)?, function, FOR_EVER)?;
        loaded.variable(copy, address, 4)
    });
    found.filter(|variable| variable.own() == DEFAULT).collect()
}
