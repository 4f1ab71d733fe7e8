//! Horizontal bars, one row for each thing that was run, so that names have space and never collide.

use super::palette::colour;
use super::{ARROW, Axis, WIDTH, extent, legend, tenth, text_width};
use crate::profile::words::{interval, signed};
use corewise_core::profile::Measurement;
use maud::{Markup, html};

/// With more series than this, bars are thin and their figures are only in tool tips.
const SERIES_WITH_FIGURES_MAX: usize = 3;

/// One value of one series.
pub struct Bar {
    /// The value, drawn with its interval.
    pub estimate: Measurement,
    /// Whether the noise is larger than the value; the bar is then faint.
    pub uncertain: bool,
}

/// One thing that was run.
pub struct Row {
    /// Its name.
    pub label: String,
    /// One entry per series.
    pub bars: Vec<Option<Bar>>,
}

/// Rows of bars along one axis.
pub struct BarChart {
    /// The names of the series.
    pub series: Vec<String>,
    /// The rows, from top to bottom.
    pub rows: Vec<Row>,
    /// What the axis shows.
    pub x_label: String,
    /// Where the bars begin.
    pub base: f64,
    /// The meaning of lying left or right of the base.
    pub hints: Option<(&'static str, &'static str)>,
}

/// The places of a chart's parts.
struct Layout {
    left: f64,
    width: f64,
    top: f64,
    /// Height of one bar's place, and of a whole row.
    pitch: f64,
    row: f64,
    figures: bool,
    axis: Axis,
}

impl BarChart {
    /// Returns the elements of the drawing, and its height.
    pub fn draw(&self) -> (Markup, f64) {
        let (legend, top) = legend(&self.series);
        let layout = self.layout(top);
        let bottom = top + layout.row * self.rows.len() as f64;
        let (base, baseline) = (layout.x(self.base), bottom + 34.0);
        let drawing = html! {
            (legend)
            (layout.grid(bottom))
            @for (index, row) in self.rows.iter().enumerate() {
                (self.row(&layout, row, top + layout.row * index as f64))
            }
            line.zero x1=(base) x2=(base) y1=(top) y2=(bottom) {}
            text.middle x=(tenth(layout.left + layout.width / 2.0)) y=(baseline) { (self.x_label) }
            @if let Some((less, more)) = self.hints {
                text.hint x=(layout.left) y=(baseline) { "◀ " (less) }
                text.hint.end x=(layout.left + layout.width) y=(baseline) { (more) " ▶" }
            }
        };
        (drawing, baseline + 10.0)
    }

    fn layout(&self, top: f64) -> Layout {
        let figures = self.series.len() <= SERIES_WITH_FIGURES_MAX;
        let pitch = if figures { 14.0 } else { 9.0 };
        let labels = self.rows.iter().map(|row| text_width(&row.label)).fold(60.0, f64::max);
        let left = labels.min(WIDTH / 3.0).round() + 12.0;
        let width = WIDTH - left - if figures { 170.0 } else { 12.0 };
        let row = pitch * self.series.len() as f64 + 8.0;
        Layout { left, width, top, pitch, row, figures, axis: self.axis() }
    }

    fn axis(&self) -> Axis {
        let bars = self.rows.iter().flat_map(|row| row.bars.iter().flatten());
        let estimates: Vec<Measurement> = bars.map(|bar| bar.estimate).collect();
        let (low, high) = extent(&estimates, self.base);
        Axis::linear(low, high, 8)
    }

    fn row(&self, layout: &Layout, row: &Row, top: f64) -> Markup {
        let known = |bar: &Option<Bar>| bar.as_ref().is_some_and(|bar| bar.estimate.value.is_finite());
        html! {
            text.end x=(layout.left - 10.0) y=(top + layout.row / 2.0 + 4.0) { (row.label) }
            @for (series, bar) in row.bars.iter().enumerate().filter(|(_, bar)| known(bar)) {
                @if let Some(bar) = bar {
                    @let name = format!("{}, {}", row.label, self.series[series]);
                    // Hints are given for Δ, whose sign matters and whose third digit does not.
                    @let words = if self.hints.is_some() { signed } else { interval }(bar.estimate);
                    @let y = top + 4.0 + layout.pitch * series as f64;
                    (layout.bar(bar, self.base, y, &colour(series), (&name, &words)))
                }
            }
        }
    }
}

impl Layout {
    fn x(&self, value: f64) -> f64 {
        tenth(self.left + self.width * self.axis.share(value))
    }

    fn grid(&self, bottom: f64) -> Markup {
        html! {
            @for (value, label) in &self.axis.ticks {
                @let x = self.x(*value);
                line.grid x1=(x) x2=(x) y1=(self.top) y2=(bottom) {}
                text.tick.middle x=(x) y=(bottom + 15.0) { (label) }
            }
        }
    }

    fn bar(&self, bar: &Bar, base: f64, y: f64, colour: &str, (name, words): (&str, &str)) -> Markup {
        let Measurement { value, low, high, repetitions } = bar.estimate;
        let (zero, end) = (self.x(base), self.x(value));
        let (height, middle) = (self.pitch - 2.0, y + self.pitch / 2.0 - 1.0);
        let (from, to, a, b) = (self.x(low), self.x(high), middle - 3.0, middle + 3.0);
        // A stroke where the interval ends, an arrow where it goes on beyond the drawing.
        let end_mark = |end: f64, inwards: f64| {
            let x = self.x(end);
            let back = tenth(x + inwards * ARROW);
            match self.axis.contains(end) {
                true => format!("M{x} {a}V{b}"),
                false => format!("M{back} {a}L{x} {middle}L{back} {b}"),
            }
        };
        let ends = end_mark(low, 1.0) + &end_mark(high, -1.0);
        html! {
            g {
                title { (name) ": " (words) ", " (repetitions) " repetitions" }
                rect class=[bar.uncertain.then_some("uncertain")] x=(zero.min(end)) y=(y)
                    width=(tenth((end - zero).abs())) height=(height) fill=(colour) {}
                path.whisker d={ "M" (from) " " (middle) "H" (to) (ends) } {}
                @if self.figures { text.value.end x=(WIDTH) y=(y + 10.0) { (words) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_that_leaves_the_drawing_ends_in_an_arrow() {
        let bar = |high| {
            let estimate = Measurement { value: -0.4, low: -0.5, high, repetitions: 9 };
            Some(Bar { estimate, uncertain: false })
        };
        let drawn = |high| {
            let rows = vec![Row { label: "a".to_owned(), bars: vec![bar(high)] }];
            let (series, x_label) = (vec!["b".to_owned()], "Δ".to_owned());
            BarChart { series, rows, x_label, base: 0.0, hints: None }.draw().0.into_string()
        };
        let whisker = |drawing: &str| drawing.split("class=\"whisker\"").nth(1).unwrap()[..80].to_owned();
        assert!(!whisker(&drawn(-0.3)).contains('L'), "{}", drawn(-0.3));
        assert!(whisker(&drawn(90.0)).contains('L'), "{}", drawn(90.0));
    }
}
