//! The loop of a watched run, and what becomes of it.

use super::beginning::warn;
use super::command_cpu::CommandCpu;
use super::ended::{Ended, Knowledge, circumstances, exited};
use super::sources::Attached;
use crate::recording_file::RecordingWriter;
use crate::remedies::ASK;
use anyhow::{Result, bail};
use corewise_binding::actuators::Actuators;
use corewise_binding::shared::board::SharedBoard;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::recording::Header;
use corewise_core::report::{Circumstances, Host, ReportBuilder, WaitsReport};
use corewise_core::time::Time;
use corewise_core::topology::Topology;
use corewise_core::world::{Wake, World, control_loop};
use corewise_counters::progress::WorkMeter;
use corewise_live::upgrade::Deferred;
use corewise_live::{Application, Ends, HotPlug, LiveError, LiveWorld, Parts, Processes};
use corewise_sys::signals::Signals;
use corewise_topology::host;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Why a command is not watched.
const ENDED_BEFORE: &str = "the command ended before watching began (with `--policy NAME` or \
                            `--report FILE` it is watched from its start)";
const NOT_POSSIBLE: &str = "the command could not be watched";

/// The subject of a run, however it was started.
pub struct Watch {
    /// The command in the report.
    pub words: Vec<String>,
    /// What is watched, and until when.
    pub applications: Vec<Application>,
    /// What ends the run.
    pub ends: Ends,
    /// What notices PEs that come online.
    pub hot_plug: HotPlug,
    /// The processes with several threads, if their waits may be changed.
    pub processes: Option<Processes>,
    /// What changes threads.
    pub actuators: Actuators,
    /// Whether anything may be changed.
    pub acts: Rc<Cell<bool>>,
    /// The host at the start; if it is missing, it is read at the end.
    pub host: Option<Host>,
    /// The start of the run.
    pub began: Instant,
    /// The CPU time of the command.
    pub cpu: CommandCpu,
    /// What the run has yet to get, and whether the engine waits for it.
    pub deferred: Option<Deferred>,
    /// See [`Deferred`].
    pub is_urgent: Rc<Cell<bool>>,
    /// Whether it is to be seen which programs run beside which.
    pub beside: bool,
    /// Where to write a recording, if requested.
    pub record: Option<PathBuf>,
}

/// Lets the world see which processes run beside which, if that is wanted; a note says why it does not.
pub fn see_neighbours(world: &mut LiveWorld, wanted: bool, machine: &Topology, notes: &mut Vec<String>) {
    if wanted && let Err(error) = world.see_neighbours(machine) {
        warn(notes, format!("which programs run beside which is not seen: {error}"));
    }
}

impl Watch {
    /// Watches the run to its end. Calls `start` when everything is ready.
    pub fn run(
        self,
        mut engine: Engine,
        signals: Signals,
        attached: Attached,
        mut notes: Vec<String>,
        start: impl FnOnce() -> Result<()>,
    ) -> Result<Ended> {
        let Watch { words, mut applications, ends, processes, actuators, acts, host, began, .. } = self;
        let since = attached.since.saturating_duration_since(began);
        applications.iter_mut().for_each(|application| application.began = Time(0) + since);
        let Attached { discovery, counters, appeared, .. } = attached;
        let guards = acts.get() && self.deferred.is_none();
        let (work, board) = if guards { guarding(engine.config(), &mut notes) } else { (None, None) };
        let board = Rc::new(RefCell::new(board));
        let parts = Parts {
            applications,
            ends,
            discovery,
            counters,
            actuators,
            processes,
            signals,
            work,
            board: Rc::clone(&board),
            deferred: self.deferred,
        };
        let mut world = LiveWorld::new(parts, began)?;
        see_neighbours(&mut world, self.beside, engine.topology(), &mut notes);
        world.notice_pes(self.hot_plug);
        appeared.iter().for_each(|thread| world.meet(thread));
        start()?;
        // Only when the command is known to exist, as this overwrites an older recording.
        let mut recorder = self.record.map(|path| {
            let header = Header::of(&engine, &words, &world.sources(), host.clone());
            RecordingWriter::create(path, &header)
        });
        let (mut builder, mut is_failure_reported) = (ReportBuilder::default(), false);
        let result = control_loop(&mut world, &mut engine, |input, actions, engine| {
            builder.watch(input, actions, engine);
            self.is_urgent.set(engine.needs_samples());
            if let (Some(board), Some(note)) = (&mut *board.borrow_mut(), engine.note()) {
                board.write(note);
            }
            if let Some(failure) = engine.policy_failure().filter(|_| !is_failure_reported) {
                is_failure_reported = true;
                warn(&mut notes, format!("the policy {}: {failure}", engine.policy_name()));
            }
            recorder.iter_mut().for_each(|recorder| recorder.write(input));
        });
        let failure = recorder.and_then(|recorder| recorder.finish().err());
        let was_possible = was_possible(result, &mut world, &mut notes);
        notes.extend(world.notes());
        let is_of_command = matches!(ends, Ends::WithCommand { .. });
        let exit_status = if is_of_command { finish(&mut world)? } else { exited(0) };
        let is_complete = world.is_complete();
        let (wall, cpu) = (began.elapsed(), self.cpu.so_far());
        let circumstances = Circumstances {
            rounds: world.rounds(),
            command_cpu: cpu,
            host: host.or_else(|| is_complete.then(|| host::read(Path::new("/")))),
            ..circumstances(words, !acts.get(), world.sources(), notes)
        };
        let report = Box::new(builder.finish(&engine, circumstances));
        let knowledge = match is_complete {
            true => Knowledge::Report(report),
            false => unwatched(was_possible, report.waits, wall, cpu),
        };
        Ok(Ended { knowledge, exit_status, failure })
    }
}

/// Returns whether all sources could be opened. After an error, only follows the command from then on.
fn was_possible(result: Result<(), LiveError>, world: &mut LiveWorld, notes: &mut Vec<String>) -> bool {
    let Err(error) = result else { return true };
    world.stop_watching();
    let was_possible = !matches!(error, LiveError::Sources(_));
    match was_possible {
        true => notes.push(format!("the run was no longer watched: {error}")),
        false => warn(notes, format!("the command runs unwatched: {error}; {ASK}")),
    }
    was_possible
}

/// Returns what is known of a command that ended before all sources were ready, or could not be watched.
fn unwatched(was_possible: bool, waits: WaitsReport, wall: Duration, cpu: Option<Duration>) -> Knowledge {
    match was_possible {
        true => Knowledge::Unwatched { why: ENDED_BEFORE, waits: Box::new(waits), wall, cpu },
        false => Knowledge::Unwatched { why: NOT_POSSIBLE, waits: Box::default(), wall, cpu },
    }
}

/// Returns what the guard needs, if there is one: what measures progress, and what all runs of the user
/// share.
pub fn guarding(config: &EngineConfig, notes: &mut Vec<String>) -> (Option<WorkMeter>, Option<SharedBoard>) {
    let work = config.guard.map(|_| WorkMeter::default());
    let is_guarded = work.is_some() && config.changes_waits();
    // Without a board only placements are guarded.
    let board = is_guarded.then(SharedBoard::open).transpose().unwrap_or_else(|error| {
        notes.push(format!("changes of waits are not guarded: {error}; {ASK}"));
        None
    });
    (work, board)
}

/// If watching failed, lets the command run to its end, unwatched.
fn finish(world: &mut LiveWorld) -> Result<ExitStatus> {
    let mut wake = Wake::Deadline;
    loop {
        match (world.exit_status(), wake) {
            (Some(status), _) => return Ok(status),
            (None, Wake::Finished) => bail!("another process has collected the command's exit status"),
            (None, Wake::Deadline | Wake::Events(_)) => {}
        }
        let tomorrow = world.now() + Duration::from_secs(86_400);
        wake = world.wait_until(tomorrow)?;
    }
}
