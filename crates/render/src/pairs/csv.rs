//! The measured slowdowns as CSV: a table for `corewise model`.

use crate::csv;
use corewise_core::interference::Row;

/// Returns the table.
pub fn write(rows: &[Row]) -> String {
    let known = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let cells = rows.iter().map(|row| {
        [
            row.program.clone(),
            row.injector.clone(),
            row.place.clone().unwrap_or_default(),
            row.slowdown.to_string(),
            known(row.low),
            known(row.high),
        ]
    });
    csv::table(["program", "injector", "place", "slowdown", "low", "high"], cells)
}
