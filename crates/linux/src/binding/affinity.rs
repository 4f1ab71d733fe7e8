//! A thread's affinity mask, for any number of PEs. (The sets of libc, nix and rustix end at 1,024.)

use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use nix::errno::Errno;

/// Leave to change threads. It can be made in [`super`] only, where every change is written down before it is
/// made: by the binder, the guardian, and the start that mends what an earlier one left.
#[derive(Debug)]
pub struct ActToken(());

impl ActToken {
    pub(super) fn mint() -> Self {
        Self(())
    }
}

/// More words than this no kernel wants: 2^20 PEs.
const WORDS_MAX: usize = 1 << 14;

/// The PEs that a thread may use now; 0 is the caller. `ESRCH` when there is no such thread.
pub fn get(tid: u32) -> Result<CpuSet, Errno> {
    let mut words = vec![0u64; 16];
    loop {
        // SAFETY: the kernel writes at most the given number of bytes into the vector, which is that long.
        let written = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                tid as libc::pid_t,
                words.len() * 8,
                words.as_mut_ptr(),
            )
        };
        match Errno::result(written) {
            Ok(_) => return Ok(CpuSet::from_words(words)),
            // The kernel knows of more PEs than the vector has bits for.
            Err(Errno::EINVAL) if words.len() < WORDS_MAX => words.resize(words.len() * 2, 0),
            Err(errno) => return Err(errno),
        }
    }
}

/// Lets a thread use these PEs only.
pub fn set(_: &ActToken, tid: u32, pes: &CpuSet) -> Result<(), Errno> {
    set_mask(tid, pes)
}

/// Binds the calling thread. It takes no leave, as the thread is one of corewise's own.
pub fn bind_self(pe: PeId) -> Result<(), Errno> {
    narrow_self(&CpuSet::single(pe))
}

/// Lets the calling thread, and what it will start, use these PEs only. Allocates nothing.
pub fn narrow_self(pes: &CpuSet) -> Result<(), Errno> {
    set_mask(0, pes)
}

fn set_mask(tid: u32, pes: &CpuSet) -> Result<(), Errno> {
    let words = pes.words();
    // SAFETY: the kernel reads the given number of bytes from the slice, which is that long.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, tid as libc::pid_t, words.len() * 8, words.as_ptr())
    };
    Errno::result(result).map(drop)
}

/// Every PE that the machine has or may get.
pub fn all_pes() -> CpuSet {
    std::fs::read_to_string("/sys/devices/system/cpu/possible")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or_else(|| CpuSet::first_n(64))
}

/// The mask to give back to a thread that may use whatever the caller may: every PE, so that the kernel
/// goes on to follow its cpuset when that changes; or the caller's mask where a user has narrowed that.
pub fn unnarrowed(token: &ActToken) -> Result<CpuSet, Errno> {
    let all = all_pes();
    loop {
        let own = get(0)?;
        set(token, 0, &all)?;
        let widest = get(0)?;
        if widest == own {
            return Ok(all);
        }
        // If it has lost PEs, the cpuset shrank just now.
        if own.is_subset(&widest) {
            set(token, 0, &own)?;
            return Ok(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_that_is_set_is_read_back() {
        // In a thread of its own, so that the other tests keep their PEs.
        std::thread::spawn(|| {
            let token = ActToken::mint();
            let before = get(0).unwrap();
            let one = CpuSet::single(before.last().unwrap());
            set(&token, 0, &one).unwrap();
            assert_eq!(get(0), Ok(one));
            set(&token, 0, &before).unwrap();
            assert_eq!(get(0), Ok(before));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_users_limit_is_kept_and_a_cpusets_followed() {
        corewise_testing::needs!(TwoPes);
        std::thread::spawn(|| {
            let token = ActToken::mint();
            let before = unnarrowed(&token).unwrap();
            assert_eq!(before, all_pes());
            let one = CpuSet::single(get(0).unwrap().last().unwrap());
            set(&token, 0, &one).unwrap();
            assert_eq!(unnarrowed(&token), Ok(one.clone()));
            assert_eq!(get(0), Ok(one));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_does_not_exist_is_reported() {
        assert_eq!(get(u32::MAX / 2), Err(Errno::ESRCH));
        let all = CpuSet::first_n(1);
        assert_eq!(set(&ActToken::mint(), u32::MAX / 2, &all), Err(Errno::ESRCH));
    }
}
