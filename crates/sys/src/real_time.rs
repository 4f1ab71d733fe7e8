//! Real-time scheduling of the calling thread, for as long as it must not be disturbed.

use nix::errno::Errno;

/// The calling thread has a real-time policy; dropped, it has its own again.
pub struct RealTime {
    policy: libc::c_int,
    parameters: libc::sched_param,
}

impl RealTime {
    /// Round robin with a priority from 1 (low) to 99. `EPERM` where it is not permitted.
    pub fn enter(priority: libc::c_int) -> Result<RealTime, Errno> {
        let mut parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call takes no pointer; 0 is the calling thread.
        let policy = Errno::result(unsafe { libc::sched_getscheduler(0) })?;
        // SAFETY: the kernel writes one `sched_param` to where the reference points.
        Errno::result(unsafe { libc::sched_getparam(0, &mut parameters) })?;
        let own = RealTime { policy, parameters };
        if let Err(errno) = set(libc::SCHED_RR, libc::sched_param { sched_priority: priority }) {
            // There is nothing to go back to.
            std::mem::forget(own);
            return Err(errno);
        }
        Ok(own)
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        // To give a real-time policy up is always permitted.
        let _ = set(self.policy, self.parameters);
    }
}

fn set(policy: libc::c_int, parameters: libc::sched_param) -> Result<(), Errno> {
    // SAFETY: the kernel reads one `sched_param` from where the reference points; 0 is the calling thread.
    Errno::result(unsafe { libc::sched_setscheduler(0, policy, &parameters) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::{Capability, or_skip};

    #[test]
    fn the_policy_is_given_back() {
        // In a thread of its own, so that other tests are not held up.
        std::thread::spawn(|| {
            // SAFETY: the call takes no pointer; 0 is the calling thread.
            let policy = || unsafe { libc::sched_getscheduler(0) };
            let before = policy();
            let missing = |errno: &Errno| (*errno == Errno::EPERM).then_some(Capability::RealTime);
            let realtime = or_skip!(RealTime::enter(1), missing);
            assert_eq!(policy(), libc::SCHED_RR);
            drop(realtime);
            assert_eq!(policy(), before);
        })
        .join()
        .unwrap();
    }
}
