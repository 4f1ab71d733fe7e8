//! A square of PEs against PEs, coloured by what was measured between them.

use super::palette::on_scale;
use super::{WIDTH, tenth};
use corewise_core::ids::PeId;
use maud::{Markup, html};
use std::collections::BTreeMap;

const LEFT: f64 = 40.0;
const TOP: f64 = 24.0;
const CELL_MAX: f64 = 46.0;
/// The cell width from which a figure fits into it.
const CELL_WITH_FIGURE_MIN: f64 = 28.0;
/// The minimum distance of labels.
const LABEL_PITCH_MIN: f64 = 22.0;
const SIDE_MAX: f64 = 720.0;

/// What is to be drawn.
pub struct HeatMap {
    /// Rows and columns, neighbours next to each other.
    pub pes: Vec<PeId>,
    /// Nanoseconds by pair, the smaller PE first.
    pub ns: BTreeMap<(PeId, PeId), f64>,
}

impl HeatMap {
    /// Returns the elements of the drawing, and its height.
    pub fn draw(&self) -> (Markup, f64) {
        let side = (SIDE_MAX / self.pes.len().max(1) as f64).min(CELL_MAX);
        let (low, high) = self.range();
        let whole = side * self.pes.len() as f64;
        let drawing = html! {
            (self.labels(side))
            @for (row, &a) in self.pes.iter().enumerate() {
                @for (column, &b) in self.pes.iter().enumerate() {
                    @if let Some(&ns) = self.ns.get(&(a.min(b), a.max(b))) {
                        @let place = (LEFT + side * column as f64, TOP + side * row as f64);
                        (cell(place, side, ns, share(ns, low, high), (a, b)))
                    }
                }
            }
            (scale(LEFT + whole + 40.0, low, high))
        };
        (drawing, (TOP + whole).max(TOP + 150.0) + 10.0)
    }

    fn range(&self) -> (f64, f64) {
        let known = || self.ns.values().copied().filter(|ns| ns.is_finite());
        (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max))
    }

    fn labels(&self, side: f64) -> Markup {
        let stride = (LABEL_PITCH_MIN / side).ceil() as usize;
        html! {
            @for (index, pe) in self.pes.iter().enumerate().step_by(stride) {
                @let middle = side * (index as f64 + 0.5);
                text.tick.middle x=(LEFT + middle) y=(TOP - 8.0) { (pe) }
                text.tick.end x=(LEFT - 8.0) y=(TOP + middle + 4.0) { (pe) }
            }
        }
    }
}

fn cell((x, y): (f64, f64), side: f64, ns: f64, share: f64, (a, b): (PeId, PeId)) -> Markup {
    let has_figure = side >= CELL_WITH_FIGURE_MIN;
    let width = tenth(if has_figure { side - 1.0 } else { side });
    let ink = if share > 0.55 { "#111" } else { "#fff" };
    html! {
        rect x=(tenth(x)) y=(tenth(y)) width=(width) height=(width) fill=(on_scale(share)) {
            title { "PE " (a) " and " (b) ": " (tenth(ns)) " ns" }
        }
        @if has_figure {
            text.cell style={ "fill:" (ink) } x=(tenth(x + side / 2.0)) y=(tenth(y + side / 2.0 + 4.0)) {
                (ns.round())
            }
        }
    }
}

/// The colours with their values, beside the square.
fn scale(x: f64, low: f64, high: f64) -> Markup {
    const STEPS: u32 = 30;
    if !low.is_finite() || x > WIDTH {
        return Markup::default();
    }
    html! {
        @for step in 0..STEPS {
            rect x=(x) y=(TOP + f64::from(STEPS - 1 - step) * 5.0) width="18" height="5"
                fill=(on_scale(f64::from(step) / f64::from(STEPS - 1))) {}
        }
        @for (share, ns) in [(0.0, low), (0.5, (low * high).sqrt()), (1.0, high)] {
            text.tick x=(x + 26.0) y=(TOP + (1.0 - share) * 145.0 + 6.0) { (ns.round()) " ns" }
        }
    }
}

/// Returns the position of a latency between the extremes on a logarithmic scale.
fn share(ns: f64, low: f64, high: f64) -> f64 {
    if high > low { ((ns / low).ln() / (high / low).ln()).clamp(0.0, 1.0) } else { 0.0 }
}
