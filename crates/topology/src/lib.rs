//! The topology of a real machine: this one, or a recorded one.
//!
//! libhwloc finds PEs, caches and nodes; `fpu` adds the cores that share an FPU, which hwloc does not report;
//! `kernel` reads speeds and affinity from the kernel. All files are read below a root directory, so recorded
//! machines use the same code as the live one.

use corewise_core::topology::{DomainKind, Topology, TopologyError, kinds};
use std::path::{Path, PathBuf};

mod child;
mod fpu;
pub mod host;
mod hwloc;
pub mod kernel;
mod record;

pub use record::record;

/// Where a topology comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// This machine, now, with the PEs that the calling process may use.
    Live,
    /// A file of hwloc's XML (`lstopo machine.xml`).
    Xml(PathBuf),
    /// A directory with another machine's `/sys` and `/proc`, or a `.tar.gz` or `.tar.bz2` of one (see
    /// [`record`]).
    Root(PathBuf),
}

impl Source {
    /// Returns the source for a path: names ending in `.xml` are hwloc's, anything else is a recording.
    pub fn of(path: &Path) -> Source {
        let is_xml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("xml"));
        if is_xml { Source::Xml(path.to_owned()) } else { Source::Root(path.to_owned()) }
    }
}

/// Why a topology could not be loaded. Each message names the input and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or directory cannot be read.
    #[error("cannot read {}: {source}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file has the wrong content.
    #[error("{} is not a {expected}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The expected content, and how to create it.
        expected: &'static str,
        /// The problem.
        problem: String,
    },
    /// libhwloc found no topology.
    #[error(
        "libhwloc cannot load {what}: {problem}; `lstopo` (Debian package hwloc) shows whether it can at all"
    )]
    Hwloc {
        /// The source in words.
        what: String,
        /// libhwloc's error.
        problem: String,
    },
    /// The topology violates an invariant.
    #[error("the topology of {what} is inconsistent: {source}")]
    Contradiction {
        /// The source in words.
        what: String,
        /// The invariant.
        source: TopologyError,
    },
}

impl LoadError {
    fn read(path: &Path) -> impl FnOnce(std::io::Error) -> LoadError + '_ {
        move |source| LoadError::Read { path: path.to_owned(), source }
    }
}

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
