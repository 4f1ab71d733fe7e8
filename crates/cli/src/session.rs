//! A watched run: the common part of `run` and `characterize`. Commands that start before they can be watched
//! ([`at_once`]) and running processes ([`attached`]) are variants of it.

use crate::commands::ThisMachine;
use crate::commands::doctor::ASK;
use anyhow::{Context, Result};
use corewise_binding::actuators::Actuators;
use corewise_binding::guardian::Guardian;
use corewise_binding::heartbeat::IfHung;
use corewise_binding::runtimes::{self, libgomp};
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::machine_model::MachineModel;
use corewise_core::observe::Target;
use corewise_core::policy::Policy;
use corewise_core::program;
use corewise_core::report::{Circumstances, Report, ReportBuilder, Sources, WaitsReport};
use corewise_core::topology::Topology;
use corewise_counters as counters;
use corewise_discovery as discovery;
use corewise_discovery::Root;
use corewise_discovery::followed::Followed;
use corewise_live::{Application, Ends, HotPlug, Processes};
use corewise_render::terminal::{describe_error, message};
use corewise_sys::affinity;
use corewise_sys::descriptors::leaving_free;
use corewise_sys::environment;
use corewise_sys::launch::{self, LaunchError, Output, Waiting};
use corewise_sys::privileged;
use corewise_sys::proc::Proc;
use corewise_sys::signals::Signals;
use corewise_topology as topology;
use corewise_topology::host;
use std::cell::{Cell, OnceCell};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::{Duration, Instant};

mod at_once;
pub mod attached;
mod command_cpu;
pub mod daemon;
mod sources;
pub mod team_size;
mod watch;

use command_cpu::CommandCpu;
use sources::{Attached, attach, discover};
use team_size::Teams;
use watch::Watch;

/// The parameters of a session.
pub struct SessionRequest {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The machine.
    pub machine: Machine,
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// The process that holds the policy's command, if it has one.
    pub policy_keeper: Option<u32>,
    /// The engine's parameters.
    pub config: EngineConfig,
    /// The source of counters.
    pub counters: counters::Choice,
    /// The source of threads.
    pub discovery: discovery::Choice,
    /// What an application consists of.
    pub applications: discovery::Extent,
    /// Whether threads may be bound.
    pub act: bool,
    /// The thread teams that the command is started with.
    pub teams: Teams,
    /// Where the command's standard output goes.
    pub output: Output,
    /// Where to write a recording, if requested.
    pub record: Option<PathBuf>,
    /// Whether processes that outlive the command are followed to their end.
    pub wait: bool,
    /// Whether the descriptors that corewise was started with stay open in it.
    pub keep_descriptors: bool,
    /// Whether everything must be ready before the command starts, because its first instructions will be
    /// part of a report, or the user asked for its placement.
    pub ready_first: bool,
}

/// The machine that corewise runs on, loaded on first use.
pub struct Machine {
    options: ThisMachine,
    model: OnceCell<MachineModel>,
}

impl Machine {
    /// Creates it; files about the machine are read at once.
    pub fn of(options: ThisMachine) -> Result<Machine> {
        let is_as_found = options.is_as_found();
        let machine = Machine { options, model: OnceCell::new() };
        if !is_as_found {
            machine.model()?;
        }
        Ok(machine)
    }

    /// Returns what notices PEs that come online, besides those that are online now.
    fn hot_plug(&self) -> HotPlug {
        let options = self.options.clone();
        let known = self.model.get().map_or_else(affinity::online_pes, |model| model.topology.pes.clone());
        HotPlug::new(known, move || options.model().map_err(|error| format!("{error:#}")))
    }

    /// Returns its topology.
    pub fn topology(&self) -> Result<&Topology> {
        Ok(&self.model()?.topology)
    }

    fn model(&self) -> Result<&MachineModel> {
        if let Some(model) = self.model.get() {
            return Ok(model);
        }
        let model = self.options.model()?;
        withheld(&model.topology).iter().for_each(message);
        Ok(self.model.get_or_init(|| model))
    }

    /// Returns the model, if some of these PEs are of another kind than the others.
    fn of_several_kinds(&self, pes: &CpuSet) -> Option<&MachineModel> {
        let model = if self.is_of_one_kind() { None } else { self.model().ok() }?;
        let kinds = model.topology.kinds.iter().filter(|kind| kind.pes.intersects(pes));
        (kinds.count() > 1).then_some(model)
    }

    /// Returns whether its PEs are of one kind, by what is known instantly.
    fn is_of_one_kind(&self) -> bool {
        self.model.get().map_or_else(topology::is_of_one_kind, |model| model.topology.kinds.len() <= 1)
    }
}

impl SessionRequest {
    /// Returns whether the command starts before anything watches it. (Without BPF, clocks of all its threads
    /// are only available from its start on.)
    fn begins_at_once(&self) -> bool {
        let bpf = self.discovery == discovery::Choice::Auto && discovery::bpf::seems_permitted();
        bpf && !self.ready_first && !is_demanded(self)
    }

    /// Returns the variables that the command gets.
    fn variables(&self, notes: &mut Vec<String>) -> Vec<(&'static str, String)> {
        let planted = libgomp::PLANTED.filter(|_| self.config.mitigations.spin);
        let spin_count = planted.map(|value| (libgomp::VARIABLE, value.to_string()));
        notes.extend(spin_count.iter().map(|(name, value)| {
            format!(
                "the command has {name}={value}, by which its spin count is found (--waits off avoids it)"
            )
        }));
        [environment::placed()].into_iter().chain(spin_count).chain(self.teams.variables()).collect()
    }

    fn words(&self) -> Vec<String> {
        self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Returns the application's name: that of its program.
    fn name(&self) -> String {
        program::name_of(&self.words()).unwrap_or_default()
    }
}

/// The result of a session.
pub struct Ended {
    /// What is known of it.
    pub knowledge: Knowledge,
    /// How the command ended.
    pub exit_status: ExitStatus,
    /// An error about what could not be written.
    pub failure: Option<anyhow::Error>,
}

/// What is known of a run.
pub enum Knowledge {
    /// Its report.
    Report(Box<Report>),
    /// The command was not watched.
    Unwatched {
        /// Why not.
        why: &'static str,
        /// What was done about its waits.
        waits: Box<WaitsReport>,
        /// The duration of the run.
        wall: Duration,
        /// The CPU time of the command, if it is known.
        cpu: Option<Duration>,
    },
}

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
    let mitigations = &mut request.config.mitigations;
    mitigations.spin &= guardian.is_some() && one_kind && !user_decides_waits(&mut notes);
    mitigations.turns &= guardian.is_some();
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
        Err(error) if is_demanded(&request) => Err(error),
        Err(error) => {
            let why = describe_error(error.as_ref());
            warn(&mut notes, format!("the command runs unwatched: {why}; {ASK}"));
            follow(request, waiting, signals, notes)
        }
    }
}

/// Runs `open`, which may open as many descriptors as it can, and keeps some free: to start the command, to
/// read about threads, and to write the output.
fn with_descriptors_left<T>(count: usize, open: impl FnOnce() -> Result<T>) -> Result<T> {
    leaving_free(count, open).context("too few descriptors may be open (`ulimit -n`)")?
}

fn note_privileges(request: &SessionRequest, notes: &mut Vec<String>) {
    if let Some(how) = privileged::gained(&request.command[0]) {
        notes.push(format!(
            "`{}` gains privileges ({how}), so the kernel lets only root look into it: what it uses stays \
             unknown; run corewise as root to see it",
            request.command[0].to_string_lossy()
        ));
    }
}

/// Starts the guardian; without it, nothing is bound.
fn guard(if_hung: IfHung, notes: &mut Vec<String>) -> Option<Guardian> {
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
fn user_decides_waits(notes: &mut Vec<String>) -> bool {
    let wish = runtimes::wish();
    notes.extend(wish.map(|name| format!("waits are not changed: {name} sets how idle threads wait")));
    wish.is_some()
}

/// Returns whether the user explicitly requires the source that is not available.
fn is_demanded(request: &SessionRequest) -> bool {
    request.counters.is_demanded() || request.discovery == discovery::Choice::Bpf
}

/// Returns a note about a kind of PEs of which none may be used.
fn withheld(topology: &Topology) -> Option<String> {
    let Topology { kinds, allowed, .. } = topology;
    let kind = kinds.iter().find(|kind| kinds.len() > 1 && !kind.pes.intersects(allowed))?;
    Some(format!(
        "the {} PEs {} may not be used: the affinity mask or the cpuset that corewise was started with \
         allows {allowed} only (taskset -p $$ shows it)",
        kind.name, kind.pes
    ))
}

fn warn(notes: &mut Vec<String>, text: String) {
    message(&text);
    notes.push(text);
}

/// Returns the children that this process had before it executed corewise.
fn children() -> Vec<u32> {
    // Without `/proc`, nothing is watched anyway.
    Proc::own().children(std::process::id()).unwrap_or_default()
}

/// Returns the processes of corewise and its helpers.
fn own_processes(
    request: &SessionRequest,
    signals: &Signals,
    guardian: Option<&Guardian>,
) -> impl Iterator<Item = u32> + use<> {
    let witness = signals.witness().map(|pid| pid.as_raw() as u32);
    let others = request.policy_keeper.into_iter().chain(guardian.map(|guardian| guardian.process().id));
    [std::process::id()].into_iter().chain(witness).chain(others.collect::<Vec<_>>())
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
        record: request.record,
    };
    let engine = Engine::new(request.machine.model()?.clone(), request.policy, request.config);
    let start = || {
        waiting.start(&words[0])?;
        Ok(())
    };
    watch.run(engine, signals, attached, notes, start)
}

/// Returns what changes threads; without a guardian it changes nothing.
fn actuators(
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
fn processes_of(config: &EngineConfig, guardian: Option<&Guardian>, began: Instant) -> Option<Processes> {
    guardian.filter(|_| config.changes_waits()).map(|_| Processes::new(began))
}

/// Restores what earlier runs have left bound.
fn recover(notes: &mut Vec<String>) {
    corewise_binding::recovery::recover().into_iter().for_each(|note| warn(notes, note));
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

fn circumstances(command: Vec<String>, dry_run: bool, sources: Sources, notes: Vec<String>) -> Circumstances {
    Circumstances {
        command,
        dry_run,
        evidence: "measured",
        host: None,
        sources,
        rounds: Vec::new(),
        command_cpu: None,
        // Not the maximum of `getrusage`, which begins with that of the process that started this one.
        peak_memory_bytes: Proc::own().own_status().bytes("VmHWM"),
        notes,
    }
}

/// Returns whether an outer corewise already places this process tree. Two that bind the same threads would
/// fight, so the inner one only watches.
fn nested(notes: &mut Vec<String>) -> bool {
    let Some(outer) = environment::outer_corewise() else { return false };
    notes.push(format!(
        "inside another `corewise run` (process {outer}), which places these threads: this one only watches"
    ));
    true
}

/// Returns an exit status with this code.
pub fn exited(code: u8) -> ExitStatus {
    ExitStatus::from_raw(i32::from(code) << 8)
}

/// Returns the exit status for an error: the shell's for a command that did not start, else 125.
pub fn exit_status_of(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<LaunchError>().map_or(125, LaunchError::exit_status)
}
