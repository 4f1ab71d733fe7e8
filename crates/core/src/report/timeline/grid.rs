//! Sums over time in columns of equal width: one row of columns per key.

use std::collections::BTreeMap;

/// What is summed up.
pub trait Cell: Copy + Default {
    /// Adds a multiple of another one.
    fn add(&mut self, other: &Self, times: f64);
}

/// Rows of columns. All rows have the same columns; a row stores those from its first to its last sum.
pub struct Grid<K, C> {
    rows: BTreeMap<K, Row<C>>,
}

/// The columns of one key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row<C> {
    /// The index of the first stored column.
    pub first: usize,
    /// The sums from that column on.
    pub cells: Vec<C>,
}

impl<K, C> Default for Grid<K, C> {
    fn default() -> Self {
        Grid { rows: BTreeMap::new() }
    }
}

impl<K: Ord + Copy, C: Cell> Grid<K, C> {
    /// Adds a rate per nanosecond over a period, given the width of a column.
    pub fn add(&mut self, key: K, (from_ns, to_ns): (u64, u64), rate: &C, column_ns: u64) {
        if from_ns >= to_ns {
            return;
        }
        let row = self.rows.entry(key).or_default();
        for column in from_ns / column_ns..=(to_ns - 1) / column_ns {
            let (begin, end) = (column * column_ns, (column + 1) * column_ns);
            let within_ns = end.min(to_ns) - begin.max(from_ns);
            row.cell(column as usize).add(rate, within_ns as f64);
        }
    }

    /// Returns the sums of one column.
    pub fn cell(&mut self, key: K, column: usize) -> &mut C {
        self.rows.entry(key).or_default().cell(column)
    }

    /// Makes the columns twice as wide.
    pub fn halve(&mut self) {
        for row in self.rows.values_mut() {
            let mut half = Row { first: row.first / 2, cells: Vec::with_capacity(row.cells.len() / 2 + 1) };
            half.take_in(row.first, &row.cells, |column| column / 2);
            *row = half;
        }
    }

    /// Moves each row to the key that `target` returns, and adds up what comes together.
    pub fn gather(&mut self, target: impl Fn(K) -> K) {
        for (key, row) in std::mem::take(&mut self.rows) {
            self.rows.entry(target(key)).or_default().take_in(row.first, &row.cells, |column| column);
        }
    }

    /// Returns each row.
    pub fn rows(&self) -> impl Iterator<Item = (K, &Row<C>)> {
        self.rows.iter().map(|(key, row)| (*key, row))
    }

    /// Returns the number of stored columns of all rows.
    pub fn stored(&self) -> usize {
        self.rows.values().map(|row| row.cells.len()).sum()
    }
}

impl<C: Cell> Row<C> {
    fn cell(&mut self, column: usize) -> &mut C {
        if self.cells.is_empty() {
            self.first = column;
        }
        if column < self.first {
            self.cells.splice(0..0, std::iter::repeat_n(C::default(), self.first - column));
            self.first = column;
        }
        let index = column - self.first;
        if index >= self.cells.len() {
            self.cells.resize(index + 1, C::default());
        }
        &mut self.cells[index]
    }

    /// Adds cells, each to the column that `target` returns.
    fn take_in(&mut self, first: usize, cells: &[C], target: impl Fn(usize) -> usize) {
        for (index, cell) in cells.iter().enumerate() {
            self.cell(target(first + index)).add(cell, 1.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Cell for f64 {
        fn add(&mut self, other: &f64, times: f64) {
            *self += other * times;
        }
    }

    fn row(grid: &Grid<u8, f64>, key: u8) -> (usize, Vec<f64>) {
        let (_, row) = grid.rows().find(|(of, _)| *of == key).unwrap();
        (row.first, row.cells.clone())
    }

    #[test]
    fn a_period_is_divided_among_its_columns_and_sums_outlive_wider_ones() {
        let mut grid = Grid::default();
        grid.add(1, (35, 55), &2.0, 10);
        assert_eq!(row(&grid, 1), (3, vec![10.0, 20.0, 10.0]));
        grid.add(1, (12, 14), &1.0, 10);
        grid.add(1, (50, 50), &1.0, 10);
        assert_eq!(row(&grid, 1), (1, vec![2.0, 0.0, 10.0, 20.0, 10.0]), "earlier ones may come later");
        grid.halve();
        assert_eq!(row(&grid, 1), (0, vec![2.0, 10.0, 30.0]));
        *grid.cell(2, 4) += 1.0;
        grid.gather(|_| 3);
        assert_eq!((row(&grid, 3), grid.stored()), ((0, vec![2.0, 10.0, 30.0, 0.0, 1.0]), 5));
    }
}
