//! Writing a report: whole or not at all, so that a full disk costs no earlier report.

use crate::{report_page, report_table};
use anyhow::{Context, Result, bail};
use corewise_core::report::Report;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Fails early, before a command of hours runs, if the file could not be written at its end.
pub fn check_writable(path: &Path) -> Result<()> {
    if path.is_dir() {
        bail!("{} is a directory: name a file in it", path.display());
    }
    let directory = directory_of(path);
    let probe = tempfile::Builder::new().prefix(".corewise-").tempfile_in(&directory);
    probe.map(drop).with_context(|| {
        format!(
            "cannot write {}: check that {} exists and may be written",
            path.display(),
            directory.display()
        )
    })
}

/// Writes the report as a page if the name ends in `.html`, as a table if it ends in `.txt`, else as JSON.
pub fn write(path: &Path, report: &Report) -> Result<()> {
    let text = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => report_page::render(report),
        Some("txt") => report_table::render(report),
        _ => format!("{}\n", serde_json::to_string_pretty(report)?),
    };
    write_whole(path, text.as_bytes())
        .with_context(|| format!("cannot write the report {}: check space and permission", path.display()))
}

fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    // A device or a pipe has no name to be moved to.
    if path.exists() && !path.is_file() {
        return Ok(std::fs::write(path, bytes)?);
    }
    let mut file = tempfile::Builder::new().prefix(".corewise-").tempfile_in(directory_of(path))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(permissions)?;
    file.persist(path)?;
    Ok(())
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
