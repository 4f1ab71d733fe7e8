//! The simulated machine of corewise: a deterministic discrete-event [`World`](corewise_core::world::World).
//!
//! [`scenario`] reads the description of a run, [`machine`] and [`program`] prepare it, and [`sim`] executes
//! it at the paces of [`corewise_core::machine_model::contention`] and with [`faults`]. [`world`] presents it
//! to the engine, [`comparison`] runs variants and seeds, and [`fuzz`] runs random scenarios checked by
//! [`invariants`]. [`bench`] is the same machine for a calibration: it runs kernels instead of programs.
//! [`guarding`] tests the engine's guard with bad and good policies. [`measured`] turns a calibration into a
//! machine. [`rt_app`] reads the workloads of rt-app. [`what_if`] turns recorded threads into programs and
//! simulates them on other machines. [`experiment`] compares several scenarios with a paper's findings. The
//! crate reads no file and no clock: a scenario and a seed determine every byte of a result.

pub mod bench;
mod chance;
pub mod comparison;
pub mod decisions;
pub mod estimate;
pub mod experiment;
pub mod faults;
pub mod fuzz;
pub mod grid;
pub mod guarding;
pub mod invariants;
pub mod judge;
pub mod machine;
pub mod measured;
pub mod pmu;
pub mod program;
pub mod queue;
pub use corewise_core::random;
pub mod rt_app;
pub mod scenario;
pub mod sim;
pub mod size;
pub mod thread;
pub mod timeline;
pub mod treatments;
mod variant;
mod violation;
pub mod what_if;
pub mod world;
