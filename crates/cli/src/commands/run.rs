//! `corewise run`: runs a command, watches its threads and places them.

use crate::options::{OnOff, PolicyOptions, RulesPlace, SourceOptions, Targets, ThisMachine};
use crate::outputs::{JsonOutput, OutputFile};
use crate::remedies::ASK;
use crate::session::attached;
use crate::session::team_size::{Subject, Teams};
use crate::session::{self, Ended, Knowledge, Machine, SessionRequest};
use crate::{report_file, values, whole_file};
use anyhow::{Result, bail};
use corewise_binding::actuators;
use corewise_core::engine::EngineConfig;
use corewise_core::policy::Claims;
use corewise_core::report::headline_of_unwatched;
use corewise_core::waits::WaitChanges;
use corewise_daemon::client;
use corewise_discovery::Extent;
use corewise_live::policy_command::PolicyCommand;
use corewise_render::report::closing;
use corewise_render::terminal;
use corewise_rulebook as rulebook;
use corewise_rules::{Fact, Matched};
use corewise_sys::launch::{Launch, LaunchError, Output};
use corewise_sys::{environment, proc};
use std::cell::Cell;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// Run a command and place its threads by what they use.
///
/// The command behaves as if it ran alone: corewise exits with its exit status (126: cannot be executed, 127:
/// not found, 125: corewise itself failed; if a signal kills the command, corewise ends by the same signal),
/// standard input and output belong to the command, and corewise writes to standard error. corewise exits
/// when the command does and restores every affinity mask, also of processes that are still running. If a
/// daemon runs that places the command, corewise leaves it to that, unless an option asks for more.
///
/// With --pid, --cgroup and --unit, running programs are watched and placed: each process and its
/// descendants, or the processes of a control group. They continue when corewise is stopped (Ctrl-C,
/// SIGTERM), with everything restored.
#[derive(Debug, clap::Args)]
// Its first free argument is the command.
#[command(mut_arg("pids", |pids| pids.long("pid")))]
pub struct Run {
    #[command(flatten)]
    policy: PolicyOptions,
    #[command(flatten)]
    sources: SourceOptions,
    #[command(flatten)]
    machine: ThisMachine,
    /// Decide and report, but bind nothing
    #[arg(long)]
    dry_run: bool,
    /// Write a report: FILE.json for scripts, FILE.html to look at, FILE.txt as a table
    #[arg(long, value_name = "FILE")]
    report: Vec<OutputFile>,
    /// Write a recording, for `corewise replay`
    #[arg(long, value_name = "FILE")]
    record: Option<OutputFile>,
    /// Also wait for processes that outlive the command
    #[arg(long, conflicts_with = "targets")]
    wait: bool,
    /// Instead of a command
    #[command(flatten)]
    targets: Targets,
    /// What counts as an application, with a parallelism of its own
    ///
    /// Each program that a shell or a job runner starts (the parts of one that another program starts are
    /// one), each process that executes a program, each service, container or desktop application as a whole
    /// (and elsewhere each program), or everything below the command, process or control group together
    #[arg(long, value_name = Extent::WORDS, default_value = "program")]
    #[arg(value_parser = values::word::<Extent>(Extent::WORDS))]
    applications: Extent,
    /// Detach from the processes after this time
    #[arg(long, value_name = "TIME", value_parser = values::any_time, requires = "targets")]
    duration: Option<Duration>,
    /// What to do when threads that busy-wait delay others
    ///
    /// off: nothing; spin: limit how long idle threads of OpenMP programs (GNU's libgomp) spin; turns: let
    /// programs that spin in other ways take turns; auto: both
    #[arg(long, value_name = WaitChanges::WORDS, default_value = "auto")]
    #[arg(value_parser = values::word_by(WaitChanges::WORDS, WaitChanges::from_word))]
    waits: WaitChanges,
    /// Start the command with thread teams of its fair share of the PEs (OMP_NUM_THREADS)
    ///
    /// A CPU quota and programs that run at that moment make it smaller; the command keeps that size, and all
    /// its children inherit it. On machines with fast and slow PEs also with what suits OpenMP loops there
    /// (OMP_PLACES, OMP_SCHEDULE; docs/team-size.md). Sums of floating-point numbers may be rounded
    /// differently
    #[arg(long, conflicts_with = "targets")]
    adapt_team: bool,
    #[command(flatten)]
    rules: RulesPlace,
    /// Try each placement on the running program, and keep it only if the program gets faster
    ///
    /// This takes a program whose progress can be measured (docs/guard.md). Likewise, changes of waits that
    /// make all programs under corewise slower together are taken back (docs/waits.md)
    #[arg(long, value_enum, value_name = "on|off", default_value = "on")]
    guard: OnOff,
    /// How the threads with a claim to fast PEs come first there, under policies for fast and slow PEs
    ///
    /// By a larger weight (weights), so that others may use a fast PE whenever they do not; or by keeping
    /// others on the slow PEs while they run (masks). By default weights, if they may be changed
    /// (CAP_SYS_NICE)
    #[arg(long, value_enum, value_name = "weights|masks")]
    claims: Option<ClaimsBy>,
    /// Watch the command itself, even if a daemon runs that would place it
    #[arg(long)]
    no_daemon: bool,
    /// Print no summary at the end
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    json: JsonOutput,
    /// The command and its arguments
    #[arg(required_unless_present = "targets", conflicts_with = "targets", trailing_var_arg = true)]
    #[arg(value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How claims to fast PEs are enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ClaimsBy {
    Weights,
    Masks,
}

impl Run {
    /// Returns how claims to fast PEs are enforced.
    fn claims(&self, policy: &str, notes: &mut Vec<String>) -> Result<Claims> {
        match self.claims {
            None if !Claims::are_made_by(policy) => Ok(Claims::default()),
            Some(ClaimsBy::Masks) => Ok(Claims::Masks),
            Some(ClaimsBy::Weights) | None if actuators::may_change_weights() => Ok(Claims::Weights),
            Some(ClaimsBy::Weights) => bail!(
                "--claims weights: changing weights back needs CAP_SYS_NICE; use --claims masks, or be root"
            ),
            None => {
                notes.push(format!(
                    "claims to fast PEs are enforced by masks, as weights may not be changed; {ASK}"
                ));
                Ok(Claims::Masks)
            }
        }
    }

    /// Returns the engine's parameters.
    fn config(&self, policy: &str, notes: &mut Vec<String>) -> Result<EngineConfig> {
        // Any seed will do: nobody tries to exploit the order of the epochs.
        let guard = (self.guard == OnOff::On && !self.dry_run).then(|| u64::from(std::process::id()));
        let claims = self.claims(policy, notes)?;
        Ok(EngineConfig { claims, waits: self.waits, guard, ..self.policy.config() })
    }

    /// Returns the files that are written.
    fn outputs(&self) -> impl Iterator<Item = &Path> {
        self.report.iter().chain(&self.record).map(|file| &**file).chain(self.json.file())
    }

    /// Fails now and not after a long run if an output could not be written.
    fn check_outputs(&self) -> Result<()> {
        self.json.check()?;
        self.report.iter().try_for_each(|path| report_file::check(path))?;
        self.record.iter().try_for_each(|path| whole_file::check_writable(path))
    }

    /// Returns whether nothing is asked for that a daemon does not give.
    fn may_leave_it_to_a_daemon(&self) -> bool {
        let Run {
            policy,
            sources,
            machine,
            dry_run: false,
            report,
            record: None,
            wait: false,
            targets,
            applications: Extent::Program,
            duration: None,
            waits: WaitChanges { spin: true, turns: true },
            adapt_team: false,
            rules: _,
            guard: OnOff::On,
            claims: None,
            no_daemon: false,
            quiet: _,
            json,
            command: _,
        } = self
        else {
            return false;
        };
        let is_default = policy.is_default() && *sources == SourceOptions::default() && machine.is_as_found();
        let has_output = !report.is_empty() || json.is_wanted();
        is_default && !has_output && targets.is_empty() && environment::outer_corewise().is_none()
    }

    /// Returns whether it starts a command, and may change how.
    fn may_change_command(&self) -> bool {
        !self.command.is_empty() && !self.dry_run && environment::outer_corewise().is_none()
    }

    /// Takes from the rules what holds for a command at its start, and returns notes for the report. Broken
    /// rules keep no command from running.
    fn take_up_rules(&mut self) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        let directories = self.rules.directories()?;
        if self.adapt_team || !self.may_change_command() {
            return Ok(notes);
        }
        match rulebook::files::read(&directories) {
            // To look for the user's name may take a network's time.
            Ok(rules) if rules.rules.iter().any(|rule| rule.settings.adapt_team) => {
                let facts = rulebook::facts::of_command(&self.command, rules.ask_for(Fact::BuildId));
                let Matched { rule, settings, .. } = rules.matching(&facts);
                self.adapt_team = settings.adapt_team;
                if let (Some(rule), true) = (rule, self.adapt_team) {
                    notes.push(format!("its teams are adapted by the rule `{}`", rule.name));
                }
            }
            Err(errors) if !self.quiet => terminal::message(format_args!("no rule holds: {errors}")),
            Ok(_) | Err(_) => {}
        }
        Ok(notes)
    }

    /// Executes the command in this process, if a daemon gives all that is asked for. Returns only if none
    /// does.
    fn leave_it_to_a_daemon(&self) -> Result<(), LaunchError> {
        if !self.may_leave_it_to_a_daemon() {
            return Ok(());
        }
        // Everything that may fail comes first.
        let launch = Launch::of(&self.command)?;
        match client::announce() {
            Ok(None) => Ok(()),
            Ok(Some(socket)) => {
                if !self.quiet {
                    let pid = std::process::id();
                    let socket = socket.display();
                    terminal::message(format_args!(
                        "the daemon at {socket} places it; `corewise status {pid}` tells what it does"
                    ));
                }
                Err(launch.become_it())
            }
            Err(why) => {
                if !self.quiet {
                    let why = terminal::describe_error(&why);
                    terminal::message(format_args!("watched without the daemon that runs: {why}"));
                }
                Ok(())
            }
        }
    }

    /// Runs the command; returns its exit status.
    pub fn execute(mut self) -> Result<ExitStatus> {
        let mut notes = self.take_up_rules()?;
        self.leave_it_to_a_daemon()?;
        self.check_outputs()?;
        let keeper = Cell::new(None);
        let policy = self.policy.policy(&|command| {
            let started = PolicyCommand::start(command, Duration::ZERO).map_err(|error| error.to_string())?;
            keeper.set(Some(started.keeper()));
            Ok(Box::new(started))
        })?;
        let chooses_teams = self.adapt_team && self.may_change_command();
        let is_placed = self.policy.asks_for_placement();
        let is_recorded =
            self.record.is_some() || self.sources.beside || !self.report.is_empty() || self.json.is_wanted();
        let config = self.config(policy.name(), &mut notes)?;
        let keep_descriptors = self.outputs().any(may_name_descriptor);
        let (machine, named) = (Machine::of(self.machine)?, is_placed.then(|| policy.name()));
        let subject = Subject { command: &self.command, machine: &machine, policy: named };
        let teams = if chooses_teams { Teams::choose(&subject, &mut notes) } else { Teams::default() };
        let request = SessionRequest {
            command: self.command,
            machine,
            act: !self.dry_run && (policy.name() != "default" || self.waits.any()),
            teams: teams.clone(),
            policy,
            policy_keeper: keeper.get(),
            config,
            sources: self.sources,
            applications: self.applications,
            output: Output::Own,
            keep_descriptors,
            record: self.record.as_deref().map(Path::to_path_buf),
            wait: self.wait,
            ready_first: is_placed || is_recorded || self.wait || keeper.get().is_some(),
        };
        let Ended { knowledge, exit_status, failure } = match self.targets.is_empty() {
            true => session::run(request)?,
            false => attached::run(request, &self.targets, self.duration)?,
        };
        let report = match knowledge {
            Knowledge::Report(mut report) => {
                report.waits = teams.added_to(report.waits);
                report.notes.append(&mut notes);
                report
            }
            Knowledge::Unwatched { why, waits, wall, cpu } => {
                if !self.quiet {
                    report_core_dump(exit_status);
                    let headline = headline_of_unwatched(&teams.added_to(*waits), why);
                    terminal::message(closing::of_unwatched(&headline, wall, cpu));
                }
                return Ok(exit_status);
            }
        };
        let said = self.json.say(&report, || {
            if !self.quiet {
                report_core_dump(exit_status);
                terminal::message(closing::of_run(&report));
            }
        });
        let written = self.report.iter().try_for_each(|path| report_file::write(path, &report)).and(said);
        match failure.map_or(written, Err) {
            // The command's own failure is more important, but ours is reported as well.
            Err(error) if !exit_status.success() => {
                terminal::message(terminal::describe_error(error.as_ref()));
                Ok(exit_status)
            }
            result => result.map(|()| exit_status),
        }
    }
}

/// Returns whether the path may be a descriptor that corewise was started with, such as `/dev/fd/3`.
fn may_name_descriptor(path: &Path) -> bool {
    path.starts_with("/dev") || proc::holds(path)
}

/// Reports the command's core dump. A shell reports only its own child, and corewise dies without a core
/// dump.
fn report_core_dump(status: ExitStatus) {
    if status.core_dumped() {
        terminal::message("the command dumped core");
    }
}
