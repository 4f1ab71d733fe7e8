//! Subscribed events of the simulated machine between two observations.
//!
//! An application's number of runnable threads is reported as on a real machine: at the change, unless
//! another one was reported within [`COALESCED_WITHIN`]; then at the end of that time, if it still differs.

use super::Sim;
use super::state::news::NewsItem;
use crate::queue::Event;
use corewise_core::observe::COALESCED_WITHIN;

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
