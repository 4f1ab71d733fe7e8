//! Which cores share a floating-point unit.
//!
//! Neither the kernel nor hwloc reports this; it has to be known per processor:
//!
//! - AMD family 15h (Bulldozer to Excavator): the two cores of a compute unit share one FPU and the L2 cache,
//!   so the sets of cores below one L2 are the modules. Source: "Software Optimization Guide for AMD Family
//!   15h Processors" (AMD publication 47414).
//! - Arm Cortex-A510: a complex has one or two cores; two share the vector unit and the L2 cache. Source:
//!   "Arm Cortex-A510 Core Technical Reference Manual". An L2 of more than two A510 cores is a firmware
//!   error: nothing is assumed then, and a note says so.
//! - others: an override file, which also corrects the above.
//!
//! Limits: a vector unit that is shared by more than cores of one design (Apple's SME) needs the file.

use super::hwloc::CpuModel;
use super::kernel::arm_design;
use super::source::LoadError;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::topology::{Domain, DomainKind, Topology};
use corewise_sys::input;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FILE: &str = "fpu-modules.toml";
const AMD_FAMILY_15H: u32 = 0x15;

/// Adds the modules of known processors.
pub fn known(topology: &mut Topology, models: &[CpuModel], midr: &BTreeMap<PeId, u64>) -> Vec<Domain> {
    let is_15h = |pe: &PeId| {
        let model = models.iter().find(|model| model.pes.contains(*pe));
        model.is_some_and(|model| {
            model.vendor.as_deref() == Some("AuthenticAMD") && model.family == Some(AMD_FAMILY_15H)
        })
    };
    let is_a510 = |pe: &PeId| {
        let design = midr.get(pe).and_then(|&midr| arm_design(midr));
        design.is_some_and(|(name, _)| name == "Cortex-A510")
    };
    let mut modules = Vec::new();
    let mut notes = Vec::new();
    for l2 in topology.domains(DomainKind::L2) {
        let shared_fpu = l2.pes.iter().all(|pe| is_15h(&pe)) || l2.pes.iter().all(|pe| is_a510(&pe));
        let cores = topology.domains(DomainKind::Core).filter(|core| core.pes.is_subset(&l2.pes)).count();
        match (shared_fpu, cores) {
            (false, _) | (true, 0 | 1) => {}
            (true, 2) => modules.push(Domain::new(DomainKind::Module, l2.pes.clone())),
            (true, cores) => notes.push(format!(
                "the PEs {} are {cores} cores of one L2 cache, but at most 2 can share an FPU: \
                 their modules are unknown; see fpu-modules.toml",
                l2.pes
            )),
        }
    }
    topology.notes.extend(notes);
    modules
}

/// An override file: a list of rules, of which the first that fits the machine applies.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Overrides {
    machine: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// Part of the processor's name; a rule without it fits every machine.
    model: Option<String>,
    /// The cores of each domain of this kind share an FPU: `l2`.
    fpu_shared_by: Option<String>,
    /// Locations of PEs, one per FPU. An empty list means that no FPU is shared.
    fpu_modules: Option<Vec<String>>,
}

/// Returns the override files that exist on this machine, the most specific first.
pub fn override_files() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let user = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folders = [user.or(home), Some("/etc".into()), Some("/usr/share".into())];
    let files = folders.into_iter().flatten().map(|folder| folder.join("corewise").join(FILE));
    files.filter(|file| file.exists()).collect()
}

/// Returns the modules of the first fitting rule in these files; `None` if no rule fits.
pub fn overridden(
    topology: &Topology,
    models: &[CpuModel],
    files: &[PathBuf],
) -> Result<Option<Vec<Domain>>, LoadError> {
    for path in files {
        let text = input::read_text(path, input::DOCUMENT_MAX).map_err(LoadError::read(path))?;
        let rules: Overrides = toml::from_str(&text).map_err(|error| content(path, error.to_string()))?;
        let fits = |rule: &&Rule| match &rule.model {
            Some(part) => models.iter().any(|model| model.name.contains(part.as_str())),
            None => true,
        };
        if let Some(rule) = rules.machine.iter().find(fits) {
            return apply(rule, topology).map(Some).map_err(|problem| content(path, problem));
        }
    }
    Ok(None)
}

fn content(path: &Path, problem: String) -> LoadError {
    LoadError::Content {
        path: path.to_owned(),
        expected: "list of FPU modules (docs/topo.md shows one)",
        problem,
    }
}

fn apply(rule: &Rule, topology: &Topology) -> Result<Vec<Domain>, String> {
    let sets: Vec<CpuSet> = match (&rule.fpu_shared_by, &rule.fpu_modules) {
        (Some(word), None) => {
            let kind = DomainKind::from_word(word).ok_or_else(|| format!("`{word}` is none of l2, l3, …"))?;
            topology.domains(kind).map(|domain| domain.pes.clone()).collect()
        }
        (None, Some(locations)) => {
            let located = locations.iter().map(|location| topology.locate(location));
            located.collect::<Result<_, _>>().map_err(|error| error.to_string())?
        }
        _ => return Err("a [[machine]] has either fpu_shared_by or fpu_modules".to_owned()),
    };
    Ok(sets.into_iter().map(|pes| Domain::new(DomainKind::Module, pes)).collect())
}
