//! A watched run: the common part of `run` and `characterize`. Commands that start before they can be watched
//! ([`at_once`]) and running processes ([`attached`]) are variants of it.

use crate::remedies::ASK;
use anyhow::{Context, Result};
use corewise_binding::guardian::Guardian;
use corewise_binding::heartbeat::IfHung;
use corewise_core::engine::Engine;
use corewise_core::observe::Target;
use corewise_core::report::{Circumstances, ReportBuilder, Sources};
use corewise_discovery::Root;
use corewise_live::{Application, Ends};
use corewise_render::terminal::describe_error;
use corewise_sys::launch::{self, Output, Waiting};
use corewise_sys::signals::Signals;
use corewise_topology::host;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

mod at_once;
pub mod attached;
mod beginning;
mod command_cpu;
pub mod daemon;
mod ended;
mod machine;
mod request;
mod sources;
pub mod team_size;
mod watch;

use beginning::{
    actuators, children, guard, nested, note_privileges, own_processes, processes_of, recover,
    user_decides_waits, warn, with_descriptors_left,
};
use command_cpu::CommandCpu;
use ended::circumstances;
pub use ended::{Ended, Knowledge, exit_status_of, exited};
pub use machine::Machine;
pub use request::SessionRequest;
use sources::{Attached, attach, discover};
use watch::Watch;

/// Runs the command to its end. An error of type [`LaunchError`] means that the command did not start. If the
/// command cannot be watched, it still runs.
pub fn run(mut request: SessionRequest) -> Result<Ended> {
    let mut notes = Vec::new();
    note_privileges(&request, &mut notes);
    recover(&mut notes);
    if request.begins_at_once() {
        return at_once::run(request, notes);
    }
    let machine = &request.machine.model()?.topology;
    notes.extend(machine.notes.iter().cloned());
    // Newer versions of libgomp do not spin at all on machines with several kinds of PEs.
    let one_kind = machine.kinds.len() <= 1;
    let others = children();
    let mut signals = Signals::open().context("cannot take over the signals")?;
    let guardian = if request.act && !nested(&mut notes) { guard(IfHung::LetBe, &mut notes) } else { None };
    nix::sys::prctl::set_child_subreaper(true).context("cannot become a child subreaper")?;
    let waits = &mut request.config.waits;
    waits.spin &= guardian.is_some() && one_kind && !user_decides_waits(&mut notes);
    waits.turns &= guardian.is_some();
    // Before the command's process is created, so that it is found.
    let roots = vec![Root::ChildrenOf(std::process::id())];
    let excluded = own_processes(&request, &signals, guardian.as_ref()).chain(others.clone()).collect();
    let choice = sources::Choice::of(&request);
    let open = || discover(&choice, roots, excluded, &mut notes);
    let discovery = signals.may_end_during(|| with_descriptors_left(16, open));
    // Without discovery no thread is bound, and its descriptors may be needed.
    let guardian = guardian.filter(|_| discovery.is_ok());
    let variables = request.variables(&mut notes);
    let waiting = launch::prepare(&request.command, &mut signals, request.output, &variables)?;
    if !request.keep_descriptors {
        signals.let_go_of_descriptors(request.output == Output::ToStandardError);
    }
    let pes = &request.machine.model()?.topology.allowed;
    let attach =
        |discovery| with_descriptors_left(8, || attach(&choice, pes, &waiting, discovery, &mut notes));
    match discovery.and_then(attach) {
        Ok(attached) => {
            let cpu = CommandCpu::begin(&others);
            watch(request, waiting, signals, attached, guardian, cpu, notes)
        }
        Err(error) if request.is_demanded() => Err(error),
        Err(error) => {
            let why = describe_error(error.as_ref());
            warn(&mut notes, format!("the command runs unwatched: {why}; {ASK}"));
            follow(request, waiting, signals, notes)
        }
    }
}

fn watch(
    request: SessionRequest,
    waiting: Waiting,
    signals: Signals,
    attached: Attached,
    guardian: Option<Guardian>,
    cpu: CommandCpu,
    notes: Vec<String>,
) -> Result<Ended> {
    // The first process of a container adopts all orphans, and all end with it.
    let wait = request.wait && std::process::id() != 1;
    let words = request.words();
    let first = waiting.pid().as_raw() as u32;
    let application = Application::new(Target::Command, &request.name(), first);
    let ends = Ends::WithCommand { command: waiting.pid(), wait };
    // Before the command begins: the report has this time.
    let host = Some(host::read(Path::new("/")));

    let began = Instant::now();
    let processes = processes_of(&request.config, guardian.as_ref(), began);
    let acts = Rc::new(Cell::new(guardian.is_some()));
    let followed = guardian.as_ref().and_then(|_| attached.discovery.followed());
    let watch = Watch {
        words: words.clone(),
        applications: vec![application],
        ends,
        hot_plug: request.machine.hot_plug(),
        processes,
        actuators: actuators(&request.config, guardian, followed)?,
        acts,
        host,
        began,
        cpu,
        deferred: None,
        is_urgent: Rc::default(),
        beside: request.sources.beside,
        record: request.record,
    };
    let engine = Engine::new(request.machine.model()?.clone(), request.policy, request.config);
    let start = || {
        waiting.start(&words[0])?;
        Ok(())
    };
    watch.run(engine, signals, attached, notes, start)
}

/// Runs the command without watching it; the report has its words and notes.
fn follow(
    request: SessionRequest,
    waiting: Waiting,
    mut signals: Signals,
    notes: Vec<String>,
) -> Result<Ended> {
    let words = request.words();
    let host = host::read(Path::new("/"));
    let pid = waiting.start(&words[0])?;
    let exit_status = signals.follow(pid).context("cannot follow the command")?;
    let engine = Engine::new(request.machine.model()?.clone(), request.policy, request.config);
    let sources = Sources { discovery: "none".to_owned(), counters: "none".to_owned() };
    let circumstances = Circumstances { host: Some(host), ..circumstances(words, true, sources, notes) };
    let knowledge = Knowledge::Report(Box::new(ReportBuilder::default().finish(&engine, circumstances)));
    Ok(Ended { knowledge, exit_status, failure: None })
}
