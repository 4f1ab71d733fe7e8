//! One numbering of modules for recordings that have each their own.

use crate::window::{Location, Module, ModuleId, Recording, Transfer, Window};

/// Modules numbered in the order in which they were met. Two are the same if path and build id are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModuleTable {
    modules: Vec<Module>,
}

impl ModuleTable {
    /// The modules by their number here.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The number of a module, which is added if it is new.
    pub fn id(&mut self, module: &Module) -> ModuleId {
        let known = self.modules.iter().position(|known| known == module);
        let index = known.unwrap_or_else(|| {
            self.modules.push(module.clone());
            self.modules.len() - 1
        });
        ModuleId(index as u32)
    }

    /// Numbers a recording's modules as here. Locations of modules that the recording does not list (it is
    /// damaged) are left as a module that nobody has.
    pub fn adopt(&mut self, recording: &mut Recording) {
        let ids: Vec<ModuleId> = recording.modules.iter().map(|module| self.id(module)).collect();
        let here = |at: &mut Location| {
            at.module = ids.get(at.module.0 as usize).copied().unwrap_or(ModuleId(u32::MAX));
        };
        for Window { start, transfers, end, .. } in &mut recording.windows {
            here(start);
            here(end);
            for Transfer { from, to } in transfers {
                here(from);
                here(to);
            }
        }
        recording.modules.clone_from(&self.modules);
    }
}

/// One recording of several, with the windows of all in the order of their time. Command, sampler and rate
/// are the first's; `None` of none.
pub fn merged(recordings: impl IntoIterator<Item = Recording>) -> Option<Recording> {
    let mut table = ModuleTable::default();
    let mut recordings = recordings.into_iter();
    let mut all = recordings.next()?;
    table.adopt(&mut all);
    for mut next in recordings {
        table.adopt(&mut next);
        all.windows.append(&mut next.windows);
        all.branches_max = all.branches_max.max(next.branches_max);
        for (reason, count) in next.without_window {
            *all.without_window.entry(reason).or_default() += count;
        }
        all.notes.extend(next.notes);
    }
    all.modules = table.modules;
    all.windows.sort_by_key(|window| window.time_ns);
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::End;

    fn recording(paths: &[&str]) -> Recording {
        let module = |path: &&str| Module { path: (*path).to_owned(), build_id: None };
        let at = |module| Location { module: ModuleId(module), address: 16 };
        let transfers = vec![Transfer { from: at(0), to: at(1) }];
        let (tid, time_ns, instructions, branches) = (1, 0, None, None);
        let (start, end, ended) = (at(0), at(7), End::Full);
        let window = Window { tid, time_ns, start, transfers, end, instructions, branches, ended };
        let modules = paths.iter().map(module).collect();
        Recording { modules, windows: vec![window], ..Recording::default() }
    }

    #[test]
    fn recordings_add_up() {
        let mut late = recording(&["/b", "/c"]);
        late.windows[0].time_ns = 9;
        late.without_window.insert("lost".to_owned(), 2);
        let all = merged([late.clone(), recording(&["/a", "/b"]), late]).unwrap();
        assert_eq!(all.modules.iter().map(|module| &*module.path).collect::<Vec<_>>(), ["/b", "/c", "/a"]);
        let starts: Vec<u32> = all.windows.iter().map(|window| window.start.module.0).collect();
        assert_eq!(starts, [2, 0, 0]);
        assert_eq!(all.without_window["lost"], 4);
        assert_eq!(merged([]), None);
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
