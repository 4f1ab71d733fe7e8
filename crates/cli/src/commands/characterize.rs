//! `corewise characterize`: what a program uses, as in Table I of the BulldOver paper.

use crate::options::{SourceOptions, ThisMachine};
use crate::outputs::JsonOutput;
use crate::remedies::ASK;
use crate::session::team_size::Teams;
use crate::session::{self, Ended, Knowledge, Machine, SessionRequest};
use anyhow::{Result, bail};
use corewise_core::classify::ParallelismClass;
use corewise_core::engine::EngineConfig;
use corewise_core::policy;
use corewise_core::report::Report;
use corewise_discovery::Extent;
use corewise_render::report::table;
use corewise_render::terminal::Name;
use corewise_sys::launch::Output;
use std::ffi::OsString;
use std::process::ExitStatus;

/// Measure what a program uses: FPU, L2 misses, IPC, parallelism.
///
/// Prints the paper's Table I for the command on standard output; the command's own output goes to standard
/// error. Nothing is bound. A dash stands for figures that this machine has no counter for.
#[derive(Debug, clap::Args)]
pub struct Characterize {
    #[command(flatten)]
    sources: SourceOptions,
    #[command(flatten)]
    machine: ThisMachine,
    /// Also wait for processes that outlive the command
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    json: JsonOutput,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Characterize {
    /// Runs the command and prints its row; returns the command's exit status.
    pub fn execute(self) -> Result<ExitStatus> {
        self.json.check()?;
        let request = SessionRequest {
            command: self.command,
            machine: Machine::of(self.machine)?,
            policy: policy::build("default")?,
            policy_keeper: None,
            config: EngineConfig::default(),
            sources: self.sources,
            // The class is the whole command's.
            applications: Extent::Command,
            act: false,
            teams: Teams::default(),
            output: Output::ToStandardError,
            record: None,
            wait: self.wait,
            keep_descriptors: false,
            ready_first: true,
        };
        let Ended { knowledge, exit_status, .. } = session::run(request)?;
        let Knowledge::Report(report) = knowledge else { bail!("the command was not watched: {ASK}") };
        for note in &report.notes {
            corewise_render::terminal::message(note);
        }
        self.json.show(&report, || format!("{}{}", answer(&report), table::figures(&report)))?;
        Ok(exit_status)
    }
}

/// Says in a sentence what the command is like.
fn answer(report: &Report) -> String {
    let Some(whole) = report.applications.first() else { return String::new() };
    let parallel = match whole.parallelism_class {
        Some(ParallelismClass::SingleThreaded) => "hardly ever runs two threads at once",
        Some(ParallelismClass::PartiallySequential) => "often runs one thread alone",
        Some(ParallelismClass::HighlyParallel) => "nearly always runs several threads",
        None => "was too short to say how parallel it is",
    };
    let fpu = whole.fpu_usage.map_or_else(
        || "what it asks of the floating-point unit is not known".to_owned(),
        |usage| format!("keeps a floating-point unit busy in {:.0} % of its cycles", 100.0 * usage),
    );
    format!("{} {parallel}, and {fpu}.\n\n", Name(&whole.name))
}
