//! What bound threads have asked for and could not have, reported by BPF programs of their own.
//!
//! They are loaded when the first thread is bound: a run that binds nothing pays nothing. Limits: what was
//! asked for before they are ready is not seen, and some systems permit no programs at functions of the
//! kernel: then nothing is seen.

use super::error::{DiscoveryError, bpf_error, refused};
use super::ring;
use corewise_bpf as bpf;
use libbpf_rs::{Link, MapHandle, Object, RingBuffer};
use std::os::fd::AsFd;
use std::sync::mpsc::Receiver;

/// A process in which a bound thread has asked for what it could not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The process.
    pub pid: u32,
    /// The name of the thread (`comm`): the process may have ended since.
    pub name: String,
    /// What was asked for.
    pub asked: Asked,
}

/// What a bound thread cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A mask that says how many PEs its program may use.
    Mask,
    /// `SCHED_DEADLINE`.
    Deadline,
}

/// `struct ask` of `asks.bpf.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawAsk {
    tgid: u32,
    asked: u32,
    comm: [u8; 16],
}

impl From<RawAsk> for Ask {
    fn from(raw: RawAsk) -> Ask {
        let asked = if raw.asked == 0 { Asked::Mask } else { Asked::Deadline };
        let name = raw.comm.split(|byte| *byte == 0).next().unwrap_or_default();
        Ask { pid: raw.tgid, name: String::from_utf8_lossy(name).into_owned(), asked }
    }
}

/// The programs that see asks.
pub(super) struct Asks {
    /// Wakes nobody.
    ring: RingBuffer<'static>,
    asked: Receiver<RawAsk>,
    _links: Vec<Link>,
    _object: Object,
}

impl Asks {
    /// Loads and attaches the programs, for the threads in the map `bound`; without one for none.
    pub(super) fn open(bound: Option<&MapHandle>) -> Result<Asks, DiscoveryError> {
        let mut object = bpf::open(bpf::ASKS).map_err(refused)?;
        for mut map in object.maps_mut().filter(|map| map.name() == "bound") {
            bound.map_or(Ok(()), |bound| map.reuse_fd(bound.as_fd())).map_err(bpf_error)?;
        }
        let object = object.load().map_err(bpf_error)?;
        let (ring, asked) = ring::of(&bpf::map(&object, "asks", 0).map_err(refused)?)?;
        Ok(Asks { ring, asked, _links: bpf::attach(&object).map_err(refused)?, _object: object })
    }

    /// Returns who has asked since the last call.
    pub(super) fn take(&self) -> Vec<Ask> {
        // What cannot be read now can be read later.
        let _ = self.ring.consume();
        self.asked.try_iter().map(Ask::from).collect()
    }
}

/// Returns why asks cannot be seen here, if so.
pub fn why_unseen() -> Option<String> {
    Asks::open(None).err().map(|error| error.to_string())
}
