//! Whose slot is whose: taken at a thread's first word, given back at its end, cleared in the child of a
//! fork.

use crate::page::{Page, Slot, note};
use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

static PAGE: Page = Page::empty();

/// The slot of threads that have no other, and of ending ones. Nobody reads it.
static NOWHERE: Slot = Slot::empty();

thread_local! {
    static OWN: Cell<Option<&'static Slot>> = const { Cell::new(None) };
    /// Gives the slot back at the thread's end.
    static LEAVING: Leaving = const { Leaving };
}

struct Leaving;

impl Drop for Leaving {
    fn drop(&mut self) {
        let Some(slot) = OWN.replace(Some(&NOWHERE)) else { return };
        let thread = slot.thread.load(Relaxed);
        // Only if it is still this one.
        let _ = PAGE.master.compare_exchange(thread, 0, Relaxed, Relaxed);
        slot.forget();
        slot.thread.store(0, Release);
    }
}

/// The calling thread's slot.
#[inline]
pub fn own() -> &'static Slot {
    OWN.get().unwrap_or_else(take)
}

/// Writes down that the calling thread is the master.
pub fn become_master() {
    PAGE.master.store(own().thread.load(Relaxed), Relaxed);
}

/// Takes a free slot.
#[cold]
#[inline(never)]
fn take() -> &'static Slot {
    note!(PAGE);
    static FORK: Once = Once::new();
    FORK.call_once(|| {
        // SAFETY: the function takes no arguments and does nothing but store to static memory. Should it not
        // be registered, for lack of memory, what a child reports is its parent's, and is not read as the
        // child's.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    PAGE.process.store(std::process::id(), Relaxed);
    let thread = thread_id();
    let is_taken = |slot: &Slot| slot.thread.compare_exchange(0, thread, Acquire, Relaxed).is_ok();
    let slot = match PAGE.slots.iter().position(is_taken) {
        Some(index) => {
            PAGE.used.fetch_max(index as u32 + 1, AcqRel);
            &PAGE.slots[index]
        }
        None => {
            PAGE.lost.fetch_add(1, Relaxed);
            &NOWHERE
        }
    };
    OWN.set(Some(slot));
    // Not in a thread that is about to end; its slot is free for others after the process.
    let _ = LEAVING.try_with(|_| {});
    slot
}

/// The child of a fork has one thread, and its memory is a copy of the parent's.
extern "C" fn in_child() {
    let own = OWN.get();
    let used = (PAGE.used.load(Relaxed) as usize).min(PAGE.slots.len());
    for slot in &PAGE.slots[..used] {
        let is_own = own.is_some_and(|own| std::ptr::eq(own, slot));
        let (before, now) = (slot.thread.load(Relaxed), if is_own { thread_id() } else { 0 });
        let is_master = before != 0 && PAGE.master.load(Relaxed) == before;
        if is_master {
            PAGE.master.store(now, Relaxed);
        }
        slot.forget();
        slot.thread.store(now, Relaxed);
    }
    PAGE.lost.store(0, Relaxed);
    PAGE.process.store(std::process::id(), Relaxed);
}

fn thread_id() -> u32 {
    // SAFETY: the call takes no arguments and cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{State, THREADS_MAX, read};

    /// What a reader would see.
    fn state() -> State {
        // SAFETY: the page is static, and other threads that write to it meanwhile write words as a whole.
        let bytes: &[u8] =
            unsafe { std::slice::from_raw_parts((&raw const PAGE).cast::<u8>(), size_of::<Page>()) };
        read(bytes, std::process::id()).unwrap()
    }

    fn of_this_thread() -> Option<crate::page::ThreadState> {
        state().threads.into_iter().find(|state| state.thread == thread_id())
    }

    #[test]
    fn threads_tell_and_leave_nothing_behind() {
        let tell = || {
            crate::master_thread();
            crate::phase(3);
            crate::heartbeat(40);
            crate::heartbeat(2);
            let within = crate::spinning(of_this_thread).unwrap();
            assert!(within.spins);
            let after = of_this_thread().unwrap();
            assert_eq!((after.spins, after.phase, after.work), (false, Some(3), Some(42)));
            (thread_id(), state().master)
        };
        let (thread, _) = std::thread::spawn(tell).join().unwrap();
        assert!(state().threads.iter().all(|state| state.thread != thread));
        assert_ne!(state().master, Some(thread));
    }

    /// In a child, as the page is full meanwhile.
    #[test]
    fn more_threads_than_there_is_room_for_do_no_harm() {
        let mut leaving = Vec::new();
        in_a_child(|| {
            for slot in &PAGE.slots {
                slot.thread.store(u32::MAX, Relaxed);
            }
            leaving.extend((0..3).map(|_| std::thread::spawn(|| crate::heartbeat(1))));
            leaving.drain(..).for_each(|thread| thread.join().unwrap());
            state().lost == 3 && state().threads.len() == THREADS_MAX
        });
    }

    #[test]
    fn the_child_of_a_fork_tells_of_itself_alone() {
        let (begin, end) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                crate::heartbeat(1);
                begin.wait();
                end.wait();
            });
            begin.wait();
            crate::heartbeat(5);
            crate::master_thread();
            in_a_child(|| {
                let (state, own) = (state(), of_this_thread().unwrap());
                let is_clear = state.threads.len() == 1 && own.work.is_none();
                crate::heartbeat(7);
                let is_reported = of_this_thread().unwrap().work == Some(7);
                is_clear && is_reported && state.master == Some(thread_id())
            });
            end.wait();
        });
        assert_eq!(of_this_thread().unwrap().work, Some(5));
    }

    /// Whether it is so in a child.
    #[track_caller]
    fn in_a_child(is_so: impl FnOnce() -> bool) {
        // SAFETY: the child uses the memory of its own copy; that no other thread holds the allocator's lock
        // is glibc's matter, which makes it usable in a child.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(is_so)).map_or(2, |so| !so as i32);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: the status is a valid place for an int.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "the child says no");
    }
}
