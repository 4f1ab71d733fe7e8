//! How many threads of each application were runnable, over time: one band per application, on the axis of
//! the PEs' lanes. The line below a band is the share of the time with a single runnable thread: sequential
//! phases show there even where a column holds many of them.

use super::columns::{Colours, Columns};
use super::timeline::LABEL_WIDTH;
use corewise_core::report::Report;
use corewise_core::report::timeline::RunnableOverTime;
use maud::{Markup, html};

const BAND_HEIGHT: f64 = 30.0;
const LINE_HEIGHT: f64 = 4.0;
/// A band, its line and the room between two bands.
const ROW_HEIGHT: f64 = BAND_HEIGHT + LINE_HEIGHT + 8.0;

/// The bands of the applications that have colours.
pub struct Bands<'a> {
    report: &'a Report,
    colours: &'a Colours,
    rows: Vec<&'a RunnableOverTime>,
}

impl<'a> Bands<'a> {
    /// Of a report.
    pub fn of(report: &'a Report, colours: &'a Colours) -> Bands<'a> {
        let row = |shown: &usize| report.timeline.runnable.iter().find(|row| row.application == Some(*shown));
        Bands { report, colours, rows: colours.shown.iter().filter_map(row).collect() }
    }

    /// Returns their height.
    pub fn height(&self) -> f64 {
        if self.rows.is_empty() { 0.0 } else { ROW_HEIGHT * self.rows.len() as f64 + 8.0 }
    }

    /// Draws them, from `top` on.
    pub fn draw(&self, columns: &Columns<'_>, top: f64) -> Markup {
        html! {
            // A name that is too long ends before the figures begin.
            defs {
                clipPath #applications {
                    rect width=(LABEL_WIDTH - 40.0) height=(top + self.height()) {}
                }
            }
            @for (index, row) in self.rows.iter().enumerate() {
                (self.band(row, columns, top + ROW_HEIGHT * index as f64))
            }
        }
    }

    fn band(&self, row: &RunnableOverTime, columns: &Columns<'_>, top: f64) -> Markup {
        let application = row.application.and_then(|index| self.report.applications.get(index));
        let name = application.map_or("", |application| &application.name);
        let colour = self.colours.colour(self.colours.place(row.application));
        let means = columns.means(row.first_column, &row.mean);
        let sequential = columns.means(row.first_column, &row.sequential);
        let most = means.iter().copied().fold(1.0, f64::max).ceil();
        let (zeros, baseline) = (vec![0.0; means.len()], top + BAND_HEIGHT);
        html! {
            g.parallelism {
                title { (name) ": number of runnable threads, up to " (most) " here" }
                text.name x="0" y=(baseline - 10.0) clip-path="url(#applications)" { (name) }
                text.tid x=(LABEL_WIDTH - 8.0) y=(top + 9.0) { (most) }
                text.tid x=(LABEL_WIDTH - 8.0) y=(baseline) { "0" }
                path fill=(colour) d=(columns.area(&zeros, &means, baseline, BAND_HEIGHT / most)) {}
                path.sequential d=(columns.area(&zeros, &sequential, baseline + 1.0, -LINE_HEIGHT)) {
                    title { (name) ": share of the time with one runnable thread" }
                }
            }
        }
    }
}
