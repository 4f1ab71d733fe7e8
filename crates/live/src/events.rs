//! Events between two observations.

use crate::changing::Changing;
use crate::reading::{Reading, own_mask};
use crate::treatments::Treated;
use crate::wakes::{Name, Wakes};
use crate::working::{self, Working};
use corewise_core::ids::ThreadId;
use corewise_core::observe::{Event, EventKind, Hints, ThreadReading};
use corewise_discovery::{News, ThreadFacts};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The interval at which the allowed PEs are read, as the kernel does not report changes of masks and
/// cpusets.
const ALLOWED_WITHIN: Duration = Duration::from_millis(100);

/// What was subscribed to, and what has happened.
#[derive(Default)]
pub struct Events {
    /// The subscribed kinds.
    kinds: Vec<EventKind>,
    /// What has happened, and was not reported yet.
    pending: Vec<Event>,
    working: Working,
    /// When the allowed PEs were last read between two observations.
    allowed_read: Option<Instant>,
    /// How long events are left alone after some were taken in, and when that was.
    rest: Duration,
    taken_in: Option<Instant>,
}

impl Events {
    /// Reports these kinds from now on.
    pub fn subscribe(&mut self, kinds: &[EventKind]) {
        self.kinds = kinds.to_vec();
    }

    /// Returns whether this kind was subscribed to.
    pub fn has(&self, kind: EventKind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Leaves events alone for so long after some were taken in, from now on.
    pub fn rest(&mut self, between: Duration) {
        self.rest = between;
    }

    /// Returns how long they are still to be left alone.
    pub fn rests_for(&self) -> Duration {
        self.taken_in.map_or(Duration::ZERO, |at| self.rest.saturating_sub(at.elapsed()))
    }

    /// They are taken in now.
    pub fn begin(&mut self) {
        self.taken_in = Some(Instant::now());
    }

    /// Reports what has happened since the last time.
    pub fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.pending)
    }

    /// Everything was observed: drops what that includes.
    pub fn drop_observed(&mut self, threads: &[ThreadReading]) {
        let ended = threads.iter().filter(|reading| reading.ended).map(|reading| reading.thread);
        let ended: HashSet<ThreadId> = ended.collect();
        // How processes are treated is part of the observation.
        self.pending.retain(|event| !event.is_outdated(&ended) && event.kind() != EventKind::Treated);
    }

    /// Notes that a process is treated in another way, if it is.
    pub fn note_treatment(&mut self, pid: u32, treated: &mut Treated) {
        if self.has(EventKind::Treated) {
            self.pending.extend(treated.news(pid));
        }
    }

    /// Notes what was subscribed to of what has happened.
    pub fn note(
        &mut self,
        (news, hints): (News, Vec<(u32, u32, Hints)>),
        reading: &mut Reading,
        changing: &mut Changing,
        treated: &mut Treated,
    ) {
        if self.kinds.is_empty() {
            return;
        }
        if self.has(EventKind::ThreadStarted) {
            let facts = news.appeared.iter().filter_map(|new| reading.discovery.facts(new.tid));
            for facts in facts.collect::<Vec<_>>() {
                self.note_treatment(facts.pid, treated);
                let reading = reading.thread(facts, changing);
                self.pending.push(Event::ThreadStarted(Box::new(reading)));
            }
        }
        let mut events = Vec::new();
        events.extend(self.look_at_allowed(reading));
        let facts = |tid| reading.discovery.facts(tid);
        if self.has(EventKind::ThreadRenamed) {
            let renamed = |(thread, name)| Event::ThreadRenamed { thread, name };
            events.extend(news.renamed.into_iter().map(renamed));
        }
        if self.has(EventKind::ThreadEnded) {
            events.extend(news.ended.into_iter().map(Event::ThreadEnded));
        }
        if self.has(EventKind::TlpChanged) {
            let facts = |tid| {
                let ThreadFacts { pid, app, runnable, .. } = facts(tid)?;
                Some(working::Facts { pid, app, runnable })
            };
            let changed = self.working.take(news.runnable, &hints, facts);
            events.extend(changed.into_iter().map(Event::TlpChanged));
        }
        if self.has(EventKind::Hint) {
            events.extend(hints.into_iter().filter_map(|(pid, tid, hints)| {
                let facts = facts(tid).filter(|facts| facts.pid == pid)?;
                Some(Event::Hint { thread: ThreadId { tid, generation: facts.generation }, hints })
            }));
        }
        if self.has(EventKind::Process) {
            let readings = changing.read_processes();
            readings.iter().for_each(|reading| self.note_treatment(reading.leader.tid, treated));
            events.extend(readings.into_iter().map(Event::Process));
        }
        self.pending.extend(events);
    }

    /// Reads from time to time which PEs are allowed, and returns an event if these are others.
    fn look_at_allowed(&mut self, reading: &mut Reading) -> Option<Event> {
        let is_due = self.allowed_read.is_none_or(|at| at.elapsed() >= ALLOWED_WITHIN);
        if !self.has(EventKind::AllowedChanged) || !is_due {
            return None;
        }
        // Who subscribes learns first which PEs there are, not only with the first observation.
        let is_first = self.allowed_read.replace(Instant::now()).is_none();
        // If it cannot be read now, the next observation reports the error.
        let allowed = own_mask().ok().filter(|allowed| is_first || *allowed != *reading.baseline)?;
        reading.baseline = Arc::new(allowed.clone());
        Some(Event::AllowedChanged(allowed))
    }

    /// Enters what wakes it.
    pub fn enter(&self, wakes: &mut Wakes<'_>) {
        wakes.due(Name::Allowed, self.has(EventKind::AllowedChanged).then_some(ALLOWED_WITHIN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::Scripted;
    use corewise_binding::actuators::Actuators;
    use corewise_core::cpuset::CpuSet;
    use corewise_core::engine::EngineConfig;
    use corewise_counters::none::NoCounters;
    use corewise_discovery::NewThread;

    const PID: u32 = 0x3fff_ff00;

    /// The sources, with one thread that has begun, and what it needs to be noted.
    fn parts() -> (Reading, Changing, Treated, News) {
        let thread =
            NewThread { tid: PID, pid: PID, creator_tid: None, generation: 1, created: Instant::now() };
        let begun = News { appeared: vec![thread], ..News::default() };
        let source = Scripted::new("scripted", vec![begun]);
        let mut reading = Reading::of(Box::new(source), Box::new(NoCounters), None).unwrap();
        let news = reading.discovery.refresh().unwrap();
        let changing = Changing::new(Actuators::new(&EngineConfig::default()), None);
        (reading, changing, Treated::default(), news)
    }

    fn kinds(events: &[Event]) -> Vec<EventKind> {
        events.iter().map(Event::kind).collect()
    }

    #[test]
    fn only_what_was_subscribed_to_is_reported_and_once() {
        let (mut reading, mut changing, mut treated, news) = parts();
        let id = ThreadId { tid: PID, generation: 1 };
        let news = News { ended: vec![id], renamed: vec![(id, "new".into())], ..news };
        let mut note = |events: &mut Events| {
            events.note((news.clone(), Vec::new()), &mut reading, &mut changing, &mut treated);
            kinds(&events.take())
        };
        let mut events = Events::default();
        assert!(note(&mut events).is_empty());
        events.subscribe(&[EventKind::ThreadStarted, EventKind::ThreadRenamed, EventKind::ThreadEnded]);
        assert_eq!(
            note(&mut events),
            [EventKind::ThreadStarted, EventKind::ThreadRenamed, EventKind::ThreadEnded]
        );
        assert!(events.take().is_empty());
        events.subscribe(&[EventKind::ThreadEnded]);
        assert_eq!(note(&mut events), [EventKind::ThreadEnded]);
    }

    #[test]
    fn a_hint_counts_for_the_thread_of_that_process_only() {
        let (mut reading, mut changing, mut treated, _) = parts();
        let mut events = Events::default();
        events.subscribe(&[EventKind::Hint]);
        let hints =
            vec![(PID, PID, Hints::default()), (1, PID, Hints::default()), (PID, 1, Hints::default())];
        events.note((News::default(), hints), &mut reading, &mut changing, &mut treated);
        let thread = ThreadId { tid: PID, generation: 1 };
        assert_eq!(events.take(), [Event::Hint { thread, hints: Hints::default() }]);
    }

    #[test]
    fn the_allowed_pes_are_reported_first_and_then_when_they_have_changed() {
        let (mut reading, mut changing, mut treated, _) = parts();
        let own = own_mask().unwrap();
        let mut events = Events::default();
        events.subscribe(&[EventKind::AllowedChanged]);
        let mut note = |events: &mut Events, reading: &mut Reading| {
            events.note((News::default(), Vec::new()), reading, &mut changing, &mut treated);
            events.take()
        };
        assert_eq!(note(&mut events, &mut reading), [Event::AllowedChanged(own.clone())]);
        events.allowed_read = Instant::now().checked_sub(ALLOWED_WITHIN);
        assert!(note(&mut events, &mut reading).is_empty());
        reading.baseline = Arc::new(CpuSet::new());
        events.allowed_read = Some(Instant::now() + ALLOWED_WITHIN * 1000);
        assert!(note(&mut events, &mut reading).is_empty(), "it was read a moment ago");
        events.allowed_read = Instant::now().checked_sub(ALLOWED_WITHIN);
        assert_eq!(note(&mut events, &mut reading), [Event::AllowedChanged(own)]);
    }

    #[test]
    fn an_observation_takes_the_place_of_what_it_includes() {
        let (mut reading, mut changing, _, _) = parts();
        let facts = reading.discovery.facts(PID).unwrap();
        let begun = reading.thread(facts.clone(), &mut changing);
        let ended = reading.thread(ThreadFacts { ended: true, ..facts }, &mut changing);
        let mut events = Events::default();
        let treated = Event::Treated { pid: PID, treatment: None };
        events.pending =
            vec![Event::ThreadStarted(Box::new(begun)), treated, Event::ThreadEnded(ended.thread)];
        events.drop_observed(std::slice::from_ref(&ended));
        assert_eq!(kinds(&events.take()), [EventKind::ThreadEnded]);
    }

    #[test]
    fn events_rest_for_as_long_as_was_asked() {
        let mut events = Events::default();
        events.rest(Duration::from_secs(3600));
        assert_eq!(events.rests_for(), Duration::ZERO, "none was taken in yet");
        events.begin();
        assert!(events.rests_for() > Duration::from_secs(3500));
        events.rest(Duration::ZERO);
        assert_eq!(events.rests_for(), Duration::ZERO);
    }
}
