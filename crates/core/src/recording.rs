//! Recordings: a header and one [input](Input) of the engine per line, as JSON; and the World that replays
//! one.
//!
//! A recording holds everything that the engine saw, so the same or another policy can be replayed over it,
//! on the same or another machine. A replay cannot show how the threads would have behaved under the other
//! policy: it answers "what would have been decided", not "how fast would it have been".

use crate::cpuset::CpuSet;
use crate::engine::{Engine, EngineConfig};
use crate::losses::Knowledge;
use crate::machine_model::MachineModel;
use crate::observe::{Input, Observation};
use crate::profile::{self, MachineProfile, ProfileError};
use crate::report::{Host, Sources};
use crate::topology::{Topology, TopologyError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

mod replay;

pub use replay::{Question, RecordedWorld, Replay};

/// The format name at the start of every recording.
pub const FORMAT: &str = "corewise-recording";

/// The format version that this code writes.
pub const VERSION: u32 = 5;

/// The oldest format version that this code reads.
const VERSION_MIN: u32 = 1;

/// The last version in which all lines are observations. Up to the version after it, headers have no machine
/// profile.
const WITHOUT_EVENTS: u32 = 1;

/// The first line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`FORMAT`].
    pub format: String,
    /// The format version; [`VERSION`] if written by this code.
    pub version: u32,
    /// The machine that was recorded.
    pub topology: Topology,
    /// The machine profile that the run was scheduled by, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Arc<MachineProfile>>,
    /// What was known of its programs before the run.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub knowledge: Arc<Knowledge>,
    /// The command that ran.
    pub command: Vec<String>,
    /// The time between two observations, in nanoseconds.
    pub interval_ns: u64,
    /// What decided in the run; `None` in older recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decider: Option<Decider>,
    /// The name of the thread source.
    pub discovery: String,
    /// The name of the counter source.
    pub counters: String,
    /// The host and the time of the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
}

/// What decided in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decider {
    /// The policy's name, with its parameters.
    pub policy: String,
    /// The engine's parameters.
    pub config: EngineConfig,
}

/// A whole recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// What was recorded.
    pub header: Header,
    /// The recorded inputs, ordered by time.
    pub inputs: Vec<Input>,
    /// Whether the end is missing because the recorder was killed or the disk was full.
    pub truncated: bool,
}

/// Why a text is not a valid recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The text is empty.
    #[error("the recording is empty")]
    Empty,
    /// The first line is not a header.
    #[error("line 1 is not the header of a corewise recording: {0}")]
    Header(serde_json::Error),
    /// The topology in the header is invalid.
    #[error("its machine is inconsistent: {0}")]
    Machine(TopologyError),
    /// The machine profile in the header is invalid.
    #[error("its machine profile cannot be used: {0}")]
    Profile(#[from] ProfileError),
    /// The machine profile in the header belongs to another machine.
    #[error("its machine has the PEs {topology}, its machine profile those of another one: {profile}")]
    OtherMachine {
        /// The PEs of the topology.
        topology: CpuSet,
        /// The PEs of the profile.
        profile: CpuSet,
    },
    /// The format or version is not supported.
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

/// Returns a value as one line of a recording, including the line end.
pub fn to_line<T: Serialize>(value: &T) -> String {
    let mut line = serde_json::to_string(value).expect("plain data with string keys is always valid JSON");
    line.push('\n');
    line
}

fn is_nothing(knowledge: &Arc<Knowledge>) -> bool {
    knowledge.is_empty()
}

impl Header {
    /// Returns the header of a run.
    pub fn of(engine: &Engine, command: &[String], sources: &Sources, host: Option<Host>) -> Header {
        let config = *engine.config();
        Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            topology: engine.topology().clone(),
            profile: engine.machine().profile.clone(),
            knowledge: engine.knowledge().clone(),
            command: command.to_vec(),
            interval_ns: config.interval.as_nanos() as u64,
            decider: Some(Decider { policy: engine.policy_name().to_owned(), config }),
            discovery: sources.discovery.clone(),
            counters: sources.counters.clone(),
            host,
        }
    }

    /// Returns the machine as the recorded engine knew it.
    pub fn machine(&self) -> MachineModel {
        let Some(profile) = &self.profile else { return self.topology.clone().into() };
        let mut machine = MachineModel::from_profile(profile);
        machine.topology = self.topology.clone();
        machine
    }
}

impl Recording {
    /// Returns the observations, without the events in between.
    pub fn observations(&self) -> impl DoubleEndedIterator<Item = &Observation> {
        self.inputs.iter().filter_map(Input::observation)
    }

    /// Parses a recording. An incomplete last line is dropped and reported by `truncated`; damage before it
    /// is an error.
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
    // Check the version first: other versions may have a different layout.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AppId, PeId, ThreadId};
    use crate::observe::{Event, EventBatch, EventKind, Hints, RunnableThreads, Standing, ThreadReading};
    use crate::plan::{Change, Outcome, OutcomeKind, Setting, SettingKind, Weight};
    use crate::time::Time;
    use crate::world::{Wake, World};

    fn header() -> Header {
        Header {
            host: None,
            format: FORMAT.to_owned(),
            version: VERSION,
            topology: Topology::synthetic("core:2 pu:1").unwrap(),
            profile: None,
            knowledge: Arc::default(),
            command: vec!["true".to_owned()],
            interval_ns: 1_000_000_000,
            decider: None,
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
        let header = to_line(&header()).replace(&format!("\"version\":{VERSION}"), "\"version\":1");
        let observation = Observation { at: Time(7), ..Observation::default() };
        let recording = Recording::parse(&(header + &to_line(&observation))).unwrap();
        assert_eq!(recording.inputs, [Input::Observation(observation)]);
    }

    #[test]
    fn subscribed_events_are_played_back() {
        let thread = ThreadId { tid: 7, generation: 1 };
        let tlp = Event::TlpChanged(RunnableThreads { app: AppId(3), count: 1, only: Some(thread) });
        let events = vec![tlp.clone(), Event::ThreadEnded(thread)];
        let batch = Input::Events(EventBatch { at: Time(2), events, outcomes: Vec::new() });
        let observation = |at| Input::Observation(Observation { at: Time(at), ..Observation::default() });
        let lines = [observation(1), batch, observation(2)].map(|input| to_line(&input)).concat();
        let recording = Recording::parse(&(to_line(&header()) + &lines)).unwrap();
        let played = |kinds: &[EventKind]| {
            let mut world = RecordedWorld::new(recording.clone(), None);
            world.subscribe(kinds);
            let mut events = Vec::new();
            loop {
                match world.wait_until(Time(0)).unwrap() {
                    Wake::Events(batch) => events.extend(batch.events),
                    Wake::Deadline => drop(world.observe().unwrap()),
                    Wake::Finished => return (events, world.observe().unwrap().at),
                }
            }
        };
        assert_eq!(played(&[EventKind::TlpChanged]), (vec![tlp], Time(2)));
        assert_eq!(played(&[EventKind::Hint]), (Vec::new(), Time(2)));
        assert_eq!(played(EventKind::ALL).0.len(), 2);
    }

    /// A thread that was bound in the recording but is not bound in the replay: consequences of the binding
    /// are undone, placements by users are kept.
    #[test]
    fn a_thread_that_is_no_longer_bound_is_free_and_a_self_placed_one_stays_so() {
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
            sizing: crate::observe::Sizing::Fixed,
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
        // Neither the last line, nor an incomplete one.
        let whole = text();
        let lines: Vec<&str> = whole.lines().collect();
        check(&format!("{}\nnoise\n{}", lines[0], lines[1]), "line 2");
        check(&format!("{}\n{}\nnoise\n", lines[0], lines[1]), "line 3");
        check(&text().replace(&format!("\"version\":{VERSION}"), "\"version\":9"), "version 9");
        check(&text().replace("\"pes\":\"0-1\"", "\"pes\":\"0-9\""), "its machine is inconsistent");
        check(&text().replacen("{\"at\":1", "{\"at\":x", 1), "line 2 is damaged");
        check(&text().replacen("{\"at\":1,", "{\"at\":7,", 1), "line 3 is damaged");
    }
}
