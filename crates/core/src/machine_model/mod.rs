//! The machine model: what placing threads on a machine costs and gains.
//!
//! *Problem.* A topology tells which PEs share what, but not what sharing costs: two threads on one FPU may
//! halve each other's speed or not notice, and two threads that exchange data gain from the cache that two
//! others compete for. Policies, the simulator and reports must agree on these costs.
//!
//! *Approach.* A [`MachineModel`] is the topology as the machine behaves, with the parameters of a predictor
//! ([`contention`]), the speed of each PE, the latency between PEs, measured contention curves and the
//! memory nodes. It is made from a machine profile ([`MachineModel::from_profile`]: each parameter comes
//! from the measurement that depends on it and on little else), or from a topology alone. In the latter
//! case it contains round numbers whose confidence is [`ASSUMED_CONFIDENCE`], too low for any decision
//! ([`crate::classify::CONFIDENCE_MIN`]). Queries return a [`Figure`] with its confidence and source.
//!
//! *Sources.* What is shared and how it is measured: "Analyzing resource interdependencies", §3 (units,
//! caches, memory, synchronisation). That the FPU is what modules share, and that FPU usage is the criterion
//! for separating threads: BulldOver, §II and §III. The predictor's sources are listed in [`contention`].
//!
//! *Limits.* Those of the predictor. Speeds are those of one kernel, although programs differ in what they
//! gain from a fast PE. The latency of a pair that was not measured is taken from pairs at the same
//! distance. Policies see fixed clocks: the effect of busy neighbours on them ([`power`]) is known to the
//! simulator only.

pub mod cache;
pub mod channel;
mod check;
pub mod contention;
mod curve;
pub mod demand;
mod figure;
mod fit;
mod lost;
mod model;
mod parameter;
pub mod power;
mod predicted;
mod shape;
mod switching;
pub mod units;

pub use check::{Absent, Check, Compared, check};
pub use curve::Curve;
pub use figure::{ASSUMED_CONFIDENCE, Figure, Source};
pub use lost::Lost;
pub use model::MachineModel;
pub use parameter::{Memory, Parameter, Units};
pub use shape::{Distance, Pe};
pub use switching::Switching;

#[cfg(test)]
mod tests;
