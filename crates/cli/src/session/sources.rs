//! The sources that watch a command: of its threads, and of their counters.

use super::beginning::{warn, with_descriptors_left};
use super::request::SessionRequest;
use crate::remedies::ASK;
use anyhow::{Context, Result, bail};
use corewise_core::cpuset::CpuSet;
use corewise_core::policy::Reading;
use corewise_counters as counters;
use corewise_counters::{CounterSource, Subjects};
use corewise_discovery as discovery;
use corewise_discovery::{Discovery, Extent, NewThread, Root};
use corewise_sys::launch::Waiting;
use corewise_sys::proc::Proc;
use std::collections::BTreeSet;
use std::time::Instant;

/// The sources that a run asks for.
#[derive(Debug, Clone)]
pub struct Choice {
    discovery: discovery::Choice,
    counters: counters::Choice,
    extent: Extent,
    /// The policy's name, and what it requires.
    policy: String,
    required: Vec<Reading>,
}

impl Choice {
    /// Returns those of a request.
    pub fn of(request: &SessionRequest) -> Choice {
        let (discovery, counters, extent) =
            (request.sources.discovery, request.sources.counters, request.applications);
        let (policy, required) = (request.policy.name().to_owned(), request.policy.needs().required.to_vec());
        Choice { discovery, counters, extent, policy, required }
    }
}

pub fn discover(
    choice: &Choice,
    roots: Vec<Root>,
    excluded: Vec<u32>,
    notes: &mut Vec<String>,
) -> Result<Box<dyn Discovery>> {
    let proc = Proc::own();
    if !proc.is_of_this_namespace().context("there is no /proc")? {
        bail!("/proc belongs to another PID namespace: mount the /proc of this one");
    }
    let options =
        discovery::Options { roots, excluded, proc, extent: choice.extent, choice: choice.discovery };
    let (discovery, fallbacks) = discovery::open(&options)?;
    notes.extend(with_remedy(fallbacks));
    Ok(discovery)
}

/// Why better sources are not used, with where to read what to do.
fn with_remedy(fallbacks: Vec<String>) -> impl Iterator<Item = String> {
    fallbacks.into_iter().map(|why| format!("{why}; {ASK}"))
}

/// The sources that watch a command.
pub struct Attached {
    /// The source of threads.
    pub discovery: Box<dyn Discovery>,
    /// The source of counters.
    pub counters: Box<dyn CounterSource>,
    /// The threads that existed already.
    pub appeared: Vec<NewThread>,
    /// When watching began.
    pub since: Instant,
}

/// Opens the counters, for these PEs, on the waiting child.
pub fn attach(
    choice: &Choice,
    pes: &CpuSet,
    waiting: &Waiting,
    discovery: Box<dyn Discovery>,
    notes: &mut Vec<String>,
) -> Result<Attached> {
    let subjects = Subjects::Waiting(waiting.pid().as_raw() as u32);
    let counters = open_counters(choice, (subjects, pes), &*discovery, notes)?;
    Ok(Attached { discovery, counters, appeared: Vec::new(), since: Instant::now() })
}

/// Opens the sources for running processes: discovery of the descendants of `roots`, and counters, if that is
/// still useful.
pub fn attach_running(
    choice: &Choice,
    pes: &CpuSet,
    (roots, excluded): (Vec<Root>, Vec<u32>),
    notes: &mut Vec<String>,
    is_worth_it: &dyn Fn() -> Result<()>,
) -> Result<Attached> {
    let mut discovery = with_descriptors_left(16, || discover(choice, roots, excluded, notes))?;
    let since = Instant::now();
    is_worth_it()?;
    let appeared = discovery.refresh()?.appeared;
    let members: BTreeSet<u32> = appeared.iter().map(|thread| thread.pid).collect();
    let members: Vec<u32> = members.into_iter().collect();
    let subjects = Subjects::Running(&members);
    let counters = with_descriptors_left(8, || open_counters(choice, (subjects, pes), &*discovery, notes))?;
    Ok(Attached { discovery, counters, appeared, since })
}

fn open_counters(
    choice: &Choice,
    (subjects, pes): (Subjects<'_>, &CpuSet),
    discovery: &dyn Discovery,
    notes: &mut Vec<String>,
) -> Result<Box<dyn CounterSource>> {
    let (counters, fallbacks) = counters::open(choice.counters, subjects, pes, discovery.clock_filter())?;
    notes.extend(with_remedy(fallbacks));
    let lacks = |reading: &&Reading| **reading != Reading::Tlp && !counters.gives(**reading);
    for reading in choice.required.iter().filter(lacks) {
        let (policy, needed, source) = (&choice.policy, reading.words(), counters.name());
        let how = how_to_get(*reading);
        warn(
            notes,
            format!(
                "the policy {policy} needs {needed}, which the counters `{source}` do not provide: {how}"
            ),
        );
    }
    Ok(counters)
}

/// Returns what a user can do about a reading that the counters in use do not provide.
fn how_to_get(reading: Reading) -> &'static str {
    match reading {
        Reading::FpuUsage => {
            "nothing is bound; clock samples tell it (`--counters sample`) where perf events are permitted, \
             and hardware counters (`--counters pmu`) where their events are known (docs/counters.md)"
        }
        Reading::Ipc | Reading::L2Misses | Reading::Branches => {
            "nothing is bound; hardware counters tell it (`--counters pmu`), on a machine that has them and \
             where perf events are permitted (docs/counters.md)"
        }
        Reading::Tlp => "nothing is bound",
        Reading::Spinning | Reading::Master => "nothing is bound; only simulated programs tell it yet",
    }
}
