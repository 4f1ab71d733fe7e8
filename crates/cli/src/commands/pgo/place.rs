//! The place where the program lies, in which its variants take turns.
//!
//! Runs name the program by its path, and so may scripts that they call. So each variant is put there before
//! it runs. Whatever happens, a finished program lies there at the end: the baseline, unless another one has
//! been chosen.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The file that is built, and where the variants are kept.
#[derive(Debug)]
pub struct Place {
    binary: PathBuf,
    dir: PathBuf,
    /// What lies there at the end.
    chosen: Option<&'static str>,
}

impl Place {
    /// The place of a program, with nothing kept yet.
    pub fn new(binary: PathBuf, dir: PathBuf) -> Place {
        Place { binary, dir, chosen: None }
    }

    /// Keeps what was just built as a variant. The first one is chosen until another one is.
    pub fn take(&mut self, variant: &'static str) -> Result<()> {
        let kept = self.dir.join(variant);
        // A link to the file would change with it.
        let _ = fs::remove_file(&kept);
        fs::copy(&self.binary, &kept)
            .with_context(|| format!("cannot copy {} to {}", self.binary.display(), kept.display()))?;
        self.chosen.get_or_insert(variant);
        Ok(())
    }

    /// Whether two variants are the same, byte for byte.
    pub fn are_same(&self, one: &str, other: &str) -> Result<bool> {
        Ok(fs::read(self.dir.join(one))? == fs::read(self.dir.join(other))?)
    }

    /// Puts a variant in the place until the next one comes.
    pub fn put(&self, variant: &str) -> Result<()> {
        // A link, so that a variant's pages stay in memory while others take their turns.
        self.replace(variant, |from, to| fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop)))
    }

    /// Which variant stays.
    pub fn choose(&mut self, variant: &'static str) {
        self.chosen = Some(variant);
    }

    /// Puts the chosen variant in its place, as a file of its own.
    pub fn settle(&mut self) -> Result<()> {
        let Some(chosen) = self.chosen.take() else { return Ok(()) };
        self.replace(chosen, |from, to| fs::copy(from, to).map(drop))
    }

    fn replace(&self, variant: &str, make: fn(&Path, &Path) -> std::io::Result<()>) -> Result<()> {
        let Some(name) = self.binary.file_name() else { bail!("{} is no file", self.binary.display()) };
        let new = self.binary.with_file_name(format!(".{}.corewise-new", name.display()));
        let _ = fs::remove_file(&new);
        make(&self.dir.join(variant), &new)
            .and_then(|()| fs::rename(&new, &self.binary))
            .with_context(|| format!("cannot put {variant} at {}", self.binary.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // On the way out of an error: that one is told.
        let _ = self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_take_turns_and_the_baseline_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("prog");
        let dir = folder.path().join("variants");
        fs::create_dir(&dir).unwrap();
        let read = || fs::read_to_string(&binary).unwrap();
        let mut place = Place::new(binary.clone(), dir.clone());
        for variant in ["baseline", "sample"] {
            // A linker may write the file anew or over.
            fs::write(&binary, variant).unwrap();
            place.take(variant).unwrap();
        }
        assert!(!place.are_same("baseline", "sample").unwrap());
        place.put("baseline").unwrap();
        assert_eq!(read(), "baseline");
        place.put("sample").unwrap();
        assert_eq!(read(), "sample");
        drop(place);
        assert_eq!(read(), "baseline");
        fs::write(&binary, "by its owner").unwrap();
        assert_eq!(fs::read_to_string(dir.join("baseline")).unwrap(), "baseline");

        let mut place = Place::new(binary.clone(), dir);
        place.take("baseline").unwrap();
        place.choose("sample");
        place.settle().unwrap();
        drop(place);
        assert_eq!(read(), "sample");
        assert_eq!(folder.path().read_dir().unwrap().count(), 2);
    }
}
