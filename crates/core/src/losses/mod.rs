//! What threads are predicted to lose where they are put: the door between the machine model and decisions.
//!
//! Problem: the machine model predicts what loads on given PEs cost each other. A decision is about threads
//! of which some figures are known, and about sets of PEs, within which the system chooses; often there are
//! more threads than PEs.
//!
//! Approach. What is [known] of a thread, now and by earlier runs ([`Knowledge`]), is its demand. A placement
//! is looked at in a few [instants](Losses::of): at each, every PE runs one of the threads that may run
//! there, drawn by how much each wants to run, where the system would put it: the emptiest core among its
//! PEs. The predictor gives what the running threads lose to each other, and the mean over the instants, in
//! seconds of PE time per second, is what the placement loses. It is the currency of waits
//! ([`crate::waits::losses`]), so that both can be compared.
//!
//! Instants are drawn with one fixed seed, and the same for all placements that are compared: what differs
//! between two placements is the placements.
//!
//! Source: the mean over the instants is a plain Monte Carlo estimate. That a scheduler should decide by the
//! measured interdependencies of resources is the conclusion of "Analyzing resource interdependencies", §4.
//!
//! Limits: those of the predictor, and [`INSTANTS`]: the loss of a placement without fixed seats has a
//! standard error of a quarter of what it varies by from instant to instant. Threads are taken to run
//! independently of each other, and their memory to be on the node where they run.

mod expected;
mod knowledge;
mod known;

pub use crate::machine_model::Lost;
pub use expected::{INSTANTS, Losses, Running};
pub use knowledge::Knowledge;
pub use known::KnownDemand;
