//! Recordings: a header and one observation per line, as JSON; and the World that plays one back.
//!
//! A recording holds everything the engine saw, so the same or another policy, on the same or another
//! machine, can be run over it. What it cannot show: how the threads would have behaved under the other
//! policy. Replaying answers "what would have been decided", not "how fast would it have been".

use crate::cpuset::CpuSet;
use crate::ids::ThreadId;
use crate::observe::{Observation, Standing};
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

/// The version of the format that this code reads and writes.
pub const VERSION: u32 = 1;

/// The first line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`FORMAT`].
    pub format: String,
    /// Always [`VERSION`].
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
    /// What was seen, in order of time.
    pub observations: Vec<Observation>,
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
    #[error("this is a `{format}` of version {version}; this corewise reads `{FORMAT}` of version {VERSION}")]
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
    /// Reads a recording. A last line that breaks off is left out and noted; damage before it is an error.
    pub fn parse(text: &str) -> Result<Recording, RecordingError> {
        let mut lines = text.lines().enumerate().peekable();
        let (_, first) = lines.next().ok_or(RecordingError::Empty)?;
        let header = parse_header(first)?;
        let mut observations: Vec<Observation> = Vec::new();
        let mut truncated = !text.ends_with('\n');
        while let Some((index, line)) = lines.next() {
            let damaged = |problem: String| RecordingError::Line { line: index + 1, problem };
            match serde_json::from_str::<Observation>(line) {
                Ok(next) if observations.last().is_some_and(|last| last.at > next.at) => {
                    return Err(damaged("its time lies before that of the line above".to_owned()));
                }
                Ok(next) => observations.push(next),
                Err(_) if lines.peek().is_none() && truncated => {}
                Err(error) => return Err(damaged(error.to_string())),
            }
        }
        truncated |= observations.is_empty();
        Ok(Recording { header, observations, truncated })
    }
}

fn parse_header(line: &str) -> Result<Header, RecordingError> {
    // The version is looked at before the rest, which another version may have laid out otherwise.
    let value: serde_json::Value = serde_json::from_str(line).map_err(RecordingError::Header)?;
    let format = value["format"].as_str().unwrap_or("").to_owned();
    let version = value["version"].as_u64().unwrap_or(0);
    if format != FORMAT || version != u64::from(VERSION) {
        return Err(RecordingError::Version { format, version });
    }
    let header: Header = serde_json::from_value(value).map_err(RecordingError::Header)?;
    header.topology.check().map_err(RecordingError::Machine)?;
    Ok(header)
}

/// A World that plays a recording back. It carries out actions only in its own books.
pub struct RecordedWorld {
    observations: VecDeque<Observation>,
    now: Time,
    machine: Option<Topology>,
    bound: HashMap<ThreadId, CpuSet>,
    outcomes: Vec<Outcome>,
}

impl RecordedWorld {
    /// Plays the recording on the machine it was made on, or on `machine` in its place.
    pub fn new(recording: Recording, machine: Option<Topology>) -> Self {
        Self {
            observations: recording.observations.into(),
            now: Time(0),
            machine,
            bound: HashMap::new(),
            outcomes: Vec::new(),
        }
    }
}

impl World for RecordedWorld {
    type Error = std::convert::Infallible;

    fn now(&self) -> Time {
        self.now
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        let mut observation = self.observations.pop_front().unwrap_or_default();
        self.now = observation.at;
        observation.outcomes = std::mem::take(&mut self.outcomes);
        if let Some(machine) = &self.machine {
            observation.allowed = machine.allowed.clone();
        }
        let everywhere = Arc::new(observation.allowed.clone());
        for reading in &mut observation.threads {
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

    /// Goes on to the next recorded observation, whenever the engine wanted to look.
    fn wait_until(&mut self, _: Time) -> Result<Wake, Self::Error> {
        Ok(if self.observations.len() <= 1 { Wake::Finished } else { Wake::Deadline })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let at = |at| Observation { at: Time(at), ..Observation::default() };
        [to_line(&header()), to_line(&at(1)), to_line(&at(2))].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        let recording = Recording::parse(&text()).unwrap();
        assert_eq!(recording.header, header());
        assert_eq!(recording.observations.len(), 2);
        assert!(!recording.truncated);
    }

    #[test]
    fn outcomes_of_settings_are_written_and_read() {
        let thread = ThreadId { tid: 7, generation: 1 };
        let changes = [
            Change::Set(Setting::Weight(Weight::Idle)),
            Change::Set(Setting::Weight(Weight::Percent(200))),
            Change::Set(Setting::SliceNs(3_000_000)),
            Change::Reset(SettingKind::SpinTurns),
        ];
        let outcome = |change| Outcome { thread, change, result: OutcomeKind::Unsupported };
        let outcomes: Vec<Outcome> = changes.into_iter().map(outcome).collect();
        let line = to_line(&Observation { outcomes: outcomes.clone(), ..Observation::default() });
        assert!(line.contains("{\"set\":{\"weight\":{\"percent\":200}}}"), "{line}");
        let recording = Recording::parse(&(to_line(&header()) + &line)).unwrap();
        assert_eq!(recording.observations[0].outcomes, outcomes);
    }

    #[test]
    fn a_recording_that_breaks_off_is_read_up_to_there() {
        let whole = text();
        let recording = Recording::parse(&whole[..whole.len() - 10]).unwrap();
        assert_eq!((recording.observations.len(), recording.truncated), (1, true));
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
        check(&text().replace("\"version\":1", "\"version\":9"), "version 9");
        check(&text().replace("\"pes\":\"0-1\"", "\"pes\":\"0-9\""), "its machine contradicts itself");
        check(&text().replacen("{\"at\":1", "{\"at\":x", 1), "line 2 is damaged");
        check(&text().replacen("{\"at\":1,", "{\"at\":7,", 1), "line 3 is damaged");
    }
}
