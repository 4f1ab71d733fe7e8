//! What a policy goes by: readings and events.
//!
//! Problem: a policy whose readings a machine does not give decides nothing, and its user waits in vain.
//! Approach: each policy says what it goes by, a world says what it has, and `corewise run` compares the two
//! before the command starts. Source: ours. Limits: a source may give a reading for some threads only.

use crate::observe::EventKind;

/// What a policy goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Readings without which it binds nothing.
    pub required: &'static [Reading],
    /// Readings that it goes by where they are there.
    pub used: &'static [Reading],
    /// What makes a decision before the interval is over worth its while.
    pub events: &'static [EventKind],
}

impl Needs {
    /// Those of a policy that goes by nothing but who is runnable.
    pub const NONE: Needs = Needs { required: &[], used: &[], events: &[] };
}

/// A reading that not every machine gives.
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
    /// Which threads only wait, as runtime libraries tell.
    Spinning,
    /// Which thread does the serial parts, as runtime libraries tell.
    Master,
}

impl Reading {
    /// In words.
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
