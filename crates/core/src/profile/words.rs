//! How the parts of a profile are named in texts for people.

use super::{Evidence, Load, Preference, Resource, Subject, Workload};
use crate::topology::size;
use std::fmt;

/// Examples: `read 4 KiB`, `int-add`.
impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.region_bytes {
            0 => f.write_str(self.kernel.name()),
            bytes => write!(f, "{} {}", self.kernel.name(), size(bytes)),
        }
    }
}

/// The load of both threads, named once if it is the same: `read 4 KiB`, `int-add + fp-add`.
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.second {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{} + {}", self.first, self.second)
        }
    }
}

/// The workload, or the NAS benchmark as people write it: `CG.A`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Workload(workload) => write!(f, "{workload}"),
            Subject::Nas(nas, class) => write!(f, "{}.{class:?}", nas.name()),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Fpu => "FPU",
            Resource::Integer => "integer units",
            Resource::L1 => "L1",
            Resource::L2 => "L2",
            Resource::L3 => "L3",
            Resource::MemoryBandwidth => "memory bandwidth",
        })
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Preference::Close => "close",
            Preference::Distant => "distant",
            Preference::Indifferent => "indifferent",
            Preference::Unknown => "unknown",
        })
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Evidence::Measured => "measured",
            Evidence::Emulated => "emulated",
            Evidence::Simulated => "simulated",
        })
    }
}
