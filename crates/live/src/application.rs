//! What a run watches, and when it ends.

use corewise_core::cpuset::CpuSet;
use corewise_core::observe::Target;
use corewise_core::time::Time;
use nix::unistd::Pid;
use std::sync::Arc;

/// An application that is watched.
#[derive(Debug, Clone)]
pub struct Application {
    /// What belongs to it.
    pub target: Target,
    /// Its name.
    pub name: Arc<str>,
    /// Its first process.
    pub first: u32,
    /// When watching began.
    pub began: Time,
    /// The PEs that its user permits to that process, once read.
    pub allowed: Option<Arc<CpuSet>>,
    /// When it was found to have ended.
    pub ended: Option<Time>,
}

impl Application {
    /// Creates an application that has not been observed yet.
    pub fn new(target: Target, name: &str, first: u32) -> Application {
        Application { target, name: name.into(), first, began: Time(0), allowed: None, ended: None }
    }
}

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub enum Ends {
    /// When this command ends; with `wait`, when everything that outlives it ends, too.
    WithCommand {
        /// The command's process.
        command: Pid,
        /// Whether processes that outlive the command are followed to their end.
        wait: bool,
    },
    /// When nothing that is followed lives any more, when corewise is asked to end, or at this time.
    WithTargets {
        /// The latest end.
        at: Option<Time>,
    },
}
