//! Files that are written whole or not at all, so that a full disk costs nothing that was there before.

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Fails early, before a command of hours runs, if the file could not be written at its end.
pub fn check_writable(path: &Path) -> Result<()> {
    if path.is_dir() {
        bail!("{} is a directory: name a file in it", path.display());
    }
    if is_stream(path) {
        return Ok(());
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

/// Writes the file: under another name first, then moved over what was there.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = if is_stream(path) { std::fs::write(path, bytes) } else { replace(path, bytes) };
    written.with_context(|| format!("cannot write {}: check space and permission", path.display()))
}

/// A device or a pipe has no name to be moved to.
fn is_stream(path: &Path) -> bool {
    path.exists() && !path.is_file()
}

fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".corewise-").tempfile_in(directory_of(path))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    file.persist(path)?;
    Ok(())
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
