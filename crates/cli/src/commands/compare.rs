//! `corewise compare`: whether a placement, a setting or another program is faster.

pub mod file;
pub mod workload;

use crate::outputs::{JsonOutput, OutputFile};
use crate::{values, whole_file};
use anyhow::{Context, Result, bail};
use corewise_bench::comparison::{CommandExecutor, RunError};
use corewise_core::comparison::{
    ALONE, Application, BLOCKS_MIN, Ending, Length, Plan, Printed, Progress, Stage, Variant, Workload,
    conduct, detectable,
};
use corewise_core::policy::SPREAD;
use corewise_daemon::client;
use corewise_render::comparison::{Comparison, DEFAULT, csv, page, share, table};
use corewise_render::terminal;
use corewise_render::terminal::progress::{ProgressBar, remaining};
use file::Kept;
use std::path::{Path, PathBuf};
use std::time::Duration;
use workload::{WorkloadFile, copies, words};

/// The default number of runs of each variant.
const RUNS: u32 = 20;
/// The maximum number of copies of a command.
pub const COPIES_MAX: u32 = 10_000;
/// The exit status after Ctrl-C, as in shells.
pub const INTERRUPTED: u8 = 130;

/// Measure whether a policy, a setting or another program is faster, with an interval.
///
/// Each variant is run once in each block, in random order, mirrored in the next block, and the first variant
/// once more as a control: its ratio is this machine's noise floor. A verdict is given only where the
/// interval of the ratios excludes 1.
///
/// Either one command after `--`, as it is (the variant `default`) and in variants of it (`--policy`,
/// `--variant`), or several command lines for sh, of which the first is the baseline.
#[derive(Debug, clap::Args)]
pub struct Compare {
    /// Command lines that are compared with the first, each run by `sh -c`
    #[arg(value_name = "COMMAND_LINE", conflicts_with_all = ["command", "workload", "variant", "policy"])]
    lines: Vec<String>,
    /// One command and its arguments, which is run as it is and in variants
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Instead of a command: applications that run at the same time (TOML, see docs/compare.md)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["command", "copies"])]
    workload: Option<PathBuf>,
    /// A variant: the command with this prefix, such as pinned='taskset -c 0' or a='env A=1'
    #[arg(long, value_name = "NAME=PREFIX")]
    variant: Vec<String>,
    /// A variant under `corewise run` with this policy; may be given several times
    #[arg(long, value_name = "POLICY", value_parser = values::policy)]
    policy: Vec<String>,
    /// The variant that the others are compared with [default: the command as it is, or the first line]
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Run this many copies of the command at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::whole(1..=COPIES_MAX))]
    copies: u32,
    /// Runs of each variant, which is the number of blocks [default: 20]
    #[arg(long, value_name = "N", value_parser = values::whole(1..=u32::MAX))]
    runs: Option<u32>,
    /// Instead of a number of runs: as many as fit into this time, such as 90s or 5min
    #[arg(long, value_name = "TIME", value_parser = values::any_time, conflicts_with = "runs")]
    budget: Option<Duration>,
    /// Start each application again and again for this time in each run: throughput, not time, is compared
    #[arg(long = "duration", value_name = "TIME", value_parser = values::any_time)]
    fixed: Option<Duration>,
    /// End a run that takes longer than this; it has failed
    #[arg(long, value_name = "TIME", value_parser = values::any_time)]
    timeout: Option<Duration>,
    /// Compare a number, or a time with its unit, that the commands print: the last match of the first group
    #[arg(long, value_name = "NAME=REGEX", value_parser = figure)]
    figure: Vec<Printed>,
    /// Compare the tails of times that the commands print: p50, p95, … of all matches of the first group
    #[arg(long, value_name = "REGEX", value_parser = latency)]
    latency: Option<Printed>,
    /// Warm-up runs of each variant, which do not count
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::whole(0..=u32::MAX))]
    warmup: u32,
    /// A command line that is run once before everything
    #[arg(long, value_name = "COMMAND_LINE")]
    setup: Option<String>,
    /// A command line that is run before each run and not measured
    #[arg(long, value_name = "COMMAND_LINE")]
    prepare: Option<String>,
    /// Continue when a command fails, and count its time
    #[arg(long)]
    ignore_failure: bool,
    /// Show what the commands print instead of discarding it
    #[arg(long, conflicts_with_all = ["figure", "latency"])]
    show_output: bool,
    /// End with an error if a variant prints something other than the first run did
    #[arg(long, conflicts_with = "show_output")]
    same_output: bool,
    /// The seed of the order of the runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::whole(0..=u64::MAX))]
    seed: u64,
    /// Print all runs as JSON, or write them to a file (--json=FILE), for --resume and for tools that read
    /// hyperfine's export
    #[command(flatten)]
    json: JsonOutput,
    /// Write a line for each run
    #[arg(long, value_name = "FILE")]
    csv: Option<OutputFile>,
    /// Write a page with the ratios, the times and every run drawn
    #[arg(long, value_name = "FILE")]
    html: Option<OutputFile>,
    /// Continue the comparison of a --json file, and write that file (with more --runs, if it is complete)
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["lines", "command", "workload", "variant", "policy", "baseline", "copies",
            "warmup", "setup", "prepare", "ignore_failure", "same_output", "seed", "fixed", "timeout",
            "figure", "latency"]
    )]
    resume: Option<PathBuf>,
}

impl Compare {
    /// Compares, prints and writes files; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        let (_, ending) = self.compare()?;
        Ok(if ending == Ending::Interrupted { INTERRUPTED } else { 0 })
    }

    /// Compares, prints and writes files.
    pub fn compare(self) -> Result<(Comparison, Ending)> {
        let mut comparison = match &self.resume {
            Some(file) => file::read(file)?,
            None => Comparison { plan: self.plan()?, setting: Default::default(), trials: Vec::new() },
        };
        if self.runs.is_some() || self.budget.is_some() {
            comparison.plan.length = self.length();
        }
        comparison.plan.check()?;
        if let [_] = comparison.plan.variants.as_slice() {
            terminal::message(ALONE);
        }
        if let Some(socket) = client::running() {
            let socket = socket.display();
            terminal::message(format_args!(
                "note: the daemon at {socket} places every variant: stop it for the comparison"
            ));
        }
        self.json.check()?;
        let files = [self.csv.as_deref(), self.html.as_deref(), self.resume.as_deref()];
        files.into_iter().flatten().try_for_each(whole_file::check_writable)?;
        let before = self.resume.is_some().then_some(&comparison.setting);
        let mut executor = CommandExecutor::open(&comparison.plan, before, self.show_output)?;
        comparison.setting = executor.setting().clone();
        let mut kept = self.kept_file().and_then(|path| Kept::new(path, &comparison));
        let ending = run(&mut executor, &mut comparison, &mut kept);
        // After an error, too, the finished runs are shown and written.
        let shown = self.show(&comparison);
        let ending = ending?;
        shown?;
        Ok((comparison, ending))
    }

    fn show(&self, comparison: &Comparison) -> Result<()> {
        if comparison.trials.is_empty() {
            return Ok(());
        }
        let found = comparison.findings();
        let json = || file::write(comparison, &found);
        self.json.show_written(json, || table::render(comparison, &found))?;
        let write = |path: Option<&Path>, text: &dyn Fn() -> String| {
            path.map_or(Ok(()), |path| whole_file::write(path, text().as_bytes()))
        };
        write(self.resume.as_deref().filter(|_| self.json.file().is_none()), &json)?;
        write(self.csv.as_deref(), &|| csv::write(comparison))?;
        write(self.html.as_deref(), &|| page::render(comparison, &found))
    }

    /// Returns the file that keeps the runs meanwhile.
    fn kept_file(&self) -> Option<&Path> {
        self.json.file().or(self.resume.as_deref())
    }

    fn length(&self) -> Length {
        match self.budget {
            Some(budget) => Length::BudgetSeconds(budget.as_secs_f64()),
            None => Length::Runs(self.runs.unwrap_or(RUNS)),
        }
    }

    fn plan(&self) -> Result<Plan> {
        let file = self.workload.as_deref().map(workload::read).transpose()?;
        let mut variants =
            if self.lines.is_empty() { self.variants(file.as_ref())? } else { self.of_lines()? };
        if let Some(name) = &self.baseline {
            let Some(index) = variants.iter().position(|variant| variant.name == *name) else {
                let names = variants.iter().map(|variant| variant.name.as_str());
                let names: Vec<&str> = [DEFAULT].into_iter().chain(names).collect();
                bail!("--baseline: there is no variant `{name}`; there are: {}", names.join(", "));
            };
            variants[..=index].rotate_right(1);
        }
        if let Some(fixed) = self.fixed {
            let seconds = Some(fixed.as_secs_f64());
            variants.iter_mut().for_each(|variant| variant.workload.fixed_seconds = seconds);
        }
        let (setup, prepare) = file.map_or((None, None), |file| (file.setup, file.prepare));
        let restarts = |workload: &Workload| workload.completions > 1 || workload.fixed_seconds.is_some();
        if self.same_output && variants.iter().any(|variant| restarts(&variant.workload)) {
            bail!("--same-output: applications that are restarted print a random number of times");
        }
        Ok(Plan {
            variants,
            length: self.length(),
            warmup: self.warmup,
            seed: self.seed,
            setup: self.setup.clone().or(setup),
            prepare: self.prepare.clone().or(prepare),
            ignore_failure: self.ignore_failure,
            same_output: self.same_output,
            timeout_seconds: self.timeout.map(|timeout| timeout.as_secs_f64()),
            printed: self.figure.iter().chain(&self.latency).cloned().collect(),
        })
    }

    fn of_lines(&self) -> Result<Vec<Variant>> {
        let variant = |line: &String| {
            let command = ["sh", "-c", line].map(str::to_owned).to_vec();
            Ok(Variant { name: line.clone(), workload: self.copied(command)? })
        };
        self.lines.iter().map(variant).collect()
    }

    /// Returns the command or workload as it is, unless another baseline is named, and the requested
    /// variants.
    fn variants(&self, file: Option<&WorkloadFile>) -> Result<Vec<Variant>> {
        let workload = match file {
            Some(file) => file.workload.clone(),
            None if self.command.is_empty() => {
                bail!("there is nothing to compare: name a command after `--`, or several command lines")
            }
            None => self.copied(self.command.clone())?,
        };
        let wants_default = self.policy.iter().any(|name| name == DEFAULT);
        let mut prefixes = Vec::new();
        if wants_default || self.baseline.as_ref().is_none_or(|name| name == DEFAULT) {
            prefixes.push((DEFAULT.to_owned(), Vec::new()));
        }
        for text in &self.variant {
            let named = text.split_once('=').filter(|(name, prefix)| !name.is_empty() && !prefix.is_empty());
            let Some((name, prefix)) = named else {
                bail!("--variant {text}: write a name, `=` and what comes before the command");
            };
            prefixes.push((name.to_owned(), words(prefix).with_context(|| format!("--variant {name}"))?));
        }
        for policy in self.policy.iter().filter(|name| *name != DEFAULT) {
            prefixes.push((policy.clone(), under_corewise(policy)?));
        }
        let variant =
            |(name, prefix): (String, Vec<String>)| Variant { name, workload: after(&prefix, &workload) };
        Ok(prefixes.into_iter().map(variant).collect())
    }

    fn copied(&self, command: Vec<String>) -> Result<Workload> {
        let application = Application { name: "copy".to_owned(), command, start_seconds: 0.0, pes: None };
        Ok(Workload { applications: copies(application, self.copies), completions: 1, fixed_seconds: None })
    }
}

/// Makes the missing runs and shows the progress.
fn run(
    executor: &mut CommandExecutor,
    comparison: &mut Comparison,
    kept: &mut Option<Kept>,
) -> Result<Ending, RunError> {
    if !executor.set_up()? {
        return Ok(Ending::Interrupted);
    }
    let bar = ProgressBar::start();
    let plan = &comparison.plan;
    let result = conduct(executor, plan, &mut comparison.trials, &mut |progress| match progress {
        Progress::Run { variant, stage, done, remaining: left } => {
            let what = match stage {
                Stage::Warmup => "warm-up".to_owned(),
                Stage::Block(block) => format!("block {}", block + 1),
            };
            let left = left.map_or_else(String::new, |left| format!("{} left, ", remaining(left)));
            bar.advance(*done, format!("{left}{what}: {}", terminal::Name(variant)));
        }
        Progress::Planned { runs, remaining: left } => bar.say(&format!(
            "{runs} runs in blocks of {}, about {}",
            plan.arms(),
            remaining((*left).max(Duration::from_secs(1)))
        )),
        Progress::Block { trials, blocks } if trials.len() == BLOCKS_MIN * plan.arms() => {
            if let Some(least) = detectable(plan, trials, *blocks) {
                bar.say(&format!(
                    "after {BLOCKS_MIN} blocks: {blocks} blocks should detect differences of {} or more",
                    share(least)
                ));
            }
        }
        Progress::Block { .. } => {}
        Progress::Again { variant, stood_still } => bar.say(&format!(
            "a run of {} is made again: it was stopped, or the machine was, for {:.1} s",
            terminal::Name(variant),
            stood_still.as_secs_f64()
        )),
        Progress::Ran { trial } => {
            // The runs are stored in case corewise is killed; at the end the whole file is written.
            if let Some(Err(error)) = kept.as_mut().map(|kept| kept.add(trial)) {
                bar.say(&format!("{error:#}; the runs are only written at the end"));
                *kept = None;
            }
        }
    });
    bar.finish();
    result
}

/// Returns the workload with a prefix in front of each command.
fn after(prefix: &[String], workload: &Workload) -> Workload {
    let prefixed = |application: &Application| Application {
        command: [prefix, &application.command].concat(),
        ..application.clone()
    };
    Workload { applications: workload.applications.iter().map(prefixed).collect(), ..*workload }
}

/// Returns the command that runs this corewise with a policy.
fn under_corewise(policy: &str) -> Result<Vec<String>> {
    let own = std::env::current_exe().context("cannot find corewise's own file")?;
    let own = own.to_str().with_context(|| format!("{} is not UTF-8: rename it", own.display()))?;
    // What is asked for by name is made ready before the command begins; the default is compared as it is.
    let named: &[&str] = if policy == SPREAD.name { &[] } else { &["--policy", policy] };
    Ok([&[own, "run", "--quiet"], named, &["--"]].concat().into_iter().map(str::to_owned).collect())
}

fn figure(text: &str) -> Result<Printed, String> {
    match text.split_once('=').filter(|(name, pattern)| !name.is_empty() && !pattern.is_empty()) {
        Some((name, pattern)) => printed(name, pattern, false),
        None => Err("write a name, `=` and a regular expression with one group".to_owned()),
    }
}

fn latency(text: &str) -> Result<Printed, String> {
    printed("latency", text, true)
}

fn printed(name: &str, pattern: &str, is_sample: bool) -> Result<Printed, String> {
    Ok(Printed { name: name.to_owned(), pattern: pattern.to_owned(), is_sample })
}
