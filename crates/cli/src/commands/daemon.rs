//! `corewise daemon`: watches and places all programs, until it is ended.

use crate::options::{PolicyOptions, RulesPlace, SourceOptions, Targets, ThisMachine};
use crate::session::team_size::Teams;
use crate::session::{self, Machine, SessionRequest};
use crate::values;
use anyhow::{Context, Result, anyhow, bail};
use corewise_binding::actuators;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::observe::Input;
use corewise_core::own_cost;
use corewise_core::policy::{ByRule, Claims, SPREAD};
use corewise_core::waits::WaitChanges;
use corewise_counters::descriptors::DescriptorLimit;
use corewise_daemon::treatments::{Shared, Treatments};
use corewise_daemon::{Clients, Daemon as Served, MetricsTo, log as daemon_log, place};
use corewise_discovery::Extent;
use corewise_rules::{Applications, Rules};
use corewise_sys::environment;
use corewise_sys::launch::Output;
use corewise_sys::standard_error;
use log::LevelFilter;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

const LEVELS: &str = "off|error|warn|info|debug";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Watch all programs and place their threads, until it is ended.
///
/// What `corewise run` does for one command, the daemon does for every program of the machine (as root) or of
/// this user, from the moment that each starts. `corewise status` asks it what it does. At its end, also by a
/// crash, everything is given back. Programs under a `corewise run` are left to that.
#[derive(Debug, clap::Args)]
pub struct Daemon {
    /// Without any, all programs
    #[command(flatten)]
    targets: Targets,
    /// Where clients ask [default: /run/corewise.socket, or daemon.socket in the user's runtime directory]
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    rules: RulesPlace,
    /// The share of the machine that the daemon itself may take, in percent of all PEs; above it, it looks
    /// rarer, and says so
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * own_cost::DEFAULT, value_parser = percent)]
    own_cost: f64,
    /// Decide and tell, but change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    metrics: MetricsOptions,
    /// The least important messages that are logged
    #[arg(long, value_name = LEVELS, default_value = "info")]
    #[arg(value_parser = values::word::<LevelFilter>(LEVELS))]
    log_level: LevelFilter,
    #[command(flatten)]
    policy: PolicyOptions,
    #[command(flatten)]
    sources: SourceOptions,
    #[command(flatten)]
    machine: ThisMachine,
}

#[derive(Debug, clap::Args)]
struct MetricsOptions {
    /// Serve metrics as OpenMetrics over HTTP at this address, path /metrics
    #[arg(long = "metrics", value_name = "ADDRESS:PORT", value_parser = values::address)]
    address: Option<SocketAddr>,
    /// Serve metrics at an address that other machines reach, too
    #[arg(long = "metrics-public", requires = "address")]
    public: bool,
    /// Write metrics to this file, for the node exporter's textfile collector
    #[arg(long = "metrics-file", value_name = "FILE.prom")]
    file: Option<PathBuf>,
}

impl MetricsOptions {
    fn checked(&self) -> Result<MetricsTo> {
        if let Some(address) = self.address.filter(|address| !address.ip().is_loopback() && !self.public) {
            bail!(
                "other machines may reach {address}, and metrics have no password: `--metrics 127.0.0.1:{}` \
                 serves this machine alone, `--metrics-public` all that reach it",
                address.port()
            );
        }
        Ok(MetricsTo { address: self.address, file: self.file.clone() })
    }
}

impl Daemon {
    /// Returns the engine's parameters: by the rules, else by the options.
    fn config(&self, rules: &Rules) -> EngineConfig {
        let wanted = &rules.daemon;
        // Where only some are guarded, the others say that they are not.
        let is_any_guarded =
            wanted.guard.unwrap_or(true) || rules.rules.iter().any(|rule| rule.settings.guard == Some(true));
        let config = self.policy.config();
        EngineConfig {
            claims: if actuators::may_change_weights() { Claims::Weights } else { Claims::Masks },
            guard: (!self.dry_run && is_any_guarded).then(|| u64::from(std::process::id())),
            // What the rules permit is part of how each process is treated.
            waits: if self.dry_run { WaitChanges::NONE } else { WaitChanges::ALL },
            own_cost: Some(self.own_cost / 100.0),
            interval: wanted.interval.unwrap_or(config.interval),
            ..config
        }
    }

    /// Runs until it is asked to end; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        // A reader of the log must not delay the end either.
        std::mem::forget(standard_error::never_wait());
        daemon_log::begin(self.log_level);
        // For clients, polling and counters. The daemon starts no program that would inherit it.
        DescriptorLimit::raise().context("cannot raise the limit of open files")?;
        let metrics = self.metrics.checked()?;
        let machine = Machine::of(self.machine.clone())?;
        let treatments = Treatments::read(self.rules.directories()?, machine.topology()?.clone())?;
        let wanted = treatments.rules().daemon.clone();
        let policy =
            self.policy.policy_or(wanted.policy.clone().unwrap_or_else(|| (&SPREAD).into()), &|_| {
                Err("a daemon takes no policy that is a command; `corewise run` does".to_owned())
            })?;
        if let Some(outer) = environment::outer_corewise() {
            bail!("inside `corewise run` (process {outer}), which places these threads: start it outside");
        }
        let socket = self.socket.clone().map_or_else(place::of_user, Ok).map_err(|why| anyhow!(why))?;
        let extent = match wanted.applications.unwrap_or_default() {
            Applications::Unit => Extent::Unit,
            Applications::Program => Extent::Program,
            Applications::Process => Extent::Process,
        };
        let config = self.config(treatments.rules());
        let (name, interval) = (policy.name().to_owned(), config.interval);
        let request = SessionRequest {
            command: Vec::new(),
            machine,
            policy: Box::new(ByRule::new(policy)),
            policy_keeper: None,
            config,
            sources: self.sources,
            applications: extent,
            act: !self.dry_run,
            teams: Teams::default(),
            output: Output::Own,
            record: None,
            wait: false,
            keep_descriptors: false,
            ready_first: true,
        };
        let treatments = Rc::new(RefCell::new(treatments));
        let shared = Box::new(Shared(Rc::clone(&treatments)));
        let acts = !self.dry_run;
        session::daemon::serve(request, &self.targets, shared, |sources, notes| {
            let rules = treatments.borrow().rules().rules.len();
            let served = Served::open(&socket, treatments, (sources, notes), acts, &metrics)?;
            log::info!(
                corewise_event = "ready", corewise_version = VERSION, corewise_policy = name.as_str(),
                corewise_rules = rules;
                "ready; `corewise status` asks at {}; version {VERSION}, policy {name}, rules: {rules}",
                socket.display()
            );
            // Nobody has to listen.
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
            let clients = Box::new(Clients::of(Rc::clone(&served))?);
            let mut interval = interval;
            Ok((clients as Box<_>, move |input: &Input, actions: &[_], engine: &Engine| {
                log_interval(&mut interval, input, engine);
                served.borrow_mut().take(input, actions, engine);
            }))
        })?;
        log::info!(corewise_event = "end"; "ended; everything was given back");
        Ok(0)
    }
}

/// Logs that the interval has changed because of what the daemon itself takes.
fn log_interval(last: &mut Duration, input: &Input, engine: &Engine) {
    let is_look = input.observation().is_some();
    if let Some(interval) = engine.own_interval().filter(|interval| is_look && interval != last) {
        let why = engine.looks_rarer().unwrap_or_else(|| "the own cost leaves room again".to_owned());
        let seconds = interval.as_secs_f64();
        log::warn!(
            corewise_event = "own_cost", corewise_interval = seconds;
            "looks every {seconds:.3} s: {why}"
        );
        *last = interval;
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().unwrap_or(f64::NAN);
    if percent > 0.0 && percent <= 100.0 {
        return Ok(percent);
    }
    Err("write a percentage above 0, up to 100".to_owned())
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn the_own_cost_is_a_percentage() {
        assert_eq!((percent("0.5"), percent("100")), (Ok(0.5), Ok(100.0)));
        assert!(["0", "-1", "101", "nan", "0.5%", ""].iter().all(|text| percent(text).is_err()));
    }
}
