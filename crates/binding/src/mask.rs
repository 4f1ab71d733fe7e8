//! Changing the affinity masks of other threads.

use crate::act_token::ActToken;
use corewise_core::cpuset::CpuSet;
use corewise_sys::proc::Proc;
use nix::errno::Errno;

/// Restricts a thread to these PEs. Fails with `ESRCH` if there is no such thread.
pub fn set(_: &ActToken, tid: u32, pes: &CpuSet) -> Result<(), Errno> {
    let words = pes.words();
    // SAFETY: the kernel reads the given number of bytes from the slice, which is that long.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, tid as libc::pid_t, words.len() * 8, words.as_ptr())
    };
    Errno::result(result).map(drop)
}

/// Returns the PEs that a thread may use now or once they are online, as the kernel shows them in `/proc`;
/// `now` are those that [`corewise_sys::affinity::get`] has returned.
pub fn with_offline(tid: u32, now: &CpuSet) -> CpuSet {
    let status = Proc::own().status(tid).ok().flatten();
    let all = status.and_then(|status| status.field("Cpus_allowed_list")?.parse::<CpuSet>().ok());
    all.filter(|all| now.is_subset(all)).unwrap_or_else(|| now.clone())
}

/// Returns how the kernel shows a mask under this cpuset: the common PEs, or the cpuset if there are none.
pub fn seen(mask: &CpuSet, cpuset: &CpuSet) -> CpuSet {
    let common = mask.intersection(cpuset);
    if common.is_empty() { cpuset.clone() } else { common }
}

/// Returns whether the kernel shows a mask so under this cpuset, which holds no PE that is offline. A thread
/// that sleeps on PEs that went offline has no PE until it wakes up, and then those of its cpuset.
pub fn is_seen_as(mask: &CpuSet, cpuset: &CpuSet, shown: &CpuSet) -> bool {
    seen(mask, cpuset) == *shown || (shown.is_empty() && !mask.intersects(cpuset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::ids::PeId;
    use corewise_sys::affinity;

    #[test]
    fn a_mask_that_is_set_is_read_back() {
        // In a thread of its own, so that the other tests keep their PEs.
        std::thread::spawn(|| {
            let token = ActToken::mint();
            let tid = nix::unistd::gettid().as_raw() as u32;
            let before = affinity::get(tid).unwrap();
            let one = CpuSet::single(before.last().unwrap());
            set(&token, tid, &one).unwrap();
            assert_eq!(affinity::get(tid), Ok(one));
            set(&token, tid, &before).unwrap();
            assert_eq!(affinity::get(tid), Ok(before));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpuset_leaves_of_a_mask_what_both_allow_or_overrides_it() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        assert_eq!(seen(&set("2"), &set("0-3")), set("2"));
        assert_eq!(seen(&set("2-5"), &set("0-3")), set("2-3"));
        assert_eq!(seen(&set("5"), &set("0-3")), set("0-3"));
    }

    #[test]
    fn a_thread_that_sleeps_on_pes_that_went_offline_still_has_its_mask() {
        let set = |text: &str| text.parse::<CpuSet>().unwrap();
        let (none, online) = (CpuSet::new(), set("0-2"));
        assert!(is_seen_as(&set("3"), &online, &none) && is_seen_as(&set("3"), &online, &online));
        assert!(is_seen_as(&set("2-3"), &online, &set("2")));
        assert!(!is_seen_as(&set("2-3"), &online, &none) && !is_seen_as(&set("2"), &online, &none));
    }

    #[test]
    fn what_a_thread_may_use_holds_what_it_may_use_now() {
        let tid = nix::unistd::gettid().as_raw() as u32;
        let now = affinity::get(tid).unwrap();
        assert!(now.is_subset(&with_offline(tid, &now)) && now.is_subset(&affinity::online_pes()));
        let other = CpuSet::single(PeId(1 << 13));
        assert_eq!(with_offline(tid, &other), other, "it has changed meanwhile");
    }

    #[test]
    fn a_thread_that_does_not_exist_is_reported() {
        let all = CpuSet::first_n(1);
        assert_eq!(set(&ActToken::mint(), u32::MAX / 2, &all), Err(Errno::ESRCH));
    }
}
