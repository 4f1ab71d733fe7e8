//! Subscribed events of the simulated machine between two observations.
//!
//! An application's number of runnable threads is reported as on a real machine: at the change, unless
//! another one was reported within [`COALESCED_WITHIN`]; then at the end of that time, if it still differs.

use super::Sim;
use crate::queue::Event;
use corewise_core::observe::{COALESCED_WITHIN, EventKind, ProcessReading};
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
    pub(crate) items: Vec<NewsItem>,
    /// Applications whose number of runnable threads may have changed at this instant.
    changed: Vec<usize>,
    reported: Vec<Reported>,
}

/// The last report of an application's parallelism.
#[derive(Debug, Clone, Copy, Default)]
struct Reported {
    count: u32,
    only: Option<usize>,
    at: Option<Time>,
    /// Whether its next report is in the queue.
    is_due: bool,
}

impl News {
    /// Subscribes to these kinds.
    pub(crate) fn ask(&mut self, kinds: &[EventKind], apps: usize) {
        self.kinds = kinds.to_vec();
        self.reported.resize(apps, Reported::default());
    }

    /// Returns whether events of a kind are subscribed to.
    pub(super) fn wants(&self, kind: EventKind) -> bool {
        self.kinds.contains(&kind)
    }

    pub(super) fn add(&mut self, kind: EventKind, item: NewsItem) {
        if self.wants(kind) {
            self.items.push(item);
        }
    }

    /// Records a change of an application's number of runnable threads.
    pub(super) fn note_tlp(&mut self, app: usize) {
        if self.wants(EventKind::TlpChanged) && !self.changed.contains(&app) {
            self.changed.push(app);
        }
    }
}

impl Sim {
    /// Returns at the end of an instant whether there is something to report.
    pub(super) fn settle_news(&mut self) -> bool {
        let mut changed = std::mem::take(&mut self.news.changed);
        for app in changed.drain(..) {
            let last = &mut self.news.reported[app];
            let due = last.at.map_or(self.now, |at| at + COALESCED_WITHIN);
            if due <= self.now {
                self.report_tlp(app);
            } else if !std::mem::replace(&mut last.is_due, true) {
                self.queue.push(due, Event::ReportTlp { app: app as u32 });
            }
        }
        self.news.changed = changed;
        !self.news.items.is_empty()
    }

    /// Reports changes of an application when its coalescing time has passed.
    pub(super) fn report_coalesced(&mut self, app: usize) {
        self.news.reported[app].is_due = false;
        self.news.note_tlp(app);
    }

    fn report_tlp(&mut self, app: usize) {
        let count = self.apps[app].parallelism.runnable;
        let only = (count == 1).then_some(self.apps[app].counted_xor);
        let last = &mut self.news.reported[app];
        if (last.count, last.only) != (count, only) {
            (last.count, last.only, last.at) = (count, only, Some(self.now));
            self.news.items.push(NewsItem::Tlp { app, count, only });
        }
    }
}
