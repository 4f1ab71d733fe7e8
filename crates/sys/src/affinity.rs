//! Affinity masks of threads, for any number of PEs. (The sets of libc, nix and rustix end at 1,024.) The
//! mask of any thread can be read; here only the caller can change its own.
//!
//! The kernel shows a mask without the PEs that are offline now, and keeps it: a mask that is read must not
//! be taken for all that the thread may use, and may be empty.

use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use nix::errno::Errno;

/// The maximum size of a mask in words: 2^20 PEs.
const WORDS_MAX: usize = 1 << 14;

/// No kernel is built for more PEs.
const PES_MAX: u32 = 8192;

/// Returns the PEs that a thread may use now; 0 is the caller. Fails with `ESRCH` if there is no such thread.
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
            Ok(_) => return Ok(CpuSet::from_words(&words)),
            // The kernel knows more PEs than the vector has bits for.
            Err(Errno::EINVAL) if words.len() < WORDS_MAX => words.resize(words.len() * 2, 0),
            Err(errno) => return Err(errno),
        }
    }
}

/// Returns the PEs that are online; all if that is not known.
pub fn online_pes() -> CpuSet {
    pes_in("/sys/devices/system/cpu/online")
}

/// Binds the calling thread. This needs no permission, as the thread is corewise's own.
pub fn bind_self(pe: PeId) -> Result<(), Errno> {
    narrow_self(&CpuSet::single(pe))
}

/// Restricts the calling thread, and its future children, to these PEs. Allocates nothing.
pub fn narrow_self(pes: &CpuSet) -> Result<(), Errno> {
    let words = pes.words();
    // SAFETY: the kernel reads the given number of bytes from the slice, which is that long; 0 is the caller.
    let result = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, words.len() * 8, words.as_ptr()) };
    Errno::result(result).map(drop)
}

/// Returns every PE that the machine has or may get.
pub fn all_pes() -> CpuSet {
    pes_in("/sys/devices/system/cpu/possible")
}

fn pes_in(file: &str) -> CpuSet {
    std::fs::read_to_string(file)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or_else(|| CpuSet::first_n(PES_MAX))
}

/// Returns what the caller's cpuset allows, whatever mask the caller has. A separate thread asks for it, so
/// that no mask changes that somebody else may be setting. If no thread can be started, returns the caller's
/// mask.
pub fn of_cpuset() -> Result<CpuSet, Errno> {
    let ask = || {
        narrow_self(&all_pes())?;
        get(0)
    };
    let thread = std::thread::Builder::new().name("cpuset".to_owned()).spawn(ask);
    thread.map_or_else(|_| get(0), |thread| thread.join().expect("asking the kernel does not panic"))
}

/// Returns the caller's mask and what its cpuset allows, at the same time. They differ if a user has
/// restricted the caller.
pub fn own_and_cpuset() -> Result<(CpuSet, CpuSet), Errno> {
    loop {
        let (own, cpuset) = (get(0)?, of_cpuset()?);
        // Otherwise one of them has changed meanwhile.
        if get(0)? == own {
            return Ok((own, cpuset));
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
            let before = get(0).unwrap();
            let one = before.last().unwrap();
            bind_self(one).unwrap();
            assert_eq!(get(0), Ok(CpuSet::single(one)));
            narrow_self(&before).unwrap();
            assert_eq!(get(0), Ok(before));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_the_cpuset_allows_is_found_out_without_touching_the_callers_mask() {
        corewise_testing::needs!(TwoPes);
        std::thread::spawn(|| {
            narrow_self(&all_pes()).unwrap();
            let cpuset = get(0).unwrap();
            assert_eq!(own_and_cpuset(), Ok((cpuset.clone(), cpuset.clone())));
            let one = CpuSet::single(cpuset.last().unwrap());
            narrow_self(&one).unwrap();
            assert_eq!(own_and_cpuset(), Ok((one.clone(), cpuset)));
            assert_eq!(get(0), Ok(one));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_does_not_exist_is_reported() {
        assert_eq!(get(u32::MAX / 2), Err(Errno::ESRCH));
    }
}
