//! Which gangs take turns with which.
//!
//! Problem: gangs on different PEs do not disturb each other and are to take no turns, but each corewise
//! knows the PEs of its own gangs only. Approach: a gang's place, which all corewise of a user see
//! ([`super::places`]), has the number of its process, whose PEs every process may read. Gangs that share a
//! PE, or that share PEs with a third one, are in one circle. The PEs are read once a second, by all in the
//! same second, so that all see the same circles. Limits: whose process is not to be seen (in another pid
//! namespace) is taken to use all PEs.

use super::places::Places;
use crate::group::GROUPS_MAX;
use corewise_core::cpuset::CpuSet;
use corewise_sys::affinity;
use corewise_sys::proc::Proc;
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// The variables of a process that was started as one of several of an MPI program.
const MPI_VARIABLES: [&str; 4] = ["PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MPI_LOCALRANKID"];

/// Places: a group's number, and as many bits as process ids have (`PID_MAX_LIMIT`).
const PID_BITS: u32 = 22;

/// The number of places.
const PLACES: i64 = (GROUPS_MAX as i64) << PID_BITS;

/// Opens the places of all gangs of this user.
pub fn places() -> io::Result<Places> {
    Places::open("turns", PLACES)
}

/// Opens the places whose locks are in a file of a test's own.
#[cfg(test)]
pub fn places_in(file: std::fs::File) -> Places {
    Places::of(file, PLACES)
}

/// Returns the clock by which gangs take turns, the same for all processes of the machine.
pub fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC").into()
}

/// Returns the place of a gang that is known by this process.
pub fn place(group: i64, process: u32) -> i64 {
    group << PID_BITS | i64::from(process)
}

/// Returns the number of the group of a place's gang.
pub fn group(place: i64) -> i64 {
    place >> PID_BITS
}

/// Returns the process by which a place's gang is known.
fn process(place: i64) -> u32 {
    (place & ((1 << PID_BITS) - 1)) as u32
}

/// Reads how many gangs take turns, or may, from what all runs of this user share. Without a runtime
/// directory nothing is shared, and there are none.
#[derive(Debug)]
pub struct GangsBeside {
    places: Places,
    gangs: Gangs,
}

impl GangsBeside {
    /// Opens what the runs share.
    pub fn open() -> io::Result<GangsBeside> {
        Ok(GangsBeside::of(places()?))
    }

    /// With places of which none is taken here, so that those of this run are read like all others.
    pub(crate) fn of(places: Places) -> GangsBeside {
        GangsBeside { places, gangs: Gangs::default() }
    }

    /// Returns how many of them are on the PEs of a process, beside its own.
    pub fn count(&mut self, pid: u32) -> u32 {
        self.gangs.refresh(self.places.others(), now());
        self.gangs.beside(pid) as u32
    }
}

/// The gangs of all corewise of a user, by their places, with their PEs.
#[derive(Debug, Default)]
pub struct Gangs {
    all: Vec<(i64, CpuSet)>,
    /// In which second their PEs were read.
    second: u64,
    /// How many of them are beside a process, as far as that was asked since.
    beside: BTreeMap<u32, usize>,
}

impl Gangs {
    /// Reads the PEs of the gangs in these places again, if they are other gangs or of an earlier second.
    pub fn refresh(&mut self, places: Vec<i64>, now: Duration) {
        let is_same = self.all.iter().map(|(place, _)| place).eq(&places);
        if is_same && self.second == now.as_secs() {
            return;
        }
        let pes = |place: i64| pes_of(process(place));
        *self = Gangs {
            all: places.into_iter().map(|place| (place, pes(place))).collect(),
            second: now.as_secs(),
            beside: BTreeMap::new(),
        };
    }

    /// Returns how many there are on the PEs of a process, beside its own gang.
    pub fn beside(&mut self, pid: u32) -> usize {
        if let Some(&count) = self.beside.get(&pid) {
            return count;
        }
        let leader = leader_of(pid);
        let circle = if self.all.is_empty() { Vec::new() } else { self.circle(&pes_of(leader)) };
        let count = circle.into_iter().filter(|place| process(*place) != leader).count();
        self.beside.insert(pid, count);
        count
    }

    /// Returns the places of the gangs that share these PEs, or PEs with one that does, in order.
    pub fn circle(&self, of: &CpuSet) -> Vec<i64> {
        let mut pes = of.clone();
        let mut is_in = vec![false; self.all.len()];
        while let Some(next) =
            (0..is_in.len()).find(|&gang| !is_in[gang] && self.all[gang].1.intersects(&pes))
        {
            is_in[next] = true;
            pes = pes.union(&self.all[next].1);
        }
        self.all.iter().zip(is_in).filter(|(_, is_in)| *is_in).map(|((place, _), _)| *place).collect()
    }

    /// Returns all circles.
    pub fn circles(&self) -> Vec<Vec<i64>> {
        let mut circles: Vec<Vec<i64>> = self.all.iter().map(|(_, pes)| self.circle(pes)).collect();
        circles.sort_unstable();
        circles.dedup();
        circles
    }
}

/// By which process the gang of a process is known.
pub fn leader_of(pid: u32) -> u32 {
    let parent = || Some(Proc::own().task(pid).ok()??.parent);
    is_of_mpi(pid).then(parent).flatten().unwrap_or(pid)
}

/// Whether it was started as one of several processes of an MPI program.
pub fn is_of_mpi(pid: u32) -> bool {
    let environment = Proc::own().environment(pid).unwrap_or_default();
    environment.variables().any(|(name, _)| MPI_VARIABLES.contains(&name.as_str()))
}

/// The PEs of the threads of a gang that is known by this process.
pub fn pes_of(leader: u32) -> CpuSet {
    let mut processes = Proc::own().children(leader).unwrap_or_default();
    processes.retain(|&child| is_of_mpi(child));
    if processes.is_empty() || is_of_mpi(leader) {
        processes = vec![leader];
    }
    let masks = processes.into_iter().flat_map(threads_of).filter_map(|tid| affinity::get(tid).ok());
    let pes = masks.fold(CpuSet::new(), |all, mask| all.union(&mask));
    if pes.is_empty() { affinity::all_pes() } else { pes }
}

/// Returns the threads of a process.
pub fn threads_of(pid: u32) -> Vec<u32> {
    Proc::own().threads(pid).ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gangs(pes: &[&str]) -> Gangs {
        let all = pes.iter().zip(10..).map(|(pes, place)| (place, pes.parse().unwrap()));
        Gangs { all: all.collect(), ..Gangs::default() }
    }

    #[test]
    fn gangs_that_share_no_pe_are_in_different_circles() {
        let gangs = gangs(&["0-1", "2-3", "1", "3", "5-7"]);
        assert_eq!(gangs.circles(), [vec![10, 12], vec![11, 13], vec![14]]);
        assert_eq!(gangs.circle(&"0".parse().unwrap()), [10, 12]);
        assert!(gangs.circle(&"4".parse().unwrap()).is_empty());
        assert_eq!(gangs.circle(&"0-7".parse().unwrap()), [10, 11, 12, 13, 14]);
    }

    #[test]
    fn a_third_gang_joins_two_that_share_nothing() {
        assert_eq!(gangs(&["0-1", "4-5", "1-4"]).circles(), [vec![10, 11, 12]]);
        assert_eq!(gangs(&["4-5", "3-4", "2-3", "0-2"]).circles(), [vec![10, 11, 12, 13]]);
        assert!(gangs(&[]).circles().is_empty());
    }

    #[test]
    fn a_place_tells_its_group_and_its_process() {
        let most = place(GROUPS_MAX as i64 - 1, (1 << PID_BITS) - 1);
        assert_eq!(most, PLACES - 1);
        assert_eq!(group(place(7, 4_000_000)), 7);
        let own = std::process::id();
        let mut gangs = Gangs::default();
        gangs.refresh(vec![place(7, own)], Duration::from_secs(1));
        assert_eq!(gangs.all, [(place(7, own), pes_of(own))]);
        let nobody = (1 << PID_BITS) - 1;
        assert_eq!(pes_of(nobody), affinity::all_pes(), "it is not known where it runs");
    }
}
