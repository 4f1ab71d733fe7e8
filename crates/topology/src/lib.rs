//! The topology of a real machine: this one, or a recorded one.
//!
//! libhwloc finds PEs, caches and nodes; `fpu` adds the cores that share an FPU, which hwloc does not report;
//! `kernel` reads speeds and affinity from the kernel. All files are read below a root directory, so recorded
//! machines use the same code as the live one.

use corewise_core::topology::{DomainKind, Topology, kinds};
use std::path::Path;

mod child;
mod fpu;
pub mod host;
mod hwloc;
pub mod kernel;
mod record;
mod source;

pub use record::record;
pub use source::{LoadError, Source};

/// Loads a topology. `fpu_modules` is a file that lists which cores share an FPU (see `docs/topo.md`);
/// without it, the live machine uses the first match from the user's, the administrator's and the vendor's
/// file.
pub fn load(source: &Source, fpu_modules: Option<&Path>) -> Result<Topology, LoadError> {
    match source {
        Source::Live => load_from("this machine".to_owned(), source, Some(Path::new("/")), fpu_modules),
        Source::Xml(path) => load_from(format!("xml {}", path.display()), source, None, fpu_modules),
        Source::Root(path) => {
            let origin = format!("root {}", path.display());
            let root = record::open(path)?;
            let recorded = Source::Root(root.path.clone());
            load_from(origin, &recorded, Some(&root.path), fpu_modules)
        }
    }
}

/// Returns whether the PEs of this machine are of one kind, by those sources of [`load`] that are read
/// instantly.
pub fn is_of_one_kind() -> bool {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let pes = text.trim().parse().unwrap_or_default();
    let votes = kernel::votes(&kernel::read(Path::new("/"), &pes), &[], &pes);
    kinds::decide(&pes, &votes).0.len() <= 1
}

/// Loads a topology; `root` holds the kernel's files, if there are any.
fn load_from(
    origin: String,
    source: &Source,
    root: Option<&Path>,
    fpu_modules: Option<&Path>,
) -> Result<Topology, LoadError> {
    let mut found = hwloc::load(source)?;
    let facts = root.map(|root| kernel::read(root, &found.pes)).unwrap_or_default();
    if let Some(affinity) = &facts.affinity {
        found.allowed = found.allowed.intersection(affinity);
    }
    if let Some(nodes) = &facts.nodes {
        let nodes_of = found.domains.iter_mut().filter(|domain| domain.kind == DomainKind::NumaNode);
        nodes_of.for_each(|node| node.forbidden |= node.os.is_some_and(|os| !nodes.contains(&os)));
    }
    let votes = kernel::votes(&facts, &found.kinds, &found.pes);
    let (kinds, kind_notes) = kinds::decide(&found.pes, &votes);
    found.notes.extend(kind_notes);
    let contradiction = |source| LoadError::Contradiction { what: origin.clone(), source };
    let mut topology = Topology {
        origin: origin.clone(),
        pes: found.pes,
        allowed: found.allowed,
        domains: found.domains,
        kinds,
        notes: found.notes,
    }
    .arranged()
    .map_err(contradiction)?;

    let overrides = match (fpu_modules, source) {
        (Some(path), _) => vec![path.to_owned()],
        (None, Source::Live) => fpu::override_files(),
        (None, _) => Vec::new(),
    };
    let modules = match fpu::overridden(&topology, &found.models, &overrides)? {
        Some(modules) => modules,
        None => fpu::known(&mut topology, &found.models, &facts.midr),
    };
    topology.domains.extend(modules);
    topology.arranged().map_err(contradiction)
}
