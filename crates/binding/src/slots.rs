//! Numbered places that the corewise of one user share, each of which at most one of them has.
//!
//! Problem: several runs must not choose the same PE, and must know whose turn it is, though none of them
//! leads. Approach: a place is the lock of one byte in a file in the user's runtime directory. A lock goes
//! with its holder, however that ends, so nothing is ever left behind. Limits: without a runtime directory
//! nothing is shared; different users share nothing.

use super::book;
use nix::fcntl::{FcntlArg, fcntl};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;

/// The places of one kind. Numbers are from 0 to below `most`.
#[derive(Debug)]
pub struct Slots {
    file: File,
    most: i64,
    own: BTreeSet<i64>,
}

impl Slots {
    /// Those whose locks stand in the runtime directory's file of this name.
    pub fn open(name: &str, most: i64) -> io::Result<Slots> {
        Ok(Slots::of(book::shared(name)?, most))
    }

    pub(super) fn of(file: File, most: i64) -> Slots {
        Slots { file, most, own: BTreeSet::new() }
    }

    /// Takes a place; `false` if another corewise has it.
    pub fn take(&mut self, slot: i64) -> bool {
        let is_ours = self.own.contains(&slot) || self.set(libc::F_WRLCK, slot);
        if is_ours {
            self.own.insert(slot);
        }
        is_ours
    }

    /// Takes one that nobody has, this corewise neither.
    pub fn take_any(&mut self) -> Option<i64> {
        (0..self.most).find(|slot| !self.own.contains(slot) && self.take(*slot))
    }

    /// Leaves a place to others.
    pub fn leave(&mut self, slot: i64) {
        if self.own.remove(&slot) {
            // If that fails, it is free when this corewise ends.
            self.set(libc::F_UNLCK, slot);
        }
    }

    /// The own places.
    pub fn own(&self) -> &BTreeSet<i64> {
        &self.own
    }

    /// The places of other corewise, in order.
    pub fn others(&self) -> Vec<i64> {
        let (mut slots, mut from) = (Vec::new(), 0);
        while from < self.most {
            let mut found = lock(libc::F_WRLCK, from, self.most - from);
            // It tells the first lock of somebody else; none where it cannot.
            if fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut found)).is_err()
                || found.l_type == libc::F_UNLCK as libc::c_short
            {
                break;
            }
            // Locks side by side are one.
            let end = if found.l_len == 0 { self.most } else { found.l_start + found.l_len };
            slots.extend(found.l_start.max(from)..end.min(self.most));
            from = end;
        }
        slots
    }

    fn set(&self, kind: i32, slot: i64) -> bool {
        fcntl(&self.file, FcntlArg::F_OFD_SETLK(&lock(kind, slot, 1))).is_ok()
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
    fn a_place_is_one_corewises_until_it_leaves_it_or_ends() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || Slots::of(file.reopen().unwrap(), 8);
        let (mut ours, mut theirs) = (open(), open());
        assert!(ours.take(2) && ours.take(2) && !theirs.take(2));
        assert!(ours.take(3));
        assert_eq!(theirs.take_any(), Some(0));
        assert_eq!((ours.others(), theirs.others()), (vec![0], vec![2, 3]));
        ours.leave(2);
        assert!(theirs.take(2));
        assert_eq!(ours.others(), [0, 2]);
        drop(theirs);
        assert!(ours.others().is_empty());
        let all: Vec<Option<i64>> = (0..8).map(|_| ours.take_any()).collect();
        assert_eq!(all, [Some(0), Some(1), Some(2), Some(4), Some(5), Some(6), Some(7), None]);
    }
}
