//! Real-time scheduling of the calling thread, while it must not be disturbed.

use nix::errno::Errno;

/// Keeps the calling thread under a real-time policy until drop.
pub struct RealTime {
    policy: libc::c_int,
    parameters: libc::sched_param,
}

impl RealTime {
    /// Enters the round-robin policy with a priority from 1 (low) to 99. Fails with `EPERM` if not permitted.
    pub fn enter(priority: libc::c_int) -> Result<RealTime, Errno> {
        let mut parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call takes no pointer; 0 is the calling thread.
        let policy = Errno::result(unsafe { libc::sched_getscheduler(0) })?;
        // SAFETY: the kernel writes one `sched_param` to where the reference points.
        Errno::result(unsafe { libc::sched_getparam(0, &mut parameters) })?;
        let own = RealTime { policy, parameters };
        if let Err(errno) = set(libc::SCHED_RR, libc::sched_param { sched_priority: priority }) {
            // There is nothing to restore.
            std::mem::forget(own);
            return Err(errno);
        }
        Ok(own)
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        // Giving up a real-time policy is always permitted.
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
        // In a thread of its own, so that other tests are not delayed.
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
