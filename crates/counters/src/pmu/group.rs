//! Groups of events on one thread: opened, read and closed together, so that their counts are of the same
//! time.

use corewise_core::cpuset::CpuSet;
use perf_event_open_sys::bindings as sys;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// An event as `perf_event_open` takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    /// `perf_event_attr.type`.
    pub perf_type: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `perf_event_attr.config1`.
    pub config1: u64,
    /// `perf_event_attr.config2`.
    pub config2: u64,
}

/// Counts of one group since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupCounts {
    /// Time the group wanted to count, in nanoseconds: while its thread ran.
    pub enabled_ns: u64,
    /// Time it did count, in nanoseconds.
    pub running_ns: u64,
    /// One count per event.
    pub counts: Vec<u64>,
}

/// Events of one thread that are counted together.
#[derive(Debug)]
pub struct Group {
    leader: File,
    /// Held open only: the kernel gives their counts with the leader's.
    followers: Vec<OwnedFd>,
}

impl Group {
    /// Opens `events` on the thread `tid` (0: the calling one), wherever it runs, and lets them count at
    /// once.
    ///
    /// `user_only` leaves out what the kernel does for the thread; without privileges it must be set. Threads
    /// that this one starts later are not counted.
    pub fn open(tid: u32, events: &[Encoded], user_only: bool) -> io::Result<Self> {
        let (first, rest) = events.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let leader = File::from(open_event(tid, *first, user_only, -1)?);
        let follow = |event: &Encoded| open_event(tid, *event, user_only, leader.as_raw_fd());
        let followers = rest.iter().map(follow).collect::<io::Result<_>>()?;
        Ok(Self { leader, followers })
    }

    /// The descriptors that the group holds.
    pub fn descriptors(&self) -> usize {
        1 + self.followers.len()
    }

    /// The counts so far. They stay readable after the thread's end. `None` if the kernel dropped the group.
    pub fn read(&self) -> io::Result<Option<GroupCounts>> {
        // PERF_FORMAT_GROUP with both times: number of events, time enabled, time running, counts.
        let mut bytes = vec![0u8; (3 + self.descriptors()) * size_of::<u64>()];
        if (&self.leader).read(&mut bytes)? != bytes.len() {
            return Ok(None);
        }
        let mut words = bytes.as_chunks().0.iter().map(|eight| u64::from_ne_bytes(*eight)).skip(1);
        let mut time = || words.next().unwrap_or_default();
        let (enabled_ns, running_ns) = (time(), time());
        Ok(Some(GroupCounts { enabled_ns, running_ns, counts: words.collect() }))
    }
}

/// The layout that [`Group::read`] expects.
const READ_FORMAT: u32 =
    sys::PERF_FORMAT_GROUP | sys::PERF_FORMAT_TOTAL_TIME_ENABLED | sys::PERF_FORMAT_TOTAL_TIME_RUNNING;

fn open_event(tid: u32, event: Encoded, user_only: bool, group: i32) -> io::Result<OwnedFd> {
    let mut attr = sys::perf_event_attr::default();
    attr.type_ = event.perf_type;
    attr.size = size_of::<sys::perf_event_attr>() as u32;
    attr.config = event.config;
    attr.read_format = u64::from(READ_FORMAT);
    attr.__bindgen_anon_3.config1 = event.config1;
    attr.__bindgen_anon_4.config2 = event.config2;
    attr.set_exclude_kernel(user_only.into());
    attr.set_exclude_hv(1);
    let tid = i32::try_from(tid).map_err(|_| io::ErrorKind::InvalidInput)?;
    let flags = sys::PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: `attr` is a whole perf_event_attr that carries its own size; the kernel keeps no reference to
    // it.
    let fd = unsafe { perf_event_open_sys::perf_event_open(&mut attr, tid, -1, group, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made this descriptor, and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Distributes events over groups: each goes into the first group with room for it, in the order of the file.
/// `takes` says how many counters each event takes, of `counters` that a group may use.
pub fn pack(takes: &[u32], counters: u32) -> Vec<Vec<usize>> {
    let mut groups: Vec<(u32, Vec<usize>)> = Vec::new();
    for (event, needed) in takes.iter().enumerate() {
        let room = |group: &&mut (u32, Vec<usize>)| group.0 + needed <= counters;
        match groups.iter_mut().find(room) {
            Some(group) => {
                group.0 += needed;
                group.1.push(event);
            }
            None => groups.push((*needed, vec![event])),
        }
    }
    groups.into_iter().map(|(_, events)| events).collect()
}

/// Binds the calling thread to `pes`.
pub fn bind_self(pes: &CpuSet) -> io::Result<()> {
    let words = pes.words();
    // SAFETY: the kernel reads `size_of_val(words)` bytes from the start of `words` and nothing else.
    let code = unsafe { libc::sched_setaffinity(0, size_of_val(words), words.as_ptr().cast()) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TASK_CLOCK: Encoded = Encoded { perf_type: 1, config: 1, config1: 0, config2: 0 };
    const PAGE_FAULTS: Encoded = Encoded { perf_type: 1, config: 2, config1: 0, config2: 0 };

    #[test]
    fn a_group_counts_the_thread_that_it_was_opened_on() {
        let group = Group::open(0, &[TASK_CLOCK, PAGE_FAULTS], true).unwrap();
        assert_eq!(group.descriptors(), 2);
        // The kernel begins to count software events of the calling thread when it is next scheduled.
        std::thread::sleep(std::time::Duration::from_millis(2));
        let before = group.read().unwrap().unwrap();
        let mut pages = vec![0u8; 0];
        pages.try_reserve_exact(64 << 20).unwrap();
        let base = pages.as_mut_ptr();
        for page in 0..200 {
            // SAFETY: the offset is within the reserved 64 MiB. Volatile, so that the write is not left out.
            unsafe { base.add(page * 64 * 4096).write_volatile(1) };
        }
        let after = group.read().unwrap().unwrap();
        let faults = after.counts[1] - before.counts[1];
        // Huge pages (2 MiB) may serve eight of the writes, which are 256 KiB apart, with one fault.
        assert!((200 / 8..300).contains(&faults), "{faults}");
        assert!(after.counts[0] > before.counts[0] && after.enabled_ns > before.enabled_ns);
    }

    #[test]
    fn refusals_are_errors() {
        let gone = Group::open(u32::MAX >> 1, &[TASK_CLOCK], true).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
        let nonsense = Encoded { perf_type: 1, config: 9999, config1: 0, config2: 0 };
        assert_eq!(Group::open(0, &[nonsense], true).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(Group::open(0, &[], true).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn packing_follows_the_order_of_importance() {
        assert_eq!(pack(&[0, 0, 1, 1, 1, 1], 4), [vec![0, 1, 2, 3, 4, 5]]);
        assert_eq!(pack(&[1, 1, 2, 1, 1, 1, 1], 6), [vec![0, 1, 2, 3, 4], vec![5, 6]]);
        assert_eq!(pack(&[1, 2, 1], 2), [vec![0, 2], vec![1]]);
        assert_eq!(pack(&[], 4), Vec::<Vec<usize>>::new());
    }

    proptest! {
        #[test]
        fn packing_places_every_event_once_and_overfills_no_group(
            takes in prop::collection::vec(0u32..3, 0..40), counters in 2u32..9,
        ) {
            let groups = pack(&takes, counters);
            let mut placed: Vec<usize> = groups.iter().flatten().copied().collect();
            placed.sort_unstable();
            prop_assert_eq!(placed, (0..takes.len()).collect::<Vec<_>>());
            for group in &groups {
                prop_assert!(group.iter().map(|event| takes[*event]).sum::<u32>() <= counters);
            }
        }
    }
}
