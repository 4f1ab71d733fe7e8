//! What a policy uses: readings and events.
//!
//! Problem: if a machine does not provide the readings that a policy uses, the policy decides nothing, and
//! its user waits in vain. Approach: each policy declares what it uses, each world what it provides, and
//! `corewise run` compares the two before the command starts. Source: ours. Limits: a source may provide a
//! reading for some threads only.

use crate::observe::EventKind;

/// What a policy uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Readings without which it binds nothing.
    pub required: &'static [Reading],
    /// Optional readings.
    pub used: &'static [Reading],
    /// Events that justify a decision before the interval has elapsed.
    pub events: &'static [EventKind],
}

impl Needs {
    /// The needs of a policy that only uses which threads are runnable.
    pub const NONE: Needs = Needs { required: &[], used: &[], events: &[] };
}

/// A reading that not every machine provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// FPU usage of threads.
    FpuUsage,
    /// Instructions per cycle of threads.
    Ipc,
    /// L2 misses of threads.
    L2Misses,
    /// Branches of threads.
    Branches,
    /// The number of runnable threads of applications.
    Tlp,
    /// Which threads spin, as reported by runtime libraries.
    Spinning,
    /// Which thread executes the serial parts, as reported by runtime libraries.
    Master,
}

impl Reading {
    /// Returns the reading in words.
    pub fn words(self) -> &'static str {
        match self {
            Reading::FpuUsage => "FPU usage",
            Reading::Ipc => "IPC",
            Reading::L2Misses => "L2 misses",
            Reading::Branches => "branches",
            Reading::Tlp => "TLP",
            Reading::Spinning => "hints of spinning threads",
            Reading::Master => "hints of master threads",
        }
    }
}
