//! The place of the program, which its variants occupy alternately.
//!
//! Runs name the program by its path, and so may scripts that they call, so each variant is put there before
//! it runs. Whatever happens, a finished program is there at the end: the chosen variant, or the file from
//! before the first build. If there was none, it is the baseline once that is built, else nothing, because a
//! build that was ended half-way may have left a file that looks complete.
//!
//! The file from before is renamed, aside and back, and never copied: a full disk cannot take it. So the
//! folder of the variants must be on its file system.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The variant without a profile.
pub const BASELINE: &str = "baseline";

/// The name of the earlier file while its place is taken.
const ASIDE: &str = "aside";
/// Its name once another one has its place for good.
const BEFORE: &str = "before";

/// The file that is built, and the folder of the variants.
#[derive(Debug)]
pub struct Place {
    binary: PathBuf,
    dir: PathBuf,
    state: State,
}

/// What lies in the place.
#[derive(Debug)]
enum State {
    /// The file from before, or none.
    Untouched,
    /// What builds make; the earlier file lay at this path.
    Taken { before: Option<PathBuf>, has_baseline: bool },
    /// The final file.
    Settled,
}

impl Place {
    /// The place of a program; nothing is changed yet. Fails if the earlier file of another run is still
    /// aside, because that run was killed.
    pub fn new(binary: PathBuf, dir: PathBuf) -> Result<Place> {
        let aside = dir.join(ASIDE);
        if aside.exists() {
            bail!(
                "{} is the program from before a run that was killed: put it back, or remove it",
                aside.display()
            );
        }
        Ok(Place { binary, dir, state: State::Untouched })
    }

    /// Sets the present file aside for the time of the work; returns its name there, if there is a file.
    pub fn set_aside(&mut self) -> Result<Option<PathBuf>> {
        // The file itself, if a link leads to it. Usually there is none yet.
        let before = self.binary.canonicalize().ok();
        let aside = self.dir.join(ASIDE);
        if let Some(before) = &before {
            fs::rename(before, &aside).with_context(|| cannot_set_aside(before, &aside))?;
        }
        let is_aside = before.is_some();
        self.state = State::Taken { before, has_baseline: false };
        Ok(is_aside.then_some(aside))
    }

    /// Sets where the build has put the program: the file that the given name leads to.
    pub fn is_at(&mut self, binary: &Path) {
        binary.clone_into(&mut self.binary);
    }

    /// Stores the program that was just built as a variant. (A link to it would change with it.)
    pub fn take(&mut self, variant: &'static str) -> Result<()> {
        let to = self.dir.join(variant);
        whole(&to, |to| fs::copy(&self.binary, to).map(drop))
            .with_context(|| format!("cannot copy {} to {}", self.binary.display(), to.display()))?;
        if let State::Taken { has_baseline, .. } = &mut self.state {
            *has_baseline |= variant == BASELINE;
        }
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

    /// Puts the final variant in the place, as a file of its own: the variant itself, if there is no room for
    /// another one.
    pub fn settle(&mut self, variant: &str) -> Result<()> {
        self.replace(variant, |from, to| fs::copy(from, to).map(drop).or_else(|_| fs::rename(from, to)))?;
        let had = std::mem::replace(&mut self.state, State::Settled);
        if let State::Taken { before: Some(_), .. } = had {
            let (aside, before) = (self.dir.join(ASIDE), self.dir.join(BEFORE));
            fs::rename(&aside, &before)
                .with_context(|| format!("the program from before is still {}", aside.display()))?;
        }
        Ok(())
    }

    /// Restores the earlier file, and describes what lies in the place now; does nothing if that is a final
    /// variant.
    pub fn give_back(&mut self) -> Result<String> {
        let shown = self.binary.display().to_string();
        match std::mem::replace(&mut self.state, State::Settled) {
            State::Untouched => Ok(format!("{shown} is as it was before")),
            State::Settled => Ok(shown),
            State::Taken { before: Some(before), .. } => {
                let aside = self.dir.join(ASIDE);
                // A build of another tree may have removed its folder.
                let folder = before.parent().map_or(Ok(()), fs::create_dir_all);
                folder.and_then(|()| fs::rename(&aside, &before)).with_context(|| {
                    let (before, aside) = (before.display(), aside.display());
                    format!("cannot put back {before} as it was before: it is {aside} now")
                })?;
                Ok(format!("{} is as it was before", before.display()))
            }
            State::Taken { before: None, has_baseline: true } => {
                self.settle(BASELINE)?;
                Ok(format!("{shown} is the baseline, built without a profile"))
            }
            State::Taken { before: None, has_baseline: false } => {
                // An error here means that there is no file, as intended.
                let _ = fs::remove_file(&self.binary);
                Ok(format!("there is no {shown}, as before"))
            }
        }
    }

    fn replace(&self, variant: &str, make: fn(&Path, &Path) -> std::io::Result<()>) -> Result<()> {
        let Some(name) = self.binary.file_name() else { bail!("{} is not a file", self.binary.display()) };
        let new = self.binary.with_file_name(format!(".{}.corewise-new", name.display()));
        whole(&new, |new| make(&self.dir.join(variant), new))
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

/// Makes a file anew, or leaves none: a part of one would only fill the disk.
fn whole(file: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    let _ = fs::remove_file(file);
    make(file).inspect_err(|_| drop(fs::remove_file(file)))
}

fn cannot_set_aside(file: &Path, aside: &Path) -> String {
    format!(
        "cannot move {} to {}: name a folder with --dir that can be written, on the same file system",
        file.display(),
        aside.display()
    )
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
            let mut place = Place::new(self.binary(), self.0.path().join("variants")).unwrap();
            assert_eq!(place.set_aside().unwrap().is_some(), !self.binary().exists() && self.has("aside"));
            place
        }

        fn has(&self, variant: &str) -> bool {
            self.0.path().join("variants").join(variant).exists()
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
    fn variants_run_in_turn_and_one_stays_as_a_file_of_its_own() {
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
        assert!(folder.has("before") && !folder.has("aside"));
        assert_eq!(folder.read(), "baseline");
        fs::write(folder.binary(), "by its owner").unwrap();
        assert_eq!(fs::read_to_string(folder.0.path().join("variants/baseline")).unwrap(), "baseline");
        assert_eq!(folder.0.path().read_dir().unwrap().count(), 2);
    }

    #[test]
    fn an_earlier_file_comes_back() {
        let folder = Folder::new(Some("the user's"));
        let mut place = folder.place();
        folder.build(&mut place, "baseline");
        fs::write(folder.binary(), "half a sam").unwrap();
        assert!(place.give_back().unwrap().ends_with("as it was before"));
        assert_eq!(folder.read(), "the user's");

        let folder = Folder::new(Some("the user's"));
        let place = folder.place();
        assert!(!folder.binary().exists(), "it is renamed, so that a full disk can take it");
        drop(place);
        assert_eq!(folder.read(), "the user's");
        assert!(!folder.has("aside") && !folder.has("before"));
    }

    #[test]
    fn what_is_not_touched_stays_and_what_a_killed_run_has_left_is_not_overwritten() {
        let folder = Folder::new(Some("the user's"));
        let place = || Place::new(folder.binary(), folder.0.path().join("variants"));
        assert!(place().unwrap().give_back().unwrap().ends_with("as it was before"));
        assert_eq!(folder.read(), "the user's");
        std::mem::forget(folder.place());
        fs::write(folder.binary(), "half a base").unwrap();
        let error = place().unwrap_err().to_string();
        assert!(error.contains("variants/aside") && error.contains("put it back"), "{error}");
    }

    #[test]
    fn where_there_is_no_way_back_nothing_begins_and_a_message_names_the_file() {
        let folder = Folder::new(Some("the user's"));
        let mut place = Place::new(folder.binary(), "/proc/self".into()).unwrap();
        let error = format!("{:#}", place.set_aside().unwrap_err());
        assert!(error.contains("--dir") && error.contains("same file system"), "{error}");
        assert_eq!(folder.read(), "the user's");
        let mut place = folder.place();
        fs::create_dir(folder.binary()).unwrap();
        fs::write(folder.binary().join("a file"), "").unwrap();
        let error = format!("{:#}", place.give_back().unwrap_err());
        assert!(error.contains("variants/aside"), "{error}");
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
