//! A run of processes that run already: they are attached with what descends from them, and let go of again
//! with every mask given back, while they run on.

use super::{Ended, Plan, Watch, attach_running, guard, nested, own_processes, recover};
use anyhow::{Context, Result};
use corewise_core::observe::Target;
use corewise_core::time::Time;
use corewise_discovery::Root;
use corewise_discovery::attach::{self, Running};
use corewise_live::{Application, Ends};
use corewise_sys::signals::Signals;
use corewise_topology::host;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Attaches to the processes and watches them until they have ended, somebody asks corewise to end, or this
/// time has passed. The plan's command is empty.
pub fn run(mut plan: Plan, pids: &[u32], duration: Option<Duration>) -> Result<Ended> {
    let mut notes = plan.machine.model()?.topology.notes.clone();
    // Before anything is changed or taken over.
    check(pids, &[std::process::id()])?;
    recover(&mut notes);
    let signals = Signals::open().context("cannot take over the signals")?;
    let guardian = if plan.act && !nested(&mut notes) { guard(&mut notes) } else { None };
    plan.config.cures.spin &= guardian.is_some();
    plan.config.cures.turns &= guardian.is_some();
    plan.config.adapt_team &= guardian.is_some();
    // Again, with the helpers that corewise has now.
    let own: Vec<u32> = own_processes(&plan, &signals, guardian.as_ref()).collect();
    let processes = check(pids, &own)?;
    let roots = processes.iter().map(|process| Root::Process(process.pid)).collect();
    let attached = attach_running(&plan, roots, own, &mut notes)?;
    let application =
        |process: &Running| Application::new(Target::Process(process.pid), &process.name, process.pid);
    let watch = Watch {
        words: processes.iter().map(|process| format!("{} ({})", process.pid, process.name)).collect(),
        applications: processes.iter().map(application).collect(),
        ends: Ends::WithTargets { at: duration.map(|duration| Time(0) + duration) },
        guardian,
        // They were started without a value by which libgomp's variable could be found.
        planted: None,
        host: host::read(Path::new("/")),
        began: Instant::now(),
    };
    watch.run(plan, signals, attached, notes, || Ok(()))
}

fn check(pids: &[u32], own: &[u32]) -> Result<Vec<Running>> {
    let pids: BTreeSet<u32> = pids.iter().copied().collect();
    pids.into_iter().map(|pid| Ok(attach::check(pid, own)?)).collect()
}
