//! Recordings: a header and one [input](Input) of the engine per line, as JSON; and the World that plays one
//! back.
//!
//! A recording holds everything the engine saw, so the same or another policy, on the same or another
//! machine, can be run over it. What it cannot show: how the threads would have behaved under the other
//! policy. Replaying answers "what would have been decided", not "how fast would it have been".

use crate::cpuset::CpuSet;
use crate::ids::ThreadId;
use crate::machine_model::MachineModel;
use crate::observe::{Event, EventBatch, EventKind, Input, Observation, Standing, ThreadReading};
use crate::plan::{Action, Change, Outcome, OutcomeKind};
use crate::profile::{self, MachineProfile, ProfileError};
use crate::report::Host;
use crate::time::Time;
use crate::topology::{Topology, TopologyError};
use crate::world::{Wake, World};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The word that every recording starts with.
pub const FORMAT: &str = "corewise-recording";

/// The version of the format that this code writes.
pub const VERSION: u32 = 3;

/// The oldest version that it reads.
const VERSION_MIN: u32 = 1;

/// Up to this version all lines are observations; up to the next one no header has a machine profile.
const WITHOUT_EVENTS: u32 = 1;

/// The first line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`FORMAT`].
    pub format: String,
    /// [`VERSION`] where it was written by this code.
    pub version: u32,
    /// The machine that was recorded.
    pub topology: Topology,
    /// What was known of it by measuring, if it was scheduled by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Arc<MachineProfile>>,
    /// The command that ran.
    pub command: Vec<String>,
    /// The time between two observations, in nanoseconds.
    pub interval_ns: u64,
    /// The name of the source of threads.
    pub discovery: String,
    /// The name of the source of counters.
    pub counters: String,
    /// The computer and the time of the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
}

/// A whole recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// What was recorded.
    pub header: Header,
    /// What was told, in order of time.
    pub inputs: Vec<Input>,
    /// Whether the end is missing: the recorder was killed, or the disk was full.
    pub truncated: bool,
}

/// Why a text is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// Nothing in it.
    #[error("the recording is empty")]
    Empty,
    /// The first line is not a header.
    #[error("line 1 is no header of a corewise recording: {0}")]
    Header(serde_json::Error),
    /// The machine in it is none.
    #[error("its machine contradicts itself: {0}")]
    Machine(TopologyError),
    /// The machine profile in it is none.
    #[error("its machine profile cannot be used: {0}")]
    Profile(#[from] ProfileError),
    /// The machine profile in it is of another machine.
    #[error("its machine has the PEs {topology}, its machine profile those of another one: {profile}")]
    OtherMachine {
        /// The PEs of the topology.
        topology: CpuSet,
        /// Those of the profile.
        profile: CpuSet,
    },
    /// It is of another format or version.
    #[error(
        "this is a `{format}` of version {version}; this corewise reads `{FORMAT}` of version \
         {VERSION_MIN} to {VERSION}"
    )]
    Version {
        /// The format found.
        format: String,
        /// The version found.
        version: u64,
    },
    /// A line in the middle is damaged.
    #[error("line {line} is damaged: {problem}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
}

/// One line of a recording, with its line end.
pub fn to_line<T: Serialize>(value: &T) -> String {
    let mut line = serde_json::to_string(value).expect("plain data with string keys is always valid JSON");
    line.push('\n');
    line
}

impl Header {
    /// The machine as it was known to whoever decided.
    pub fn machine(&self) -> MachineModel {
        let Some(profile) = &self.profile else { return self.topology.clone().into() };
        let mut machine = MachineModel::from_profile(profile);
        machine.topology = self.topology.clone();
        machine
    }
}

impl Recording {
    /// What was seen, without the events in between.
    pub fn observations(&self) -> impl DoubleEndedIterator<Item = &Observation> {
        self.inputs.iter().filter_map(Input::observation)
    }

    /// Reads a recording. A last line that breaks off is left out and noted; damage before it is an error.
    pub fn parse(text: &str) -> Result<Recording, RecordingError> {
        let mut lines = text.lines().enumerate().peekable();
        let (_, first) = lines.next().ok_or(RecordingError::Empty)?;
        let header = parse_header(first)?;
        let parse_line = if header.version <= WITHOUT_EVENTS { parse_observation } else { parse_input };
        let mut inputs: Vec<Input> = Vec::new();
        let mut truncated = !text.ends_with('\n');
        while let Some((index, line)) = lines.next() {
            let damaged = |problem: String| RecordingError::Line { line: index + 1, problem };
            match parse_line(line) {
                Ok(next) if inputs.last().is_some_and(|last| last.at() > next.at()) => {
                    return Err(damaged("its time lies before that of the line above".to_owned()));
                }
                Ok(next) => inputs.push(next),
                Err(_) if lines.peek().is_none() && truncated => {}
                Err(error) => return Err(damaged(error.to_string())),
            }
        }
        truncated |= inputs.is_empty();
        Ok(Recording { header, inputs, truncated })
    }
}

fn parse_input(line: &str) -> serde_json::Result<Input> {
    serde_json::from_str(line)
}

fn parse_observation(line: &str) -> serde_json::Result<Input> {
    serde_json::from_str(line).map(Input::Observation)
}

fn parse_header(line: &str) -> Result<Header, RecordingError> {
    // The version is looked at before the rest, which another version may have laid out otherwise.
    let mut value: serde_json::Value = serde_json::from_str(line).map_err(RecordingError::Header)?;
    let format = value["format"].as_str().unwrap_or("").to_owned();
    let version = value["version"].as_u64().unwrap_or(0);
    if format != FORMAT || !(u64::from(VERSION_MIN)..=u64::from(VERSION)).contains(&version) {
        return Err(RecordingError::Version { format, version });
    }
    let profile = value.as_object_mut().and_then(|header| header.remove("profile"));
    let profile = profile.map(|profile| profile::parse(&profile.to_string())).transpose()?;
    let header: Header = serde_json::from_value(value).map_err(RecordingError::Header)?;
    header.topology.check().map_err(RecordingError::Machine)?;
    if let Some(of_another) = profile.as_ref().filter(|profile| profile.reported.pes != header.topology.pes) {
        let (topology, profile) = (header.topology.pes, of_another.reported.pes.clone());
        return Err(RecordingError::OtherMachine { topology, profile });
    }
    Ok(Header { profile: profile.map(Arc::new), ..header })
}

/// A World that plays a recording back. It carries out actions only in its own books. As long as the same
/// actions are asked for as in the recorded run, everything is as it was then; who is bound otherwise is
/// shown as if that had been so.
pub struct RecordedWorld {
    inputs: VecDeque<Input>,
    /// How many of them are observations.
    observations: usize,
    now: Time,
    kinds: Vec<EventKind>,
    machine: Option<Topology>,
    bound: HashMap<ThreadId, CpuSet>,
    /// The same in the recorded run.
    bound_then: HashMap<ThreadId, CpuSet>,
    /// What is to be carried out, and what became of the recorded run's actions meanwhile.
    actions: Vec<Action>,
    outcomes_then: Vec<Outcome>,
}

impl RecordedWorld {
    /// Plays the recording on the machine it was made on, or on `machine` in its place.
    pub fn new(recording: Recording, machine: Option<Topology>) -> Self {
        Self {
            observations: recording.observations().count(),
            inputs: recording.inputs.into(),
            now: Time(0),
            kinds: Vec::new(),
            machine,
            bound: HashMap::new(),
            bound_then: HashMap::new(),
            actions: Vec::new(),
            outcomes_then: Vec::new(),
        }
    }

    /// Carries out the actions. What was done in the recorded run, too, comes to the same.
    fn outcomes(&mut self) -> Vec<Outcome> {
        let then = std::mem::take(&mut self.outcomes_then);
        then.iter().for_each(|outcome| take(outcome, &mut self.bound_then));
        let mut outcomes = Vec::new();
        for Action { thread, change, .. } in std::mem::take(&mut self.actions) {
            let is_it = |then: &&Outcome| then.thread == thread && then.change == change;
            let result = match (then.iter().find(is_it), &change) {
                (Some(then), _) => then.result.clone(),
                (None, Change::Bind(_) | Change::Free) => OutcomeKind::Done,
                (None, Change::Set(_) | Change::Reset(_)) => OutcomeKind::Unsupported,
            };
            let outcome = Outcome { thread, change, result };
            take(&outcome, &mut self.bound);
            outcomes.push(outcome);
        }
        outcomes
    }

    fn is_as_recorded(&self) -> bool {
        self.machine.is_none() && self.bound == self.bound_then
    }

    /// Shows a reading as if the engine had been there, and on the machine that takes the place of the
    /// recorded one, of whose PEs `everywhere` are allowed.
    fn show(&self, reading: &mut ThreadReading, everywhere: &Arc<CpuSet>) {
        if reading.standing == Standing::Bound || reading.standing == Standing::Inherited {
            reading.standing = Standing::Free;
        }
        if let Some(pes) = self.bound.get(&reading.thread) {
            reading.standing = Standing::Bound;
            reading.last_pe = pes.first();
        }
        if self.machine.is_some() {
            reading.permitted = everywhere.clone();
            reading.last_pe = reading.last_pe.filter(|&pe| everywhere.contains(pe));
        }
    }

    /// The next events before the next observation, less those that nobody wants to hear of.
    fn events(&mut self) -> Option<EventBatch> {
        while let Some(Input::Events(_)) = self.inputs.front() {
            let Some(Input::Events(mut batch)) = self.inputs.pop_front() else { break };
            self.outcomes_then.append(&mut batch.outcomes);
            let elsewhere = self.machine.as_ref().map(|machine| Arc::new(machine.allowed.clone()));
            batch.events.retain(|event| {
                // The PEs of another machine do not change.
                self.kinds.contains(&event.kind())
                    && !(elsewhere.is_some() && event.kind() == EventKind::AllowedChanged)
            });
            if batch.events.is_empty() {
                continue;
            }
            self.now = batch.at;
            batch.outcomes = self.outcomes();
            let is_as_recorded = self.is_as_recorded();
            for event in batch.events.iter_mut().filter(|_| !is_as_recorded) {
                if let Event::ThreadStarted(reading) = event {
                    let permitted = reading.permitted.clone();
                    self.show(reading, elsewhere.as_ref().unwrap_or(&permitted));
                }
            }
            return Some(batch);
        }
        None
    }
}

/// Takes note of whom an action has bound or freed.
fn take(outcome: &Outcome, bound: &mut HashMap<ThreadId, CpuSet>) {
    match (&outcome.change, &outcome.result) {
        (Change::Bind(pes), OutcomeKind::Done) => drop(bound.insert(outcome.thread, pes.clone())),
        (Change::Free, OutcomeKind::Done) => drop(bound.remove(&outcome.thread)),
        (Change::Bind(_) | Change::Free, _) | (Change::Set(_) | Change::Reset(_), _) => {}
    }
}

impl World for RecordedWorld {
    type Error = std::convert::Infallible;

    fn now(&self) -> Time {
        self.now
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        // Whoever looks at once does not wait for events.
        let mut observation = loop {
            match self.inputs.pop_front() {
                Some(Input::Observation(observation)) => break observation,
                Some(Input::Events(mut batch)) => self.outcomes_then.append(&mut batch.outcomes),
                None => break Observation::default(),
            }
        };
        self.observations = self.observations.saturating_sub(1);
        self.now = observation.at;
        self.outcomes_then.append(&mut observation.outcomes);
        observation.outcomes = self.outcomes();
        if self.is_as_recorded() {
            return Ok(observation);
        }
        if let Some(machine) = &self.machine {
            observation.allowed = machine.allowed.clone();
        }
        let everywhere = Arc::new(observation.allowed.clone());
        for reading in &mut observation.threads {
            self.show(reading, &everywhere);
        }
        Ok(observation)
    }

    fn apply(&mut self, actions: &[Action]) {
        self.actions.extend_from_slice(actions);
    }

    fn subscribe(&mut self, kinds: &[EventKind]) {
        self.kinds = kinds.to_vec();
    }

    /// Goes on to the next recorded events or observation, whenever the engine wanted to look.
    fn wait_until(&mut self, _: Time) -> Result<Wake, Self::Error> {
        if let Some(batch) = self.events() {
            return Ok(Wake::Events(batch));
        }
        Ok(if self.observations <= 1 { Wake::Finished } else { Wake::Deadline })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AppId, PeId};
    use crate::observe::{Hints, RunnableThreads};
    use crate::plan::{Setting, SettingKind, Weight};

    fn header() -> Header {
        Header {
            host: None,
            format: FORMAT.to_owned(),
            version: VERSION,
            topology: Topology::synthetic("core:2 pu:1").unwrap(),
            profile: None,
            command: vec!["true".to_owned()],
            interval_ns: 1_000_000_000,
            discovery: "poll".to_owned(),
            counters: "none".to_owned(),
        }
    }

    fn text() -> String {
        let at = |at| Input::Observation(Observation { at: Time(at), ..Observation::default() });
        [to_line(&header()), to_line(&at(1)), to_line(&at(2))].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        let recording = Recording::parse(&text()).unwrap();
        assert_eq!(recording.header, header());
        assert_eq!(recording.inputs.len(), 2);
        assert!(!recording.truncated);
    }

    #[test]
    fn outcomes_of_settings_are_written_and_read() {
        let thread = ThreadId { tid: 7, generation: 1 };
        let changes = [
            Change::Set(Setting::Weight(Weight::Idle)),
            Change::Set(Setting::Weight(Weight::Percent(200))),
            Change::Set(Setting::SliceNs(3_000_000)),
            Change::Reset(SettingKind::SpinCount),
        ];
        let outcome = |change| Outcome { thread, change, result: OutcomeKind::Unsupported };
        let outcomes: Vec<Outcome> = changes.into_iter().map(outcome).collect();
        let line = to_line(&Input::Observation(Observation {
            outcomes: outcomes.clone(),
            ..Observation::default()
        }));
        assert!(line.contains("{\"set\":{\"weight\":{\"percent\":200}}}"), "{line}");
        let recording = Recording::parse(&(to_line(&header()) + &line)).unwrap();
        assert_eq!(recording.inputs[0].outcomes(), outcomes);
    }

    #[test]
    fn a_recording_that_breaks_off_is_read_up_to_there() {
        let whole = text();
        let recording = Recording::parse(&whole[..whole.len() - 10]).unwrap();
        assert_eq!((recording.inputs.len(), recording.truncated), (1, true));
    }

    #[test]
    fn a_recording_of_version_1_is_read() {
        let header = to_line(&header()).replace("\"version\":3", "\"version\":1");
        let observation = Observation { at: Time(7), ..Observation::default() };
        let recording = Recording::parse(&(header + &to_line(&observation))).unwrap();
        assert_eq!(recording.inputs, [Input::Observation(observation)]);
    }

    #[test]
    fn events_are_played_back_to_whoever_asks_for_them() {
        let thread = ThreadId { tid: 7, generation: 1 };
        let tlp = Event::TlpChanged(RunnableThreads { app: AppId(3), count: 1, only: Some(thread) });
        let events = vec![tlp.clone(), Event::ThreadEnded(thread)];
        let batch = Input::Events(EventBatch { at: Time(2), events, outcomes: Vec::new() });
        let observation = |at| Input::Observation(Observation { at: Time(at), ..Observation::default() });
        let lines = [observation(1), batch, observation(2)].map(|input| to_line(&input)).concat();
        let recording = Recording::parse(&(to_line(&header()) + &lines)).unwrap();
        let told = |kinds: &[EventKind]| {
            let mut world = RecordedWorld::new(recording.clone(), None);
            world.subscribe(kinds);
            let mut told = Vec::new();
            loop {
                match world.wait_until(Time(0)).unwrap() {
                    Wake::Events(batch) => told.extend(batch.events),
                    Wake::Deadline => drop(world.observe().unwrap()),
                    Wake::Finished => return (told, world.observe().unwrap().at),
                }
            }
        };
        assert_eq!(told(&[EventKind::TlpChanged]), (vec![tlp], Time(2)));
        assert_eq!(told(&[EventKind::Hint]), (Vec::new(), Time(2)));
        assert_eq!(told(EventKind::ALL).0.len(), 2);
    }

    /// A thread was bound then and is not now: what followed from that is undone, what users did is not.
    #[test]
    fn who_is_not_bound_any_more_is_free_and_who_placed_itself_still_has() {
        let thread = |tid| ThreadId { tid, generation: 1 };
        let (machine, own) = (CpuSet::first_n(2), Arc::new(CpuSet::first_n(2)));
        let reading = |(tid, standing)| ThreadReading {
            thread: thread(tid),
            pid: 7,
            app: AppId(0),
            name: "test".into(),
            cpu_ns: 0,
            runnable_ns: None,
            runnable: true,
            last_pe: None,
            standing,
            permitted: own.clone(),
            counters: None,
            progress: None,
            hints: Hints::default(),
            ended: false,
        };
        let then = [
            (7, Standing::Bound),
            (8, Standing::Inherited),
            (9, Standing::Free),
            (10, Standing::SelfPinned),
            (11, Standing::UserPlaced),
        ];
        let change = Change::Bind(CpuSet::single(PeId(0)));
        let outcome = Outcome { thread: thread(7), change, result: OutcomeKind::Done };
        let observation = Input::Observation(Observation {
            at: Time(1),
            allowed: machine,
            threads: then.map(reading).into(),
            outcomes: vec![outcome],
            ..Observation::default()
        });
        let recording = Recording::parse(&(to_line(&header()) + &to_line(&observation))).unwrap();
        let shown = RecordedWorld::new(recording, None).observe().unwrap();
        let standings: Vec<Standing> = shown.threads.iter().map(|reading| reading.standing).collect();
        use Standing::{Free, SelfPinned, UserPlaced};
        assert_eq!(standings, [Free, Free, Free, SelfPinned, UserPlaced]);
    }

    #[test]
    fn damage_is_named_with_its_line() {
        let check = |text: &str, expected: &str| {
            let error = Recording::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("", "empty");
        check("{}\n", "`` of version 0");
        check("nonsense\n", "line 1");
        // Not the last line, or not one that breaks off.
        let whole = text();
        let lines: Vec<&str> = whole.lines().collect();
        check(&format!("{}\nnoise\n{}", lines[0], lines[1]), "line 2");
        check(&format!("{}\n{}\nnoise\n", lines[0], lines[1]), "line 3");
        check(&text().replace("\"version\":3", "\"version\":9"), "version 9");
        check(&text().replace("\"pes\":\"0-1\"", "\"pes\":\"0-9\""), "its machine contradicts itself");
        check(&text().replacen("{\"at\":1", "{\"at\":x", 1), "line 2 is damaged");
        check(&text().replacen("{\"at\":1,", "{\"at\":7,", 1), "line 3 is damaged");
    }
}
