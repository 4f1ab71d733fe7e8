//! The applications of a run, in bounded memory.
//!
//! A world reports the applications that it knows at an instant, and forgets some that have ended. Here all
//! are kept, up to twice [`LISTED_MAX`]: then the ended ones that worked least are counted with the
//! application that executed them.

use super::totals::Totals;
use super::{ApplicationReport, rounded};
use crate::classify::{intensity_class, parallelism_class};
use crate::ids::AppId;
use crate::observe::{ApplicationReading, Target};
use crate::time::Time;
use crate::view::ApplicationView;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The number of applications that are listed: those that worked most.
const LISTED_MAX: usize = 500;

/// The last readings of all applications.
#[derive(Debug, Default)]
pub struct Applications {
    last: BTreeMap<AppId, ApplicationReading>,
    folded: u64,
}

impl Applications {
    /// Takes in the present readings. Returns which applications are no longer listed, each with the one that
    /// it counts with from now on.
    pub fn take(&mut self, present: &[ApplicationReading]) -> BTreeMap<AppId, AppId> {
        for reading in present {
            match self.last.get_mut(&reading.app) {
                Some(last) => last.clone_from(reading),
                None => drop(self.last.insert(reading.app, reading.clone())),
            }
        }
        if self.last.len() <= 2 * LISTED_MAX {
            return BTreeMap::new();
        }
        let present: BTreeSet<AppId> = present.iter().map(|reading| reading.app).collect();
        let gone = self.last.values().filter(|of| of.executed_by.is_some() && !present.contains(&of.app));
        let mut gone: Vec<_> = gone.map(|reading| (reading.runnable_thread_ns, reading.app)).collect();
        gone.sort_unstable();
        let count = (self.last.len() - LISTED_MAX).min(gone.len());
        let parents: BTreeMap<AppId, Option<AppId>> = gone[..count]
            .iter()
            .filter_map(|(_, app)| Some((*app, self.last.remove(app)?.executed_by)))
            .collect();
        self.folded += parents.len() as u64;
        let listed = |app| self.last.contains_key(&app);
        let into = |app: &AppId| {
            let above = std::iter::successors(Some(*app), |app| parents.get(app).copied().flatten());
            above.skip(1).find(|app| listed(*app)).unwrap_or_default()
        };
        parents.keys().map(|app| (*app, into(app))).collect()
    }

    /// Returns the name of an application.
    pub fn name(&self, app: AppId) -> Option<Arc<str>> {
        self.last.get(&app).map(|reading| reading.name.clone())
    }

    /// Returns what the user should know.
    pub fn note(&self) -> Option<String> {
        (self.folded > 0).then(|| {
            format!("{} programs with little CPU time are counted with those that executed them", self.folded)
        })
    }

    /// Returns the applications in the order of the report: what the user named first, then the programs that
    /// were executed, the busiest first.
    pub fn in_order(&self, totals: &BTreeMap<AppId, Totals>) -> Vec<AppId> {
        let cpu_seconds = |app| totals.get(&app).copied().unwrap_or_default().cpu_seconds();
        let (roots, mut programs): (Vec<_>, Vec<_>) =
            self.last.values().partition(|reading| reading.executed_by.is_none());
        programs.retain(|reading| reading.runnable_thread_ns > 0 || cpu_seconds(reading.app) > 0.0);
        programs.sort_by(|a, b| cpu_seconds(b.app).total_cmp(&cpu_seconds(a.app)).then(a.app.cmp(&b.app)));
        roots.into_iter().chain(programs).map(|reading| reading.app).collect()
    }

    /// Returns the reports, in this order.
    pub fn report(
        &self,
        last: Time,
        all_totals: &BTreeMap<AppId, Totals>,
        command_cpu: Option<Duration>,
    ) -> Vec<ApplicationReport> {
        let totals = |app| all_totals.get(&app).copied().unwrap_or_default();
        let command = self.last.values().filter(|reading| reading.target == Target::Command);
        let watched: f64 = command.map(|reading| totals(reading.app).cpu_seconds()).sum();
        // Each misses something: the readings what was not watched, the kernel's sum what nobody has waited
        // for.
        let unwatched = command_cpu.map_or(0.0, |cpu| (cpu.as_secs_f64() - watched).max(0.0));
        let report = |reading: &ApplicationReading| {
            let is_command = reading.target == Target::Command && reading.executed_by.is_none();
            let unwatched = if is_command { unwatched } else { 0.0 };
            let executed_by = reading.executed_by.map(|app| self.name(app).unwrap_or_default());
            ApplicationReport {
                executed_by,
                ..application_report(reading, last, &totals(reading.app), unwatched)
            }
        };
        self.in_order(all_totals).iter().filter_map(|app| self.last.get(app)).map(report).collect()
    }
}

fn application_report(
    reading: &ApplicationReading,
    last: Time,
    totals: &Totals,
    unwatched_seconds: f64,
) -> ApplicationReport {
    let cpu_seconds = totals.cpu_seconds() + unwatched_seconds;
    let until = reading.ended.unwrap_or(last);
    let view = ApplicationView::between(None, reading, until.since(reading.began));
    // What the user named has existed since the start of the run.
    let existed = reading.executed_by.map_or(until.since(Time(0)), |_| until.since(reading.began));
    ApplicationReport {
        name: reading.name.clone(),
        executed_by: None,
        target: reading.target.clone(),
        allowed: reading.allowed.clone(),
        from_seconds: reading.began.as_secs_f64(),
        ended_seconds: reading.ended.map(Time::as_secs_f64),
        cpu_seconds,
        busy_pes_mean: (!existed.is_zero()).then(|| cpu_seconds / existed.as_secs_f64()),
        tlp_mean: view.tlp_mean,
        sequential_fraction: view.sequential_fraction.map(rounded),
        parallelism_evidence: if view.exact { "exact" } else { "estimated" }.into(),
        runnable_max: reading.runnable_max,
        parallelism_class: parallelism_class(view.sequential_fraction, reading.runnable_max),
        intensity_class: intensity_class(totals.l2_misses_per_100_cycles()),
        fpu_usage: totals.fpu().map(rounded),
        vector_usage: totals.vector().map(rounded),
        l2_misses_per_100_cycles: totals.l2_misses_per_100_cycles(),
        ipc: totals.ipc(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_programs_is_kept_in_bounded_room_and_each_counts_somewhere() {
        let mut applications = Applications::default();
        let mut folded = BTreeMap::new();
        let of = |app: u32, executed_by: Option<u32>| ApplicationReading {
            app: AppId(app),
            executed_by: executed_by.map(AppId),
            runnable_thread_ns: u64::from(app),
            ..ApplicationReading::default()
        };
        for app in 1..=10_000 {
            // Every other one is executed by the one before.
            let executed_by = if app % 2 == 0 { app - 1 } else { 0 };
            folded.extend(applications.take(&[of(0, None), of(app, Some(executed_by))]));
        }
        assert!(applications.last.len() <= 2 * LISTED_MAX && applications.last.contains_key(&AppId(10_000)));
        assert_eq!(applications.last.len() + folded.len(), 10_001);
        assert!(folded.values().all(|into| *into == AppId(0) || into.0 > 9_000 || folded.contains_key(into)));
        assert!(applications.note().unwrap().contains(&folded.len().to_string()));
    }
}
