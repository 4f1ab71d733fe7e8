//! The common parts of all drawings: axes, legends, and the frame that puts a drawing into a page or a file
//! of its own.

pub mod bars;
pub mod grouped;
pub mod heat;
pub mod lines;
pub mod palette;

use crate::page;
use crate::terminal::printable;
use corewise_core::profile::{Evidence, Measurement};
use corewise_core::topology::size;
use maud::{Markup, PreEscaped, html};
use palette::colour;

/// The width of a drawing in its own units; it scales with the page.
pub const WIDTH: f64 = 1080.0;

/// The mean width of a character at the size of labels. It is a safe estimate: capitals are wider than
/// letters.
const CHARACTER_WIDTH: f64 = 6.8;

/// One drawing with its words.
pub struct Figure {
    /// The name of its file, without the extension.
    pub file: String,
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// The elements of the drawing.
    pub content: Markup,
    /// Its height; its width is [`WIDTH`].
    pub height: f64,
}

/// Maps values to lengths along an axis.
pub struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// Where lines are drawn, and their labels.
    pub ticks: Vec<(f64, String)>,
}

impl Figure {
    /// Returns the drawing as part of a page that has [`STYLE`].
    pub fn embedded(&self) -> Markup {
        page::drawing("chart", (WIDTH, self.height), &self.title, &self.content)
    }

    /// Returns the drawing as a file: with its title, the kind of its figures, its style, and a background.
    pub fn standalone(&self, evidence: Evidence) -> String {
        const MARGIN: f64 = 20.0;
        const HEAD: f64 = 36.0;
        let (width, height) = (WIDTH + 2.0 * MARGIN, self.height + HEAD + 2.0 * MARGIN);
        let (left, top) = (-MARGIN, -MARGIN - HEAD);
        let drawing = html! {
            svg xmlns="http://www.w3.org/2000/svg" class="chart" width=(width) height=(height)
                viewBox={ (left) " " (top) " " (width) " " (height) } {
                style { "\n" (PreEscaped(in_light_colours(STYLE))) }
                rect.ground x=(left) y=(top) width=(width) height=(height) {}
                text.heading x="0" y="-24" { (self.title) }
                text.hint.end x=(WIDTH) y="-24" { (evidence) }
                (self.content)
            }
        };
        printable(&drawing.into_string()).into_owned()
    }
}

/// The rules for drawings.
pub const STYLE: &str = include_str!("style.css");

/// Returns the rules with the page's variables replaced by their light values, as programs that draw SVG
/// files need not support variables.
fn in_light_colours(style: &str) -> String {
    let light =
        page::STYLE.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(block, _)| block);
    let variables = light.split(';').filter_map(|line| line.trim().split_once(": "));
    variables.fold(style.to_owned(), |style, (name, value)| style.replace(&format!("var({name})"), value))
}

impl Axis {
    /// Returns an axis from `low` to `high` in equal steps, widened to whole steps of 1, 2 or 5 times a power
    /// of ten.
    pub fn linear(low: f64, high: f64, ticks_max: usize) -> Axis {
        let span = if high > low { high - low } else { 1.0 };
        let raw = span / ticks_max as f64;
        let power = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|&s| s >= raw * 0.999);
        let step = step.unwrap_or(power * 10.0);
        let (first, last) = ((low / step).floor(), ((low + span) / step).ceil());
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let tick = |index: i64| {
            // Adding zero makes the zero of -0 a plain one.
            let value = index as f64 * step + 0.0;
            (value, format!("{value:.decimals$}"))
        };
        let ticks = (first as i64..=last as i64).map(tick).collect();
        Axis { low: first * step, high: last * step, logarithmic: false, ticks }
    }

    /// Returns an axis of memory sizes that double from step to step.
    pub fn bytes(low: u64, high: u64, ticks_max: usize) -> Axis {
        let doublings = (high.max(1) as f64 / low.max(1) as f64).log2().max(1.0);
        let stride = (doublings / ticks_max as f64).ceil().max(1.0) as usize;
        let tick = |doubling: u32| (low as f64 * 2_f64.powi(doubling as i32), size(low << doubling));
        let ticks = (0..=doublings as u32).step_by(stride).map(tick).collect();
        Axis { low: low as f64, high: low as f64 * 2_f64.powf(doublings), logarithmic: true, ticks }
    }

    /// Returns an axis with powers of ten, and 2 and 5 between them.
    pub fn logarithmic(low: f64, high: f64) -> Axis {
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let round: Vec<f64> =
            powers.flat_map(|power| [1.0, 2.0, 5.0].map(|d| d * 10_f64.powi(power))).collect();
        let first = round.iter().rposition(|&tick| tick <= low * 1.001).unwrap_or(0);
        let last = round.iter().position(|&tick| tick >= high * 0.999).unwrap_or(round.len() - 1);
        let ticks =
            round[first..=last.max(first + 1)].iter().map(|&tick| (tick, format!("{tick}"))).collect();
        Axis { low: round[first], high: round[last.max(first + 1)], logarithmic: true, ticks }
    }

    /// Returns whether a value lies on the axis, apart from rounding.
    pub fn contains(&self, value: f64) -> bool {
        let air = (self.high - self.low) * 1e-9;
        (self.low - air..=self.high + air).contains(&value)
    }

    /// Returns the position of a value, 0 to 1; values beyond the axis are placed at its end.
    pub fn share(&self, value: f64) -> f64 {
        let place = |x: f64| if self.logarithmic { x.max(f64::MIN_POSITIVE).ln() } else { x };
        ((place(value) - place(self.low)) / (place(self.high) - place(self.low))).clamp(0.0, 1.0)
    }
}

/// How long an arrow is at the end of an interval that goes on beyond the drawing.
pub const ARROW: f64 = 5.0;

/// Returns the ends of an axis that contains the base, every value, and every interval that is not far wider
/// than the values: one bad cell must not flatten all others.
pub fn extent(estimates: &[Measurement], base: f64) -> (f64, f64) {
    let known = || estimates.iter().filter(|e| e.value.is_finite());
    let reach = 1.5 * known().map(|e| (e.value - base).abs()).fold(0.1, f64::max);
    let ends = known().flat_map(|e| [e.value, e.low, e.high]);
    let ends = ends.map(|end| end.clamp(base - reach, base + reach));
    ends.fold((base, base), |(low, high), end| (low.min(end), high.max(end)))
}

/// Returns the width of a label.
pub fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER_WIDTH
}

/// Rounds to a tenth of a unit: more is invisible, and the file stays small.
pub fn tenth(length: f64) -> f64 {
    (length * 10.0).round() / 10.0
}

/// Draws the names beside their colours, in as many lines as needed; returns them with their height.
pub fn legend(names: &[String]) -> (Markup, f64) {
    const LINE: f64 = 20.0;
    let (mut x, mut y) = (0.0, 0.0);
    let mut places = Vec::new();
    for name in names {
        let width = text_width(name) + 44.0;
        if x > 0.0 && x + width > WIDTH {
            (x, y) = (0.0, y + LINE);
        }
        places.push((x, y));
        x += width;
    }
    let legend = html! {
        @for (index, (name, (x, y))) in names.iter().zip(places).enumerate() {
            rect x=(x) y=(y + 3.0) width="18" height="10" rx="2" fill=(colour(index)) {}
            text x=(x + 24.0) y=(y + 12.0) { (name) }
        }
    };
    (legend, y + LINE + 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn steps_are_round_and_few() {
        assert_eq!(labels(&Axis::linear(-0.93, 0.0, 5)), ["-1.0", "-0.8", "-0.6", "-0.4", "-0.2", "0.0"]);
        assert_eq!(labels(&Axis::linear(0.0, 0.0, 4)).len(), 3);
        assert_eq!(
            labels(&Axis::bytes(4096, 128 << 20, 6)),
            ["4 KiB", "32 KiB", "256 KiB", "2 MiB", "16 MiB", "128 MiB"]
        );
        assert_eq!(labels(&Axis::logarithmic(1.6, 92.0)), ["1", "2", "5", "10", "20", "50", "100"]);
        assert_eq!(labels(&Axis::logarithmic(5.0, 5.0)), ["5", "10"]);
    }

    #[test]
    fn values_lie_within_the_axis() {
        let axis = Axis::logarithmic(1.0, 100.0);
        assert_eq!([0.0, 1.0, 10.0, 1e9].map(|value| axis.share(value)), [0.0, 0.0, 0.5, 1.0]);
        assert_eq!([0.0, 1.0, 100.0, 101.0].map(|value| axis.contains(value)), [false, true, true, false]);
    }

    #[test]
    fn a_wide_interval_does_not_press_the_others_flat() {
        let known = Measurement { value: -0.4, low: -0.5, high: -0.3, repetitions: 9 };
        assert_eq!(extent(&[known], 0.0), (-0.5, 0.0));
        let wild = Measurement { low: -90.0, high: 1e300, ..known };
        let (low, high) = extent(&[known, wild], 0.0);
        assert!(-0.61 < low && high < 0.61, "{low} {high}");
    }

    #[test]
    fn a_file_needs_no_variables() {
        let light = in_light_colours(STYLE);
        assert!(STYLE.contains("var(--ink)") && !light.contains("var("), "{light}");
    }
}
