//! Machines in one line: `pack:1 l2:4 core:2 pu:1`.
//!
//! The notation is hwloc's (its manual, "Synthetic topologies"): levels from the outside in, each with the
//! number of children of an object of the level before. PEs are numbered in the order of the tree. Extensions
//! to hwloc are `module:N` for cores that share one FPU and `cluster:N`. Of hwloc's attributes `size=` (of a
//! cache) and `memory=` (of a NUMA node) are supported: `l2:4(size=2MB)`. A machine without a NUMA level is
//! one node, as in hwloc. `group` levels only multiply.

use super::{Domain, DomainKind, Topology};
use crate::cpuset::CpuSet;
use crate::ids::PeId;

/// The number of PEs of the largest machine that a description may define: the most that Linux can be built
/// for (`NR_CPUS` on x86).
const PES_MAX: u32 = 8192;

/// Why a text is not a machine description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{level}` in the synthetic machine `{text}`: {problem}; write for instance pack:1 l2:4 core:2 pu:1")]
pub struct SyntheticError {
    /// The whole text.
    pub text: String,
    /// The faulty level.
    pub level: String,
    /// What is wrong with it.
    pub problem: String,
}

/// One level of the description.
struct Level {
    sort: Sort,
    /// Children per object of the level before.
    count: u32,
    bytes: Option<u64>,
}

/// The sort of object on a level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Domain(DomainKind),
    Group,
    Pu,
}

impl Topology {
    /// Returns the machine of a synthetic description; every PE is allowed.
    pub fn synthetic(text: &str) -> Result<Topology, SyntheticError> {
        let fail = |level: &str, problem: String| SyntheticError {
            text: text.to_owned(),
            level: level.to_owned(),
            problem,
        };
        let words = split_levels(text);
        let mut levels: Vec<Level> = Vec::new();
        let mut total: u32 = 1;
        for word in &words {
            let level = parse_level(word).map_err(|problem| fail(word, problem))?;
            check_place(&levels, level.sort).map_err(|problem| fail(word, problem))?;
            total = total.saturating_mul(level.count);
            if total > PES_MAX {
                return Err(fail(word, format!("the machine has more than {PES_MAX} PEs")));
            }
            levels.push(level);
        }
        if levels.last().map(|level| level.sort) != Some(Sort::Pu) {
            let last = words.last().copied().unwrap_or_default();
            return Err(fail(last, "the last level must be pu".to_owned()));
        }
        let pes = CpuSet::first_n(total);
        let topology = Topology {
            origin: format!("synthetic {text}"),
            pes: pes.clone(),
            allowed: pes,
            domains: domains(&levels, total),
            kinds: Vec::new(),
            notes: Vec::new(),
        };
        topology.arranged().map_err(|error| fail(text, error.to_string()))
    }
}

/// Splits a description into levels at white space; attributes in parentheses may contain white space.
fn split_levels(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let separator = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        depth <= 0 && c.is_whitespace()
    };
    text.split(separator).filter(|level| !level.is_empty()).collect()
}

fn parse_level(word: &str) -> Result<Level, String> {
    let (rest, bytes) = match word.split_once('(') {
        None => (word, None),
        Some((rest, attributes)) => {
            let attributes = attributes.strip_suffix(')').ok_or("the parenthesis is not closed")?;
            (rest, Some(parse_attributes(attributes)?))
        }
    };
    let (name, count) = rest.split_once(':').ok_or("a level is NAME:COUNT")?;
    let sort = match name.to_ascii_lowercase().as_str() {
        "pu" => Sort::Pu,
        "group" => Sort::Group,
        _ => Sort::Domain(DomainKind::from_word(name).ok_or_else(|| {
            format!("`{name}` is none of pack, die, numa, group, l3, cluster, l2, module, l1, core, pu")
        })?),
    };
    match count.parse() {
        Ok(count) if count > 0 => Ok(Level { sort, count, bytes }),
        _ => Err(format!("`{count}` is not a number above 0")),
    }
}

fn parse_attributes(text: &str) -> Result<u64, String> {
    let (name, value) = text.split_once('=').ok_or("an attribute is NAME=VALUE")?;
    if !matches!(name, "size" | "memory") {
        return Err(format!("the attribute `{name}` is not understood, only size and memory are"));
    }
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at(digits);
    let factor: u64 = match unit {
        "" => 1,
        "kB" | "KB" | "KiB" => 1 << 10,
        "MB" | "MiB" => 1 << 20,
        "GB" | "GiB" => 1 << 30,
        _ => return Err(format!("`{unit}` is none of kB, MB, GB")),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    bytes.ok_or_else(|| format!("`{value}` is not a size"))
}

/// Checks the position of a level: it may occur once (groups any number of times) and must be outside of what
/// it contains. NUMA nodes and modules may occur anywhere above the cores, as machines differ in that.
fn check_place(before: &[Level], sort: Sort) -> Result<(), String> {
    if before.last().is_some_and(|level| level.sort == Sort::Pu) {
        return Err("nothing may stand below pu".to_owned());
    }
    let Sort::Domain(kind) = sort else { return Ok(()) };
    let floats = |kind| matches!(kind, DomainKind::NumaNode | DomainKind::Module);
    for level in before {
        let Sort::Domain(above) = level.sort else { continue };
        if above == kind {
            return Err("the level stands there twice".to_owned());
        }
        let ordered = !floats(above) && !floats(kind);
        if above == DomainKind::Core || (ordered && above < kind) {
            return Err(format!("it cannot stand below {}", above.word()));
        }
    }
    Ok(())
}

fn domains(levels: &[Level], total: u32) -> Vec<Domain> {
    let mut domains = Vec::new();
    let mut objects = 1;
    for level in levels {
        objects *= level.count;
        let Sort::Domain(kind) = level.sort else { continue };
        let size = total / objects;
        for index in 0..objects {
            let pes = (index * size..(index + 1) * size).map(PeId).collect();
            domains.push(Domain { os: Some(index), bytes: level.bytes, ..Domain::new(kind, pes) });
        }
    }
    if !domains.iter().any(|domain| domain.kind == DomainKind::NumaNode) {
        let node = Domain::new(DomainKind::NumaNode, CpuSet::first_n(total));
        domains.push(Domain { os: Some(0), ..node });
    }
    domains
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_the_description() {
        let machine = Topology::synthetic("numa:2(memory=4GB) pack:1 l3:1 l2:4(size=2 MB) core:2 pu:1");
        assert!(machine.is_err(), "a blank within a size");
        let text = "numa:2(memory=4GB) pack:1 group:2 l3:1 l2:4(size=2MB) module:1 core:2 l1:1 pu:1";
        assert!(Topology::synthetic(text).is_err(), "an L1 below a core");
        let text = "numa:2(memory=4GB) pack:1 group:2 l3:1 l2:4(size=2MB) module:1 l1:2 core:1 pu:2";
        let machine = Topology::synthetic(text).unwrap();
        let summary = machine.summary();
        assert_eq!((summary.pes, summary.cores, summary.fpu_modules), (64, 32, 16));
        assert_eq!((summary.l2_caches, summary.l3_caches, summary.numa_nodes), (16, 4, 2));
        assert_eq!(machine.domain_of(DomainKind::L2, PeId(5)).unwrap().bytes, Some(2 << 20));
        assert_eq!(machine.domain_of(DomainKind::NumaNode, PeId(5)).unwrap().bytes, Some(4 << 30));
        assert_eq!(machine.closest_shared(PeId(0), PeId(2)), Some(DomainKind::Module));
        assert_eq!(machine.closest_shared(PeId(0), PeId(32)), None);
    }

    #[test]
    fn a_machine_without_cores_has_a_core_per_pe() {
        assert_eq!(Topology::synthetic("pack:2 pu:2").unwrap().summary().cores, 4);
    }

    #[test]
    fn errors_name_the_level_and_the_text() {
        for (text, level) in [
            ("", ""),
            ("pack:1", "pack:1"),
            ("pack pu:1", "pack"),
            ("pack:0 pu:1", "pack:0"),
            ("pack:-1 pu:1", "pack:-1"),
            ("pack:2x pu:1", "pack:2x"),
            ("chip:2 pu:1", "chip:2"),
            ("core:2 core:2 pu:1", "core:2"),
            ("core:2 l2:2 pu:1", "l2:2"),
            ("core:2 module:2 pu:1", "module:2"),
            ("pu:1 core:2", "core:2"),
            ("l2:1(size=4XB) pu:1", "l2:1(size=4XB)"),
            ("l2:1(size=99999999999999GB) pu:1", "l2:1(size=99999999999999GB)"),
            ("l2:1(colour=red) pu:1", "l2:1(colour=red)"),
            ("l2:1(size=4MB pu:1", "l2:1(size=4MB pu:1"),
            ("pack:9000 pu:1", "pack:9000"),
            ("pack:8000 core:4294967295 pu:2", "core:4294967295"),
        ] {
            let error = Topology::synthetic(text).expect_err(text);
            assert_eq!((error.text.as_str(), error.level.as_str()), (text, level));
        }
    }
}
