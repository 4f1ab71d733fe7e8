//! Numbered places shared by all runs of one user; each place is held by at most one of them.
//!
//! Problem: several runs must not choose the same PE, and must agree on turns, though none of them leads.
//! Approach: a place is the lock of one byte in a file in the user's runtime directory. A lock is released
//! when its holder ends, however it ends, so nothing is ever left behind. Locks of other programs on that
//! file are no places: they are known by their kind, or their length. Limits: without a runtime directory
//! nothing is shared; different users share nothing.

use crate::runtime_directory;
use nix::fcntl::{FcntlArg, fcntl};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;

/// More adjacent places than one run ever holds. The kernel merges their locks.
const ADJACENT_MAX: i64 = 1 << 13;

/// The places of one kind, numbered from 0 to below `most`.
#[derive(Debug)]
pub struct Places {
    file: File,
    most: i64,
    own: BTreeSet<i64>,
}

/// The locks of others.
#[derive(Debug, Default)]
struct Locks {
    /// The places of other runs.
    places: Vec<i64>,
    /// Whether there are locks that are not of a corewise.
    are_foreign: bool,
}

impl Places {
    /// Opens the places whose locks are in the runtime directory's file of this name.
    pub fn open(name: &str, most: i64) -> io::Result<Places> {
        Ok(Places::of(runtime_directory::shared(name)?, most))
    }

    pub(crate) fn of(file: File, most: i64) -> Places {
        Places { file, most, own: BTreeSet::new() }
    }

    /// Takes a place; returns `false` if another run holds it.
    pub fn take(&mut self, place: i64) -> bool {
        let is_ours = self.own.contains(&place) || self.set(libc::F_WRLCK, place);
        if is_ours {
            self.own.insert(place);
        }
        is_ours
    }

    /// Takes one of these places that no run holds, including this one.
    pub fn take_any(&mut self, mut of: Range<i64>) -> Option<i64> {
        of.find(|place| !self.own.contains(place) && self.take(*place))
    }

    /// Releases a place.
    pub fn leave(&mut self, place: i64) {
        if self.own.remove(&place) {
            // If that fails, the place is released when this run ends.
            self.set(libc::F_UNLCK, place);
        }
    }

    /// Returns the places of this run.
    pub fn own(&self) -> &BTreeSet<i64> {
        &self.own
    }

    /// Returns the places of other runs, in order.
    pub fn others(&self) -> Vec<i64> {
        self.locks().places
    }

    /// Returns whether programs other than corewise have locked places.
    pub fn are_locked_by_strangers(&self) -> bool {
        self.locks().are_foreign
    }

    fn locks(&self) -> Locks {
        // For a range, the kernel returns one lock of another process, not necessarily the first.
        let (mut locks, mut ranges) = (Locks::default(), vec![]);
        ranges.push(0..self.most);
        while let Some(range) = ranges.pop() {
            if range.is_empty() {
                continue;
            }
            let mut found = lock(libc::F_WRLCK, range.start, range.end - range.start);
            if fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut found)).is_err()
                || found.l_type == libc::F_UNLCK as libc::c_short
            {
                continue;
            }
            // Adjacent locks are merged.
            let end = if found.l_len == 0 { self.most } else { found.l_start.saturating_add(found.l_len) };
            let taken = found.l_start.max(range.start)..end.min(range.end);
            ranges.extend([range.start..taken.start, taken.end..range.end]);
            // Those of a corewise are of an open file, which the kernel shows by this.
            if found.l_pid == -1 && taken.end - taken.start <= ADJACENT_MAX {
                locks.places.extend(taken);
            } else {
                locks.are_foreign = true;
            }
        }
        locks.places.sort_unstable();
        locks
    }

    fn set(&self, kind: i32, place: i64) -> bool {
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&lock(kind, place, 1))).is_ok()
    }
}

fn lock(kind: i32, start: i64, length: i64) -> libc::flock {
    // SAFETY: all zero is a valid value of it.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    (lock.l_start, lock.l_len) = (start, length);
    lock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_strangers_are_no_places_however_long_they_are() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || Places::of(file.reopen().unwrap(), 1 << 46);
        let (ours, mut theirs) = (open(), open());
        assert!(theirs.take(1 << 40) && !ours.are_locked_by_strangers());
        let stranger = file.reopen().unwrap();
        let of_process = lock(libc::F_WRLCK, 5, 2);
        fcntl(&stranger, FcntlArg::F_SETLK(&of_process)).unwrap();
        assert_eq!((ours.others(), ours.are_locked_by_strangers()), (vec![1 << 40], true));
        drop(stranger);
        for (start, length) in [(0, 1 << 40), ((1 << 40) + 1, 0)] {
            let stranger = file.reopen().unwrap();
            fcntl(&stranger, FcntlArg::F_OFD_SETLK(&lock(libc::F_WRLCK, start, length))).unwrap();
            assert_eq!((ours.others(), ours.are_locked_by_strangers()), (vec![1 << 40], true));
        }
    }

    #[test]
    fn the_places_of_all_others_are_listed_whichever_came_first() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || Places::of(file.reopen().unwrap(), 1 << 32);
        let ours = open();
        let mut others: Vec<Places> = (0..6).map(|_| open()).collect();
        for (other, places) in
            others.iter_mut().zip([[90, 7], [5, 80], [1 << 30, 6], [4, 5_000], [40, 2], [1, 30]])
        {
            assert!(places.into_iter().all(|place| other.take(place)));
        }
        assert_eq!(ours.others(), [1, 2, 4, 5, 6, 7, 30, 40, 80, 90, 5_000, 1 << 30]);
    }

    #[test]
    fn a_place_is_one_corewises_until_it_leaves_it_or_ends() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || Places::of(file.reopen().unwrap(), 8);
        let (mut ours, mut theirs) = (open(), open());
        assert!(ours.take(2) && ours.take(2) && !theirs.take(2));
        assert!(ours.take(3));
        assert_eq!(theirs.take_any(0..8), Some(0));
        assert_eq!((ours.others(), theirs.others()), (vec![0], vec![2, 3]));
        ours.leave(2);
        assert!(theirs.take(2));
        assert_eq!(ours.others(), [0, 2]);
        drop(theirs);
        // A process that another test has just forked holds them until it executes.
        while !ours.others().is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let all: Vec<Option<i64>> = (0..8).map(|_| ours.take_any(0..8)).collect();
        assert_eq!(all, [Some(0), Some(1), Some(2), Some(4), Some(5), Some(6), Some(7), None]);
    }
}
