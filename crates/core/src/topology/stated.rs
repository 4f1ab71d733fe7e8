//! Kinds of PE as a user states them, for machines that do not report which of their PEs are faster, or as
//! `corewise emulate-slow` makes them.

use super::{CpuKind, LocateError, ReportedSpeed, Topology};
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
        let kind = |name: &str, pes| kind(name, pes, "stated by the user", None);
        self.kinds = vec![kind("fast", fast), kind("slow", slow)];
        Ok(self)
    }

    /// Returns the same machine with these PEs slowed down to a share of their speed, 0 to 1; all others are
    /// fast. Unchanged if those are all PEs or none.
    pub fn with_slow_pes(mut self, pes: &CpuSet, speed: f64) -> Topology {
        let slow = self.pes.intersection(pes);
        let fast = self.pes.difference(&slow);
        if !slow.is_empty() && !fast.is_empty() {
            let kind = |name: &str, pes, permille| {
                let source = "corewise emulate-slow";
                let speed = ReportedSpeed { permille, source: source.to_owned() };
                kind(name, pes, &format!("emulated by {source}"), Some(speed))
            };
            let permille = (speed * 1000.0).round() as u32;
            self.kinds = vec![kind("fast", fast, 1000), kind("slow", slow, permille)];
        }
        self
    }
}

fn kind(name: &str, pes: CpuSet, evidence: &str, speed: Option<ReportedSpeed>) -> CpuKind {
    CpuKind { name: name.to_owned(), pes, evidence: vec![evidence.to_owned()], speed }
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
    fn pes_that_are_slowed_down_are_a_kind_of_their_own_with_a_known_speed() {
        let machine = || Topology::synthetic("core:4 pu:1").unwrap();
        let slowed = machine().with_slow_pes(&"2-3,9".parse().unwrap(), 0.5);
        slowed.check().unwrap();
        let speed = |kind: &CpuKind| kind.speed.as_ref().map(|speed| speed.permille);
        let kinds: Vec<_> = slowed.kinds.iter().map(|kind| (kind.pes.to_string(), speed(kind))).collect();
        assert_eq!(kinds, [("0-1".to_owned(), Some(1000)), ("2-3".to_owned(), Some(500))]);
        assert_eq!(machine().with_slow_pes(&"0-3".parse().unwrap(), 0.5), machine());
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
