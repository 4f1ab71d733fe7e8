//! The options that several subcommands share.

use crate::{machine_file, profile_file, values};
use anyhow::{Context, Result, bail};
use corewise_core::classify::FPU_THRESHOLD;
use corewise_core::engine::EngineConfig;
use corewise_core::machine_model::MachineModel;
use corewise_core::policy::exec::{Peer, StartCommand};
use corewise_core::policy::{self, Policy, PolicySpec};
use corewise_core::topology::Topology;
use corewise_counters as counters;
use corewise_discovery as discovery;
use corewise_live::policy_command::PolicyCommand;
use corewise_rulebook::files;
use corewise_sys::{environment, input};
use corewise_topology as topology;
use corewise_topology::Source;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The shortest time between two decisions.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// What is decided, and how often.
#[derive(Debug, clap::Args)]
pub struct PolicyOptions {
    #[arg(long, value_name = "POLICY", help = policy_help(), long_help = policy_long_help())]
    policy: Option<PolicySpec>,
    /// For static-ipc: the parameter `ratios` from a file (TOML: thread name = ratio)
    #[arg(long, value_name = "FILE")]
    ipc_ratios: Option<PathBuf>,
    /// Time between two decisions, with its unit
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::at_least(INTERVAL_MIN))]
    interval: Duration,
    #[arg(long, value_name = "USAGE", value_parser = values::number(0.0..=1.0), help = fpu_threshold_help())]
    fpu_threshold: Option<f64>,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnOff {
    On,
    Off,
}

/// How threads are found and measured.
#[derive(Debug, Default, PartialEq, clap::Args)]
pub struct SourceOptions {
    /// Where FPU usage comes from: hardware counters, clock samples, or nowhere
    #[arg(long, value_name = counters::Choice::WORDS, default_value = "auto")]
    #[arg(value_parser = values::word::<counters::Choice>(counters::Choice::WORDS))]
    pub counters: counters::Choice,
    /// How threads are found: by BPF (needs privileges) or by polling /proc
    #[arg(long, value_name = discovery::Choice::WORDS, default_value = "auto")]
    #[arg(value_parser = values::word::<discovery::Choice>(discovery::Choice::WORDS))]
    pub discovery: discovery::Choice,
    /// See which programs run beside which, on CPUs that share a core, a cache or memory (needs BPF)
    #[arg(long)]
    pub beside: bool,
}

/// Running programs.
#[derive(Debug, Default, PartialEq, clap::Args)]
#[group(id = "targets", multiple = true)]
pub struct Targets {
    /// Running processes and their descendants
    #[arg(value_name = "PID", value_delimiter = ',', value_parser = values::pid)]
    pub pids: Vec<u32>,
    /// The processes of a control group (version 2) and its descendants, including processes that join it;
    /// its directory, or its path as in /proc/PID/cgroup
    #[arg(long = "cgroup", value_name = "PATH")]
    pub groups: Vec<String>,
    /// A running systemd unit (NAME.service, NAME.scope, NAME.slice), by its control group
    #[arg(long = "unit", value_name = "NAME")]
    pub units: Vec<String>,
}

impl Targets {
    /// Returns whether there are no targets.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.groups.is_empty() && self.units.is_empty()
    }
}

/// Where rules are read.
#[derive(Debug, clap::Args)]
pub struct RulesPlace {
    /// Read the rules in rules.toml and rules.d/*.toml of this directory instead of those that are installed;
    /// several times: the most important directory first
    #[arg(long, value_name = "DIR")]
    config_dir: Vec<PathBuf>,
}

/// Another machine than this one.
#[derive(Debug, clap::Args)]
pub struct OtherMachine {
    /// Another machine: a machine profile (.json), the machine of a scenario (.toml), one that hwloc exported
    /// (.xml) or that was recorded (.tar.gz, .tar.bz2, or a directory with its /sys and /proc), or one in a
    /// line ("pack:1 l2:4 core:2 pu:1")
    #[arg(long, value_name = "FILE|DIR|LINE")]
    pub machine: Option<String>,
}

/// This machine.
#[derive(Debug, Clone, clap::Args)]
pub struct ThisMachine {
    /// Schedule by how this machine behaves: a machine profile by `corewise calibrate`
    #[arg(long, value_name = "FILE", conflicts_with = "fpu_modules")]
    profile: Option<PathBuf>,
    /// These PEs are faster than the others, where the machine does not report it: 0-3, core:0 (docs/topo.md)
    #[arg(long, value_name = "CPUS", conflicts_with = "profile")]
    fast: Option<String>,
    /// With --fast: the slow PEs; they and the fast ones are all PEs
    #[arg(long, value_name = "CPUS", requires = "fast")]
    slow: Option<String>,
    #[command(flatten)]
    modules: FpuModules,
}

/// What is known of a machine beside what it says itself.
#[derive(Debug, Clone, clap::Args)]
pub struct FpuModules {
    /// Which cores share an FPU, for machines where corewise does not know it (TOML, see docs/topo.md)
    #[arg(long, value_name = "FILE")]
    fpu_modules: Option<PathBuf>,
}

impl PolicyOptions {
    /// Returns the policy; `commands` starts its command, if it has one.
    pub fn policy(&self, commands: StartCommand<'_>) -> Result<Box<dyn Policy>> {
        self.policy_or(PolicySpec::from(&policy::SPREAD), commands)
    }

    /// Returns the policy that the user names, else this one; `commands` starts its command, if it has one.
    pub fn policy_or(&self, other: PolicySpec, commands: StartCommand<'_>) -> Result<Box<dyn Policy>> {
        let policy = self.policy.clone().unwrap_or(other);
        let Some(file) = &self.ipc_ratios else { return Ok(policy.build(Some(commands))?) };
        let ratios = read_ratios(file)?.into_iter();
        let ratios = ratios.map(|(name, ratio)| (format!("ratios.{name}"), ratio.to_string())).collect();
        let with_ratios = policy.or(&ratios);
        Ok(with_ratios.with_context(|| format!("--ipc-ratios {}", file.display()))?.build(Some(commands))?)
    }

    /// Returns whether the user names a policy.
    pub fn names_policy(&self) -> bool {
        self.policy.is_some()
    }

    /// Returns whether the user asked for a placement by its policy's name.
    pub fn asks_for_placement(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.name() != policy::DEFAULT.name)
    }

    /// Returns whether nothing is asked for.
    pub fn is_default(&self) -> bool {
        let PolicyOptions { policy, ipc_ratios, interval, fpu_threshold } = self;
        let is_any = policy.is_some() || ipc_ratios.is_some() || fpu_threshold.is_some();
        !is_any && *interval == EngineConfig::default().interval
    }

    /// Returns the engine's parameters.
    pub fn config(&self) -> EngineConfig {
        let fpu_threshold = self.fpu_threshold.unwrap_or(FPU_THRESHOLD);
        EngineConfig { fpu_threshold, ..EngineConfig::with_interval(self.interval) }
    }

    /// Returns the threshold of FPU usage that the user gave, if any.
    pub fn fpu_threshold(&self) -> Option<f64> {
        self.fpu_threshold
    }
}

/// Starts the command of a policy in simulated or recorded time: a long time limit keeps a busy machine from
/// changing results.
pub fn start_patiently(command: &str) -> Result<Box<dyn Peer>, String> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let started = PolicyCommand::start(command, PATIENCE);
    started.map(|peer| Box::new(peer) as Box<dyn Peer>).map_err(|error| error.to_string())
}

fn fpu_threshold_help() -> String {
    format!(
        "FPU usage, 0 to 1, from which a thread counts as FPU-intensive [default: {FPU_THRESHOLD}, or in a \
         replay that of the run]"
    )
}

fn policy_help() -> String {
    format!(
        "The policy, or exec:COMMAND for one of your own; `corewise policies` lists them [default: {}]",
        policy::SPREAD.name
    )
}

fn policy_long_help() -> String {
    let plain = policy::KINDS.iter().filter(|kind| !kind.takes_command()).map(|kind| kind.name);
    format!(
        "The policy, with parameters where defaults do not do, such as pa:stay=500ms: {}, or exec:COMMAND \
         for a program of your own that decides (docs/policy-protocol.md); `corewise policies` explains them \
         [default: {}]",
        plain.collect::<Vec<_>>().join(", "),
        policy::SPREAD.name
    )
}

impl RulesPlace {
    /// Returns the directories. One that is named must be there; those of an installation need not be.
    pub fn directories(&self) -> Result<Vec<PathBuf>> {
        if let Some(missing) = self.config_dir.iter().find(|directory| !directory.is_dir()) {
            bail!("--config-dir {}: there is no such directory: check its path", missing.display());
        }
        Ok(if self.config_dir.is_empty() { files::directories() } else { self.config_dir.clone() })
    }
}

impl OtherMachine {
    /// Returns the model of the machine, if one is named.
    pub fn model(&self, modules: &FpuModules) -> Result<Option<MachineModel>> {
        let model = |name: &String| machine_file::model(name, modules.fpu_modules.as_deref());
        self.machine.as_ref().map(model).transpose()
    }
}

impl ThisMachine {
    /// Returns whether no option describes the machine.
    pub fn is_as_found(&self) -> bool {
        self.profile.is_none()
            && self.fast.is_none()
            && self.modules.fpu_modules.is_none()
            && environment::slow_pes().is_none()
    }

    /// Returns the model of this machine, with the PEs that may be used now.
    pub fn model(&self) -> Result<MachineModel> {
        let mut live = self.modules.live()?;
        if let Some(fast) = &self.fast {
            live = live.with_stated_kinds(fast, self.slow.as_deref())?;
        } else if let Some((pes, speed)) = environment::slow_pes() {
            live = live.with_slow_pes(&pes, speed);
        }
        let Some(path) = &self.profile else { return Ok(live.into()) };
        let profile = profile_file::read(path)?;
        if profile.reported.pes != live.pes {
            bail!(
                "{} is the profile of another machine: it has the PEs {}, this one has {}; make one \
                 here with `corewise calibrate`",
                path.display(),
                profile.reported.pes,
                live.pes
            );
        }
        let mut machine = profile_file::as_it_behaves(path, &profile);
        machine.topology.allowed = live.allowed;
        Ok(machine)
    }
}

impl FpuModules {
    /// Returns whether a file is named.
    pub fn is_given(&self) -> bool {
        self.fpu_modules.is_some()
    }

    /// Returns the topology of this machine.
    pub fn live(&self) -> Result<Topology> {
        Ok(topology::load(&Source::Live, self.fpu_modules.as_deref())?)
    }
}

fn read_ratios(file: &Path) -> Result<BTreeMap<String, f64>> {
    let shown = file.display();
    let text = input::read_text(file, input::DOCUMENT_MAX)
        .with_context(|| format!("cannot read the IPC ratios {shown}"))?;
    let ratios: BTreeMap<String, f64> = toml::from_str(&text)
        .with_context(|| format!("{shown} holds no IPC ratios: write lines such as povray = 1.8"))?;
    match ratios.iter().find(|(_, ratio)| !(ratio.is_finite() && **ratio > 0.0)) {
        Some((name, ratio)) => bail!("{shown}: the ratio {ratio} of {name} is not above 0"),
        None => Ok(ratios),
    }
}
