//! `ptrace` and `waitpid` with raw signal numbers, because real-time signals must pass too.

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// An event of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It ended, with its process's status.
    Ended(ExitStatus),
    /// It is about to get a signal.
    Signal(i32),
    /// It stopped for `PTRACE_EVENT_*`, with a signal number for details.
    Event(i32, i32),
}

/// Follow everything that a thread starts.
pub const FOLLOW: ptrace::Options = ptrace::Options::PTRACE_O_TRACECLONE
    .union(ptrace::Options::PTRACE_O_TRACEFORK)
    .union(ptrace::Options::PTRACE_O_TRACEVFORK)
    .union(ptrace::Options::PTRACE_O_TRACEEXEC);

/// Waits for an event of any thread that this thread traces, or of any process that it has started.
pub fn wait_any() -> Result<(i32, Status), Errno> {
    wait_once(-1)
}

/// Waits for an event of one thread, even if signals arrive meanwhile.
pub fn wait(tid: i32) -> Result<Status, Errno> {
    loop {
        match wait_once(tid) {
            Err(Errno::EINTR) => {}
            answer => return answer.map(|(_, status)| status),
        }
    }
}

fn wait_once(tid: i32) -> Result<(i32, Status), Errno> {
    let mut status = 0;
    let flags = libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: the status is a valid place for the answer.
    let tid = Errno::result(unsafe { libc::waitpid(tid, &mut status, flags) })?;
    Ok((tid, meaning(status)))
}

fn meaning(status: i32) -> Status {
    if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
        return Status::Ended(ExitStatus::from_raw(status));
    }
    match (libc::WSTOPSIG(status), status >> 16) {
        (signal, 0) => Status::Signal(signal),
        (signal, event) => Status::Event(event, signal),
    }
}

/// A request without an answer.
fn request(request: libc::c_uint, tid: i32, data: i32) -> Result<(), Errno> {
    // SAFETY: none of the requests of this module that come here takes a pointer.
    let answer = unsafe { libc::ptrace(request, tid, 0usize, data as usize) };
    Errno::result(answer).map(|_| ())
}

/// Continues a stopped thread, with a signal or (0) without.
pub fn go_on(tid: i32, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_CONT, tid, signal)
}

/// Lets a stopped thread execute one instruction, supposedly.
pub fn single_step(tid: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SINGLESTEP, tid, 0)
}

/// Leaves a thread of a stopped process stopped, but reports its end.
pub fn listen(tid: i32) -> Result<(), Errno> {
    request(libc::PTRACE_LISTEN, tid, 0)
}

/// Detaches from a stopped thread, with a signal or without.
pub fn detach(tid: i32, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_DETACH, tid, signal)
}

/// Attaches to a thread without stopping it.
pub fn seize(tid: i32) -> Result<(), Errno> {
    ptrace::seize(Pid::from_raw(tid), FOLLOW)
}

/// Asks a thread to stop.
pub fn interrupt(tid: i32) -> Result<(), Errno> {
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Returns the general registers of a stopped thread.
pub fn registers(tid: i32) -> Result<libc::user_regs_struct, Errno> {
    ptrace::getregs(Pid::from_raw(tid))
}

/// Returns the event's message: the new thread's id, or at an `exec` the id that the thread had before.
pub fn message(tid: i32) -> Result<i32, Errno> {
    ptrace::getevent(Pid::from_raw(tid)).map(|message| message as i32)
}

/// Returns the descriptor of a signal, if it comes from one (`F_SETSIG`).
pub fn signal_descriptor(tid: i32) -> Result<Option<i32>, Errno> {
    let info = ptrace::getsiginfo(Pid::from_raw(tid))?;
    // SAFETY: siginfo_t is 128 bytes without padding that could be uninitialised, as the kernel filled them.
    let bytes: [u8; 128] = unsafe { std::mem::transmute(info) };
    let descriptor = i32::from_ne_bytes(bytes[24..28].try_into().expect("4 bytes"));
    // POLL_IN to POLL_HUP: the codes of signals from descriptors.
    Ok((1..=6).contains(&info.si_code).then_some(descriptor))
}

/// Returns whether a SIGTRAP is the end of a single step: of an instruction (`TRAP_TRACE`), or of a system
/// call (`TRAP_BRKPT`; a breakpoint instruction has the code `SI_KERNEL`). If one were passed on, it would
/// kill the thread.
pub fn is_of_step(tid: i32) -> Result<bool, Errno> {
    let code = ptrace::getsiginfo(Pid::from_raw(tid))?.si_code;
    Ok(matches!(code, libc::TRAP_TRACE | libc::TRAP_BRKPT))
}

/// Reads the XSAVE area of a stopped thread; returns its size in bytes.
pub fn vector_registers(tid: i32, area: &mut [u8]) -> Result<usize, Errno> {
    const NT_X86_XSTATE: usize = 0x202;
    let mut place = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: area.len() };
    // SAFETY: the vector describes a slice that is ours to write, and is itself ours to write.
    let answer = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &raw mut place) };
    Errno::result(answer).map(|_| place.iov_len)
}
