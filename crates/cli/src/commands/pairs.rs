//! `corewise pairs`: what programs gain or lose beside each other.

use super::compare::{INTERRUPTED, workload};
use crate::outputs::{JsonOutput, OutputFile};
use crate::{values, whole_file};
use anyhow::{Context, Result, bail};
use corewise_bench::comparison::CommandExecutor;
use corewise_core::ids::PeId;
use corewise_core::pairs::{Ending, Plan, Program, Progress, Record, conduct, findings, rows};
use corewise_core::topology::Topology;
use corewise_daemon::client;
use corewise_render::pairs::{csv, page, table};
use corewise_render::terminal::progress::ProgressBar;
use corewise_render::terminal::{self, Name};
use corewise_store::Store;
use corewise_topology as topology;
use corewise_topology::Source;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a store of these measurements is called in itself.
const KIND: &str = "corewise pairs";
/// The name of the plan in a store.
const PLAN: &str = "plan";

/// Measure what programs gain at once over one after the other, in pairs.
///
/// Every program runs alone and beside others (a copy of itself, too), bound to two PEs. The pair is next
/// of which a model of the others is least sure; it ends when the next pair would teach nothing, and
/// predicts the pairs that did not run.
#[derive(Debug, clap::Args)]
pub struct Pairs {
    /// Command lines, each run by `sh -c`
    #[arg(value_name = "COMMAND_LINE")]
    lines: Vec<String>,
    /// The programs are the applications of this file instead (TOML, see docs/compare.md)
    #[arg(long, value_name = "FILE", conflicts_with = "lines")]
    workload: Option<PathBuf>,
    /// On two PEs that share as much as any two do: siblings of a core, where there are such (the default)
    #[arg(long, conflicts_with_all = ["distant", "pes"])]
    close: bool,
    /// On two PEs that share as little as any two do
    #[arg(long, conflicts_with = "pes")]
    distant: bool,
    /// On these two PEs
    #[arg(long, value_name = "A,B", value_parser = two_pes)]
    pes: Option<[PeId; 2]>,
    /// Runs of each program alone and of each pair that is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = values::whole(1..=1000_u32))]
    runs: u32,
    /// Measure every pair, also where that teaches nothing
    #[arg(long)]
    every: bool,
    /// End with an error if a run takes longer than this
    #[arg(long, value_name = "TIME", value_parser = values::any_time)]
    timeout: Option<Duration>,
    /// The seed of the order of the runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::whole(0..=u64::MAX))]
    seed: u64,
    /// Keep each run in this file as it comes, and go on where the file ends
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    #[command(flatten)]
    json: JsonOutput,
    /// Write the measured slowdowns as a table for `corewise model`
    #[arg(long, value_name = "FILE")]
    csv: Option<OutputFile>,
    /// Write a page with a heat map
    #[arg(long, value_name = "FILE")]
    html: Option<OutputFile>,
}

impl Pairs {
    /// Measures, prints and writes files; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        self.json.check()?;
        let files = [self.csv.as_deref(), self.html.as_deref()];
        files.into_iter().flatten().try_for_each(whole_file::check_writable)?;
        let plan = self.plan()?;
        let comparison = plan.comparison()?;
        let (store, mut records) = match &self.store {
            Some(path) => {
                let (store, records) = opened(path, &plan)?;
                (Some(store), records)
            }
            None => (None, Vec::new()),
        };
        if let Some(socket) = client::running() {
            let socket = socket.display();
            terminal::message(format_args!(
                "note: the daemon at {socket} places programs, too: stop it for the measurement"
            ));
        }
        let mut executor = CommandExecutor::open(&comparison, None, false)?;
        let ending = run(&mut executor, &plan, &mut records, store.as_ref());
        // After an error, too, the finished runs are shown and written.
        let shown = self.show(&plan, &records);
        let ending = ending?;
        shown?;
        Ok(if ending == Ending::Interrupted { INTERRUPTED } else { 0 })
    }

    fn plan(&self) -> Result<Plan> {
        let programs: Vec<Program> = match &self.workload {
            Some(file) => {
                let applications = workload::read(file)?.workload.applications;
                applications.into_iter().map(|one| Program { name: one.name, command: one.command }).collect()
            }
            None => {
                let program = |line: &String| Program {
                    name: line.clone(),
                    command: ["sh", "-c", line].map(str::to_owned).to_vec(),
                };
                self.lines.iter().map(program).collect()
            }
        };
        if programs.is_empty() {
            bail!("there is nothing to run: name command lines, such as 'gzip -c file' 'sort file'");
        }
        let topology = topology::load(&Source::Live, None)?;
        Ok(Plan {
            programs,
            pes: self.two_pes(&topology)?,
            runs: self.runs,
            seed: self.seed,
            every: self.every,
            timeout_seconds: self.timeout.map(|timeout| timeout.as_secs_f64()),
        })
    }

    /// Returns the two PEs: the first of all pairs that share the most, or the least.
    fn two_pes(&self, topology: &Topology) -> Result<[PeId; 2]> {
        if let Some(pes) = self.pes {
            if let Some(absent) = pes.iter().find(|pe| !topology.allowed.contains(**pe)) {
                bail!("--pes: PE {absent} is not among the allowed ones: there are {}", topology.allowed);
            }
            return Ok(pes);
        }
        let allowed: Vec<PeId> = topology.allowed.iter().collect();
        let pairs = allowed.iter().flat_map(|&a| allowed.iter().map(move |&b| [a, b]).filter(|[a, b]| a < b));
        // The more distant the closest domain that both share, the less they share; none is the least.
        let distance = |[a, b]: &[PeId; 2]| {
            let kind = topology.closest_shared(*a, *b);
            (kind.is_none(), kind)
        };
        let pairs: Vec<[PeId; 2]> = pairs.collect();
        let distances = pairs.iter().map(distance);
        let wanted = if self.distant { distances.max() } else { distances.min() };
        let found = pairs.into_iter().find(|pair| Some(distance(pair)) == wanted);
        found.context("pairs need two PEs, and one is allowed: run it where there are more")
    }

    fn show(&self, plan: &Plan, records: &[Record]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let found = findings(plan, records);
        let document = json!({"evidence": "measured", "plan": plan, "findings": found, "records": records});
        self.json.show(&document, || table::render(plan, &found))?;
        let write = |path: Option<&Path>, text: &dyn Fn() -> String| {
            path.map_or(Ok(()), |path| whole_file::write(path, text().as_bytes()))
        };
        write(self.csv.as_deref(), &|| csv::write(&rows(plan, records)))?;
        write(self.html.as_deref(), &|| page::render(plan, &found))
    }
}

/// Opens a store for a plan; returns the runs that it has already.
fn opened(path: &Path, plan: &Plan) -> Result<(Store, Vec<Record>)> {
    let store = Store::open(path, KIND)?;
    let shown = path.display();
    if let Some(text) = store.text(PLAN)? {
        // More runs, and every pair, go on from fewer.
        let before: Plan = serde_json::from_str(&text)
            .with_context(|| format!("the store {shown} is damaged: name another file"))?;
        if (&before.programs, before.pes) != (&plan.programs, plan.pes) {
            bail!("the store {shown} is of other programs or PEs: name another file, or give the same");
        }
    }
    store.set_text(PLAN, &serde_json::to_string(plan)?)?;
    let records = store.records()?.into_iter().map(|text| {
        let record: Option<Record> = serde_json::from_str(&text).ok();
        record.filter(|record| plan.is_of_plan(record))
    });
    let records = records.collect::<Option<Vec<Record>>>();
    let records = records.with_context(|| format!("the store {shown} is damaged: name another file"))?;
    Ok((store, records))
}

/// Makes the missing runs and shows the progress.
fn run(
    executor: &mut CommandExecutor,
    plan: &Plan,
    records: &mut Vec<Record>,
    store: Option<&Store>,
) -> Result<Ending> {
    let bar = ProgressBar::start();
    let all = plan.programs.len() * (plan.programs.len() + 1) / 2;
    let mut failure = None;
    let ending = conduct(executor, plan, records, &mut |progress| {
        match progress {
            Progress::Run { subject, measured, errors } => {
                let errors = errors.map_or_else(String::new, |(error, noise)| {
                    let (error, noise) = (100.0 * error, 100.0 * noise);
                    format!(", unseen ones predicted to {error:.1} %, measured to {noise:.1} %")
                });
                let done = *measured as f64 / all as f64;
                let name = plan.name(*subject);
                bar.advance(done, format!("{measured} of {all} pairs{errors}: {}", Name(&name)));
            }
            Progress::Ran(record) => {
                let text = serde_json::to_string(record).map_err(anyhow::Error::from);
                let kept = text.and_then(|text| Ok(store.map_or(Ok(()), |store| store.add(&text))?));
                failure = kept.err();
            }
        }
        failure.is_none()
    });
    bar.finish();
    match failure {
        Some(error) => Err(error),
        None => Ok(ending?),
    }
}

fn two_pes(text: &str) -> Result<[PeId; 2], String> {
    let pes: Option<Vec<PeId>> = text.split(',').map(|pe| pe.trim().parse().ok().map(PeId)).collect();
    match pes.as_deref() {
        Some(&[a, b]) if a != b => Ok([a, b]),
        _ => Err("write two different PEs, such as 0,1".to_owned()),
    }
}
