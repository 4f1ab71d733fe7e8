//! The ways people name PEs of a certain machine.
//!
//! A location is one or more parts, joined by `@`; the result is their union:
//!
//! | part | means |
//! | --- | --- |
//! | `0-3,8`, `0-15:2/4`, `0xff` | OS indices, as [`CpuSet`] parses them |
//! | `core:0,2`, `l3:1`, … | objects by *logical* index, all their PEs; [`DomainKind::word`], or `pu` |
//! | `N`, `S0`, `D0`, `C0`, `M0` | likwid's machine, package, die, last-level cache, memory; logical index |
//! | `S0:0-3` | positions within these; the first PE of every core comes before the second of any |
//! | `fast`, `slow`, `mid1`, … | the PEs of a kind |
//!
//! A likwid domain wins over a hexadecimal mask: `C0` and `D0` are domains, `0xc0` is a mask. Where a machine
//! has no dies, `D` means packages, as in likwid.

use super::{DomainKind, Topology};
use crate::cpuset::{CpuSet, CpuSetError};
use crate::ids::PeId;

/// Why a location names no PEs of this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocateError {
    /// A part is not in any of the notations.
    #[error("cannot understand `{part}` of the location `{location}`: {source}; or core:0-3, S0:0-3, fast")]
    Notation {
        /// The whole location.
        location: String,
        /// The faulty part.
        part: String,
        /// The error of the list parser.
        source: CpuSetError,
    },
    /// An index is too large.
    #[error("`{part}` of the location `{location}`: {there_is}")]
    NoSuchObject {
        /// The whole location.
        location: String,
        /// The faulty part.
        part: String,
        /// The existing objects.
        there_is: String,
    },
    /// A part is empty.
    #[error("a part of the location `{location}` is empty; write for instance 0-3@8 or core:0-3@fast")]
    Empty {
        /// The whole location.
        location: String,
    },
}

impl Topology {
    /// Returns the PEs that a location names on this machine; see the table above for the notations.
    pub fn locate(&self, location: &str) -> Result<CpuSet, LocateError> {
        location
            .split('@')
            .try_fold(CpuSet::new(), |all, part| Ok(all.union(&self.locate_part(part.trim(), location)?)))
    }

    fn locate_part(&self, part: &str, location: &str) -> Result<CpuSet, LocateError> {
        let no_such = |there_is: String| LocateError::NoSuchObject {
            location: location.to_owned(),
            part: part.to_owned(),
            there_is,
        };
        let parse = |list: &str| {
            list.parse::<CpuSet>().map_err(|source| LocateError::Notation {
                location: location.to_owned(),
                part: part.to_owned(),
                source,
            })
        };
        let pes = if let Some(kind) = self.kinds.iter().find(|kind| kind.name == part) {
            kind.pes.clone()
        } else if is_kind_name(part) {
            let known: Vec<&str> = self.kinds.iter().map(|kind| kind.name.as_str()).collect();
            return Err(no_such(match known.as_slice() {
                [] => "nothing is known about kinds of PEs".to_owned(),
                names => format!("the machine has the kinds {}", names.join(", ")),
            }));
        } else if let Some((word, list, members)) = self.objects(part) {
            pick(&members, &parse(list)?)
                .map_err(|missing| no_such(missing_object(word, missing, &members)))?
        } else if let Some((domain, positions)) = likwid_domain(part) {
            let members = self.likwid_members(domain).map_err(no_such)?;
            match positions {
                None => members.into_iter().collect(),
                Some(list) => {
                    let members: Vec<CpuSet> = members.into_iter().map(CpuSet::single).collect();
                    pick(&members, &parse(list)?)
                        .map_err(|missing| no_such(missing_object("position", missing, &members)))?
                }
            }
        } else {
            parse(part)?
        };
        if pes.is_empty() {
            return Err(LocateError::Empty { location: location.to_owned() });
        }
        if !pes.is_subset(&self.pes) {
            return Err(no_such(format!("the machine has the PEs {}", self.pes)));
        }
        Ok(pes)
    }

    /// Parses `core:0-3`: returns the word, the list, and the PEs of each object of that sort.
    fn objects<'a>(&self, part: &'a str) -> Option<(&'a str, &'a str, Vec<CpuSet>)> {
        let (word, list) = part.split_once(':')?;
        let members = if word.eq_ignore_ascii_case("pu") {
            self.pes_in_logical_order().into_iter().map(CpuSet::single).collect()
        } else {
            self.domains(DomainKind::from_word(word)?).map(|domain| domain.pes.clone()).collect()
        };
        Some((word, list, members))
    }

    /// Returns the PEs of a likwid domain in likwid's order: the first PE of each core, then the second of
    /// each.
    fn likwid_members(&self, (letter, index): (char, usize)) -> Result<Vec<PeId>, String> {
        let has = |kind: &DomainKind| self.domains(*kind).next().is_some();
        let kind = match letter {
            'S' => Some(DomainKind::Package),
            'D' => [DomainKind::Die, DomainKind::Package].into_iter().find(has),
            'C' => [DomainKind::L3, DomainKind::L2, DomainKind::L1].into_iter().find(has),
            'M' => Some(DomainKind::NumaNode),
            _ => None,
        };
        let domains: Vec<CpuSet> = match kind {
            Some(kind) => self.domains(kind).map(|domain| domain.pes.clone()).collect(),
            None if letter == 'N' => vec![self.pes.clone()],
            None => Vec::new(),
        };
        let domain = domains
            .get(index)
            .ok_or_else(|| missing_object(kind.map_or("such domain", DomainKind::word), index, &domains))?;
        let mut ranked: Vec<(usize, u32, PeId)> = Vec::new();
        for core in self.domains(DomainKind::Core).filter(|core| core.pes.intersects(domain)) {
            ranked.extend(core.pes.iter().enumerate().map(|(sibling, pe)| (sibling, core.logical, pe)));
        }
        ranked.sort_unstable();
        Ok(ranked.into_iter().map(|(_, _, pe)| pe).collect())
    }
}

/// Returns the union of the chosen members, or the first index without a member.
fn pick(members: &[CpuSet], indices: &CpuSet) -> Result<CpuSet, usize> {
    indices.iter().try_fold(CpuSet::new(), |all, PeId(index)| {
        members.get(index as usize).map(|member| all.union(member)).ok_or(index as usize)
    })
}

fn missing_object(what: &str, missing: usize, members: &[CpuSet]) -> String {
    match members.len() {
        0 => format!("the machine has no {what} that is known"),
        1 => format!("there is no {what} {missing}, only 0"),
        count => format!("there is no {what} {missing}, only 0-{}", count - 1),
    }
}

/// Returns whether a name is one that [`super::kinds::decide`] gives on some machine, if not on this one.
fn is_kind_name(part: &str) -> bool {
    let number_after_mid = part.strip_prefix("mid").is_some_and(|n| n.parse::<u32>().is_ok());
    matches!(part, "fast" | "slow" | "all" | "unknown") || number_after_mid
}

/// Splits `S0:0-3` into (`S`, 0) and `0-3`. `N` is one domain without an index.
fn likwid_domain(part: &str) -> Option<((char, usize), Option<&str>)> {
    let (name, positions) = match part.split_once(':') {
        Some((name, positions)) => (name, Some(positions)),
        None => (part, None),
    };
    let letter = name.chars().next()?;
    let index = match letter {
        'N' if name.len() == 1 => 0,
        'S' | 'D' | 'C' | 'M' => name[1..].parse().ok()?,
        _ => return None,
    };
    Some(((letter, index), positions))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{CpuKind, Domain};
    use proptest::prelude::*;

    /// Two packages of two cores; SMT siblings are `n` and `n + 4`, as Linux numbers them on most machines.
    fn smt_machine() -> Topology {
        let set = |text: &str| text.parse::<CpuSet>().expect("a list");
        let sets = [
            (DomainKind::Package, vec!["0-1,4-5", "2-3,6-7"]),
            (DomainKind::L3, vec!["0-1,4-5", "2-3,6-7"]),
            (DomainKind::Core, vec!["0,4", "1,5", "2,6", "3,7"]),
        ];
        let domains = sets.iter().flat_map(|(kind, sets)| sets.iter().map(|s| Domain::new(*kind, set(s))));
        let kind = |name: &str, pes: &str| CpuKind {
            name: name.into(),
            pes: set(pes),
            evidence: vec![],
            speed: None,
        };
        let topology = Topology {
            origin: "a test".into(),
            pes: set("0-7"),
            allowed: set("0-7"),
            domains: domains.collect(),
            kinds: vec![kind("fast", "0-1,4-5"), kind("slow", "2-3,6-7")],
            notes: vec![],
        };
        topology.arranged().expect("a sound machine")
    }

    #[test]
    fn every_notation_names_its_pes() {
        let machine = smt_machine();
        for (location, expected) in [
            ("0-3,8:1/1", "error"),
            ("0-3", "0-3"),
            ("0-7:1/2", "0,2,4,6"),
            ("0xc0", "6-7"),
            ("core:0", "0,4"),
            ("core:1-2", "1-2,5-6"),
            ("CORE:3", "3,7"),
            ("pu:0-2", "0-1,4"),
            ("package:1", "2-3,6-7"),
            ("socket:0", "0-1,4-5"),
            ("l3:0", "0-1,4-5"),
            ("N", "0-7"),
            ("N:0-3", "0-3"),
            ("N:4", "4"),
            ("S1", "2-3,6-7"),
            ("S1:0-1", "2-3"),
            ("S1:2", "6"),
            ("C0", "0-1,4-5"),
            ("D0:0", "0"),
            ("fast", "0-1,4-5"),
            ("slow@core:0", "0,2-4,6-7"),
            ("S0:0@S1:0", "0,2"),
            (" 1 @ 2 ", "1-2"),
            ("module:0", "error"),
            ("M0", "error"),
            ("core:4", "error"),
            ("S2", "error"),
            ("S0:4", "error"),
            ("mid1", "error"),
            ("0-8", "error"),
            ("", "error"),
            ("0@", "error"),
            ("core:", "error"),
            ("core:x", "error"),
            ("é0", "error"),
            ("Sé", "error"),
            ("quick", "error"),
        ] {
            let found = machine.locate(location);
            if let Err(error) = &found {
                assert!(error.to_string().contains(location), "{location}: {error}");
            }
            let found = found.map_or("error".to_owned(), |pes| pes.to_string());
            assert_eq!(found, expected, "{location}");
        }
    }

    proptest! {
        #[test]
        fn each_object_is_found_under_its_index(counts in proptest::array::uniform4(1u32..4)) {
            let [packages, l2, cores, pus] = counts;
            let text = format!("pack:{packages} l2:{l2} core:{cores} pu:{pus}");
            let machine = Topology::synthetic(&text).unwrap();
            for domain in &machine.domains {
                let location = format!("{}:{}", domain.kind.word(), domain.logical);
                prop_assert_eq!(machine.locate(&location).unwrap(), domain.pes.clone());
                prop_assert_eq!(machine.locate(&domain.pes.to_string()).unwrap(), domain.pes.clone());
            }
            let all = (0..packages).map(|i| format!("S{i}")).collect::<Vec<_>>().join("@");
            prop_assert_eq!(machine.locate(&all).unwrap(), machine.pes.clone());
            let one_per_core = machine.locate(&format!("N:0-{}", packages * l2 * cores - 1)).unwrap();
            for core in machine.domains(DomainKind::Core) {
                prop_assert_eq!(core.pes.intersection(&one_per_core).len(), 1);
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "[NSMCDcorepu0-9:@,x/é-]{0,12}") {
            let _ = smt_machine().locate(&text);
        }
    }
}
