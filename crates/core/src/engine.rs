//! The engine: from one observation to the next actions.
//!
//! Problem: a policy says what would be best now; carried out blindly that makes threads flap, fights with
//! users who placed their own threads, and repeats what the system has refused. Approach: the engine keeps,
//! per thread, the reading since which its rates are taken and the class it has, asks the policy, and lets
//! through only what stays within the rules of the [module invariants](#what-the-engine-guarantees). Sources:
//! the one-second control loop and the caching of BulldOver §IV and §V.C; the guarantees are ours.
//!
//! # What the engine guarantees
//!
//! - A thread is bound only to PEs that its user lets it have and that are allowed now.
//! - A thread that placed itself, or was placed by its user, is never touched.
//! - A thread that inherited corewise's mask is given back its own.
//! - A refused action is not repeated for [`RETRY_AFTER`], an unsupported one never.
//! - At most [`BINDS_PER_PE_MAX`] binds and settings per allowed PE and step.
//!
//! Limits: the engine reads no clock; if steps come late, so do its decisions.

use crate::classify::{FPU_THRESHOLD, FpuClass, fpu_class, known_fpu_usage};
use crate::cpuset::CpuSet;
use crate::ids::{AppId, ThreadId};
use crate::machine_model::MachineModel;
use crate::observe::{ApplicationReading, CounterReading, Observation, Standing, ThreadReading};
use crate::plan::{Action, Change, Outcome, OutcomeKind, Placement, Seat, WantedSetting};
use crate::policy::{Policy, Scene, Subject};
use crate::time::Time;
use crate::topology::Topology;
use crate::view::{ApplicationView, ThreadView, Usage, runnable_share, wanted_ns};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

mod settings;

/// How long a thread that the system refused to bind is left alone.
pub const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The most binds and settings in one step, per allowed PE: a bound on the work that a step may ask for.
pub const BINDS_PER_PE_MAX: usize = 4;

/// The engine's parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EngineConfig {
    /// Time between two steps (BulldOver: one second).
    pub interval: Duration,
    /// FPU usage from which a thread counts as FPU-intensive, 0..1.
    pub fpu_threshold: f64,
    /// For how long a bound thread counts as [resident](Subject::resident): a policy that answers to usage
    /// leaves it where it is, one that shares PEs in turns has a period of its own.
    pub min_residence: Duration,
}

impl std::default::Default for EngineConfig {
    fn default() -> Self {
        let interval = Duration::from_secs(1);
        Self { interval, fpu_threshold: FPU_THRESHOLD, min_residence: 3 * interval }
    }
}

/// The decision maker: one machine, one policy, and what is known of each thread.
pub struct Engine {
    machine: MachineModel,
    policy: Box<dyn Policy>,
    config: EngineConfig,
    tracks: HashMap<ThreadId, Track>,
    /// The last class of the threads that ended in the last step.
    ended: HashMap<ThreadId, FpuClass>,
    /// Each application's reading at the last step.
    applications: BTreeMap<AppId, ApplicationReading>,
    present: Placement,
    settings: settings::Settings,
    last_step: Option<Time>,
    nothing_to_gain: Option<String>,
}

/// What the engine remembers of one thread.
struct Track {
    /// Time for which it had wanted a PE at the last step, for the share of the interval.
    wanted_ns: u64,
    share: Option<f64>,
    /// The reading from which the current rates are counted. It moves on when enough is known since.
    base: Option<CounterReading>,
    usage: Usage,
    class: FpuClass,
    bound_at: Option<Time>,
    refused_at: Option<Time>,
    /// The seat whose mask it carries, as the world has confirmed.
    held: Option<Seat>,
}

impl Engine {
    /// An engine for one machine and one policy. A topology will do; more is known of a calibrated machine.
    pub fn new(machine: impl Into<MachineModel>, policy: Box<dyn Policy>, config: EngineConfig) -> Self {
        Self {
            machine: machine.into(),
            policy,
            config,
            tracks: HashMap::new(),
            ended: HashMap::new(),
            applications: BTreeMap::new(),
            present: Placement::default(),
            settings: settings::Settings::default(),
            last_step: None,
            nothing_to_gain: None,
        }
    }

    /// Time between two steps.
    pub fn interval(&self) -> Duration {
        self.config.interval
    }

    /// What is known of the machine.
    pub fn machine(&self) -> &MachineModel {
        &self.machine
    }

    /// What the machine's PEs share.
    pub fn topology(&self) -> &Topology {
        &self.machine.topology
    }

    /// The policy's name, with its parameters.
    pub fn policy_name(&self) -> &str {
        self.policy.name()
    }

    /// Who is bound where, as far as the engine knows.
    pub fn present(&self) -> &Placement {
        &self.present
    }

    /// Why the policy does nothing on this machine, if it said so.
    pub fn nothing_to_gain(&self) -> Option<&str> {
        self.nothing_to_gain.as_deref()
    }

    /// Why the policy has given up, if it has.
    pub fn policy_failure(&self) -> Option<&str> {
        self.policy.failure()
    }

    /// The class of a thread as last decided; of one that ended in the last step, by its last reading.
    pub fn fpu_class(&self, thread: ThreadId) -> FpuClass {
        let living = self.tracks.get(&thread).map(|track| track.class);
        living.or_else(|| self.ended.get(&thread).copied()).unwrap_or(FpuClass::Unknown)
    }

    /// Takes in an observation and says what to change.
    pub fn step(&mut self, observation: &Observation) -> Vec<Action> {
        for outcome in &observation.outcomes {
            self.take_outcome(outcome, observation.at);
        }
        let interval =
            self.last_step.map_or(observation.at.since(Time(0)), |last| observation.at.since(last));
        self.last_step = Some(observation.at);
        self.tracks.reserve(observation.threads.len().saturating_sub(self.tracks.len()));
        self.ended.clear();
        let mut actions = Vec::new();
        let mut subjects = Vec::with_capacity(observation.threads.len());
        for reading in &observation.threads {
            if reading.ended {
                self.forget(reading);
                continue;
            }
            if reading.standing == Standing::Inherited {
                self.present.bound.remove(&reading.thread);
                actions.push(Action {
                    thread: reading.thread,
                    change: Change::Free,
                    reason: "it inherited the mask of the bound thread that created it".to_owned(),
                });
            }
            subjects.push(self.subject(reading, interval, observation.at));
        }
        let applications = self.take_applications(&observation.applications, interval);
        // A PE that came after the machine was read is none of its PEs.
        let allowed = observation.allowed.intersection(&self.machine.topology.pes);
        let scene = Scene {
            now: observation.at,
            machine: &self.machine,
            allowed: &allowed,
            threads: &subjects,
            applications: &applications,
            present: &self.present,
        };
        let mut wanted = self.policy.place(&scene);
        self.nothing_to_gain = wanted.nothing_to_gain.take();
        guard(&mut wanted, &subjects, &allowed);
        self.settings.guard(&mut wanted.settings, &subjects, observation.at);
        let most = BINDS_PER_PE_MAX * allowed.len();
        self.take_up(self.present.actions_towards(&wanted), most, observation.at, &mut actions);
        actions
    }

    /// The actions that give back everything that is still bound.
    pub fn release_all(&mut self) -> Vec<Action> {
        let mut actions = self.present.actions_towards(&Placement::default());
        for action in &mut actions {
            action.reason = "the run is over".to_owned();
        }
        self.present = Placement::default();
        actions
    }

    /// Judges a thread that has ended a last time, for whoever reports of it, and forgets it.
    fn forget(&mut self, reading: &ThreadReading) {
        let mut track = self.tracks.remove(&reading.thread).unwrap_or_else(Track::new);
        if let Some(counters) = &reading.counters {
            track.take_counters(counters, self.config.fpu_threshold);
        }
        self.ended.insert(reading.thread, track.class);
        self.present.bound.remove(&reading.thread);
        self.settings.forget(reading.thread, &mut self.present.settings);
    }

    /// Takes note of a reading and makes the policy's view of the thread.
    fn subject(&mut self, reading: &ThreadReading, interval: Duration, now: Time) -> Subject {
        let track = self.tracks.entry(reading.thread).or_insert_with(Track::new);
        if reading.standing == Standing::Free && track.held.take().is_some() {
            // The last PE of its mask was unplugged, say, and the system gave it all others.
            self.present.bound.remove(&reading.thread);
            track.bound_at = None;
        }
        if let Some(counters) = &reading.counters {
            track.take_counters(counters, self.config.fpu_threshold);
        }
        let share = runnable_share(track.wanted_ns, reading, interval);
        let known = track.share.is_some() && reading.runnable_ns.is_some();
        let runnable = if known { share >= 0.5 } else { reading.runnable };
        let share = track.take_share(share);
        track.wanted_ns = wanted_ns(reading);
        let refused = track.refused_at.is_some_and(|at| now.since(at) < RETRY_AFTER);
        Subject {
            view: ThreadView {
                thread: reading.thread,
                app: reading.app,
                runnable_share: share,
                last_pe: reading.last_pe,
                standing: reading.standing,
                permitted: reading.permitted.clone(),
                usage: track.usage,
            },
            name: reading.name.clone(),
            runnable,
            hints: reading.hints,
            fpu_class: track.class,
            placeable: matches!(reading.standing, Standing::Free | Standing::Bound) && !refused,
            resident: track.bound_at.is_some_and(|at| now.since(at) < self.config.min_residence),
        }
    }

    /// What each application did since the last step.
    fn take_applications(
        &mut self,
        readings: &[ApplicationReading],
        interval: Duration,
    ) -> BTreeMap<AppId, ApplicationView> {
        let before = std::mem::take(&mut self.applications);
        let view = |reading: &ApplicationReading| {
            (reading.app, ApplicationView::between(before.get(&reading.app), reading, interval))
        };
        let views = readings.iter().map(view).collect();
        self.applications = readings.iter().map(|reading| (reading.app, reading.clone())).collect();
        views
    }

    fn take_outcome(&mut self, outcome: &Outcome, now: Time) {
        if let Some(kind) = outcome.change.setting_kind() {
            return self.settings.take_outcome(kind, outcome, &mut self.present.settings, now);
        }
        let bound = &mut self.present.bound;
        let Some(track) = self.tracks.get_mut(&outcome.thread) else { return };
        match &outcome.result {
            OutcomeKind::Done if outcome.change.gives_back() => track.held = None,
            OutcomeKind::Done => track.held = bound.get(&outcome.thread).cloned(),
            // Whoever took the thread over, or ended it, decides from now on.
            OutcomeKind::Gone | OutcomeKind::NotOurs => {
                track.held = None;
                bound.remove(&outcome.thread);
            }
            OutcomeKind::Refused(_) | OutcomeKind::Unsupported => {
                track.bound_at = None;
                track.refused_at = Some(now);
                // Of an earlier binding it still has the mask, which is to be given back.
                match &track.held {
                    Some(seat) => drop(bound.insert(outcome.thread, seat.clone())),
                    None => drop(bound.remove(&outcome.thread)),
                }
            }
        }
    }

    /// Makes the changes the present placement, as far as the limit allows, and passes them on.
    fn take_up(&mut self, changes: Vec<Action>, most: usize, now: Time, actions: &mut Vec<Action>) {
        let mut taken = 0;
        for action in changes {
            if !action.change.gives_back() {
                if taken == most {
                    continue;
                }
                taken += 1;
            }
            match &action.change {
                Change::Free => {
                    self.present.bound.remove(&action.thread);
                    if let Some(track) = self.tracks.get_mut(&action.thread) {
                        track.bound_at = None;
                    }
                }
                Change::Bind(pes) => {
                    let seat = Seat { pes: pes.clone(), reason: action.reason.clone() };
                    self.present.bound.insert(action.thread, seat);
                    if let Some(track) = self.tracks.get_mut(&action.thread) {
                        track.bound_at = Some(now);
                    }
                }
                Change::Set(setting) => {
                    let wanted = WantedSetting { setting: *setting, reason: action.reason.clone() };
                    self.present.settings.insert((action.thread, setting.kind()), wanted);
                }
                Change::Reset(kind) => drop(self.present.settings.remove(&(action.thread, *kind))),
            }
            actions.push(action);
        }
    }
}

impl Track {
    /// Of a thread that was never seen before.
    fn new() -> Self {
        Self {
            wanted_ns: 0,
            share: None,
            base: None,
            usage: Usage::default(),
            class: FpuClass::Unknown,
            bound_at: None,
            refused_at: None,
            held: None,
        }
    }

    /// Renews the rates once enough is known for them; until then the last ones hold. Clock samples gather: a
    /// thread that runs a tenth of the time is judged by ten intervals, not never. Counts are exact at once.
    fn take_counters(&mut self, counters: &CounterReading, threshold: f64) {
        let usage = Usage::between(self.base.as_ref(), counters);
        if known_fpu_usage(&usage).is_some() || matches!(counters, CounterReading::Pmu(_)) {
            self.usage = usage;
            self.class = fpu_class(&usage, threshold, self.class);
            self.base = Some(counters.clone());
        }
    }

    /// The share of the time in which the thread wants a PE: half this interval's, half what it was before,
    /// so that one odd interval changes no rank.
    fn take_share(&mut self, share: f64) -> f64 {
        let smoothed = self.share.map_or(share, |before| (before + share) / 2.0);
        self.share = Some(smoothed);
        smoothed
    }
}

/// Drops from a wanted placement what no policy may want.
fn guard(wanted: &mut Placement, subjects: &[Subject], allowed: &CpuSet) {
    let by_id: HashMap<ThreadId, &Subject> = subjects
        .iter()
        .filter(|s| wanted.bound.contains_key(&s.view.thread))
        .map(|s| (s.view.thread, s))
        .collect();
    wanted.bound.retain(|thread, seat| {
        by_id.get(thread).is_some_and(|subject| {
            subject.placeable
                && !seat.pes.is_empty()
                && seat.pes.is_subset(allowed)
                && seat.pes.is_subset(&subject.view.permitted)
        })
    });
}

#[cfg(test)]
mod tests;
