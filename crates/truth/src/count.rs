//! Exact path counts of a traced run.

use super::{Settings, Trace, TruthError, run};
use corewise_code::elf::ElfProgram;
use corewise_paths::exact::{PathCounter, ThreadPosition};
use corewise_paths::profile::PathProfile;
use corewise_paths::window::Module;
use rustc_hash::FxHashMap;

/// The paths of one traced run.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// How often each path and edge was taken. Locations refer to the modules that were traced, by index.
    pub profile: PathProfile,
    /// The run.
    pub trace: Trace,
    /// The number of paths that are only in the total of the profile, not in an entry:
    /// [`PathCounter::without_identity`].
    pub without_identity: u64,
    /// How often a trace did not continue as the code says (mostly signals).
    pub breaks: u64,
}

/// Runs a command under QEMU and counts the paths in `modules` (see [`super::modules`]). `places_max` limits
/// the memory (see [`PathCounter`]).
pub fn count_paths(
    command: &[String],
    modules: &[Module],
    settings: &Settings,
    places_max: usize,
) -> Result<Counted, TruthError> {
    let program = ElfProgram::open(modules)?;
    let mut counter = PathCounter::new(&program, places_max);
    let mut positions: FxHashMap<u32, ThreadPosition> = FxHashMap::default();
    let trace = run(command, modules, settings, |executed| {
        let position = positions.entry(executed.tid).or_default();
        for block in executed {
            counter.block(position, block.start, block.last);
        }
    })?;
    Ok(Counted {
        profile: counter.profile(),
        trace,
        without_identity: counter.without_identity(),
        breaks: counter.breaks(),
    })
}
