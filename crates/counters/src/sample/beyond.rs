//! What lies beyond the exits of a window: behind returns, jumps and calls through pointers.
//!
//! Problem. The code alone tells the way up to the first transfer to an address that only the running program
//! knows. In programs of many small functions, and in interpreters, that is most of a window.
//!
//! Approach. A sample has the thread's registers and the top of its stack.
//!
//! - The code after the sample is emulated from these ([`corewise_code::trace`]) until it depends on
//!   something unknown: after each of the first samples, later after some, as it takes time. This shows what
//!   the sample belongs to, and which way branches, jumps and calls go at other times. The windows at the
//!   targets of a jump or call
//!   through a pointer are collected by its site, and those of all jumps of the process together, for in
//!   interpreters every handler jumps to the next. They begin where transfers lead, not where samples land.
//! - A return leads where the stack says. Where on the stack the return address lies, the walk to the return
//!   has found by following the stack pointer; so caller after caller, as far as the recorded part reaches.
//! - A call that has always led to one place is followed by [`super::spin`].
//!
//! What is still not known then is left to [`super::ahead`].
//!
//! Limits. x86-64 only; see also [`corewise_code::trace`]. Of code compiled by optimising for size of frames
//! deeper than the recorded part of the stack, returns are not known.

use super::Sampling;
use super::ahead::{Ahead, STEPS};
use super::events::Snapshot;
use super::transfers::WorkAhead;
use super::window::{Frame, Judgement, Spot, To};
use corewise_code::trace::{Thread, Trace, trace};
use corewise_code::{Code, CodeView, Isa, Unit};
use std::sync::Arc;

/// Transfers followed beyond each other.
const DEPTH_MAX: u32 = 4;

/// Exits that are taken less often are not followed.
const EXIT_MIN: f32 = 0.05;

/// Instructions that are carried out: as long as a round of a wait loop may be.
const TRACE_LENGTH: usize = 160;

/// Branches whose ways are kept; beyond, all are forgotten.
const BRANCHES_MAX: usize = 1 << 16;

/// What is known of where a window begins.
#[derive(Clone, Copy)]
enum Start<'a> {
    /// The thread stood here, or will when the functions called have returned: its stack and frame pointers.
    Stack { snapshot: &'a Snapshot, pointer: u64, frame: Option<u64> },
    /// The caller.
    Caller(u64),
    /// Nothing.
    Unknown,
}

impl Start<'_> {
    fn spot(&self, spot: Spot) -> Option<u64> {
        let Start::Stack { pointer, frame, .. } = *self else { return None };
        let from = if spot.of_frame { frame? } else { pointer };
        Some(from.wrapping_add_signed(spot.offset.into()))
    }

    /// The return address that a return finds, and the start behind it.
    fn returned(self, frame: Frame) -> Option<(u64, Self)> {
        match self {
            Start::Caller(caller) => Some((caller, Start::Unknown)),
            Start::Unknown => None,
            Start::Stack { snapshot, frame: own, .. } => {
                let at = self.spot(frame.stack?)?;
                let callers = match frame.popped_from {
                    Some(spot) => self.spot(spot).and_then(|at| snapshot.word(at)),
                    None => own,
                };
                let behind = Start::Stack { snapshot, pointer: at.wrapping_add(8), frame: callers };
                Some((snapshot.word(at)?, behind))
            }
        }
    }
}

impl Snapshot {
    fn start(&self) -> Start<'_> {
        Start::Stack { snapshot: self, pointer: self.stack_pointer(), frame: Some(self.frame_pointer()) }
    }
}

/// Data is read in pieces of so many bytes, which lie in no two pages.
const PIECE: usize = 256;

/// A thread as it was at a sample; of its memory, the top of the stack as it was then.
struct AtSample<'a> {
    code: CodeView<'a>,
    snapshot: &'a Snapshot,
    /// What was read of its memory, by address: what comes next often lies nearby.
    pieces: Vec<(u64, [u8; PIECE])>,
}

impl AtSample<'_> {
    fn piece(&mut self, start: u64) -> Option<&[u8; PIECE]> {
        let at = match self.pieces.iter().position(|&(known, _)| known == start) {
            Some(at) => at,
            None => {
                let mut bytes = [0; PIECE];
                self.code.data(start, &mut bytes).then(|| self.pieces.push((start, bytes)))?;
                self.pieces.len() - 1
            }
        };
        Some(&self.pieces[at].1)
    }
}

impl Thread for AtSample<'_> {
    fn code(&mut self, address: u64) -> Option<([u8; Isa::INSTRUCTION_BYTES_MAX], usize)> {
        self.code.bytes(address)
    }

    fn memory(&mut self, address: u64) -> Option<u64> {
        if let Some(word) = self.snapshot.word(address) {
            return Some(word);
        }
        let mut word = [0; size_of::<u64>()];
        let offset = (address % PIECE as u64) as usize;
        match self.piece(address - offset as u64)?.get(offset..offset + word.len()) {
            Some(bytes) => word.copy_from_slice(bytes),
            None => self.code.data(address, &mut word).then_some(())?,
        }
        Some(u64::from_le_bytes(word))
    }
}

impl Sampling {
    /// The work ahead of a sample: in its window, and beyond it.
    pub(super) fn work_ahead(
        &mut self,
        pid: u32,
        ip: u64,
        window: &Judgement,
        snapshot: Option<&Snapshot>,
    ) -> WorkAhead {
        self.beyond((pid, ip), window, snapshot.map_or(Start::Unknown, Snapshot::start), 0)
    }

    /// What a thread with this snapshot does next; learns from it.
    pub(super) fn traced(&mut self, pid: u32, ip: u64, snapshot: &Snapshot, may_wait: bool) -> Option<Trace> {
        let code = self.code.view(pid, self.spaces.get(&pid)?);
        // A thread that may wait is followed for a whole round.
        let length = if may_wait { TRACE_LENGTH } else { self.assumptions.length as usize };
        let trace =
            trace(&mut AtSample { code, snapshot, pieces: Vec::new() }, ip, &snapshot.registers, length);
        self.learn(pid, &trace);
        Some(trace)
    }

    /// The work ahead of a traced thread: on its traced path, and then the usual work.
    pub(super) fn work_ahead_of_trace(&mut self, pid: u32, snapshot: &Snapshot, trace: &Trace) -> WorkAhead {
        let length = self.assumptions.length as usize;
        let Some(space) = self.spaces.get(&pid) else { return WorkAhead::default() };
        let mut code = self.code.view(pid, space);
        let path = trace.path.iter().take(length).map_while(|&at| code.instruction(at));
        let units: Vec<Unit> = path.map(|instruction| instruction.unit).collect();
        let rest = trace.next.filter(|_| units.len() < length).and_then(|next| {
            let (pointer, frame) = (trace.stack_pointer?, trace.frame_pointer);
            self.window_at((pid, next), Start::Stack { snapshot, pointer, frame }, 1)
        });
        let is_cut = trace.next.is_some() && units.len() < length;
        let step = |instruction: usize| instruction * STEPS / length;
        let ahead = |first: Option<usize>, rest: Option<Ahead>| {
            let mut ahead = Ahead::default();
            let mut exit = [0.0; STEPS];
            match (first, rest) {
                (Some(first), _) => ahead.met[step(first)] = 1.0,
                (None, _) if !is_cut => {}
                (None, rest) => {
                    exit[step(units.len())] = 1.0;
                    match rest {
                        Some(rest) => ahead.go_on(&exit, &rest),
                        None => ahead.lose(&exit),
                    }
                }
            }
            ahead
        };
        let is_float = |unit: &Unit| *unit == Unit::Float;
        let is_vector = |unit: &Unit| matches!(unit, Unit::Float | Unit::Integer);
        WorkAhead {
            fp: ahead(units.iter().position(is_float), rest.map(|rest| rest.fp)),
            vector: ahead(units.iter().position(is_vector), rest.map(|rest| rest.vector)),
        }
    }

    /// Takes in which ways a thread goes.
    fn learn(&mut self, pid: u32, trace: &Trace) {
        if self.branches.len() >= BRANCHES_MAX {
            self.branches.clear();
        }
        let Some(space) = self.spaces.get(&pid) else { return };
        let mut code = self.code.view(pid, space);
        for &(at, taken) in &trace.branches {
            let Some(place) = code.place(at) else { continue };
            let (seen_taken, seen_passed) = self.branches.entry(place).or_default();
            *if taken { seen_taken } else { seen_passed } += 1;
        }
        for &(site, is_jump, target) in &trace.pointers {
            let Some(space) = self.spaces.get(&pid) else { return };
            let length = self.code.view(pid, space).instruction(site).map_or(0, |call| call.length);
            let start =
                if is_jump { Start::Unknown } else { Start::Caller(site.wrapping_add(length.into())) };
            if let Some(work_ahead) = self.window_at((pid, target), start, 1) {
                let known = self.transfers.entry(pid).or_default();
                known.learn(site, is_jump, target, &work_ahead);
                if !is_jump && known.knows_since_now(site) {
                    // What calls there is known now.
                    self.no_points.clear();
                }
            }
        }
    }

    /// The return addresses of the functions that a sample lies in, the innermost first, as far as they are
    /// known.
    pub(super) fn callers(&mut self, pid: u32, window: &Arc<Judgement>, snapshot: &Snapshot) -> Vec<u64> {
        let mut start = snapshot.start();
        let mut window = window.clone();
        let mut callers = Vec::new();
        while callers.len() < DEPTH_MAX as usize {
            let frame = window.exits.iter().find_map(|exit| match exit.to {
                To::Caller(frame) => Some(frame),
                _ => None,
            });
            let Some((caller, behind)) = frame.and_then(|frame| start.returned(frame)) else { break };
            callers.push(caller);
            start = behind;
            let Some(of_caller) = self.judged(pid, caller).and_then(|judged| judged.work) else { break };
            window = of_caller;
        }
        callers
    }

    fn beyond(
        &mut self,
        (pid, ip): (u32, u64),
        window: &Judgement,
        start: Start<'_>,
        depth: u32,
    ) -> WorkAhead {
        let mut work_ahead = WorkAhead { fp: window.fp, vector: window.vector };
        for exit in &window.exits {
            let is_followed = depth < DEPTH_MAX && exit.fp.iter().sum::<f32>() >= EXIT_MIN;
            let behind = if is_followed { self.behind((pid, ip), exit.to, start, depth + 1) } else { None };
            match behind {
                Some(behind) => {
                    work_ahead.fp.go_on(&exit.fp, &behind.fp);
                    work_ahead.vector.go_on(&exit.vector, &behind.vector);
                }
                None => {
                    work_ahead.fp.lose(&exit.fp);
                    work_ahead.vector.lose(&exit.vector);
                }
            }
        }
        work_ahead
    }

    /// What lies behind an exit.
    fn behind(&mut self, (pid, ip): (u32, u64), to: To, start: Start<'_>, depth: u32) -> Option<WorkAhead> {
        let at = |displacement| ip.wrapping_add_signed(displacement);
        let (site, is_jump) = match to {
            To::Jump { site } => (at(site), true),
            To::Call { site } => (at(site), false),
            To::Caller(frame) => {
                let (caller, start) = start.returned(frame)?;
                return self.window_at((pid, caller), start, depth);
            }
        };
        self.transfers.get(&pid)?.usual(site, is_jump)
    }

    fn window_at(&mut self, (pid, address): (u32, u64), start: Start<'_>, depth: u32) -> Option<WorkAhead> {
        let window = self.judged(pid, address)?.work?;
        Some(self.beyond((pid, address), &window, start, depth))
    }
}
