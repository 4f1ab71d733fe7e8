//! `corewise paths record`: the branches of a command or of a running process.

use super::file;
use crate::outputs::OutputFile;
use crate::{values, whole_file};
use anyhow::Result;
use clap::ValueEnum;
use corewise_branches as branches;
use corewise_branches::{Backend, BranchError, Options, Progress, Recorded, Target};
use corewise_render::terminal;
use corewise_render::terminal::progress::StatusLine;
use corewise_sys::signals;
use std::ffi::OsString;
use std::process::ExitStatus;
use std::time::Duration;

/// The maximum of samples per second of a running thread: above it, most of the time would be pauses.
const RATE_MAX: f64 = 10_000.0;

/// Record which way the branches of a command, or of a running process, go
///
/// Each running thread is sampled several times per second of its CPU time; a sample is a window of
/// consecutive branches. Descendants are recorded too. The exit status is as with `corewise run`.
#[derive(Debug, clap::Args)]
pub struct Record {
    /// The sampler: branch records of the processor (lbr), emulation while a thread is preempted (shadow) or
    /// stopped (shadow-ptrace), or single steps (step: slow, for checks)
    #[arg(long, value_name = "NAME", default_value = "auto")]
    backend: BackendName,
    /// Samples per second of each running thread's CPU time
    #[arg(long, value_name = "HZ", default_value = "100", value_parser = rate)]
    rate: f64,
    /// Branches per window
    #[arg(long, value_name = "N", default_value = "32")]
    #[arg(value_parser = values::whole(2..=1024_u32))]
    branches: u32,
    /// One window in this many has 1024 branches instead: these show how loops are related (0: none; unless
    /// given: 8, or as many as make 20 a second)
    #[arg(long, value_name = "N", value_parser = values::whole(0..=u32::MAX))]
    long_one_in: Option<u32>,
    /// Record a running process, which continues when the recording ends (Ctrl-C)
    #[arg(long, short, value_name = "PID", value_parser = values::pid, conflicts_with = "command")]
    pid: Option<u32>,
    /// End after this time, with its unit; a command then continues unrecorded
    #[arg(long, value_name = "TIME", value_parser = values::any_time)]
    duration: Option<Duration>,
    /// Where to write the recording
    #[arg(long, short, value_name = "FILE")]
    output: OutputFile,
    /// Print no summary at the end
    #[arg(long, short)]
    quiet: bool,
    /// The command and its arguments
    #[arg(required_unless_present = "pid", trailing_var_arg = true)]
    #[arg(value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BackendName {
    Auto,
    Lbr,
    Shadow,
    ShadowPtrace,
    Step,
}

impl Record {
    /// Records; returns how the command ended.
    pub fn execute(self) -> Result<ExitStatus> {
        whole_file::check_writable(&self.output)?;
        let mut options = Options {
            backend: match self.backend {
                BackendName::Auto => Backend::Auto,
                BackendName::Lbr => Backend::Lbr,
                BackendName::Shadow => Backend::Shadow,
                BackendName::ShadowPtrace => Backend::ShadowPtrace,
                BackendName::Step => Backend::Step,
            },
            period: Duration::from_secs_f64(1.0 / self.rate),
            branches_max: self.branches,
            long_one_in: self.long_one_in,
            duration: self.duration,
            ..Options::default()
        };
        let target = match self.pid {
            Some(pid) => {
                // With a command there is nothing to handle: signals are passed on to it.
                options.stop = signals::asked_to_end()?;
                Target::Pid(pid)
            }
            None => Target::Command(&self.command),
        };
        if self.backend == BackendName::Step {
            // The processor stops after each instruction until the tracer resets it.
            terminal::message(
                "while the program is stepped, kill -9 of corewise also ends it: end with Ctrl-C or TERM",
            );
        }
        let line = StatusLine::start();
        let recorded = branches::record(target, &options, &mut |Progress { windows, processes }| {
            line.show(format!("{windows} windows of {processes} processes"));
        });
        line.finish();
        let recorded = recorded.map_err(|error| match error {
            // Its exit status is that of corewise.
            BranchError::Launch(error) => anyhow::Error::from(error),
            error => error.into(),
        })?;
        file::write(&self.output, &recorded.recording)?;
        if !self.quiet {
            terminal::message(summary(&recorded, &self.output.display().to_string()));
        }
        Ok(recorded.exit_status.unwrap_or_default())
    }
}

/// Returns the closing line.
fn summary(recorded: &Recorded, file: &str) -> String {
    let recording = &recorded.recording;
    let pauses = recorded.pauses.mean().zip(recorded.pauses.quantile(0.5));
    let pause = pauses.map_or(String::new(), |(mean, median)| {
        let (mean, median) = (mean / 1e3, f64::from(median) / 1e3);
        format!("; threads were paused for {mean:.0} µs on average, {median:.0} in the median")
    });
    let without = reasons(recorded);
    let without = if without.is_empty() { String::new() } else { format!("; no window: {without}") };
    if recording.windows.is_empty() {
        return format!(
            "no window was recorded{without}; did it run at all, and long enough? Try a higher --rate or a \
             longer --duration"
        );
    }
    format!(
        "{} windows by {} of {} files{without}{pause}; next: corewise paths report {file}",
        recording.windows.len(),
        recording.backend,
        recording.modules.len()
    )
}

/// Returns the samples without a window, by reason.
fn reasons(recorded: &Recorded) -> String {
    let counted = recorded.recording.without_window.iter();
    counted.map(|(reason, count)| format!("{count} {reason}")).collect::<Vec<_>>().join(", ")
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= RATE_MAX => Ok(rate),
        _ => Err(format!("`{text}` is not a rate: write a number of samples a second, at most {RATE_MAX}")),
    }
}
