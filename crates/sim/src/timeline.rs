//! Draws in text which application ran where and when.

use corewise_core::time::Time;
use std::fmt::Write;

/// The letters of applications, which repeat when they are used up.
const LETTERS: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The spans of time in which applications ran, by PE.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    pes: Vec<Vec<Span>>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    from: u64,
    to: u64,
    app: usize,
}

impl Timeline {
    /// Creates an empty timeline of that many PEs.
    pub fn new(pes: usize) -> Self {
        Self { pes: vec![Vec::new(); pes] }
    }

    /// Records that an application ran on a PE; times are in nanoseconds.
    pub(crate) fn ran(&mut self, pe: usize, app: usize, from: u64, to: u64) {
        match self.pes[pe].last_mut() {
            Some(last) if last.app == app && last.to == from => last.to = to,
            _ => self.pes[pe].push(Span { from, to, app }),
        }
    }

    /// Draws one line per PE: in each of `columns` equal parts the letter of the application that ran most,
    /// or `.` where the PE was mostly idle. `names` are the applications'; equal names have one letter.
    pub fn draw(&self, names: &[&str], end: Time, columns: usize) -> String {
        let mut kinds: Vec<&str> = Vec::new();
        let letter_of: Vec<usize> = names
            .iter()
            .map(|name| {
                kinds.iter().position(|kind| kind == name).unwrap_or_else(|| {
                    kinds.push(name);
                    kinds.len() - 1
                })
            })
            .collect();
        let width = (self.pes.len().max(1) - 1).to_string().len();
        let mut text = String::new();
        for (pe, spans) in self.pes.iter().enumerate() {
            let cells: String = (0..columns)
                .map(|column| {
                    let edge = |column: usize| (end.0 as u128 * column as u128 / columns as u128) as u64;
                    cell(spans, edge(column)..edge(column + 1), &letter_of, kinds.len())
                })
                .collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "PE {pe:>width$} {cells}");
        }
        for (index, kind) in kinds.iter().enumerate() {
            let _ = writeln!(text, "{} {kind}", letter(index));
        }
        text
    }
}

fn letter(index: usize) -> char {
    char::from(LETTERS[index % LETTERS.len()])
}

/// Returns which application ran most in this part; spans are ordered, so the first is found by bisection.
fn cell(spans: &[Span], part: std::ops::Range<u64>, letter_of: &[usize], kinds: usize) -> char {
    let mut ran = vec![0; kinds];
    let first = spans.partition_point(|span| span.to <= part.start);
    for span in spans[first..].iter().take_while(|span| span.from < part.end) {
        ran[letter_of[span.app]] += span.to.min(part.end) - span.from.max(part.start);
    }
    let busy: u64 = ran.iter().sum();
    if 2 * busy < part.end - part.start {
        return '.';
    }
    // Ties go to the first, so that a drawing does not depend on the order of a search.
    let most = ran.iter().copied().max().unwrap_or(0);
    ran.iter().position(|&ns| ns == most).map_or('.', letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_shows_the_thread_that_ran_most() {
        let mut timeline = Timeline::new(2);
        timeline.ran(0, 0, 0, 30);
        timeline.ran(0, 0, 30, 60);
        timeline.ran(0, 1, 60, 80);
        timeline.ran(1, 2, 50, 100);
        let drawn = timeline.draw(&["fp", "int", "fp"], Time(100), 5);
        assert_eq!(drawn, "PE 0 AAAB.\nPE 1 ..AAA\nA fp\nB int\n");
        assert_eq!(timeline.pes[0].len(), 2, "what touches is one span");
    }
}
