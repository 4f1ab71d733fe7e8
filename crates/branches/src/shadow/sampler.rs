//! The sampler that emulates.

use super::guest::Page;
use super::state::State;
use super::vector_layout::VectorLayout;
use super::{Emulator, Guest};
use crate::ptrace::{self, Status};
use crate::trace::{Limits, Trace};
use crate::tracer::{Sampler, Stopped};
use corewise_code::AddressSpace;
use nix::errno::Errno;

/// Emulates stopped threads.
pub struct Shadow {
    emulator: Emulator,
    layout: VectorLayout,
    area: Vec<u8>,
}

impl Shadow {
    /// Makes a sampler without code.
    pub fn new() -> nix::Result<Shadow> {
        let layout = VectorLayout::of_this_machine();
        Ok(Shadow { emulator: Emulator::new()?, layout, area: vec![0; layout.bytes] })
    }
}

/// A thread that is stopped.
struct Thread<'a> {
    tid: i32,
    layout: &'a VectorLayout,
    area: &'a mut [u8],
}

impl Guest for Thread<'_> {
    fn read_pages(&mut self, addresses: &[u64], pages: &mut [Page]) -> usize {
        read_pages(self.tid, addresses, pages)
    }

    fn read_vectors(&mut self, state: &mut State) -> bool {
        let length = ptrace::vector_registers(self.tid, self.area);
        length.map(|length| state.set_vectors(&self.area[..length], self.layout)).is_ok()
    }
}

/// Reads pages of a thread's process at page addresses, in this order until one cannot be read; returns their
/// number.
pub fn read_pages(tid: i32, addresses: &[u64], pages: &mut [Page]) -> usize {
    const AT_ONCE: usize = super::memory::AHEAD_MAX;
    let count = addresses.len().min(pages.len()).min(AT_ONCE);
    let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let (mut local, mut remote) = ([empty; AT_ONCE], [empty; AT_ONCE]);
    for index in 0..count {
        let iov_len = size_of::<Page>();
        local[index] = libc::iovec { iov_base: (&raw mut pages[index]).cast(), iov_len };
        remote[index] = libc::iovec { iov_base: addresses[index] as *mut _, iov_len };
    }
    let count = count as u64;
    // SAFETY: the local places are whole pages that are ours to write; the remote ones the kernel checks.
    let read = unsafe { libc::process_vm_readv(tid, local.as_ptr(), count, remote.as_ptr(), count, 0) };
    usize::try_from(read).unwrap_or(0) / size_of::<Page>()
}

impl Sampler for Shadow {
    fn sample(
        &mut self,
        thread: &Stopped<'_>,
        limits: &Limits,
        trace: &mut Trace,
    ) -> Result<Option<Status>, Errno> {
        let mut guest = Thread { tid: thread.tid, layout: &self.layout, area: &mut self.area };
        let process = (thread.pid as u32, thread.space);
        self.emulator.window(&mut guest, process, &thread.registers, limits, trace);
        Ok(None)
    }

    fn prepare(&mut self, pid: i32, space: &AddressSpace, trace: &Trace) {
        self.emulator.look_ahead((pid as u32, space), trace);
    }
}
