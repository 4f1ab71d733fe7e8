//! The source **pmu**: hardware counters of every thread.
//!
//! ```text
//! files   what to count on which processor, and the formulas       (data: crates/counters/events/*.toml)
//! detect  which file fits each kind of core of this machine
//! pfm     event names to numbers, by libpfm4
//! probe   does it count here? how many counters may a group use?
//! group   perf_event_open: groups of events on one thread
//! tally   counts -> scaled -> formulas -> cumulative metrics
//! ```
//!
//! A thread has one group per kind of core, or several that alternate where one kind has fewer counters
//! than events. Groups are not inherited: the discovery of threads hands every thread to
//! [`CounterSource::watch`], so each thread has its own counts.

mod detect;
mod files;
mod formula;
mod group;
mod pfm;
mod probe;
mod tally;

pub use detect::{Cpu, DetectError, Kind, detect};
pub use files::{
    ArmMatch, CpuMatch, Event, EventCode, EventFile, EventFileError, Metric, MetricFormula, X86Match,
    events_table, override_dirs,
};
pub use formula::{Formula, FormulaError};
pub use pfm::PfmError;
pub use probe::{Ready, Reason};

use super::source::CounterSource;
use corewise_core::observe::CounterReading;
use corewise_core::policy::Reading;
use corewise_discovery::NewThread;
use group::{Group, GroupCounts};
use probe::ReadyKind;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use tally::{Layout, Tally};

/// Hardware counters of the watched threads.
#[derive(Debug)]
pub struct PmuSource {
    kinds: Vec<ReadyKind>,
    layouts: Vec<Layout>,
    /// What is measured of threads on every kind of core.
    metrics: Vec<Metric>,
    user_only: bool,
    files: Arc<str>,
    watched: HashMap<u32, Watched>,
    descriptors_per_thread: usize,
    descriptors_max: usize,
    notes: Vec<String>,
    /// How often each of these happened.
    note_counts: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Watched {
    /// Per kind of core, per group.
    groups: Vec<Vec<Group>>,
    tally: Tally,
}

impl PmuSource {
    /// Counts with what was tried. At most `descriptors_max` descriptors are held; threads beyond that have
    /// no reading. See [`super::descriptors::DescriptorLimit`].
    pub fn new(ready: Ready, descriptors_max: usize) -> Self {
        Self {
            files: ready.files().into(),
            metrics: Metric::ALL.into_iter().filter(|metric| ready.gives(*metric)).collect(),
            descriptors_per_thread: ready.descriptors_per_thread(),
            layouts: ready.kinds.iter().map(|kind| kind.layout.clone()).collect(),
            kinds: ready.kinds,
            user_only: ready.user_only,
            watched: HashMap::new(),
            descriptors_max,
            notes: ready.notes,
            note_counts: BTreeMap::new(),
        }
    }

    fn open(&self, tid: u32) -> io::Result<Vec<Vec<Group>>> {
        let open = |events: &Vec<_>| Group::open(tid, events, self.user_only);
        self.kinds.iter().map(|kind| kind.encoded.iter().map(open).collect()).collect()
    }

    fn note(&mut self, what: impl Into<String>) {
        *self.note_counts.entry(what.into()).or_default() += 1;
    }
}

impl CounterSource for PmuSource {
    fn name(&self) -> String {
        format!("pmu {}", self.files)
    }

    fn gives(&self, reading: Reading) -> bool {
        let metric = match reading {
            Reading::FpuUsage => Metric::FpuBusyCycles,
            Reading::Ipc => Metric::Instructions,
            Reading::L2Misses => Metric::L2Misses,
            Reading::Branches => Metric::Branches,
            Reading::Tlp | Reading::Spinning | Reading::Master => return false,
        };
        self.metrics.contains(&metric)
    }

    fn watch(&mut self, thread: &NewThread) {
        // Of a thread with the same id that ended unnoticed nothing must remain.
        self.watched.remove(&thread.tid);
        if (self.watched.len() + 1) * self.descriptors_per_thread > self.descriptors_max {
            return self.note("threads not counted: the limit of open descriptors is reached");
        }
        match self.open(thread.tid) {
            Ok(groups) => {
                let tally = Tally::new(&self.layouts);
                self.watched.insert(thread.tid, Watched { groups, tally });
            }
            Err(error) => {
                let what = match error.raw_os_error() {
                    Some(libc::ESRCH) => "threads ended before they could be counted".into(),
                    Some(libc::EACCES | libc::EPERM) => "threads that this user may not count".into(),
                    _ => format!("threads not counted: {error}"),
                };
                self.note(what);
            }
        }
    }

    fn drain(&mut self) {}

    fn read(&mut self, tid: u32) -> Option<CounterReading> {
        let watched = self.watched.get_mut(&tid)?;
        let read = |group: &Group| group.read().ok().flatten();
        let counts: Option<Vec<Vec<GroupCounts>>> =
            watched.groups.iter().map(|groups| groups.iter().map(read).collect()).collect();
        if let Some(counts) = counts {
            watched.tally.add(&self.layouts, counts);
            return watched.tally.reading(&self.files).map(CounterReading::Pmu);
        }
        self.watched.remove(&tid);
        self.note("threads whose counters the kernel took away");
        None
    }

    fn last(&mut self, tid: u32) -> Option<CounterReading> {
        let reading = self.read(tid);
        self.watched.remove(&tid);
        reading
    }

    fn notes(&self) -> Vec<String> {
        let counted = self.note_counts.iter().map(|(what, times)| format!("{times} {what}"));
        self.notes.iter().cloned().chain(counted).collect()
    }
}

#[cfg(test)]
mod tests;
