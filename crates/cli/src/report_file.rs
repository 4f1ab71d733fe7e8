//! Reports on disk.

use crate::whole_file;
use anyhow::{Context, Result, bail};
use corewise_core::report::Report;
use corewise_render::report::{page, table};
use corewise_render::terminal;
use corewise_sys::input;
use std::path::Path;

/// The format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Page,
    Table,
    Json,
}

/// Fails before a possibly long run if the report could not be written at its end.
pub fn check(path: &Path) -> Result<()> {
    format_of(path)?;
    whole_file::check_writable(path)
}

/// Writes the report in the format of the file's extension.
pub fn write(path: &Path, report: &Report) -> Result<()> {
    let text = match format_of(path)? {
        Format::Page => page::render(report),
        Format::Table => terminal::printable(&table::render(report)).into_owned(),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(report)?),
    };
    whole_file::write(path, text.as_bytes())
}

/// Reads a report.
pub fn read(path: &Path) -> Result<Report> {
    let shown = path.display();
    let bytes =
        input::read(path, input::DATA_MAX).with_context(|| format!("cannot read the report {shown}"))?;
    parse(&bytes).with_context(|| shown.to_string())
}

/// Parses the bytes of a report; see [`read`].
pub fn parse(bytes: &[u8]) -> Result<Report> {
    if input::is_packed(bytes) {
        bail!(
            "it is packed, as recordings are: make a report of one by `corewise replay FILE --report R.json`"
        );
    }
    serde_json::from_slice(bytes).context(
        "it is not a report of this version: make one with `corewise run --report FILE.json -- COMMAND`",
    )
}

/// Returns the format by the extension; JSON without one, for pipes and devices.
fn format_of(path: &Path) -> Result<Format> {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    Ok(match ending.as_deref() {
        Some("html") => Format::Page,
        Some("txt") => Format::Table,
        Some("json") | None => Format::Json,
        Some(_) => bail!(
            "cannot write a report as {}: there are .json (everything, for scripts), .html (a page to \
             look at) \
             and .txt (a table)",
            path.display()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_three_formats_and_no_others() {
        let format = |path: &str| format_of(Path::new(path)).ok();
        assert_eq!(format("a/b.html"), Some(Format::Page));
        assert_eq!(format("b.TXT"), Some(Format::Table));
        assert_eq!(format("b.json"), Some(Format::Json));
        assert_eq!(format("/dev/stdout"), Some(Format::Json));
        assert_eq!(format("b.pdf"), None);
        let error = format_of(Path::new("b.pdf")).unwrap_err().to_string();
        assert!(["b.pdf", ".json", ".html", ".txt"].iter().all(|part| error.contains(part)), "{error}");
    }
}
