//! The kernels that measure a machine: each stresses one resource and little else.

use serde::{Deserialize, Serialize};

/// A measuring loop. Its instruction sequence is fixed; `corewise-bench` holds the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// Two threads alternate in writing one shared variable: each reads it until it holds the other's
    /// number, then writes its own (interdependencies, §3.1).
    Alternate,
    /// Two threads add to one shared variable by atomic read-modify-write.
    FetchAdd,
    /// One thread hands a value over and the other answers, each in a cache line of its own; counts half
    /// round trips.
    HandOver,
    /// Reads a region from start to end (§3.2, as `bw_mem rd` of lmbench).
    Read,
    /// Writes a region.
    Write,
    /// Copies the first half of a region to its second half.
    Copy,
    /// Follows a chain of pointers through a region in random order: each load depends on the one before.
    LoadLatency,
    /// Independent integer additions (§3.3).
    IntAdd,
    /// Integer additions in one dependent chain: one per cycle on nearly every PE, so the rate is the clock.
    IntAddChain,
    /// Independent integer divisions.
    IntDiv,
    /// Integer divisions in one dependent chain.
    IntDivChain,
    /// Independent double-precision additions.
    FpAdd,
    /// Double-precision additions in one dependent chain.
    FpAddChain,
    /// Independent double-precision divisions.
    FpDiv,
    /// Double-precision divisions in one dependent chain.
    FpDivChain,
    /// Copies an array of 32-bit floats to 64-bit floats in the widest vector unit (§3.3).
    ConvertF32,
    /// Copies an array of 24-bit integers to 64-bit floats in the widest vector unit (§3.3).
    ConvertI24,
    /// Unpredictable branches.
    Branches,
    /// Fused multiply-adds in the widest vector unit: the most power that one PE can draw.
    WideFma,
}

/// The subject of a kernel; the paper's sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Focus {
    /// Two threads that wait for each other (§3.1).
    Synchronisation,
    /// Bandwidth and latency of the memory hierarchy (§3.2).
    Memory,
    /// Execution units (§3.3).
    Computation,
}

/// A model of a kernel's use of a PE: round numbers for an out-of-order core that issues four instructions
/// per cycle, chosen to reproduce the relations that the paper reports (interdependencies, §3.3). A division
/// keeps the only divider busy, additions fill their units, a dependent chain leaves most of everything to a
/// neighbour. The FPU of a module has several adders, so that additions of two cores hardly collide there,
/// while divisions do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelUsage {
    /// Units of work per cycle when alone; 0 if memory or a partner determines the rate.
    pub work_per_cycle: f64,
    /// Share of the core's issue slots (or of its only integer divider), 0..1.
    pub issue: f64,
    /// Share of the FPU if it belongs to the core, 0..1.
    pub fpu: f64,
    /// Share of the FPU if it belongs to a module, 0..1.
    pub fpu_of_module: f64,
    /// Power as a multiple of an ordinary loop's.
    pub power: f64,
}

/// A row of the table of kernels.
struct Facts {
    name: &'static str,
    focus: Focus,
    unit: &'static str,
    usage: KernelUsage,
}

fn usage(work_per_cycle: f64, issue: f64, fpu: f64, fpu_of_module: f64) -> KernelUsage {
    KernelUsage { work_per_cycle, issue, fpu, fpu_of_module, power: 1.0 }
}

impl Kernel {
    /// Every kernel, in the order of reports.
    pub const ALL: [Kernel; 19] = [
        Kernel::Alternate,
        Kernel::FetchAdd,
        Kernel::HandOver,
        Kernel::Read,
        Kernel::Write,
        Kernel::Copy,
        Kernel::LoadLatency,
        Kernel::IntAdd,
        Kernel::IntAddChain,
        Kernel::IntDiv,
        Kernel::IntDivChain,
        Kernel::FpAdd,
        Kernel::FpAddChain,
        Kernel::FpDiv,
        Kernel::FpDivChain,
        Kernel::ConvertF32,
        Kernel::ConvertI24,
        Kernel::Branches,
        Kernel::WideFma,
    ];

    /// Returns the facts of the kernel.
    fn facts(self) -> Facts {
        use Focus::{Computation, Memory, Synchronisation};
        let row = |name, focus, unit, usage| Facts { name, focus, unit, usage };
        match self {
            Kernel::Alternate => row("alternate", Synchronisation, "writes", usage(0.0, 0.25, 0.0, 0.0)),
            Kernel::FetchAdd => row("fetch-add", Synchronisation, "additions", usage(0.0, 0.25, 0.0, 0.0)),
            Kernel::HandOver => row("hand-over", Synchronisation, "hand-overs", usage(0.0, 0.25, 0.0, 0.0)),
            Kernel::Read => row("read", Memory, "bytes", usage(0.0, 0.5, 0.0, 0.0)),
            Kernel::Write => row("write", Memory, "bytes", usage(0.0, 0.5, 0.0, 0.0)),
            Kernel::Copy => row("copy", Memory, "bytes", usage(0.0, 0.5, 0.0, 0.0)),
            Kernel::LoadLatency => row("load-latency", Memory, "loads", usage(0.0, 0.05, 0.0, 0.0)),
            Kernel::IntAdd => row("int-add", Computation, "operations", usage(4.0, 1.0, 0.0, 0.0)),
            Kernel::IntAddChain => {
                row("int-add-chain", Computation, "operations", usage(1.0, 0.25, 0.0, 0.0))
            }
            Kernel::IntDiv => row("int-div", Computation, "operations", usage(0.15, 1.0, 0.0, 0.0)),
            Kernel::IntDivChain => {
                row("int-div-chain", Computation, "operations", usage(0.06, 0.4, 0.0, 0.0))
            }
            Kernel::FpAdd => row("fp-add", Computation, "operations", usage(2.0, 0.25, 1.0, 0.2)),
            Kernel::FpAddChain => {
                row("fp-add-chain", Computation, "operations", usage(0.25, 0.05, 0.12, 0.05))
            }
            Kernel::FpDiv => row("fp-div", Computation, "operations", usage(0.2, 0.05, 1.0, 1.0)),
            Kernel::FpDivChain => {
                row("fp-div-chain", Computation, "operations", usage(0.07, 0.05, 0.35, 0.35))
            }
            Kernel::ConvertF32 => row("convert-f32", Computation, "conversions", usage(2.0, 0.4, 0.9, 0.9)),
            Kernel::ConvertI24 => row("convert-i24", Computation, "conversions", usage(1.5, 0.6, 0.8, 0.8)),
            Kernel::Branches => row("branches", Computation, "branches", usage(0.1, 0.4, 0.0, 0.0)),
            Kernel::WideFma => {
                let usage = KernelUsage { power: 2.0, ..usage(16.0, 0.5, 1.0, 1.0) };
                row("wide-fma", Computation, "operations", usage)
            }
        }
    }

    /// Returns the name for people, which is also the name in files.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the kernel with this name.
    pub fn from_name(name: &str) -> Option<Kernel> {
        Kernel::ALL.into_iter().find(|kernel| kernel.name() == name)
    }

    /// Returns the kernel's subject.
    pub fn focus(self) -> Focus {
        self.facts().focus
    }

    /// Returns the unit of the kernel's work. Synchronisation counts the work of both threads together.
    pub fn unit(self) -> &'static str {
        self.facts().unit
    }

    /// Returns the kernel's use of a typical PE. For memory kernels this is what an access uses of the core's
    /// slots.
    pub fn usage(self) -> KernelUsage {
        self.facts().usage
    }

    /// Returns the bytes transferred by a memory level per byte of work: a written line is fetched before and
    /// stored afterwards.
    pub fn traffic(self) -> f64 {
        match self {
            Kernel::Write => 2.0,
            Kernel::Copy => 3.0,
            Kernel::Read
            | Kernel::LoadLatency
            | Kernel::Alternate
            | Kernel::FetchAdd
            | Kernel::HandOver
            | Kernel::IntAdd
            | Kernel::IntAddChain
            | Kernel::IntDiv
            | Kernel::IntDivChain
            | Kernel::FpAdd
            | Kernel::FpAddChain
            | Kernel::FpDiv
            | Kernel::FpDivChain
            | Kernel::ConvertF32
            | Kernel::ConvertI24
            | Kernel::Branches
            | Kernel::WideFma => 1.0,
        }
    }

    /// Returns whether the kernel needs exactly two threads that work on the same memory.
    pub fn needs_partner(self) -> bool {
        self.focus() == Focus::Synchronisation
    }

    /// Returns whether the kernel works on a region of memory, whose size must be given.
    pub fn needs_region(self) -> bool {
        self.focus() == Focus::Memory
    }
}

/// A benchmark of the NAS Parallel Benchmarks (NPB), interdependencies Table 2. Those of [`Nas::OWN`] are
/// built in; the others need binaries of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Nas {
    /// Block tridiagonal: floating point.
    Bt,
    /// Conjugate gradient: irregular communication.
    Cg,
    /// Embarrassingly parallel: floating point.
    Ep,
    /// Fast Fourier transform: long-distance communication.
    Ft,
    /// Integer sort: integer.
    Is,
    /// Lower-upper symmetric Gauss–Seidel: regular communication.
    Lu,
    /// Multigrid: regular communication.
    Mg,
    /// Scalar pentadiagonal: floating point.
    Sp,
    /// Unstructured adaptive: irregular communication.
    Ua,
}

impl Nas {
    /// The benchmarks that are built in.
    pub const OWN: [Nas; 5] = [Nas::Cg, Nas::Ep, Nas::Ft, Nas::Is, Nas::Mg];

    /// All benchmarks of the paper.
    pub const ALL: [Nas; 9] =
        [Nas::Bt, Nas::Cg, Nas::Ep, Nas::Ft, Nas::Is, Nas::Lu, Nas::Mg, Nas::Sp, Nas::Ua];

    /// Returns the two-letter name.
    pub fn name(self) -> &'static str {
        match self {
            Nas::Bt => "BT",
            Nas::Cg => "CG",
            Nas::Ep => "EP",
            Nas::Ft => "FT",
            Nas::Is => "IS",
            Nas::Lu => "LU",
            Nas::Mg => "MG",
            Nas::Sp => "SP",
            Nas::Ua => "UA",
        }
    }
}

/// The size of an NPB problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProblemClass {
    /// Sample.
    S,
    /// Workstation.
    W,
    /// The smallest of the standard sizes.
    A,
    /// About four times A.
    B,
    /// About four times B; needs binaries of the user.
    C,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_name_one_kernel_and_are_those_in_files() {
        for kernel in Kernel::ALL {
            assert_eq!(Kernel::from_name(kernel.name()), Some(kernel));
            assert_eq!(serde_json::to_string(&kernel).unwrap(), format!("\"{}\"", kernel.name()));
        }
        assert_eq!(Kernel::from_name("reed"), None);
    }
}
