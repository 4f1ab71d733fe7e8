//! Bars in groups, one below the other, each with its figure: the speedups of many variants.

use super::tenth;
use crate::page;
use maud::{Markup, html};

const GROUP_WIDTH: f64 = 200.0;
const NAME_WIDTH: f64 = 150.0;
const PLOT_WIDTH: f64 = 620.0;
const FIGURE_WIDTH: f64 = 120.0;
const WIDTH: f64 = GROUP_WIDTH + NAME_WIDTH + PLOT_WIDTH + FIGURE_WIDTH;
const BAR_HEIGHT: f64 = 15.0;
const GROUP_GAP: f64 = 12.0;

/// The rules for such drawings.
pub const STYLE: &str = include_str!("grouped.css");

/// One bar, from zero.
pub struct GroupedBar {
    /// Its name.
    pub name: String,
    /// Its length.
    pub value: Option<f64>,
    /// From where to where its whisker goes.
    pub whisker: Option<(f64, f64)>,
    /// Its value in words.
    pub figure: String,
    /// Its colour.
    pub colour: String,
    /// Reference values of others, drawn as hatched bands: from, to, and in words.
    pub bands: Vec<(f64, f64, String)>,
}

/// Bars with a common name.
pub struct Group {
    /// The name.
    pub name: String,
    /// The bars, from top to bottom.
    pub bars: Vec<GroupedBar>,
}

/// Groups along one axis.
pub struct GroupedBars {
    /// The groups, from top to bottom.
    pub groups: Vec<Group>,
    /// Where a line is drawn through all groups.
    pub reference: f64,
}

impl GroupedBars {
    /// Returns the drawing, with a label for screen readers.
    pub fn draw(&self, label: &str) -> Markup {
        let bars = self.groups.iter().map(|group| group.bars.len()).sum::<usize>() as f64;
        let height = 4.0 + bars * BAR_HEIGHT + self.groups.len() as f64 * GROUP_GAP;
        let scale = self.scale();
        let mut top = 4.0;
        let mut place = |step: f64| {
            top += step;
            top - step
        };
        let reference = scale.x(self.reference);
        let content = html! {
            defs {
                pattern #hatched width="6" height="6" patternUnits="userSpaceOnUse"
                    patternTransform="rotate(45)" {
                    rect.stripe width="2" height="6" {}
                }
            }
            @for group in &self.groups {
                text.name x="0" y=(place(0.0) + BAR_HEIGHT - 4.0) { (group.name) }
                @for bar in &group.bars { (bar.draw(&scale, place(BAR_HEIGHT))) }
                @let _ = place(GROUP_GAP);
            }
            line.reference x1=(reference) y1="0" x2=(reference) y2=(height) {}
        };
        page::drawing("bars", (WIDTH, height), label, &content)
    }

    /// Returns a scale that includes every bar, whisker and band.
    fn scale(&self) -> Scale {
        let bars = || self.groups.iter().flat_map(|group| &group.bars);
        let own = bars().filter_map(|bar| {
            let value = bar.value?;
            Some(bar.whisker.map_or([value; 2], |(low, high)| [low, high]))
        });
        let bands = bars().flat_map(|bar| bar.bands.iter().map(|(from, to, _)| [*from, *to]));
        let ends = own.chain(bands).flatten().chain([0.0, self.reference]);
        let (low, high) = ends.fold((0.0, 0.01), |(low, high): (f64, f64), x| (low.min(x), high.max(x)));
        Scale { low, high }
    }
}

struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn x(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        tenth(GROUP_WIDTH + NAME_WIDTH + share * PLOT_WIDTH)
    }
}

impl GroupedBar {
    fn draw(&self, scale: &Scale, top: f64) -> Markup {
        let (baseline, middle) = (top + BAR_HEIGHT - 4.0, top + BAR_HEIGHT / 2.0);
        html! {
            text.quiet x=(GROUP_WIDTH) y=(baseline) { (self.name) }
            @if let Some(value) = self.value {
                @let (from, to) = (scale.x(value.min(0.0)), scale.x(value.max(0.0)));
                rect x=(from) y=(top + 2.0) width=(tenth(to - from)) height=(BAR_HEIGHT - 4.0)
                    fill=(self.colour) {}
                @if let Some((low, high)) = self.whisker {
                    line.whisker x1=(scale.x(low)) y1=(middle) x2=(scale.x(high)) y2=(middle) {}
                }
            }
            @for (from, to, words) in &self.bands {
                @let (from, to) = (scale.x(*from), scale.x(*to));
                rect.hatched x=(from - 2.0) y=(top) width=(tenth(to - from + 4.0)) height=(BAR_HEIGHT) {
                    title { (words) }
                }
            }
            text.figure x=(WIDTH) y=(baseline) { (self.figure) }
        }
    }
}
