//! The sampler of one PE.

use super::extended::Components;
use super::kernel::{Before, Preempted, Slots, Xsave};
use crate::mapped::Mapped;
use crate::shadow::sampler::read_pages;
use crate::shadow::state::State;
use crate::shadow::{Emulator, Guest, Page, VectorLayout};
use crate::trace::{Lengths, Trace};
use crate::tracer::not_emulated;
use corewise_bpf::monotonic_ns;
use corewise_code::AddressSpace;
use corewise_core::ids::PeId;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of processes whose mappings are cached.
const SPACES_MAX: usize = 256;

/// The result of a preempted thread.
pub enum Sample {
    /// A window.
    Taken(Box<Taken>),
    /// None, and the reason.
    Refused(&'static str),
}

/// A window, still in addresses of its process.
pub struct Taken {
    /// Thread, process, and the time in ns of `CLOCK_MONOTONIC`.
    pub source: (u32, u32, u64),
    /// The code mappings.
    pub space: Arc<AddressSpace>,
    /// The window.
    pub trace: Trace,
    /// How long the thread was paused.
    pub pause: Duration,
}

/// Samples the threads that are preempted on one PE, from the thread that is bound to it.
pub struct PeSampler<'a> {
    slots: &'a Slots,
    pe: PeId,
    lengths: Lengths,
    emulator: Emulator,
    components: Components,
    layout: VectorLayout,
    saved: Box<Xsave>,
    area: Vec<u8>,
    /// By process, with the number of its `exec`.
    spaces: FxHashMap<u32, (u64, Mapped)>,
    trace: Trace,
}

impl<'a> PeSampler<'a> {
    /// Makes a sampler without code.
    pub fn new(slots: &'a Slots, pe: PeId, lengths: Lengths) -> nix::Result<PeSampler<'a>> {
        let layout = VectorLayout::of_this_machine();
        Ok(PeSampler {
            slots,
            pe,
            lengths,
            emulator: Emulator::new()?,
            components: Components::of_this_machine(),
            layout,
            saved: Box::new([0; size_of::<Xsave>()]),
            area: vec![0; layout.bytes],
            spaces: FxHashMap::default(),
            trace: Trace::default(),
        })
    }

    /// Emulates a thread that was just preempted.
    pub fn sample(&mut self, preempted: &Preempted) -> Sample {
        let registers = preempted.registers();
        if let Some(reason) = not_emulated(&registers) {
            return Sample::Refused(reason);
        }
        let (pid, tid) = (preempted.pid, preempted.tid);
        if self.spaces.len() > SPACES_MAX {
            self.spaces.clear();
        }
        let (exec_id, mapped) =
            self.spaces.entry(pid).or_insert_with(|| (preempted.exec_id, Mapped::of(pid)));
        if *exec_id != preempted.exec_id {
            (*exec_id, *mapped) = (preempted.exec_id, Mapped::of(pid));
        }
        let mut guest = Thread {
            slots: self.slots,
            pe: self.pe,
            preempted,
            components: &self.components,
            layout: &self.layout,
            saved: &mut self.saved,
            area: &mut self.area,
        };
        let space = mapped.space();
        let process = (pid, &*space);
        self.emulator.window(&mut guest, process, &registers, &self.lengths.draw(), &mut self.trace);
        // If it has run meanwhile, on another PE, the memory may have changed during the reading.
        let unmoved = self.slots.take(self.pe) == Before::Followed(*preempted);
        if !unmoved {
            return Sample::Refused("ran on another PE meanwhile");
        }
        let trace = self.trace.clone();
        mapped.keep_up(pid, &trace);
        let pause = Duration::from_nanos(monotonic_ns().saturating_sub(preempted.since_ns));
        Sample::Taken(Box::new(Taken { source: (tid, pid, preempted.since_ns), space, trace, pause }))
    }
}

/// A preempted thread.
struct Thread<'a> {
    slots: &'a Slots,
    pe: PeId,
    preempted: &'a Preempted,
    components: &'a Components,
    layout: &'a VectorLayout,
    saved: &'a mut Xsave,
    area: &'a mut [u8],
}

impl Guest for Thread<'_> {
    fn read_pages(&mut self, addresses: &[u64], pages: &mut [Page]) -> usize {
        read_pages(self.preempted.tid as i32, addresses, pages)
    }

    fn read_vectors(&mut self, state: &mut State) -> bool {
        let length = self.slots.take_xsave(self.pe, self.saved);
        let is_whole = self.components.expand(&self.saved[..length], self.area);
        state.set_vectors(self.area, self.layout);
        is_whole
    }
}
