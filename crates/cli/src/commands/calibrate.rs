//! `corewise calibrate`: measure what this machine's processing elements share.

use crate::machine_file;
use crate::outputs::OutputFile;
use crate::profile_views::Views;
use crate::{values, whole_file};
use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use corewise_bench::conditions::Refusal;
use corewise_bench::executor::{LiveExecutor, Options};
use corewise_bench::kernels;
use corewise_bench::nas::npb;
use corewise_core::calibrate::{Executor, Progress, Settings, calibrate, discover::discover};
use corewise_core::kernels::{Kernel, Nas, ProblemClass};
use corewise_core::profile::{Circumstances, Evidence, MachineProfile, parse, to_json};
use corewise_core::topology::Topology;
use corewise_render::terminal;
use corewise_render::terminal::progress::ProgressBar;
use corewise_sim::bench::{Conditions, ModelMachine};
use corewise_sim::machine::Machine;
use corewise_sys::{input, signals};
use corewise_topology as topology;
use corewise_topology::Source;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Consecutive quiet samples after which a machine counts as quiet: a single one may fall between two bursts
/// of work.
const QUIET_LOOKS: u32 = 4;

/// The name, beside the default place, of a profile that must not replace the one there.
const PARTIAL: &str = "profile-partial.json";

/// The shortest time for a calibration.
const BUDGET_MIN: Duration = Duration::from_secs(1);

/// The exit status after Ctrl-C, as in a shell.
const INTERRUPTED: u8 = 130;

/// Measure what the PEs of this machine share, and what that gains or costs.
///
/// Writes a machine profile, for `--profile` of run and characterize and `--machine` of replay, what-if
/// and topo, and prints a summary.
/// The machine should have nothing else to do meanwhile. Ctrl-C ends it early: what was measured until then
/// is written, and the exit status is 130.
#[derive(Debug, clap::Args)]
pub struct Calibrate {
    /// A first look: at most a minute instead of ten, fewer sizes, wider intervals
    #[arg(long)]
    quick: bool,
    /// Also measure which PEs share what, without trusting what the machine reports
    #[arg(long)]
    discover: bool,
    /// End after this time at the latest, such as 90s or 5min
    #[arg(long, value_name = "TIME", value_parser = values::at_least(BUDGET_MIN))]
    budget: Option<Duration>,
    /// Where to write the profile [default: $XDG_DATA_HOME/corewise/profile.json; nowhere with --machine]
    #[arg(long, short, value_name = "FILE")]
    output: Option<OutputFile>,
    #[command(flatten)]
    views: Views,
    /// Measure only these PEs: 0-3, core:0-1, l3:0 (see docs/topo.md)
    #[arg(long, value_name = "LIST")]
    pes: Option<String>,
    /// Only these kernels, separated by commas, and no NAS benchmarks but those of --npb
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = kernels())]
    #[arg(hide_possible_values = true)]
    kernels: Vec<Kernel>,
    /// Run the NPB binaries of DIR (bt.A.x, …) instead of the built-in NAS benchmarks
    #[arg(long, value_name = "DIR", conflicts_with = "machine")]
    npb: Option<PathBuf>,
    /// Measure a machine that has other work to do, as it is
    #[arg(long, conflicts_with = "machine")]
    under_load: bool,
    /// Wait until the machine has nothing else to do, then measure
    #[arg(long, conflicts_with_all = ["machine", "under_load"])]
    when_quiet: bool,
    /// Measure with real-time scheduling, so that ordinary threads do not disturb
    #[arg(long, conflicts_with = "machine")]
    realtime: bool,
    /// The seed of the order of measuring
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::whole(0..=u64::MAX))]
    seed: u64,
    /// Calibrate a model of another machine instead: a machine profile (.json), the machine of a scenario
    /// (.toml), one that hwloc exported or that was recorded, or one in a line ("pack:1 l2:4 core:2 pu:1")
    #[arg(long, value_name = "FILE|DIR|LINE")]
    machine: Option<String>,
    /// The model's noise: relative standard deviation of one measurement
    #[arg(long, value_name = "SHARE", requires = "machine", default_value_t = 0.02)]
    #[arg(value_parser = values::number(0.0..=1.0))]
    noise: f64,
}

impl Calibrate {
    /// Measures, writes and prints; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        let output = self.output()?;
        // Fail now and not after ten minutes of measuring.
        output.iter().try_for_each(|path| whole_file::check_writable(path))?;
        self.views.check()?;
        let settings = self.settings()?;
        let result = match &self.machine {
            Some(machine) => Some(self.simulate(machine, settings)?),
            None => self.measure(settings)?,
        };
        let Some((profile, interrupted)) = result else { return Ok(INTERRUPTED) };
        // Only the default place has not been chosen by the user.
        let output = output.map(|path| if self.output.is_some() { path } else { place(path, &profile) });
        // Write the other files even if one fails.
        let written =
            output.iter().try_for_each(|path| whole_file::write(path, to_json(&profile).as_bytes()));
        let shown = self.views.write(&profile).and(self.views.print(&profile));
        written?;
        shown?;
        if let Some(path) = output {
            terminal::message(format_args!("the machine profile is {}", path.display()));
        }
        Ok(if interrupted { INTERRUPTED } else { 0 })
    }

    /// Returns where the profile goes. A model's profile has no default path, so that it is never mistaken
    /// for this machine's.
    fn output(&self) -> Result<Option<PathBuf>> {
        if self.output.is_some() || self.machine.is_some() {
            return Ok(self.output.as_deref().map(Path::to_path_buf));
        }
        let path = default_path()?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(directory).with_context(|| {
            format!(
                "cannot make the directory {}: say where to write with --output FILE",
                directory.display()
            )
        })?;
        Ok(Some(path))
    }

    fn settings(&self) -> Result<Settings> {
        let mut settings = if self.quick { Settings::quick() } else { Settings::default() };
        settings.seed = self.seed;
        settings.budget = self.budget.unwrap_or(settings.budget);
        if !self.kernels.is_empty() {
            settings.kernels = self.kernels.clone();
            settings.nas.clear();
        }
        if let Some(directory) = &self.npb {
            settings.nas = binaries(directory)?;
            settings.nas_own = false;
        }
        Ok(settings)
    }

    /// Measures this machine; returns `None` if the wait for a quiet machine was interrupted.
    fn measure(&self, settings: Settings) -> Result<Option<(MachineProfile, bool)>> {
        // Before any thread is started, so that all of them leave the signals to this one.
        let interrupted = signals::asked_to_end().context("cannot listen to signals")?;
        let mut reported = topology::load(&Source::Live, None)?;
        let pes = self.pes.as_ref().map(|location| reported.locate(location)).transpose()?;
        let options = Options {
            pes,
            under_load: self.under_load,
            realtime: self.realtime,
            npb: self.npb.clone(),
            interrupted,
        };
        let Some(mut executor) = self.open(&options)? else { return Ok(None) };
        reported.allowed = executor.conditions().usable.clone();
        let about = executor.conditions().circumstances.clone();
        let mut profile = self.calibrate(&mut executor, &reported, settings);
        let measured = std::mem::take(&mut profile.circumstances);
        profile.circumstances = Circumstances {
            corewise: about.corewise,
            unix_time: about.unix_time,
            processor: about.processor,
            kernel: about.kernel,
            virtualisation: about.virtualisation,
            frequency: about.frequency,
            vector_unit: kernels::vector_unit().map(str::to_owned),
            notes: [about.notes, measured.notes].concat(),
            ..measured
        };
        Ok(Some((profile, executor.interrupted())))
    }

    /// Opens this machine, if requested as soon as it is quiet; returns `None` if that wait was interrupted.
    fn open(&self, options: &Options) -> Result<Option<LiveExecutor>> {
        let bar = ProgressBar::start();
        let mut quiet_looks = 0;
        loop {
            match LiveExecutor::open(options.clone()) {
                Ok(executor) if !self.when_quiet || quiet_looks == QUIET_LOOKS => return Ok(Some(executor)),
                Ok(_) => quiet_looks += 1,
                Err(Refusal::Load { pe, share }) if self.when_quiet => {
                    quiet_looks = 0;
                    let busy = (100.0 * share).round();
                    bar.message(format!("waiting for a quiet machine: PE {pe} is {busy} % busy"));
                }
                Err(refusal) => return Err(refusal.into()),
            }
            if options.interrupted.load(Ordering::Relaxed) {
                return Ok(None);
            }
        }
    }

    /// Calibrates a simulated machine.
    fn simulate(&self, machine: &str, settings: Settings) -> Result<(MachineProfile, bool)> {
        let machine = Machine::new(machine_file::named(machine)?)?;
        let mut reported = machine.model.topology.clone();
        if let Some(location) = &self.pes {
            reported.allowed = reported.locate(location)?;
        }
        let conditions = Conditions { noise: self.noise, ..Conditions::default() };
        let mut executor = ModelMachine::new(machine, conditions, self.seed);
        let settings = Settings { evidence: Evidence::Simulated, ..settings };
        let mut profile = self.calibrate(&mut executor, &reported, settings);
        profile.circumstances.corewise = env!("CARGO_PKG_VERSION").to_owned();
        profile
            .circumstances
            .notes
            .push(format!("a model, with noise of {}, seed {}", self.noise, self.seed));
        Ok((profile, executor.interrupted()))
    }

    /// Discovers the sharing domains if requested, then measures the resulting classes of pairs.
    fn calibrate(
        &self,
        executor: &mut dyn Executor,
        reported: &Topology,
        mut settings: Settings,
    ) -> MachineProfile {
        let bar = ProgressBar::start();
        let mut found = None;
        let mut behaves = reported.clone();
        if self.discover {
            bar.message("finding out what is shared".to_owned());
            let begin = executor.now();
            let result = discover(executor, reported);
            settings.budget = settings.budget.saturating_sub(executor.now().since(begin));
            let discovered = Some(result.discovery.clone());
            behaves =
                MachineProfile { discovered, ..MachineProfile::empty(reported.clone(), settings.evidence) }
                    .topology();
            found = Some(result);
        }
        let mut profile =
            calibrate(executor, &behaves, &settings, &mut |progress: &Progress| bar.show(progress));
        bar.finish();
        profile.reported = reported.clone();
        if let Some(found) = found {
            profile.discovered = Some(found.discovery);
            profile.missing.extend(found.missing);
        }
        profile
    }
}

/// Returns where a profile goes instead of the default place: beside it, if the profile that is there holds
/// what the new one lacks.
fn place(default: PathBuf, new: &MachineProfile) -> PathBuf {
    let there = input::read_text(&default, input::DOCUMENT_MAX).ok().and_then(|text| parse(&text).ok());
    let Some(lack) = there.and_then(|old| lack(&old, new)) else { return default };
    let beside = default.with_file_name(PARTIAL);
    terminal::message(format_args!(
        "{} stays: this one {lack}, so it goes elsewhere; --output FILE decides where",
        default.display()
    ));
    beside
}

/// Returns what a profile lacks that an older one of the same machine has, if anything.
fn lack(old: &MachineProfile, new: &MachineProfile) -> Option<String> {
    let missing = old.reported.allowed.difference(&new.reported.allowed);
    let is_same_machine = old.reported.pes == new.reported.pes;
    let workloads = |profile: &MachineProfile| -> BTreeSet<String> {
        profile.pairs.iter().map(|pair| format!("{:?}", pair.workload)).collect()
    };
    let unmeasured = workloads(old).difference(&workloads(new)).count();
    match () {
        () if !is_same_machine => None,
        () if !missing.is_empty() => Some(format!("does not cover the PEs {missing}")),
        () if old.complete && !new.complete => Some("is not complete".to_owned()),
        () if unmeasured > 0 => Some(format!("lacks {unmeasured} of its workloads")),
        () => None,
    }
}

/// Returns `$XDG_DATA_HOME/corewise/profile.json`, else the path below `~/.local/share`.
pub fn default_path() -> Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    let data =
        data.context("neither XDG_DATA_HOME nor HOME is set: say where to write with --output FILE")?;
    Ok(data.join("corewise/profile.json"))
}

/// Returns the benchmarks whose binaries are in the directory, small ones first.
fn binaries(directory: &Path) -> Result<Vec<(Nas, ProblemClass)>> {
    use ProblemClass::{A, B, C, S, W};
    let all = [S, W, A, B, C].into_iter().flat_map(|class| Nas::ALL.map(|nas| (nas, class)));
    let found: Vec<_> = all.filter(|&(nas, class)| npb::find(directory, nas, class).is_ok()).collect();
    if found.is_empty() {
        bail!(
            "{} holds no NPB binary: build some with NPB's `make suite`, they are named such as cg.A.x",
            directory.display()
        );
    }
    Ok(found)
}

fn kernels() -> impl TypedValueParser<Value = Kernel> {
    let names = PossibleValuesParser::new(Kernel::ALL.map(Kernel::name));
    names.try_map(|name| Kernel::from_name(&name).ok_or("there is no such kernel"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::cpuset::CpuSet;

    fn profile(allowed: u32, complete: bool) -> MachineProfile {
        let mut reported = Topology::synthetic("core:2 pu:2").unwrap();
        reported.allowed = CpuSet::first_n(allowed);
        MachineProfile { complete, ..MachineProfile::empty(reported, Evidence::Measured) }
    }

    #[test]
    fn at_the_default_place_less_never_replaces_more() {
        let lack = |old, new| lack(&old, &new);
        assert_eq!(lack(profile(4, true), profile(1, true)).as_deref(), Some("does not cover the PEs 1-3"));
        assert_eq!(lack(profile(4, true), profile(4, false)).as_deref(), Some("is not complete"));
        assert_eq!(lack(profile(4, false), profile(4, false)), None);
        assert_eq!(lack(profile(1, true), profile(4, true)), None);
        let directory = tempfile::tempdir().unwrap();
        let default = directory.path().join("profile.json");
        let placed = || place(default.clone(), &profile(1, true)).file_name().unwrap().to_owned();
        assert_eq!(placed(), "profile.json", "nothing is there");
        std::fs::write(&default, to_json(&profile(4, true))).unwrap();
        assert_eq!(placed(), PARTIAL);
    }
}
