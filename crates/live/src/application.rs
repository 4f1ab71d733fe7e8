//! What a run watches, and when it ends.

use corewise_core::cpuset::CpuSet;
use corewise_core::ids::AppId;
use corewise_core::observe::Target;
use corewise_core::time::Time;
use corewise_discovery::ExecutedProgram;
use nix::unistd::Pid;
use std::sync::Arc;

/// An application that is watched.
#[derive(Debug, Clone)]
pub struct Application {
    /// What the user named: it, or what runs below it.
    pub target: Target,
    /// The application that executed its program; `None` of what the user named.
    pub executed_by: Option<AppId>,
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
        Application {
            target,
            executed_by: None,
            name: name.into(),
            first,
            began: Time(0),
            allowed: None,
            ended: None,
        }
    }

    /// Creates that of a program which was executed below `root`, first at this time.
    pub fn of_program(root: &Application, program: &ExecutedProgram, began: Time) -> Application {
        let executed_by = Some(program.executed_by);
        Application {
            executed_by,
            began,
            ..Application::new(root.target.clone(), &program.name, program.first)
        }
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
    /// When corewise is asked to end.
    OnRequest,
}
