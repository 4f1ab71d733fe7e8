//! Writing a report.

use crate::{report_page, report_table, whole_file};
use anyhow::Result;
use corewise_core::report::Report;
use std::path::Path;

/// Writes the report as a page if the name ends in `.html`, as a table if it ends in `.txt`, else as JSON.
pub fn write(path: &Path, report: &Report) -> Result<()> {
    let text = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => report_page::render(report),
        Some("txt") => report_table::render(report),
        _ => format!("{}\n", serde_json::to_string_pretty(report)?),
    };
    whole_file::write(path, text.as_bytes())
}
