//! What a daemon that runs beside the display does with the threads shown.

use anyhow::Result;
use corewise_core::plan::Assignment;
use corewise_core::top::{DaemonState, Top};
use corewise_daemon::client::Connection;
use serde::Deserialize;
use serde_json::json;
use std::time::{Duration, Instant};

/// The least time between two questions: an answer names every thread.
const ASKED_WITHIN: Duration = Duration::from_secs(1);

/// Asks a daemon, if one runs.
#[derive(Default)]
pub struct Beside {
    /// Whether the present is shown: a recording has nothing to do with what runs now.
    is_live: bool,
    asked: Option<Instant>,
}

#[derive(Deserialize)]
struct Status {
    policy: String,
    own_cpu: Option<f64>,
    findings: Vec<String>,
}

#[derive(Deserialize)]
struct Threads {
    threads: Vec<Thread>,
}

#[derive(Deserialize)]
struct Thread {
    tid: u32,
    bound: Option<String>,
    reason: Option<String>,
}

impl Beside {
    /// For a display of the present.
    pub fn of_live(is_live: bool) -> Beside {
        Beside { is_live, asked: None }
    }

    /// Brings what the daemon does up to date. One that comes, goes or hangs disturbs nothing.
    pub fn ask(&mut self, top: &mut Top) {
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= ASKED_WITHIN);
        if !self.is_live || !is_due {
            return;
        }
        let daemon = Connection::to_running().ok().flatten();
        top.daemon = daemon.and_then(|(_, daemon)| state(daemon).ok());
        self.asked = Some(Instant::now());
    }
}

fn state(mut daemon: Connection) -> Result<DaemonState> {
    let Status { policy, own_cpu: own_share, findings } =
        serde_json::from_value(daemon.ask("GetStatus", json!({}))?)?;
    let Threads { threads } = serde_json::from_value(daemon.ask("ListThreads", json!({}))?)?;
    let bound = threads.into_iter().filter_map(|Thread { tid, bound, reason }| {
        let (pes, reason) = (bound?.parse().ok()?, reason.unwrap_or_default().into());
        Some((tid, Assignment { pes, reason }))
    });
    Ok(DaemonState { policy, own_share, findings, bound: bound.collect() })
}
