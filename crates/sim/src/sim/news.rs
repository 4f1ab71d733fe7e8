//! What the simulated machine tells between two looks: the events that somebody asked for.
//!
//! An application's number of runnable threads is told as a real machine tells it: at the change, unless one
//! was told within [`COALESCED_WITHIN`]; then at the end of that time, if it still differs.

use super::Sim;
use crate::queue::Event;
use corewise_core::observe::{COALESCED_WITHIN, EventKind};
use corewise_core::time::Time;

/// Something that happened, by the indices of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewsItem {
    /// A thread was created.
    Started { thread: usize },
    /// A thread has ended.
    Ended { thread: usize },
    /// A thread spins, or no longer.
    Hint { thread: usize },
    /// An application has this number of runnable threads; the only one, where it is one.
    Tlp { app: usize, count: u32, only: Option<usize> },
    /// A PE came or went.
    Online,
}

/// What is to be told.
#[derive(Debug, Default)]
pub(crate) struct News {
    kinds: Vec<EventKind>,
    pub(crate) items: Vec<NewsItem>,
    /// Applications whose number of runnable threads may have changed at this instant.
    changed: Vec<usize>,
    told: Vec<Told>,
}

/// What was told of an application's parallelism.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    count: u32,
    only: Option<usize>,
    at: Option<Time>,
    /// Whether its next telling is in the queue.
    is_due: bool,
}

impl News {
    /// Tells these kinds from now on.
    pub(crate) fn ask(&mut self, kinds: &[EventKind], apps: usize) {
        self.kinds = kinds.to_vec();
        self.told.resize(apps, Told::default());
    }

    pub(super) fn add(&mut self, kind: EventKind, item: NewsItem) {
        if self.kinds.contains(&kind) {
            self.items.push(item);
        }
    }

    /// The number of runnable threads of an application changed.
    pub(super) fn note_tlp(&mut self, app: usize) {
        if self.kinds.contains(&EventKind::TlpChanged) && !self.changed.contains(&app) {
            self.changed.push(app);
        }
    }
}

impl Sim {
    /// At the end of an instant: whether there is something to tell.
    pub(super) fn settle_news(&mut self) -> bool {
        let mut changed = std::mem::take(&mut self.news.changed);
        for app in changed.drain(..) {
            let told = &mut self.news.told[app];
            let due = told.at.map_or(self.now, |at| at + COALESCED_WITHIN);
            if due <= self.now {
                self.tell_tlp(app);
            } else if !std::mem::replace(&mut told.is_due, true) {
                self.queue.push(due, Event::Tell { app: app as u32 });
            }
        }
        self.news.changed = changed;
        !self.news.items.is_empty()
    }

    /// The time is up for which changes of an application were not told.
    pub(super) fn tell_at_last(&mut self, app: usize) {
        self.news.told[app].is_due = false;
        self.news.note_tlp(app);
    }

    fn tell_tlp(&mut self, app: usize) {
        let count = self.apps[app].parallelism.runnable;
        let only = (count == 1).then_some(self.apps[app].counted_xor);
        let told = &mut self.news.told[app];
        if (told.count, told.only) != (count, only) {
            (told.count, told.only, told.at) = (count, only, Some(self.now));
            self.news.items.push(NewsItem::Tlp { app, count, only });
        }
    }
}
