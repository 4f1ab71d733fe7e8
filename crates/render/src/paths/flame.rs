//! Time by caller as a flame graph: each function is above its caller and as wide as its share of the time.
//! Callers that no window reached are unknown, so the lowest row is not always `main`
//! (`corewise_paths::export::stacks`).

use crate::chart::palette;
use crate::page;
use maud::{Markup, html};
use std::collections::BTreeMap;

const WIDTH: f64 = 1140.0;
const ROW: f64 = 19.0;
/// Narrower ones are not drawn.
const NARROWEST: f64 = 0.7;
/// The mean width of a letter.
const LETTER: f64 = 6.4;
/// Deeper ones are dropped: a recording may contain stacks of any depth.
const DEEPEST: usize = 60;

/// The functions that were called by the same stack of callers.
#[derive(Debug, Default)]
pub struct Flame {
    share: f64,
    callees: BTreeMap<String, Flame>,
}

impl Flame {
    /// Adds a stack, the outermost function first, with its share of the time.
    pub fn add(&mut self, stack: impl IntoIterator<Item = String>, share: f64) {
        let mut at = self;
        at.share += share;
        for name in stack.into_iter().take(DEEPEST) {
            at = at.callees.entry(name).or_default();
            at.share += share;
        }
    }

    /// Draws it; empty if there is nothing to draw.
    pub(super) fn draw(&self) -> Markup {
        let rows = self.rows();
        if rows == 0 || self.share <= 0.0 {
            return Markup::default();
        }
        let height = rows as f64 * ROW;
        let content = self.callees_drawn(0.0, 1, height, self.share);
        page::drawing("flame", (WIDTH, height), "time by caller", &content)
    }

    /// Returns the number of rows above this one that contain something wide enough to be drawn.
    fn rows(&self) -> usize {
        let is_drawn = |callee: &&Flame| callee.share * WIDTH >= NARROWEST;
        self.callees.values().filter(is_drawn).map(|callee| 1 + callee.rows()).max().unwrap_or(0)
    }

    fn callees_drawn(&self, left: f64, row: usize, height: f64, whole: f64) -> Markup {
        let mut callees: Vec<(&String, &Flame)> = self.callees.iter().collect();
        callees.sort_by(|a, b| b.1.share.total_cmp(&a.1.share));
        let places = callees.into_iter().scan(left, |left, (name, callee)| {
            let place = (*left, callee.share / whole * WIDTH);
            *left += place.1;
            Some((name, callee, place))
        });
        html! {
            @for (name, callee, place) in places {
                @if place.1 >= NARROWEST {
                    (callee.drawn(name, place, row, height, whole))
                }
            }
        }
    }

    fn drawn(&self, name: &str, (left, width): (f64, f64), row: usize, height: f64, whole: f64) -> Markup {
        let top = height - row as f64 * ROW;
        let letters = ((width - 6.0) / LETTER) as usize;
        let shown: String = if name.chars().count() <= letters {
            name.to_owned()
        } else {
            name.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
        };
        html! {
            g {
                title { (name) ": " (format!("{:.1} %", 100.0 * self.share / whole)) " of the time" }
                rect x=(format!("{left:.1}")) y=(format!("{top:.1}")) width=(format!("{:.1}", width - 0.5))
                    height=(ROW - 1.0) rx="2" fill=(palette::colour(hue(name))) {}
                @if letters >= 3 {
                    text x=(format!("{:.1}", left + 3.0)) y=(format!("{:.1}", top + 13.0)) { (shown) }
                }
            }
            (self.callees_drawn(left, row + 1, height, whole))
        }
    }
}

/// Returns one of the colours, always the same for the same name.
fn hue(name: &str) -> usize {
    name.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte))) % 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_as_wide_as_all_its_callees() {
        let mut flame = Flame::default();
        let stack = |names: &str| names.split(';').map(str::to_owned).collect::<Vec<_>>();
        flame.add(stack("main;work"), 0.5);
        flame.add(stack("main;rest"), 0.25);
        flame.add(stack("main"), 0.25);
        let drawing = flame.draw().into_string();
        assert_eq!(drawing.matches("<rect").count(), 3);
        for text in ["main: 100.0 %", "work: 50.0 %", "rest: 25.0 %", "width=\"1139.5\"", "width=\"569.5\""] {
            assert!(drawing.contains(text), "no {text} in {drawing}");
        }
    }

    #[test]
    fn what_is_too_narrow_to_be_seen_is_not_drawn() {
        let mut flame = Flame::default();
        flame.add(["main".to_owned()], 0.9999);
        flame.add(["seldom".to_owned(), "deep".to_owned()], 0.0001);
        let drawing = flame.draw().into_string();
        assert!(drawing.contains("main") && !drawing.contains("seldom"), "{drawing}");
        assert_eq!(Flame::default().draw().into_string(), "");
    }
    #[test]
    fn a_stack_of_any_depth_is_drawn_up_to_a_limit() {
        let mut flame = Flame::default();
        flame.add((0..1_000_000).map(|depth| format!("f{depth}")), 1.0);
        assert_eq!(flame.draw().into_string().matches("<rect").count(), DEEPEST);
    }
}
