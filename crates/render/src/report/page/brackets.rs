//! Brackets left of the lanes of PEs: of which kind the PEs are, and what they share.

use super::timeline::LABEL_WIDTH;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::report::Report;
use maud::{Markup, html};

/// The maximum number of brackets beside each other, the widest sharing outermost.
const DEPTH_MAX: usize = 4;
const WIDTH: f64 = 34.0;

/// Draws them for lanes of this height, the first one at `top`.
pub fn draw(report: &Report, shown: &[PeId], (top, lane_height): (f64, f64)) -> Markup {
    let mut shared: Vec<_> = report.shared.iter().map(|shared| shared.resource).collect();
    shared.sort_unstable();
    shared.dedup();
    let innermost = usize::from(!report.kinds.is_empty());
    let x = |depth: usize| LABEL_WIDTH - 50.0 - WIDTH * depth as f64;
    let place = |rows: (usize, usize), depth| Place {
        x: x(depth),
        top: top + lane_height * rows.0 as f64 + 2.0,
        bottom: top + lane_height * (rows.1 + 1) as f64 - 2.0,
    };
    let depth = |kind| innermost + shared.iter().position(|&of| of == kind).unwrap_or_default();
    html! {
        @for kind in &report.kinds {
            @for rows in neighbours(&kind.pes, shown) {
                (place(rows, 0).bracket(&kind.name, &format!("PEs {} are {}", kind.pes, kind.name)))
            }
        }
        @for domain in report.shared.iter().filter(|domain| depth(domain.resource) < DEPTH_MAX) {
            @let word = domain.resource.word();
            @for rows in neighbours(&domain.pes, shown) {
                @let title = format!("PEs {} share: {word}", domain.pes);
                (place(rows, depth(domain.resource)).bracket(word, &title))
            }
        }
    }
}

/// Returns the first and last of each group of adjacent lanes whose PEs are in the set.
fn neighbours(pes: &CpuSet, shown: &[PeId]) -> Vec<(usize, usize)> {
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for (index, _) in shown.iter().enumerate().filter(|(_, pe)| pes.contains(**pe)) {
        match groups.last_mut().filter(|(_, last)| last + 1 == index) {
            Some((_, last)) => *last = index,
            None => groups.push((index, index)),
        }
    }
    groups
}

struct Place {
    x: f64,
    top: f64,
    bottom: f64,
}

impl Place {
    fn bracket(&self, word: &str, title: &str) -> Markup {
        let Place { x, top, bottom } = self;
        html! {
            g.bracket {
                title { (title) }
                path d=(format!("M{x} {top}h-5V{bottom}h5")) {}
                text x=(x - 8.0) y=((top + bottom) / 2.0 + 3.5) { (word) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pes_that_are_drawn_apart_have_a_bracket_each() {
        let shown = [3, 0, 1, 2].map(PeId);
        assert_eq!(neighbours(&"0,3".parse().unwrap(), &shown), [(0, 1)]);
        assert_eq!(neighbours(&"2-3".parse().unwrap(), &shown), [(0, 0), (3, 3)]);
        assert_eq!(neighbours(&"9".parse().unwrap(), &shown), []);
    }
}
