//! `corewise emulate-slow`: slows PEs down for a while.

use crate::outputs::JsonOutput;
use crate::session::exited;
use crate::values;
use anyhow::{Context, Result};
use corewise_binding::recovery;
use corewise_binding::slow::{Achieved, Means, SPEED_MIN, SlowPes, Wish};
use corewise_core::cpuset::CpuSet;
use corewise_core::topology::{DomainKind, Topology};
use corewise_render::terminal;
use corewise_sys::environment;
use corewise_sys::launch::{self, Output, Waiting};
use corewise_sys::signals::Signals;
use corewise_topology as topology;
use corewise_topology::Source;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Make PEs slower for a while, to emulate a machine with fast and slow ones.
///
/// Uses frequency limits (scaling_max_freq) where the machine has them, else real-time threads that take a
/// share of the PEs' time. The speed is measured before the command starts; if it is not the requested one,
/// nothing is run. The PEs are slow until the command ends, or without a command until Ctrl-C. The change is
/// undone however corewise ends. docs/emulate-slow.md says what this emulates and what it does not.
#[derive(Debug, clap::Args)]
pub struct EmulateSlow {
    /// Which PEs: 0-3, core:0-1, l3:0 (see docs/topo.md)
    #[arg(value_name = "CPUS")]
    pes: String,
    /// The wanted speed as a share of the present one, from 0.1 to below 1
    #[arg(long, value_name = "SHARE", value_parser = speed)]
    speed: f64,
    /// The means: frequency limits (frequency), real-time threads (threads), or whichever works (auto)
    #[arg(long, value_enum, value_name = "auto|frequency|threads", default_value = "auto")]
    by: By,
    /// The period in which real-time threads take their share once
    #[arg(long, value_name = "TIME", value_parser = values::time(PERIODS), default_value = "2ms")]
    period: Duration,
    /// Without a command: end after this time
    #[arg(long, value_name = "TIME", value_parser = values::any_time, conflicts_with = "command")]
    duration: Option<Duration>,
    /// Print errors only
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    json: JsonOutput,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Auto,
    Frequency,
    Threads,
}

/// The outcome, for scripts.
#[derive(Serialize)]
struct Outcome {
    evidence: &'static str,
    by: Means,
    speed: f64,
    seconds: f64,
    pes: Vec<Achieved>,
}

impl EmulateSlow {
    /// Keeps the PEs slow; returns the command's exit status, or success.
    pub fn execute(self) -> Result<ExitStatus> {
        self.json.check()?;
        let topology = topology::load(&Source::Live, None)?;
        let pes = topology.locate(&self.pes)?;
        recovery::recover().into_iter().for_each(terminal::message);
        let mut signals = Signals::open().context("cannot take over the signals")?;
        // A corewise in the command then knows which PEs are slow.
        let variable = environment::slowed_down(&pes, self.speed);
        // Create the command's process first, while this process has only one thread.
        let waiting = match self.command.as_slice() {
            [] => None,
            words => {
                let waiting = launch::prepare(words, &mut signals, Output::Own, &[variable])?;
                signals.let_go_of_descriptors(false);
                Some(waiting)
            }
        };
        let by = match self.by {
            By::Auto => None,
            By::Frequency => Some(Means::Frequency),
            By::Threads => Some(Means::Threads),
        };
        let slow = SlowPes::start(&Wish { pes: pes.clone(), speed: self.speed, period: self.period, by })?;
        if !self.quiet && !self.json.is_printed() {
            self.tell_start(&slow, &topology, &pes);
        }
        let begin = Instant::now();
        let status = match waiting {
            Some(waiting) => self.follow(waiting, &mut signals)?,
            None => self.wait(&mut signals)?,
        };
        self.tell_end(&slow, begin.elapsed())?;
        Ok(status)
    }

    fn follow(&self, waiting: Waiting, signals: &mut Signals) -> Result<ExitStatus> {
        let pid = waiting.start(&self.command[0].to_string_lossy())?;
        signals.follow(pid).context("cannot follow the command")
    }

    /// Waits until corewise is asked to end, or the time is over.
    fn wait(&self, signals: &mut Signals) -> Result<ExitStatus> {
        let until = self.duration.map(|duration| Instant::now() + duration);
        while !signals.take(None).context("cannot read signals")?.asked_to_end {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = match left {
                Some(Duration::ZERO) => break,
                Some(left) => PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX),
                None => PollTimeout::NONE,
            };
            // Whether it fails or not, the next iteration reads the state.
            let _ = poll(&mut [PollFd::new(signals.fd(), PollFlags::POLLIN)], timeout);
        }
        Ok(exited(0))
    }

    fn tell_start(&self, slow: &SlowPes, topology: &Topology, pes: &CpuSet) {
        if let Some(why_not) = slow.why_not_frequency().filter(|why_not| why_not.is_news()) {
            terminal::message(format_args!("not by the clock: {why_not}"));
        }
        let means = match slow.by() {
            Means::Frequency => "their clocks are limited".to_owned(),
            Means::Threads => {
                format!("real-time threads take {:.0} % of their time", (1.0 - self.speed) * 100.0)
            }
        };
        let measured: Vec<String> =
            slow.achieved().iter().map(|one| format!("PE {} {:.3}", one.pe, one.measured)).collect();
        terminal::message(format_args!(
            "emulated: PEs {pes} at {} of their speed, {means}; measured: {}",
            self.speed,
            measured.join(", ")
        ));
        let siblings: CpuSet = topology
            .domains(DomainKind::Core)
            .filter(|core| core.pes.intersects(pes))
            .flat_map(|core| core.pes.difference(pes).iter().collect::<Vec<_>>())
            .collect();
        if !siblings.is_empty() && slow.by() == Means::Threads {
            terminal::message(format_args!(
                "note: PEs {siblings} share cores with those, and are slowed by the threads, too"
            ));
        }
    }

    fn tell_end(&self, slow: &SlowPes, lasted: Duration) -> Result<()> {
        let pes = slow.achieved();
        let (by, speed, seconds) = (slow.by(), self.speed, lasted.as_secs_f64());
        let outcome = Outcome { evidence: "emulated", by, speed, seconds, pes };
        self.json.say(&outcome, || {
            if self.quiet {
                return;
            }
            let left = |one: &Achieved| Some(format!("PE {} {:.3}", one.pe, one.time_left?));
            let left: Vec<String> = outcome.pes.iter().filter_map(left).collect();
            let left =
                if left.is_empty() { String::new() } else { format!("; time left: {}", left.join(", ")) };
            terminal::message(format_args!("{seconds:.2} s{left}"));
        })
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (SPEED_MIN..1.0).contains(&speed) => Ok(speed),
        _ => Err(format!(
            "write a share of the present one from {SPEED_MIN} (less would \
             leave the kernel no time on the PE) to below 1, such as 0.5"
        )),
    }
}

/// Shorter periods cost more than they take, longer ones are noticed as pauses.
const PERIODS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(100);
