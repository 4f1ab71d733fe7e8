//! `corewise pgo record`: records programs that always run, a little all the time, into a profile store.
//!
//! Problem: the typical work of a program shows where it serves its users, over days, but a single recording
//! would grow without limit. Approach: short recordings, one after another. A bounded number of windows of
//! each build is kept in memory, and written once a period; recordings that are too old or too many are then
//! removed. So neither memory nor disk use grows, and the end of the recorder loses the windows since the
//! last write, and no more.
//!
//! Limits: some milliseconds between two short recordings are not recorded. A daemon that left its parent no
//! longer counts as a descendant from the next one on: use `--service` for it.

use super::super::paths::{Limits, Store};
use crate::values;
use anyhow::Result;
use corewise_branches::{self as branches, BranchError, Options, Progress, Target};
use corewise_paths::by_build::Builds;
use corewise_render::terminal::{self, Name, progress::StatusLine};
use corewise_sys::cgroup::{GroupError, Hierarchy};
use corewise_sys::signals;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// The maximum length of one recording.
const PART: Duration = Duration::from_secs(60);
/// How often to check whether a service has been started again.
const RESTART_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of windows of a build that are kept per period.
const PERIOD_WINDOWS_MAX: usize = 5_000;
const PERIOD_MIN: Duration = Duration::from_secs(1);
/// The maximum of samples per second: this runs for days.
const RATE_MAX: f64 = 1000.0;
/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Record programs that always run, at a low rate, into a profile store for `corewise pgo --from`
///
/// Until Ctrl-C, `--duration` or the end of the process; the recorded programs continue unharmed. Once a
/// period the windows of each build are written, and recordings beyond the limits are removed from the store.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["pid", "service", "system"]))]
pub struct Record {
    /// A running process, with its descendants
    #[arg(long, short, value_name = "PID", value_parser = values::pid)]
    pid: Option<u32>,
    /// A running unit of systemd, also after it is restarted; needs root
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// All processes of this machine; needs root
    #[arg(long)]
    system: bool,
    /// The folder of the profile store [default: ~/.local/state/corewise/profiles]
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Samples per second of each running thread's CPU time
    #[arg(long, value_name = "HZ", default_value = "20", value_parser = rate)]
    rate: f64,
    /// How often windows are written: kill -9 and a full disk lose this much
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = values::at_least(PERIOD_MIN))]
    period: Duration,
    /// Remove older recordings
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = values::any_time)]
    age: Duration,
    /// Remove the oldest recordings while the store exceeds this many MiB
    #[arg(long, value_name = "MIB", default_value = "256")]
    #[arg(value_parser = values::whole(1..=u32::MAX))]
    size: u32,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = values::any_time)]
    duration: Option<Duration>,
}

/// The recorded processes.
enum Scope {
    Process(u32),
    Service(String),
    System,
}

/// Returns whether there will be more to record.
#[derive(PartialEq, Eq)]
enum Then {
    More,
    Over,
}

struct Recorder {
    scope: Scope,
    options: Options,
    store: Store,
    limits: Limits,
    has_begun: bool,
    status: StatusLine,
    kept: Kept,
}

/// The result.
#[derive(Default)]
struct Kept {
    windows: usize,
    builds: BTreeSet<String>,
    /// The number of windows that no store can contain.
    without_build: usize,
    /// The number of recordings that could not be written.
    lost: usize,
}

impl Record {
    /// Records; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        let folder = self.store.map_or_else(Store::default_folder, Ok)?;
        let scope = match (self.pid, self.service) {
            (Some(pid), _) => Scope::Process(pid),
            (None, Some(unit)) => Scope::Service(full_name(unit)),
            (None, None) => Scope::System,
        };
        let store = Store::create(folder.clone())?;
        let limits = Limits { age: self.age, bytes: u64::from(self.size) * MIB };
        let options = Options {
            period: Duration::from_secs_f64(1.0 / self.rate),
            stop: signals::asked_to_end()?,
            ..Options::default()
        };
        let (status, kept) = (StatusLine::start(), Kept::default());
        let mut recorder = Recorder { scope, options, store, limits, has_begun: false, status, kept };
        let end = self.duration.and_then(|duration| Instant::now().checked_add(duration));
        let recorded = recorder.record(self.period, end);
        recorder.status.finish();
        terminal::message(recorder.kept.summary(&folder.display().to_string()));
        recorded.map(|()| u8::from(recorder.kept.lost > 0))
    }
}

impl Recorder {
    /// Records period after period.
    fn record(&mut self, period: Duration, end: Option<Instant>) -> Result<()> {
        loop {
            let begun = SystemTime::now();
            let period_end = Instant::now() + period;
            let until = end.map_or(period_end, |end| end.min(period_end));
            let mut builds = Builds::new(PERIOD_WINDOWS_MAX, seed(begun));
            let then = self.period(&mut builds, until);
            self.keep(builds, begun);
            let is_late = end.is_some_and(|end| Instant::now() >= end);
            if then? == Then::Over || is_late || self.is_asked_to_end() {
                return Ok(());
            }
        }
    }

    fn period(&mut self, builds: &mut Builds, until: Instant) -> Result<Then> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_asked_to_end() {
                return Ok(Then::More);
            }
            if self.part(builds, left.min(PART))? == Then::Over {
                return Ok(Then::Over);
            }
        }
    }

    /// Records for some time.
    fn part(&mut self, builds: &mut Builds, time: Duration) -> Result<Then> {
        let group;
        let target = match &self.scope {
            Scope::Process(pid) => Target::Pid(*pid),
            Scope::Service(unit) => {
                group = match Hierarchy::mounted()?.unit(unit) {
                    Ok(group) => group,
                    Err(GroupError::NoUnit { .. }) if self.has_begun => return Ok(self.await_restart(time)),
                    Err(error) => return Err(error.into()),
                };
                Target::Cgroup(&group)
            }
            Scope::System => Target::System,
        };
        self.options.duration = Some(time);
        let (begin, before, status) = (Instant::now(), self.kept.windows + builds.windows(), &self.status);
        let recorded = branches::record(target, &self.options, &mut |Progress { windows, .. }| {
            status.show(format!("{} windows", before + windows));
        });
        let recording = match recorded {
            Ok(recorded) => recorded.recording,
            Err(BranchError::NoProcess(_)) if self.has_begun => return Ok(Then::Over),
            Err(error) => return Err(error.into()),
        };
        if !self.has_begun {
            recording.notes.iter().for_each(terminal::message);
        }
        self.has_begun = true;
        builds.add(recording);
        let has_ended = begin.elapsed() < time && !self.is_asked_to_end();
        Ok(match self.scope {
            Scope::Process(_) if has_ended => Then::Over,
            Scope::Service(_) if has_ended => self.await_restart(time),
            Scope::Process(_) | Scope::Service(_) | Scope::System => Then::More,
        })
    }

    fn await_restart(&self, time: Duration) -> Then {
        self.status.show("the service does not run: waiting for its start".to_owned());
        thread::sleep(RESTART_INTERVAL.min(time));
        Then::More
    }

    /// Writes the windows of a period, and removes what exceeds the store's limits. A write error does not
    /// end the recording: there may be space again.
    fn keep(&mut self, builds: Builds, begun: SystemTime) {
        self.kept.without_build += builds.without_build();
        for build in builds.finish() {
            match self.store.put(&build, begun) {
                Ok(true) => {
                    self.kept.windows += build.recording.windows.len();
                    self.kept.builds.insert(build.build_id);
                }
                Ok(false) => self.kept.without_build += build.recording.windows.len(),
                Err(error) => {
                    self.kept.lost += 1;
                    terminal::message(format!("{error:#}: this period is lost, the recording continues"));
                }
            }
        }
        self.store.prune(self.limits, SystemTime::now());
    }

    fn is_asked_to_end(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }
}

impl Kept {
    fn summary(&self, folder: &str) -> String {
        let Kept { windows, builds, without_build, lost } = self;
        let mut text = format!("{windows} windows of {} builds are in {}", builds.len(), Name(folder));
        if *without_build > 0 {
            text += &format!(
                "; {without_build} windows are in files without a build id and are left out: link those with \
                 -Wl,--build-id (Go: build them with -ldflags=-B=gobuildid)"
            );
        }
        if *lost > 0 {
            text += &format!("; {lost} recordings could not be written");
        }
        if *windows > 0 {
            text += &format!("; next: corewise pgo --from {} …", Name(folder));
        }
        text
    }
}

/// A seed for each period, so that each drops other windows.
fn seed(begun: SystemTime) -> u64 {
    begun.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Completes a unit's name: `nginx` is `nginx.service`, as for systemctl.
fn full_name(unit: String) -> String {
    let has_kind = [".service", ".scope", ".slice"].iter().any(|kind| unit.ends_with(kind));
    if has_kind { unit } else { unit + ".service" }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= RATE_MAX => Ok(rate),
        _ => Err(format!("`{text}` is not a rate: write a number of samples a second, at most {RATE_MAX}")),
    }
}
