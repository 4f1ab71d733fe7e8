//! Subscribed events that have happened.

use corewise_core::observe::{EventKind, ProcessReading};
use corewise_core::time::Time;

/// An event, by the indices of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewsItem {
    /// A thread was created.
    Started { thread: usize },
    /// A thread has ended.
    Ended { thread: usize },
    /// A thread starts or stops spinning.
    Hint { thread: usize },
    /// An application has this number of runnable threads, and possibly only one, which is named.
    Tlp { app: usize, count: u32, only: Option<usize> },
    /// A PE went online or offline.
    Online,
    /// The times of a process.
    Process(ProcessReading),
}

/// Subscribed events that have happened.
#[derive(Debug, Default)]
pub(crate) struct News {
    kinds: Vec<EventKind>,
    pub items: Vec<NewsItem>,
    /// Applications whose number of runnable threads may have changed at this instant.
    pub changed: Vec<usize>,
    pub reported: Vec<Reported>,
}

/// The last report of an application's parallelism.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reported {
    pub count: u32,
    pub only: Option<usize>,
    pub at: Option<Time>,
    /// Whether its next report is in the queue.
    pub is_due: bool,
}

impl News {
    /// Subscribes to these kinds.
    pub fn ask(&mut self, kinds: &[EventKind], apps: usize) {
        self.kinds = kinds.to_vec();
        self.reported.resize(apps, Reported::default());
    }

    /// Returns whether events of a kind are subscribed to.
    pub fn wants(&self, kind: EventKind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Adds an event, if its kind is subscribed to.
    pub fn add(&mut self, kind: EventKind, item: NewsItem) {
        if self.wants(kind) {
            self.items.push(item);
        }
    }

    /// Records a change of an application's number of runnable threads.
    pub fn note_tlp(&mut self, app: usize) {
        if self.wants(EventKind::TlpChanged) && !self.changed.contains(&app) {
            self.changed.push(app);
        }
    }
}
