//! Makes a recording from traces.

use super::modules::Modules;
use super::trace::Trace;
use corewise_code::AddressSpace;
use corewise_paths::window::{BranchRecording, End, Transfer, Window};
use std::collections::BTreeMap;

/// How long threads were paused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pauses {
    ns: Vec<u32>,
}

impl Pauses {
    #[cfg(target_arch = "x86_64")]
    pub(super) fn add(&mut self, pause: std::time::Duration) {
        self.ns.push(u32::try_from(pause.as_nanos()).unwrap_or(u32::MAX));
    }

    /// Returns the pause that this share of all did not exceed (0.5: the median), in ns. `None` without
    /// pauses.
    pub fn quantile(&self, share: f64) -> Option<u32> {
        let mut sorted = self.ns.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        sorted.get((share * last as f64).round() as usize).copied()
    }

    /// Returns their mean, in ns. `None` without pauses.
    pub fn mean(&self) -> Option<f64> {
        let sum: u64 = self.ns.iter().copied().map(u64::from).sum();
        (!self.ns.is_empty()).then(|| sum as f64 / self.ns.len() as f64)
    }

    /// Returns the number of pauses.
    pub fn count(&self) -> usize {
        self.ns.len()
    }
}

/// The recording so far.
#[derive(Debug, Default)]
pub struct Collected {
    modules: Modules,
    windows: Vec<Window>,
    without_window: BTreeMap<String, u64>,
    /// How long threads were paused.
    pub pauses: Pauses,
}

impl Collected {
    /// Counts a sample that gave no window.
    pub fn without_window(&mut self, reason: &str) {
        *self.without_window.entry(reason.to_owned()).or_default() += 1;
    }

    /// Returns the number of windows so far.
    pub fn window_count(&self) -> usize {
        self.windows.len()
    }

    /// Adds an emulated window, with thread, process and time in ns of `CLOCK_MONOTONIC`.
    #[cfg(target_arch = "x86_64")]
    pub fn add(&mut self, source: (u32, u32, u64), space: &AddressSpace, trace: &Trace) {
        if trace.instructions == 0 {
            return self.without_window(match &trace.ended {
                End::SystemCall => "at a system call",
                End::Unsupported(_) => "at an instruction that cannot be emulated",
                End::NoFile => "code in no file",
                End::Interrupted => "interrupted",
                End::Memory => "memory that cannot be read",
                End::Full | End::InstructionCap | End::Hardware => "ended before it began",
            });
        }
        let counts = Some((trace.instructions, trace.branches));
        self.add_counted(source, space, trace, counts);
    }

    /// Adds a window that hardware recorded, likewise.
    pub fn add_hardware(&mut self, source: (u32, u32, u64), space: &AddressSpace, trace: &Trace) {
        self.add_counted(source, space, trace, None);
    }

    fn add_counted(
        &mut self,
        (tid, pid, time_ns): (u32, u32, u64),
        space: &AddressSpace,
        trace: &Trace,
        counts: Option<(u32, u32)>,
    ) {
        let mut locate = |address| self.modules.locate(pid, space, address);
        let Some(start) = locate(trace.start) else { return self.without_window("code in no file") };
        let mut transfers = Vec::with_capacity(trace.transfers.len());
        let mut cut = None;
        for &(from, to) in &trace.transfers {
            match (locate(from), locate(to)) {
                (Some(from), Some(to)) => transfers.push(Transfer { from, to }),
                (from, _) => {
                    cut = Some(from.unwrap_or(start));
                    break;
                }
            }
        }
        let whole = if cut.is_none() { locate(trace.end) } else { None };
        let is_whole = whole.is_some();
        let end = whole.or(cut).unwrap_or_else(|| transfers.last().map_or(start, |last| last.to));
        let counts = counts.filter(|_| is_whole);
        self.windows.push(Window {
            tid,
            time_ns,
            start,
            transfers,
            end,
            instructions: counts.map(|(instructions, _)| instructions),
            branches: counts.map(|(_, branches)| branches),
            ended: if is_whole { trace.ended.clone() } else { End::NoFile },
            period_ns: None,
        });
    }

    /// Returns the recording, as far as it is known here.
    pub fn into_recording(mut self) -> BranchRecording {
        self.windows.sort_by_key(|window| window.time_ns);
        BranchRecording {
            version: BranchRecording::VERSION,
            modules: self.modules.into_modules(),
            windows: self.windows,
            without_window: self.without_window,
            ..BranchRecording::default()
        }
    }
}
