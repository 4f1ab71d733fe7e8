//! Threads that the kernel runs in the name of a process: the poller of a ring for asynchronous requests.

use super::*;
use corewise_discovery::attach;
use corewise_discovery::tree::Tree;
use nix::errno::Errno;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The variable of a program that has such a ring.
pub const RING: &str = "COREWISE_TEST_RING";

/// Makes a ring of which a thread of the kernel takes the requests (`IORING_SETUP_SQPOLL`); it sleeps
/// after 10 ms without any, but stays.
fn ring() -> Result<OwnedFd, Errno> {
    const SQPOLL: u32 = 2;
    const SQ_THREAD_IDLE: usize = 4;
    // `struct io_uring_params`: sizes of both queues, flags, CPU and idle time of the thread, and what the
    // kernel fills in.
    let mut parameters = [0u32; 30];
    (parameters[2], parameters[SQ_THREAD_IDLE]) = (SQPOLL, 10);
    // SAFETY: the array is as long as the structure (120 bytes) and outlives the call.
    let made = unsafe { nix::libc::syscall(nix::libc::SYS_io_uring_setup, 8, parameters.as_mut_ptr()) };
    // SAFETY: the descriptor is new, and nobody else's.
    Errno::result(made).map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// What the program does: it has a ring, and waits.
pub fn poll() {
    let ring = ring().expect("the test could make one");
    std::thread::sleep(Duration::from_secs(60));
    assert!(ring.as_raw_fd() >= 0);
}

/// The threads of a process that the kernel runs, and its own.
fn threads(pid: u32) -> (Vec<u32>, Vec<u32>) {
    let proc = Proc::own();
    let all = proc.threads(pid).unwrap().unwrap_or_default();
    let is_kernels = |tid: &u32| proc.stat(pid, *tid).unwrap().is_some_and(|stat| stat.is_kernel_thread());
    all.into_iter().partition(is_kernels)
}

fn until_it_polls(pid: u32) -> u32 {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        // The kernel names it after it has begun.
        let is_poller = |stat: corewise_sys::proc::Stat| stat.name.starts_with("iou-sqp-");
        if let [poller] = threads(pid).0[..]
            && Proc::own().stat(pid, poller).unwrap().is_some_and(is_poller)
        {
            return poller;
        }
        assert!(Instant::now() < deadline, "no thread of the kernel's");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_the_kernel_runs_in_the_name_of_a_process_is_not_followed() {
    if let Err(error) = ring() {
        skip!(IoUring, "{error}");
    }
    with_both(&format!("export {RING}=1; $single & wait"), |live| {
        live.until("it runs", |live| live.programs.iter().any(|program| &*program.name == "single"));
        let single = live.app("single");
        let pid = live.programs[0].first;
        let poller = until_it_polls(pid);
        live.until("its own threads are known", |live| {
            let known = live.threads.iter().filter(|thread| thread.pid == pid).count();
            known == threads(pid).1.len()
        });
        assert!(live.threads.iter().all(|thread| thread.tid != poller), "{}", live.source.name());
        assert!(live.threads_of(single).all(|thread| !thread.name.starts_with("iou-")));
        let own = live.supervisor.id();
        for choice in [Choice::Poll, Choice::Bpf] {
            // The process runs already.
            let options = Options {
                roots: vec![Root::Process(pid)],
                excluded: vec![own],
                proc: Proc::own(),
                extent: Extent::Program,
                choice,
            };
            let Ok((mut source, _)) = discovery::open(&options) else { continue };
            source.refresh().unwrap();
            let found: Vec<u32> = source.threads().unwrap().iter().map(|thread| thread.tid).collect();
            assert!(found.contains(&pid) && !found.contains(&poller), "{}: {found:?}", source.name());
        }
        let mut tree = Tree::below(pid);
        std::thread::sleep(tree.refresh_within().unwrap_or_default());
        tree.refresh().unwrap();
        let found: Vec<u32> = tree.threads().unwrap().iter().map(|thread| thread.tid).collect();
        assert!(found.contains(&pid) && !found.contains(&poller), "{found:?}");
        assert!(attach::check(pid, &[]).is_ok());
    });
}
