//! A file of metrics, for the node exporter's textfile collector.
//!
//! It is replaced as a whole, so that nobody reads half of it, and removed at the end, so that nobody takes
//! the last state for the present one. Limit: a daemon that is killed leaves it; its age tells
//! (`node_textfile_mtime_seconds`).

use crate::error::ServeError;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time between two writes.
const WITHIN: Duration = Duration::from_secs(10);

/// The file.
pub struct TextFile {
    path: PathBuf,
    due: Instant,
    failed: bool,
}

impl TextFile {
    /// Writes it for the first time.
    pub fn create(path: &Path, text: &str) -> Result<TextFile, ServeError> {
        let at = || path.to_owned();
        if path.extension().is_none_or(|extension| extension != "prom") {
            return Err(ServeError::NoProm { path: at() });
        }
        if path.symlink_metadata().is_ok_and(|there| !there.is_file()) {
            return Err(ServeError::NoPlainFile { path: at() });
        }
        write(path, text).map_err(|source| ServeError::Write { path: at(), source })?;
        Ok(TextFile { path: path.to_owned(), due: Instant::now() + WITHIN, failed: false })
    }

    /// Returns the time until it is to be written again.
    pub fn due_within(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Writes it again.
    pub fn write(&mut self, text: &str) {
        self.due = Instant::now() + WITHIN;
        let written = write(&self.path, text);
        if let Err(error) = &written
            && !self.failed
        {
            let path = self.path.display();
            log::warn!(corewise_event = "metrics_file"; "cannot write {path}: {error}");
        }
        self.failed = written.is_err();
    }
}

impl Drop for TextFile {
    fn drop(&mut self) {
        // If it is gone already, so much the better.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Not forced to the disk, as the loop would wait for that.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    // Other users' node exporter reads it, whatever the umask.
    let mut new =
        tempfile::Builder::new().prefix(".corewise-").tempfile_in(directory.unwrap_or(Path::new(".")))?;
    new.write_all(text.as_bytes())?;
    new.as_file().set_permissions(Permissions::from_mode(0o644))?;
    new.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_replaced_readable_by_all_and_removed_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("corewise.prom");
        let mut file = TextFile::create(&path, "a 1\n").unwrap();
        let reader = std::fs::File::open(&path).unwrap();
        file.write("a 2\n");
        assert_eq!(std::io::read_to_string(reader).unwrap(), "a 1\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a 2\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn the_error_for_a_path_says_why_it_cannot_be_such_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let error = |name: &str| {
            let error = TextFile::create(&directory.path().join(name), "").err().unwrap();
            error.to_string()
        };
        assert!(error("corewise.txt").contains("must end in .prom"));
        assert!(error("none/a.prom").contains("check that its directory exists"));
        std::fs::create_dir(directory.path().join("b.prom")).unwrap();
        assert!(error("b.prom").contains("is no plain file"));
    }
}
