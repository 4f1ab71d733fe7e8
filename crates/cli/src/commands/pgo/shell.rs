//! Commands of the user, with their output in files and their failures told.

use crate::output::Name;
use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Lines of a failed command's output that are told.
const TOLD_LINES: usize = 20;

/// Runs commands until somebody asks to end.
#[derive(Debug)]
pub struct Shell {
    /// Where outputs go.
    pub dir: PathBuf,
    /// Set by Ctrl-C and its like.
    pub asked_to_end: Arc<AtomicBool>,
}

impl Shell {
    /// Runs a line of the shell; its output is `NAME.log`.
    pub fn run(&self, line: &str, name: &str) -> Result<()> {
        let log = self.dir.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdout(output.try_clone()?).stderr(output);
        self.wait(command, line, &log)
    }

    /// Runs this corewise; what the commands that it runs print is of no interest, their errors are.
    pub fn corewise(&self, arguments: &[String], line: &str) -> Result<()> {
        let log = self.dir.join("record.log");
        let program = std::env::current_exe().context("corewise cannot find its own file")?;
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::null()).stderr(File::create(&log)?);
        self.wait(command, line, &log)
    }

    /// The CPU time of a run, in seconds: user and system time of all processes that were waited for.
    pub fn timed(&self, line: &str, output: &Path) -> Result<f64> {
        let cpu = || -> Result<f64> {
            let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
            Ok((usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6)
        };
        let before = cpu()?;
        let log = self.dir.join("run.log");
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdout(File::create(output)?).stderr(File::create(&log)?);
        self.wait(command, line, &log)?;
        Ok(cpu()? - before)
    }

    /// Whether Ctrl-C or its like came.
    pub fn is_asked_to_end(&self) -> bool {
        self.asked_to_end.load(Ordering::Relaxed)
    }

    fn wait(&self, mut command: Command, line: &str, log: &Path) -> Result<()> {
        let status = command.stdin(Stdio::null()).status().context("cannot start the shell")?;
        if self.is_asked_to_end() {
            bail!("ended by a signal; if the baseline was built, it is in its place");
        }
        if !status.success() {
            let text = std::fs::read(log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(TOLD_LINES)..].join("\n");
            bail!("`{}` failed ({status}); the end of {}:\n{last}", Name(line), log.display());
        }
        Ok(())
    }
}
