//! Curves with their intervals as bands, in panels side by side.

use super::{Axis, WIDTH, legend, text_width};
use crate::page::markup::{Text, colour};
use crate::profile::words::interval;
use corewise_core::profile::Estimate;
use std::fmt::Write;

const COLUMNS: usize = 2;
const GAP: f64 = 28.0;
const PANEL_HEIGHT: f64 = 310.0;
/// Room within a panel: left for the figures of the axis, right for half of its last label, above for the
/// heading and two lines of marks' names, below for the axis.
const LEFT: f64 = 48.0;
const RIGHT: f64 = 26.0;
const ABOVE: f64 = 46.0;
const BELOW: f64 = 46.0;
const MARK_LINES: usize = 2;

/// One curve.
pub struct Line {
    /// Which of the chart's names.
    pub name: usize,
    /// x and y.
    pub points: Vec<(f64, Estimate)>,
}

/// One system of axes.
pub struct Panel {
    /// What it is about.
    pub heading: String,
    /// Its curves.
    pub lines: Vec<Line>,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// What the axes show.
    pub labels: (&'static str, &'static str),
    /// Places on the x axis with a name.
    pub marks: Vec<(f64, String)>,
    /// A value on the y axis that stands out, if one does.
    pub base: Option<f64>,
}

/// Panels with one legend.
pub struct LineChart {
    /// The names of the curves, in the order of their colours.
    pub names: Vec<String>,
    /// Row by row.
    pub panels: Vec<Panel>,
}

impl LineChart {
    /// The elements of the drawing, and its height.
    pub fn draw(&self) -> (String, f64) {
        let (mut svg, top) = legend(&self.names);
        let columns = self.panels.len().clamp(1, COLUMNS);
        let width = (WIDTH - GAP * (columns - 1) as f64) / columns as f64;
        for (index, panel) in self.panels.iter().enumerate() {
            let x = (width + GAP) * (index % columns) as f64;
            let y = top + PANEL_HEIGHT * (index / columns) as f64;
            let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
            Drawn { panel, names: &self.names, width: width - LEFT - RIGHT }.draw(&mut svg);
            let _ = writeln!(svg, "</g>");
        }
        (svg, top + PANEL_HEIGHT * self.panels.len().div_ceil(columns) as f64)
    }
}

struct Drawn<'a> {
    panel: &'a Panel,
    names: &'a [String],
    /// Of the part between the axes.
    width: f64,
}

impl Drawn<'_> {
    fn x(&self, value: f64) -> f64 {
        ((LEFT + self.width * self.panel.x.share(value)) * 10.0).round() / 10.0
    }

    fn y(&self, value: f64) -> f64 {
        let height = PANEL_HEIGHT - ABOVE - BELOW;
        ((ABOVE + height * (1.0 - self.panel.y.share(value))) * 10.0).round() / 10.0
    }

    fn draw(&self, svg: &mut String) {
        let panel = self.panel;
        let _ =
            writeln!(svg, "<text class=\"heading\" x=\"{LEFT}\" y=\"12\">{}</text>", Text(&panel.heading));
        self.grid(svg);
        self.marks(svg);
        if let Some(base) = panel.base {
            let (y, right) = (self.y(base), LEFT + self.width);
            let _ =
                writeln!(svg, "<line class=\"zero\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y}\" y2=\"{y}\"/>");
        }
        for line in &panel.lines {
            self.line(svg, line);
        }
    }

    fn grid(&self, svg: &mut String) {
        let (right, bottom) = (LEFT + self.width, PANEL_HEIGHT - BELOW);
        for (value, label) in &self.panel.x.ticks {
            let x = self.x(*value);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y1=\"{ABOVE}\" y2=\"{bottom}\"/>\
                 <text class=\"tick middle\" x=\"{x}\" y=\"{}\">{label}</text>",
                bottom + 15.0
            );
        }
        for (value, label) in &self.panel.y.ticks {
            let y = self.y(*value);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y}\" y2=\"{y}\"/>\
                 <text class=\"tick end\" x=\"{}\" y=\"{}\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        let (x_label, y_label) = self.panel.labels;
        let _ = writeln!(
            svg,
            "<text class=\"hint middle\" x=\"{}\" y=\"{}\">{x_label}</text>\
             <text class=\"hint end\" x=\"{right}\" y=\"12\">{y_label}</text>",
            LEFT + self.width / 2.0,
            bottom + 32.0
        );
    }

    /// Names that would meet stand below each other; one that has no room is left out.
    fn marks(&self, svg: &mut String) {
        let mut ends = [0.0; MARK_LINES];
        for (value, name) in &self.panel.marks {
            let x = self.x(*value);
            let Some(line) = ends.iter().position(|&end| end <= x) else { continue };
            ends[line] = x + text_width(name);
            let _ = writeln!(
                svg,
                "<line class=\"mark\" x1=\"{x}\" x2=\"{x}\" y1=\"{ABOVE}\" y2=\"{}\"/>\
                 <text class=\"hint\" x=\"{}\" y=\"{}\">{}</text>",
                PANEL_HEIGHT - BELOW,
                x - 2.0,
                ABOVE - 6.0 - 13.0 * line as f64,
                Text(name)
            );
        }
    }

    fn line(&self, svg: &mut String, line: &Line) {
        let colour = colour(line.name);
        let known: Vec<&(f64, Estimate)> = line.points.iter().filter(|(_, y)| y.value.is_finite()).collect();
        let path = |ys: &mut dyn Iterator<Item = (f64, f64)>| -> String {
            let points: Vec<String> = ys.map(|(x, y)| format!("{},{}", self.x(x), self.y(y))).collect();
            points.join(" ")
        };
        let band = path(
            &mut known.iter().map(|(x, y)| (*x, y.high)).chain(known.iter().rev().map(|(x, y)| (*x, y.low))),
        );
        let curve = path(&mut known.iter().map(|(x, y)| (*x, y.value)));
        let _ = writeln!(
            svg,
            "<polygon class=\"band\" fill=\"{colour}\" points=\"{band}\"/>\
             <polyline class=\"curve\" stroke=\"{colour}\" points=\"{curve}\"/>"
        );
        for (x, y) in known {
            let _ = writeln!(
                svg,
                "<circle cx=\"{}\" cy=\"{}\" r=\"2.6\" fill=\"{colour}\"><title>{}: {}</title></circle>",
                self.x(*x),
                self.y(y.value),
                Text(&self.names[line.name]),
                interval(*y)
            );
        }
    }
}
