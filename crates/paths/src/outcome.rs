//! Converts a window to all its branch outcomes, by static decoding.
//!
//! A window lists the taken transfers. Between two of them control fell through every conditional branch, so
//! following the code from the target of one to the source of the next yields the outcomes of all branches.
//! This also checks the window: each transfer must be one that the instruction at its source can make. A
//! window that disagrees with the code (another version of the file, code that was patched at run time, a
//! sampler's error) cannot be trusted, and is rejected whole.

use crate::graph::{BlockId, EdgeId, Exit, Graph};
use crate::window::{Location, Window};

/// One branch outcome of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The way out of an instruction that was taken.
    pub edge: EdgeId,
    /// Instructions since the previous outcome, including the branch itself.
    pub instructions: u32,
}

/// Why a window disagrees with the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// There is no instruction at an executed location.
    #[error("no instruction at {:#x} of module {}", .0.address, .0.module.0)]
    NoCode(Location),
    /// The instruction cannot transfer control as the window says.
    #[error("the instruction at {:#x} of module {} cannot go where the window says", .0.address, .0.module.0)]
    NoSuchTransfer(Location),
    /// Control had to leave the straight line before it reached the location.
    #[error("{:#x} of module {} is not reached from where control was", .0.address, .0.module.0)]
    NotReached(Location),
}

/// Where a window begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The block that begins with its first instruction.
    pub first: BlockId,
    /// The block that contains the first instruction after it, if there is code.
    pub last: Option<BlockId>,
}

/// Replaces `outcomes` by the window's outcomes.
pub fn outcomes_of(
    graph: &mut Graph,
    window: &Window,
    outcomes: &mut Vec<Outcome>,
) -> Result<Span, Mismatch> {
    outcomes.clear();
    let first = graph.block_at(window.start).ok_or(Mismatch::NoCode(window.start))?;
    let mut at = Some(first);
    for transfer in &window.transfers {
        let block = fall_to(graph, at, transfer.from, outcomes)?;
        let block = *graph.block(block);
        if graph.site(block.site).at != transfer.from {
            return Err(Mismatch::NoSuchTransfer(transfer.from));
        }
        let edge = graph.edge(block.site, transfer.to).ok_or(Mismatch::NoSuchTransfer(transfer.from))?;
        outcomes.push(Outcome { edge, instructions: block.instructions });
        at = graph.edge_of(edge).block;
    }
    let behind_last_transfer = window.transfers.last().map_or(window.start, |transfer| transfer.to);
    if window.end != behind_last_transfer {
        at = Some(fall_to(graph, at, window.end, outcomes)?);
    }
    Ok(Span { first, last: at })
}

/// Falls through conditional branches up to the block that contains a location.
fn fall_to(
    graph: &mut Graph,
    mut at: Option<BlockId>,
    goal: Location,
    outcomes: &mut Vec<Outcome>,
) -> Result<BlockId, Mismatch> {
    loop {
        let id = at.ok_or(Mismatch::NoCode(goal))?;
        let block = *graph.block(id);
        let site = graph.site(block.site);
        if goal.module != block.start.module || goal.address < block.start.address {
            return Err(Mismatch::NotReached(goal));
        }
        if goal.address <= site.at.address {
            return Ok(id);
        }
        match site.exit {
            Exit::Branch(_) => {}
            Exit::Jump(_) | Exit::JumpAnywhere | Exit::Call(_) | Exit::Return | Exit::Unknown => {
                return Err(Mismatch::NotReached(goal));
            }
        }
        let next = Location { address: site.after, ..site.at };
        let edge = graph.edge(block.site, next).ok_or(Mismatch::NotReached(goal))?;
        outcomes.push(Outcome { edge, instructions: block.instructions });
        at = graph.edge_of(edge).block;
    }
}
