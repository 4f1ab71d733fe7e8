//! How the measuring loops of `corewise calibrate` run on a machine: what its data sheet says of its core and
//! caches beyond the predictor's parameters. The defaults are round numbers of out-of-order cores of about
//! 2010.

use super::kernels;
use corewise_core::kernels::{Kernel, KernelUsage};
use corewise_core::machine_model::contention::Demand;
use corewise_core::machine_model::{Distance, MachineModel};
use serde::{Deserialize, Serialize};

/// How loops run, as written in a scenario's machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Loops {
    /// Size of a core's first-level data cache in KiB.
    pub l1_kib: f64,
    /// Latencies of the first two levels in cycles; those of the others are the machine's.
    pub latency_cycles: [f64; 2],
    /// Bytes per cycle that one core, with all of its PEs, streams from L1, L2, L3 and memory.
    pub stream: [f64; 4],
    /// Bytes per cycle that one L2 delivers to all its PEs.
    pub l2_delivers: f64,
    /// Bytes per cycle that an L3 delivers per core.
    pub l3_delivers_per_core: f64,
    /// Share of a unit's throughput that one thread reaches alone. An in-order core waits for each operand.
    pub filled: f64,
    /// Whether integers are divided by the FPU's divider.
    pub one_divider: bool,
}

impl Default for Loops {
    fn default() -> Self {
        Self {
            l1_kib: 32.0,
            latency_cycles: [4.0, 14.0],
            stream: [32.0, 16.0, 8.0, 4.0],
            l2_delivers: 20.0,
            l3_delivers_per_core: 6.0,
            filled: 1.0,
            one_divider: false,
        }
    }
}

impl Loops {
    /// Returns what a kernel uses of a PE of this machine.
    pub fn usage(&self, kernel: Kernel) -> KernelUsage {
        let mut usage = kernel.usage();
        if self.one_divider && matches!(kernel, Kernel::IntDiv | Kernel::IntDivChain) {
            // It occupies the divider for as long, and few issue slots.
            (usage.fpu, usage.fpu_of_module) = (usage.issue, usage.issue);
            usage.issue = Kernel::FpDiv.usage().issue;
        }
        usage.issue *= self.filled;
        usage.fpu *= self.filled;
        usage.fpu_of_module *= self.filled;
        usage
    }

    /// Returns what a thread demands here that demands this of a core of [`kernels::ISSUE_WIDTH`].
    pub fn demand(&self, demand: &Demand, issue_width: f64) -> Demand {
        let ipc = demand.ipc / kernels::ISSUE_WIDTH * issue_width * self.filled;
        Demand { fpu: demand.fpu * self.filled, ipc, ..*demand }
    }

    /// Returns the parameter that is out of its range, if one is.
    pub fn fault(&self) -> Option<(&'static str, f64)> {
        let positive = [self.l1_kib, self.l2_delivers, self.l3_delivers_per_core];
        let positive = positive.iter().chain(&self.latency_cycles).chain(&self.stream);
        let bad = positive.copied().find(|value| !(*value > 0.0 && value.is_finite()));
        let filled = Some(self.filled).filter(|filled| !(*filled > 0.0 && *filled <= 1.0));
        bad.map(|value| ("loops", value)).or(filled.map(|value| ("loops.filled", value)))
    }
}

/// The time until one PE sees what another wrote, in nanoseconds, by the closest thing that they share, as
/// written in a scenario's machine. What is left out has the model's default.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HandOver {
    /// Within an SMT core.
    pub core: Option<f64>,
    /// Within an L2.
    pub l2: Option<f64>,
    /// Within an L3.
    pub l3: Option<f64>,
    /// Within a memory node.
    pub node: Option<f64>,
    /// To another node.
    pub system: Option<f64>,
}

impl HandOver {
    /// Puts the latencies into a model.
    pub fn put(&self, model: &mut MachineModel) {
        let Self { core, l2, l3, node, system } = *self;
        for (distance, ns) in Distance::MOVES.into_iter().zip([core, l2, l3, node, system]) {
            if let Some(ns) = ns {
                model.assume_latency_ns(distance, ns);
            }
        }
    }
}
