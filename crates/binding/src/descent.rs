//! From which processes a thread may have inherited a nice level or a policy.
//!
//! Problem: a level does not show where it comes from, and a stranger's own may be the same as one of ours.
//! Approach: only the descendants of a changed process can inherit its change; an heir that was found passes
//! it on, too ([`crate::changes`]). What corewise itself has started is known by its environment
//! even if its parents are gone. Limit: the ancestors of other orphans are unknown, so these stay as they
//! are: to change a stranger's level does more harm than to leave a wrong one.

use super::thread_weight::WeightChange;
use corewise_sys::environment::started_by;
use corewise_sys::proc::Proc;
use corewise_sys::shortage::unless_short;
use corewise_sys::task::Task;
use std::fmt;
use std::io;

/// A weight that threads may have inherited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandedOutWeight {
    /// What has handed it on since.
    pub source: Source,
    /// How the weight of a thread was changed.
    pub change: WeightChange,
    /// When that was first done, in units of start times.
    pub since: u64,
}

/// From what a thread may have inherited a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A process, with all that descends from it.
    Process(Task),
    /// A corewise, with all that it has started.
    Corewise(Task),
}

impl Source {
    /// Returns from what may be inherited what a process of this corewise's is given.
    pub fn of(process: Task) -> io::Result<Source> {
        let own = std::process::id();
        let corewise = line(process.id)?.into_iter().find(|process| process.id == own);
        Ok(corewise.map_or(Source::Process(process), Source::Corewise))
    }

    /// Returns the process that it is known by.
    pub fn process(self) -> Task {
        let (Source::Process(process) | Source::Corewise(process)) = self;
        process
    }

    /// Parses the output of [`Display`](fmt::Display), word by word.
    pub fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Source> {
        match (words.next()?, words.next()?.parse().ok()?) {
            ("process", process) => Some(Source::Process(process)),
            ("corewise", process) => Some(Source::Corewise(process)),
            _ => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Process(process) => write!(f, "process {process}"),
            Source::Corewise(process) => write!(f, "corewise {process}"),
        }
    }
}

/// Returns the first of these that a thread descends from, the nearest first. `creator` has created it, if
/// that is known, and may have ended since.
pub fn nearest(
    handed_out: &[HandedOutWeight],
    thread: Task,
    creator: Option<u32>,
) -> io::Result<Option<HandedOutWeight>> {
    let by_process = |known: Task| handed_out.iter().find(|weight| weight.source.process() == known);
    let line = line(thread.id)?;
    let by_line = || line.iter().find_map(|process| by_process(*process));
    let by_creator = || {
        let is_still = |of: Task| matches!(Task::of(of.id), Ok(now) if now.is_none_or(|now| now == of));
        let is_it = |of: Task| Some(of.id) == creator && is_still(of);
        handed_out.iter().find(|weight| is_it(weight.source.process()))
    };
    let by_environment = || {
        let corewise = handed_out.iter().filter_map(|weight| match weight.source {
            Source::Corewise(corewise) => Some((weight, corewise)),
            Source::Process(_) => None,
        });
        // A foreign program's environment is read only where it can matter.
        let corewise: Vec<_> = corewise.collect();
        for process in line.iter().filter(|_| !corewise.is_empty()) {
            let by = started_by(&Proc::own(), process.id)?;
            let is_it = |of: &Task| Some(of.id) == by && of.start <= process.start;
            if let Some((weight, _)) = corewise.iter().find(|(_, of)| is_it(of)) {
                return Ok(Some(*weight));
            }
        }
        Ok(None)
    };
    match by_line().or_else(by_creator) {
        Some(weight) => Ok(Some(*weight)),
        None => by_environment().map(Option::<&HandedOutWeight>::copied),
    }
}

/// Returns the process of a thread and those that it descends from, as far as they live, the nearest first.
fn line(tid: u32) -> io::Result<Vec<Task>> {
    let proc = Proc::own();
    let mut line: Vec<Task> = Vec::new();
    let status = unless_short(proc.status(tid))?.flatten();
    let mut next = status.and_then(|status| status.field("Tgid")?.parse().ok()).unwrap_or(0);
    // Numbers that are used again while this looks could lead in a circle.
    while next != 0 && line.iter().all(|known| known.id != next) {
        let Some(stat) = unless_short(proc.task(next))?.flatten() else { break };
        line.push(Task { id: next, start: stat.start_ticks });
        next = stat.parent;
    }
    Ok(line)
}
