//! A process with its runtime libraries, and how long their idle threads are to spin.

use super::openmpi;
use super::schedule::Schedule;
use super::variable::Variable;
use crate::changes::Changes;
use crate::word::WriteError;
use corewise_core::ids::ThreadId;
use corewise_core::observe::{IdleWait, IdleWaits};
use corewise_core::plan::OutcomeKind;
use std::time::Instant;

/// The most copies of runtime libraries in a process of which waits are changed, all together.
pub use super::loaded::COPIES_MAX;

/// Why further copies stay as they are.
pub const TOO_MANY: &str = "waits are changed in at most 16 copies of runtime libraries of each process";

/// What is known of a process.
#[derive(Debug)]
pub struct Process {
    /// Its first thread.
    pub leader: ThreadId,
    /// Its runtime libraries.
    pub copies: Vec<Idling>,
    /// How many there ever were.
    pub found: usize,
    /// Spin counts that were 0 at the last search: their library may not have set them yet.
    pub unset: Vec<Variable>,
    /// The spin count that is wanted of them, if not the library's own choice.
    pub wanted: Option<u64>,
    /// How idle threads of its other runtime libraries wait, which cannot be changed.
    pub fixed: Vec<IdleWait>,
    /// What would help if its threads are delayed, for libraries of which nothing can be changed.
    pub advice: Vec<&'static str>,
    /// When its libraries are searched.
    pub schedule: Schedule,
    /// The most threads that it had at a time.
    pub most_threads: usize,
}

/// What tells how long the idle threads of one copy of a runtime library spin.
#[derive(Debug)]
pub struct Idling {
    /// Its variable.
    pub variable: Variable,
    /// Its kind.
    pub runtime: Runtime,
}

/// The kinds of runtime libraries of which waits are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// GNU's OpenMP.
    Libgomp,
    /// Open MPI.
    OpenMpi,
}

impl Runtime {
    /// How idle threads wait in it.
    fn waits(self) -> IdleWait {
        match self {
            Runtime::Libgomp => IdleWait::Adaptable,
            Runtime::OpenMpi => IdleWait::MayYield,
        }
    }

    /// What is written so that threads spin for so many iterations.
    pub fn value(self, iterations: u64) -> u64 {
        match self {
            Runtime::Libgomp => iterations,
            Runtime::OpenMpi => openmpi::YIELD,
        }
    }
}

impl Process {
    /// A process of which no library was found yet.
    pub fn new(leader: ThreadId) -> Process {
        Process {
            leader,
            copies: Vec::new(),
            found: 0,
            unset: Vec::new(),
            wanted: None,
            fixed: Vec::new(),
            advice: Vec::new(),
            schedule: Schedule::from(Instant::now()),
            most_threads: 0,
        }
    }

    /// Whether its memory is kept open.
    pub fn keeps_memory(&self) -> bool {
        !self.copies.is_empty() || !self.unset.is_empty()
    }

    /// How its idle threads wait, and whether that was changed.
    pub fn waits(&self) -> (IdleWaits, bool) {
        let of_copies = self.copies.iter().map(|copy| copy.runtime.waits());
        let is_changed = !self.copies.is_empty() && self.wanted.is_some();
        (of_copies.chain(self.fixed.iter().copied()).collect(), is_changed)
    }

    /// The variables of all copies.
    pub fn variables_mut(&mut self) -> impl Iterator<Item = &mut Variable> {
        self.copies.iter_mut().map(|copy| &mut copy.variable)
    }

    /// Lets its idle threads spin as it is wanted.
    pub fn write(&mut self, changes: &Changes) -> OutcomeKind {
        let (mut answer, wanted) = (OutcomeKind::Done, self.wanted);
        self.copies.retain_mut(|Idling { variable, runtime }| {
            let written = match wanted {
                Some(iterations) => variable.write_recorded(runtime.value(iterations), changes),
                None => variable.give_back(),
            };
            // A copy that could not be reached this time is tried again.
            let is_ours = !matches!(written, Err(WriteError::Gone | WriteError::NotOurs));
            answer = written.err().map_or_else(|| answer.clone(), OutcomeKind::from);
            is_ours
        });
        answer
    }

    /// Whether a variable is that of a copy that was found before.
    pub fn knows(&self, variable: &Variable) -> bool {
        self.copies.iter().any(|known| known.variable.is_same(variable))
    }
}
