//! The pieces of paths in a window.
//!
//! A window begins and ends anywhere. Cut at the boundaries of paths ([`crate::path`]), it consists of a
//! first piece whose path began before it, whole paths, and a last piece whose path may continue after it. A
//! piece is *anchored* if its path begins with it, so that the position of each outcome in the path is known,
//! and *complete* if its path ends with it; if the window ended first, the rest of the path is censored.

use crate::graph::{BlockId, Graph};
use crate::outcome::Outcome;

/// Consecutive outcomes of one path.
#[derive(Debug, Clone, Copy)]
pub struct Fragment<'a> {
    /// The block where it begins.
    pub block: BlockId,
    /// Whether its path begins there, too.
    pub anchored: bool,
    /// Its outcomes; the transfer that ends its path is the last of them.
    pub outcomes: &'a [Outcome],
    /// Whether its path ends with it.
    pub complete: bool,
}

/// Cuts a window's outcomes into fragments. `first` is the block where the window begins.
pub fn fragments<'a>(
    graph: &Graph,
    first: BlockId,
    outcomes: &'a [Outcome],
    mut each: impl FnMut(Fragment<'a>),
) {
    let (mut block, mut anchored, mut begin) = (first, false, 0);
    for (index, outcome) in outcomes.iter().enumerate() {
        let edge = graph.edge_of(outcome.edge);
        if edge.boundary.is_some() {
            each(Fragment { block, anchored, outcomes: &outcomes[begin..=index], complete: true });
            let Some(next) = edge.block else { return };
            (block, anchored, begin) = (next, true, index + 1);
        }
    }
    if begin < outcomes.len() {
        each(Fragment { block, anchored, outcomes: &outcomes[begin..], complete: false });
    }
}
