//! A machine for tests: a directory with the files of `/proc` and `/sys` that a test is about.

use std::fs;
use tempfile::TempDir;

/// Writes files, given by their paths below the root.
pub fn root(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}
