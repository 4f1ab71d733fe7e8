//! Output for people: functions from results to text, HTML, SVG and CSV, and the terminal that shows them.
//!
//! There is a directory for each kind of result ([`report`] of a run, machine [`profile`], [`sim`],
//! [`experiment`], [`comparison`], [`pairs`], [`paths`]) with its formats: `page` (HTML), `table` (text),
//! `csv`. They share `page` (the frame of every page), `chart` (drawings), [`mod@table`] (columns of text),
//! `csv`, and [`terminal`] (printing and progress, the only part that writes anywhere).

mod chart;
pub mod comparison;
mod csv;
pub mod experiment;
mod page;
pub mod pairs;
pub mod paths;
pub mod profile;
pub mod report;
pub mod sim;
pub mod table;
pub mod terminal;
pub mod top;
