//! The simulated machine of corewise: a deterministic discrete-event [`World`](corewise_core::world::World).
//!
//! [`scenario`] reads what shall happen, [`machine`] and [`program`] make it ready, [`sim`] lets it happen
//! at the paces of [`contention`], [`world`] shows it to the engine, [`comparison`] runs variants and seeds.
//! The crate reads no file and no clock: a scenario and a seed fix every byte of a result.

pub mod comparison;
pub mod contention;
pub mod machine;
pub mod pmu;
pub mod program;
pub mod queue;
pub mod random;
pub mod scenario;
pub mod sim;
pub mod thread;
pub mod timeline;
pub mod world;
