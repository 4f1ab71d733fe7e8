//! How long the idle threads of GNU's OpenMP runtime spin.
//!
//! Problem: libgomp reads `GOMP_SPINCOUNT` once, when it is loaded, and keeps it in a variable that it does
//! not export. Approach: the library's code shows the variable, where it prints the spin count for
//! `OMP_DISPLAY_ENV=verbose` ([`printed`](corewise_code::printed)). So the program's environment stays as it
//! is. Every wait reads the variable anew, so what is written there holds from the next wait on. That changes
//! when threads sleep, and no result.
//!
//! [`printed`] decodes x86-64 only. On other architectures a command is started with a spin count of about
//! the default's size ([`PLANTED`]); the variable is the only word with that value in the writable segments
//! of a library that exports `GOMP_parallel`.
//!
//! Limits: only a variable with the default is changed ([`UNDECIDED`]). Any other value is somebody's choice,
//! or not yet set. A libgomp inside a stripped static program exports nothing, so it is not found.

use super::exported;
use super::loaded::{Files, Loaded};
use super::variable::Variable;
use corewise_code::library::Library;
use corewise_code::printed::printed;
use corewise_code::space::Backing;
use corewise_sys::proc::{Memory, Proc};
use std::ops::Range;

/// The variable that libgomp reads when it is loaded.
pub const VARIABLE: &str = "GOMP_SPINCOUNT";

/// The variables by which a user decides.
pub const WISHES: [&str; 2] = [VARIABLE, "OMP_WAIT_POLICY"];

/// The value of [`VARIABLE`] that a command is started with where code cannot show the variable.
pub const PLANTED: Option<u64> = if cfg!(target_arch = "x86_64") { None } else { Some(304_729) };

/// The spin count, in iterations, where the user has not decided.
pub const UNDECIDED: u64 = match PLANTED {
    Some(planted) => planted,
    None => 300_000,
};

/// What LLVM's and Intel's runtimes export, too, and libgomp does not.
const NOT_LIBGOMP: &str = "kmp_get_blocktime";

/// Bytes of a library's writable segments that are searched at most; libgomp has some 10 KiB.
const SEARCHED_MAX: u64 = 16 << 20;

/// What stands in front of the spin count where libgomp prints it.
const LABEL: &str = "GOMP_SPINCOUNT = '";

/// Why the variable of a copy of libgomp is not known.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// Its code does not show it.
    #[error(
        "the code of `{library}` does not show where the spin count is; with OMP_WAIT_POLICY=passive its \
         idle threads sleep at once"
    )]
    NotShown {
        /// The library's path.
        library: String,
    },
    /// More than one word has the planted value.
    #[error("`{library}` has the spin count {count} times, not once")]
    Ambiguous {
        /// The library's path.
        library: String,
        /// How often.
        count: usize,
    },
}

/// The variable of every copy of libgomp that is mapped, whatever stands there.
pub fn find(loaded: &Loaded, files: &mut Files) -> Vec<Result<Variable, NotFound>> {
    let planted = PLANTED.filter(|planted| is_started_with(loaded.pid, *planted));
    let copies = loaded.defining(exported::LIBGOMP).map(|(copy, _)| copy);
    let of_gnu = copies.filter(|copy| copy.elf.symbol(NOT_LIBGOMP).is_none());
    let found = of_gnu.filter_map(|copy| match (shown(copy, files), planted) {
        (Some(address), _) => loaded.variable(copy, copy.loaded(address), 8).map(Ok),
        (None, Some(planted)) => by_value(loaded, copy, planted).transpose(),
        (None, None) => {
            let library = copy.elf.path().display().to_string();
            Some(Err(NotFound::NotShown { library }))
        }
    });
    found.collect()
}

/// Where the code of a library shows the spin count, as linked. To read the code takes a millisecond.
fn shown(copy: &Library, files: &mut Files) -> Option<u64> {
    let by_code = || printed(&copy.elf, LABEL);
    match &copy.mapping.backing {
        Backing::File(file, _) => *files.spin_counts.entry(*file).or_insert_with(by_code),
        Backing::Memory => by_code(),
    }
}

/// The variable by which the user has decided for a process, if one of [`WISHES`] is set.
pub fn wish(pid: u32) -> Option<&'static str> {
    let environment = Proc::own().environment(pid).ok()?;
    let is_wish = |name: &&str| {
        let planted = PLANTED.map(|planted| planted.to_string());
        environment.get(name).is_some_and(|value| !value.is_empty() && Some(value) != planted)
    };
    WISHES.into_iter().find(is_wish)
}

fn is_started_with(pid: u32, planted: u64) -> bool {
    let environment = Proc::own().environment(pid);
    environment.is_ok_and(|environment| environment.get(VARIABLE) == Some(planted.to_string()))
}

/// The variable of a copy of libgomp that was started with a value; `None` until the library has read it.
pub(super) fn by_value(loaded: &Loaded, copy: &Library, value: u64) -> Result<Option<Variable>, NotFound> {
    let segments = writable_segments(copy).into_iter();
    let addresses: Vec<u64> =
        segments.flat_map(|segment| occurrences(&loaded.memory, segment, value)).collect();
    match addresses[..] {
        [] => Ok(None),
        [address] => Ok(loaded.variable(copy, address, 8)),
        _ => {
            let (library, count) = (copy.elf.path().display().to_string(), addresses.len());
            Err(NotFound::Ambiguous { library, count })
        }
    }
}

/// Where the writable segments of a mapped library lie.
fn writable_segments(library: &Library) -> Vec<Range<u64>> {
    let moved = library.elf.writable_segments().map(|(start, size)| {
        let start = library.loaded(start).next_multiple_of(8);
        start..start.saturating_add(size.min(SEARCHED_MAX))
    });
    moved.collect()
}

/// The addresses of the words that have a value.
fn occurrences(memory: &Memory, segment: Range<u64>, value: u64) -> Vec<u64> {
    let mut bytes = vec![0; (segment.end - segment.start) as usize];
    memory.read_what_is_there(segment.start, &mut bytes);
    let words = bytes.chunks_exact(8).zip((segment.start..).step_by(8));
    let is_value = |word: &[u8]| word == value.to_ne_bytes();
    words.filter(|(word, _)| is_value(word)).map(|(_, address)| address).collect()
}
