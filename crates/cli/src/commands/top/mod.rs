//! `corewise top`: a live display of who runs where, and why.

use super::replay::PLACEMENT_ALONE;
use crate::options::{PolicyOptions, SourceOptions, Targets, ThisMachine, start_patiently};
use crate::recording_file;
use crate::session::attached;
use crate::session::team_size::Teams;
use crate::session::{Machine, SessionRequest};
use crate::values;
use anyhow::{Result, bail};
use beside::Beside;
use corewise_core::engine::EngineConfig;
use corewise_core::policy::{DEFAULT, PolicySpec};
use corewise_core::recording::{Question, Recording};
use corewise_core::report::Sources;
use corewise_core::world::control_loop;
use corewise_discovery::Extent;
use corewise_live::policy_command::PolicyCommand;
use corewise_render::terminal;
use corewise_render::terminal::live::{self, Color, Look};
use corewise_render::top::About;
use corewise_sys::launch::Output;
use display::{Display, Looker, Shared};
use once::{Last, Once};
use replayed::Played;
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

mod beside;
mod display;
mod once;
mod replayed;

/// Show who runs where, and why, live.
///
/// Draws the PEs as what they share, with the programs and threads that run on them: what they use, how
/// parallel they are, and where a policy has them. It only watches and changes nothing; with --policy it
/// shows what that policy would do. Without targets it shows all programs of this user, and to root all of
/// the machine. Press ? for help.
#[derive(Debug, clap::Args)]
pub struct Top {
    /// Without any, all programs
    #[command(flatten)]
    targets: Targets,
    /// Show a recording by `corewise run --record` instead, at its own speed
    #[arg(long, value_name = "FILE", conflicts_with = "targets")]
    replay: Option<PathBuf>,
    /// Print one screen as text and end: after one interval, or at the end of a recording
    #[arg(long)]
    once: bool,
    /// Whether there are colours; auto: on a terminal that has them, unless NO_COLOR is set
    #[arg(long, value_enum, value_name = "auto|always|never", default_value = "auto")]
    color: When,
    /// What counts as a program: each that a shell or a job runner starts (the parts of one that another
    /// program starts are one), each process that executes a program, each service, container or desktop
    /// application as a whole (and elsewhere each program), or everything below a process or control group
    /// together
    #[arg(long, value_name = Extent::WORDS, default_value = "program")]
    #[arg(value_parser = values::word::<Extent>(Extent::WORDS))]
    applications: Extent,
    #[command(flatten)]
    policy: PolicyOptions,
    #[command(flatten)]
    sources: SourceOptions,
    #[command(flatten)]
    machine: ThisMachine,
}

/// When there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

impl Top {
    /// Shows it until the user ends it; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        if !self.once && !live::is_there() {
            bail!(
                "corewise top draws on a terminal, but standard input or output is none: \
                 `corewise top --once` prints one screen as text, with --replay FILE that of a recording"
            );
        }
        let color = match self.color {
            When::Auto => Color::Auto,
            When::Always => Color::Always,
            When::Never => Color::Never,
        };
        let look = live::look(color, |name| std::env::var(name).ok());
        match self.replay.clone() {
            Some(file) => self.replay(&file, look),
            None => self.watch(look),
        }?;
        Ok(0)
    }

    fn watch(self, look: Look) -> Result<()> {
        let targets = self.targets;
        let what = match (targets.is_empty(), nix::unistd::geteuid().is_root()) {
            (true, true) => "all of this machine",
            (true, false) => "all of this user",
            (false, _) => "as named",
        };
        // With a policy named it shows what that one would do, not what the daemon's does.
        let asks_daemon = !self.policy.names_policy();
        let keeper = Cell::new(None);
        let policy = self.policy.policy_or(PolicySpec::from(&DEFAULT), &|command| {
            let started = PolicyCommand::start(command, Duration::ZERO).map_err(|error| error.to_string())?;
            keeper.set(Some(started.keeper()));
            Ok(Box::new(started))
        })?;
        let request = SessionRequest {
            command: Vec::new(),
            machine: Machine::of(self.machine)?,
            policy,
            policy_keeper: keeper.get(),
            config: EngineConfig { guard: None, ..self.policy.config() },
            sources: self.sources,
            applications: self.applications,
            act: false,
            teams: Teams::default(),
            output: Output::Own,
            record: None,
            wait: false,
            keep_descriptors: false,
            ready_first: true,
        };
        let about =
            |sources, notes| About { what: what.to_owned(), sources, look, notes, replayed_seconds: None };
        if self.once {
            let printed = Rc::new(RefCell::new(String::new()));
            let shown = Rc::clone(&printed);
            attached::watch_only(request, &targets, |sources, notes| {
                Ok(Once::begin(about(sources, notes), shown, Beside::of_live(asks_daemon)))
            })?;
            return Ok(terminal::print(&printed.borrow())?);
        }
        let mut display = None;
        let ended = attached::watch_only(request, &targets, |sources, notes| {
            let opened = Display::open(about(sources, notes), Beside::of_live(asks_daemon))?;
            let shared: Shared = Rc::new(RefCell::new(opened));
            display = Some(Rc::clone(&shared));
            let see = Rc::clone(&shared);
            let take =
                move |input: &_, actions: &[_], engine: &_| see.borrow_mut().take(input, actions, engine);
            Ok((Box::new(Looker::new(shared)) as Box<_>, take))
        });
        // The terminal is given back before anything is said.
        let failure = display.and_then(|display| display.borrow_mut().close());
        ended?;
        failure.map_or(Ok(()), Err)
    }

    /// Shows a recording. What the run decided is replayed unchanged if no other policy is named.
    fn replay(self, file: &Path, look: Look) -> Result<()> {
        if !self.machine.is_as_found() {
            bail!("--profile, --fast and --fpu-modules describe this machine; a recording has its own");
        }
        let recording = recording_file::read(file)?;
        let mut about = about_recording(&recording, file, look);
        let policy = self.policy.policy_or(policy_of(&recording), &start_patiently)?;
        let question = Question { machine: None, policy, fpu_threshold: self.policy.fpu_threshold() };
        let mut replay = recording.replay(question);
        about.notes.extend((!replay.is_of_the_run).then(|| PLACEMENT_ALONE.to_owned()));
        if self.once {
            let mut last = Last::default();
            let Ok(()) = control_loop(&mut replay.world, &mut replay.engine, |input, actions, engine| {
                last.take(input, actions, engine);
            });
            return Ok(terminal::print(&last.text(&about))?);
        }
        let shared = Rc::new(RefCell::new(Display::open(about, Beside::default())?));
        let played = Played::new(replay.world, Rc::clone(&shared)).map(|mut played| {
            let clock = played.clock();
            let Ok(()) = control_loop(&mut played, &mut replay.engine, |input, actions, engine| {
                clock.borrow_mut().play_until(input.at());
                shared.borrow_mut().take(input, actions, engine);
            });
            clock.borrow_mut().play_on();
        });
        let failure = shared.borrow_mut().close();
        played?;
        failure.map_or(Ok(()), Err)
    }
}

/// Returns the policy of a recorded run. The command of one is not started: the author of the file would
/// decide what runs here.
fn policy_of(recording: &Recording) -> PolicySpec {
    let name = recording.header.decider.as_ref().map(|decider| decider.policy.parse::<PolicySpec>());
    let takes_command = |spec: &PolicySpec| {
        corewise_core::policy::PolicyKind::find(spec.name()).is_ok_and(|kind| kind.takes_command())
    };
    let of_run = name.and_then(Result::ok).filter(|spec| !takes_command(spec));
    of_run.unwrap_or_else(|| PolicySpec::from(&DEFAULT))
}

fn about_recording(recording: &Recording, file: &Path, look: Look) -> About {
    let header = &recording.header;
    let mut notes =
        vec![format!("this is the recording {} of: {}", file.display(), header.command.join(" "))];
    notes.extend(recording.truncated.then(|| "the recording breaks off".to_owned()));
    About {
        what: "replayed".to_owned(),
        sources: Sources { discovery: header.discovery.clone(), counters: header.counters.clone() },
        look,
        notes,
        replayed_seconds: Some(recording.inputs.last().map_or(0.0, |last| last.at().as_secs_f64())),
    }
}
