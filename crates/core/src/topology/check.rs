//! The invariants of every topology, checked in one function.

use super::{Domain, DomainKind, Topology};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use std::collections::BTreeMap;

/// The rule that a topology breaks. The messages name the domains and PEs concerned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// There are no PEs.
    #[error("{origin} has no PEs")]
    NoPes {
        /// The origin of the topology.
        origin: String,
    },
    /// A set is empty or contains a PE that is not online.
    #[error("{what} is {{{pes}}}, which is not a non-empty subset of the online PEs {{{online}}}")]
    NotOnline {
        /// The domain, the kind or `the allowed set`.
        what: String,
        /// Its PEs.
        pes: CpuSet,
        /// The online PEs.
        online: CpuSet,
    },
    /// Two sets overlap without being nested, or overlap and are of one kind.
    #[error("{a} {{{a_pes}}} and {b} {{{b_pes}}} overlap")]
    Overlap {
        /// The first set.
        a: String,
        /// Its PEs.
        a_pes: CpuSet,
        /// The second set.
        b: String,
        /// Its PEs.
        b_pes: CpuSet,
    },
    /// A domain splits a core.
    #[error("{domain} {{{pes}}} is smaller than the core {{{core}}}")]
    SplitsCore {
        /// The domain.
        domain: String,
        /// Its PEs.
        pes: CpuSet,
        /// The PEs of the core.
        core: CpuSet,
    },
    /// PEs without a core, or without a kind although kinds are known.
    #[error("the PEs {{{pes}}} belong to no {what}")]
    Uncovered {
        /// `core` or `kind`.
        what: &'static str,
        /// The PEs.
        pes: CpuSet,
    },
    /// The list is not sorted by kind and logical index, or the indices have gaps.
    #[error("{domain} is at the wrong position in the list")]
    Order {
        /// The first domain at the wrong position.
        domain: String,
    },
}

impl Topology {
    /// Checks every invariant that the fields of [`Topology`] document.
    pub fn check(&self) -> Result<(), TopologyError> {
        if self.pes.is_empty() {
            return Err(TopologyError::NoPes { origin: self.origin.clone() });
        }
        if !self.allowed.is_empty() {
            self.check_online("the allowed set", &self.allowed)?;
        }
        self.check_order()?;
        // Overlapping domains have a PE in common: checking the few domains of each PE finds every pair.
        let mut domains_of: BTreeMap<PeId, Vec<&Domain>> = BTreeMap::new();
        for domain in &self.domains {
            self.check_online(&name(domain), &domain.pes)?;
            for pe in domain.pes.iter() {
                domains_of.entry(pe).or_default().push(domain);
            }
        }
        for domains in domains_of.values() {
            for (index, a) in domains.iter().enumerate() {
                domains[index + 1..].iter().try_for_each(|b| check_pair(a, b))?;
            }
        }
        let cores = self.domains(DomainKind::Core).map(|core| &core.pes);
        self.check_cover("core", cores)?;
        if !self.kinds.is_empty() {
            self.check_kinds()?;
        }
        Ok(())
    }

    fn check_online(&self, what: &str, pes: &CpuSet) -> Result<(), TopologyError> {
        if !pes.is_empty() && pes.is_subset(&self.pes) {
            return Ok(());
        }
        Err(TopologyError::NotOnline { what: what.to_owned(), pes: pes.clone(), online: self.pes.clone() })
    }

    fn check_order(&self) -> Result<(), TopologyError> {
        for (index, domain) in self.domains.iter().enumerate() {
            let expected = match index.checked_sub(1).map(|before| &self.domains[before]) {
                Some(before) if before.kind == domain.kind => before.logical + 1,
                Some(before) if before.kind > domain.kind => u32::MAX,
                _ => 0,
            };
            if domain.logical != expected {
                return Err(TopologyError::Order { domain: name(domain) });
            }
        }
        Ok(())
    }

    fn check_kinds(&self) -> Result<(), TopologyError> {
        for (index, a) in self.kinds.iter().enumerate() {
            self.check_online(&format!("kind {}", a.name), &a.pes)?;
            for b in &self.kinds[index + 1..] {
                if a.pes.intersects(&b.pes) {
                    return Err(TopologyError::Overlap {
                        a: format!("kind {}", a.name),
                        a_pes: a.pes.clone(),
                        b: format!("kind {}", b.name),
                        b_pes: b.pes.clone(),
                    });
                }
            }
        }
        self.check_cover("kind", self.kinds.iter().map(|kind| &kind.pes))
    }

    fn check_cover<'a>(
        &self,
        what: &'static str,
        sets: impl Iterator<Item = &'a CpuSet>,
    ) -> Result<(), TopologyError> {
        let covered = sets.fold(CpuSet::new(), |all, set| all.union(set));
        let pes = self.pes.difference(&covered);
        if pes.is_empty() { Ok(()) } else { Err(TopologyError::Uncovered { what, pes }) }
    }
}

/// Checks two domains with a PE in common: they must be of different kinds and nested, and neither may split
/// a core.
fn check_pair(a: &Domain, b: &Domain) -> Result<(), TopologyError> {
    let nested = a.pes.is_subset(&b.pes) || b.pes.is_subset(&a.pes);
    if a.kind == b.kind || !nested {
        return Err(TopologyError::Overlap {
            a: name(a),
            a_pes: a.pes.clone(),
            b: name(b),
            b_pes: b.pes.clone(),
        });
    }
    // Cores are the first kind, so a core is always the first of the pair. Hypervisors (QEMU) give each PE of
    // a core a private cache, which is wrong but harmless: scheduling uses the core.
    let virtual_cache = matches!(b.kind, DomainKind::L1 | DomainKind::L2);
    if a.kind == DomainKind::Core && !virtual_cache && !a.pes.is_subset(&b.pes) {
        return Err(TopologyError::SplitsCore { domain: name(b), pes: b.pes.clone(), core: a.pes.clone() });
    }
    Ok(())
}

fn name(domain: &Domain) -> String {
    format!("{} {}", domain.kind.word(), domain.logical)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::CpuKind;

    fn machine() -> Topology {
        Topology::synthetic("pack:2 l2:2 core:2 pu:2").expect("a valid description")
    }

    fn set(text: &str) -> CpuSet {
        text.parse().expect("a list")
    }

    /// Spoils a sound machine and expects the message.
    fn check(expected: &str, spoil: impl FnOnce(&mut Topology)) {
        let mut topology = machine();
        spoil(&mut topology);
        let error = topology.check().expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_sound_machine_passes() {
        assert_eq!(machine().check(), Ok(()));
    }

    #[test]
    fn every_broken_rule_is_named() {
        let kind = |name: &str, pes: &str| CpuKind {
            name: name.into(),
            pes: set(pes),
            evidence: vec![],
            speed: None,
        };
        check("has no PEs", |t| t.pes = CpuSet::new());
        check("the allowed set is {0,99}", |t| t.allowed = set("0,99"));
        check("core 0 is {}", |t| t.domains[0].pes = CpuSet::new());
        check("core 1 {1-3} overlap", |t| t.domains[1].pes = set("1-3"));
        check("core 3 {6-9}", |t| t.domains[3].pes = set("6-9"));
        check("is at the wrong position", |t| t.domains.swap(0, 1));
        check("is at the wrong position", |t| t.domains.reverse());
        check("{0-1} belong to no core", |t| {
            t.domains.remove(0);
            t.domains.iter_mut().filter(|d| d.kind == DomainKind::Core).for_each(|d| d.logical -= 1);
        });
        check("is smaller than the core {0-1}", |t| {
            let package = t.domains.iter_mut().find(|d| d.kind == DomainKind::Package);
            package.expect("a package").pes = set("0");
        });
        check("kind fast {0-7} and kind slow {7-15} overlap", |t| {
            t.kinds = vec![kind("fast", "0-7"), kind("slow", "7-15")];
        });
        check("{8-15} belong to no kind", |t| t.kinds = vec![kind("fast", "0-7")]);
    }
}
