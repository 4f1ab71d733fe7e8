//! When a run ends: with its command, with its targets, or on request.

use crate::application::Ends;
use crate::error::LiveError;
use crate::wakes::{Name, Wakes};
use corewise_core::time::Time;
use corewise_sys::signals::Signals;
use nix::unistd::Pid;
use std::process::ExitStatus;

/// What ends a run, and whether that has happened.
pub struct Ending {
    ends: Ends,
    signals: Signals,
    /// The command, while it runs.
    command: Option<Pid>,
    /// How the command has ended.
    pub exit_status: Option<ExitStatus>,
    /// Whether the run is over.
    pub is_over: bool,
}

impl Ending {
    /// Begins with the run.
    pub fn new(ends: Ends, signals: Signals) -> Ending {
        let command = match ends {
            Ends::WithCommand { command, .. } => Some(command),
            Ends::WithTargets { .. } | Ends::OnRequest => None,
        };
        Ending { ends, signals, command, exit_status: None, is_over: false }
    }

    /// Takes in signals and the end of the command. `is_idle`: nothing that is watched is known to live.
    pub fn look(&mut self, now: Time, is_idle: bool) -> Result<(), LiveError> {
        let news = self.signals.take(self.command).map_err(LiveError::of("waitpid"))?;
        if news.ended.is_some() {
            self.exit_status = news.ended;
            self.command = None;
        }
        self.is_over |= match self.ends {
            // While the command runs, it handles signals itself.
            Ends::WithCommand { wait, .. } => {
                news.no_children || (self.command.is_none() && (!wait || news.asked_to_end))
            }
            Ends::WithTargets { at } => news.asked_to_end || at.is_some_and(|at| at <= now) || is_idle,
            Ends::OnRequest => news.asked_to_end,
        };
        Ok(())
    }

    /// Enters what wakes it.
    pub fn enter<'a>(&'a self, wakes: &mut Wakes<'a>, now: Time) {
        wakes.readable(Name::Signals, [self.signals.fd()]);
        if let Ends::WithTargets { at } = self.ends {
            wakes.due(Name::End, at.map(|at| at.since(now)));
        }
    }
}
