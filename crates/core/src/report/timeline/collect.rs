//! Collects a timeline while the loop runs.

use super::grid::{Cell, Grid, Row};
use super::parallelism::{Parallelism, Piece};
use super::{
    APPLICATIONS_MAX, CELLS_MAX, COLUMNS_MAX, FIRST_COLUMN_NS, PeOverTime, RunnableOverTime, Timeline,
};
use crate::cpuset::CpuSet;
use crate::ids::{AppId, PeId, ThreadId};
use crate::observe::{ApplicationReading, RunnableThreads, Standing, ThreadReading};
use crate::plan::{Change, Setting, SettingKind, Weight};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// An application with rows of its own, or all others.
type Owner = Option<AppId>;

/// Collects a timeline while the loop runs.
#[derive(Default)]
pub struct TimelineBuilder {
    /// How often the columns became twice as wide.
    doublings: u32,
    runnable: Grid<Owner, Runnable>,
    pes: Grid<(PeId, Owner), Occupancy>,
    parallelism: BTreeMap<AppId, Parallelism>,
    /// The threads that are bound now.
    bound: BTreeMap<ThreadId, Bound>,
    /// The threads with a higher weight than their user's.
    weighted: BTreeSet<ThreadId>,
    /// How many threads are bound to each PE now.
    held: BTreeMap<(PeId, Owner), Held>,
    /// CPU time since the last observation: all, and that of FPU-intensive threads.
    ran_ns: BTreeMap<(PeId, Owner), (f64, f64)>,
    /// The runnable threads of each application, as of the observation that is taken in.
    runnable_now: BTreeMap<AppId, u32>,
    /// The living applications without rows of their own.
    others: BTreeSet<AppId>,
    last: Time,
}

/// Sums in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Runnable {
    thread: f64,
    sequential: f64,
}

/// Sums in nanoseconds, and the number of bindings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Occupancy {
    ran: f64,
    intensive: f64,
    bound: f64,
    weighted: f64,
    bindings: f64,
}

struct Bound {
    app: AppId,
    pes: CpuSet,
}

/// The threads that have been bound to a PE since a time.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    since: Time,
    bound: f64,
    weighted: f64,
}

impl Cell for Runnable {
    fn add(&mut self, other: &Self, times: f64) {
        self.thread += other.thread * times;
        self.sequential += other.sequential * times;
    }
}

impl Cell for Occupancy {
    fn add(&mut self, other: &Self, times: f64) {
        self.ran += other.ran * times;
        self.intensive += other.intensive * times;
        self.bound += other.bound * times;
        self.weighted += other.weighted * times;
        self.bindings += other.bindings * times;
    }
}

impl TimelineBuilder {
    /// Takes in a change of an application's number of runnable threads.
    pub fn take_runnable(&mut self, now: &RunnableThreads, at: Time) {
        let known = self.parallelism.entry(now.app).or_insert_with(|| Parallelism::from(at));
        let before = known.change(now.count, at);
        self.add_runnable(now.app, before);
    }

    /// Takes in a change of a thread that was carried out at this time.
    pub fn take_change(&mut self, (thread, app): (ThreadId, AppId), change: &Change, at: Time) {
        match change {
            Change::Bind(pes) | Change::Move(pes) => {
                self.release(thread, at);
                let (owner, column) = (self.owner(app), (at.0 / self.column_ns()) as usize);
                pes.iter().for_each(|pe| self.pes.cell((pe, owner), column).bindings += 1.0);
                self.hold(thread, Bound { app, pes: pes.clone() }, at);
            }
            Change::Free => drop(self.release(thread, at)),
            Change::Set(Setting::Weight(Weight::Percent(percent))) if *percent > 100 => {
                self.set_weighted(thread, true, at);
            }
            Change::Set(Setting::Weight(_)) | Change::Reset(SettingKind::Weight) => {
                self.set_weighted(thread, false, at);
            }
            Change::Set(_) | Change::Reset(_) => {}
        }
    }

    /// Takes in that a thread has ended, or that somebody else decides where it runs.
    pub fn take_end(&mut self, thread: ThreadId, at: Time) {
        self.release(thread, at);
        self.weighted.remove(&thread);
    }

    /// Takes in a reading of an observation, with the CPU time since the last one.
    pub fn take_reading(&mut self, reading: &ThreadReading, ran_ns: f64, is_intensive: bool, at: Time) {
        if let Some(pe) = reading.last_pe.filter(|_| ran_ns > 0.0) {
            let (all, intensive) = self.ran_ns.entry((pe, self.owner(reading.app))).or_default();
            *all += ran_ns;
            *intensive += if is_intensive { ran_ns } else { 0.0 };
        }
        if reading.runnable && !reading.ended && !reading.hints.spinning {
            *self.runnable_now.entry(reading.app).or_default() += 1;
        }
        if reading.ended {
            self.take_end(reading.thread, at);
        } else if let Some(bound) = self.bound.get(&reading.thread) {
            let has_moved = bound.app != reading.app;
            if (has_moved || reading.standing != Standing::Bound)
                && let Some(bound) = self.release(reading.thread, at)
                && reading.standing == Standing::Bound
            {
                self.hold(reading.thread, Bound { app: reading.app, ..bound }, at);
            }
        }
    }

    /// Takes in the rest of an observation, after its threads.
    pub fn take_applications(&mut self, applications: &[ApplicationReading], at: Time) {
        let runnable_now = std::mem::take(&mut self.runnable_now);
        for reading in applications {
            let new = || Parallelism::from(reading.began);
            let known = self.parallelism.entry(reading.app).or_insert_with(new);
            let before = known.observe(reading, runnable_now.get(&reading.app).copied().unwrap_or(0), at);
            self.add_runnable(reading.app, before);
        }
        let listed: BTreeSet<AppId> = applications.iter().map(|reading| reading.app).collect();
        self.parallelism.retain(|app, _| listed.contains(app));
        self.others.retain(|app| listed.contains(app));
        let (period, column_ns) = ((self.last.0, at.0), self.column_ns());
        for (key, (ran, intensive)) in std::mem::take(&mut self.ran_ns) {
            let [ran, intensive] =
                [ran, intensive].map(|ns| ns / at.since(self.last).as_nanos().max(1) as f64);
            self.pes.add(key, period, &Occupancy { ran, intensive, ..Occupancy::default() }, column_ns);
        }
        let keys: Vec<_> = self.held.keys().copied().collect();
        for key in keys {
            self.settle(key, at);
        }
        // Only rounding errors are left.
        self.held.retain(|_, held| held.bound > 1e-6);
        self.last = at;
        self.stay_small();
    }

    /// Returns the timeline up to the last observation, of these applications.
    pub fn finish(mut self, applications: &[AppId]) -> Timeline {
        let index_of =
            |owner: Owner| owner.and_then(|app| applications.iter().position(|known| *known == app));
        self.gather(|owner| owner.filter(|_| index_of(owner).is_some()));
        let (column_ns, end_ns) = (self.column_ns(), self.last.0);
        let runnable = self.runnable.rows().map(|(owner, row)| {
            let list = |of: fn(&Runnable) -> f64| means(row, of, column_ns, end_ns);
            RunnableOverTime {
                application: index_of(owner),
                first_column: row.first,
                mean: list(|cell| cell.thread),
                sequential: list(|cell| cell.sequential),
            }
        });
        let pes = self.pes.rows().map(|((pe, owner), row)| {
            let list = |of: fn(&Occupancy) -> f64| means(row, of, column_ns, end_ns);
            PeOverTime {
                pe,
                application: index_of(owner),
                first_column: row.first,
                ran: list(|cell| cell.ran),
                fpu_intensive: list(|cell| cell.intensive),
                bound: list(|cell| cell.bound),
                weighted: list(|cell| cell.weighted),
                bindings: without_zeros(row.cells.iter().map(|cell| cell.bindings).collect()),
            }
        });
        Timeline { column_ns, runnable: runnable.collect(), pes: pes.collect() }
    }

    fn column_ns(&self) -> u64 {
        FIRST_COLUMN_NS << self.doublings
    }

    fn owner(&self, app: AppId) -> Owner {
        (!self.others.contains(&app)).then_some(app)
    }

    fn add_runnable(&mut self, app: AppId, (period, thread, sequential): Piece) {
        if thread > 0.0 {
            let (owner, column_ns) = (self.owner(app), self.column_ns());
            self.runnable.add(owner, period, &Runnable { thread, sequential }, column_ns);
        }
    }

    fn set_weighted(&mut self, thread: ThreadId, is_weighted: bool, at: Time) {
        let bound = self.release(thread, at);
        match is_weighted {
            true => self.weighted.insert(thread),
            false => self.weighted.remove(&thread),
        };
        if let Some(bound) = bound {
            self.hold(thread, bound, at);
        }
    }

    /// From this time on the thread is bound.
    fn hold(&mut self, thread: ThreadId, bound: Bound, at: Time) {
        self.count(thread, &bound, 1.0, at);
        self.bound.insert(thread, bound);
    }

    /// From this time on the thread is not bound; returns how it was.
    fn release(&mut self, thread: ThreadId, at: Time) -> Option<Bound> {
        let bound = self.bound.remove(&thread)?;
        self.count(thread, &bound, -1.0, at);
        Some(bound)
    }

    /// Adds to the number of threads that are bound to some PEs.
    fn count(&mut self, thread: ThreadId, bound: &Bound, number: f64, at: Time) {
        let (owner, part) = (self.owner(bound.app), number / bound.pes.len().max(1) as f64);
        let weighted = if self.weighted.contains(&thread) { part } else { 0.0 };
        for pe in bound.pes.iter() {
            let held = self.settle((pe, owner), at);
            held.bound += part;
            held.weighted += weighted;
        }
    }

    /// Adds up what has been bound to a PE until this time.
    fn settle(&mut self, key: (PeId, Owner), at: Time) -> &mut Held {
        let column_ns = self.column_ns();
        let held = self.held.entry(key).or_insert(Held { since: at, ..Held::default() });
        if held.bound > 0.0 {
            let rate = Occupancy { bound: held.bound, weighted: held.weighted, ..Occupancy::default() };
            self.pes.add(key, (held.since.0, at.0), &rate, column_ns);
        }
        held.since = at.max(held.since);
        held
    }

    /// Widens the columns, and sums up small applications, where there are too many.
    fn stay_small(&mut self) {
        let of_runnable = self.runnable.rows().filter_map(|(owner, _)| owner);
        let apps: BTreeSet<AppId> =
            of_runnable.chain(self.pes.rows().filter_map(|((_, owner), _)| owner)).collect();
        if apps.len() > 2 * APPLICATIONS_MAX {
            self.sum_up_small(apps);
        }
        let are_many = |this: &Self| {
            this.last.0 / this.column_ns() >= COLUMNS_MAX as u64
                || this.pes.stored() + this.runnable.stored() > CELLS_MAX
        };
        while self.column_ns() < self.last.0 && are_many(self) {
            self.runnable.halve();
            self.pes.halve();
            self.doublings += 1;
        }
    }

    /// Leaves rows of their own to the applications with the most CPU time.
    fn sum_up_small(&mut self, apps: BTreeSet<AppId>) {
        let mut ran_ns: BTreeMap<AppId, f64> = apps.into_iter().map(|app| (app, 0.0)).collect();
        for ((_, owner), row) in self.pes.rows() {
            let ran: f64 = row.cells.iter().map(|cell| cell.ran).sum();
            owner.into_iter().for_each(|app| *ran_ns.entry(app).or_default() += ran);
        }
        let mut apps: Vec<(AppId, f64)> = ran_ns.into_iter().collect();
        apps.sort_by(|a, b| b.1.total_cmp(&a.1));
        let small: BTreeSet<AppId> = apps.drain(APPLICATIONS_MAX..).map(|(app, _)| app).collect();
        self.gather(|owner| owner.filter(|app| !small.contains(app)));
        self.others.extend(small);
    }

    /// Moves everything of each application to the one that `target` returns.
    fn gather(&mut self, target: impl Fn(Owner) -> Owner) {
        self.runnable.gather(&target);
        self.pes.gather(|(pe, owner)| (pe, target(owner)));
        for ((pe, owner), held) in std::mem::take(&mut self.held) {
            let sum =
                self.held.entry((pe, target(owner))).or_insert(Held { since: held.since, ..Held::default() });
            sum.bound += held.bound;
            sum.weighted += held.weighted;
        }
    }
}

/// Returns the mean of each column. The last column lasts until the end of the run.
fn means<C>(row: &Row<C>, of: fn(&C) -> f64, column_ns: u64, end_ns: u64) -> Vec<f64> {
    let mean = |(index, cell): (usize, &C)| {
        let lasts_ns = end_ns.saturating_sub((row.first + index) as u64 * column_ns).clamp(1, column_ns);
        // Thousandths are more than can be seen.
        (of(cell) / lasts_ns as f64 * 1e3).round() / 1e3
    };
    without_zeros(row.cells.iter().enumerate().map(mean).collect())
}

/// Drops the zeros at the end.
fn without_zeros(mut list: Vec<f64>) -> Vec<f64> {
    list.truncate(list.iter().rposition(|value| *value != 0.0).map_or(0, |last| last + 1));
    list
}
