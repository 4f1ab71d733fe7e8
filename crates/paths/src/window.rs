//! What a sampler records: windows of consecutively executed instructions, and where they are.
//!
//! A window contains only the transfers that were taken, as from a branch-record unit. The branches in
//! between that were not taken follow from the code (see [`crate::program::Program`]).

use serde::{Deserialize, Serialize};

/// Index of a [`Module`] in [`BranchRecording::modules`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ModuleId(pub u32);

/// An address of a program, independent of where a process has loaded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Location {
    /// The program or shared library.
    pub module: ModuleId,
    /// The address as linked: what `nm` and `objdump` print.
    pub address: u64,
}

/// A mapped ELF file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Its absolute path when it was recorded.
    pub path: String,
    /// Its build id in lower-case hexadecimal, if it has one.
    pub build_id: Option<String>,
}

/// A control transfer that was taken: a jump, a taken branch, a call or a return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transfer {
    /// The instruction that transferred control.
    pub from: Location,
    /// The instruction that was executed next.
    pub to: Location,
}

/// Why a window ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// It has the requested number of branches.
    Full,
    /// The next instruction is a system call.
    SystemCall,
    /// The next instruction cannot be emulated; its mnemonic.
    Unsupported(String),
    /// The next instruction touches memory that cannot be read, or would fault.
    Memory,
    /// The limit of instructions was reached.
    InstructionCap,
    /// Control went to code that is in no file (made at run time, the vDSO); it is not recorded.
    NoFile,
    /// The thread got a signal, changed its state or ended (`step` only).
    Interrupted,
    /// The processor recorded no more (`lbr` only).
    Hardware,
}

/// Consecutively executed instructions of one thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The thread's id.
    pub tid: u32,
    /// CLOCK_MONOTONIC at its start, in ns.
    pub time_ns: u64,
    /// The first instruction.
    pub start: Location,
    /// The taken transfers, in the order of execution.
    pub transfers: Vec<Transfer>,
    /// The first instruction after it: the one that would be executed next.
    pub end: Location,
    /// Instructions executed; `None` if the sampler cannot count them.
    pub instructions: Option<u32>,
    /// Control-transfer instructions executed, taken or not; `None` if the sampler cannot count them.
    pub branches: Option<u32>,
    /// Why it ended.
    pub ended: End,
    /// Mean time between samples at its rate, in ns of CPU time; `None` means that of its recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
}

/// All windows of one or more runs of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BranchRecording {
    /// Version of this format: [`BranchRecording::VERSION`].
    pub version: u32,
    /// The command, or `pid N`.
    pub command: Vec<String>,
    /// The sampler: `lbr`, `shadow` or `step`.
    pub backend: String,
    /// Mean time between the samples of a running thread, in ns of its CPU time.
    pub period_ns: u64,
    /// The requested number of branches per window.
    pub branches_max: u32,
    /// The files that contain the windows.
    pub modules: Vec<Module>,
    /// The windows, in the order of their time.
    pub windows: Vec<Window>,
    /// The number of samples that gave no window, by reason (`in the kernel`, `code in no file`, `thread
    /// ended`, `lost`).
    pub without_window: std::collections::BTreeMap<String, u64>,
    /// Notes for the user about this recording.
    pub notes: Vec<String>,
}

impl BranchRecording {
    /// The format that this code writes; it reads all from 1 on.
    pub const VERSION: u32 = 2;

    /// Returns the CPU time that one of the windows represents, in ns; at least 1.
    pub fn time_of(&self, window: &Window) -> u64 {
        window.period_ns.unwrap_or(self.period_ns).max(1)
    }

    /// Makes every window represent this many.
    pub(crate) fn stand_for(&mut self, count: u64) {
        if self.windows.iter().any(|window| window.period_ns.is_some()) {
            self.name_periods();
        }
        let periods = self.windows.iter_mut().filter_map(|window| window.period_ns.as_mut());
        periods.chain([&mut self.period_ns]).for_each(|period| *period = period.saturating_mul(count));
    }

    /// Sets the period of each window, before windows of another rate are added.
    pub(crate) fn name_periods(&mut self) {
        let own = self.period_ns;
        self.windows.iter_mut().for_each(|window| _ = window.period_ns.get_or_insert(own));
    }
}
