//! The memory that a process writes and a scheduler reads: where it is found, and what it means.
//!
//! It is ordinary memory of the library. A note in the library's file (and so in that of a program into which
//! it is linked statically; `strip` keeps notes) gives its distance. It begins with the process
//! that writes it: memory that was copied to another by a `fork` unknown to the library says
//! nothing.
//!
//! A reader takes it for what it is, bytes of a stranger: [`read`] makes sense of any.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// How many threads of a process can report of themselves at a time.
pub const THREADS_MAX: usize = 1023;

/// Bytes of the beginning, and of each thread: threads on different PEs share no line of a cache.
pub const SLOT: usize = 64;

/// The section of the file with the note.
pub const NOTE_SECTION: &str = ".note.corewise";

/// What the note begins with: lengths of the name and of the distance, version, name.
const NOTE_BEGIN: &[u8; 24] = b"\x09\0\0\0\x08\0\0\0\x01\0\0\0corewise\0\0\0\0";

/// Writes the note into the library's file; it belongs to the function that it stands in.
macro_rules! note {
    ($page:path) => {
        // SAFETY: nothing is executed; the text only adds a section to the file.
        unsafe {
            std::arch::asm!(
                ".pushsection .note.corewise, \"a\", @note",
                ".balign 4",
                ".long 9",
                ".long 8",
                ".long 1",
                ".asciz \"corewise\"",
                ".balign 4",
                ".quad {page} - .",
                ".popsection",
                page = sym $page,
                options(nomem, nostack, preserves_flags)
            )
        }
    };
}
pub(crate) use note;

/// The whole memory.
#[repr(C, align(64))]
pub(crate) struct Page {
    pub process: AtomicU32,
    pub master: AtomicU32,
    /// The slots from this one on were never used.
    pub used: AtomicU32,
    /// Threads without a slot.
    pub lost: AtomicU32,
    pub slots: [Slot; THREADS_MAX],
}

/// What a thread reports. Only that thread writes it.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// 0: nobody's.
    pub thread: AtomicU32,
    pub spins: AtomicU32,
    /// 0: none was reported; else one more than its number.
    pub phase: AtomicU64,
    pub work: AtomicU64,
}

impl Page {
    pub const fn empty() -> Page {
        Page {
            process: AtomicU32::new(0),
            master: AtomicU32::new(0),
            used: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            slots: [const { Slot::empty() }; THREADS_MAX],
        }
    }
}

impl Slot {
    pub const fn empty() -> Slot {
        Slot {
            thread: AtomicU32::new(0),
            spins: AtomicU32::new(0),
            phase: AtomicU64::new(0),
            work: AtomicU64::new(0),
        }
    }

    #[inline]
    pub fn spin(&self, spins: bool) {
        self.spins.store(spins.into(), Relaxed);
    }

    #[inline]
    pub fn begin_phase(&self, number: u32) {
        self.phase.store(u64::from(number) + 1, Relaxed);
    }

    #[inline]
    pub fn add_work(&self, work: u64) {
        // Nobody else writes it, so it takes no atomic addition.
        self.work.store(self.work.load(Relaxed).saturating_add(work), Relaxed);
    }

    pub fn forget(&self) {
        self.spins.store(0, Relaxed);
        self.phase.store(0, Relaxed);
        self.work.store(0, Relaxed);
    }
}

/// What a process reports, as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// The thread that does the serial parts, if one does.
    pub master: Option<u32>,
    /// What threads report of themselves.
    pub threads: Vec<ThreadState>,
    /// How many threads had no room to.
    pub lost: u32,
}

/// What a thread reports of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadState {
    /// Its kernel thread id.
    pub thread: u32,
    /// Whether it only waits.
    pub spins: bool,
    /// The phase that it is in, if it has reported any.
    pub phase: Option<u32>,
    /// How much it has done; `None`: it has not reported anything.
    pub work: Option<u64>,
}

/// The address of the memory, by the bytes of the note section and its address; both as linked, or both as
/// loaded.
pub fn address(note: &[u8], at: u64) -> Option<u64> {
    let distance = note.strip_prefix(NOTE_BEGIN)?.first_chunk()?;
    Some(at.wrapping_add(NOTE_BEGIN.len() as u64).wrapping_add_signed(i64::from_le_bytes(*distance)))
}

/// How many bytes are to be read, by the first [`SLOT`] of them; 0 if nothing was reported.
pub fn length(begin: &[u8]) -> usize {
    let used = word(begin, 2).map_or(0, |used| (used as usize).min(THREADS_MAX));
    if used == 0 { 0 } else { (1 + used) * SLOT }
}

/// What was reported by a process, in these bytes; `None` if they are not its own.
pub fn read(bytes: &[u8], process: u32) -> Option<State> {
    let (begin, slots) = bytes.split_at_checked(SLOT)?;
    if word(begin, 0) != Some(process) {
        return None;
    }
    let thread = |slot: &[u8]| {
        let thread = word(slot, 0).filter(|&thread| thread != 0)?;
        let phase = long(slot, 1)?.checked_sub(1).and_then(|phase| u32::try_from(phase).ok());
        let work = long(slot, 2).filter(|&work| work > 0);
        Some(ThreadState { thread, spins: word(slot, 1)? != 0, phase, work })
    };
    Some(State {
        master: word(begin, 1).filter(|&thread| thread != 0),
        threads: slots.chunks_exact(SLOT).take(THREADS_MAX).filter_map(thread).collect(),
        lost: word(begin, 3)?,
    })
}

fn word(bytes: &[u8], index: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(4 * index..)?.first_chunk()?))
}

fn long(bytes: &[u8], index: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(8 * index..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_laid_out_as_it_is_read() {
        assert_eq!(size_of::<Slot>(), SLOT);
        assert_eq!(size_of::<Page>(), SLOT * (1 + THREADS_MAX));
        assert_eq!(std::mem::offset_of!(Page, slots), SLOT);
        let words = [std::mem::offset_of!(Page, master), std::mem::offset_of!(Page, used)];
        assert_eq!(words, [4, 8]);
        assert_eq!(std::mem::offset_of!(Page, lost), 12);
        let longs = [std::mem::offset_of!(Slot, phase), std::mem::offset_of!(Slot, work)];
        assert_eq!((std::mem::offset_of!(Slot, spins), longs), (4, [8, 16]));
    }

    fn bytes(begin: [u32; 4], slots: &[(u32, u32, u64, u64)]) -> Vec<u8> {
        let mut bytes: Vec<u8> = begin.into_iter().flat_map(u32::to_ne_bytes).collect();
        bytes.resize(SLOT, 0);
        for (index, (thread, spins, phase, work)) in slots.iter().enumerate() {
            bytes.extend([thread.to_ne_bytes(), spins.to_ne_bytes()].concat());
            bytes.extend([phase.to_ne_bytes(), work.to_ne_bytes()].concat());
            bytes.resize((2 + index) * SLOT, 0);
        }
        bytes
    }

    #[test]
    fn what_was_reported_is_read() {
        let memory = bytes([9, 11, 3, 2], &[(11, 1, 0, 0), (0, 1, 5, 5), (12, 0, 1, 77)]);
        assert_eq!(length(&memory), 4 * SLOT);
        let first = ThreadState { thread: 11, spins: true, phase: None, work: None };
        let last = ThreadState { thread: 12, spins: false, phase: Some(0), work: Some(77) };
        let expected = State { master: Some(11), threads: vec![first, last], lost: 2 };
        assert_eq!(read(&memory, 9), Some(expected));
        assert_eq!(read(&memory, 8), None, "of another process");
        assert_eq!(read(&bytes([9, 0, 0, 0], &[]), 9), Some(State::default()));
    }

    #[test]
    fn any_bytes_can_be_read() {
        for bytes in [&[][..], &[1; SLOT - 1], &[0xff; SLOT + 7], &[0xff; 4 * SLOT]] {
            assert!(length(bytes) <= (1 + THREADS_MAX) * SLOT);
            let state = read(bytes, u32::MAX);
            assert_eq!(state.is_some(), bytes.len() >= SLOT, "{bytes:?}");
            assert!(state.is_none_or(|state| state.threads.iter().all(|thread| thread.phase.is_none())));
        }
    }

    #[test]
    fn the_note_tells_where_the_memory_lies() {
        let note = |distance: i64| [&NOTE_BEGIN[..], &distance.to_le_bytes()].concat();
        assert_eq!(address(&note(-8), 0x1000), Some(0x1010));
        assert_eq!(address(&note(i64::MAX), u64::MAX), Some((1 << 63) + 22));
        assert_eq!(address(&note(0)[..30], 0), None);
        assert_eq!(address(&[0; 32], 0), None);
    }
}
