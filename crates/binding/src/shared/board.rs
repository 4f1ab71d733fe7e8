//! The board on which the runs of one user agree about epochs without changed waits.
//!
//! Problem: several runs must hold epochs at the same time and judge by all their results, though none of
//! them leads ([`corewise_core::guard::waits`]). Approach: a file in the user's runtime directory has a
//! record for each run, and the run that holds the [place](Places) of a record writes it. A place is free as
//! soon as its holder has ended, however it ended, and then its record does not count. A record carries a
//! checksum, because it may be read while it is written; the reader then does without it this time. Limits:
//! those of [`super::places`]; runs beyond [`RUNS_MAX`] have no record, and are in no mean.

use super::places::Places;
use crate::runtime_directory;
use corewise_core::board::{Board, Note};
use corewise_core::time::Time;
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The number of runs that can have a record.
const RUNS_MAX: i64 = 256;

/// The length of a record in bytes, and of its head: the checksum and the length of its text.
const RECORD: usize = 1024;
const HEAD: usize = 16;

/// The name of the file.
const NAME: &str = "waits";

/// See the module.
#[derive(Debug)]
pub struct SharedBoard {
    places: Places,
    file: File,
    /// What this run has written last.
    written: Option<Note>,
}

impl SharedBoard {
    /// Opens the board of this user; fails without a runtime directory, where a run would judge alone.
    pub fn open() -> io::Result<SharedBoard> {
        Self::of(runtime_directory::common(NAME)?)
    }

    /// Takes the board in a file.
    pub fn of(file: File) -> io::Result<SharedBoard> {
        Ok(SharedBoard { places: Places::of(file.try_clone()?, RUNS_MAX), file, written: None })
    }

    /// Returns a second handle of this run, for the reader. It does not read what the first one
    /// writes, for locks belong to the open file, which both share.
    pub fn try_clone(&self) -> io::Result<SharedBoard> {
        Self::of(self.file.try_clone()?)
    }

    /// Returns the clock and what the other runs have written.
    pub fn read(&self) -> Board {
        let others = self.places.others().into_iter();
        let notes = others.filter_map(|place| Some((place as u32, self.record(place)?))).collect();
        Board { clock: now(), notes }
    }

    /// Writes what the others are to know.
    pub fn write(&mut self, note: &Note) {
        if self.written.as_ref() == Some(note) {
            return;
        }
        if self.places.own().is_empty() {
            self.places.take_any(0..RUNS_MAX);
        }
        // A run that cannot write takes no part; the next look tries again.
        if let Some(&place) = self.places.own().first()
            && let Some(record) = encode(note)
            && self.file.write_all_at(&record, place as u64 * RECORD as u64).is_ok()
        {
            self.written = Some(note.clone());
        }
    }

    fn record(&self, place: i64) -> Option<Note> {
        let mut record = [0; RECORD];
        self.file.read_exact_at(&mut record, place as u64 * RECORD as u64).ok()?;
        decode(&record)
    }
}

fn encode(note: &Note) -> Option<[u8; RECORD]> {
    let text = serde_json::to_vec(note).ok().filter(|text| text.len() <= RECORD - HEAD)?;
    let mut record = [0; RECORD];
    record[..8].copy_from_slice(&checksum(&text).to_le_bytes());
    record[8..HEAD].copy_from_slice(&(text.len() as u64).to_le_bytes());
    record[HEAD..HEAD + text.len()].copy_from_slice(&text);
    Some(record)
}

fn decode(record: &[u8; RECORD]) -> Option<Note> {
    let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
    let text = record[HEAD..].get(..usize::try_from(word(8)).ok()?)?;
    (checksum(text) == word(0)).then(|| serde_json::from_slice(text).ok())?
}

/// FNV-1a: a record is torn, not forged.
fn checksum(text: &[u8]) -> u64 {
    text.iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The clock of all runs.
fn now() -> Time {
    let now: Duration = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has it").into();
    Time(now.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::board::{Agreed, Ask};

    fn note(second: u64) -> Note {
        Note {
            changes: true,
            gangs: 1,
            asks: vec![Ask { second, off_ms: 24 }],
            verdict: Agreed { second, is_off: true },
            results: vec![(second, Some(-0.5)), (second, None)],
        }
    }

    #[test]
    fn runs_read_each_other_and_not_those_that_have_ended() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || SharedBoard::of(file.reopen().unwrap()).unwrap();
        let (mut ours, mut theirs) = (open(), open());
        assert_eq!(ours.read().notes, []);
        theirs.write(&note(u64::MAX));
        assert_eq!(ours.read().notes, [(0, note(u64::MAX))]);
        assert_eq!(theirs.read().notes, [], "its own is not another's");
        assert_eq!(theirs.try_clone().unwrap().read().notes, [], "nor for its second handle");
        ours.write(&note(1));
        ours.write(&note(2));
        assert_eq!(theirs.read().notes, [(1, note(2))]);
        drop(theirs);
        // A process that another test has just forked holds the lock until it executes.
        while !ours.read().notes.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(now() > Time(0));
    }

    #[test]
    fn a_record_that_is_torn_or_damaged_does_not_count() {
        let record = encode(&note(7)).unwrap();
        assert_eq!(decode(&record), Some(note(7)));
        assert_eq!(decode(&[0; RECORD]), None, "it was never written");
        for at in 0..HEAD + 60 {
            let mut torn = record;
            torn[at] ^= 4;
            assert_eq!(decode(&torn), None, "{at}");
        }
        let (mut torn, other) = (record, encode(&note(8)).unwrap());
        torn[100..].copy_from_slice(&other[100..]);
        assert_eq!(decode(&torn), None);
        let full = Note { results: vec![(u64::MAX, Some(-0.5)); 100], ..note(7) };
        assert!(encode(&full).is_none());
    }
}
