//! Provides enough stack whatever the limit: a command, and before it corewise, may be started with `ulimit
//! -s 64`.
//!
//! The limit applies only to the first thread, and corewise may have only that one. If the limit is small,
//! the work is done on memory of corewise's own, to which the C library switches.

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect};
use nix::sys::resource::{Resource, getrlimit};
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Mutex;

/// A limit from which the stack is sufficient.
const ENOUGH: u64 = 2 << 20;
const SIZE: NonZeroUsize = NonZeroUsize::new(8 << 20).unwrap();
/// At least a page on any machine; an overflow is then a fault and not a corruption.
const GUARD: usize = 64 << 10;

static WORK: Mutex<Option<fn() -> ExitCode>> = Mutex::new(None);
static RESULT: Mutex<Option<ExitCode>> = Mutex::new(None);

/// Runs the work with enough stack.
pub fn with_room(work: fn() -> ExitCode) -> ExitCode {
    match getrlimit(Resource::RLIMIT_STACK) {
        Ok((soft, _)) if soft < ENOUGH => {}
        _ => return work(),
    }
    // Without memory for it, the existing stack may suffice.
    if set(&WORK, work) && elsewhere().is_ok() { take(&RESULT).unwrap_or(ExitCode::FAILURE) } else { work() }
}

fn set<T>(place: &Mutex<Option<T>>, value: T) -> bool {
    place.lock().is_ok_and(|mut place| place.replace(value).is_none())
}

fn take<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().ok()?.take()
}

extern "C" fn begin() {
    // A panic must not unwind beyond this function: there is nothing below it.
    let done = std::panic::catch_unwind(|| take(&WORK).map(|work| work()));
    set(&RESULT, done.ok().flatten().unwrap_or(ExitCode::from(101)));
}

fn elsewhere() -> Result<(), Errno> {
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: the mapping is new and not used elsewhere.
    let stack = unsafe { mmap_anonymous(None, SIZE, access, MapFlags::MAP_PRIVATE | MapFlags::MAP_STACK) }?;
    // SAFETY: the range lies at the lower end of the mapping, which is not used yet.
    unsafe { mprotect(stack, GUARD, ProtFlags::PROT_NONE) }?;
    let (mut here, mut there) = (MaybeUninit::<libc::ucontext_t>::uninit(), MaybeUninit::uninit());
    // SAFETY: `getcontext` writes the whole structure, of which stack and successor are then replaced as
    // `makecontext` demands. Both structures and the stack live until `begin` has returned to `here`.
    unsafe {
        Errno::result(libc::getcontext(there.as_mut_ptr()))?;
        let context: &mut libc::ucontext_t = there.assume_init_mut();
        context.uc_stack.ss_sp = stack.as_ptr();
        context.uc_stack.ss_size = SIZE.get();
        context.uc_link = here.as_mut_ptr();
        libc::makecontext(context, begin, 0);
        Errno::result(libc::swapcontext(here.as_mut_ptr(), context)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_elsewhere_and_comes_back() {
        fn deep(left: u32) -> u32 {
            let room = std::hint::black_box([left as u8; 1024]);
            if left == 0 { 0 } else { deep(left - 1) + u32::from(room[17] == left as u8) }
        }
        set(&WORK, || ExitCode::from(u8::from(deep(4000) == 4000)));
        // In a thread with less room than that.
        let small = std::thread::Builder::new().stack_size(256 << 10);
        small.spawn(|| elsewhere().unwrap()).unwrap().join().unwrap();
        assert_eq!(format!("{:?}", take(&RESULT)), format!("{:?}", Some(ExitCode::from(1))));
    }
}
