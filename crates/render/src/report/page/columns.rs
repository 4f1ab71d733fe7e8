//! The columns of a report's timeline as steps of a drawing.

use super::timeline::Scale;
use crate::chart::palette::colour;
use crate::chart::tenth;
use corewise_core::report::Report;
use std::fmt::Write;

/// The number of applications with a colour of their own, busiest first.
const APPLICATIONS_MAX: usize = 8;

/// The columns of a timeline, a number of them drawn as one.
pub struct Columns<'a> {
    scale: &'a Scale,
    column_ns: u64,
    /// Their number.
    count: usize,
    /// How many are drawn as one.
    joined: usize,
}

impl<'a> Columns<'a> {
    /// Returns the columns of a report, drawn as at most `drawn_max`.
    pub fn of(report: &Report, scale: &'a Scale, drawn_max: usize) -> Columns<'a> {
        let column_ns = report.timeline.column_ns.max(1);
        let lists = || {
            let runnable = report.timeline.runnable.iter().map(|row| (row.first_column, row.mean.len()));
            let pes = report.timeline.pes.iter();
            runnable.chain(pes.map(|row| (row.first_column, row.ran.len().max(row.bound.len()))))
        };
        let count = lists().map(|(first, length)| first.saturating_add(length)).max().unwrap_or(0);
        Columns { scale, column_ns, count, joined: count.div_ceil(drawn_max.max(1)).max(1) }
    }

    /// Returns how long a drawn column is, in seconds.
    pub fn drawn_seconds(&self) -> f64 {
        self.joined as f64 * self.column_ns as f64 / 1e9
    }

    /// Returns the mean of a list in each drawn column; the list begins at the column `first`.
    pub fn means(&self, first: usize, list: &[f64]) -> Vec<f64> {
        let mut means = vec![0.0; self.count.div_ceil(self.joined)];
        for (index, value) in list.iter().enumerate() {
            let drawn = (first + index) / self.joined;
            let joined = self.joined.min(self.count - drawn * self.joined);
            means[drawn] += value / joined as f64;
        }
        means
    }

    /// Returns the sum of a list, in seconds.
    pub fn seconds(&self, list: &[f64]) -> f64 {
        list.iter().sum::<f64>() * self.column_ns as f64 / 1e9
    }

    /// Returns the path of the area between two lists of drawn columns, `unit` high per 1 above a baseline
    /// (below it if `unit` is negative).
    pub fn area(&self, low: &[f64], high: &[f64], baseline: f64, unit: f64) -> String {
        let y = |value: f64| tenth(baseline - value * unit);
        let steps: Vec<(f64, f64)> = low.iter().zip(high).map(|(low, high)| (y(*low), y(*high))).collect();
        let mut path = String::new();
        let mut index = 0;
        for equal in steps.chunk_by(|a, b| a == b) {
            let (from, to) = (self.x(index), self.x(index + equal.len()));
            let (bottom, top) = equal[0];
            if bottom != top && to > from {
                // Writing to a string cannot fail.
                let _ = write!(path, "M{from} {bottom}V{top}H{to}V{bottom}z");
            }
            index += equal.len();
        }
        path
    }

    /// Returns the path of a tick of this length at each drawn column that is not 0.
    pub fn ticks(&self, list: &[f64], top: f64, length: f64) -> String {
        let marked = list.iter().enumerate().filter(|(_, value)| **value > 0.0);
        marked.map(|(index, _)| format!("M{} {top}v{length}", self.x(index))).collect()
    }

    /// Returns where a drawn column begins.
    fn x(&self, index: usize) -> f64 {
        self.scale.x((index * self.joined) as u64 * self.column_ns)
    }
}

/// Which applications have a colour of their own.
pub struct Colours {
    /// Indices of the report's applications, busiest first.
    pub shown: Vec<usize>,
}

impl Colours {
    /// Of the applications in a report's timeline.
    pub fn of(report: &Report) -> Colours {
        let sum = |list: &[f64]| list.iter().sum::<f64>();
        let busy = |index: usize| {
            let pes = report.timeline.pes.iter().filter(|row| row.application == Some(index));
            let runnable = report.timeline.runnable.iter().filter(|row| row.application == Some(index));
            (pes.map(|row| sum(&row.ran)).sum::<f64>(), runnable.map(|row| sum(&row.mean)).sum::<f64>())
        };
        let busy: Vec<(usize, (f64, f64))> =
            (0..report.applications.len()).map(|index| (index, busy(index))).collect();
        let mut busy: Vec<_> = busy.into_iter().filter(|(_, (ran, runnable))| ran + runnable > 0.0).collect();
        busy.sort_by(|(_, a), (_, b)| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
        Colours { shown: busy.into_iter().take(APPLICATIONS_MAX).map(|(index, _)| index).collect() }
    }

    /// Returns the place of an application among those with a colour; all others share the last place.
    pub fn place(&self, application: Option<usize>) -> usize {
        let place = application.and_then(|index| self.shown.iter().position(|shown| *shown == index));
        place.unwrap_or(self.shown.len())
    }

    /// Returns the colour of a place.
    pub fn colour(&self, place: usize) -> String {
        if place < self.shown.len() { colour(place) } else { "var(--free)".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{SECOND_NS, report, thread};

    #[test]
    fn columns_that_are_drawn_as_one_keep_their_mean() {
        let mut report = report(vec![thread(1, "a", &[(0, SECOND_NS, 0, 1.0)], &[])], Vec::new());
        report.timeline.column_ns = SECOND_NS;
        report.timeline.pes[0].ran = vec![0.5, 1.0, 0.0, 1.0, 0.25];
        report.timeline.runnable.clear();
        report.wall_seconds = 5.0;
        let scale = Scale::of(&report);
        let columns = Columns::of(&report, &scale, 3);
        assert_eq!(columns.means(0, &report.timeline.pes[0].ran), [0.75, 0.5, 0.25]);
        assert_eq!(columns.means(3, &[1.0]), [0.0, 0.5, 0.0]);
        assert_eq!((columns.drawn_seconds(), columns.seconds(&[0.5, 0.25])), (2.0, 0.75));
        let zeros = [0.0; 3];
        assert_eq!(columns.area(&zeros, &[0.0, 1.0, 1.0], 20.0, 16.0), "M548 20V4H1070V20z", "one step");
        assert_eq!(columns.ticks(&[0.0, 2.0, 0.0], 5.0, 4.0), "M548 5v4");
    }
}
