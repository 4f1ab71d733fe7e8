//! What corewise changes on a machine: the PEs of threads ([`masks`]), their weights ([`weights`]), turns
//! ([`turns`]), how long idle threads of a runtime spin ([`runtimes`]), the speed of PEs ([`slow`]).
//!
//! Nothing stays changed: each change is written down before it is made ([`journal`]), and the [`guardian`]
//! restores everything if corewise dies.

pub mod act_token;
pub mod actuator;
pub mod actuators;
pub mod changes;
pub mod descent;
pub mod frequency;
pub mod group;
pub mod guardian;
pub mod heartbeat;
pub mod journal;
#[cfg(test)]
mod lacks;
pub mod ledger;
pub mod mask;
pub mod masks;
pub mod members;
pub mod recovery;
pub mod restore;
pub mod runtime_directory;
pub mod runtimes;
pub mod sched_policy;
pub mod shared;
pub mod slow;
pub mod thread_weight;
pub mod turns;
pub mod weights;
pub mod word;
pub mod words;
