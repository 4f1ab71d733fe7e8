//! `corewise progress`: how fast the threads of a program advance.

use crate::outputs::{JsonLines, JsonOutput};
use crate::session::exited;
use crate::values;
use anyhow::{Context, Result};
use corewise_core::progress::{SLICES_MIN, Slice, Unknown, ratio};
use corewise_core::stats::Interval;
use corewise_counters::progress::{Meter, SLICE};
use corewise_discovery::attach;
use corewise_render::terminal::{self, Name};
use corewise_sys::launch::{self, Output};
use corewise_sys::signals::Signals;
use corewise_topology as topology;
use corewise_topology::Source;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use serde::Serialize;
use std::ffi::OsString;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// The number of intervals in a row in which a thread does something else before another point is searched.
const PATIENCE: u32 = 3;

/// Measure how fast the threads of a program advance, relative to before.
///
/// Needs no hardware counters and no changes to the program: it counts how often each thread passes a point
/// of its own code. The first ten seconds or so find the point, the next ones are the baseline; then
/// each interval has a line with every thread's speed relative to it, or why it is unknown. Needs root.
#[derive(Debug, clap::Args)]
pub struct Progress {
    /// Instead of a command: a running process, until it ends or Ctrl-C
    #[arg(long, value_name = "PID", value_parser = values::pid, conflicts_with = "command")]
    pid: Option<u32>,
    /// Time between two lines
    #[arg(long, value_name = "TIME", value_parser = values::at_least(INTERVAL_MIN), default_value = "1s")]
    interval: Duration,
    /// How long the baseline is measured, at least
    #[arg(long, value_name = "TIME", value_parser = values::at_least(INTERVAL_MIN), default_value = "3s")]
    baseline: Duration,
    /// With --pid: end after this time
    #[arg(long, value_name = "TIME", value_parser = values::any_time, requires = "pid")]
    duration: Option<Duration>,
    #[command(flatten)]
    json: JsonOutput,
    /// The command and its arguments
    #[arg(required_unless_present = "pid", last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Measuring a speed takes so long.
const INTERVAL_MIN: Duration = SLICE.saturating_mul(SLICES_MIN as u32);

/// The maximum number of intervals that count together if one is not enough.
const INTERVALS_MAX: usize = 8;

/// One line: one thread in one interval.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// The end of the interval, since the start.
    at_s: f64,
    /// The beginning of the counted time: one interval before, or several if one was not enough.
    from_s: f64,
    tid: u32,
    name: &'a str,
    /// The counted point and its companion.
    points: &'a [String],
    /// When the baseline of the speed began.
    since_s: f64,
    passes_per_s: Option<f64>,
    speed: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    unknown: Option<String>,
}

/// A thread for which points were found.
struct Thread {
    meter: Meter,
    baseline: Vec<Slice>,
    window: Vec<Slice>,
    /// The slices of one interval.
    interval_slices: usize,
    /// The number of intervals in a row in which it did something else.
    elsewhere: u32,
}

/// The measured program, and how it ends.
struct Session<'a> {
    options: &'a Progress,
    lines: Option<JsonLines>,
    signals: Signals,
    pid: Pid,
    begin: Instant,
    ended: Option<ExitStatus>,
    is_over: bool,
}

impl Progress {
    /// Measures until the program ends or corewise is asked to end; returns how the command ended.
    pub fn execute(self) -> Result<ExitStatus> {
        let pes = topology::load(&Source::Live, None)?.pes;
        let lines = self.json.lines(self.pid.is_some())?;
        let mut signals = Signals::open().context("cannot take over the signals")?;
        let pid = match self.pid {
            Some(pid) => {
                attach::check(pid, &[std::process::id()])?;
                Pid::from_raw(pid as i32)
            }
            None => {
                let waiting = launch::prepare(&self.command, &mut signals, Output::Own, &[])?;
                signals.let_go_of_descriptors(false);
                waiting.start(&self.command[0].to_string_lossy())?
            }
        };
        let begin = Instant::now();
        let mut session = Session { options: &self, lines, signals, pid, begin, ended: None, is_over: false };
        while !session.is_over {
            let meters = Meter::start(pid.as_raw() as u32, &pes);
            session.wait(Duration::ZERO)?;
            match meters {
                _ if session.is_over => {}
                Ok(meters) => session.follow(meters)?,
                Err(error) => {
                    terminal::message(format_args!("nothing can be measured: {error}"));
                    session.wait(Duration::MAX)?;
                }
            }
        }
        Ok(session.ended.unwrap_or_else(|| exited(0)))
    }
}

impl Session<'_> {
    /// Waits; less if the program ends meanwhile.
    fn wait(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now().checked_add(time);
        loop {
            let command = self.options.pid.is_none() && self.ended.is_none();
            let news = self.signals.take(command.then_some(self.pid)).context("cannot read signals")?;
            self.ended = self.ended.or(news.ended);
            let is_late = self.options.duration.is_some_and(|duration| self.begin.elapsed() >= duration);
            let is_gone = self.options.pid.is_some_and(|pid| attach::check(pid, &[]).is_err());
            // A command decides for itself whether it ends on a signal.
            let is_asked = news.asked_to_end && self.options.pid.is_some();
            self.is_over = self.ended.is_some() || is_late || is_gone || is_asked;
            let left =
                until.map_or(SLICE, |until| until.saturating_duration_since(Instant::now()).min(SLICE));
            if self.is_over || left.is_zero() {
                return Ok(());
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            // An error does not matter: the next iteration checks everything.
            let _ = poll(&mut [PollFd::new(self.signals.fd(), PollFlags::POLLIN)], timeout);
        }
    }

    /// Measures until the program ends, or its threads do something else.
    fn follow(&mut self, meters: Vec<Meter>) -> Result<()> {
        let since_s = self.begin.elapsed().as_secs_f64();
        let interval_slices = slices_of(self.options.interval);
        let thread =
            |meter| Thread { meter, baseline: Vec::new(), window: Vec::new(), interval_slices, elsewhere: 0 };
        let mut threads: Vec<Thread> = meters.into_iter().map(thread).collect();
        let mut next = Instant::now() + self.options.interval;
        while !self.is_over {
            self.wait(SLICE)?;
            threads.retain_mut(Thread::step);
            if Instant::now() < next {
                continue;
            }
            next += self.options.interval;
            let at_s = self.begin.elapsed().as_secs_f64();
            for thread in &mut threads {
                if let Some(line) = thread.line(at_s, since_s, self.options.baseline) {
                    self.tell(&line)?;
                }
            }
            let is_lost = |thread: &Thread| thread.meter.choice().is_err() || thread.elsewhere >= PATIENCE;
            if threads.iter().all(is_lost) {
                return self.wait(self.options.baseline);
            }
        }
        Ok(())
    }

    fn tell(&mut self, line: &Line<'_>) -> Result<()> {
        if let Some(lines) = &mut self.lines {
            return lines.write(line);
        }
        let what = match (line.speed, line.low, line.high, &line.unknown) {
            (Some(speed), Some(low), Some(high), _) => {
                format!("{speed:.3} [{low:.3}, {high:.3}] of its speed from {:.1} s on", line.since_s)
            }
            (.., Some(why)) => format!("unknown: {why}"),
            _ => return Ok(()),
        };
        let points: Vec<String> = line.points.iter().map(|point| Name(point).to_string()).collect();
        let points = if points.is_empty() { String::new() } else { format!("  ({})", points.join("; ")) };
        terminal::message(format_args!(
            "{:7.1} s  {} {}  {what}{points}",
            line.at_s,
            line.tid,
            Name(line.name)
        ));
        Ok(())
    }
}

impl Thread {
    fn step(&mut self) -> bool {
        let lives = self.meter.step();
        self.window.extend(self.meter.take_slices());
        lives
    }

    /// Returns the result of the last interval; `None` while the baseline is measured.
    fn line(&mut self, at_s: f64, since_s: f64, baseline: Duration) -> Option<Line<'_>> {
        let wanted = slices_of(baseline).max(self.meter.judged());
        let choice = self.meter.choice();
        if choice.is_ok() && self.baseline.len() < wanted.max(SLICES_MIN) {
            self.baseline.append(&mut self.window);
            return None;
        }
        let found = choice.and_then(|choice| ratio(choice, &self.baseline, &self.window));
        self.elsewhere = if found == Err(Unknown::OtherPhase) { self.elsewhere + 1 } else { 0 };
        let wanted_s: f64 = self.window.iter().map(|slice| slice.wanted_s).sum();
        let from_s = at_s - SLICE.as_secs_f64() * self.window.len() as f64;
        let passes: u64 = self.window.iter().filter_map(|slice| slice.passes.first()).sum();
        // An interval that was not enough counts together with the next one.
        let most = INTERVALS_MAX * self.interval_slices.max(1);
        if found != Err(Unknown::TooLittle) || self.window.len() >= most {
            self.window.clear();
        }
        let of = |part: fn(&Interval) -> f64| found.as_ref().ok().map(part);
        Some(Line {
            at_s,
            from_s,
            tid: self.meter.tid,
            name: &self.meter.name,
            points: &self.meter.points,
            since_s,
            passes_per_s: (choice.is_ok() && wanted_s > 0.0).then(|| passes as f64 / wanted_s),
            speed: of(|ratio| ratio.value),
            low: of(|ratio| ratio.low),
            high: of(|ratio| ratio.high),
            unknown: found.as_ref().err().map(ToString::to_string),
        })
    }
}

fn slices_of(time: Duration) -> usize {
    time.div_duration_f64(SLICE).ceil() as usize
}
