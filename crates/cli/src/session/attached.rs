//! A run of running processes: they are attached with their descendants, or as a control group, and detached
//! with every mask restored while they keep running.

use super::beginning::{actuators, guard, nested, own_processes, processes_of, recover};
use super::command_cpu::CommandCpu;
use super::ended::Ended;
use super::request::SessionRequest;
use super::sources::{Attached, Choice, attach_running};
use super::watch::{Watch, see_neighbours};
use crate::options::Targets;
use anyhow::{Context, Result, bail};
use corewise_binding::actuators::Actuators;
use corewise_binding::heartbeat::IfHung;
use corewise_core::engine::Engine;
use corewise_core::observe::{Input, Target};
use corewise_core::plan::Action;
use corewise_core::report::Sources;
use corewise_core::time::Time;
use corewise_core::world::control_loop;
use corewise_discovery::Root;
use corewise_discovery::attach::{self, AttachError, Running};
use corewise_live::{Application, Ends, LiveWorld, Onlooker, Parts};
use corewise_sys::cgroup::{ControlGroup, Hierarchy};
use corewise_sys::signals::Signals;
use corewise_topology::host;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A target that has been checked.
pub(super) enum Attachable {
    Process(Running),
    /// A control group, with the first of its processes.
    Group(ControlGroup, Running),
}

impl Attachable {
    pub(super) fn root(&self) -> Root {
        match self {
            Attachable::Process(process) => Root::Process(process.pid),
            Attachable::Group(group, _) => Root::Group(group.clone()),
        }
    }

    pub(super) fn application(&self) -> Application {
        match self {
            Attachable::Process(process) => {
                Application::new(Target::Process(process.pid), &process.name, process.pid)
            }
            Attachable::Group(group, first) => {
                Application::new(Target::ControlGroup(group.path().into()), group.name(), first.pid)
            }
        }
    }

    fn words(&self) -> String {
        match self {
            Attachable::Process(process) => format!("{} ({})", process.pid, process.name),
            Attachable::Group(group, _) => group.to_string(),
        }
    }
}

/// Attaches to the targets and watches them until they have ended, corewise is asked to end, or this time has
/// passed. The request's command is empty.
pub fn run(mut request: SessionRequest, targets: &Targets, duration: Option<Duration>) -> Result<Ended> {
    let mut notes = request.machine.model()?.topology.notes.clone();
    // Before anything is changed or taken over.
    look_at(targets, &[std::process::id()])?;
    recover(&mut notes);
    let signals = Signals::open().context("cannot take over the signals")?;
    let guardian = if request.act && !nested(&mut notes) { guard(IfHung::LetBe, &mut notes) } else { None };
    request.config.waits.spin &= guardian.is_some();
    request.config.waits.turns &= guardian.is_some();
    // Check again, with the helpers that corewise has now.
    let own: Vec<u32> = own_processes(&request, &signals, guardian.as_ref()).collect();
    let targets = look_at(targets, &own)?;
    let roots: Vec<Root> = targets.iter().map(Attachable::root).collect();
    let machine = request.machine.model()?;
    let (choice, pes) = (Choice::of(&request), &machine.topology.allowed);
    let attach = || attach_running(&choice, pes, (roots, own), &mut notes, &|| Ok(()));
    let attached = signals.may_end_during(attach)?;
    // They were started without a value of ours by which libgomp's variable could be found.
    let began = Instant::now();
    let processes = processes_of(&request.config, guardian.as_ref(), began);
    let followed = guardian.as_ref().and_then(|_| attached.discovery.followed());
    let watch = Watch {
        words: targets.iter().map(Attachable::words).collect(),
        applications: targets.iter().map(Attachable::application).collect(),
        ends: Ends::WithTargets { at: duration.map(|duration| Time(0) + duration) },
        hot_plug: request.machine.hot_plug(),
        processes,
        acts: Rc::new(Cell::new(guardian.is_some())),
        actuators: actuators(&request.config, guardian, followed)?,
        host: Some(host::read(Path::new("/"))),
        began,
        cpu: CommandCpu::default(),
        deferred: None,
        is_urgent: Rc::default(),
        beside: request.sources.beside,
        record: request.record,
    };
    let engine = Engine::new(machine.clone(), request.policy, request.config);
    watch.run(engine, signals, attached, notes, || Ok(()))
}

/// Watches the targets, or without any all processes that this one may look into, until they have ended or
/// `open` wants to end. Changes nothing, whatever the policy says. `open` gets the sources and notes.
pub fn watch_only<See: FnMut(&Input, &[Action], &Engine)>(
    request: SessionRequest,
    targets: &Targets,
    open: impl FnOnce(Sources, Vec<String>) -> Result<(Box<dyn Onlooker>, See)>,
) -> Result<()> {
    let machine = request.machine.model()?;
    let mut notes = machine.topology.notes.clone();
    let signals = Signals::open().context("cannot take over the signals")?;
    let own: Vec<u32> = own_processes(&request, &signals, None).collect();
    let targets = look_to_watch(targets, &own, &mut notes)?;
    let roots: Vec<Root> = targets.iter().map(Attachable::root).collect();
    let (choice, pes) = (Choice::of(&request), &machine.topology.allowed);
    let attach = || attach_running(&choice, pes, (roots, own), &mut notes, &|| Ok(()));
    let attached = signals.may_end_during(attach)?;
    let Attached { discovery, counters, appeared, since } = attached;
    let parts = Parts {
        applications: targets.iter().map(Attachable::application).collect(),
        ends: Ends::WithTargets { at: None },
        discovery,
        counters,
        actuators: Actuators::new(&request.config),
        processes: None,
        signals,
        work: None,
        board: Rc::default(),
        deferred: None,
    };
    let mut world = LiveWorld::new(parts, since)?;
    see_neighbours(&mut world, request.sources.beside, &machine.topology, &mut notes);
    world.notice_pes(request.machine.hot_plug());
    appeared.iter().for_each(|thread| world.meet(thread));
    let (onlooker, see) = open(world.sources(), notes)?;
    world.set_onlooker(onlooker);
    let mut engine = Engine::new(machine.clone(), request.policy, request.config);
    Ok(control_loop(&mut world, &mut engine, see)?)
}

/// Returns the targets that may be watched; a process that may not is left out, with a note.
pub(super) fn look_to_watch(
    targets: &Targets,
    own: &[u32],
    notes: &mut Vec<String>,
) -> Result<Vec<Attachable>> {
    let mut found = Vec::new();
    if targets.is_empty() {
        found.extend(attach::topmost(own)?.into_iter().map(Attachable::Process));
    }
    for pid in targets.pids.iter().copied().collect::<BTreeSet<_>>() {
        match attach::check_to_watch(pid, own) {
            Ok(running) => found.push(Attachable::Process(running)),
            Err(error) => notes.push(format!("left out: {error}")),
        }
    }
    let found = with_groups(found, targets, |pid| attach::check_to_watch(pid, own))?;
    match (found.is_empty(), notes.last()) {
        (false, _) => Ok(found),
        (true, Some(why)) => bail!("there is nothing to watch: {why}"),
        (true, None) => bail!("there is nothing to watch: no other process runs that corewise may look into"),
    }
}

/// Returns the targets, checked.
fn look_at(targets: &Targets, own: &[u32]) -> Result<Vec<Attachable>> {
    let pids: BTreeSet<u32> = targets.pids.iter().copied().collect();
    let check = |pid| Ok(Attachable::Process(attach::check(pid, own)?));
    let found = pids.into_iter().map(check).collect::<Result<Vec<_>>>()?;
    with_groups(found, targets, |pid| attach::check(pid, own))
}

/// Adds the control groups of the targets.
fn with_groups(
    mut found: Vec<Attachable>,
    targets: &Targets,
    check: impl Fn(u32) -> Result<Running, AttachError>,
) -> Result<Vec<Attachable>> {
    if targets.groups.is_empty() && targets.units.is_empty() {
        return Ok(found);
    }
    let hierarchy = Hierarchy::mounted()?;
    let groups = targets.groups.iter().map(|path| hierarchy.group(path));
    for group in groups.chain(targets.units.iter().map(|name| hierarchy.unit(name))) {
        let group = group?;
        let first = first_of(&group, &check)?;
        found.push(Attachable::Group(group, first));
    }
    Ok(found)
}

/// Returns the first process of a group. All of them must be attachable, except for those that have ended, or
/// belong to the kernel or to corewise, which are left out.
fn first_of(group: &ControlGroup, check: impl Fn(u32) -> Result<Running, AttachError>) -> Result<Running> {
    let mut first = None;
    for pid in group.processes()? {
        match check(pid) {
            Ok(process) => first = first.or(Some(process)),
            Err(
                AttachError::Gone { .. }
                | AttachError::Ended { .. }
                | AttachError::Kernel { .. }
                | AttachError::Own { .. },
            ) => {}
            Err(
                error @ (AttachError::Thread { .. }
                | AttachError::Foreign { .. }
                | AttachError::Placed { .. }
                | AttachError::Hidden { .. }
                | AttachError::Unreadable { .. }),
            ) => return Err(error).with_context(|| format!("{group} cannot be attached")),
        }
    }
    let Some(first) = first else { bail!("no process runs in {group}") };
    Ok(first)
}
