//! What the BPF programs count of applications (`runnable.h`), in shared memory.
//!
//! The arrays of structures are [mapped](super::mapped).

use super::mapped::Mapped;
use libbpf_rs::MapHandle;
use std::io;
use std::mem::offset_of;
use std::ptr::addr_of_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// `APPS_MAX` and `PATH_BYTES` of `runnable.h`.
pub(super) const APPS_MAX: usize = 1024;
pub(super) const PATH_BYTES: usize = 60;

/// `COUNT_BITS` and `TIME_SHIFT` of `runnable.h`.
const COUNT_BITS: u32 = 18;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const TIME_SHIFT: u32 = 6;

/// `struct app` of `runnable.h`, where its fields are explained.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RawApp {
    present: u64,
    pub start: u64,
    pub runnable_xor: u64,
    pub runnable_thread_ns: u64,
    pub active_ns: u64,
    pub sequential_ns: u64,
    reported: u64,
    pub reported_runnable: u32,
    asked: u32,
    pub runnable_max: u32,
    pub changes: u32,
    unwatched: u32,
    into: u32,
    pub threads: u32,
    lent: u32,
    pub executor: u32,
    pub tgid: u32,
    pub parent: u32,
    pub path: [u8; PATH_BYTES],
}

/// `struct general` of `runnable.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RawGeneral {
    woken: u64,
    pub threads_lost: u64,
    pub events_lost: u64,
    pub programs_lost: u64,
    by_program: u32,
    reserved: u32,
}

impl RawApp {
    /// Returns the number of runnable threads. It may be below 0 for a moment.
    pub fn count(&self) -> i32 {
        count_of(self.present)
    }

    /// Returns until when its integrals hold, by CLOCK_MONOTONIC.
    pub fn until(&self) -> u64 {
        self.start + (self.present >> COUNT_BITS << TIME_SHIFT)
    }
}

fn count_of(present: u64) -> i32 {
    ((present as u32) << (32 - COUNT_BITS)) as i32 >> (32 - COUNT_BITS)
}

/// What is counted of all applications together.
#[derive(Debug)]
pub(super) struct General(Mapped<RawGeneral>);

impl General {
    pub fn map(general: &MapHandle) -> io::Result<General> {
        Mapped::map(general, 1).map(General)
    }

    pub fn read(&self) -> RawGeneral {
        self.0.read(0)
    }

    /// Lets programs that are executed have entries of their own.
    pub fn tell_programs_apart(&mut self) {
        // SAFETY: the address is within the mapping; the kernel only reads this word.
        unsafe { addr_of_mut!((*self.0.place(0)).by_program).write_volatile(1) };
    }
}

/// The entries of applications and programs.
#[derive(Debug)]
pub(super) struct Apps(Mapped<RawApp>);

impl Apps {
    /// Maps the array, whose values must have the size of [`RawApp`].
    pub fn map(apps: &MapHandle) -> io::Result<Apps> {
        Mapped::map(apps, APPS_MAX).map(Apps)
    }

    pub fn read(&self, index: u32) -> RawApp {
        self.0.read(index as usize)
    }

    /// Returns how often numbers of runnable threads have changed so far; wraps around.
    pub fn changes(&self) -> u32 {
        (0..APPS_MAX as u32).fold(0, |sum, index| sum.wrapping_add(self.read(index).changes))
    }

    /// Makes an entry that nobody uses yet one of an application that is followed from this time of
    /// CLOCK_MONOTONIC on.
    pub fn begin(&mut self, index: u32, start: u64) {
        let place = self.place(index);
        let RawApp { asked, unwatched, changes, .. } = self.read(index);
        let begun = RawApp {
            present: 0,
            start,
            runnable_xor: 0,
            runnable_thread_ns: 0,
            active_ns: 0,
            sequential_ns: 0,
            reported: 0,
            reported_runnable: 0,
            asked,
            runnable_max: 0,
            changes,
            unwatched,
            into: index,
            threads: 0,
            lent: 0,
            executor: index,
            tgid: u32::MAX,
            parent: 0,
            path: [0; PATH_BYTES],
        };
        // SAFETY: the address is within the mapping, and the kernel does not use the entry yet.
        unsafe { place.write_volatile(begun) };
    }

    /// Enables reports of changes of the number of runnable threads, of every entry.
    pub fn ask(&mut self) {
        for index in 0..APPS_MAX as u32 {
            // SAFETY: the address is within the mapping; the kernel only reads this word.
            unsafe { addr_of_mut!((*self.place(index)).asked).write_volatile(1) };
        }
    }

    /// Sets whether switches and wake-ups are left unwatched, of the threads of every entry.
    pub fn leave_unwatched(&mut self, unwatched: bool) {
        for index in 0..APPS_MAX as u32 {
            // SAFETY: the address is within the mapping; the kernel only reads this word.
            unsafe { addr_of_mut!((*self.place(index)).unwatched).write_volatile(unwatched.into()) };
        }
    }

    /// Records that the number of runnable threads was read and reported at this time.
    pub fn note_reported(&mut self, index: u32, count: u32, at: u64) {
        let place = self.place(index);
        // SAFETY: as above. The kernel may write both words concurrently, and either value is valid: a report
        // that is too early or too late only leads to an additional read.
        unsafe {
            addr_of_mut!((*place).reported_runnable).write_volatile(count);
            addr_of_mut!((*place).reported).write_volatile(at);
        }
    }

    /// Lets the threads of an entry be counted in another one, to which nobody else counts them, from now on.
    /// What was counted is left to [`Apps::carry`].
    pub fn redirect(&mut self, index: u32, into: u32) {
        // SAFETY: the address is within the mapping; the kernel only reads this word.
        unsafe { AtomicU32::from_ptr(addr_of_mut!((*self.place(index)).into)) }.store(into, Ordering::SeqCst);
    }

    /// Takes note that so many more entries are redirected to this one, in which threads live.
    pub fn lend(&mut self, index: u32, more: i32) {
        // SAFETY: the address is within the mapping; the kernel only reads this word, but when it takes the
        // entry.
        let lent = unsafe { AtomicU32::from_ptr(addr_of_mut!((*self.place(index)).lent)) };
        lent.store(lent.load(Ordering::SeqCst).saturating_add_signed(more), Ordering::SeqCst);
    }

    /// Carries the runnable threads of an entry over to the one in which they are counted from now on, and
    /// returns the integrals so far, in thread-nanoseconds and nanoseconds: all, active, sequential. A CPU
    /// that was counting at that moment may leave something behind for the next time.
    pub fn carry(&mut self, index: u32, into: u32, now: u64) -> (u64, u64, u64) {
        let count = self.read(index).count();
        let take = |offset| self.word(index, offset).swap(0, Ordering::SeqCst);
        let xor = take(offset_of!(RawApp, runnable_xor));
        if count != 0 || xor != 0 {
            self.count(index, -count, 0, now);
            self.count(into, count, xor, now);
        }
        (
            take(offset_of!(RawApp, runnable_thread_ns)),
            take(offset_of!(RawApp, active_ns)),
            take(offset_of!(RawApp, sequential_ns)),
        )
    }

    /// Changes the number of runnable threads, as `count_runnable` of `runnable.h` does.
    fn count(&self, index: u32, change: i32, xor: u64, now: u64) {
        let start = self.read(index).start;
        let until = |old: u64| (now.saturating_sub(start) >> TIME_SHIFT).max(old >> COUNT_BITS);
        let changed = |old| Some(until(old) << COUNT_BITS | (count_of(old) + change) as u64 & COUNT_MASK);
        let present = self.word(index, offset_of!(RawApp, present));
        let old = present.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed);
        let old = old.unwrap_or_else(|old| old);
        let (runnable, elapsed_ns) = (count_of(old), (until(old) - (old >> COUNT_BITS)) << TIME_SHIFT);
        let add = |offset, ns| {
            self.word(index, offset).fetch_add(ns, Ordering::SeqCst);
        };
        if runnable > 0 {
            add(offset_of!(RawApp, runnable_thread_ns), elapsed_ns * runnable as u64);
            add(offset_of!(RawApp, active_ns), elapsed_ns);
        }
        if runnable == 1 {
            add(offset_of!(RawApp, sequential_ns), elapsed_ns);
        }
        self.word(index, offset_of!(RawApp, runnable_xor)).fetch_xor(xor, Ordering::SeqCst);
    }

    /// Returns one of the words at the beginning of an entry, by its offset in bytes.
    fn word(&self, index: u32, offset: usize) -> &AtomicU64 {
        assert!(offset < offset_of!(RawApp, reported) && offset.is_multiple_of(size_of::<u64>()));
        // SAFETY: the address is that of a word of the entry, aligned and within the mapping, which others
        // change by atomic operations, too, as the kernel does.
        unsafe { AtomicU64::from_ptr(self.place(index).byte_add(offset).cast()) }
    }

    /// Marks an entry as unused.
    pub fn end(&mut self, index: u32) {
        // SAFETY: the address is within the mapping; the kernel writes this word only to take the entry.
        unsafe { addr_of_mut!((*self.place(index)).tgid).write_volatile(0) };
    }

    fn place(&self, index: u32) -> *mut RawApp {
        self.0.place(index as usize)
    }
}
