//! Which processes run beside which, on PEs that share something, and for how long.
//!
//! How the kernel adds it up, what that costs and how exact it is, `neighbours.bpf.c` of the crate `bpf`
//! says. Here the kernel is given each PE's neighbours, closest first, and the common time of those that run
//! on while it is read is counted as well.

use super::error::{DiscoveryError, bpf_error, refused};
use super::mapped::Mapped;
use corewise_bpf as bpf;
use corewise_bpf::monotonic_ns;
use corewise_core::ids::PeId;
use corewise_core::observe::BesideReading;
use corewise_core::topology::{DomainKind, Topology};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// `CLOSE_MAX`, `NEAR_MAX` and `PAIRS_MAX` of `neighbours.bpf.c`.
const CLOSE_MAX: usize = 4;
const NEAR_MAX: usize = 128;
const PAIRS_MAX: usize = 16384;

/// What two PEs may share, by its number in the kernel; all look at those that share one of the first two.
const SHARED: [DomainKind; 4] = [DomainKind::Core, DomainKind::L2, DomainKind::L3, DomainKind::NumaNode];
const CLOSE: usize = 2;

/// `struct seat` of `neighbours.bpf.c`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
struct RawSeat {
    since: u64,
    tgid: u32,
    is_watched: u32,
}

/// `struct neighbour`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct RawNeighbour {
    pe: u32,
    distance: u32,
    cell: u32,
    reserved: u32,
}

/// `struct near`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct RawNear {
    close: u32,
    rest: u32,
    list: [RawNeighbour; NEAR_MAX],
}

/// `struct pair`: two processes, the lower ID first, and what the PEs share on which they ran.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RawPair {
    low: u32,
    high: u32,
    distance: u32,
}

/// Two PEs that share something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Near {
    a: usize,
    b: usize,
    distance: usize,
}

/// The programs and their maps.
pub(super) struct Neighbours {
    /// All pairs of PEs; the index is the pair's cell in `counted`.
    pairs: Vec<Near>,
    seats: Mapped<RawSeat>,
    counted: Mapped<u64>,
    watched: MapHandle,
    together: MapHandle,
    /// What was counted here, of those that ran on.
    here: BTreeMap<RawPair, u64>,
    is_full: bool,
    _link: Vec<Link>,
    _object: Object,
}

impl Neighbours {
    /// Loads and attaches the programs, for the PEs of a machine. No process is watched yet.
    pub fn open(topology: &Topology) -> Result<Neighbours, DiscoveryError> {
        let pairs = near(topology);
        let pes = topology.pes.last().map_or(0, |pe| pe.0 as usize) + 1;
        let mut object = bpf::open(bpf::NEIGHBOURS).map_err(refused)?;
        for mut map in object.maps_mut() {
            let entries = match map.name().to_string_lossy().as_ref() {
                "seats" | "near" => pes,
                "counted" => pairs.len().max(1),
                _ => continue,
            };
            map.set_max_entries(entries as u32).map_err(bpf_error)?;
        }
        let object = object.load().map_err(bpf_error)?;
        let of = |name, bytes| bpf::map(&object, name, bytes).map_err(refused);
        let places = of("near", size_of::<RawNear>())?;
        for (pe, near) in neighbours_of(pes, &pairs).iter().enumerate() {
            let value = bytes_of(near);
            places.update(&(pe as u32).to_ne_bytes(), value, MapFlags::ANY).map_err(bpf_error)?;
        }
        let mapped = of("seats", size_of::<RawSeat>())?;
        let seats = Mapped::map(&mapped, pes).map_err(DiscoveryError::bpf)?;
        let mapped = of("counted", size_of::<u64>())?;
        let counted = Mapped::map(&mapped, pairs.len().max(1)).map_err(DiscoveryError::bpf)?;
        Ok(Neighbours {
            pairs,
            seats,
            counted,
            watched: of("watched", 1)?,
            together: of("together", size_of::<u64>())?,
            here: BTreeMap::new(),
            is_full: false,
            _link: bpf::attach(&object).map_err(refused)?,
            _object: object,
        })
    }

    /// Tells from now on beside which others a process runs.
    pub fn watch(&mut self, pid: u32) {
        self.is_full |= self.watched.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY).is_err();
    }

    /// Returns beside which others watched processes have run so far, and forgets those that do not live any
    /// more.
    pub fn read(&mut self, lives: &HashSet<u32>) -> Vec<BesideReading> {
        self.count_those_that_run_on(lives);
        let mut sums = self.here.clone();
        for key in self.together.keys() {
            let Ok(Some(ns)) = self.together.lookup(&key, MapFlags::ANY) else { continue };
            *sums.entry(pair_of(&key)).or_default() += u64::from_ne_bytes(ns.try_into().unwrap_or_default());
        }
        self.is_full |= sums.len() >= PAIRS_MAX;
        let is_over = |pair: &RawPair| !lives.contains(&pair.low) && !lives.contains(&pair.high);
        self.here.retain(|pair, _| !is_over(pair));
        // It may be gone already.
        sums.keys().filter(|pair| is_over(pair)).for_each(|pair| drop(self.together.delete(bytes_of(pair))));
        for key in self.watched.keys().collect::<Vec<_>>() {
            let pid = <[u8; 4]>::try_from(key.as_slice()).map_or(0, u32::from_ne_bytes);
            if !lives.contains(&pid) {
                let _ = self.watched.delete(&key);
            }
        }
        sums.into_iter().map(|(pair, ns)| reading(&pair, ns)).collect()
    }

    /// Returns what could not be seen, in words.
    pub fn note(&self) -> Option<String> {
        self.is_full.then(|| format!("more than {PAIRS_MAX} pairs of processes ran beside each other"))
    }

    /// Counts the common time of those that sit on neighbouring PEs now, as the kernel does when one leaves.
    fn count_those_that_run_on(&mut self, watched: &HashSet<u32>) {
        for (cell, near) in self.pairs.iter().enumerate() {
            let (a, b) = (self.seats.read(near.a), self.seats.read(near.b));
            let is_watched = watched.contains(&a.tgid) || watched.contains(&b.tgid);
            if a.tgid == 0 || b.tgid == 0 || !is_watched {
                continue;
            }
            let now = monotonic_ns();
            // SAFETY: the address is within the mapping, aligned, and changed by atomic operations alone.
            let counted = unsafe { AtomicU64::from_ptr(self.counted.place(cell)) };
            let before = counted.load(Ordering::Relaxed);
            let from = before.max(a.since).max(b.since);
            let order = Ordering::AcqRel;
            if from < now && counted.compare_exchange(before, now, order, Ordering::Relaxed).is_ok() {
                let (low, high) = (a.tgid.min(b.tgid), a.tgid.max(b.tgid));
                let pair = RawPair { low, high, distance: near.distance as u32 };
                *self.here.entry(pair).or_default() += now - from;
            }
        }
    }
}

fn reading(pair: &RawPair, ns: u64) -> BesideReading {
    let shared = SHARED[pair.distance as usize % SHARED.len()];
    BesideReading { processes: (pair.low, pair.high), shared, ns }
}

fn pair_of(key: &[u8]) -> RawPair {
    let word = |at: usize| {
        let bytes = key.get(4 * at..4 * at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    };
    RawPair { low: word(0), high: word(1), distance: word(2) }
}

/// Returns the pairs of PEs that share something, the closest first.
fn near(topology: &Topology) -> Vec<Near> {
    let pes: Vec<PeId> = topology.pes.iter().collect();
    let mut pairs = Vec::new();
    for (index, &a) in pes.iter().enumerate() {
        let sharers: Vec<_> = SHARED.iter().map(|kind| topology.domain_of(*kind, a)).collect();
        for &b in &pes[index + 1..] {
            let is_shared = |domain: &Option<&corewise_core::topology::Domain>| {
                domain.is_some_and(|domain| domain.pes.contains(b))
            };
            if let Some(distance) = sharers.iter().position(is_shared) {
                pairs.push(Near { a: a.0 as usize, b: b.0 as usize, distance });
            }
        }
    }
    pairs.sort_by_key(|near| near.distance);
    pairs
}

/// Returns each PE's neighbours as the kernel wants them.
fn neighbours_of(pes: usize, pairs: &[Near]) -> Vec<RawNear> {
    let none = RawNear { close: 0, rest: 0, list: [RawNeighbour::default(); NEAR_MAX] };
    let mut all = vec![none; pes];
    for (cell, &Near { a, b, distance }) in pairs.iter().enumerate() {
        for (own, other) in [(a, b), (b, a)] {
            let near = &mut all[own];
            let count = (near.close + near.rest) as usize;
            if count == NEAR_MAX {
                continue;
            }
            near.list[count] =
                RawNeighbour { pe: other as u32, distance: distance as u32, cell: cell as u32, reserved: 0 };
            // A single other neighbour is as well looked at always.
            match distance < CLOSE && count < CLOSE_MAX {
                true => near.close += 1,
                false => near.rest += 1,
            }
        }
    }
    all
}

/// The bytes of a structure of the kernel's layout.
fn bytes_of<T>(value: &T) -> &[u8] {
    // SAFETY: the structures here are `repr(C)` and have no padding; every byte of them is initialised.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pe_has_its_closest_neighbours_first() {
        let topology = Topology::synthetic("numa:2 l3:1 l2:2 core:1 pu:2").unwrap();
        let pairs = near(&topology);
        let all = neighbours_of(8, &pairs);
        let of = |pe: usize| {
            let near = &all[pe];
            let count = (near.close + near.rest) as usize;
            let shared = |one: &RawNeighbour| (one.pe, SHARED[one.distance as usize]);
            (near.close, near.list[..count].iter().map(shared).collect::<Vec<_>>())
        };
        use DomainKind::{Core, L3};
        assert_eq!(of(0), (1, vec![(1, Core), (2, L3), (3, L3)]));
        assert_eq!(of(6), (1, vec![(7, Core), (4, L3), (5, L3)]));
        // Both PEs of a pair know it by the same cell.
        let cell = |a: usize, b: u32| all[a].list.iter().find(|one| one.pe == b).map(|one| one.cell);
        assert_eq!(cell(0, 3), cell(3, 0));
    }
}
