//! Runs thunks: the memory that contains them, entry and exit, and the handling of faults.
//!
//! The arena is one piece of memory mapped twice, once for writing and once for executing, so that no page is
//! ever both. A thunk that faults (division by zero, an alignment that the instruction does not allow, an
//! instruction that this processor lacks) raises a signal in corewise's own thread; the handler then leaves
//! the thunk by the exit for faults.

use super::state::State;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::offset_of;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock};

/// Room for thunks: more than the distinct instructions of the largest programs.
const ARENA_BYTES: usize = 64 << 20;

/// Memory for thunks.
#[derive(Debug)]
pub struct Arena {
    write: NonNull<c_void>,
    execute: NonNull<c_void>,
    used: Cell<usize>,
}

impl Arena {
    /// Maps an empty arena.
    pub fn new() -> nix::Result<Arena> {
        install_handlers()?;
        let memory = memfd_create(c"corewise thunks", MFdFlags::MFD_CLOEXEC)?;
        nix::unistd::ftruncate(&memory, ARENA_BYTES as i64)?;
        let map = |protection| {
            let length = NonZeroUsize::new(ARENA_BYTES).expect("not zero");
            // SAFETY: a new mapping at a place that the kernel chooses touches nothing that exists.
            unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, &memory, 0) }
        };
        let write = map(ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
        let execute = map(ProtFlags::PROT_READ | ProtFlags::PROT_EXEC)?;
        Ok(Arena { write, execute, used: Cell::new(0) })
    }

    /// Adds code; returns its place for [`Arena::run`], or `None` if there is no room.
    pub fn add(&self, code: &[u8]) -> Option<u32> {
        let start = self.used.get().next_multiple_of(16);
        if start + code.len() > ARENA_BYTES {
            return None;
        }
        // SAFETY: the range was just checked to lie in the mapping, of which nothing else holds a reference.
        let place = unsafe { self.write.cast::<u8>().add(start) };
        // SAFETY: as above; the source is a slice of that length and elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), place.as_ptr(), code.len()) };
        self.used.set(start + code.len());
        Some(start as u32)
    }

    /// Runs a thunk on a state. Returns false if it faulted: the state is then unusable.
    ///
    /// # Safety
    ///
    /// `place` is from [`Arena::add`] of this arena; the code there changes nothing but the state, the memory
    /// that `state.memory` points to and caller-saved registers, and returns.
    pub unsafe fn run(&self, place: u32, state: &mut State) -> bool {
        // SAFETY: the caller vouches for the place.
        let code = unsafe { self.execute.cast::<u8>().add(place as usize) };
        RUNNING.set((state, self.execute.as_ptr() as usize));
        // SAFETY: the caller vouches for the code; `enter` saves what a function must keep.
        let faulted = unsafe { enter(code.as_ptr(), state) };
        RUNNING.set((std::ptr::null_mut(), 0));
        faulted == 0
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for place in [self.write, self.execute] {
            // SAFETY: both were mapped with this length, and nothing refers to them any more.
            let unmapped = unsafe { munmap(place, ARENA_BYTES) };
            debug_assert_eq!(unmapped, Ok(()));
        }
    }
}

thread_local! {
    /// The state on which this thread runs a thunk, and the beginning of the arena.
    static RUNNING: Cell<(*mut State, usize)> = const { Cell::new((std::ptr::null_mut(), 0)) };
}

/// Calls a thunk with the state in `rdi`; returns zero if it returned.
///
/// # Safety
///
/// See [`Arena::run`].
#[unsafe(naked)]
unsafe extern "sysv64" fn enter(code: *const u8, state: *mut State) -> u64 {
    std::arch::naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "mov [rsi + {host_stack}], rsp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "xor eax, eax",
        "2:",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
        // The handler continues here after a fault, with the stack pointer as above and the state in rdi.
        ".global corewise_thunk_faulted",
        "corewise_thunk_faulted:",
        "ldmxcsr [rdi + {host_mxcsr}]",
        "fninit",
        "mov eax, 1",
        "jmp 2b",
        host_stack = const offset_of!(State, host_stack),
        host_mxcsr = const offset_of!(State, host_mxcsr),
    )
}

unsafe extern "C" {
    fn corewise_thunk_faulted();
}

/// The earlier handlers of faults that are not a thunk's.
static PREVIOUS: OnceLock<[SigAction; 4]> = OnceLock::new();
const FAULTS: [Signal; 4] = [Signal::SIGFPE, Signal::SIGILL, Signal::SIGSEGV, Signal::SIGBUS];

fn install_handlers() -> nix::Result<()> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLING.lock();
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    let ours = SigAction::new(
        SigHandler::SigAction(on_fault),
        SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK | SaFlags::SA_NODEFER,
        SigSet::empty(),
    );
    let mut previous = [ours; 4];
    for (signal, previous) in FAULTS.into_iter().zip(&mut previous) {
        // SAFETY: the handler touches only the interrupted registers and this thread's cell, and hands
        // every fault that is not ours to the previous handler.
        *previous = unsafe { sigaction(signal, &ours) }?;
    }
    PREVIOUS.set(previous).expect("only one at a time comes here");
    Ok(())
}

extern "C" fn on_fault(signal: i32, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid context.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let (state, arena) = RUNNING.get();
    let ip = registers[libc::REG_RIP as usize] as usize;
    if !state.is_null() && (arena..arena + ARENA_BYTES).contains(&ip) {
        registers[libc::REG_RIP as usize] = corewise_thunk_faulted as *const () as i64;
        // SAFETY: the state is borrowed by `Arena::run` as long as the cell holds it.
        registers[libc::REG_RSP as usize] = unsafe { (*state).host_stack } as i64;
        registers[libc::REG_RDI as usize] = state as i64;
        return;
    }
    // Not ours: restore the earlier handler; the instruction faults again and is handled by it.
    let which = FAULTS.iter().position(|fault| *fault as i32 == signal);
    if let (Some(which), Some(previous)) = (which, PREVIOUS.get()) {
        // SAFETY: it is what the process had installed itself.
        let _ = unsafe { sigaction(FAULTS[which], &previous[which]) };
    }
}
