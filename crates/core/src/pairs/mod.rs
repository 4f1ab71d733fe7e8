//! What pairs of programs gain: every program alone and in pairs, on two PEs.
//!
//! Problem: the co-scheduling paper's Figure 1 shows, for each pair, whether both at once are faster than
//! one after the other. All pairs of n programs are n(n+1)/2 runs, and most say nothing new.
//!
//! Approach: each program runs alone on the first PE, and beside each other one (itself, too) on two PEs,
//! bound from its start. It is started again until all of the run have completed [`COMPLETIONS`] times,
//! so that both of a pair have a neighbour all the time; its time is the mean of its completions. The
//! *gain* is the paper's for programs of the same length: in the time in which the two complete
//! `1/slowdown` of their work each, one after another would complete 1, so the gain is `1/slowdown[a] +
//! 1/slowdown[b] - 1`. (The paper lets each program run once. Then the end of the longer one has no
//! neighbour, and the gain of programs of different lengths says little about their sharing; its §5 says
//! so.)
//!
//! The [`design`] is adaptive: after each program has been in two pairs, the pair is next of which the
//! model of [`crate::interference`] is least sure. It stops when that model predicts pairs that it has not
//! seen as exactly as they are measured: then the next pair teaches nothing, and the others are predicted.
//!
//! Limits: both PEs are taken to be alike, as programs run alone on the first. The intervals assume that
//! runs are independent; a drift of the machine during hours is part of the noise.

mod conduct;
mod design;
mod findings;
mod plan;
#[cfg(test)]
mod tests;

pub use conduct::{Ending, Progress, conduct};
pub use design::{Next, next};
pub use findings::{Findings, Pair, findings, rows};
pub use plan::{COMPLETIONS, Plan, Program, Record, Subject};
