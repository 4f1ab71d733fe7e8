//! A daemon's session: running and coming processes are watched and placed until it is asked to end.

use super::attached::{Attachable, look_to_watch};
use super::beginning::{actuators, guard, own_processes, processes_of, recover};
use super::request::SessionRequest;
use super::sources::{Attached, Choice, attach_running};
use super::watch::{guarding, see_neighbours};
use crate::options::Targets;
use anyhow::{Context, Result, bail};
use corewise_binding::changes::Changes;
use corewise_binding::guardian::Guardian;
use corewise_binding::heartbeat::IfHung;
use corewise_core::engine::Engine;
use corewise_core::observe::{Input, Target};
use corewise_core::plan::Action;
use corewise_core::report::Sources;
use corewise_core::world::control_loop;
use corewise_discovery::Root;
use corewise_live::{Application, Ends, LiveWorld, MakeTreatments, Onlooker, Parts};
use corewise_sys::signals::Signals;
use nix::sys::signal::{Signal, raise};
use std::cell::RefCell;
use std::rc::Rc;

/// The part of a daemon's own cost that may go into understanding samples, which looking rarer does not make
/// cheaper. It is exceeded by a factor of two at most, and taking the samples in costs as much again.
const OF_SAMPLES: f64 = 0.1;

/// Watches and places the targets, or without any all processes that this one may look into. `open` gets the
/// sources and notes when everything is ready. Everything is given back at the end. Without its guardian, or
/// a journal that can be written, nothing may be changed any more: then it ends with an error, and its
/// user or service manager may start another one.
pub fn serve<See: FnMut(&Input, &[Action], &Engine)>(
    mut request: SessionRequest,
    named: &Targets,
    treatments: Box<dyn MakeTreatments>,
    open: impl FnOnce(Sources, Vec<String>) -> Result<(Box<dyn Onlooker>, See)>,
) -> Result<()> {
    let mut notes = request.machine.model()?.topology.notes.clone();
    recover(&mut notes);
    let signals = Signals::open().context("cannot take over the signals")?;
    let guardian = if request.act { guard(IfHung::End, &mut notes) } else { None };
    if request.act && guardian.is_none() {
        bail!("a daemon that can change nothing is of no use: `--dry-run` only watches");
    }
    request.config.waits.spin &= guardian.is_some();
    request.config.waits.turns &= guardian.is_some();
    let changes = guardian.as_ref().map(Guardian::changes);
    let own: Vec<u32> = own_processes(&request, &signals, guardian.as_ref()).collect();
    let targets = signals.may_end_during(|| look_to_watch(named, &own, &mut notes))?;
    // What clients name later, and without targets also what comes from elsewhere, such as another login.
    let others = Root::Others { all: named.is_empty() };
    let roots: Vec<Root> = targets.iter().map(Attachable::root).chain([others]).collect();
    let others = Application::new(Target::Others, "others", 0);
    let machine = request.machine.model()?;
    let (choice, pes) = (Choice::of(&request), &machine.topology.allowed);
    let attach = || attach_running(&choice, pes, (roots, own), &mut notes, &|| Ok(()));
    let attached = signals.may_end_during(attach)?;
    let Attached { discovery, mut counters, appeared, since } = attached;
    if let Some(limit) = request.config.own_cost {
        counters.spend_at_most(limit * machine.topology.pes.len() as f64 * OF_SAMPLES);
    }
    let processes = processes_of(&request.config, guardian.as_ref(), since);
    let followed = guardian.as_ref().and_then(|_| discovery.followed());
    let (work, board) = if request.act { guarding(&request.config, &mut notes) } else { (None, None) };
    let board = Rc::new(RefCell::new(board));
    let parts = Parts {
        applications: targets.iter().map(Attachable::application).chain([others]).collect(),
        ends: Ends::OnRequest,
        discovery,
        counters,
        actuators: actuators(&request.config, guardian, followed)?,
        processes,
        signals,
        work,
        board: Rc::clone(&board),
        deferred: None,
    };
    let mut world = LiveWorld::new(parts, since)?;
    world.set_treatments(treatments);
    see_neighbours(&mut world, request.sources.beside, &machine.topology, &mut notes);
    world.notice_pes(request.machine.hot_plug());
    appeared.iter().for_each(|thread| world.meet(thread));
    let (onlooker, mut see) = open(world.sources(), notes)?;
    world.set_onlooker(onlooker);
    let mut engine = Engine::new(machine.clone(), request.policy, request.config);
    let (mut lost, mut stopped) = (None, 0);
    control_loop(&mut world, &mut engine, |input, actions, engine| {
        if let (Some(board), Some(note)) = (&mut *board.borrow_mut(), engine.note()) {
            board.write(note);
        }
        see(input, actions, engine);
        if let (None, Some(changes)) = (&lost, &changes) {
            lost = look_at_guardian(changes, &mut stopped);
            if lost.is_some() {
                // The one way to the end, on which everything is given back.
                raise(Signal::SIGTERM).expect("a signal to oneself");
            }
        }
    })?;
    lost.map_or(Ok(()), |why| bail!("{why}: without it nothing can be placed"))
}

/// Returns why nothing may be changed any more, if so. Logs if the guardian has given everything back while
/// the daemon was stopped, more than these times.
fn look_at_guardian(changes: &Changes, stopped: &mut u64) -> Option<String> {
    changes.guardian_is_there();
    if changes.times_stopped() != std::mem::replace(stopped, changes.times_stopped()) {
        log::warn!(
            corewise_event = "stopped";
            "was stopped for long: everything was given back meanwhile, and is taken up again"
        );
    }
    changes.failure()
}
