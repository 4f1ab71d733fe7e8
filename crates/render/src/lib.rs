//! What people see: functions from results to text, HTML, SVG and CSV, and the terminal that shows them.
//!
//! A folder for each kind of result ([`report`] of a run, machine [`profile`], [`sim`], [`experiment`],
//! [`comparison`], [`paths`]) with its forms: `page` (HTML), `table` (text), `csv`. They are built from what
//! is common: `page` (the frame of every page), `chart` (the drawings), [`mod@table`] (columns of text),
//! `csv`, [`terminal`] (printing and progress, the only part that writes anywhere).

mod chart;
pub mod comparison;
mod csv;
pub mod experiment;
mod page;
pub mod paths;
pub mod profile;
pub mod report;
pub mod sim;
pub mod table;
pub mod terminal;
