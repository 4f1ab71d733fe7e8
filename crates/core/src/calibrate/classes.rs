//! Classes of similar pairs of PEs, and their representatives.
//!
//! Problem: n PEs make n (n-1) / 2 pairs, 8 million for 4096 PEs, most of them alike. Approach: two PEs
//! belong to the class of the closest kind of domain that contains both. Since domains are nested or
//! disjoint, the domains of all kinds up to a given one form disjoint outermost sets, and a pair shares
//! something of these kinds exactly if one set contains both. The sizes of the sets therefore give the number
//! of pairs of each class without enumerating pairs.
//!
//! Comparing a close with a distant placement takes three PEs, of which one is in both pairs
//! (interdependencies, §3). A [`Star`] is such a reference PE with one partner of each class; stars are added
//! until all classes that can be compared on three PEs are covered. On a regular machine one star is
//! sufficient.
//!
//! Limits: the pairs of a class are assumed to be alike. Some random pairs are measured along with the
//! representative to check that. A partner of the reference's own kind (fast, slow) is preferred, so that Δ
//! shows the effect of sharing and not of the partner's speed.

use crate::ids::PeId;
use crate::profile::PairClass;
use crate::random::Random;
use crate::topology::{DomainKind, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// A reference PE and its partners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Star {
    /// The PE that is in all pairs.
    pub reference: PeId,
    /// The index of each class, closest first, and the partner that makes a pair of that class.
    pub partners: Vec<(usize, PeId)>,
}

/// The classes of a machine's pairs and their representatives.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Classes {
    /// Closest first.
    pub classes: Vec<PairClass>,
    /// At least one; the first covers as many classes as possible.
    pub stars: Vec<Star>,
}

/// The PEs in disjoint sets: those that share some domain of the kinds up to this one.
struct Level {
    /// The kind; `None` for the whole machine.
    kind: Option<DomainKind>,
    /// For each PE, by position, the number of its set.
    set_of: Vec<usize>,
    /// The sets' sizes.
    sizes: Vec<usize>,
}

/// Returns the classes of the pairs of allowed PEs, each with a representative and up to `checks` random
/// pairs.
pub(super) fn classes(topology: &Topology, checks: usize, random: &mut Random) -> Classes {
    let pes: Vec<PeId> = topology.allowed.intersection(&topology.pes).iter().collect();
    let levels = levels(topology, &pes);
    let pairs_within =
        |level: &Level| level.sizes.iter().map(|&n| (n as u64) * (n as u64).saturating_sub(1) / 2).sum();
    let counts: Vec<u64> = levels.iter().map(pairs_within).collect();
    // Level 0 has one set per PE; a class contains the pairs that a level adds to the level before.
    let of_class: Vec<usize> = (1..levels.len()).filter(|&at| counts[at] > counts[at - 1]).collect();
    let map = Map { topology, pes, levels, of_class };
    let stars = map.stars();
    let mut classes: Vec<PairClass> = Vec::new();
    for (index, &level) in map.of_class.iter().enumerate() {
        let kind = map.levels[level].kind;
        let mut measured = Vec::new();
        for star in &stars {
            let partner = star.partners.iter().find(|(class, _)| *class == index);
            measured.extend(partner.map(|&(_, partner)| (star.reference, partner)));
        }
        map.add_random_pairs(index, checks, random, &mut measured);
        let pairs = counts[level] - counts[level - 1];
        let name = class_name(kind);
        classes.push(PairClass { name, closest: kind, pairs, measured, largest_deviation: None });
    }
    Classes { classes, stars }
}

/// Returns a name such as `same core`, `same L2`, `across`.
fn class_name(closest: Option<DomainKind>) -> String {
    let what = match closest {
        None => return "across".to_owned(),
        Some(DomainKind::L1) => "L1",
        Some(DomainKind::L2) => "L2",
        Some(DomainKind::L3) => "L3",
        Some(DomainKind::NumaNode) => "node",
        Some(other) => other.word(),
    };
    format!("same {what}")
}

/// Returns the levels from single PEs to the whole machine.
fn levels(topology: &Topology, pes: &[PeId]) -> Vec<Level> {
    let position: BTreeMap<PeId, usize> = pes.iter().enumerate().map(|(at, &pe)| (pe, at)).collect();
    let mut set_of: Vec<usize> = (0..pes.len()).collect();
    let mut sizes = vec![1; pes.len()];
    let mut levels = vec![Level { kind: None, set_of: set_of.clone(), sizes: sizes.clone() }];
    for same_kind in topology.domains.chunk_by(|a, b| a.kind == b.kind) {
        for domain in same_kind {
            let members: Vec<usize> = domain.pes.iter().filter_map(|pe| position.get(&pe).copied()).collect();
            merge(&members, &mut set_of, &mut sizes);
        }
        let kind = same_kind.first().map(|domain| domain.kind);
        levels.push(Level { kind, set_of: set_of.clone(), sizes: sizes.clone() });
    }
    merge(&(0..pes.len()).collect::<Vec<_>>(), &mut set_of, &mut sizes);
    levels.push(Level { kind: None, set_of, sizes });
    levels
}

/// Merges the sets of the members, unless they are one set already.
fn merge(members: &[usize], set_of: &mut [usize], sizes: &mut [usize]) {
    let Some(&first) = members.first() else { return };
    let target = set_of[first];
    for &member in members {
        let old = std::mem::replace(&mut set_of[member], target);
        sizes[old] -= 1;
        sizes[target] += 1;
    }
}

/// The levels with what is needed to look for partners.
struct Map<'a> {
    topology: &'a Topology,
    pes: Vec<PeId>,
    levels: Vec<Level>,
    /// The level of each class.
    of_class: Vec<usize>,
}

impl Map<'_> {
    /// Returns whether two PEs (by position) are a pair of the class.
    fn is_pair(&self, class: usize, a: usize, b: usize) -> bool {
        let level = self.of_class[class];
        let together = |level: usize| self.levels[level].set_of[a] == self.levels[level].set_of[b];
        together(level) && !together(level - 1)
    }

    /// Returns whether the PE has a partner of the class.
    fn has_partner(&self, class: usize, pe: usize) -> bool {
        let size = |level: &Level| level.sizes[level.set_of[pe]];
        let level = self.of_class[class];
        size(&self.levels[level]) > size(&self.levels[level - 1])
    }

    fn kind_of(&self, pe: PeId) -> Option<usize> {
        self.topology.kinds.iter().position(|kind| kind.pes.contains(pe))
    }

    /// Returns the representative partner of a PE for a class: the first of its own kind, else the first.
    fn partner(&self, class: usize, reference: usize) -> Option<PeId> {
        let kind = self.kind_of(self.pes[reference]);
        let partners = || (0..self.pes.len()).filter(|&other| self.is_pair(class, reference, other));
        let alike = partners().map(|at| self.pes[at]).find(|&pe| self.kind_of(pe) == kind);
        alike.or_else(|| partners().next().map(|at| self.pes[at]))
    }

    /// Returns reference PEs until every two classes that have partners of a common PE are covered by a star;
    /// stars that cover most come first.
    fn stars(&self) -> Vec<Star> {
        // PEs with partners of the same classes are equally good references: use the first.
        let mut references: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        for pe in 0..self.pes.len() {
            let has = (0..self.of_class.len()).filter(|&class| self.has_partner(class, pe)).collect();
            references.entry(has).or_insert(pe);
        }
        let mut covered: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut stars: Vec<Star> = Vec::new();
        loop {
            let gain = |has: &Vec<usize>| pairs_of(has).filter(|pair| !covered.contains(pair)).count();
            let best = references.iter().max_by_key(|&(has, &pe)| (gain(has), std::cmp::Reverse(pe)));
            let Some((has, &reference)) = best.filter(|(has, _)| gain(has) > 0 || stars.is_empty()) else {
                return stars;
            };
            let partner = |&class: &usize| Some((class, self.partner(class, reference)?));
            stars.push(Star {
                reference: self.pes[reference],
                partners: has.iter().filter_map(partner).collect(),
            });
            covered.extend(pairs_of(has));
        }
    }

    /// Adds up to `count` random pairs of the class that are not in the list yet.
    fn add_random_pairs(
        &self,
        class: usize,
        count: usize,
        random: &mut Random,
        pairs: &mut Vec<(PeId, PeId)>,
    ) {
        let first: Vec<usize> = (0..self.pes.len()).filter(|&pe| self.has_partner(class, pe)).collect();
        for _ in 0..count {
            let a = first[random.below(first.len())];
            let partners: Vec<usize> = (0..self.pes.len()).filter(|&b| self.is_pair(class, a, b)).collect();
            let b = partners[random.below(partners.len())];
            let (a, b) = (self.pes[a], self.pes[b]);
            if !pairs.contains(&(a, b)) && !pairs.contains(&(b, a)) {
                pairs.push((a, b));
            }
        }
    }
}

/// Returns every two of the classes, and each class with itself.
fn pairs_of(classes: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    classes.iter().enumerate().flat_map(|(at, &a)| classes[at..].iter().map(move |&b| (a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes_of(topology: &Topology) -> Classes {
        classes(topology, 2, &mut Random::new(1, 0))
    }

    /// Compares the classes with their numbers of pairs, and the stars, with the expected ones.
    fn check(machine: &str, expected: &str) {
        let Classes { classes, stars } = classes_of(&Topology::synthetic(machine).unwrap());
        let classes = classes.iter().map(|class| format!("{} {}", class.name, class.pairs));
        let stars = stars.iter().map(|star| {
            let partners: Vec<String> = star.partners.iter().map(|(_, pe)| pe.to_string()).collect();
            format!("{}:{}", star.reference, partners.join(","))
        });
        assert_eq!(classes.chain(stars).collect::<Vec<_>>().join("; "), expected, "{machine}");
    }

    #[test]
    fn machines_have_the_classes_of_their_domains() {
        check("pu:1", "0:");
        check("core:2 pu:1", "same node 1; 0:1");
        check("l3:1 core:2 pu:2", "same core 2; same L3 4; 0:1,2");
        check("pack:1 module:2 l1:2 core:1 pu:1", "same module 2; same node 4; 0:1,2");
        check("numa:2 pack:1 l3:1 core:4 pu:2", "same core 8; same L3 48; across 64; 0:1,2,8");
        check(
            "pack:2 numa:2 l3:2 l2:2 core:2 pu:2",
            "same core 32; same L2 64; same L3 128; same node 256; same package 512; across 1024; \
             0:1,2,4,8,16,32",
        );
    }

    #[test]
    fn the_counts_are_those_of_all_pairs() {
        for machine in ["numa:2 pack:1 l3:2 module:2 core:2 pu:2", "pack:2 die:2 numa:1 l3:1 core:3 pu:1"] {
            let topology = Topology::synthetic(machine).unwrap();
            let mut counts: BTreeMap<Option<DomainKind>, u64> = BTreeMap::new();
            for a in topology.pes.iter() {
                for b in topology.pes.iter().filter(|&b| a < b) {
                    *counts.entry(topology.closest_shared(a, b)).or_default() += 1;
                }
            }
            let found = classes_of(&topology).classes;
            assert_eq!(
                found.iter().map(|class| (class.closest, class.pairs)).collect::<BTreeMap<_, _>>(),
                counts
            );
            for class in &found {
                assert!(class.measured.len() >= 2, "a representative and a check: {class:?}");
                assert!(class.measured.iter().all(|&(a, b)| topology.closest_shared(a, b) == class.closest));
            }
        }
    }

    #[test]
    fn what_is_not_allowed_is_not_measured() {
        let mut topology = Topology::synthetic("numa:2 core:2 pu:2").unwrap();
        topology.allowed = "1-3".parse().unwrap();
        let Classes { classes, stars } = classes_of(&topology);
        assert_eq!(classes.iter().map(|class| class.pairs).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(stars, [Star { reference: PeId(2), partners: vec![(0, PeId(3)), (1, PeId(1))] }]);
    }

    #[test]
    fn an_irregular_machine_needs_several_references() {
        // Two SMT cores of one kind, and a cluster of four small ones behind one L2.
        let mut topology = Topology::synthetic("pack:1 l3:1 core:8 pu:1").unwrap();
        topology.domains.retain(|domain| domain.kind >= DomainKind::L3);
        let domain = |kind, pes: &str| crate::topology::Domain::new(kind, pes.parse().unwrap());
        topology.domains.extend([
            domain(DomainKind::Core, "0-1"),
            domain(DomainKind::Core, "2-3"),
            domain(DomainKind::L2, "4-7"),
        ]);
        let kind = |name: &str, pes: &str| crate::topology::CpuKind {
            name: name.into(),
            pes: pes.parse().unwrap(),
            evidence: Vec::new(),
            speed: None,
        };
        topology.kinds = vec![kind("fast", "0-3"), kind("slow", "4-7")];
        let topology = topology.arranged().unwrap();
        let Classes { classes, stars } = classes_of(&topology);
        let names: Vec<&str> = classes.iter().map(|class| class.name.as_str()).collect();
        assert_eq!(names, ["same core", "same L2", "same L3"]);
        let partners = |star: &Star| star.partners.iter().map(|(_, pe)| pe.0).collect::<Vec<_>>();
        assert_eq!((stars[0].reference, partners(&stars[0])), (PeId(0), vec![1, 2]), "of its own kind");
        assert_eq!((stars[1].reference, partners(&stars[1])), (PeId(4), vec![5, 0]), "there is no other");
        assert_eq!(stars.len(), 2);
    }

    #[test]
    fn thousands_of_pes_are_counted_without_looking_at_every_pair() {
        let topology = Topology::synthetic("numa:8 pack:1 l3:8 l2:4 core:8 pu:2").unwrap();
        assert_eq!(topology.pes.len(), 4096);
        let found = classes_of(&topology);
        assert_eq!(found.classes.iter().map(|class| class.pairs).sum::<u64>(), 4096 * 4095 / 2);
        assert_eq!(found.classes.len(), 5);
    }
}
