//! Events between two observations.

use crate::{ALLOWED_WITHIN, LiveWorld, Parts, own_mask, working};
use corewise_core::ids::ThreadId;
use corewise_core::observe::{Event, EventKind, Hints};
use corewise_discovery::{News, ThreadFacts};
use std::sync::Arc;
use std::time::Instant;

impl LiveWorld {
    /// Records the events that were subscribed to.
    pub(super) fn note_events(&mut self, news: News, hints: Vec<(u32, u32, Hints)>) {
        if self.kinds.is_empty() {
            return;
        }
        let wanted = |kind| self.kinds.contains(&kind);
        if wanted(EventKind::ThreadStarted) {
            let facts = news.appeared.iter().filter_map(|new| self.parts.discovery.facts(new.tid));
            for facts in facts.collect::<Vec<_>>() {
                self.note_treatment(facts.pid);
                let reading = self.reading(facts);
                self.events.push(Event::ThreadStarted(Box::new(reading)));
            }
        }
        let mut events = Vec::new();
        if self.hears_of_allowed() && self.allowed_read.is_none_or(|at| at.elapsed() >= ALLOWED_WITHIN) {
            // Who subscribes learns first which PEs there are, not only with the first observation.
            let is_first = self.allowed_read.replace(Instant::now()).is_none();
            // If it cannot be read now, the next observation reports the error.
            if let Ok(allowed) = own_mask()
                && (is_first || allowed != *self.baseline)
            {
                events.push(Event::AllowedChanged(allowed.clone()));
                self.baseline = Arc::new(allowed);
            }
        }
        let wanted = |kind| self.kinds.contains(&kind);
        if wanted(EventKind::ThreadRenamed) {
            let renamed = |(thread, name)| Event::ThreadRenamed { thread, name };
            events.extend(news.renamed.into_iter().map(renamed));
        }
        if wanted(EventKind::ThreadEnded) {
            events.extend(news.ended.into_iter().map(Event::ThreadEnded));
        }
        if wanted(EventKind::TlpChanged) {
            let facts = |tid| {
                let ThreadFacts { pid, app, runnable, .. } = self.parts.discovery.facts(tid)?;
                Some(working::Facts { pid, app, runnable })
            };
            let changed = self.working.take(news.runnable, &hints, facts);
            events.extend(changed.into_iter().map(Event::TlpChanged));
        }
        if wanted(EventKind::Hint) {
            events.extend(hints.into_iter().filter_map(|(pid, tid, hints)| {
                let facts = self.parts.discovery.facts(tid).filter(|facts| facts.pid == pid)?;
                Some(Event::Hint { thread: ThreadId { tid, generation: facts.generation }, hints })
            }));
        }
        if wanted(EventKind::Process) {
            let Parts { processes, actuators, .. } = &mut self.parts;
            let readings: Vec<_> = processes.iter_mut().flat_map(|all| all.read(actuators)).collect();
            readings.iter().for_each(|reading| self.note_treatment(reading.leader.tid));
            events.extend(readings.into_iter().map(Event::Process));
        }
        self.events.extend(events);
    }

    pub(super) fn hears_of_allowed(&self) -> bool {
        self.kinds.contains(&EventKind::AllowedChanged)
    }
}
