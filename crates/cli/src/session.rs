//! One watched run of a command: everything that `run` and `characterize` have in common.

use crate::recording_file::RecordingWriter;
use anyhow::{Context, Result};
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::policy::Policy;
use corewise_core::recording::{FORMAT, Header, VERSION};
use corewise_core::report::{Circumstances, Host, Report, ReportBuilder, Sources};
use corewise_core::topology::Topology;
use corewise_core::world::{World, control_loop};
use corewise_linux::binding::guardian::Guardian;
use corewise_linux::counters;
use corewise_linux::discovery::{self, Discovery, procfs::Proc};
use corewise_linux::launch::{self, LaunchError, Output, Waiting};
use corewise_linux::live::{LiveWorld, Parts};
use corewise_linux::privileged;
use corewise_linux::signals::Signals;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// What a session is asked to do.
pub struct Plan {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The machine.
    pub topology: Topology,
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// The engine's parameters.
    pub config: EngineConfig,
    /// The source of counters.
    pub counters: counters::Choice,
    /// The source of threads.
    pub discovery: discovery::Choice,
    /// Whether threads may be bound.
    pub act: bool,
    /// Where the command's standard output goes.
    pub output: Output,
    /// Where to write a recording.
    pub record: Option<PathBuf>,
}

/// How a session ended.
pub struct Ended {
    /// The report.
    pub report: Report,
    /// The command's exit status.
    pub exit_status: u8,
    /// What could not be written.
    pub failure: Option<anyhow::Error>,
}

/// Runs the command to its end. An error of type [`LaunchError`] means that the command did not start.
pub fn run(plan: Plan) -> Result<Ended> {
    let words: Vec<String> = plan.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let name = words[0].rsplit('/').next().unwrap_or(&words[0]).to_owned();
    let mut notes = plan.topology.notes.clone();
    let act = plan.act && !nested(&mut notes);
    if let Some(how) = privileged::gained(&plan.command[0]) {
        notes.push(format!(
            "`{}` gains privileges ({how}), so the kernel lets only root look into it: what it uses stays \
             unknown; run corewise as root to see it",
            words[0]
        ));
    }
    mend(&mut notes);
    // Before anything else is started: the guardian must be no child of the application's adopter.
    let guardian =
        if act { Some(Guardian::start().context("cannot start the guardian process")?) } else { None };
    nix::sys::prctl::set_child_subreaper(true).context("cannot become a child subreaper")?;
    let signals = Signals::open().context("cannot block signals")?;
    // Before the command's process is made, so that it is seen to be.
    let discovery = discover(plan.discovery, &mut notes)?;
    let waiting = launch::prepare(&plan.command, signals.inherited(), plan.output)?;
    let started = Instant::now();
    let (parts, sources) = attach(&plan, &waiting, discovery, signals, name.into(), &mut notes)?;
    let host = corewise_linux::host::read(Path::new("/"));
    let mut engine = Engine::new(plan.topology, plan.policy, plan.config);
    let mut world = LiveWorld::new(parts, guardian, started)?;
    waiting.start(&words[0])?;
    // Not before the command is known to exist: an older recording is lost by it.
    let mut recorder =
        plan.record.map(|path| RecordingWriter::create(path, &header(&engine, &words, &sources, &host)));
    let mut builder = ReportBuilder::default();
    let result = control_loop(&mut world, &mut engine, |observation, actions, engine| {
        builder.watch(observation, actions, engine);
        if let Some(recorder) = &mut recorder {
            recorder.write(observation);
        }
    });
    let failure = recorder.and_then(|recorder| recorder.finish().err());
    if let Err(error) = result {
        notes.push(format!("the run was no longer watched: {error}"));
        world.stop_watching();
    }
    notes.extend(world.troubles());
    let exit_status = finish(&mut world)?;
    let circumstances = Circumstances {
        command: words,
        dry_run: !act,
        evidence: "measured",
        host: Some(host),
        sources,
        rounds: world.rounds().to_vec(),
        peak_memory_bytes: corewise_linux::live::peak_memory_bytes(),
        notes,
    };
    Ok(Ended { report: builder.finish(&engine, circumstances), exit_status, failure })
}

/// Gives back what earlier runs have left bound.
fn mend(notes: &mut Vec<String>) {
    for note in corewise_linux::binding::book::mend() {
        // Nobody may be there to read it.
        let _ = writeln!(std::io::stderr(), "corewise: {note}");
        notes.push(note);
    }
}

fn discover(choice: discovery::Choice, notes: &mut Vec<String>) -> Result<Box<dyn Discovery>> {
    let options = discovery::Options {
        parent: std::process::id(),
        // The guardian is nobody's child.
        excluded: Vec::new(),
        proc: Proc::at("/proc"),
        choice,
    };
    let (discovery, fallbacks) = discovery::open(&options)?;
    notes.extend(fallbacks);
    Ok(discovery)
}

/// Opens the counters on the waiting child.
fn attach(
    plan: &Plan,
    waiting: &Waiting,
    discovery: Box<dyn Discovery>,
    signals: Signals,
    name: Arc<str>,
    notes: &mut Vec<String>,
) -> Result<(Parts, Sources)> {
    let pid = waiting.pid().as_raw() as u32;
    let (counters, fallbacks) =
        counters::open(plan.counters, pid, &plan.topology.allowed, discovery.clock_filter())?;
    notes.extend(fallbacks);
    if plan.policy.needs_fpu_usage() && counters.name() == "none" {
        notes.push(format!(
            "the policy {} needs FPU usage, which `--counters none` does not give: nothing is bound",
            plan.policy.name()
        ));
    }
    let sources = Sources { discovery: discovery.name().to_owned(), counters: counters.name() };
    Ok((Parts { name, command: waiting.pid(), discovery, counters, signals }, sources))
}

/// If watching failed, the command still runs to its end, unwatched.
fn finish(world: &mut LiveWorld) -> Result<u8> {
    loop {
        if let Some(status) = world.exit_status() {
            return Ok(status);
        }
        let tomorrow = world.now() + std::time::Duration::from_secs(86_400);
        world.wait_until(tomorrow)?;
    }
}

fn header(engine: &Engine, command: &[String], sources: &Sources, host: &Host) -> Header {
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        topology: engine.topology().clone(),
        command: command.to_vec(),
        interval_ns: engine.interval().as_nanos() as u64,
        discovery: sources.discovery.clone(),
        counters: sources.counters.clone(),
        host: Some(host.clone()),
    }
}

/// Whether an outer corewise already places this process tree. Two that bind the same threads would fight, so
/// the inner one only watches.
fn nested(notes: &mut Vec<String>) -> bool {
    let Some(outer) = corewise_linux::environment::outer_corewise() else { return false };
    notes.push(format!(
        "inside another `corewise run` (process {outer}), which places these threads: this one only watches"
    ));
    true
}

/// The exit status for an error: the shell's for a command that did not start, else 125.
pub fn exit_status_of(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<LaunchError>().map_or(125, LaunchError::exit_status)
}
