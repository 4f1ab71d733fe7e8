//! The demands of exchanges of values and of the NAS benchmarks on a PE. (Those of kernels are in
//! [`Kernel::usage`].)

use corewise_core::kernels::{Kernel, Nas, ProblemClass};
use corewise_core::machine_model::contention::Demand;

/// The issue width of the cores that the mixes are described for.
pub const ISSUE_WIDTH: f64 = 4.0;

/// Returns the time of a synchronisation kernel per unit of work, as a multiple of the latency between its
/// two PEs.
pub fn exchange_cost(kernel: Kernel) -> f64 {
    if kernel == Kernel::FetchAdd { 0.8 } else { 1.0 }
}

/// A coarse description of a NAS benchmark (Table 2 of the paper for its focus).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// The demand of each thread.
    pub demand: Demand,
    /// Total work of all threads, in 10⁹ cycles when alone.
    pub gcycles: f64,
    /// How often the threads wait for each other.
    pub exchanges: f64,
}

impl Mix {
    /// Returns the mix of a benchmark in a size.
    pub fn of(nas: Nas, class: ProblemClass) -> Self {
        let scale = match class {
            ProblemClass::S => 1.0,
            ProblemClass::W => 8.0,
            ProblemClass::A => 60.0,
            ProblemClass::B => 240.0,
            ProblemClass::C => 960.0,
        };
        // FPU usage, L2 misses per 100 cycles, MiB and 10⁶ cycles of class S, exchanges.
        let (fpu, misses, mib, mcycles, exchanges) = match nas {
            Nas::Bt => (0.6, 0.3, 0.5, 300.0, 2e3),
            Nas::Cg => (0.3, 1.2, 1.0, 100.0, 5e3),
            Nas::Ep => (0.7, 0.0, 0.0, 1000.0, 10.0),
            Nas::Ft => (0.5, 0.6, 5.0, 300.0, 100.0),
            Nas::Is => (0.0, 1.5, 0.5, 10.0, 100.0),
            Nas::Lu => (0.5, 0.5, 0.5, 200.0, 1e4),
            Nas::Mg => (0.5, 1.0, 0.5, 20.0, 1e3),
            Nas::Sp => (0.6, 0.6, 0.5, 200.0, 4e3),
            Nas::Ua => (0.4, 0.8, 0.5, 200.0, 5e3),
        };
        let demand = Demand {
            fpu,
            ipc: 1.5,
            l2_misses_per_100_cycles: misses,
            working_set_mib: mib * scale,
            ..Demand::default()
        };
        Self { demand, gcycles: mcycles * scale / 1e3, exchanges }
    }
}
