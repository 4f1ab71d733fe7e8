//! The heartbeat: by it the guardian knows that corewise is alive.
//!
//! Problem: what a killed corewise has changed is given back at once, but one that hangs (in a read of a file
//! system that does not answer, in a write that nobody reads) or that is stopped would hold it for as long.
//!
//! Approach: both share a page of memory. The loop promises there until when it will be back, so a long
//! interval needs no threshold of its own. The guardian looks once in [`LOOK`]: corewise is *still* if it is
//! stopped, or if its promise is broken and its thread has neither run since the last look nor waits for a PE
//! now. However late it is on a busy machine, a thread that runs is alive. After [`STILL_MAX`] still looks in
//! a row everything is given back. These are looks and not a time: where the whole machine or container
//! stands still (suspend, a paused virtual machine), the guardian does not look either.
//!
//! The page also says who holds what is changed. From the moment at which the guardian takes it, corewise
//! records no change, and so makes none ([`crate::changes`]). When a stopped one goes on, its loop first
//! gives back what it was about to change as it stopped, reports to the engine what is changed no more, and
//! takes it up again. One that was hung is ended, or changes nothing more ([`IfHung`]).
//!
//! Limits: a loop that runs without end counts as alive. A change that corewise was about to make when it
//! stopped is in force until its next round.

use corewise_sys::proc::Proc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The time between two looks at corewise: the shortest of which nobody notices the cost (30 µs each).
pub const LOOK: Duration = Duration::from_secs(1);

/// After so many still looks everything is given back: "some seconds", in which a user who has stopped a job
/// by mistake continues it, and a disk answers.
const STILL_MAX: u32 = 5;

/// Nothing was promised yet.
const NEVER: u64 = u64::MAX;

/// Who holds what is changed: corewise, the guardian, which gives it back just now, or nobody any more, as
/// corewise was stopped or hung.
const COREWISE_HOLDS: u32 = 0;
const GUARDIAN_HOLDS: u32 = 1;
const WAS_STOPPED: u32 = 2;
const WAS_HUNG: u32 = 3;

/// What the guardian does with a corewise that hangs, after it has given everything back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfHung {
    /// Ends it: somebody starts another one.
    End,
    /// Lets it be, as it has the exit status of a command: if it goes on, it changes nothing more.
    LetBe,
}

/// Why corewise is still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Still {
    /// It is stopped, by a signal or a debugger.
    Stopped,
    /// It waits for something that does not come.
    Hung,
}

/// The page that corewise and its guardian share; see the module documentation. It stays to the end of both.
#[derive(Debug, Clone, Copy)]
pub struct Heartbeat(&'static Page);

#[derive(Debug)]
struct Page {
    /// Until when the loop will be back, by `CLOCK_MONOTONIC`, which does not count the time of a suspend.
    promised_ns: AtomicU64,
    holder: AtomicU32,
}

thread_local! {
    /// The page of this thread's loop.
    static OWN: Cell<Option<Heartbeat>> = const { Cell::new(None) };
}

/// Promises that the loop of this thread will be back within this time, if it has a guardian.
pub fn promise(within: Duration) {
    if let Some(Heartbeat(page)) = OWN.get() {
        page.promised_ns.store(now_ns().saturating_add(within.as_nanos() as u64), Ordering::Relaxed);
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC");
    Duration::from(now).as_nanos() as u64
}

impl Heartbeat {
    /// Maps a page, on which this thread's loop promises from now on. What is forked shares it.
    pub fn begin() -> io::Result<Heartbeat> {
        let size = NonZeroUsize::new(size_of::<Page>()).expect("it has fields");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the mapping is new and not used elsewhere.
        let page = unsafe { mmap_anonymous(None, size, access, MapFlags::MAP_SHARED) }?;
        // SAFETY: it is as large as the type, aligned to a page, and is never unmapped. Zeros are a value of
        // the type, and both processes change it by atomic operations only.
        let heartbeat = Heartbeat(unsafe { page.cast::<Page>().as_ref() });
        heartbeat.0.promised_ns.store(NEVER, Ordering::Relaxed);
        OWN.set(Some(heartbeat));
        Ok(heartbeat)
    }

    /// Returns whether corewise may change something.
    pub fn is_held(self) -> bool {
        self.0.holder.load(Ordering::SeqCst) == COREWISE_HOLDS
    }

    /// Returns whether the loop has made a promise yet, and whether it has broken the last one.
    fn promise(self) -> (bool, bool) {
        let promised = self.0.promised_ns.load(Ordering::Relaxed);
        (promised != NEVER, promised < now_ns())
    }

    /// The guardian takes everything.
    pub fn take(self) {
        self.0.holder.store(GUARDIAN_HOLDS, Ordering::SeqCst);
    }

    /// The guardian has given everything back.
    pub fn note_given_back(self, why: Still) {
        let holder = match why {
            Still::Stopped => WAS_STOPPED,
            Still::Hung => WAS_HUNG,
        };
        self.0.holder.store(holder, Ordering::SeqCst);
    }

    /// Returns why the guardian has given everything back, if it has.
    pub fn given_back(self) -> Option<Still> {
        match self.0.holder.load(Ordering::SeqCst) {
            WAS_STOPPED => Some(Still::Stopped),
            WAS_HUNG => Some(Still::Hung),
            _ => None,
        }
    }

    /// Corewise goes on, and may change something again.
    pub fn take_up(self) {
        self.0.holder.store(COREWISE_HOLDS, Ordering::SeqCst);
    }
}

/// The looks of the guardian at corewise.
#[derive(Debug)]
pub struct Looks {
    heartbeat: Heartbeat,
    /// The thread of the loop.
    tid: u32,
    switches: Option<u64>,
    still: u32,
}

impl Looks {
    /// Looks at the loop of this thread, from another process.
    pub fn at(heartbeat: Heartbeat, tid: u32) -> Looks {
        Looks { heartbeat, tid, switches: None, still: 0 }
    }

    /// Looks once. Returns why everything is to be given back, if it is.
    pub fn look(&mut self) -> Option<Still> {
        let (is_promised, is_late) = self.heartbeat.promise();
        if !is_promised || !self.heartbeat.is_held() {
            self.still = 0;
            return None;
        }
        // What is gone shows by the end of its socket.
        let status = Proc::own().status(self.tid).ok()??;
        let count = |name| status.field(name).and_then(|count| count.parse::<u64>().ok());
        let switches = count("voluntary_ctxt_switches").zip(count("nonvoluntary_ctxt_switches"));
        let state = status.field("State").and_then(|state| state.chars().next());
        self.take(is_late, state?, switches.map(|(own, others)| own + others))
    }

    /// Takes in whether the promise is broken, the state of the thread, and how often it has left its PE.
    fn take(&mut self, is_late: bool, state: char, switches: Option<u64>) -> Option<Still> {
        let has_run = std::mem::replace(&mut self.switches, switches) != switches;
        let why = match state {
            'T' | 't' => Some(Still::Stopped),
            'S' | 'D' if is_late && !has_run => Some(Still::Hung),
            _ => None,
        };
        self.still = if why.is_some() { self.still + 1 } else { 0 };
        why.filter(|_| self.still >= STILL_MAX)
    }

    /// Where the thread waits in the kernel, as far as that is known.
    pub fn place(&self) -> Option<String> {
        Proc::own().waits_in(self.tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(looks: &[(bool, char, u64)]) -> Vec<Option<Still>> {
        let mut all = Looks::at(Heartbeat::begin().unwrap(), 1);
        looks.iter().map(|&(is_late, state, switches)| all.take(is_late, state, Some(switches))).collect()
    }

    #[test]
    fn a_thread_that_neither_runs_nor_keeps_its_promise_hangs() {
        let hangs = judged(&[(true, 'D', 7); 6]);
        assert_eq!(hangs, [None, None, None, None, None, Some(Still::Hung)], "the first look has no other");
        assert_eq!(judged(&[(false, 'S', 7); 9]), [None; 9], "it may sleep as long as it has promised");
        let stopped = judged(&[(false, 'T', 7); 5]);
        assert_eq!(stopped, [None, None, None, None, Some(Still::Stopped)]);
    }

    #[test]
    fn a_thread_that_runs_or_waits_for_a_pe_is_alive_however_late() {
        let runs: Vec<_> = (0..20).map(|look| (true, 'S', look)).collect();
        assert_eq!(judged(&runs), [None; 20]);
        assert_eq!(judged(&[(true, 'R', 7); 20]), [None; 20], "a busy machine gives it no PE");
        let once = [[(true, 'D', 7); 5].as_slice(), &[(true, 'D', 8)], &[(true, 'D', 8); 4]].concat();
        assert_eq!(judged(&once), [None; 10], "it has run once");
    }

    #[test]
    fn a_promise_is_broken_when_its_time_has_passed() {
        let heartbeat = Heartbeat::begin().unwrap();
        assert_eq!(heartbeat.promise(), (false, false));
        promise(Duration::from_secs(60));
        assert_eq!(heartbeat.promise(), (true, false));
        promise(Duration::ZERO);
        while heartbeat.promise() != (true, true) {
            std::thread::yield_now();
        }
    }
}
