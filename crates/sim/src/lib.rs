//! The simulated machine of corewise: a deterministic discrete-event [`World`](corewise_core::world::World).
//!
//! [`scenario`] reads what shall happen, [`machine`] and [`program`] make it ready, [`sim`] lets it happen
//! at the paces of [`corewise_core::machine_model::contention`] and with [`faults`], [`world`] shows it to
//! the engine, [`comparison`] runs variants and seeds, [`fuzz`] random scenarios under the eyes of
//! [`invariants`]. [`bench`] is the same machine for a calibration: it runs kernels instead of programs.
//! [`guarding`] sets bad policies and good ones against the engine's guard. [`measured`] makes the machine of
//! a calibration. [`rt_app`] reads the workloads of rt-app. [`what_if`] makes programs of recorded threads
//! and asks how they would run elsewhere. [`experiment`] holds several scenarios against what a paper found.
//! The crate reads no file and no clock: a scenario and a seed fix every byte of a result.

pub mod bench;
pub mod comparison;
pub mod experiment;
pub mod faults;
pub mod fuzz;
pub mod guarding;
pub mod invariants;
pub mod machine;
pub mod measured;
pub mod pmu;
pub mod program;
pub mod queue;
pub use corewise_core::random;
pub mod rt_app;
pub mod scenario;
pub mod sim;
pub mod thread;
pub mod timeline;
pub mod what_if;
pub mod world;
