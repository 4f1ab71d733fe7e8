//! Windows sorted by the builds that they touch, for a recording that runs for days.
//!
//! Problem: a program that always runs gives more windows than any profile needs, and a machine runs many
//! programs. Approach: each build (a file with a build id) has a recording of its own, with a bounded number
//! of the windows that touch it. Once a recording is full, a random half of its windows is dropped, and from
//! then on it takes a random half of the new ones. It remains a fair sample of its whole time, at half the
//! rate, which its period shows.
//!
//! A window that touches two builds is in both recordings, so that each is complete by itself. Merged they
//! would count it twice, so a profile is made of the recordings of one build only. Files without a build id
//! cannot be identified later, and have no recording. Recordings of different rates may be added: each window
//! then has its own period.

use crate::modules::ModuleTable;
use crate::window::{BranchRecording, Module, ModuleId, Transfer, Window};
use corewise_core::random::Random;
use std::collections::{BTreeMap, BTreeSet};

/// The recordings of the builds.
pub struct Builds {
    windows_max: usize,
    /// The one wanted build; `None` means all.
    only: Option<String>,
    random: Random,
    table: ModuleTable,
    builds: BTreeMap<ModuleId, Build>,
    /// The number of windows that touch no file with a build id, or not the wanted one.
    without_build: usize,
    /// What all recordings have in common: the first one, without its windows.
    like: Option<BranchRecording>,
}

/// The windows of one build, each of which represents several.
struct Build {
    windows: Vec<Window>,
    one_in: u64,
}

/// The recording of a build.
#[derive(Debug, Clone, PartialEq)]
pub struct OfBuild {
    /// The build id.
    pub build_id: String,
    /// Its windows.
    pub recording: BranchRecording,
}

impl Builds {
    /// Makes an empty collection; `windows_max` windows of each build are kept, chosen at random from `seed`.
    pub fn new(windows_max: usize, seed: u64) -> Builds {
        Builds {
            windows_max: windows_max.max(2),
            only: None,
            random: Random::new(seed, 0),
            table: ModuleTable::default(),
            builds: BTreeMap::new(),
            without_build: 0,
            like: None,
        }
    }

    /// Makes an empty collection for one build.
    pub fn only(build_id: &str, windows_max: usize, seed: u64) -> Builds {
        Builds { only: Some(build_id.to_owned()), ..Builds::new(windows_max, seed) }
    }

    /// Adds the windows of a recording.
    pub fn add(&mut self, mut recording: BranchRecording) {
        self.table.adopt(&mut recording);
        let like = self.like.get_or_insert_with(|| {
            let windows = std::mem::take(&mut recording.windows);
            let like = recording.clone();
            recording.windows = windows;
            like
        });
        if recording.period_ns != like.period_ns {
            recording.name_periods();
        }
        for window in recording.windows {
            let known = |module: &ModuleId| {
                let module: Option<&Module> = self.table.modules().get(module.0 as usize);
                let build_id = module.and_then(|module| module.build_id.as_ref());
                build_id.is_some_and(|id| self.only.as_ref().is_none_or(|only| only == id))
            };
            let touched: Vec<ModuleId> = modules_of(&window).into_iter().filter(known).collect();
            self.without_build += usize::from(touched.is_empty());
            for module in touched {
                let new = || Build { windows: Vec::new(), one_in: 1 };
                let build = self.builds.entry(module).or_insert_with(new);
                build.add(window.clone(), self.windows_max, &mut self.random);
            }
        }
    }

    /// Returns the largest number of windows of a build.
    pub fn windows(&self) -> usize {
        self.builds.values().map(|build| build.windows.len()).max().unwrap_or(0)
    }

    /// Returns the number of windows so far that touched no file with a build id, or not the wanted one.
    pub fn without_build(&self) -> usize {
        self.without_build
    }

    /// Returns the recordings of each build.
    pub fn finish(self) -> Vec<OfBuild> {
        let Builds { table, builds, like, .. } = self;
        let Some(like) = like else { return Vec::new() };
        let of_build = |(module, Build { windows, one_in }): (ModuleId, Build)| {
            let build_id = table.modules().get(module.0 as usize)?.build_id.clone()?;
            let mut recording = BranchRecording {
                version: BranchRecording::VERSION,
                command: like.command.clone(),
                backend: like.backend.clone(),
                period_ns: like.period_ns,
                branches_max: like.branches_max,
                modules: table.modules().to_vec(),
                windows,
                without_window: BTreeMap::new(),
                notes: Vec::new(),
            };
            recording.forget_unused_modules();
            recording.stand_for(one_in);
            Some(OfBuild { build_id, recording })
        };
        builds.into_iter().filter_map(of_build).collect()
    }
}

impl Build {
    fn add(&mut self, window: Window, windows_max: usize, random: &mut Random) {
        if random.unit() * self.one_in as f64 >= 1.0 {
            return;
        }
        self.windows.push(window);
        if self.windows.len() > windows_max {
            self.one_in *= 2;
            self.windows.retain(|_| random.unit() < 0.5);
        }
    }
}

/// Returns the modules that contain a window's instructions.
fn modules_of(window: &Window) -> BTreeSet<ModuleId> {
    let ends = window.transfers.iter().flat_map(|Transfer { from, to }| [from, to]);
    ends.chain([&window.start]).map(|location| location.module).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture;

    fn kept(windows_max: usize, recordings: impl IntoIterator<Item = BranchRecording>) -> Vec<OfBuild> {
        let mut builds = Builds::new(windows_max, 1);
        recordings.into_iter().for_each(|recording| builds.add(recording));
        builds.finish()
    }

    #[test]
    fn each_build_has_the_windows_that_touch_it() {
        let only_executable = fixture::recording(vec![fixture::window(0x1100, &[], 0x1104, (1, 0))]);
        let kept = kept(1000, [only_executable, fixture::two_modules()]);
        let ids: Vec<&str> = kept.iter().map(|build| &*build.build_id).collect();
        assert_eq!(ids, ["aa01", "bb02"]);
        let windows: Vec<usize> = kept.iter().map(|build| build.recording.windows.len()).collect();
        assert_eq!(windows, [4, 2]);
        let library = &kept[1].recording;
        assert_eq!(library.modules.len(), 2, "its windows are in the executable, too");
        assert_eq!(library.period_ns, 10_000_000);
    }

    #[test]
    fn nothing_is_kept_of_builds_that_are_not_wanted() {
        let mut builds = Builds::only("bb02", 1000, 1);
        builds.add(fixture::two_modules());
        assert_eq!((builds.builds.len(), builds.windows()), (1, 2));
        let all = kept(1000, [fixture::two_modules()]);
        assert_eq!(builds.finish(), all[1..]);
    }

    #[test]
    fn a_full_recording_takes_fewer_windows_and_says_so() {
        let one = || fixture::recording(vec![fixture::window(0x1100, &[], 0x1104, (1, 0))]);
        let kept = kept(100, (0..1600).map(|_| one()));
        let BranchRecording { windows, period_ns, modules, .. } = &kept[0].recording;
        assert!((40..=100).contains(&windows.len()), "{}", windows.len());
        let stands_for = windows.len() as u64 * period_ns / 10_000_000;
        assert!((1000..=2400).contains(&stands_for), "{stands_for} of 1600");
        assert_eq!(modules.len(), 1, "the library is not touched");
    }

    #[test]
    fn rates_may_differ() {
        let at_rate = |period_ns| BranchRecording { period_ns, ..fixture::two_modules() };
        let kept = kept(1000, [at_rate(10), at_rate(50)]);
        let periods: Vec<_> = kept[1].recording.windows.iter().map(|window| window.period_ns).collect();
        assert_eq!(periods, [Some(10), Some(10), Some(50), Some(50)]);
        let thinned = super::tests::kept(2, [at_rate(10), at_rate(50)]);
        let all = thinned[0].recording.windows.iter().filter_map(|window| window.period_ns);
        assert!(all.into_iter().all(|period| period >= 20), "{thinned:?}");
    }

    #[test]
    fn windows_of_files_without_a_build_id_are_counted_only() {
        let mut recording = fixture::two_modules();
        recording.modules[0].build_id = None;
        let mut builds = Builds::new(100, 1);
        builds.add(recording);
        assert_eq!(builds.without_build(), 1);
        assert_eq!(builds.finish().len(), 1);
    }
}
