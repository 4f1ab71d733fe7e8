//! What the kernel reports about PEs, read below a root directory.

use super::hwloc::HwlocKind;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::topology::kinds::{TOLERANCE_PERCENT, Vote};
use corewise_sys::input;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Readings per PE. PEs without a file are missing from the map.
#[derive(Debug, Default)]
pub struct Facts {
    /// `cpu_capacity`: 1024 is the fastest PE of the machine at its highest frequency.
    pub capacity: BTreeMap<PeId, u64>,
    /// `cpuinfo_max_freq`, in kHz.
    pub max_khz: BTreeMap<PeId, u64>,
    /// ARM's main identification register, from its own file or from the fields in `/proc/cpuinfo`.
    pub midr: BTreeMap<PeId, u64>,
    /// Intel's core types, by the devices of their counters; in words of hwloc, which does not read them from
    /// recorded machines.
    pub core_type: BTreeMap<PeId, &'static str>,
    /// The PEs that the process may use: `Cpus_allowed_list` of `/proc/self/status`, which the kernel keeps
    /// within the cpuset.
    pub affinity: Option<CpuSet>,
    /// The memory nodes from which it may allocate: `Mems_allowed_list` of the same file.
    pub nodes: Option<BTreeSet<u32>>,
}

/// The devices of the counters of Intel's core types, which list their PEs, and hwloc's words for these
/// types. Source: Linux, `Documentation/ABI/testing/sysfs-bus-event_source-devices` and
/// `arch/x86/events/intel/core.c`.
const INTEL_TYPES: [(&str, &str); 3] =
    [("cpu_core", "IntelCore"), ("cpu_atom", "IntelAtom"), ("cpu_lowpower", "IntelLowPower")];

/// Reads the facts of some PEs.
pub fn read(root: &Path, pes: &CpuSet) -> Facts {
    let text = |path: &str| input::read_text(&root.join(path), input::DOCUMENT_MAX).ok();
    let per_pe = |file: &str, parse: fn(&str) -> Option<u64>| -> BTreeMap<PeId, u64> {
        let read = |pe| parse(text(&format!("sys/devices/system/cpu/cpu{pe}/{file}"))?.trim());
        pes.iter().filter_map(|pe| Some((pe, read(pe)?))).collect()
    };
    let mut midr = per_pe("regs/identification/midr_el1", parse_hexadecimal);
    // Generating this file takes the kernel a while, and a running x86 has no such register.
    let is_x86 = cfg!(target_arch = "x86_64") && root == Path::new("/");
    if midr.is_empty() && !is_x86 {
        midr = text("proc/cpuinfo").map(|cpuinfo| midr_of_cpuinfo(&cpuinfo)).unwrap_or_default();
        midr.retain(|&pe, _| pes.contains(pe));
    }
    let mut max_khz = per_pe("cpufreq/cpuinfo_max_freq", |text| text.parse().ok());
    if max_khz.is_empty() {
        // A recording may lack the symbolic link from the PE to its policy.
        max_khz = pes
            .iter()
            .filter_map(|pe| {
                let path = format!("sys/devices/system/cpu/cpufreq/policy{pe}/cpuinfo_max_freq");
                Some((pe, text(&path)?.trim().parse().ok()?))
            })
            .collect();
    }
    let of_type = |(device, word)| -> Option<Vec<(PeId, &'static str)>> {
        let listed: CpuSet = text(&format!("sys/devices/{device}/cpus"))?.trim().parse().ok()?;
        Some(listed.intersection(pes).iter().map(|pe| (pe, word)).collect())
    };
    let status = text("proc/self/status").unwrap_or_default();
    let nodes = allowed_list(&status, "Mems_allowed_list:");
    Facts {
        capacity: per_pe("cpu_capacity", |text| text.parse().ok()),
        max_khz,
        midr,
        core_type: INTEL_TYPES.into_iter().filter_map(of_type).flatten().collect(),
        affinity: allowed_list(&status, "Cpus_allowed_list:"),
        // Nodes and PEs have the same notation.
        nodes: nodes.map(|nodes| nodes.iter().map(|PeId(node)| node).collect()),
    }
}

fn parse_hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

fn allowed_list(status: &str, key: &str) -> Option<CpuSet> {
    status.lines().find_map(|line| line.strip_prefix(key))?.parse().ok()
}

/// Returns ARM's register from the fields in `/proc/cpuinfo`; implementer in bits 24–31 and part in bits 4–15
/// are sufficient.
fn midr_of_cpuinfo(cpuinfo: &str) -> BTreeMap<PeId, u64> {
    let mut midr = BTreeMap::new();
    let (mut pe, mut implementer) = (None, None);
    for line in cpuinfo.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        match (key.trim(), value.trim()) {
            ("processor", value) => (pe, implementer) = (value.parse().ok().map(PeId), None),
            ("CPU implementer", value) => implementer = parse_hexadecimal(value),
            ("CPU part", value) => {
                if let (Some(pe), Some(implementer), Some(part)) = (pe, implementer, parse_hexadecimal(value))
                {
                    midr.insert(pe, implementer << 24 | part << 4);
                }
            }
            _ => {}
        }
    }
    midr
}

/// Returns the ARM design of a MIDR: name and size class (0 little, 1 big, 2 largest). Source: the part
/// numbers in Linux, `arch/arm64/include/asm/cputype.h`; the classes follow ARM's marketing of the designs.
pub fn arm_design(midr: u64) -> Option<(&'static str, u64)> {
    const ARM_LTD: u64 = 0x41;
    if midr >> 24 & 0xff != ARM_LTD {
        return None;
    }
    Some(match midr >> 4 & 0xfff {
        0xd04 => ("Cortex-A35", 0),
        0xd03 => ("Cortex-A53", 0),
        0xd05 => ("Cortex-A55", 0),
        0xd46 => ("Cortex-A510", 0),
        0xd80 => ("Cortex-A520", 0),
        0xd88 => ("Cortex-A520AE", 0),
        0xd07 => ("Cortex-A57", 1),
        0xd08 => ("Cortex-A72", 1),
        0xd09 => ("Cortex-A73", 1),
        0xd0a => ("Cortex-A75", 1),
        0xd0b => ("Cortex-A76", 1),
        0xd0d => ("Cortex-A77", 1),
        0xd41 => ("Cortex-A78", 1),
        0xd47 => ("Cortex-A710", 1),
        0xd4d => ("Cortex-A715", 1),
        0xd81 => ("Cortex-A720", 1),
        0xd89 => ("Cortex-A720AE", 1),
        0xd87 => ("Cortex-A725", 1),
        0xd44 => ("Cortex-X1", 2),
        0xd48 => ("Cortex-X2", 2),
        0xd4e => ("Cortex-X3", 2),
        0xd82 => ("Cortex-X4", 2),
        0xd85 => ("Cortex-X925", 2),
        _ => return None,
    })
}

/// Returns the speed class of hwloc's names for core types. `IntelLowPower` are the slow cores outside of the
/// ring.
fn core_type_rank(core_type: &str) -> Option<u64> {
    match core_type {
        "IntelLowPower" => Some(0),
        "IntelAtom" | "AMDEfficiency" => Some(1),
        "IntelCore" | "AMDPerformance" => Some(2),
        _ => None,
    }
}

/// Returns the votes of all sources on which PEs are fast. The kernel's own values take precedence over the
/// same values passed on by hwloc. hwloc ranks its kinds by these sources but without a tolerance, so its
/// rank votes only if none of them covers all PEs; otherwise favoured cores would be kinds of their own.
pub fn votes(facts: &Facts, kinds: &[HwlocKind], pes: &CpuSet) -> Vec<Vote> {
    let of_kinds = |value: &dyn Fn(&HwlocKind) -> Option<u64>| -> BTreeMap<PeId, u64> {
        let with_value = kinds.iter().filter_map(|kind| Some((kind, value(kind)?)));
        with_value.flat_map(|(kind, value)| kind.pes.iter().map(move |pe| (pe, value))).collect()
    };
    let or_of_kinds = |map: &BTreeMap<PeId, u64>, value: &dyn Fn(&HwlocKind) -> Option<u64>| {
        if map.is_empty() { of_kinds(value) } else { map.clone() }
    };
    let types = facts.core_type.iter().filter_map(|(pe, word)| Some((*pe, core_type_rank(word)?)));
    let core_type = or_of_kinds(&types.collect(), &|kind| core_type_rank(kind.core_type.as_deref()?));
    let type_words = |rank| {
        let named = kinds.iter().filter_map(|kind| kind.core_type.clone());
        let mut named = named.chain(facts.core_type.values().map(|word| (*word).to_owned()));
        named.find(|name| core_type_rank(name) == Some(rank)).unwrap_or_default()
    };
    let design: BTreeMap<PeId, u64> =
        facts.midr.iter().filter_map(|(&pe, &midr)| Some((pe, arm_design(midr)?.1))).collect();
    let design_words = |class| {
        let mut names: Vec<_> = facts.midr.values().filter_map(|&midr| arm_design(midr)).collect();
        names.retain(|&(_, of)| of == class);
        names.dedup();
        names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" and ")
    };
    let capacity = or_of_kinds(&facts.capacity, &|kind| kind.capacity);
    let max_khz = or_of_kinds(&facts.max_khz, &|kind| Some(kind.max_mhz? * 1000));
    // hwloc's efficiency is a rank among kinds: with one kind it tells nothing.
    let efficiency = of_kinds(&|kind| kind.efficiency.filter(|_| kinds.len() > 1));
    let number = |n: u64| n.to_string();
    let mut votes = vec![
        Vote::from_numbers("core type", &core_type, 0, type_words),
        Vote::from_numbers("MIDR", &design, 0, design_words),
        Vote::from_numbers("cpu_capacity", &capacity, TOLERANCE_PERCENT, number).in_proportion(&capacity),
        Vote::from_numbers("max frequency", &max_khz, TOLERANCE_PERCENT, |khz| {
            format!("{:.1} GHz", khz as f64 / 1e6)
        })
        .in_proportion(&max_khz),
    ];
    if !votes.iter().any(|vote| vote.covers(pes)) {
        votes.push(Vote::from_numbers("hwloc efficiency", &efficiency, 0, number));
    }
    votes.into_iter().filter(|vote| !vote.classes.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm_registers_are_read_from_cpuinfo() {
        let cpuinfo = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd46\n\n\
                       processor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd4d\n";
        let midr = midr_of_cpuinfo(cpuinfo);
        let designs: Vec<_> = midr.values().map(|&midr| arm_design(midr).unwrap().0).collect();
        assert_eq!(designs, ["Cortex-A510", "Cortex-A715"]);
    }

    #[test]
    fn intels_core_types_are_read_from_the_devices_of_their_counters() {
        let root = tempfile::tempdir().unwrap();
        for (device, pes) in [("cpu_core", "0-3\n"), ("cpu_atom", "4-5\n")] {
            let directory = root.path().join("sys/devices").join(device);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("cpus"), pes).unwrap();
        }
        let pes = CpuSet::first_n(6);
        let votes = votes(&read(root.path(), &pes), &[], &pes);
        let classes: Vec<_> =
            votes[0].classes.iter().map(|(pes, words)| (pes.to_string(), words.as_str())).collect();
        assert_eq!(
            classes,
            [("4-5".to_owned(), "core type IntelAtom"), ("0-3".to_owned(), "core type IntelCore")]
        );
    }

    #[test]
    fn the_affinity_is_read_from_a_status_file() {
        let status = "Name:\tcat\nCpus_allowed:\tf\nCpus_allowed_list:\t0-1,3\nMems_allowed:\t1\n";
        assert_eq!(allowed_list(status, "Cpus_allowed_list:").unwrap().to_string(), "0-1,3");
        assert_eq!(allowed_list("Name:\tcat\n", "Cpus_allowed_list:"), None);
    }
}
