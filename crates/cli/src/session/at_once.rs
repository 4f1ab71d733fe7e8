//! A run whose command starts at once, with sources that cost next to nothing ([`corewise_live::upgrade`]).
//!
//! A command that ends before the heavier sources are ready has no report: only what was done about its waits
//! is known. If a report or a placement is asked for, everything is therefore ready before the start.

use super::beginning::{children, nested, own_processes, user_decides_waits};
use super::command_cpu::CommandCpu;
use super::ended::Ended;
use super::machine::Machine;
use super::request::SessionRequest;
use super::sources::{self, Attached, Choice};
use super::watch::{Watch, guarding};
use anyhow::{Context, Result, bail};
use corewise_binding::actuators::Actuators;
use corewise_binding::guardian::Guardian;
use corewise_binding::heartbeat::IfHung;
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::machine_model::MachineModel;
use corewise_core::observe::Target;
use corewise_core::topology::{Domain, DomainKind, Topology};
use corewise_counters::none::NoCounters;
use corewise_discovery::Root;
use corewise_discovery::tree::Tree;
use corewise_live::upgrade::{Arm, Deferred, Prepare, Upgrade};
use corewise_live::{Application, Ends, Processes};
use corewise_render::terminal::{describe_error, message};
use corewise_sys::signals::Signals;
use corewise_sys::{affinity, launch};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Runs the command to its end.
pub fn run(mut request: SessionRequest, mut notes: Vec<String>) -> Result<Ended> {
    let others = children();
    let mut signals = Signals::open().context("cannot take over the signals")?;
    nix::sys::prctl::set_child_subreaper(true).context("cannot become a child subreaper")?;
    request.act &= !nested(&mut notes);
    let waits = &mut request.config.waits;
    waits.spin &= request.act && request.machine.is_of_one_kind() && !user_decides_waits(&mut notes);
    waits.turns &= request.act;
    let variables = request.variables(&mut notes);
    let waiting = launch::prepare(&request.command, &mut signals, request.output, &variables)?;
    signals.let_go_of_descriptors(false);
    let (words, began, cpu) = (request.words(), Instant::now(), CommandCpu::begin(&others));
    let command = waiting.start(&words[0])?;

    let (acts, is_urgent) = (Rc::new(Cell::new(request.act)), Rc::default());
    let own: Vec<u32> = own_processes(&request, &signals, None).chain(others).collect();
    let (application, choice) = (request.name(), Choice::of(&request));
    let (config, first) = (request.config, command.as_raw() as u32);
    let hot_plug = request.machine.hot_plug();
    let machine = request.machine.loaded().cloned().map_or_else(light_machine, Ok)?;
    let (arm, guardian) = arm(&acts);
    let prepare = Preparation { choice, machine: request.machine, config, acts: request.act };
    let prepare = Box::new(move || -> Prepare {
        let excluded = [own, guardian.get().into_iter().collect()].concat();
        Box::new(move |has_ended| {
            prepare.run(excluded, has_ended).map_err(|error| describe_error(error.as_ref()))
        })
    });
    let arm = request.act.then_some(arm);
    let may_change = request.act && config.changes_waits();
    let watch = Watch {
        words,
        applications: vec![Application::new(Target::Command, &application, first)],
        ends: Ends::WithCommand { command, wait: false },
        hot_plug,
        processes: may_change.then(|| Processes::new(began)),
        actuators: Actuators::new(&config),
        acts,
        host: None,
        began,
        cpu,
        deferred: Some(Deferred::new(first, arm, prepare, Rc::clone(&is_urgent))),
        is_urgent,
        beside: false,
        record: None,
    };
    let (discovery, counters) = (Box::new(Tree::below(first)), Box::new(NoCounters));
    let attached = Attached { discovery, counters, appeared: Vec::new(), since: began };
    watch.run(Engine::new(machine, request.policy, config), signals, attached, notes, || Ok(()))
}

/// Returns what starts the guardian, and the guardian's process once it runs.
fn arm(acts: &Rc<Cell<bool>>) -> (Arm, Rc<Cell<Option<u32>>>) {
    let process = Rc::new(Cell::new(None));
    let (started, acts) = (Rc::clone(&process), Rc::clone(acts));
    let start = move |actuators: &mut Actuators| -> Result<()> {
        let guardian =
            Guardian::start(IfHung::LetBe).context("nothing is bound: cannot start the guardian process")?;
        started.set(Some(guardian.process().id));
        actuators.begin(guardian).context("cannot change threads")
    };
    let arm: Arm = Box::new(move |actuators| {
        start(actuators).map_err(|error| {
            acts.set(false);
            let why = describe_error(error.as_ref());
            message(&why);
            why
        })
    });
    (arm, process)
}

/// Returns the machine as far as it is known at once: its PEs.
fn light_machine() -> Result<MachineModel> {
    let pes = affinity::get(0).context("cannot read the PEs that corewise may use")?;
    let core = |(logical, pe)| Domain {
        kind: DomainKind::Core,
        logical,
        os: None,
        pes: CpuSet::single(pe),
        bytes: None,
        forbidden: false,
    };
    let domains = (0..).zip(pes.iter()).map(core).collect();
    let origin = "this machine".to_owned();
    let allowed = pes.clone();
    Ok(Topology { origin, pes, allowed, domains, kinds: Vec::new(), notes: Vec::new() }.into())
}

/// What is needed to open the heavier sources.
struct Preparation {
    choice: Choice,
    machine: Machine,
    config: EngineConfig,
    acts: bool,
}

impl Preparation {
    /// Opens them, unless the command has ended meanwhile.
    fn run(self, excluded: Vec<u32>, has_ended: &AtomicBool) -> Result<Upgrade> {
        let is_worth_it = || match has_ended.load(Ordering::Relaxed) {
            true => bail!("the command has ended"),
            false => Ok(()),
        };
        let machine = self.machine.model()?.clone();
        let mut notes = machine.topology.notes.clone();
        is_worth_it()?;
        let roots = vec![Root::ChildrenOf(std::process::id())];
        let pes = &machine.topology.allowed;
        let attached =
            sources::attach_running(&self.choice, pes, (roots, excluded), &mut notes, &is_worth_it)?;
        let (work, board) = if self.acts { guarding(&self.config, &mut notes) } else { (None, None) };
        let Attached { discovery, counters, appeared, .. } = attached;
        Ok(Upgrade { discovery, appeared, counters, machine, work, board, notes })
    }
}
