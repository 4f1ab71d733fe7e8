//! Runs commands of the user; their output goes to files, and their failures are reported.

use anyhow::{Context, Result, bail};
use corewise_render::terminal::Name;
use corewise_render::terminal::progress::StatusLine;
use corewise_sys::launch::{Launch, Running, Stream};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, killpg};
use nix::sys::time::TimeValLike;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The number of lines of a failed command's output that are shown.
const LINES_SHOWN: usize = 20;

/// How often to check whether a command has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How long descendants of a command may take to end after they are asked to.
const GRACE: Duration = Duration::from_secs(5);

/// Runs commands until corewise is asked to end.
#[derive(Debug)]
pub struct Shell {
    /// The folder of the outputs.
    pub dir: PathBuf,
    /// Set by Ctrl-C and similar signals.
    pub asked_to_end: Arc<AtomicBool>,
}

impl Shell {
    /// Runs a shell command line; its output goes to `NAME.log`. A terminal shows the time that it takes.
    pub fn run(&self, line: &str, name: &str) -> Result<()> {
        let log = self.dir.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let launch = Launch::of(["sh", "-c", line])?.output(output.try_clone()?).error(output);
        let (status, began) = (StatusLine::start(), Instant::now());
        let show = || status.show(format!("{name}: {} s", began.elapsed().as_secs()));
        let ended = self.wait(launch, line, &log, show);
        status.finish();
        ended
    }

    /// Runs this corewise. The output of its commands is discarded; its errors are kept.
    pub fn corewise(&self, arguments: &[String], line: &str) -> Result<()> {
        let log = self.dir.join("record.log");
        let program = std::env::current_exe().context("corewise cannot find its own file")?;
        let words = [program.into()].into_iter().chain(arguments.iter().map(OsString::from));
        let launch = Launch::of(words)?.output(Stream::null()?).error(File::create(&log)?);
        self.wait(launch, line, &log, || {})
    }

    /// Returns the CPU time of a run, in seconds: user and system time of all processes that were waited for.
    pub fn timed(&self, line: &str, output: &Path) -> Result<f64> {
        let cpu = || -> Result<f64> {
            let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
            Ok((usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6)
        };
        let before = cpu()?;
        let log = self.dir.join("run.log");
        let launch = Launch::of(["sh", "-c", line])?;
        self.wait(launch.output(File::create(output)?).error(File::create(&log)?), line, &log, || {})?;
        Ok(cpu()? - before)
    }

    /// Returns whether corewise was asked to end.
    pub fn is_asked_to_end(&self) -> bool {
        self.asked_to_end.load(Ordering::Relaxed)
    }

    /// Runs a command to its end; calls `meanwhile` again and again.
    fn wait(&self, launch: Launch, line: &str, log: &Path, meanwhile: impl Fn()) -> Result<()> {
        // A process group of its own: on the terminal's Ctrl-C corewise ends it, and waits for the whole
        // group.
        let running = launch.input(Stream::null()?).leading_a_group().start()?;
        let status = self.ended(running, meanwhile)?;
        if self.is_asked_to_end() {
            bail!("ended by a signal");
        }
        if !status.success() {
            let text = std::fs::read(log).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
            bail!("`{}` failed ({status}); the end of {}:\n{last}", Name(line), log.display());
        }
        Ok(())
    }

    /// Waits for a command, and ends its whole group when corewise is asked to end.
    fn ended(&self, mut child: Running, meanwhile: impl Fn()) -> Result<ExitStatus> {
        let group = child.pid();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if self.is_asked_to_end() {
                break;
            }
            meanwhile();
            sleep(LOOK_INTERVAL);
        }
        // A `make` that is asked to end removes its unfinished target, so nothing may be restored before it
        // has ended.
        let asked = Instant::now();
        let _ = killpg(group, Signal::SIGTERM);
        loop {
            let status = child.try_wait()?;
            if let (Some(status), Err(_)) = (status, killpg(group, None)) {
                return Ok(status);
            }
            if asked.elapsed() > GRACE {
                let _ = killpg(group, Signal::SIGKILL);
                return Ok(child.wait()?);
            }
            sleep(LOOK_INTERVAL);
        }
    }
}

/// Quotes a word for the shell.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
