//! Curves with their intervals as bands, in panels side by side.

use super::palette::colour;
use super::{ARROW, Axis, WIDTH, legend, tenth, text_width};
use crate::profile::words::interval;
use corewise_core::profile::Measurement;
use maud::{Markup, html};

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
    /// The index of its name.
    pub name: usize,
    /// x and y.
    pub points: Vec<(f64, Measurement)>,
}

/// One system of axes.
pub struct Panel {
    /// Its heading.
    pub heading: String,
    /// Its curves.
    pub lines: Vec<Line>,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// The labels of the axes.
    pub labels: (&'static str, &'static str),
    /// Named places on the x axis.
    pub marks: Vec<(f64, String)>,
    /// A reference value on the y axis, if there is one.
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
    /// Returns the elements of the drawing, and its height.
    pub fn draw(&self) -> (Markup, f64) {
        let (legend, top) = legend(&self.names);
        let columns = self.panels.len().clamp(1, COLUMNS);
        let width = (WIDTH - GAP * (columns - 1) as f64) / columns as f64;
        let drawing = html! {
            (legend)
            @for (index, panel) in self.panels.iter().enumerate() {
                @let x = (width + GAP) * (index % columns) as f64;
                @let y = top + PANEL_HEIGHT * (index / columns) as f64;
                g transform=(format!("translate({x} {y})")) {
                    (Drawn { panel, names: &self.names, width: width - LEFT - RIGHT }.draw())
                }
            }
        };
        (drawing, top + PANEL_HEIGHT * self.panels.len().div_ceil(columns) as f64)
    }
}

struct Drawn<'a> {
    panel: &'a Panel,
    names: &'a [String],
    /// Width of the area between the axes.
    width: f64,
}

impl Drawn<'_> {
    fn x(&self, value: f64) -> f64 {
        tenth(LEFT + self.width * self.panel.x.share(value))
    }

    fn y(&self, value: f64) -> f64 {
        let height = PANEL_HEIGHT - ABOVE - BELOW;
        tenth(ABOVE + height * (1.0 - self.panel.y.share(value)))
    }

    fn draw(&self) -> Markup {
        html! {
            text.heading x=(LEFT) y="12" { (self.panel.heading) }
            (self.grid())
            (self.marks())
            @if let Some(base) = self.panel.base {
                @let y = self.y(base);
                line.zero x1=(LEFT) x2=(LEFT + self.width) y1=(y) y2=(y) {}
            }
            @for line in &self.panel.lines { (self.line(line)) }
        }
    }

    fn grid(&self) -> Markup {
        let (right, bottom) = (LEFT + self.width, PANEL_HEIGHT - BELOW);
        let (x_label, y_label) = self.panel.labels;
        html! {
            @for (value, label) in &self.panel.x.ticks {
                @let x = self.x(*value);
                line.grid x1=(x) x2=(x) y1=(ABOVE) y2=(bottom) {}
                text.tick.middle x=(x) y=(bottom + 15.0) { (label) }
            }
            @for (value, label) in &self.panel.y.ticks {
                @let y = self.y(*value);
                line.grid x1=(LEFT) x2=(right) y1=(y) y2=(y) {}
                text.tick.end x=(LEFT - 6.0) y=(y + 4.0) { (label) }
            }
            text.hint.middle x=(LEFT + self.width / 2.0) y=(bottom + 32.0) { (x_label) }
            text.hint.end x=(right) y="12" { (y_label) }
        }
    }

    /// Draws the names of marks; names that would collide are stacked, and dropped if there is no space.
    fn marks(&self) -> Markup {
        let mut ends = [0.0; MARK_LINES];
        let mut placed = Vec::new();
        for (value, name) in &self.panel.marks {
            let x = self.x(*value);
            let Some(line) = ends.iter().position(|&end| end <= x) else { continue };
            ends[line] = x + text_width(name);
            placed.push((x, line, name));
        }
        html! {
            @for (x, line, name) in placed {
                line.mark x1=(x) x2=(x) y1=(ABOVE) y2=(PANEL_HEIGHT - BELOW) {}
                text.hint x=(x - 2.0) y=(ABOVE - 6.0 - 13.0 * line as f64) { (name) }
            }
        }
    }

    /// Returns arrows for an interval that goes on beyond the drawing.
    fn arrows(&self, x: f64, y: &Measurement) -> Option<String> {
        let ends = [(y.low, -1.0), (y.high, 1.0)].into_iter().filter(|(end, _)| !self.panel.y.contains(*end));
        let arrows: String = ends
            .map(|(end, down)| {
                let (x, tip) = (self.x(x), self.y(end));
                let (left, right, back) = (x - ARROW / 2.0, x + ARROW / 2.0, tip + down * ARROW);
                format!("M{left} {back}L{x} {tip}L{right} {back}")
            })
            .collect();
        (!arrows.is_empty()).then_some(arrows)
    }

    fn line(&self, line: &Line) -> Markup {
        let colour = colour(line.name);
        let known: Vec<&(f64, Measurement)> =
            line.points.iter().filter(|(_, y)| y.value.is_finite()).collect();
        let path = |ys: &mut dyn Iterator<Item = (f64, f64)>| -> String {
            let points: Vec<String> = ys.map(|(x, y)| format!("{},{}", self.x(x), self.y(y))).collect();
            points.join(" ")
        };
        let band = path(
            &mut known.iter().map(|(x, y)| (*x, y.high)).chain(known.iter().rev().map(|(x, y)| (*x, y.low))),
        );
        let curve = path(&mut known.iter().map(|(x, y)| (*x, y.value)));
        html! {
            polygon.band fill=(colour) points=(band) {}
            polyline.curve stroke=(colour) points=(curve) {}
            @for (x, y) in known {
                @if let Some(arrows) = self.arrows(*x, y) { path.arrow stroke=(colour) d=(arrows) {} }
                circle cx=(self.x(*x)) cy=(self.y(y.value)) r="2.6" fill=(colour) {
                    title { (self.names[line.name]) ": " (interval(*y)) }
                }
            }
        }
    }
}
