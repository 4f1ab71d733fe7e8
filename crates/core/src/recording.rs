//! Recordings: a header and one [input](Input) of the engine per line, as JSON; and the World that plays one
//! back.
//!
//! A recording holds everything the engine saw, so the same or another policy, on the same or another
//! machine, can be run over it. What it cannot show: how the threads would have behaved under the other
//! policy. Replaying answers "what would have been decided", not "how fast would it have been".

use crate::cpuset::CpuSet;
use crate::ids::ThreadId;
use crate::observe::{Event, EventBatch, EventKind, Input, Observation, Standing, ThreadReading};
use crate::plan::{Action, Change, Outcome, OutcomeKind};
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
pub const VERSION: u32 = 2;

/// The oldest version that it reads: all lines are observations.
const VERSION_MIN: u32 = 1;

/// The first line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`FORMAT`].
    pub format: String,
    /// [`VERSION`] where it was written by this code.
    pub version: u32,
    /// The machine that was recorded.
    pub topology: Topology,
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
        let parse_line = if header.version == VERSION_MIN { parse_observation } else { parse_input };
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
    let value: serde_json::Value = serde_json::from_str(line).map_err(RecordingError::Header)?;
    let format = value["format"].as_str().unwrap_or("").to_owned();
    let version = value["version"].as_u64().unwrap_or(0);
    if format != FORMAT || !(u64::from(VERSION_MIN)..=u64::from(VERSION)).contains(&version) {
        return Err(RecordingError::Version { format, version });
    }
    let header: Header = serde_json::from_value(value).map_err(RecordingError::Header)?;
    header.topology.check().map_err(RecordingError::Machine)?;
    Ok(header)
}

/// A World that plays a recording back. It carries out actions only in its own books.
pub struct RecordedWorld {
    inputs: VecDeque<Input>,
    /// How many of them are observations.
    observations: usize,
    now: Time,
    kinds: Vec<EventKind>,
    machine: Option<Topology>,
    bound: HashMap<ThreadId, CpuSet>,
    outcomes: Vec<Outcome>,
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
            outcomes: Vec::new(),
        }
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
            let elsewhere = self.machine.as_ref().map(|machine| Arc::new(machine.allowed.clone()));
            batch.events.retain(|event| {
                // The PEs of another machine do not change.
                self.kinds.contains(&event.kind())
                    && !(elsewhere.is_some() && event.kind() == EventKind::AllowedChanged)
            });
            for event in &mut batch.events {
                if let Event::ThreadStarted(reading) = event {
                    let permitted = reading.permitted.clone();
                    self.show(reading, elsewhere.as_ref().unwrap_or(&permitted));
                }
            }
            if !batch.events.is_empty() {
                self.now = batch.at;
                batch.outcomes = std::mem::take(&mut self.outcomes);
                return Some(batch);
            }
        }
        None
    }
}

impl World for RecordedWorld {
    type Error = std::convert::Infallible;

    fn now(&self) -> Time {
        self.now
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        // Whoever looks at once does not wait for events.
        while let Some(Input::Events(_)) = self.inputs.front() {
            self.inputs.pop_front();
        }
        let mut observation = match self.inputs.pop_front() {
            Some(Input::Observation(observation)) => observation,
            Some(Input::Events(_)) | None => Observation::default(),
        };
        self.observations = self.observations.saturating_sub(1);
        self.now = observation.at;
        observation.outcomes = std::mem::take(&mut self.outcomes);
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
        for action in actions {
            let result = match &action.change {
                Change::Bind(pes) => {
                    self.bound.insert(action.thread, pes.clone());
                    OutcomeKind::Done
                }
                Change::Free => {
                    self.bound.remove(&action.thread);
                    OutcomeKind::Done
                }
                Change::Set(_) | Change::Reset(_) => OutcomeKind::Unsupported,
            };
            let (thread, change) = (action.thread, action.change.clone());
            self.outcomes.push(Outcome { thread, change, result });
        }
    }

    fn tell(&mut self, kinds: &[EventKind]) {
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
    use crate::ids::AppId;
    use crate::observe::RunnableThreads;
    use crate::plan::{Setting, SettingKind, Weight};

    fn header() -> Header {
        Header {
            host: None,
            format: FORMAT.to_owned(),
            version: VERSION,
            topology: Topology::synthetic("core:2 pu:1").unwrap(),
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
        let header = to_line(&header()).replace("\"version\":2", "\"version\":1");
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
            world.tell(kinds);
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
        check(&text().replace("\"version\":2", "\"version\":9"), "version 9");
        check(&text().replace("\"pes\":\"0-1\"", "\"pes\":\"0-9\""), "its machine contradicts itself");
        check(&text().replacen("{\"at\":1", "{\"at\":x", 1), "line 2 is damaged");
        check(&text().replacen("{\"at\":1,", "{\"at\":7,", 1), "line 3 is damaged");
    }
}
