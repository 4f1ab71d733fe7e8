//! Which application ran where in the first run of each variant: one row per PE, a colour for each
//! application.
//!
//! It is drawn from the comparison's text timeline, so a cell is one of its columns and shows the application
//! that ran most in it.

use crate::chart::palette::colour;
use crate::chart::tenth;
use crate::page;
use crate::page::words::Seconds;
use corewise_sim::comparison::{Comparison, VariantResult};
use maud::{Markup, html};

const LABEL_WIDTH: f64 = 60.0;
const WIDTH: f64 = 1000.0;
const ROW_HEIGHT: f64 = 16.0;
const AXIS_HEIGHT: f64 = 18.0;
const TICKS: usize = 6;

/// The maximum number of PEs that are drawn, lowest first.
const PES_SHOWN_MAX: usize = 64;

/// Returns the section with all drawings.
pub fn section(comparison: &Comparison) -> Markup {
    let names = comparison.variants.first().map(|first| Drawn::of(first).names).unwrap_or_default();
    let content = html! {
        ul.legend {
            @for (index, (_, name)) in names.iter().enumerate() {
                li { span.swatch style={ "background:" (colour(index)) } {} (name) }
            }
        }
        @for variant in &comparison.variants { (drawing(variant)) }
    };
    page::section("Which application ran where (simulated, first seed)", &content)
}

/// A parsed text timeline.
struct Drawn<'a> {
    /// Each PE's name and cells.
    rows: Vec<(&'a str, &'a str)>,
    /// Each letter with its application.
    names: Vec<(char, &'a str)>,
}

impl<'a> Drawn<'a> {
    fn of(variant: &'a VariantResult) -> Self {
        let lines = variant.timeline.lines();
        let (rows, names): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("PE "));
        let row = |line: &'a str| line["PE ".len()..].rsplit_once(' ');
        let name = |line: &'a str| Some((line.chars().next()?, line.get(2..)?));
        Self {
            rows: rows.into_iter().filter_map(row).collect(),
            names: names.into_iter().filter_map(name).collect(),
        }
    }
}

fn drawing(variant: &VariantResult) -> Markup {
    let drawn = Drawn::of(variant);
    let shown = &drawn.rows[..drawn.rows.len().min(PES_SHOWN_MAX)];
    let height = shown.len() as f64 * ROW_HEIGHT + AXIS_HEIGHT;
    let content = html! {
        @for (row, (pe, cells)) in shown.iter().enumerate() {
            @let top = row as f64 * ROW_HEIGHT;
            text.pe x=(LABEL_WIDTH - 8.0) y=(top + 12.0) { "PE " (pe.trim()) }
            (bands(cells, &drawn.names, top))
        }
        @for tick in 0..=TICKS {
            @let share = tick as f64 / TICKS as f64;
            text.tick x=(tenth(LABEL_WIDTH + share * WIDTH)) y=(height - 4.0) {
                (Seconds(share * variant.timeline_seconds))
            }
        }
    };
    let label = format!("Timeline of {} PEs", shown.len());
    html! {
        h3 { (variant.name) }
        (page::drawing("places", (LABEL_WIDTH + WIDTH + 30.0, height), &label, &content))
        @if drawn.rows.len() > shown.len() {
            (page::remark(format_args!("{} more PEs are left out.", drawn.rows.len() - shown.len())))
        }
    }
}

/// Returns the bands of one PE; equal neighbours are merged.
fn bands(cells: &str, names: &[(char, &str)], top: f64) -> Markup {
    let cells: Vec<char> = cells.chars().collect();
    let cell_width = WIDTH / cells.len().max(1) as f64;
    let mut from = 0;
    let mut bands = Vec::new();
    for band in cells.chunk_by(|a, b| a == b) {
        let known = names.iter().position(|(letter, _)| *letter == band[0]);
        let (x, width) = (LABEL_WIDTH + from as f64 * cell_width, band.len() as f64 * cell_width);
        bands.push((known, tenth(x), tenth(width)));
        from += band.len();
    }
    let (y, height) = (top + 2.0, ROW_HEIGHT - 4.0);
    html! {
        @for (known, x, width) in bands {
            @if let Some(index) = known {
                rect fill=(colour(index)) x=(x) y=(y) width=(width) height=(height) {
                    title { (names[index].1) }
                }
            } @else {
                rect.idle x=(x) y=(y) width=(width) height=(height) {}
            }
        }
    }
}
