//! A run whose command starts at once, before anything watches it.
//!
//! Problem: to read the topology, load the BPF programs and open the clocks takes some 40 ms, more than many
//! a command runs; and who runs thousands of short ones waits for it every time. Approach: the command goes
//! first. One that is over within [`UNWATCHED`] costs nothing more; no decision could have been taken for it
//! in that time. One that lives longer is attached with what it has started, as processes that run already
//! are, and what it has done since its start counts. Limits: threads that have ended by then are never heard
//! of, and usage by clock samples is that of the time since. So where a report is asked for, all is ready
//! before the start.

use super::{
    Attached, Ended, Plan, Watch, attach_running, children, guard, nested, own_processes, waits_are_decided,
    warn,
};
use anyhow::{Context, Result};
use corewise_binding::runtimes;
use corewise_core::observe::Target;
use corewise_discovery::Root;
use corewise_live::{Application, Ends};
use corewise_render::terminal::describe_error;
use corewise_sys::launch;
use corewise_sys::signals::Signals;
use corewise_topology as topology;
use corewise_topology::host;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a command runs before it is looked at. One that ends while corewise gets ready is heard of only
/// then, so this is a little more than it takes: no command takes twice its time.
const UNWATCHED: Duration = Duration::from_millis(50);

/// Runs the command to its end.
pub fn run(mut plan: Plan, mut notes: Vec<String>) -> Result<Ended> {
    let others = children();
    let mut signals = Signals::open().context("cannot take over the signals")?;
    nix::sys::prctl::set_child_subreaper(true).context("cannot become a child subreaper")?;
    plan.act &= !nested(&mut notes);
    let cures = &mut plan.config.cures;
    cures.spin &= plan.act && topology::is_of_one_kind() && !waits_are_decided(&mut notes);
    let planted = cures.spin.then(runtimes::planted_value);
    let variables = planted.map(|value| (runtimes::libgomp::VARIABLE, value.to_string()));
    let waiting = launch::prepare(&plan.command, &mut signals, plan.output, variables.as_slice())?;
    signals.let_go_of_descriptors(false);
    let (words, began) = (plan.words(), Instant::now());
    let command = waiting.start(&words[0])?;
    let unwatched = |exit_status| Ended { report: None, wall: began.elapsed(), exit_status, failure: None };
    let cannot_follow = "cannot follow the command";
    if let Some(exit_status) = signals.follow_for(command, UNWATCHED).context(cannot_follow)? {
        return Ok(unwatched(exit_status));
    }
    let guardian = if plan.act { guard(&mut notes) } else { None };
    plan.config.cures.spin &= guardian.is_some();
    plan.config.cures.turns &= guardian.is_some();
    plan.config.adapt_team &= guardian.is_some();
    let excluded = own_processes(&plan, &signals, guardian.as_ref()).chain(others).collect();
    let attached = signals.follow_beside(command, || attach(&plan, excluded, &mut notes));
    let attached = match attached.unwrap_or_else(|error| (Err(error.into()), None)) {
        (_, Some(exit_status)) => return Ok(unwatched(exit_status)),
        (Ok(attached), None) => attached,
        (Err(error), None) => {
            warn(&mut notes, format!("the command runs unwatched: {}", describe_error(error.as_ref())));
            return Ok(unwatched(signals.follow(command).context(cannot_follow)?));
        }
    };
    let watch = Watch {
        applications: vec![Application::new(Target::Command, &plan.name(), command.as_raw() as u32)],
        words,
        ends: Ends::WithCommand { command, wait: false },
        guardian,
        planted,
        host: host::read(Path::new("/")),
        began,
    };
    watch.run(plan, signals, attached, notes, || Ok(()))
}

/// Begins to watch what runs by now.
fn attach(plan: &Plan, excluded: Vec<u32>, notes: &mut Vec<String>) -> Result<Attached> {
    notes.extend(plan.machine.model()?.topology.notes.iter().cloned());
    attach_running(plan, vec![Root::ChildrenOf(std::process::id())], excluded, notes)
}
