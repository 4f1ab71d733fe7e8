//! Which event files fit this machine: one per kind of core.
//!
//! The kernel shows one device per core PMU under `/sys/bus/event_source/devices`: `cpu` on a uniform x86,
//! and devices that list their PEs in a file `cpus` where there are kinds (`cpu_core` and `cpu_atom` on
//! Intel) and on ARM. The processor behind a device is that of its first PE: vendor, family and model in
//! `/proc/cpuinfo`, on ARM MIDR_EL1. Everything is read below a root directory, so that a recorded machine is
//! recognised as a live one.

use super::files::{CpuMatch, EventFile};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One kind of core, as far as counting goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// The PMU's device, for instance `cpu_atom`.
    pub device: String,
    /// Its number for `perf_event_attr.type`.
    pub perf_type: u32,
    /// Its PEs; empty: all.
    pub pes: CpuSet,
    /// What to count there.
    pub file: Arc<EventFile>,
}

/// A processor by the numbers it gives of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cpu {
    /// x86.
    X86 {
        /// `vendor_id`.
        vendor: String,
        /// `cpu family`.
        family: u32,
        /// `model`.
        model: u32,
    },
    /// ARM.
    Arm {
        /// Implementer of MIDR_EL1.
        implementer: u32,
        /// Part number of MIDR_EL1.
        part: u32,
    },
}

/// Why no file fits.
#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    /// The kernel shows no PMU of the cores.
    #[error("the kernel shows no hardware counters of the cores in {path} (usual in virtual machines)")]
    NoPmu {
        /// Where they would be.
        path: PathBuf,
    },
    /// The processor does not say what it is.
    #[error("PE {pe} does not say which processor it is in {path}")]
    NoIdentity {
        /// The first PE of the device.
        pe: PeId,
        /// The file.
        path: PathBuf,
    },
    /// No event file is for this processor.
    #[error("no event file is for {cpu} (PMU device {device}); docs/counters.md says how to add one")]
    UnknownCpu {
        /// The processor.
        cpu: Cpu,
        /// Its PMU's device.
        device: String,
    },
    /// A file is not as the kernel writes it.
    #[error("{path}: `{text}` is not what was expected")]
    Form {
        /// The file.
        path: PathBuf,
        /// What it says.
        text: String,
    },
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cpu::X86 { vendor, family, model } => write!(f, "{vendor} family {family} model {model:#x}"),
            Cpu::Arm { implementer, part } => write!(f, "ARM implementer {implementer:#x} part {part:#x}"),
        }
    }
}

impl CpuMatch {
    /// Whether this is the processor, and the device its PMU.
    pub fn fits(&self, cpu: &Cpu, device: &str) -> bool {
        match (self, cpu) {
            (CpuMatch::X86(x86), Cpu::X86 { vendor, family, model }) => {
                let in_range = |range: &(u32, u32)| (range.0..=range.1).contains(model);
                x86.vendor == *vendor
                    && x86.family == *family
                    && x86.model_ranges().is_some_and(|ranges| ranges.iter().any(in_range))
                    && (x86.devices.is_empty() || x86.devices.iter().any(|name| name == device))
            }
            (CpuMatch::Arm(arm), Cpu::Arm { implementer, part }) => {
                arm.implementer == *implementer && arm.part == *part
            }
            (CpuMatch::X86(_), Cpu::Arm { .. }) | (CpuMatch::Arm(_), Cpu::X86 { .. }) => false,
        }
    }
}

/// The kinds of core of the machine under `root`, each with the first of `files` that is for it.
pub fn detect(root: &Path, files: &[Arc<EventFile>]) -> Result<Vec<Kind>, DetectError> {
    let dir = root.join("sys/bus/event_source/devices");
    let mut kinds = Vec::new();
    for (device, pes) in core_pmus(&dir)? {
        let path = dir.join(&device).join("type");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let perf_type = text.trim().parse().map_err(|_| DetectError::Form { path, text: text.clone() })?;
        let cpu = identity(root, pes.first().unwrap_or(PeId(0)))?;
        let file = files
            .iter()
            .find(|file| file.cpus.iter().any(|matching| matching.fits(&cpu, &device)))
            .cloned()
            .ok_or_else(|| DetectError::UnknownCpu { cpu, device: device.clone() })?;
        kinds.push(Kind { device, perf_type, pes, file });
    }
    if kinds.is_empty() { Err(DetectError::NoPmu { path: dir }) } else { Ok(kinds) }
}

/// The devices of core PMUs with their PEs (empty: all), by name. Devices of other units have no file `cpus`.
fn core_pmus(dir: &Path) -> Result<Vec<(String, CpuSet)>, DetectError> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Ok(Vec::new()) };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    let mut pmus = Vec::new();
    for name in names {
        let path = dir.join(&name).join("cpus");
        match std::fs::read_to_string(&path) {
            // A kind whose PEs are all offline.
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => {
                let pes = text.parse().map_err(|_| DetectError::Form { path, text: text.clone() })?;
                pmus.push((name, pes));
            }
            Err(_) if name == "cpu" => pmus.push((name, CpuSet::new())),
            Err(_) => {}
        }
    }
    Ok(pmus)
}

/// What a PE says that it is.
fn identity(root: &Path, pe: PeId) -> Result<Cpu, DetectError> {
    let midr = root.join(format!("sys/devices/system/cpu/cpu{pe}/regs/identification/midr_el1"));
    if let Ok(text) = std::fs::read_to_string(&midr) {
        let digits = text.trim().trim_start_matches("0x");
        let value = u64::from_str_radix(digits, 16)
            .map_err(|_| DetectError::Form { path: midr, text: text.clone() })?;
        // MIDR_EL1 has 32 bits: implementer in 31..24, part number in 15..4.
        let field = |shift: u32, mask: u64| u32::try_from((value >> shift) & mask).unwrap_or_default();
        return Ok(Cpu::Arm { implementer: field(24, 0xff), part: field(4, 0xfff) });
    }
    let path = root.join("proc/cpuinfo");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    cpuinfo_identity(&text, pe).ok_or(DetectError::NoIdentity { pe, path })
}

/// The identity of a PE in the text of `/proc/cpuinfo`, which has a paragraph per PE.
fn cpuinfo_identity(text: &str, pe: PeId) -> Option<Cpu> {
    let value = |paragraph: &'_ str, key: &str| -> Option<String> {
        let mut pairs = paragraph.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    };
    let paragraph = text
        .split("\n\n")
        .find(|paragraph| value(paragraph, "processor").is_some_and(|number| number == pe.to_string()))?;
    let hexadecimal = |key| u32::from_str_radix(value(paragraph, key)?.trim_start_matches("0x"), 16).ok();
    let x86 = || {
        Some(Cpu::X86 {
            vendor: value(paragraph, "vendor_id")?,
            family: value(paragraph, "cpu family")?.parse().ok()?,
            model: value(paragraph, "model")?.parse().ok()?,
        })
    };
    let arm =
        || Some(Cpu::Arm { implementer: hexadecimal("CPU implementer")?, part: hexadecimal("CPU part")? });
    x86().or_else(arm)
}

#[cfg(test)]
mod tests {
    use super::super::files::events_table;
    use super::*;

    /// A directory with these files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    /// The machine's kinds as `device/type PEs file`, or the reason why there are none.
    fn kinds(files: &[(&str, &str)]) -> String {
        let dir = machine(files);
        let text =
            |kind: &Kind| format!("{}/{} {} {}", kind.device, kind.perf_type, kind.pes, kind.file.name);
        match detect(dir.path(), &events_table(&[]).unwrap()) {
            Ok(kinds) => kinds.iter().map(text).collect::<Vec<_>>().join("; "),
            Err(error) => error.to_string().replace(&dir.path().display().to_string(), ""),
        }
    }

    fn x86(vendor: &str, family: u32, models: &[u32]) -> String {
        let paragraph = |(pe, model): (usize, &u32)| {
            format!(
                "processor\t: {pe}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
                 model name\t: A name : with 99 colons\nstepping\t: 2\n"
            )
        };
        models.iter().enumerate().map(paragraph).collect::<Vec<_>>().join("\n")
    }

    const CPU_TYPE: (&str, &str) = ("sys/bus/event_source/devices/cpu/type", "4\n");
    const CPUINFO: &str = "proc/cpuinfo";

    #[test]
    fn uniform_x86_machines_are_known_by_family_and_model() {
        for (vendor, family, model, file) in [
            ("AuthenticAMD", 21, 1, "amd_fam15h"),
            ("AuthenticAMD", 21, 0x60, "amd_fam15h"),
            ("AuthenticAMD", 23, 0x31, "amd_zen2"),
            ("AuthenticAMD", 25, 0x01, "amd_zen3"),
            ("AuthenticAMD", 25, 0x50, "amd_zen3"),
            ("AuthenticAMD", 25, 0x11, "amd_zen4"),
            ("AuthenticAMD", 25, 0x61, "amd_zen4"),
            ("AuthenticAMD", 26, 0x24, "amd_zen5"),
            ("GenuineIntel", 6, 0x5e, "intel_skylake"),
            ("GenuineIntel", 6, 0x55, "intel_skylake_x"),
            ("GenuineIntel", 6, 0x7e, "intel_ice_lake"),
            ("GenuineIntel", 6, 0x6a, "intel_ice_lake_x"),
            ("GenuineIntel", 6, 0x8f, "intel_sapphire_rapids"),
            ("GenuineIntel", 6, 0xad, "intel_redwood_cove"),
            ("GenuineIntel", 6, 0xbe, "intel_gracemont"),
            ("GenuineIntel", 6, 0x97, "intel_golden_cove"),
        ] {
            let cpuinfo = x86(vendor, family, &[model, model]);
            assert_eq!(kinds(&[CPU_TYPE, (CPUINFO, &cpuinfo)]), format!("cpu/4  {file}"), "{model:#x}");
        }
    }

    #[test]
    fn hybrid_machines_have_a_file_per_kind() {
        let hybrid = |model: u32, more: &[(&str, &str)]| {
            let cpuinfo = x86("GenuineIntel", 6, &[model; 16]);
            let mut files = vec![
                (CPUINFO, cpuinfo.as_str()),
                ("sys/bus/event_source/devices/cpu_core/type", "4\n"),
                ("sys/bus/event_source/devices/cpu_core/cpus", "0-7\n"),
                ("sys/bus/event_source/devices/cpu_atom/type", "10\n"),
                ("sys/bus/event_source/devices/cpu_atom/cpus", "8-15\n"),
                ("sys/bus/event_source/devices/uncore_imc/type", "20\n"),
                ("sys/bus/event_source/devices/uncore_imc/cpumask", "0\n"),
                ("sys/bus/event_source/devices/software/type", "1\n"),
            ];
            files.extend_from_slice(more);
            kinds(&files)
        };
        // Raptor Lake, Meteor Lake, Arrow Lake-S; and Arrow Lake-H, which has a third kind.
        assert_eq!(hybrid(0xba, &[]), "cpu_atom/10 8-15 intel_gracemont; cpu_core/4 0-7 intel_golden_cove");
        assert_eq!(hybrid(0xaa, &[]), "cpu_atom/10 8-15 intel_crestmont; cpu_core/4 0-7 intel_redwood_cove");
        assert_eq!(hybrid(0xc6, &[]), "cpu_atom/10 8-15 intel_skymont; cpu_core/4 0-7 intel_lion_cove");
        let low = [
            ("sys/bus/event_source/devices/cpu_lowpower/type", "11\n"),
            ("sys/bus/event_source/devices/cpu_lowpower/cpus", "14-15\n"),
        ];
        assert_eq!(
            hybrid(0xc5, &low),
            "cpu_atom/10 8-15 intel_skymont; cpu_core/4 0-7 intel_lion_cove; \
             cpu_lowpower/11 14-15 intel_crestmont"
        );
    }

    #[test]
    fn arm_machines_are_known_by_midr_or_by_cpuinfo() {
        let cpuinfo = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU architecture: 8\n\
                       CPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n";
        let device = "sys/bus/event_source/devices/armv8_pmuv3_0";
        let (kind, pes) = (format!("{device}/type"), format!("{device}/cpus"));
        let neoverse = [(CPUINFO, cpuinfo), (&kind, "8\n"), (&pes, "0-79\n")];
        assert_eq!(kinds(&neoverse), "armv8_pmuv3_0/8 0-79 arm_neoverse_n1");

        let midr = |pe: u32| format!("sys/devices/system/cpu/cpu{pe}/regs/identification/midr_el1");
        let phone = kinds(&[
            ("sys/bus/event_source/devices/armv9_cortex_a510/type", "8\n"),
            ("sys/bus/event_source/devices/armv9_cortex_a510/cpus", "0-3\n"),
            ("sys/bus/event_source/devices/armv8_cortex_a76/type", "9\n"),
            ("sys/bus/event_source/devices/armv8_cortex_a76/cpus", "4-7\n"),
            (&midr(0), "0x00000000411fd461\n"),
            (&midr(4), "0x00000000413fd0b1\n"),
        ]);
        assert_eq!(phone, "armv8_cortex_a76/9 4-7 arm_cortex_a76; armv9_cortex_a510/8 0-3 arm_cortex_a510");
    }

    #[test]
    fn reasons_are_given_in_words() {
        let k8 = x86("AuthenticAMD", 15, &[0x41]);
        for (files, expected) in [
            (vec![(CPUINFO, k8.as_str())], "the kernel shows no hardware counters of the cores"),
            (vec![CPU_TYPE], "PE 0 does not say which processor it is in /proc/cpuinfo"),
            (vec![CPU_TYPE, (CPUINFO, &k8)], "no event file is for AuthenticAMD family 15 model 0x41"),
            (
                vec![("sys/bus/event_source/devices/cpu/type", "four\n"), (CPUINFO, &k8)],
                "/sys/bus/event_source/devices/cpu/type: `four\n` is not what was expected",
            ),
        ] {
            let reason = kinds(&files);
            assert!(reason.starts_with(expected), "{reason}");
        }
    }
}
