//! The place of the program, which its variants occupy alternately.
//!
//! Runs name the program by its path, and so may scripts that they call, so each variant is put there before
//! it runs. Whatever happens, a finished program is there at the end: the chosen variant, or the file from
//! before the first build. If there was none, it is the baseline once that is built, else nothing, because a
//! build that was ended half-way may have left a file that looks complete.

use super::BASELINE;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The name under which the earlier file is stored.
const BEFORE: &str = "before";

/// The file that is built, and the folder of the variants.
#[derive(Debug)]
pub struct Place {
    binary: PathBuf,
    dir: PathBuf,
    /// The file from before the first build.
    before: Option<PathBuf>,
    has_baseline: bool,
    is_settled: bool,
}

impl Place {
    /// Takes over the place of a program; stores the present file.
    pub fn new(binary: PathBuf, dir: PathBuf) -> Result<Place> {
        // The file itself, if a link leads to it. Usually there is none yet.
        let before = binary.canonicalize().ok();
        if let Some(before) = &before {
            keep(before, &dir.join(BEFORE))?;
        }
        Ok(Place { binary, dir, before, has_baseline: false, is_settled: false })
    }

    /// Sets where the build has put the program: the file that the given name leads to.
    pub fn is_at(&mut self, binary: &Path) {
        binary.clone_into(&mut self.binary);
    }

    /// Stores the program that was just built as a variant.
    pub fn take(&mut self, variant: &'static str) -> Result<()> {
        keep(&self.binary, &self.dir.join(variant))?;
        self.has_baseline |= variant == BASELINE;
        Ok(())
    }

    /// Returns whether two variants are the same, byte for byte.
    pub fn are_same(&self, one: &str, other: &str) -> Result<bool> {
        Ok(fs::read(self.dir.join(one))? == fs::read(self.dir.join(other))?)
    }

    /// Puts a variant in the place until the next one.
    pub fn put(&self, variant: &str) -> Result<()> {
        // A link, so that a variant's pages stay in memory while others run.
        self.replace(variant, |from, to| fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop)))
    }

    /// Puts the final variant in the place, as a file of its own.
    pub fn settle(&mut self, variant: &str) -> Result<()> {
        self.is_settled = true;
        self.replace(variant, |from, to| fs::copy(from, to).map(drop))
    }

    /// Restores the earlier file, and describes it; does nothing if there is a final variant.
    pub fn give_back(&mut self) -> Result<String> {
        let shown = self.binary.display().to_string();
        if std::mem::replace(&mut self.is_settled, true) {
            return Ok(shown);
        }
        if let Some(before) = self.before.take() {
            // A build of another tree may have removed its folder.
            before.parent().map_or(Ok(()), fs::create_dir_all)?;
            self.binary = before;
            self.settle(BEFORE)?;
            return Ok(format!("{} is as it was before", self.binary.display()));
        }
        if self.has_baseline {
            self.settle(BASELINE)?;
            return Ok(format!("{shown} is the baseline, built without a profile"));
        }
        // An error here means that there is no file, as intended.
        let _ = fs::remove_file(&self.binary);
        Ok(format!("there is no {shown}, as before"))
    }

    fn replace(&self, variant: &str, make: fn(&Path, &Path) -> std::io::Result<()>) -> Result<()> {
        let Some(name) = self.binary.file_name() else { bail!("{} is not a file", self.binary.display()) };
        let new = self.binary.with_file_name(format!(".{}.corewise-new", name.display()));
        let _ = fs::remove_file(&new);
        make(&self.dir.join(variant), &new)
            .and_then(|()| fs::rename(&new, &self.binary))
            .with_context(|| format!("cannot put {variant} at {}", self.binary.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Only after a panic, which the user sees.
        let _ = self.give_back();
    }
}

/// Copies a file. A link to it would change with it.
fn keep(file: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_file(to);
    fs::copy(file, to)
        .with_context(|| format!("cannot copy {} to {}", file.display(), to.display()))
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new(before: Option<&str>) -> Folder {
            let folder = Folder(tempfile::tempdir().unwrap());
            fs::create_dir(folder.0.path().join("variants")).unwrap();
            if let Some(before) = before {
                fs::write(folder.binary(), before).unwrap();
            }
            folder
        }

        fn binary(&self) -> PathBuf {
            self.0.path().join("prog")
        }

        fn place(&self) -> Place {
            Place::new(self.binary(), self.0.path().join("variants")).unwrap()
        }

        /// Writes the file anew or in place, like a linker.
        fn build(&self, place: &mut Place, variant: &'static str) {
            fs::write(self.binary(), variant).unwrap();
            place.take(variant).unwrap();
        }

        fn read(&self) -> String {
            fs::read_to_string(self.binary()).unwrap()
        }
    }

    #[test]
    fn variants_take_turns_and_one_stays_as_a_file_of_its_own() {
        let folder = Folder::new(Some("before"));
        let mut place = folder.place();
        folder.build(&mut place, "baseline");
        folder.build(&mut place, "sample");
        assert!(!place.are_same("baseline", "sample").unwrap());
        for variant in ["baseline", "sample"] {
            place.put(variant).unwrap();
            assert_eq!(folder.read(), variant);
        }
        place.settle("baseline").unwrap();
        drop(place);
        assert_eq!(folder.read(), "baseline");
        fs::write(folder.binary(), "by its owner").unwrap();
        assert_eq!(fs::read_to_string(folder.0.path().join("variants/baseline")).unwrap(), "baseline");
        assert_eq!(folder.0.path().read_dir().unwrap().count(), 2);
    }

    #[test]
    fn what_lay_there_before_comes_back() {
        let folder = Folder::new(Some("the user's"));
        let mut place = folder.place();
        folder.build(&mut place, "baseline");
        fs::write(folder.binary(), "half a sam").unwrap();
        assert!(place.give_back().unwrap().ends_with("as it was before"));
        assert_eq!(folder.read(), "the user's");

        let folder = Folder::new(Some("the user's"));
        let place = folder.place();
        fs::remove_file(folder.binary()).unwrap();
        drop(place);
        assert_eq!(folder.read(), "the user's");
    }

    #[test]
    fn where_nothing_lay_the_baseline_stays_or_nothing_does() {
        let folder = Folder::new(None);
        let mut place = folder.place();
        folder.build(&mut place, "baseline");
        folder.build(&mut place, "sample");
        assert!(place.give_back().unwrap().contains("is the baseline"));
        assert_eq!(folder.read(), "baseline");

        let folder = Folder::new(None);
        let place = folder.place();
        fs::write(folder.binary(), "half a base").unwrap();
        drop(place);
        assert!(!folder.binary().exists());
    }
}
