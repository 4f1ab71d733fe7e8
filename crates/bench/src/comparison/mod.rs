//! The runs of a comparison on this machine: each command as a process of its own, with its times and the
//! conditions during the run.
//!
//! `corewise_core::comparison` decides what is run in which order and what the figures mean. This module
//! disturbs the runs as little as possible: one process, without threads, sleeps until a child ends, and
//! neither prints nor polls in the meantime; beside it an [`attendant`] looks ten times a second. Each
//! command leads a process group of its own, its orphans become children of corewise, and a run is over when
//! no child is left.

mod attendant;
mod difference;
mod energy;
mod error;
mod output;
mod processes;
pub mod setting;
mod surroundings;

pub use difference::Difference;
pub use error::RunError;

use corewise_core::comparison::{Application, Executor, Made, Plan, Run, Setting, Variant, Workload};
use corewise_core::time::Time;
use corewise_sys::clock::boot_time;
use energy::Energy;
use output::Outputs;
use processes::{Ended, Processes, Until};
use std::path::Path;
use std::time::Duration;
use surroundings::Surroundings;

/// Runs the variants of a plan on this machine.
#[derive(Debug)]
pub struct CommandExecutor {
    plan: Plan,
    setting: Setting,
    begin: Duration,
    /// How long time stood still since then.
    still: Duration,
    processes: Processes,
    outputs: Outputs,
    energy: Energy,
}

impl CommandExecutor {
    /// Prepares the runs of a plan. `before` is the machine's setting during earlier runs of the same
    /// comparison. The commands' output is shown if `show_output`.
    ///
    /// This process must have one thread. From now on the signals that ask it to end are blocked: they end
    /// the run.
    pub fn open(plan: &Plan, before: Option<&Setting>, show_output: bool) -> Result<Self, RunError> {
        let setting = setting::read(Path::new("/"));
        check(&setting, before)?;
        Ok(Self {
            plan: plan.clone(),
            setting,
            begin: boot_time(),
            still: Duration::ZERO,
            processes: Processes::open()?,
            outputs: Outputs::new(show_output, plan)?,
            energy: Energy::open(Path::new("/")),
        })
    }

    /// Returns the machine's setting.
    pub fn setting(&self) -> &Setting {
        &self.setting
    }

    /// Runs the plan's setup command once. Returns `false` if corewise was asked to end.
    pub fn set_up(&mut self) -> Result<bool, RunError> {
        self.plan.setup.clone().map_or(Ok(true), |command| self.shell(&command, "--setup"))
    }

    fn shell(&mut self, command: &str, of: &str) -> Result<bool, RunError> {
        let command = ["sh", "-c", command].map(str::to_owned).to_vec();
        let application = Application { name: of.to_owned(), command, start_seconds: 0.0, pes: None };
        let workload = Workload { applications: vec![application], completions: 1, fixed_seconds: None };
        let streams = self.outputs.of_preparation()?;
        let Some(run) = self.processes.run(&workload, &streams, Until::default())? else {
            return Ok(false);
        };
        self.outputs.check_exit(&workload, of, run.failure)?;
        Ok(true)
    }
}

impl CommandExecutor {
    /// Returns an error if the run does not count.
    fn check_end(&self, variant: &Variant, ended: &Ended) -> Result<(), RunError> {
        let (name, workload) = (&variant.name, &variant.workload);
        if let (Some(seconds), true) = (workload.fixed_seconds, ended.wall.is_zero()) {
            return Err(RunError::NotOnce { variant: name.clone(), seconds });
        }
        if self.plan.ignore_failure {
            return Ok(());
        }
        if let (Some(seconds), true) = (self.plan.timeout_seconds, ended.timed_out) {
            return Err(RunError::TooLong { variant: name.clone(), seconds });
        }
        self.outputs.check_exit(workload, &format!("the variant `{name}`"), ended.failure)
    }
}

impl Executor for CommandExecutor {
    type Error = RunError;

    fn now(&self) -> Time {
        Time(boot_time().saturating_sub(self.begin + self.still).as_nanos() as u64)
    }

    fn run(&mut self, variant: usize) -> Result<Made, RunError> {
        check(&setting::read(Path::new("/")), Some(&self.setting))?;
        if let Some(command) = self.plan.prepare.clone()
            && !self.shell(&command, "--prepare")?
        {
            return Ok(Made::Interrupted);
        }
        // What came before is not part of the run.
        self.still += self.processes.stood_still();
        let variant = &self.plan.variants[variant];
        let streams = self.outputs.of_run(&variant.workload)?;
        let before = Surroundings::read(Path::new("/"));
        let energy = self.energy.read();
        let timeout = self.plan.timeout_seconds.map(Duration::from_secs_f64);
        let until = Until { ignore_failure: self.plan.ignore_failure, timeout };
        let ended = self.processes.run(&variant.workload, &streams, until)?;
        let energy_joules = self.energy.since(energy);
        let after = Surroundings::read(Path::new("/"));
        let Some(ended) = ended else { return Ok(Made::Interrupted) };
        let still = self.processes.stood_still();
        self.still += still;
        if ended.continued || !still.is_zero() {
            return Ok(Made::StoodStill(still));
        }
        self.check_end(variant, &ended)?;
        let printed = self.outputs.figures(variant, self.plan.ignore_failure)?;
        self.outputs.compare(&variant.name)?;
        let exit_code = exit_code(&ended);
        let passed = after.since(&before, ended.user + ended.system, ended.whole);
        Ok(Made::Run(Run {
            wall_seconds: ended.wall.as_secs_f64(),
            user_seconds: ended.user.as_secs_f64(),
            system_seconds: ended.system.as_secs_f64(),
            completions: ended.completions,
            exit_code,
            energy_joules,
            load: before.load,
            others_pes: passed.others_pes,
            steal_share: passed.steal_share,
            left_behind: ended.left_behind,
            timed_out: ended.timed_out,
            printed,
        }))
    }
}

/// Returns the exit code as timeout(1) and shells do.
fn exit_code(ended: &Ended) -> i32 {
    const TIMED_OUT: i32 = 124;
    match ended.failure {
        _ if ended.timed_out => TIMED_OUT,
        Some((_, status)) => i32::from(corewise_sys::signals::shell_status(status)),
        None => 0,
    }
}

fn check(now: &Setting, before: Option<&Setting>) -> Result<(), RunError> {
    let changes = before.map_or_else(Vec::new, |before| now.changes_since(before));
    if changes.is_empty() { Ok(()) } else { Err(RunError::Changed(changes)) }
}
