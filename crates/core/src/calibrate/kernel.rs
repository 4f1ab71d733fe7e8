//! What is run to measure a machine: each kernel stresses one resource and little else.

use serde::{Deserialize, Serialize};

/// A measuring loop. Its instruction sequence is fixed; `corewise-linux::bench` holds the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// Two threads take turns in writing one shared variable: each reads it until it holds the other's
    /// number, then writes its own (interdependencies, §3.1).
    Alternate,
    /// Two threads add to one shared variable by atomic read-modify-write.
    FetchAdd,
    /// One thread hands a value over, the other answers, each in a cache line of its own; half a round trip.
    HandOver,
    /// Reads a region from begin to end (§3.2, as `bw_mem rd` of lmbench).
    Read,
    /// Writes it.
    Write,
    /// Copies its first half to its second.
    Copy,
    /// Follows a chain of pointers through it in random order: each load waits for the one before.
    LoadLatency,
    /// Integer additions that do not depend on one another (§3.3).
    IntAdd,
    /// Integer additions in one dependent chain: one a cycle on nearly every PE, so its rate is the clock.
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
    /// Branches whose directions nobody can predict.
    Branches,
    /// Fused multiply-adds in the widest vector unit: the most power that one PE can draw.
    WideFma,
}

/// What a kernel is about; the paper's sections.
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

    /// What people call it; also its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Alternate => "alternate",
            Kernel::FetchAdd => "fetch-add",
            Kernel::HandOver => "hand-over",
            Kernel::Read => "read",
            Kernel::Write => "write",
            Kernel::Copy => "copy",
            Kernel::LoadLatency => "load-latency",
            Kernel::IntAdd => "int-add",
            Kernel::IntAddChain => "int-add-chain",
            Kernel::IntDiv => "int-div",
            Kernel::IntDivChain => "int-div-chain",
            Kernel::FpAdd => "fp-add",
            Kernel::FpAddChain => "fp-add-chain",
            Kernel::FpDiv => "fp-div",
            Kernel::FpDivChain => "fp-div-chain",
            Kernel::ConvertF32 => "convert-f32",
            Kernel::ConvertI24 => "convert-i24",
            Kernel::Branches => "branches",
            Kernel::WideFma => "wide-fma",
        }
    }

    /// The kernel of that name.
    pub fn from_name(name: &str) -> Option<Kernel> {
        Kernel::ALL.into_iter().find(|kernel| kernel.name() == name)
    }

    /// What it is about.
    pub fn focus(self) -> Focus {
        match self {
            Kernel::Alternate | Kernel::FetchAdd | Kernel::HandOver => Focus::Synchronisation,
            Kernel::Read | Kernel::Write | Kernel::Copy | Kernel::LoadLatency => Focus::Memory,
            _ => Focus::Computation,
        }
    }

    /// What one unit of its work is. Synchronisation counts what both threads did together.
    pub fn unit(self) -> &'static str {
        match self {
            Kernel::Alternate => "writes",
            Kernel::FetchAdd => "additions",
            Kernel::HandOver => "hand-overs",
            Kernel::Read | Kernel::Write | Kernel::Copy => "bytes",
            Kernel::LoadLatency => "loads",
            Kernel::ConvertF32 | Kernel::ConvertI24 => "conversions",
            Kernel::Branches => "branches",
            _ => "operations",
        }
    }

    /// Whether it needs exactly two threads that work on the same memory.
    pub fn needs_partner(self) -> bool {
        self.focus() == Focus::Synchronisation
    }

    /// Whether it works on a region of memory, whose size must be given.
    pub fn needs_region(self) -> bool {
        self.focus() == Focus::Memory
    }
}

/// A benchmark of the NAS Parallel Benchmarks (NPB), interdependencies Table 2. Those of [`Nas::OWN`] are
/// built in; the others only run from a user's own binaries.
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

    /// All of the paper's.
    pub const ALL: [Nas; 9] =
        [Nas::Bt, Nas::Cg, Nas::Ep, Nas::Ft, Nas::Is, Nas::Lu, Nas::Mg, Nas::Sp, Nas::Ua];

    /// Two letters.
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
    /// About four times B; only from a user's own binaries.
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
