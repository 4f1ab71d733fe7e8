//! Which threads and applications are shown, and in which order.

use corewise_core::ids::{AppId, ThreadId};
use corewise_core::top::{ApplicationState, ThreadState, Top};
use corewise_core::view::Estimate;
use std::cmp::Ordering;

/// By what rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// CPU time, most first.
    #[default]
    Cpu,
    /// FPU usage, most first.
    Fpu,
    /// Busy waiting, most first.
    Spin,
    /// PE.
    Pe,
    /// Name.
    Name,
}

impl Sort {
    /// Every order, in that of the key.
    pub const ALL: [Sort; 5] = [Sort::Cpu, Sort::Fpu, Sort::Spin, Sort::Pe, Sort::Name];

    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            Sort::Cpu => "CPU",
            Sort::Fpu => "FPU",
            Sort::Spin => "SPIN",
            Sort::Pe => "PE",
            Sort::Name => "NAME",
        }
    }

    /// Returns the order that is so many steps behind this one.
    pub fn next(self, step: usize) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or_default();
        Sort::ALL[(at + step) % Sort::ALL.len()]
    }
}

/// Returns the threads that are shown, in order.
pub fn threads(top: &Top, filter: &str, sort: Sort) -> Vec<ThreadId> {
    let filter = filter.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&filter);
    let is_shown = |thread: &ThreadState| {
        let app = top.applications.get(&thread.app);
        has(&thread.name) || has(top.program_of(thread)) || app.is_some_and(|app| has(&app.name))
    };
    let mut rows: Vec<(&ThreadId, &ThreadState)> =
        top.threads.iter().filter(|(_, thread)| is_shown(thread)).collect();
    rows.sort_by(|(a_id, a), (b_id, b)| {
        let order = by_threads(sort, (top, a), (top, b));
        order.then(b.cpu.total_cmp(&a.cpu)).then(a_id.cmp(b_id))
    });
    rows.into_iter().map(|(id, _)| *id).collect()
}

fn by_threads(sort: Sort, (top, a): (&Top, &ThreadState), (_, b): (&Top, &ThreadState)) -> Ordering {
    match sort {
        Sort::Cpu => Ordering::Equal,
        Sort::Fpu => most_first(value(a.usage.fpu), value(b.usage.fpu)),
        Sort::Spin => most_first(value(a.usage.spin), value(b.usage.spin)),
        // Threads without a PE come last.
        Sort::Pe => (a.pe.is_none(), a.pe).cmp(&(b.pe.is_none(), b.pe)),
        Sort::Name => top.program_of(a).cmp(top.program_of(b)).then(a.name.cmp(&b.name)),
    }
}

/// What is not known comes last.
fn most_first(a: Option<f64>, b: Option<f64>) -> Ordering {
    b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0))
}

/// Returns the applications that are shown, in order.
pub fn applications(top: &Top, filter: &str, sort: Sort) -> Vec<AppId> {
    let filter = filter.to_lowercase();
    let is_shown = |app: &ApplicationState| app.name.to_lowercase().contains(&filter);
    let mut rows: Vec<(&AppId, &ApplicationState)> =
        top.applications.iter().filter(|(_, app)| is_shown(app)).collect();
    rows.sort_by(|(a_id, a), (b_id, b)| {
        let order = match sort {
            Sort::Fpu => most_first(a.fpu, b.fpu),
            Sort::Name => a.name.cmp(&b.name),
            Sort::Cpu | Sort::Spin | Sort::Pe => Ordering::Equal,
        };
        order.then(b.cpu.total_cmp(&a.cpu)).then(a_id.cmp(b_id))
    });
    rows.into_iter().map(|(id, _)| *id).collect()
}

/// Returns the position of the chosen row: the first one if it is not there.
pub fn position<T: PartialEq>(rows: &[T], chosen: Option<T>) -> usize {
    chosen.and_then(|chosen| rows.iter().position(|row| *row == chosen)).unwrap_or_default()
}

/// Returns an estimate without its confidence.
pub fn value(estimate: Option<Estimate>) -> Option<f64> {
    estimate.map(|estimate| estimate.value)
}
