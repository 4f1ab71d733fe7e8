//! `corewise daemon`: watches and places all programs, until it is ended.

use super::{PolicyOptions, SourceOptions, ThisMachine};
use crate::daemon::consent::{Consents, Shared};
use crate::daemon::{Clients, Daemon as Served, socket_of_user};
use crate::rules_files;
use crate::session::attached::Targets;
use crate::session::team_size::Teams;
use crate::session::{self, Machine, SessionRequest};
use anyhow::{Result, anyhow, bail};
use corewise_binding::actuators;
use corewise_core::engine::EngineConfig;
use corewise_core::policy::{ByRule, Claims, SPREAD};
use corewise_core::waits::Mitigations;
use corewise_discovery::Extent;
use corewise_render::terminal;
use corewise_rules::Applications;
use corewise_sys::environment;
use corewise_sys::launch::Output;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

/// Watch all programs and place their threads, until it is ended.
///
/// What `corewise run` does for one command, the daemon does for every program of the machine (as root) or of
/// this user, from the moment that each starts. `corewise status` asks it what it does. At its end, also by a
/// crash, everything is given back. Programs under a `corewise run` are left to that.
#[derive(Debug, clap::Args)]
pub struct Daemon {
    /// Only these processes and their descendants
    #[arg(value_name = "PID", value_delimiter = ',')]
    pids: Vec<u32>,
    /// Only the processes of a control group (version 2) and its descendants, including those that join it
    #[arg(long, value_name = "PATH")]
    cgroup: Vec<String>,
    /// Only a running systemd unit (NAME.service, NAME.scope, NAME.slice)
    #[arg(long, value_name = "NAME")]
    unit: Vec<String>,
    /// Where clients ask [default: /run/corewise.socket, or daemon.socket in the user's runtime directory]
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Read the rules in rules.toml and rules.d/*.toml of this directory instead of those that are installed;
    /// several times: the most important directory first
    #[arg(long, value_name = "DIR")]
    config_dir: Vec<PathBuf>,
    /// Decide and tell, but change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    policy: PolicyOptions,
    #[command(flatten)]
    sources: SourceOptions,
    #[command(flatten)]
    machine: ThisMachine,
}

impl Daemon {
    /// Runs until it is asked to end; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        let machine = Machine::of(self.machine)?;
        let directories = match self.config_dir.is_empty() {
            true => rules_files::directories(),
            false => self.config_dir,
        };
        let consents = Consents::read(directories, machine.topology()?.clone())?;
        let wanted = consents.rules().daemon.clone();
        let policy = self.policy.policy_or(wanted.policy.unwrap_or_else(|| (&SPREAD).into()), &|_| {
            Err("a daemon takes no policy that is a command; `corewise run` does".to_owned())
        })?;
        if let Some(outer) = environment::outer_corewise() {
            bail!("inside `corewise run` (process {outer}), which places these threads: start it outside");
        }
        let socket = self.socket.map_or_else(socket_of_user, Ok).map_err(|why| anyhow!(why))?;
        let claims = if actuators::may_change_weights() { Claims::Weights } else { Claims::Masks };
        let extent = match wanted.applications.unwrap_or_default() {
            Applications::Unit => Extent::Unit,
            Applications::Program => Extent::Program,
        };
        // Where only some are guarded, the others say that they are not.
        let is_any_guarded = wanted.guard.unwrap_or(true)
            || consents.rules().rules.iter().any(|rule| rule.settings.guard == Some(true));
        let guards = !self.dry_run && is_any_guarded;
        let guard = guards.then(|| u64::from(std::process::id()));
        let waits = wanted.waits.unwrap_or(Mitigations { spin: true, turns: true });
        let mitigations = if self.dry_run { Mitigations::default() } else { waits };
        let config = EngineConfig { claims, mitigations, guard, ..self.policy.config() };
        let interval = wanted.interval.unwrap_or(config.interval);
        let request = SessionRequest {
            command: Vec::new(),
            machine,
            policy: Box::new(ByRule::new(policy)),
            policy_keeper: None,
            config: EngineConfig { interval, ..config },
            counters: self.sources.counters,
            discovery: self.sources.discovery,
            applications: extent,
            act: !self.dry_run,
            teams: Teams::default(),
            output: Output::Own,
            record: None,
            wait: false,
            keep_descriptors: false,
            ready_first: true,
        };
        let targets = Targets { pids: self.pids, groups: self.cgroup, units: self.unit };
        let consents = Rc::new(RefCell::new(consents));
        let consent = Box::new(Shared(Rc::clone(&consents)));
        session::daemon::serve(request, &targets, consent, |sources, notes| {
            let served = Served::open(&socket, consents, sources, notes)?;
            terminal::message(format_args!("ready; `corewise status` asks at {}", socket.display()));
            // Nobody has to listen.
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
            let clients = Box::new(Clients::of(Rc::clone(&served))?);
            Ok((clients as Box<_>, move |input: &_, actions: &[_], engine: &_| {
                served.borrow_mut().take(input, actions, engine);
            }))
        })?;
        Ok(0)
    }
}
