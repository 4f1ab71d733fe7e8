//! Who ran where in the first run of each variant: one row a PE, a colour for each application.
//!
//! It is drawn from the comparison's timeline in text, so a cell is one of its columns and shows who ran most
//! in it.

use crate::page::markup::{Seconds, Text, colour};
use corewise_sim::comparison::{Comparison, VariantResult};
use std::fmt::{Formatter, Result};

const LABEL_WIDTH: f64 = 60.0;
const WIDTH: f64 = 1000.0;
const ROW_HEIGHT: f64 = 16.0;
const AXIS_HEIGHT: f64 = 18.0;
const TICKS: usize = 6;

/// The PEs that are drawn, lowest first.
const PES_SHOWN_MAX: usize = 64;

/// The section with all drawings.
pub fn section(f: &mut Formatter<'_>, comparison: &Comparison) -> Result {
    writeln!(f, "<section>\n<h2>Who ran where (simulated, first seed)</h2>")?;
    let Some(first) = comparison.variants.first() else { return writeln!(f, "</section>") };
    writeln!(f, "<ul class=\"legend\">")?;
    for (index, (_, name)) in Drawn::of(first).names.iter().enumerate() {
        let swatch = colour(index);
        writeln!(f, "<li><span class=\"swatch\" style=\"background:{swatch}\"></span>{}</li>", Text(name))?;
    }
    writeln!(f, "</ul>")?;
    comparison.variants.iter().try_for_each(|variant| drawing(f, variant))?;
    writeln!(f, "</section>")
}

/// A timeline in text, taken apart.
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

fn drawing(f: &mut Formatter<'_>, variant: &VariantResult) -> Result {
    let drawn = Drawn::of(variant);
    let shown = &drawn.rows[..drawn.rows.len().min(PES_SHOWN_MAX)];
    let height = shown.len() as f64 * ROW_HEIGHT + AXIS_HEIGHT;
    let width = LABEL_WIDTH + WIDTH + 30.0;
    writeln!(
        f,
        "<h3>{}</h3>\n<div class=\"scroll\">\n<svg class=\"places\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" aria-label=\"Timeline of {} PEs\">",
        Text(&variant.name),
        shown.len()
    )?;
    for (row, (pe, cells)) in shown.iter().enumerate() {
        let top = row as f64 * ROW_HEIGHT;
        let x = LABEL_WIDTH - 8.0;
        writeln!(f, "<text class=\"pe\" x=\"{x}\" y=\"{}\">PE {}</text>", top + 12.0, Text(pe.trim()))?;
        cells_of(f, cells, &drawn.names, top)?;
    }
    for tick in 0..=TICKS {
        let share = tick as f64 / TICKS as f64;
        let (x, y) = (LABEL_WIDTH + share * WIDTH, height - 4.0);
        let time = Seconds(share * variant.timeline_seconds);
        writeln!(f, "<text class=\"tick\" x=\"{x:.1}\" y=\"{y}\">{time}</text>")?;
    }
    writeln!(f, "</svg>\n</div>")?;
    match drawn.rows.len() - shown.len() {
        0 => Ok(()),
        more => writeln!(f, "<p class=\"quiet\">{more} more PEs are left out.</p>"),
    }
}

/// The bands of one PE: equal neighbours are one.
fn cells_of(f: &mut Formatter<'_>, cells: &str, names: &[(char, &str)], top: f64) -> Result {
    let cells: Vec<char> = cells.chars().collect();
    let cell_width = WIDTH / cells.len().max(1) as f64;
    let mut from = 0;
    for band in cells.chunk_by(|a, b| a == b) {
        let known = names.iter().position(|(letter, _)| *letter == band[0]);
        let (x, width) = (LABEL_WIDTH + from as f64 * cell_width, band.len() as f64 * cell_width);
        let (y, height) = (top + 2.0, ROW_HEIGHT - 4.0);
        let place = format!("x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\"");
        match known {
            None => writeln!(f, "<rect class=\"idle\" {place}/>")?,
            Some(index) => {
                let (fill, name) = (colour(index), Text(names[index].1));
                writeln!(f, "<rect fill=\"{fill}\" {place}><title>{name}</title></rect>")?;
            }
        }
        from += band.len();
    }
    Ok(())
}
