//! What each kernel and each NAS benchmark asks of a PE.
//!
//! Plain round numbers for an out-of-order core that issues four instructions per cycle, chosen for the
//! relations that the paper reports ("Analyzing resource interdependencies", §3.3): a division keeps the only
//! divider busy, additions fill their units, a dependent chain leaves most of everything to a neighbour. The
//! FPU of a module has several adders, so that additions of two cores hardly meet there while divisions do.

use crate::contention::Demand;
use corewise_core::calibrate::{Kernel, Nas, ProblemClass};

/// What a kernel without a region does and takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// Units of work per cycle when alone.
    pub work_per_cycle: f64,
    /// Share of the core's issue slots (or of its only integer divider), 0..1.
    pub issue: f64,
    /// Share of the FPU where it is the core's own, 0..1.
    pub fpu: f64,
    /// Share of the FPU where it is a module's.
    pub fpu_of_module: f64,
    /// Power as a multiple of an ordinary loop's.
    pub power: f64,
}

const fn profile(work_per_cycle: f64, issue: f64, fpu: f64, fpu_of_module: f64) -> Profile {
    Profile { work_per_cycle, issue, fpu, fpu_of_module, power: 1.0 }
}

impl Profile {
    /// The profile of a kernel. Of those of memory it says what an access takes of the core's slots.
    pub fn of(kernel: Kernel) -> Self {
        match kernel {
            Kernel::Alternate | Kernel::FetchAdd | Kernel::HandOver => profile(0.0, 0.25, 0.0, 0.0),
            Kernel::Read | Kernel::Write | Kernel::Copy => profile(0.0, 0.5, 0.0, 0.0),
            Kernel::LoadLatency => profile(0.0, 0.05, 0.0, 0.0),
            Kernel::IntAdd => profile(4.0, 1.0, 0.0, 0.0),
            Kernel::IntAddChain => profile(1.0, 0.25, 0.0, 0.0),
            Kernel::IntDiv => profile(0.15, 1.0, 0.0, 0.0),
            Kernel::IntDivChain => profile(0.06, 0.4, 0.0, 0.0),
            Kernel::FpAdd => profile(2.0, 0.25, 1.0, 0.2),
            Kernel::FpAddChain => profile(0.25, 0.05, 0.12, 0.05),
            Kernel::FpDiv => profile(0.2, 0.05, 1.0, 1.0),
            Kernel::FpDivChain => profile(0.07, 0.05, 0.35, 0.35),
            Kernel::ConvertF32 => profile(2.0, 0.4, 0.9, 0.9),
            Kernel::ConvertI24 => profile(1.5, 0.6, 0.8, 0.8),
            Kernel::Branches => profile(0.1, 0.4, 0.0, 0.0),
            Kernel::WideFma => Profile { power: 2.0, ..profile(16.0, 0.5, 1.0, 1.0) },
        }
    }
}

/// What a synchronisation kernel takes per unit of work, as a multiple of the latency between its two PEs.
pub fn exchange_cost(kernel: Kernel) -> f64 {
    if kernel == Kernel::FetchAdd { 0.8 } else { 1.0 }
}

/// Bytes that go over a memory level per byte of a kernel's work: a line that is written is fetched before
/// and stored after.
pub fn traffic(kernel: Kernel) -> f64 {
    match kernel {
        Kernel::Write => 2.0,
        Kernel::Copy => 3.0,
        _ => 1.0,
    }
}

/// What a NAS benchmark does, coarsely (Table 2 of the paper for its focus).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// What each thread asks for.
    pub demand: Demand,
    /// Work of all threads together, in 10⁹ cycles when alone.
    pub gcycles: f64,
    /// How often the threads wait for each other.
    pub exchanges: f64,
}

impl Mix {
    /// The mix of a benchmark in a size.
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
