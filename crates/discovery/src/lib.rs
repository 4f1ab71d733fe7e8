//! Which threads applications have, from the first instant of each to its last.
//!
//! Two sources implement one interface: [`bpf`] (exact, immediate, needs privileges) and [`poll`] (`/proc`,
//! for every user). Every report names the source in use. A third one, [`tree`], follows a command until one
//! of these is ready and takes its place ([`continued`]).

mod applications;
mod apps;
pub mod asks;
pub mod attach;
pub mod bpf;
pub mod continued;
mod entries;
mod error;
mod estimate;
mod facts;
pub mod followed;
mod groups;
pub mod heirs;
mod known;
mod mapped;
mod neighbours;
mod options;
mod others;
pub mod poll;
mod polled;
mod ring;
mod source;
pub mod tree;
mod unwatched;

pub use applications::{ExecutedProgram, Extent};
pub use error::{DiscoveryError, FollowError};
pub use facts::{NewThread, News, Parallelism, Start, ThreadFacts};
pub use options::{Choice, Options, Root};
pub use source::Discovery;

/// Opens the source that `options.choice` requests. Also returns why BPF is not used, if it was tried.
pub fn open(options: &Options) -> Result<(Box<dyn Discovery>, Vec<String>), DiscoveryError> {
    let mut why_not_bpf = Vec::new();
    if options.choice != Choice::Poll {
        match bpf::Bpf::open(options) {
            Ok(bpf) => return Ok((Box::new(bpf), why_not_bpf)),
            Err(error) if options.choice == Choice::Bpf => return Err(error),
            Err(error) => why_not_bpf.push(error.to_string()),
        }
    }
    Ok((Box::new(poll::Poll::open(options)?), why_not_bpf))
}
