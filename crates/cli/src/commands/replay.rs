//! `corewise replay`: what a policy would have decided over a recording.

use crate::options::{FpuModules, OtherMachine, PolicyOptions, start_patiently};
use crate::outputs::{JsonOutput, OutputFile};
use crate::{recording_file, report_file};
use anyhow::{Result, bail};
use corewise_core::recording::{self, Question, Recording};
use corewise_core::report::{Circumstances, Report, ReportBuilder, Sources};
use corewise_core::world::control_loop;
use corewise_render::table::Table;
use corewise_render::terminal::Name;
use std::io::Write;
use std::path::PathBuf;

/// Added to the report of a replay that does not ask what the run itself decided.
pub const PLACEMENT_ALONE: &str = "not the policy, machine and parameters of the run: only the policy's \
    placement is replayed, without a guard and without changes of waits";

/// Run a policy over a recording: what it would have decided, here or elsewhere.
///
/// The threads behave as recorded whatever is decided; `corewise what-if` predicts how fast they would be.
#[derive(Debug, clap::Args)]
pub struct Replay {
    /// A recording by `corewise run --record`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    policy: PolicyOptions,
    #[command(flatten)]
    machine: OtherMachine,
    #[command(flatten)]
    modules: FpuModules,
    /// Write a report: FILE.json for scripts, FILE.html to look at, FILE.txt as a table
    #[arg(long, value_name = "FILE")]
    report: Vec<OutputFile>,
    #[command(flatten)]
    json: JsonOutput,
}

impl Replay {
    /// Replays; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        self.json.check()?;
        self.report.iter().try_for_each(|path| report_file::check(path))?;
        let report = self.replay()?;
        self.report.iter().try_for_each(|path| report_file::write(path, &report))?;
        self.json.show(&report, || describe(&report))?;
        Ok(0)
    }

    fn replay(&self) -> Result<Report> {
        if self.modules.is_given() && self.machine.machine.is_none() {
            bail!("--fpu-modules tells more about the machine of --machine: name that, too, or leave it out");
        }
        let recording = recording_file::read(&self.file)?;
        let question = Question {
            machine: self.machine.model(&self.modules)?,
            policy: self.policy.policy(&start_patiently)?,
            fpu_threshold: self.policy.fpu_threshold(),
        };
        Ok(replayed(recording, question))
    }
}

/// Returns the report of a policy's decisions over a recording, on its machine or on another one.
pub fn replayed(recording: Recording, question: Question) -> Report {
    let header = recording.header.clone();
    let mut notes = Vec::new();
    if recording.truncated {
        let observations = recording.observations().count();
        notes.push(format!("the recording breaks off after {observations} observations"));
    }
    let recording::Replay { mut engine, mut world, is_of_the_run } = recording.replay(question);
    if !is_of_the_run {
        notes.push(PLACEMENT_ALONE.to_owned());
    }
    let mut builder = ReportBuilder::default();
    let Ok(()) = control_loop(&mut world, &mut engine, |input, actions, engine| {
        builder.watch(input, actions, engine);
    });
    notes.extend(engine.policy_failure().map(str::to_owned));
    let sources = Sources { discovery: header.discovery, counters: header.counters };
    let circumstances = Circumstances {
        command: header.command,
        dry_run: true,
        evidence: "replayed",
        host: header.host,
        sources,
        rounds: Vec::new(),
        peak_memory_bytes: None,
        command_cpu: None,
        notes,
    };
    builder.finish(&engine, circumstances)
}

/// Returns the report for people.
pub fn describe(report: &Report) -> String {
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = write_description(&mut text, report);
    String::from_utf8_lossy(&text).into_owned()
}

fn write_description(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    let (command, machine) = (report.command.join(" "), &report.machine);
    let (policy, count) = (Name(&report.policy), report.decisions.len());
    match &report.nothing_to_gain {
        Some(why) => writeln!(out, "{policy} would bind nothing: {why}.\n")?,
        None => writeln!(out, "{policy} would take {count} decisions in {:.2} s.\n", report.wall_seconds)?,
    }
    writeln!(out, "replayed: {} on {}, policy {}", Name(&command), Name(machine), report.policy)?;
    for note in &report.notes {
        writeln!(out, "note: {}", Name(note))?;
    }
    let mut table = Table::new(">><");
    for decision in &report.decisions {
        let what = match (&decision.setting, &decision.pes) {
            (Some(setting), _) => setting.clone(),
            (None, Some(pes)) => format!("bind to {pes}"),
            (None, None) => "free".to_owned(),
        };
        table.row([
            format!("{:.3} s", decision.at_ns as f64 / 1e9),
            decision.tid.to_string(),
            format!("{what}: {}", Name(&decision.reason)),
        ]);
    }
    write!(out, "{table}")
}
