//! The real machine as a World: observes the threads of applications and changes them with actuators.
//!
//! [`LiveWorld`] is composed of parts, each with its own state and file. What concerns several of them, in
//! which order, stands here: the start, a look at what is new, an observation, the sleep between them.

mod application;
mod applications;
mod changing;
mod ending;
mod error;
mod events;
mod followed;
mod hot_plug;
mod later;
mod onlooker;
mod parts;
pub mod policy_command;
mod processes;
mod programs;
mod reading;
mod reports;
mod rounds;
#[cfg(test)]
#[path = "../tests/scripted/mod.rs"]
mod scripted;
mod treatments;
pub mod upgrade;
mod wakes;
mod working;

pub use crate::application::{Application, Ends};
pub use crate::error::LiveError;
pub use crate::hot_plug::HotPlug;
pub use crate::onlooker::{Onlooker, Trees};
pub use crate::parts::Parts;
pub use crate::processes::Processes;
pub use crate::treatments::MakeTreatments;

use crate::applications::Applications;
use crate::changing::Changing;
use crate::ending::Ending;
use crate::followed::Followed;
use crate::later::Later;
use crate::reading::Reading;
use crate::rounds::Rounds;
use crate::treatments::Treated;
use crate::upgrade::Upgrade;
use crate::wakes::{Name, Wakes};
use corewise_binding::heartbeat;
use corewise_binding::shared::board::SharedBoard;
use corewise_core::cpuset::CpuSet;
use corewise_core::machine_model::MachineModel;
use corewise_core::observe::{EventBatch, EventKind, Observation};
use corewise_core::plan::Action;
use corewise_core::report::Sources;
use corewise_core::time::Time;
use corewise_core::topology::Topology;
use corewise_core::world::{Look, Wake, World};
use corewise_discovery::NewThread;
use corewise_sys::clock::process_cpu_time;
use corewise_sys::standard_error;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// The real machine.
pub struct LiveWorld {
    started: Instant,
    watching: bool,
    ending: Ending,
    followed: Followed,
    later: Later,
    onlooker: Option<Box<dyn Onlooker>>,
    rounds: Rounds,
}

impl LiveWorld {
    /// Creates the world around a command that is about to run, or around running processes.
    pub fn new(parts: Parts, started: Instant) -> Result<Self, LiveError> {
        let reading = Reading::of(parts.discovery, parts.counters, parts.work)?;
        let changing = Changing::new(parts.actuators, parts.processes);
        Ok(Self {
            started,
            watching: true,
            ending: Ending::new(parts.ends, parts.signals),
            followed: Followed::new(reading, changing, Applications::new(parts.applications)),
            later: Later::new(parts.deferred, parts.board),
            onlooker: None,
            rounds: Rounds::default(),
        })
    }

    /// Reports from now on which processes run beside which on the PEs of this machine.
    pub fn see_neighbours(&mut self, topology: &Topology) -> Result<(), LiveError> {
        Ok(self.followed.reading.discovery.see_neighbours(topology)?)
    }

    /// Notices PEs that come online from now on.
    pub fn notice_pes(&mut self, hot_plug: HotPlug) {
        self.later.hot_plug = Some(hot_plug);
    }

    /// Lets somebody look on from now on.
    pub fn set_onlooker(&mut self, onlooker: Box<dyn Onlooker>) {
        self.onlooker = Some(onlooker);
    }

    /// Sets who says from now on how processes are treated.
    pub fn set_treatments(&mut self, by: Box<dyn MakeTreatments>) {
        self.followed.treated = Treated::by(by);
    }

    /// Returns the command's exit status, once it has ended.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.ending.exit_status
    }

    /// Returns whether the heavier sources are in use.
    pub fn is_complete(&self) -> bool {
        self.later.is_complete
    }

    /// Returns the sources in use.
    pub fn sources(&self) -> Sources {
        self.followed.reading.sources()
    }

    /// Returns the durations of rounds, from wake-up to the last action carried out: all, or a sample of very
    /// many with the longest.
    pub fn rounds(&self) -> Vec<Duration> {
        self.rounds.sample()
    }

    /// Returns what the sources could not see, in words.
    pub fn notes(&self) -> Vec<String> {
        let notes = self.later.notes.iter().cloned().chain(self.followed.reading.notes());
        let changing = &self.followed.changing;
        notes.chain(changing.notes.iter().cloned()).chain(changing.actuators.notes()).collect()
    }

    /// Restores everything after an error; from then on only follows the command to its end.
    pub fn stop_watching(&mut self) {
        self.watching = false;
        self.give_back();
        self.later.abandon();
    }

    fn give_back(&mut self) {
        // Looks at everything once more, and then lets the guardian go.
        self.followed.changing.actuators.give_back();
    }

    /// Registers a thread that has appeared.
    pub fn meet(&mut self, thread: &NewThread) {
        self.followed.meet(thread);
    }

    /// Returns the processes that are followed, to decide about them.
    pub fn trees(&mut self) -> &mut dyn Trees {
        &mut self.followed
    }

    /// Takes in everything that has happened.
    fn refresh(&mut self) -> Result<(), LiveError> {
        if self.watching {
            self.followed.refresh()?;
        }
        let is_idle = self.watching && self.followed.reading.discovery.is_idle();
        self.ending.look(self.now(), is_idle)
    }

    /// Gets what is due of what was deferred: the heavier sources take the place of the light ones.
    fn upgrade_if_due(&mut self) -> Result<(), LiveError> {
        let changing = &mut self.followed.changing;
        let has_teams = self.later.is_pending() && changing.has_teams();
        let Some(upgrade) = self.later.due(has_teams, &mut changing.actuators)? else { return Ok(()) };
        let Upgrade { discovery, appeared, counters, machine, work, board, notes } = upgrade;
        self.followed.continue_with(discovery, appeared, counters, work)?;
        self.followed.applications.begin_at(self.now());
        self.later.complete(machine, board, notes);
        Ok(())
    }

    /// Sleeps for this time at most: each part enters what wakes it.
    fn sleep(&mut self, left: Duration) -> Result<(), LiveError> {
        let mut wakes = Wakes::within(left, self.followed.events.rests_for());
        self.ending.enter(&mut wakes, self.now());
        if let Some(onlooker) = &self.onlooker {
            wakes.readable(Name::Onlooker, onlooker.wake_fd());
            wakes.due(Name::Onlooker, onlooker.due_within());
        }
        wakes.due(Name::Messages, standard_error::due_within());
        if self.watching {
            // Looking for threads is better left to the rarer looks for everything else where it harms.
            let is_harmful = self.later.is_pending() && self.followed.changing.is_interruption_harmful();
            self.followed.reading.enter(&mut wakes, !is_harmful);
            self.followed.changing.enter(&mut wakes);
            self.followed.events.enter(&mut wakes);
            self.later.enter(&mut wakes);
        }
        if wakes.sleep()?.contains(&Name::Counters) {
            self.followed.reading.drain_soon();
        }
        Ok(())
    }
}

impl World for LiveWorld {
    type Error = LiveError;

    fn now(&self) -> Time {
        since(self.started)
    }

    fn observe(&mut self) -> Result<Observation, LiveError> {
        let followed = &mut self.followed;
        followed.reading.look_at_allowed()?;
        self.later.look_for_pes(&followed.reading.baseline);
        let reserved = followed.treated.reserved();
        let (threads, treatments) = followed.all()?;
        let (discovery, times) = (&mut *followed.reading.discovery, (self.started, since(self.started)));
        let applications = followed.applications.read(&threads, discovery, times);
        Ok(Observation {
            at: since(self.started),
            allowed: CpuSet::clone(&followed.reading.baseline),
            reserved,
            taken: followed.changing.actuators.taken(),
            threads,
            processes: followed.changing.last_processes(),
            beside: followed.reading.discovery.beside(),
            treatments,
            applications,
            programs: followed.applications.programs.take(),
            outcomes: followed.changing.take_outcomes(),
            own_cpu_ns: process_cpu_time().as_nanos() as u64,
            answers_cpu_ns: self.onlooker.as_deref().map_or(0, |onlooker| onlooker.spent().as_nanos() as u64),
            board: self.later.board.borrow().as_ref().map(SharedBoard::read),
        })
    }

    fn apply(&mut self, actions: &[Action]) {
        self.followed.apply(actions);
        self.rounds.end();
    }

    fn subscribe(&mut self, kinds: &[EventKind]) {
        self.followed.events.subscribe(kinds);
        if kinds.contains(&EventKind::TlpChanged) {
            self.followed.reading.discovery.report_tlp();
        }
    }

    fn tune(&mut self, look: Look) {
        self.followed.events.rest(look.rest);
        look.measured.into_iter().for_each(|thread| self.followed.reading.measure(thread));
    }

    fn better_machine(&mut self) -> Option<MachineModel> {
        self.later.machine.take()
    }

    fn wait_until(&mut self, deadline: Time) -> Result<Wake, LiveError> {
        loop {
            self.rounds.begin();
            // It is back; on a busy machine it may never have time to sleep.
            heartbeat::promise(Duration::ZERO);
            standard_error::flush();
            self.followed.changing.take_given_back(&*self.followed.reading.discovery);
            self.refresh()?;
            if let Some(onlooker) = &mut self.onlooker {
                self.ending.is_over |= onlooker.serve(&mut self.followed);
            }
            if self.ending.is_over {
                return Ok(Wake::Finished);
            }
            self.upgrade_if_due()?;
            if self.later.machine.is_some() {
                // All is observed at once with the new sources.
                return Ok(Wake::Deadline);
            }
            let left = deadline.since(self.now());
            if left.is_zero() {
                // Leave events pending; otherwise a flood of events would postpone every observation.
                return Ok(Wake::Deadline);
            }
            let events = self.followed.events.take();
            if !events.is_empty() {
                let outcomes = self.followed.changing.take_outcomes();
                return Ok(Wake::Events(EventBatch { at: self.now(), events, outcomes }));
            }
            self.sleep(left)?;
        }
    }
}

/// However the run ends, no thread stays bound.
impl Drop for LiveWorld {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Returns the time of a run that has started then.
fn since(started: Instant) -> Time {
    Time(started.elapsed().as_nanos() as u64)
}
