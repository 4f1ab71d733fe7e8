//! The definition of a path.
//!
//! Ball and Larus ("Efficient path profiling", MICRO 1996) count the acyclic paths within functions: a path
//! ends where a loop would close, and the next begins there. The paths here are similar, and can be
//! identified in a window of branches as reliably as in a whole trace, because whether a path ends at a
//! transfer depends only on the transfer:
//!
//! - at a **call**: the next paths are the callee's, and the caller continues with a new path after the call
//!   (after the return). So a path never contains another activation's branches, and no path is interleaved
//!   with another: a thread's execution is a sequence of paths, and following it takes no call stack;
//! - at a **return**;
//! - at a **back edge**: a taken branch or jump within a function to an address that is not above its own. A
//!   loop head in Ball and Larus' sense is the target of such an edge in compiled code; one that is laid out
//!   backwards without closing a loop cuts one path in two;
//! - at a **jump out of the function** (a tail call, a linkage stub, the cold part that a compiler moved
//!   away).
//!
//! Each of these transfers begins the next path at its target. Since all other transfers go forwards within a
//! function, every path is finite. Its identity is its start and the outcomes of its conditional and indirect
//! branches; blocks and instructions follow from the code ([`crate::graph::Graph::blocks_of`]).

use crate::window::Location;
use serde::{Deserialize, Serialize};

/// The outcome of one branch that could have gone elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A conditional branch fell through.
    NotTaken,
    /// A conditional branch was taken.
    Taken,
    /// An indirect jump within the function went to this address, as linked.
    To(u64),
}

/// Why a path ended, and so how the next one starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Boundary {
    /// A call: the next path starts at a function's entry.
    Call,
    /// A return: the next path starts after a call.
    Return,
    /// A taken backward transfer within a function: the next path starts at a loop's head.
    BackEdge,
    /// A jump to another function.
    Jump,
}

/// A path's identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Path {
    /// Its first instruction.
    pub start: Location,
    /// The outcomes of its conditional and indirect branches, including the one that ends it. The target of
    /// the call, return or jump out of the function that ends it is not part of it.
    pub steps: Box<[Step]>,
}
