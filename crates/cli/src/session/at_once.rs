//! A run whose command starts at once, before anything watches it.
//!
//! Problem: reading the topology, loading the BPF programs and opening the clocks takes about 40 ms of CPU
//! time, more than many commands run; scripts that run thousands of short commands wait for it every time.
//! Approach: the command starts first. A command that ends within [`UNWATCHED`] costs next to nothing extra;
//! no decision could have been made for it in that time, except for its waits, which are [handled](Early)
//! from the start. A command that lives longer is attached with its children, like processes that run
//! already, and its activity since the start counts. The setup waits for an idle PE, because threads that
//! wait for each other all wait for the one whose PE it takes. It runs on busy PEs only after
//! [`PATIENT_FOR`], or when threads are delayed and may need more than a change of their waits; and it stops
//! when the command has ended.
//! Limits: threads that have ended by then are not seen, and usage by clock samples covers only the time
//! since. If a report or a placement is asked for, everything is therefore ready before the start.

use super::{
    Attached, CommandCpu, Ended, Knowledge, SessionRequest, Watch, attach_running, children, guard, nested,
    own_processes, processes_of, user_decides_waits, warn,
};
use anyhow::{Context, Result, bail};
use corewise_binding::guardian::Guardian;
use corewise_core::observe::Target;
use corewise_discovery::Root;
use corewise_live::early::Early;
use corewise_live::{Application, Ends};
use corewise_render::terminal::describe_error;
use corewise_sys::launch;
use corewise_sys::niceness::Niceness;
use corewise_sys::proc::Proc;
use corewise_sys::proc::idle::IdleTime;
use corewise_sys::signals::Signals;
use corewise_topology as topology;
use corewise_topology::host;
use nix::unistd::Pid;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a command runs before it is watched as a whole.
const UNWATCHED: Duration = Duration::from_millis(300);

/// How long after the start the setup waits for an idle PE. It takes some 40 ms of CPU time: that must be
/// next to nothing of the time that the command has run.
const PATIENT_FOR: Duration = Duration::from_secs(4);

/// The same while threads are delayed.
const PATIENT_WHILE_DELAYED_FOR: Duration = Duration::from_secs(1);

/// Why a command is not watched.
const ENDED_BEFORE: &str = "the command ended before watching began (with `--policy NAME` or \
                            `--report FILE` it is watched from its start)";
const NOT_POSSIBLE: &str = "the command could not be watched";

const CANNOT_FOLLOW: &str = "cannot follow the command";

/// Time between two looks for idle PEs.
const LOOK_FOR_IDLE_PES: Duration = Duration::from_millis(100);

/// How much of a PE must have been idle lately for the setup to begin.
const IDLE_PES_MIN: f64 = 0.5;

/// What was started for the command before everything is ready.
struct Begun {
    early: Option<Early>,
    guardian: Option<Guardian>,
    began: Instant,
    /// The idle time of the PEs that the command may use.
    idle: IdleTime,
}

/// Runs the command to its end.
pub fn run(mut request: SessionRequest, mut notes: Vec<String>) -> Result<Ended> {
    let others = children();
    let mut signals = Signals::open().context("cannot take over the signals")?;
    nix::sys::prctl::set_child_subreaper(true).context("cannot become a child subreaper")?;
    request.act &= !nested(&mut notes);
    request.config.mitigations.spin &= request.act && topology::is_of_one_kind() && !user_decides_waits(&mut notes);
    let variables = request.variables(&mut notes);
    let waiting = launch::prepare(&request.command, &mut signals, request.output, &variables)?;
    signals.let_go_of_descriptors(false);
    let (words, began, cpu) = (request.words(), Instant::now(), CommandCpu::begin(&others));
    let command = waiting.start(&words[0])?;
    let unwatched = |exit_status, early: Option<&Early>, why| {
        let waits = early.map(Early::report).unwrap_or_default();
        let knowledge = Knowledge::Unwatched { why, waits, wall: began.elapsed(), cpu: cpu.so_far() };
        Ended { knowledge, exit_status, failure: None }
    };
    let mut begun = Begun::with(&request, command.as_raw() as u32);
    if let Some(exit_status) = begun.follow(&mut signals, command, &mut notes).context(CANNOT_FOLLOW)? {
        return Ok(unwatched(exit_status, begun.early.as_ref(), ENDED_BEFORE));
    }
    if request.act && begun.guardian.is_none() {
        begun.start_guardian(&mut notes);
    }
    let Begun { mut early, guardian, .. } = begun;
    request.config.mitigations.spin &= guardian.is_some();
    request.config.mitigations.turns &= guardian.is_some();
    let excluded = own_processes(&request, &signals, guardian.as_ref()).chain(others).collect();
    let niceness = Niceness::of_this_thread();
    let besides = || {
        let due = early.as_mut().map_or(PATIENT_FOR, Early::look);
        let is_urgent = is_urgent(early.as_ref(), began.elapsed());
        niceness.iter().filter(|_| is_urgent).for_each(|level| level.raise());
        due
    };
    let prepare = |has_ended: &AtomicBool| {
        niceness.iter().for_each(|level| level.lower());
        let attached = attach(&request, excluded, &mut notes, has_ended);
        niceness.iter().for_each(|level| level.raise());
        attached
    };
    let attached = signals.follow_during(command, besides, prepare);
    let attached = match attached.unwrap_or_else(|error| (Err(error.into()), None)) {
        (Ok(attached), None) => attached,
        (_, Some(exit_status)) => return Ok(unwatched(exit_status, early.as_ref(), ENDED_BEFORE)),
        (Err(error), None) => {
            drop(early);
            warn(&mut notes, format!("the command runs unwatched: {}", describe_error(error.as_ref())));
            return Ok(unwatched(signals.follow(command).context(CANNOT_FOLLOW)?, None, NOT_POSSIBLE));
        }
    };
    let processes = match early {
        Some(early) => Some(early.into_processes()),
        None => processes_of(&request.config, guardian.as_ref(), began),
    };
    let watch = Watch {
        applications: vec![Application::new(Target::Command, &request.name(), command.as_raw() as u32)],
        words,
        ends: Ends::WithCommand { command, wait: false },
        guardian,
        processes,
        host: host::read(Path::new("/")),
        began,
        cpu,
    };
    watch.run(request, signals, attached, notes, || Ok(()))
}

/// Whether the setup is to be completed although the program uses all PEs.
fn is_urgent(early: Option<&Early>, elapsed: Duration) -> bool {
    let patient_for = match early {
        Some(early) if early.needs_samples() => Duration::ZERO,
        Some(early) if early.is_delayed() => PATIENT_WHILE_DELAYED_FOR,
        Some(_) | None => PATIENT_FOR,
    };
    elapsed >= patient_for
}

impl Begun {
    fn with(request: &SessionRequest, command: u32) -> Begun {
        let may_change = request.act && request.config.uses_delays();
        Begun {
            early: may_change.then(|| Early::new(command, &request.config)),
            guardian: None,
            began: Instant::now(),
            idle: IdleTime::begin(&Proc::own(), [command].into_iter()),
        }
    }

    /// Follows the command until the setup is due, and handles its waits meanwhile. Returns its exit status
    /// if it ended.
    fn follow(
        &mut self,
        signals: &mut Signals,
        command: Pid,
        notes: &mut Vec<String>,
    ) -> Result<Option<ExitStatus>> {
        loop {
            let due = self.early.as_mut().map_or(UNWATCHED, Early::look);
            if self.guardian.is_none() && self.early.as_ref().is_some_and(Early::has_teams) {
                self.start_guardian(notes);
            }
            let ended = signals.follow_for(command, due.min(LOOK_FOR_IDLE_PES))?;
            if ended.is_some() || self.setup_is_due(&Proc::own()) {
                return Ok(ended);
            }
        }
    }

    fn setup_is_due(&mut self, proc: &Proc) -> bool {
        let elapsed = self.began.elapsed();
        let idle = self.idle.take(proc);
        let has_room = idle.is_some_and(|idle| idle.pes >= IDLE_PES_MIN);
        is_urgent(self.early.as_ref(), elapsed) || (elapsed >= UNWATCHED && has_room)
    }

    /// Starts the guardian; without it, nothing is changed.
    fn start_guardian(&mut self, notes: &mut Vec<String>) {
        self.guardian = guard(notes);
        match &self.guardian {
            Some(guardian) => self.early.iter_mut().for_each(|early| early.may_write(guardian)),
            None => self.early = None,
        }
    }
}

/// Begins to watch the running processes, unless the command has ended meanwhile.
fn attach(
    request: &SessionRequest,
    excluded: Vec<u32>,
    notes: &mut Vec<String>,
    has_ended: &AtomicBool,
) -> Result<Attached> {
    let is_worth_it = || match has_ended.load(Ordering::Relaxed) {
        true => bail!("the command has ended"),
        false => Ok(()),
    };
    notes.extend(request.machine.model()?.topology.notes.iter().cloned());
    is_worth_it()?;
    attach_running(request, vec![Root::ChildrenOf(std::process::id())], excluded, notes, &is_worth_it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::machine::root;
    use std::fs;

    /// The setup of a command that began a while ago, on two PEs that were idle for some ticks since then.
    fn is_due_after(elapsed: Duration, idle_ticks: u64) -> bool {
        let stat = |idle: u64| format!("cpu0 900 0 0 {idle} 0 0 0 0 0 0\ncpu1 900 0 0 0 0 0 0 0 0 0\n");
        let directory = root(&[("proc/stat", &stat(0))]);
        let proc = Proc::of_machine(directory.path());
        let idle = IdleTime::begin(&proc, [std::process::id()].into_iter());
        let began = Instant::now().checked_sub(elapsed).unwrap();
        let mut begun = Begun { early: None, guardian: None, began, idle };
        fs::write(directory.path().join("proc/stat"), stat(idle_ticks)).unwrap();
        // Idle time is told only after some time.
        std::thread::sleep(LOOK_FOR_IDLE_PES);
        begun.setup_is_due(&proc)
    }

    #[test]
    fn the_setup_waits_for_an_idle_pe_and_not_for_ever() {
        // A day's ticks: as idle as can be, however long this test was kept from its PE.
        const IDLE: u64 = 8_640_000;
        let second = Duration::from_secs(1);
        assert!(!is_due_after(second, 0), "no PE is idle");
        assert!(is_due_after(second, IDLE));
        assert!(is_due_after(PATIENT_FOR, 0));
    }
}
