//! Bars that lie, one row for each thing that was run, so that names have room and never meet.

use super::{Axis, WIDTH, extent, legend, text_width};
use crate::page::markup::{Text, colour};
use crate::profile::words::{interval, signed};
use corewise_core::profile::Estimate;
use std::fmt::Write;

/// With more series than this, a bar is thin and its figures stand in its tool tip only.
const SERIES_WITH_FIGURES_MAX: usize = 3;

/// One value of one series.
pub struct Bar {
    /// The value, drawn with its interval.
    pub estimate: Estimate,
    /// The noise is larger than the value: the bar is faint.
    pub uncertain: bool,
}

/// One thing that was run.
pub struct Row {
    /// Its name.
    pub label: String,
    /// One entry a series.
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
    /// What it means to lie left or right of the base.
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
    /// The elements of the drawing, and its height.
    pub fn draw(&self) -> (String, f64) {
        let (mut svg, top) = legend(&self.series);
        let layout = self.layout(top);
        let bottom = top + layout.row * self.rows.len() as f64;
        layout.grid(&mut svg, bottom);
        for (index, row) in self.rows.iter().enumerate() {
            self.row(&mut svg, &layout, row, top + layout.row * index as f64);
        }
        let base = layout.x(self.base);
        let _ =
            writeln!(svg, "<line class=\"zero\" x1=\"{base}\" x2=\"{base}\" y1=\"{top}\" y2=\"{bottom}\"/>");
        let middle = tenth(layout.left + layout.width / 2.0);
        let baseline = bottom + 34.0;
        let _ = writeln!(
            svg,
            "<text class=\"middle\" x=\"{middle}\" y=\"{baseline}\">{}</text>",
            Text(&self.x_label)
        );
        if let Some((less, more)) = self.hints {
            let right = layout.left + layout.width;
            let _ = writeln!(
                svg,
                "<text class=\"hint\" x=\"{}\" y=\"{baseline}\">◀ {less}</text>\
                 <text class=\"hint end\" x=\"{right}\" y=\"{baseline}\">{more} ▶</text>",
                layout.left
            );
        }
        (svg, baseline + 10.0)
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
        let estimates: Vec<Estimate> = bars.map(|bar| bar.estimate).collect();
        let (low, high) = extent(&estimates, self.base);
        Axis::linear(low, high, 8)
    }

    fn row(&self, svg: &mut String, layout: &Layout, row: &Row, top: f64) {
        let _ = writeln!(
            svg,
            "<text class=\"end\" x=\"{}\" y=\"{}\">{}</text>",
            layout.left - 10.0,
            top + layout.row / 2.0 + 4.0,
            Text(&row.label)
        );
        for (series, bar) in row.bars.iter().enumerate() {
            let Some(bar) = bar.as_ref().filter(|bar| bar.estimate.value.is_finite()) else { continue };
            let y = top + 4.0 + layout.pitch * series as f64;
            let name = format!("{}, {}", row.label, self.series[series]);
            // Hints are given for Δ, whose sign matters and whose third digit does not.
            let told = if self.hints.is_some() { signed(bar.estimate) } else { interval(bar.estimate) };
            layout.bar(svg, bar, self.base, y, colour(series), (&name, &told));
        }
    }
}

impl Layout {
    fn x(&self, value: f64) -> f64 {
        tenth(self.left + self.width * self.axis.share(value))
    }

    fn grid(&self, svg: &mut String, bottom: f64) {
        for (value, label) in &self.axis.ticks {
            let x = self.x(*value);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{bottom}\"/>\
                 <text class=\"tick middle\" x=\"{x}\" y=\"{}\">{label}</text>",
                self.top,
                bottom + 15.0
            );
        }
    }

    fn bar(
        &self,
        svg: &mut String,
        bar: &Bar,
        base: f64,
        y: f64,
        colour: String,
        (name, told): (&str, &str),
    ) {
        let Estimate { value, low, high, repetitions } = bar.estimate;
        let (zero, end) = (self.x(base), self.x(value));
        let (height, middle) = (self.pitch - 2.0, y + self.pitch / 2.0 - 1.0);
        let class = if bar.uncertain { " class=\"uncertain\"" } else { "" };
        let _ = write!(
            svg,
            "<g><title>{}: {told}, {repetitions} repetitions</title>\
             <rect{class} x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{height}\" fill=\"{colour}\"/>",
            Text(name),
            zero.min(end),
            tenth((end - zero).abs())
        );
        let (from, to) = (self.x(low), self.x(high));
        let _ = write!(
            svg,
            "<path class=\"whisker\" d=\"M{from} {middle}H{to}M{from} {a}V{b}M{to} {a}V{b}\"/>",
            a = middle - 3.0,
            b = middle + 3.0
        );
        if self.figures {
            let _ = write!(svg, "<text class=\"value end\" x=\"{WIDTH}\" y=\"{}\">{told}</text>", y + 10.0);
        }
        let _ = writeln!(svg, "</g>");
    }
}

/// Rounded to a tenth of a unit: nobody sees more, and the file stays small.
fn tenth(length: f64) -> f64 {
    (length * 10.0).round() / 10.0
}
