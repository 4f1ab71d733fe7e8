//! One numbering of modules for several recordings.

use crate::window::{BranchRecording, Module, ModuleId, Transfer, Window};

/// Modules in the order of their first occurrence. Two are the same if they have the same build id, wherever
/// they are on their machines; without one, if they have the same path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModuleTable {
    modules: Vec<Module>,
}

impl ModuleTable {
    /// The modules by their number here.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Returns the number of a module, which is added if it is new.
    pub fn id(&mut self, module: &Module) -> ModuleId {
        let is_it = |known: &Module| match (&known.build_id, &module.build_id) {
            (None, None) => known.path == module.path,
            (known, here) => known == here,
        };
        let known = self.modules.iter().position(is_it);
        let index = known.unwrap_or_else(|| {
            self.modules.push(module.clone());
            self.modules.len() - 1
        });
        ModuleId(index as u32)
    }

    /// Renumbers a recording's modules. Locations of modules that the recording does not list (because it is
    /// damaged) get an unused number.
    pub fn adopt(&mut self, recording: &mut BranchRecording) {
        let ids: Vec<ModuleId> = recording.modules.iter().map(|module| self.id(module)).collect();
        renumber(&mut recording.windows, |id| ids.get(id.0 as usize).copied().unwrap_or(ModuleId(u32::MAX)));
        recording.modules.clone_from(&self.modules);
    }
}

impl BranchRecording {
    /// Drops the modules that contain no window.
    pub(crate) fn forget_unused_modules(&mut self) {
        let mut used = ModuleTable::default();
        let BranchRecording { modules, windows, .. } = self;
        renumber(windows, |id| {
            modules.get(id.0 as usize).map_or(ModuleId(u32::MAX), |module| used.id(module))
        });
        *modules = used.modules;
    }
}

/// Renumbers the modules of all locations.
fn renumber(windows: &mut [Window], mut number: impl FnMut(ModuleId) -> ModuleId) {
    for Window { start, transfers, end, .. } in windows {
        let places = transfers.iter_mut().flat_map(|Transfer { from, to }| [from, to]);
        [start, end].into_iter().chain(places).for_each(|at| at.module = number(at.module));
    }
}

/// Merges recordings into one, with the windows of all in the order of their time. Command, sampler and rate
/// are the first's; if the rates differ, each window has its own. `None` without recordings. Only one of them
/// is in memory beside the result; the first error ends it.
pub fn merged<E>(
    recordings: impl IntoIterator<Item = Result<BranchRecording, E>>,
) -> Result<Option<BranchRecording>, E> {
    let mut table = ModuleTable::default();
    let mut recordings = recordings.into_iter();
    let Some(first) = recordings.next() else { return Ok(None) };
    let mut all = first?;
    table.adopt(&mut all);
    for next in recordings {
        let mut next = next?;
        table.adopt(&mut next);
        if next.period_ns != all.period_ns || next.windows.iter().any(|window| window.period_ns.is_some()) {
            all.name_periods();
            next.name_periods();
        }
        all.windows.append(&mut next.windows);
        all.branches_max = all.branches_max.max(next.branches_max);
        for (reason, count) in next.without_window {
            *all.without_window.entry(reason).or_default() += count;
        }
        let is_new = |note: &String| !all.notes.contains(note);
        let new: Vec<String> = next.notes.into_iter().filter(is_new).collect();
        all.notes.extend(new);
    }
    all.modules = table.modules;
    all.windows.sort_by_key(|window| window.time_ns);
    Ok(Some(all))
}

/// Drops the windows that touch one of these modules; returns their number.
pub fn leave_out(recording: &mut BranchRecording, modules: &[ModuleId]) -> usize {
    let before = recording.windows.len();
    recording.windows.retain(|window| {
        let ends = window.transfers.iter().flat_map(|transfer| [transfer.from, transfer.to]);
        ends.chain([window.start, window.end]).all(|location| !modules.contains(&location.module))
    });
    before - recording.windows.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{End, Location};

    fn all_of<const N: usize>(recordings: [BranchRecording; N]) -> BranchRecording {
        merged(recordings.map(Ok::<_, ()>)).unwrap().unwrap()
    }

    fn recording(paths: &[&str]) -> BranchRecording {
        let module = |path: &&str| Module { path: (*path).to_owned(), build_id: None };
        let at = |module| Location { module: ModuleId(module), address: 16 };
        let transfers = vec![Transfer { from: at(0), to: at(1) }];
        let (tid, time_ns, instructions, branches, period_ns) = (1, 0, None, None, None);
        let (start, end, ended) = (at(0), at(7), End::Full);
        let window = Window { tid, time_ns, start, transfers, end, instructions, branches, ended, period_ns };
        let modules = paths.iter().map(module).collect();
        BranchRecording { modules, windows: vec![window], ..BranchRecording::default() }
    }

    #[test]
    fn recordings_add_up() {
        let mut late = recording(&["/b", "/c"]);
        late.windows[0].time_ns = 9;
        late.without_window.insert("lost".to_owned(), 2);
        late.notes.push("by root".to_owned());
        let all = all_of([late.clone(), recording(&["/a", "/b"]), late]);
        assert_eq!(all.modules.iter().map(|module| &*module.path).collect::<Vec<_>>(), ["/b", "/c", "/a"]);
        let starts: Vec<u32> = all.windows.iter().map(|window| window.start.module.0).collect();
        assert_eq!(starts, [2, 0, 0]);
        assert_eq!(all.without_window["lost"], 4);
        assert_eq!(all.notes, ["by root"]);
        assert_eq!(merged([]), Ok::<_, ()>(None));
        assert_eq!(merged([Ok(BranchRecording::default()), Err("unreadable")]), Err("unreadable"));
    }

    #[test]
    fn where_rates_differ_each_window_has_its_own() {
        let at_rate = |period_ns| BranchRecording { period_ns, ..recording(&["/a"]) };
        let periods = |all: BranchRecording| all.windows.iter().map(|w| w.period_ns).collect::<Vec<_>>();
        assert_eq!(periods(all_of([at_rate(5), at_rate(5)])), [None, None]);
        let both = all_of([at_rate(5), at_rate(20)]);
        assert_eq!(periods(both.clone()), [Some(5), Some(20)]);
        assert_eq!(periods(all_of([at_rate(5), both])), [Some(5), Some(5), Some(20)]);
    }

    #[test]
    fn a_build_is_the_same_wherever_it_lies_and_another_one_is_not() {
        let build = |path: &str, build_id: &str| {
            let mut recording = recording(&[path, "/b"]);
            recording.modules[0].build_id = Some(build_id.to_owned());
            recording
        };
        let mut all = all_of([build("/a", "aa01"), build("/other/a", "aa01"), build("/a", "bb02")]);
        let builds: Vec<_> = all.modules.iter().map(|module| (&*module.path, &module.build_id)).collect();
        let (old, new) = (Some("aa01".to_owned()), Some("bb02".to_owned()));
        assert_eq!(builds, [("/a", &old), ("/b", &None), ("/a", &new)]);
        assert_eq!(leave_out(&mut all, &[ModuleId(0)]), 2);
        assert_eq!(all.windows.len(), 1);
        assert_eq!(all.windows[0].start.module, ModuleId(2));
    }

    #[test]
    fn the_same_file_gets_the_same_number_in_every_recording() {
        let mut table = ModuleTable::default();
        let (mut one, mut other) = (recording(&["/a", "/b"]), recording(&["/b", "/c"]));
        table.adopt(&mut one);
        table.adopt(&mut other);
        let numbers = |window: &Window| {
            [window.start, window.transfers[0].from, window.transfers[0].to].map(|at| at.module.0)
        };
        assert_eq!(numbers(&one.windows[0]), [0, 0, 1]);
        assert_eq!(numbers(&other.windows[0]), [1, 1, 2]);
        assert_eq!(other.windows[0].end.module.0, u32::MAX);
        assert_eq!(other.modules.iter().map(|module| &*module.path).collect::<Vec<_>>(), ["/a", "/b", "/c"]);
    }
}
