//! `corewise attach` and `corewise detach`: which running programs the daemon places.

use anyhow::Result;
use corewise_daemon::client::{Connection, candidates};
use corewise_render::terminal;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Have the daemon follow and place running programs.
///
/// Each process with what descends from it: such as the daemon does not follow, because it was started for
/// others only, and such as were detached. Users name processes of their own, root any.
#[derive(Debug, clap::Args)]
pub struct Attach {
    #[command(flatten)]
    named: Named,
}

/// Have the daemon give programs back and leave them alone.
///
/// What was changed of each process and of what descends from it is given back: how they wait at once, where
/// they run within an interval. It holds until `corewise attach`, or to their end.
#[derive(Debug, clap::Args)]
pub struct Detach {
    #[command(flatten)]
    named: Named,
}

#[derive(Debug, clap::Args)]
struct Named {
    /// The processes
    #[arg(value_name = "PID", required = true, value_delimiter = ',', value_parser = crate::values::pid)]
    pids: Vec<u32>,
    /// The daemon's socket
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
}

impl Attach {
    /// Asks; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        self.named.call("Attach", |pid, answer| {
            if answer["acts"] == false {
                terminal::message(format_args!(
                    "the daemon does not place process {pid}: it leaves it alone (`corewise status {pid}` \
                     says why), or runs with --dry-run"
                ));
            }
        })
    }
}

impl Detach {
    /// Asks; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        self.named.call("Detach", |_, _| {})
    }
}

impl Named {
    /// Calls the method for each and hands over its answers. Returns 1 if any failed.
    fn call(&self, method: &str, mut take: impl FnMut(u32, &Value)) -> Result<u8> {
        let mut daemon = Connection::open(&candidates(self.socket.as_deref()))?;
        let mut status = 0;
        for pid in &self.pids {
            match daemon.ask(method, json!({"pid": pid})) {
                Ok(answer) => take(*pid, &answer),
                Err(error) => {
                    terminal::message(terminal::describe_error(&error));
                    status = 1;
                }
            }
        }
        Ok(status)
    }
}
