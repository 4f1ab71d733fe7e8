//! Where a topology comes from, and why that may fail.

use corewise_core::topology::TopologyError;
use std::path::{Path, PathBuf};

/// Where a topology comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// This machine, now, with the PEs that the calling process may use.
    Live,
    /// A file of hwloc's XML (`lstopo machine.xml`).
    Xml(PathBuf),
    /// A directory with another machine's `/sys` and `/proc`, or a `.tar.gz` or `.tar.bz2` of one (see
    /// [`record`](crate::record())).
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
    #[error("cannot read {}: {source}", path.display())]
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
    pub(crate) fn read(path: &Path) -> impl FnOnce(std::io::Error) -> LoadError + '_ {
        move |source| LoadError::Read { path: path.to_owned(), source: corewise_sys::input::helped(source) }
    }
}
