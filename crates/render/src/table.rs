//! Tables for terminals: the only module that aligns columns of text.

use std::fmt::{Display, Formatter, Result};

/// The gap between two columns, and before the first one.
const GAP: &str = "  ";

/// Rows of cells. A column is as wide as its widest cell.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<Align>,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, Copy)]
enum Align {
    Left,
    Right,
}

#[derive(Debug, Clone)]
enum Line {
    Cells(Vec<String>),
    /// Across all columns.
    Words(String),
}

impl Table {
    /// Creates a table without rows; `columns` gives their alignment: `<` for left, `>` for right, as in a
    /// format string.
    pub fn new(columns: &str) -> Table {
        let align = |letter| if letter == '>' { Align::Right } else { Align::Left };
        Table { columns: columns.chars().map(align).collect(), lines: Vec::new() }
    }

    /// Adds a row. Missing cells at its end are empty; a cell beyond the columns is left-aligned.
    pub fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.lines.push(Line::Cells(cells.into_iter().map(|cell| cell.to_string()).collect()));
    }

    /// Adds a line across all columns, such as a heading within the table.
    pub fn words(&mut self, words: &str) {
        self.lines.push(Line::Words(words.to_owned()));
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.lines.iter().filter(|line| matches!(line, Line::Cells(_))).count()
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = Vec::new();
        for line in &self.lines {
            let Line::Cells(cells) = line else { continue };
            widths.resize(widths.len().max(cells.len()), 0);
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = cell.chars().count().max(*width);
            }
        }
        widths
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let widths = self.widths();
        for line in &self.lines {
            let text = match line {
                Line::Words(words) => words.clone(),
                Line::Cells(cells) => {
                    let aligned = cells.iter().enumerate().map(|(column, cell)| {
                        let width = widths[column];
                        match self.columns.get(column) {
                            Some(Align::Right) => format!("{GAP}{cell:>width$}"),
                            Some(Align::Left) | None => format!("{GAP}{cell:<width$}"),
                        }
                    });
                    aligned.collect()
                }
            };
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cells() {
        let mut table = Table::new("<>");
        table.row(["Δ", "seconds"]);
        table.row(["a long name", "7", "of 9"]);
        table.words("\n  and");
        table.row(["b"]);
        assert_eq!(table.to_string(), "  Δ            seconds\n  a long name        7  of 9\n\n  and\n  b\n");
        assert_eq!(table.rows(), 3);
    }
}
