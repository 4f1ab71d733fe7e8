//! A square of PEs against PEs, coloured by what was measured between them.

use super::WIDTH;
use corewise_core::ids::PeId;
use std::collections::BTreeMap;
use std::fmt::Write;

const LEFT: f64 = 40.0;
const TOP: f64 = 24.0;
const CELL_MAX: f64 = 46.0;
/// From so wide a cell on, its figure fits.
const CELL_WITH_FIGURE_MIN: f64 = 28.0;
/// Labels of PEs closer than this would meet.
const LABEL_PITCH_MIN: f64 = 22.0;
const SIDE_MAX: f64 = 720.0;

/// Dark to bright in equal steps to the eye, also to colour-blind ones (viridis of matplotlib, in five).
const COLOURS: [[f64; 3]; 5] =
    [[68., 1., 84.], [59., 82., 139.], [33., 145., 140.], [94., 201., 98.], [253., 231., 37.]];

/// What is to be drawn.
pub struct HeatMap {
    /// Rows and columns, neighbours next to each other.
    pub pes: Vec<PeId>,
    /// Nanoseconds by pair, the smaller PE first.
    pub ns: BTreeMap<(PeId, PeId), f64>,
}

impl HeatMap {
    /// The elements of the drawing, and its height.
    pub fn draw(&self) -> (String, f64) {
        let cell = (SIDE_MAX / self.pes.len().max(1) as f64).min(CELL_MAX);
        let mut svg = String::new();
        self.labels(&mut svg, cell);
        let (low, high) = self.range();
        for (row, &a) in self.pes.iter().enumerate() {
            for (column, &b) in self.pes.iter().enumerate() {
                let Some(&ns) = self.ns.get(&(a.min(b), a.max(b))) else { continue };
                let (x, y) = (LEFT + cell * column as f64, TOP + cell * row as f64);
                one_cell(&mut svg, (x, y, cell), ns, share(ns, low, high), (a, b));
            }
        }
        let side = cell * self.pes.len() as f64;
        scale(&mut svg, LEFT + side + 40.0, low, high);
        (svg, (TOP + side).max(TOP + 150.0) + 10.0)
    }

    fn range(&self) -> (f64, f64) {
        let known = || self.ns.values().copied().filter(|ns| ns.is_finite());
        (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max))
    }

    fn labels(&self, svg: &mut String, cell: f64) {
        let stride = (LABEL_PITCH_MIN / cell).ceil() as usize;
        for (index, pe) in self.pes.iter().enumerate().step_by(stride) {
            let middle = cell * (index as f64 + 0.5);
            let _ = writeln!(
                svg,
                "<text class=\"tick middle\" x=\"{}\" y=\"{}\">{pe}</text>\
                 <text class=\"tick end\" x=\"{}\" y=\"{}\">{pe}</text>",
                LEFT + middle,
                TOP - 8.0,
                LEFT - 8.0,
                TOP + middle + 4.0
            );
        }
    }
}

fn one_cell(svg: &mut String, (x, y, side): (f64, f64, f64), ns: f64, share: f64, (a, b): (PeId, PeId)) {
    let gap = if side >= CELL_WITH_FIGURE_MIN { 1.0 } else { 0.0 };
    let _ = write!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{width:.1}\" fill=\"{}\">\
         <title>PE {a} and {b}: {ns:.1} ns</title></rect>",
        colour(share),
        width = side - gap
    );
    if side >= CELL_WITH_FIGURE_MIN {
        let ink = if share > 0.55 { "#111" } else { "#fff" };
        let _ = write!(
            svg,
            "<text class=\"cell\" style=\"fill:{ink}\" x=\"{:.1}\" y=\"{:.1}\">{ns:.0}</text>",
            x + side / 2.0,
            y + side / 2.0 + 4.0
        );
    }
    svg.push('\n');
}

/// The colours with their values, beside the square.
fn scale(svg: &mut String, x: f64, low: f64, high: f64) {
    const STEPS: u32 = 30;
    if !low.is_finite() || x > WIDTH {
        return;
    }
    for step in 0..STEPS {
        let share = f64::from(step) / f64::from(STEPS - 1);
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"18\" height=\"5\" fill=\"{}\"/>",
            TOP + f64::from(STEPS - 1 - step) * 5.0,
            colour(share)
        );
    }
    for (share, ns) in [(0.0, low), (0.5, (low * high).sqrt()), (1.0, high)] {
        let y = TOP + (1.0 - share) * 145.0 + 6.0;
        let _ = writeln!(svg, "<text class=\"tick\" x=\"{}\" y=\"{y}\">{ns:.0} ns</text>", x + 26.0);
    }
}

/// Where a latency lies between the extremes, by its logarithm: twice as long is the same step everywhere.
fn share(ns: f64, low: f64, high: f64) -> f64 {
    if high > low { ((ns / low).ln() / (high / low).ln()).clamp(0.0, 1.0) } else { 0.0 }
}

fn colour(share: f64) -> String {
    let place = share.clamp(0.0, 1.0) * (COLOURS.len() - 1) as f64;
    let below = (place as usize).min(COLOURS.len() - 2);
    let part = place - below as f64;
    let [r, g, b] = [0, 1, 2].map(|i| {
        let (from, to) = (COLOURS[below][i], COLOURS[below + 1][i]);
        (from + (to - from) * part).round() as u8
    });
    format!("#{r:02x}{g:02x}{b:02x}")
}
