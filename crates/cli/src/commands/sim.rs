//! `corewise sim`: simulates a scenario.

use super::{check_profile, fuzz};
use crate::options::{OnOff, start_patiently};
use crate::outputs::{JsonOutput, OutputFile};
use crate::{machine_file, values, whole_file};
use anyhow::{Context, Result, bail};
use corewise_core::policy::PolicySpec;
use corewise_core::policy::exec::StartCommand;
use corewise_render::sim::{estimate, page};
use corewise_render::table::Table;
use corewise_render::terminal::Name;
use corewise_sim::comparison::{Comparison, VariantResult, compare, last_seed};
use corewise_sim::estimate::Estimate;
use corewise_sim::rt_app;
use corewise_sim::scenario::{Scenario, Variant};
use corewise_sys::input;
use std::fmt::Write;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

/// Simulate a scenario: the same policies on a machine that need not exist.
///
/// Every variant of the scenario, or the policies that are asked for, is compared with the operating
/// system's own scheduler over the same seeds. All figures are simulated; docs/sim.md says what they mean.
#[derive(Debug, clap::Args)]
pub struct Sim {
    /// The scenario (TOML, see docs/sim.md), or a workload of rt-app (.json)
    #[arg(value_name = "SCENARIO", required_unless_present_any = ["fuzz", "check_profile"])]
    scenario: Option<PathBuf>,
    /// Compare this policy instead of the scenario's variants; may be given several times
    #[arg(long, value_name = "POLICY")]
    policy: Vec<String>,
    /// Allow the scenario to start the commands of its policies (`exec:COMMAND`)
    #[arg(long)]
    commands: bool,
    /// For a workload of rt-app, the machine: a machine profile (.json), the machine of a scenario (.toml),
    /// one that hwloc exported (.xml) or that was recorded (a directory, .tar.gz or .tar.bz2), or one in a
    /// line ("pack:1 l2:4 core:2 pu:1")
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// The first seed
    #[arg(long, value_name = "N", value_parser = values::whole(0..=u64::MAX))]
    seed: Option<u64>,
    /// How many seeds, one after another
    #[arg(long, value_name = "N", value_parser = values::whole(1..=u32::MAX))]
    runs: Option<u32>,
    /// Another value for something in the scenario, such as machine.units.fpu_conflict=0.25: what depends on
    /// it?
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Whether the engine's guard measures what placements gain, and reverts those that hurt [default: what
    /// the scenario says]
    #[arg(long, value_name = "on|off")]
    guard: Option<OnOff>,
    /// Draw which thread ran where in the first run of each variant
    #[arg(long)]
    timeline: bool,
    #[command(flatten)]
    json: JsonOutput,
    /// Write a page: speedups, fairness, migrations, which thread ran where, and the scenario
    #[arg(long, value_name = "FILE")]
    html: Option<OutputFile>,
    /// Instead of a scenario, run random ones of this many seeds and check the invariants
    #[arg(
        long,
        value_name = "N",
        conflicts_with_all = [
            "scenario", "machine", "runs", "set", "guard", "timeline", "json", "html", "commands",
        ],
        value_parser = values::whole(1..=1_000_000_000_u64)
    )]
    fuzz: Option<u64>,
    /// How many seeds run in parallel; the result does not depend on it
    #[arg(long, value_name = "N", requires = "fuzz")]
    #[arg(value_parser = values::whole(NonZeroU16::MIN..=NonZeroU16::MAX))]
    jobs: Option<NonZeroU16>,
    /// Instead of a scenario, make the model of a calibrated machine and compare it with the memory pairs
    /// measured there
    #[arg(
        long,
        value_name = "PROFILE",
        conflicts_with_all = [
            "scenario", "machine", "fuzz", "policy", "seed", "runs", "set", "guard", "timeline", "html",
            "commands",
        ]
    )]
    check_profile: Option<PathBuf>,
}

impl Sim {
    /// Simulates; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        if let Some(profile) = self.check_profile {
            return check_profile::execute(&profile, &self.json);
        }
        let Some(path) = &self.scenario else {
            let seeds = fuzz::Seeds { first: self.seed.unwrap_or(1), count: self.fuzz.unwrap_or(1) };
            return fuzz::execute(seeds, &self.policy, self.jobs);
        };
        self.json.check()?;
        if let Some(html) = &self.html {
            whole_file::check_writable(html)?;
        }
        let name = path.display();
        let Read { mut scenario, text } = self.read(path)?;
        self.adjust(&mut scenario)?;
        let comparison =
            compare(&scenario, Some(self.commands())).with_context(|| format!("cannot simulate {name}"))?;
        if let Some(html) = &self.html {
            whole_file::write(html, page::render(&comparison, &text).as_bytes())?;
        }
        self.json.show(&comparison, || describe(&comparison, self.timeline))?;
        Ok(0)
    }
}

/// A scenario with its text.
struct Read {
    scenario: Scenario,
    text: String,
}

impl Sim {
    /// Returns how to start the commands of policies. Scenarios are untrusted, so their commands are started
    /// only if the user permits it.
    fn commands(&self) -> StartCommand<'static> {
        if self.commands || !self.policy.is_empty() {
            return &start_patiently;
        }
        &|_| Err("a scenario's own commands are started with --commands only".to_owned())
    }

    /// Applies the options that override the scenario.
    fn adjust(&self, scenario: &mut Scenario) -> Result<()> {
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        scenario.runs = self.runs.unwrap_or(scenario.runs);
        match self.guard {
            Some(OnOff::On) => scenario.guard = Some(scenario.guard.unwrap_or_default()),
            Some(OnOff::Off) => scenario.guard = None,
            None => {}
        }
        if !self.policy.is_empty() {
            scenario.variants.clear();
        }
        for policy in &self.policy {
            scenario.variants.push(Variant::policy(policy.parse::<PolicySpec>()?));
        }
        Ok(())
    }

    /// Reads the scenario or the workload.
    fn read(&self, path: &Path) -> Result<Read> {
        let name = path.display();
        let text =
            input::read_text(path, input::DOCUMENT_MAX).with_context(|| format!("cannot read {name}"))?;
        let is_workload = path.extension().is_some_and(|extension| extension == "json");
        let (scenario, mut text) = match (&self.machine, is_workload) {
            (Some(machine), true) => workload(path, &text, machine, &self.set)?,
            (None, true) => bail!("{name} is a workload of rt-app: say on which machine with --machine"),
            (Some(_), false) => {
                bail!("{name} has a machine of its own: --machine is for workloads of rt-app, leave it out")
            }
            (None, false) => (written(path, &text, &self.set)?, text),
        };
        for setting in &self.set {
            text += &format!("\n# --set {setting}");
        }
        Ok(Read { scenario, text })
    }
}

/// Returns the scenario of an rt-app workload.
fn workload(path: &Path, text: &str, machine: &str, settings: &[String]) -> Result<(Scenario, String)> {
    let understand = || format!("cannot simulate {}", path.display());
    let machine = machine_file::named(machine)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let table = rt_app::scenario(&name, text, &machine).with_context(understand)?;
    let text = toml::to_string(&table)?;
    Ok((Scenario::from_table(table, settings).with_context(understand)?, text))
}

/// Parses a scenario, including the machine that it may name by a file, relative to the scenario's directory.
fn written(path: &Path, text: &str, settings: &[String]) -> Result<Scenario> {
    let understand = || format!("cannot understand {}", path.display());
    // Text that is not TOML names no file; the scenario's parser reports the error.
    let table: toml::Table = toml::from_str(text).unwrap_or_default();
    let mut completed = table.clone();
    machine_file::complete(&mut completed, path.parent().unwrap_or(Path::new("")))
        .with_context(understand)?;
    if completed == table {
        // Parse the original text, so that errors contain the line.
        return Scenario::parse_with(text, settings).with_context(understand);
    }
    Scenario::from_table(completed, settings).with_context(understand)
}

fn describe(comparison: &Comparison, timeline: bool) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_description(&mut text, comparison, timeline);
    text
}

fn write_description(out: &mut String, comparison: &Comparison, timeline: bool) -> std::fmt::Result {
    let last = last_seed(comparison.seed, comparison.runs);
    writeln!(out, "{}\n", answer(comparison))?;
    writeln!(out, "{}: {}", comparison.evidence, Name(&comparison.scenario))?;
    writeln!(out, "on {}, seeds {} to {last}", Name(&comparison.machine), comparison.seed)?;
    for variant in &comparison.variants {
        write_variant(out, variant, comparison.seed)?;
        if timeline {
            write!(out, "{}", variant.timeline)?;
        }
    }
    Ok(())
}

/// Says which variant does most, in one sentence.
fn answer(comparison: &Comparison) -> String {
    let speedup = |variant: &VariantResult| variant.speedup.map_or(1.0, |speedup| speedup.value);
    let best = comparison.variants.iter().max_by(|a, b| speedup(a).total_cmp(&speedup(b)));
    match best {
        Some(best) if best.speedup.is_some_and(|speedup| speedup.low.unwrap_or(speedup.value) > 1.0) => {
            format!(
                "`{}` does most: {} times as fast as everything left to the kernel (simulated).",
                Name(&best.name),
                estimate::ratio(best.speedup)
            )
        }
        _ => "No variant is faster than everything left to the kernel, as far as can be said (simulated)."
            .to_owned(),
    }
}

fn write_variant(out: &mut String, variant: &VariantResult, seed: u64) -> std::fmt::Result {
    let by = if variant.name == variant.policy {
        String::new()
    } else {
        format!(" (policy {})", Name(&variant.policy))
    };
    writeln!(out, "\n{}{by}", Name(&variant.name))?;
    // Without a description of power, there is nothing to say of energy.
    let columns = if variant.energy.is_some() { 7 } else { 6 };
    let mut table = Table::new(&"<>>>>>>"[..columns]);
    let heads = ["application", "seconds", "spread", "speedup", "95 % interval", "on fast", "joules"];
    table.row(heads.into_iter().take(columns));
    for app in &variant.applications {
        let row = [
            Name(&app.name).to_string(),
            known(app.seconds, |s| format!("{s:.3}")),
            known(app.spread, percent),
            known(app.speedup, |s| format!("{s:.3}")),
            interval(app.speedup),
            known(app.fast_share, percent),
            known(app.joules, digits),
        ];
        table.row(row.into_iter().take(columns));
    }
    writeln!(
        out,
        "{table}  all done after {} s, speedup {}",
        known(variant.all_done_seconds, |s| format!("{s:.3}")),
        estimate::ratio(variant.all_done_speedup)
    )?;
    let moves: Vec<String> =
        variant.migrations.iter().map(|(distance, count)| format!("{distance} {:.1}", count.value)).collect();
    writeln!(
        out,
        "  speedup {} (geometric mean), fairness {}, migrations a run: {}",
        estimate::ratio(variant.speedup),
        known(variant.fairness, |f| format!("{f:.2}")),
        if moves.is_empty() { "none".to_owned() } else { moves.join(", ") }
    )?;
    if !variant.settings.is_empty() {
        let settings: Vec<String> =
            variant.settings.iter().map(|(kind, count)| format!("{kind} {:.1}", count.value)).collect();
        writeln!(out, "  settings changed a run: {}", settings.join(", "))?;
    }
    if let Some(energy) = &variant.energy {
        writeln!(
            out,
            "  {} J, {} W, energy-delay product {} J s; idle cores {} J, uncore {} J",
            digits(energy.joules.value),
            digits(energy.watts.value),
            digits(energy.energy_delay_joule_seconds.value),
            digits(energy.idle_joules.value),
            digits(energy.uncore_joules.value)
        )?;
    }
    // Under `default` nothing is placed.
    match variant.guard.filter(|guard| guard.trials > 0) {
        Some(guard) => writeln!(out, "  seed {seed}: {guard}"),
        None => Ok(()),
    }
}

fn known(estimate: Option<Estimate>, words: impl Fn(f64) -> String) -> String {
    estimate.map_or_else(|| "-".to_owned(), |estimate| words(estimate.value))
}

/// Writes a figure of energy or power with four digits, or more before the point.
fn digits(figure: f64) -> String {
    let before = if figure < 1.0 { 1 } else { figure.log10() as usize + 1 };
    format!("{figure:.*}", 4_usize.saturating_sub(before))
}

fn interval(estimate: Option<Estimate>) -> String {
    let ends = estimate.and_then(|estimate| estimate.low.zip(estimate.high));
    ends.map_or_else(|| "-".to_owned(), |(low, high)| format!("{low:.3} to {high:.3}"))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
