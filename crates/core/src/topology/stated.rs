//! Kinds of PE as a user states them, for machines that do not report which of their PEs are faster.

use super::{CpuKind, LocateError, Topology};
use crate::cpuset::CpuSet;

/// Why stated kinds do not describe this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatedKindsError {
    /// A location names no PEs of this machine.
    #[error("the {kind} PEs: {source}")]
    Locate {
        /// `fast` or `slow`.
        kind: &'static str,
        /// The error of the location.
        source: LocateError,
    },
    /// All PEs are of one kind.
    #[error("the PEs {pes} are all fast: a machine without slow PEs has one kind only")]
    OneKind {
        /// The fast PEs.
        pes: CpuSet,
    },
    /// PEs are of both kinds.
    #[error("the PEs {pes} are both fast and slow")]
    Both {
        /// These PEs.
        pes: CpuSet,
    },
    /// PEs are of neither kind.
    #[error("the PEs {pes} are neither fast nor slow")]
    Neither {
        /// These PEs.
        pes: CpuSet,
    },
}

impl Topology {
    /// Returns the same machine with two kinds of PE, whatever it reports itself. Both are locations (see
    /// [`Topology::locate`]); without `slow` all other PEs are slow.
    pub fn with_stated_kinds(mut self, fast: &str, slow: Option<&str>) -> Result<Topology, StatedKindsError> {
        let locate = |kind: &'static str, location: &str| {
            self.locate(location).map_err(|source| StatedKindsError::Locate { kind, source })
        };
        let fast = locate("fast", fast)?;
        let slow = slow.map_or_else(|| Ok(self.pes.difference(&fast)), |slow| locate("slow", slow))?;
        if slow.is_empty() {
            return Err(StatedKindsError::OneKind { pes: fast });
        }
        let both = fast.intersection(&slow);
        if !both.is_empty() {
            return Err(StatedKindsError::Both { pes: both });
        }
        let neither = self.pes.difference(&fast.union(&slow));
        if !neither.is_empty() {
            return Err(StatedKindsError::Neither { pes: neither });
        }
        let kind = |name: &str, pes: CpuSet| CpuKind {
            name: name.to_owned(),
            pes,
            evidence: vec!["stated by the user".to_owned()],
            speed: None,
        };
        self.kinds = vec![kind("fast", fast), kind("slow", slow)];
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated(fast: &str, slow: Option<&str>) -> Result<Vec<(String, String)>, String> {
        let machine = Topology::synthetic("core:4 pu:1").unwrap();
        let machine = machine.with_stated_kinds(fast, slow).map_err(|error| error.to_string())?;
        machine.check().unwrap();
        Ok(machine.kinds.iter().map(|kind| (kind.name.clone(), kind.pes.to_string())).collect())
    }

    #[test]
    fn every_pe_that_is_not_fast_is_slow() {
        let kinds = |fast: &str, slow: &str| {
            Ok(vec![("fast".to_owned(), fast.to_owned()), ("slow".to_owned(), slow.to_owned())])
        };
        assert_eq!(stated("0", None), kinds("0", "1-3"));
        assert_eq!(stated("core:2-3", None), kinds("2-3", "0-1"));
        assert_eq!(stated("3", Some("0-2")), kinds("3", "0-2"));
    }

    #[test]
    fn what_is_no_division_of_the_pes_is_refused() {
        for (fast, slow, words) in [
            ("4", None, "the machine has the PEs 0-3"),
            ("", None, "the fast PEs: a part of the location `` is empty"),
            ("0", Some("1-9"), "the slow PEs: `1-9`"),
            ("0-3", None, "the PEs 0-3 are all fast"),
            ("0-1", Some("1-3"), "the PEs 1 are both fast and slow"),
            ("0", Some("1-2"), "the PEs 3 are neither fast nor slow"),
        ] {
            let error = stated(fast, slow).unwrap_err();
            assert!(error.contains(words), "{fast} {slow:?}: {error}");
        }
    }
}
