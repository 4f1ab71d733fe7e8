//! The profile store: the recordings of `corewise pgo record` of programs that always run.
//!
//! A folder with one folder for each build, named by its build id, which contains one recording for each
//! period and recorder: `BUILD-ID/SECONDS-PID.cwp`, where SECONDS is the beginning of the period since 1970.
//! Each file is written whole or not at all, so the end of a recorder loses its current period and no more.
//! Old files are removed, then the oldest ones until the rest fits the size limit.

use super::build_id::how_to_get_build_id;
use super::file;
use crate::whole_file;
use anyhow::{Context, Result, bail};
use corewise_code::elf::ElfFile;
use corewise_paths::by_build::{Builds, OfBuild};
use corewise_paths::window::BranchRecording;
use corewise_render::terminal::Name;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The maximum number of windows for a profile of a store: more gain nothing.
const PROFILE_WINDOWS_MAX: usize = 50_000;
/// The maximum number of hexadecimal digits of a build id: linkers use 16 to 64.
const BUILD_ID_MAX: usize = 128;
/// The number of builds that an error lists.
const LISTED: usize = 20;
/// A file that was begun longer ago will not be finished.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A store.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
}

/// A recording in a store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Stored {
    /// When its period began, in seconds since 1970.
    begun: u64,
    file: PathBuf,
    bytes: u64,
}

/// The limits of a store.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum age of a recording.
    pub age: Duration,
    /// The maximum size of all recordings, in bytes.
    pub bytes: u64,
}

impl Store {
    /// Returns `$XDG_STATE_HOME/corewise/profiles`, else the same below `~/.local/state`.
    pub fn default_folder() -> Result<PathBuf> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        let state = state.context("neither XDG_STATE_HOME nor HOME is set: name a store with --store DIR")?;
        Ok(state.join("corewise/profiles"))
    }

    /// Opens a store for writing, and creates it if there is none. Only its owner may read a new one.
    pub fn create(folder: PathBuf) -> Result<Store> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("cannot make the profile store {}", folder.display()))?;
        whole_file::check_writable(&folder.join("0.cwp"))?;
        Ok(Store { folder })
    }

    /// Adds the recording of a build. Returns `false` if a store cannot use its build id as a name.
    pub fn put(&self, build: &OfBuild, begun: SystemTime) -> Result<bool> {
        let id = &build.build_id;
        // Programs choose their own build ids, and one might name another folder.
        if !is_build_id(id) {
            return Ok(false);
        }
        let folder = self.folder.join(id);
        let path = folder.join(format!("{}-{}.cwp", seconds(begun), std::process::id()));
        let write = || {
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            file::write(&path, &build.recording)
        };
        // Another recorder may have removed the folder in between, because it was empty.
        write().or_else(|_| write()).map(|()| true)
    }

    /// Removes recordings that are too old or too many; returns their number.
    pub fn prune(&self, limits: Limits, now: SystemTime) -> usize {
        let mut all: Vec<Stored> = self.builds().iter().flat_map(|id| self.recordings_of(id)).collect();
        all.sort();
        let mut bytes: u64 = all.iter().map(|stored| stored.bytes).sum();
        let oldest = seconds(now).saturating_sub(limits.age.as_secs());
        let mut removed = 0;
        for stored in all {
            if stored.begun >= oldest && bytes <= limits.bytes {
                break;
            }
            bytes -= stored.bytes;
            // Another recorder may have removed it first.
            removed += usize::from(fs::remove_file(&stored.file).is_ok());
        }
        for id in self.builds() {
            self.remove_abandoned(&self.folder.join(&id), now);
            // This removes empty folders only.
            let _ = fs::remove_dir(self.folder.join(id));
        }
        self.remove_abandoned(&self.folder, now);
        removed
    }

    /// Removes files that a killed recorder has begun.
    fn remove_abandoned(&self, folder: &Path, now: SystemTime) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_begun = entry.file_name().as_encoded_bytes().starts_with(whole_file::BEGUN.as_bytes());
            let changed = entry.metadata().and_then(|metadata| metadata.modified()).ok();
            let age = changed.and_then(|changed| now.duration_since(changed).ok());
            if is_begun && age.is_some_and(|age| age > ABANDONED) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Returns the build ids, sorted.
    fn builds(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut builds: Vec<String> = names.filter(|name| is_build_id(name)).collect();
        builds.sort_unstable();
        builds
    }

    /// Returns the recordings of a build, in order of time.
    fn recordings_of(&self, build_id: &str) -> Vec<Stored> {
        let entries = fs::read_dir(self.folder.join(build_id)).into_iter().flatten().flatten();
        let stored = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let (begun, _) = name.strip_suffix(".cwp")?.split_once('-')?;
            let bytes = entry.metadata().ok()?.len();
            Some(Stored { begun: begun.parse().ok()?, file: entry.path(), bytes })
        };
        let mut recordings: Vec<Stored> = entries.filter_map(stored).collect();
        recordings.sort();
        recordings
    }

    /// Returns the path that a build had in its latest recording.
    fn path_of(&self, build_id: &str) -> Option<String> {
        let last = self.recordings_of(build_id).pop()?;
        let recording = file::read_recording(&last.file).ok()?;
        let mut modules = recording.modules.into_iter();
        modules.find(|module| module.build_id.as_deref() == Some(build_id)).map(|module| module.path)
    }

    /// Returns one recording of all windows of a build. Unreadable files are left out, and reported to
    /// `warn`.
    fn recording_of(&self, build_id: &str, warn: &mut dyn FnMut(String)) -> Option<BranchRecording> {
        let mut builds = Builds::only(build_id, PROFILE_WINDOWS_MAX, 0);
        for stored in self.recordings_of(build_id) {
            match file::read_recording(&stored.file) {
                Ok(recording) => builds.add(recording),
                Err(error) => warn(format!("{error:#}: this recording is left out")),
            }
        }
        builds.finish().pop().map(|build| build.recording)
    }

    /// Returns one recording of all windows of the present file, and reports other builds of it.
    fn of_file(&self, path: &Path, warn: &mut dyn FnMut(String)) -> Result<BranchRecording> {
        let elf = ElfFile::open(path)?;
        let Some(build_id) = elf.build_id() else {
            let how = how_to_get_build_id(&elf);
            bail!("{} has no build id, which a store needs: {how}", path.display())
        };
        let others: Vec<String> = self.builds().into_iter().filter(|other| other != build_id).collect();
        let same_name = |id: &&String| {
            self.path_of(id).is_some_and(|other| Path::new(&other).file_name() == path.file_name())
        };
        let count = others.iter().filter(same_name).count();
        let recording = self.recording_of(build_id, warn);
        let Some(recording) = recording else {
            bail!(
                "the store {} has no recording of {} as it is now (build id {build_id}){}",
                self.folder.display(),
                path.display(),
                if count > 0 { format!(", but of {count} other builds of it") } else { self.listed() }
            )
        };
        if count > 0 {
            warn(format!(
                "the store has recordings of {count} other builds of {}, too: they do not match it and are \
                 left out",
                path.display()
            ));
        }
        Ok(recording)
    }

    /// Lists the builds, for an error.
    fn listed(&self) -> String {
        let builds = self.builds();
        if builds.is_empty() {
            return "; it is empty".to_owned();
        }
        let path = |id: &String| {
            let path = self.path_of(id).unwrap_or_else(|| "?".to_owned());
            format!("{} ({id})", Name(&path))
        };
        let more = if builds.len() > LISTED { " and more" } else { "" };
        format!("; it has: {}{more}", builds.iter().take(LISTED).map(path).collect::<Vec<_>>().join(", "))
    }
}

/// Returns one recording of all these files. From a folder, which is a store, it takes the recordings of
/// `binary`. `warn` receives what is left out.
pub fn read_all(
    files: &[PathBuf],
    binary: Option<&Path>,
    warn: &mut dyn FnMut(String),
) -> Result<Option<BranchRecording>> {
    let read = |file: &PathBuf| {
        if !file.is_dir() {
            return file::read_recording(file);
        }
        let store = Store { folder: file.clone() };
        match binary {
            Some(binary) => store.of_file(binary, warn),
            None => bail!(
                "{} is a profile store: say with --module PATH which program is wanted{}",
                file.display(),
                store.listed()
            ),
        }
    };
    corewise_paths::modules::merged(files.iter().map(read))
}

fn is_build_id(text: &str) -> bool {
    let is_digit = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    (2..=BUILD_ID_MAX).contains(&text.len()) && text.bytes().all(is_digit)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_paths::window::{End, Location, Module, ModuleId, Window};

    fn of_build(build_id: &str, windows: usize) -> OfBuild {
        let at = Location { module: ModuleId(0), address: 16 };
        let window = Window {
            tid: 1,
            time_ns: 0,
            start: at,
            transfers: Vec::new(),
            end: at,
            instructions: None,
            branches: None,
            ended: End::Full,
            period_ns: None,
        };
        let modules = vec![Module { path: "/opt/prog".to_owned(), build_id: Some(build_id.to_owned()) }];
        let (version, windows) = (BranchRecording::VERSION, vec![window; windows]);
        let recording = BranchRecording { version, modules, windows, ..BranchRecording::default() };
        OfBuild { build_id: build_id.to_owned(), recording }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn begun(store: &Store, id: &str) -> Vec<u64> {
        store.recordings_of(id).iter().map(|stored| stored.begun).collect()
    }

    #[test]
    fn the_old_go_then_the_oldest_until_the_rest_fits() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path().join("store")).unwrap();
        for time in [1000, 2000, 3000, 4000] {
            assert!(store.put(&of_build("aa01", 1), at(time)).unwrap());
        }
        assert!(store.put(&of_build("bb02", 1), at(1500)).unwrap());
        let limits = |age, bytes| Limits { age: Duration::from_secs(age), bytes };
        assert_eq!(store.prune(limits(10_000, u64::MAX), at(5000)), 0);
        assert_eq!(store.prune(limits(2500, u64::MAX), at(5000)), 3);
        assert_eq!(begun(&store, "aa01"), [3000, 4000]);
        assert_eq!(store.builds(), ["aa01"], "an empty folder is removed");
        let bytes = store.recordings_of("aa01")[1].bytes;
        assert_eq!(store.prune(limits(10_000, bytes), at(5000)), 1);
        assert_eq!(begun(&store, "aa01"), [4000]);
    }

    #[test]
    fn a_program_cannot_choose_where_it_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path().join("store")).unwrap();
        for id in ["../../etc", "", "a", "AA01", &"ab".repeat(100)] {
            assert!(!store.put(&of_build(id, 1), at(1)).unwrap(), "{id}");
        }
        assert_eq!(folder.path().join("store").read_dir().unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_recorder_has_begun_is_removed_and_no_recording_of_its_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path().join("store")).unwrap();
        store.put(&of_build("aa01", 2), at(1000)).unwrap();
        let begun_file = folder.path().join("store/aa01/.corewise-half");
        fs::write(&begun_file, "half a recor").unwrap();
        let half = folder.path().join("store/aa01/2000-1.cwp");
        fs::write(&half, "half a recor").unwrap();
        let mut warnings = Vec::new();
        let recording = store.recording_of("aa01", &mut |words| warnings.push(words)).unwrap();
        assert_eq!((recording.windows.len(), warnings.len()), (2, 1), "{warnings:?}");
        let limits = Limits { age: Duration::MAX, bytes: u64::MAX };
        store.prune(limits, SystemTime::now());
        assert!(begun_file.exists(), "it may still be in use");
        store.prune(limits, SystemTime::now() + 2 * ABANDONED);
        assert!(!begun_file.exists() && half.exists());
    }
}
