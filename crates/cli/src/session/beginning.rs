//! What every session does before it watches: restore what was left, find out what it may change, and keep
//! room for what comes.

use super::request::SessionRequest;
use anyhow::{Context, Result};
use corewise_binding::actuators::Actuators;
use corewise_binding::guardian::Guardian;
use corewise_binding::heartbeat::IfHung;
use corewise_binding::runtimes;
use corewise_core::engine::EngineConfig;
use corewise_discovery::followed::Followed;
use corewise_live::Processes;
use corewise_render::terminal::message;
use corewise_sys::descriptors::leaving_free;
use corewise_sys::proc::Proc;
use corewise_sys::signals::Signals;
use corewise_sys::{environment, privileged};
use std::time::Instant;

/// Runs `open`, which may open as many descriptors as it can, and keeps some free: to start the command, to
/// read about threads, and to write the output.
pub fn with_descriptors_left<T>(count: usize, open: impl FnOnce() -> Result<T>) -> Result<T> {
    leaving_free(count, open).context("too few descriptors may be open (`ulimit -n`)")?
}

/// Notes that the command gains privileges, and what follows.
pub fn note_privileges(request: &SessionRequest, notes: &mut Vec<String>) {
    if let Some(how) = privileged::gained(&request.command[0]) {
        notes.push(format!(
            "`{}` gains privileges ({how}), so the kernel lets only root look into it: what it uses stays \
             unknown; run corewise as root to see it",
            request.command[0].to_string_lossy()
        ));
    }
}

/// Starts the guardian; without it, nothing is bound.
pub fn guard(if_hung: IfHung, notes: &mut Vec<String>) -> Option<Guardian> {
    let guardian = Guardian::start(if_hung);
    if let Err(error) = &guardian {
        warn(
            notes,
            format!(
                "nothing is bound: cannot start the guardian process: {error}; check the limits on processes \
                 (ulimit -u) and files (ulimit -n)"
            ),
        );
    }
    guardian.ok()
}

/// Returns whether the user has configured how threads wait, which takes precedence.
pub fn user_decides_waits(notes: &mut Vec<String>) -> bool {
    let wish = runtimes::wish();
    notes.extend(wish.map(|name| format!("waits are not changed: {name} sets how idle threads wait")));
    wish.is_some()
}

/// Tells the user at once, and notes it.
pub fn warn(notes: &mut Vec<String>, text: String) {
    message(&text);
    notes.push(text);
}

/// Returns the children that this process had before it executed corewise.
pub fn children() -> Vec<u32> {
    // Without `/proc`, nothing is watched anyway.
    Proc::own().children(std::process::id()).unwrap_or_default()
}

/// Returns the processes of corewise and its helpers.
pub fn own_processes(
    request: &SessionRequest,
    signals: &Signals,
    guardian: Option<&Guardian>,
) -> impl Iterator<Item = u32> + use<> {
    let witness = signals.witness().map(|pid| pid.as_raw() as u32);
    let others = request.policy_keeper.into_iter().chain(guardian.map(|guardian| guardian.process().id));
    [std::process::id()].into_iter().chain(witness).chain(others.collect::<Vec<_>>())
}

/// Returns what changes threads; without a guardian it changes nothing.
pub fn actuators(
    config: &EngineConfig,
    guardian: Option<Guardian>,
    followed: Option<std::io::Result<Followed>>,
) -> Result<Actuators> {
    let mut actuators = Actuators::new(config);
    if let Some(guardian) = guardian {
        actuators.begin(guardian).context("cannot change threads")?;
        followed.into_iter().for_each(|followed| actuators.follow(followed));
    }
    Ok(actuators)
}

/// Returns the processes of the programs, if their waits may be changed.
pub fn processes_of(config: &EngineConfig, guardian: Option<&Guardian>, began: Instant) -> Option<Processes> {
    guardian.filter(|_| config.changes_waits()).map(|_| Processes::new(began))
}

/// Restores what earlier runs have left bound.
pub fn recover(notes: &mut Vec<String>) {
    corewise_binding::recovery::recover().into_iter().for_each(|note| warn(notes, note));
}

/// Returns whether an outer corewise already places this process tree. Two that bind the same threads would
/// fight, so the inner one only watches.
pub fn nested(notes: &mut Vec<String>) -> bool {
    let Some(outer) = environment::outer_corewise() else { return false };
    notes.push(format!(
        "inside another `corewise run` (process {outer}), which places these threads: this one only watches"
    ));
    true
}
