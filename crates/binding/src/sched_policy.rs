//! Scheduling policies of threads: normal, and `SCHED_IDLE`, which gets what normal threads leave over.
//!
//! Limits: to make a thread normal again takes CAP_SYS_NICE, or a limit on nice levels that allows it.

use super::act_token::ActToken;
use corewise_sys::proc::Proc;
use corewise_sys::real_time::RealTime;
use corewise_sys::task::Task;
use nix::errno::Errno;
use std::io;

/// The policy of normal threads.
pub const NORMAL: i32 = libc::SCHED_OTHER;

/// Returns a thread's policy.
pub fn of(tid: u32) -> Result<i32, Errno> {
    // SAFETY: the call takes no pointer.
    Errno::result(unsafe { libc::sched_getscheduler(tid as i32) })
}

/// Gives a thread a policy that needs no priority.
pub fn set(_: &ActToken, tid: u32, policy: i32) -> Result<(), Errno> {
    set_with_priority(tid, policy, 0)
}

/// Gives those threads of a process that have one policy another. Threads come and go meanwhile. What the
/// kernel runs in its name becomes normal again, as it inherits policies, but gets no other. An error means
/// that some may still have the policy.
pub fn change(token: &ActToken, process: Task, from: i32, to: i32) -> io::Result<()> {
    if Task::of(process.id)? != Some(process) {
        return Ok(());
    }
    let threads = Proc::own().threads(process.id)?.unwrap_or_default();
    let is_kernels =
        |tid| matches!(Proc::own().stat(process.id, tid), Ok(Some(stat)) if stat.is_kernel_thread());
    let threads = threads.into_iter().filter(|tid| of(*tid) == Ok(from));
    let with_policy = threads.filter(|tid| to == NORMAL || !is_kernels(*tid));
    let refused =
        with_policy.filter_map(|tid| set(token, tid, to).err().filter(|errno| *errno != Errno::ESRCH));
    // Each is changed that can be.
    refused.collect::<Vec<Errno>>().first().map_or(Ok(()), |errno| Err((*errno).into()))
}

/// Makes those threads of a process normal that are `SCHED_IDLE`. An error means that some may still be it.
pub fn make_normal(token: &ActToken, process: Task) -> io::Result<()> {
    change(token, process, libc::SCHED_IDLE, NORMAL)
}

/// Returns whether this process may make threads normal again that are `SCHED_IDLE`.
pub fn can_become_normal_again() -> bool {
    let become_both = || {
        let idle = set_with_priority(0, libc::SCHED_IDLE, 0);
        idle.and_then(|()| set_with_priority(0, NORMAL, 0)).is_ok()
    };
    // In a thread of its own, which ends with the policy that it has then.
    std::thread::spawn(become_both).join().unwrap_or(false)
}

/// Makes this thread run before all normal ones until the result is dropped, if permitted.
///
/// On Linux 6.18 we have seen processes that each start the next and end delay everything else on their PE
/// for more than a minute (`studies/faults`).
pub fn run_first() -> Option<RealTime> {
    RealTime::enter(1).ok()
}

/// Makes this thread run before all normal ones, or not any more, if permitted. What it starts is normal.
pub fn set_runs_first(runs_first: bool) {
    let (policy, priority) = if runs_first { (libc::SCHED_RR, 1) } else { (NORMAL, 0) };
    let _ = set_with_priority(0, policy | libc::SCHED_RESET_ON_FORK, priority);
}

fn set_with_priority(tid: u32, policy: i32, sched_priority: i32) -> Result<(), Errno> {
    let parameters = libc::sched_param { sched_priority };
    // SAFETY: the parameters live through the call, which only reads them.
    Errno::result(unsafe { libc::sched_setscheduler(tid as i32, policy, &parameters) }).map(drop)
}
