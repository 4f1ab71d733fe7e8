//! What lies beyond the exits of a window: behind returns, jumps and calls through pointers.
//!
//! Problem. The code alone tells the way up to the first transfer to an address that only the running program
//! knows. In programs of many small functions, and in interpreters, that is most of a window.
//!
//! Approach. A sample has the thread's registers and the top of its stack.
//!
//! - A return leads where the stack says. Where on the stack the return address lies, the walk to the
//!   return has found by following the stack pointer; so caller after caller, as far as the recorded part
//!   reaches.
//! - A jump or call through a pointer leads where the registers say ([`crate::code::target`]), if only
//!   straight code lies in between. Each such sample also tells where that jump leads at other times: the
//!   windows at its targets are collected by the site of the jump, and those of all jumps of the process
//!   together, for in interpreters every handler jumps to the next. They begin where transfers lead, not
//!   where samples land, and so do what comes behind the window of a sample that does not know its own way.
//! - A call that has always led to one place is followed by [`super::spin`].
//!
//! What is still not known then is left to [`super::ahead`].
//!
//! Limits. x86-64 only; see also [`crate::code::target`]. Of code compiled by optimising for size of frames
//! deeper than the recorded part of the stack, returns are not known.

use super::Sampling;
use super::ahead::{Ahead, Usual};
use super::events::Stand;
use super::window::{Frame, Judgement, Spot, To};
use crate::code::target::{self, Thread};
use crate::code::{CodeView, Isa};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Transfers followed beyond each other.
const DEPTH_MAX: u32 = 4;

/// Exits that are taken less often are not followed.
const EXIT_MIN: f32 = 0.05;

/// Sites that are kept of a process; beyond, all are forgotten.
const SITES_MAX: usize = 1 << 12;

/// So often must a transfer through a pointer have led to one place to be taken for a direct one.
const ALWAYS: u32 = 4;

/// So many windows must be known to speak for others: of the same site, of all jumps.
const OF_SITE_MIN: f64 = 4.0;
const OF_JUMPS_MIN: f64 = 16.0;

/// What a window meets, with what lies beyond it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Met {
    /// Floating-point work.
    pub fp: Ahead,
    /// Vector work.
    pub vector: Ahead,
}

/// What is known of where a window begins.
#[derive(Clone, Copy)]
enum Start<'a> {
    /// The thread stood here, or will when the functions called have returned: its stack and frame pointers.
    Stack { stand: &'a Stand, pointer: u64, frame: Option<u64> },
    /// The caller.
    Caller(u64),
    /// Nothing.
    Unknown,
}

/// Where a process's transfers through pointers have led.
#[derive(Debug, Default)]
pub struct Transfers {
    sites: FxHashMap<u64, Site>,
    jumps: Pool,
}

#[derive(Debug, Default)]
struct Site {
    /// How often it was seen to lead somewhere, and where, if always to the same place.
    seen: u32,
    only: Option<u64>,
    windows: Pool,
}

/// Windows at targets.
#[derive(Debug, Default)]
struct Pool {
    fp: Usual,
    vector: Usual,
}

impl Pool {
    fn take(&mut self, met: &Met) {
        self.fp.take(&met.fp);
        self.vector.take(&met.vector);
    }

    fn profile(&self, samples_min: f64) -> Option<Met> {
        Some(Met { fp: self.fp.profile(samples_min)?, vector: self.vector.profile(samples_min)? })
    }
}

impl Transfers {
    /// Where the transfer at an address has always led so far.
    pub fn always(&self, site: u64) -> Option<u64> {
        self.sites.get(&site).filter(|site| site.seen >= ALWAYS)?.only
    }

    fn learn(&mut self, site: u64, is_jump: bool, target: u64, met: &Met) {
        if self.sites.len() >= SITES_MAX {
            self.sites.clear();
        }
        let known = self.sites.entry(site).or_default();
        known.only = if known.seen == 0 { Some(target) } else { known.only.filter(|&only| only == target) };
        known.seen = known.seen.saturating_add(1);
        known.windows.take(met);
        if is_jump {
            self.jumps.take(met);
        }
    }

    fn usual(&self, site: u64, is_jump: bool) -> Option<Met> {
        let of_site = self.sites.get(&site).and_then(|known| known.windows.profile(OF_SITE_MIN));
        of_site.or_else(|| if is_jump { self.jumps.profile(OF_JUMPS_MIN) } else { None })
    }
}

impl Start<'_> {
    fn spot(&self, spot: Spot) -> Option<u64> {
        let Start::Stack { pointer, frame, .. } = *self else { return None };
        let from = if spot.of_frame { frame? } else { pointer };
        Some(from.wrapping_add_signed(spot.offset.into()))
    }

    /// The same thread where the walk has moved the stack pointer, and taken `popped` bytes off it.
    fn moved(self, by: Frame, popped: u64) -> Self {
        let Start::Stack { stand, frame, .. } = self else { return self };
        let Some(pointer) = by.stack.and_then(|spot| self.spot(spot)) else { return Start::Unknown };
        let frame = match by.popped_from {
            Some(spot) => self.spot(spot).and_then(|at| stand.word(at)),
            None => frame,
        };
        Start::Stack { stand, pointer: pointer.wrapping_add(popped), frame }
    }

    /// The return address that a return finds, and the start behind it.
    fn returned(self, frame: Frame) -> Option<(u64, Self)> {
        match self {
            Start::Caller(caller) => Some((caller, Start::Unknown)),
            Start::Unknown => None,
            Start::Stack { stand, .. } => {
                let caller = stand.word(self.spot(frame.stack?)?)?;
                Some((caller, self.moved(frame, 8)))
            }
        }
    }
}

impl Stand {
    fn start(&self) -> Start<'_> {
        Start::Stack { stand: self, pointer: self.stack_pointer(), frame: Some(self.frame_pointer()) }
    }
}

/// A thread as it was at a sample; of its memory, the top of the stack as it was then.
struct AtSample<'a> {
    code: CodeView<'a>,
    stand: &'a Stand,
}

impl Thread for AtSample<'_> {
    fn code(&mut self, address: u64) -> Option<([u8; Isa::INSTRUCTION_BYTES_MAX], usize)> {
        self.code.code(address)
    }

    fn memory(&mut self, address: u64) -> Option<u64> {
        self.stand.word(address).or_else(|| self.code.memory(address))
    }
}

impl Sampling {
    /// What the window of a sample meets, with what lies beyond it.
    pub(super) fn met(&mut self, pid: u32, ip: u64, window: &Judgement, stand: Option<&Stand>) -> Met {
        let start = stand.map_or(Start::Unknown, Stand::start);
        self.beyond((pid, ip), window, start, 0)
    }

    /// The return addresses of the functions that a sample lies in, the innermost first, as far as they are
    /// known.
    pub(super) fn callers(&mut self, pid: u32, window: &Arc<Judgement>, stand: &Stand) -> Vec<u64> {
        let mut start = stand.start();
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
            let Some(of_caller) = self.judged(pid, caller).and_then(|verdict| verdict.work) else { break };
            window = of_caller;
        }
        callers
    }

    fn beyond(&mut self, (pid, ip): (u32, u64), window: &Judgement, start: Start<'_>, depth: u32) -> Met {
        let mut met = Met { fp: window.fp, vector: window.vector };
        for exit in &window.exits {
            let is_followed = depth < DEPTH_MAX && exit.fp.iter().sum::<f32>() >= EXIT_MIN;
            // The registers are those of the sample itself.
            let straight = match start {
                Start::Stack { stand, .. } if depth == 0 && exit.straight => Some(stand),
                _ => None,
            };
            let behind =
                if is_followed { self.behind((pid, ip), exit.to, straight, start, depth + 1) } else { None };
            match behind {
                Some(behind) => {
                    met.fp.go_on(&exit.fp, &behind.fp);
                    met.vector.go_on(&exit.vector, &behind.vector);
                }
                None => {
                    met.fp.lose(&exit.fp);
                    met.vector.lose(&exit.vector);
                }
            }
        }
        met
    }

    /// What lies behind an exit. `straight`: the thread's stand at `ip`, if straight code leads from there
    /// to it.
    fn behind(
        &mut self,
        (pid, ip): (u32, u64),
        to: To,
        straight: Option<&Stand>,
        start: Start<'_>,
        depth: u32,
    ) -> Option<Met> {
        let at = |displacement| ip.wrapping_add_signed(displacement);
        let (site, is_jump, start) = match to {
            To::Caller(frame) => {
                let (caller, start) = start.returned(frame)?;
                return self.window_at((pid, caller), start, depth);
            }
            To::Jump { site, frame } => (at(site), true, start.moved(frame, 0)),
            To::Call { site, returns_to } => (at(site), false, Start::Caller(at(returns_to))),
        };
        if let Some(target) = straight.and_then(|stand| self.target(pid, ip, site, stand))
            && let Some(met) = self.window_at((pid, target), start, depth)
        {
            self.transfers.entry(pid).or_default().learn(site, is_jump, target, &met);
            return Some(met);
        }
        self.transfers.get(&pid)?.usual(site, is_jump)
    }

    fn target(&mut self, pid: u32, ip: u64, site: u64, stand: &Stand) -> Option<u64> {
        let code = self.code.view(pid, self.spaces.get(&pid)?);
        target::target(&mut AtSample { code, stand }, ip, site, &stand.registers)
    }

    fn window_at(&mut self, (pid, address): (u32, u64), start: Start<'_>, depth: u32) -> Option<Met> {
        let window = self.judged(pid, address)?.work?;
        Some(self.beyond((pid, address), &window, start, depth))
    }
}
