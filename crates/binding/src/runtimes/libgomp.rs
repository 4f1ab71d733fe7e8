//! How long the idle threads of GNU's OpenMP runtime spin.
//!
//! Problem: libgomp reads `GOMP_SPINCOUNT` once, when it is loaded, and keeps it in a variable that it does
//! not export. Approach: the program is started with a value of its own there, about the default's size.
//! Whoever looks for that value in the writable segments of a library that exports `GOMP_parallel` finds the
//! variable ([`find`]). In a program that ran already, the library's code shows it: where it prints the spin
//! count for `OMP_DISPLAY_ENV=verbose` ([`find_by_code`]). Every wait reads the variable anew, so what is
//! written there holds from the next wait on. That changes when threads sleep, and no result.
//!
//! Limits: the value must be found exactly once. Found by code, it must be the default: any other is
//! somebody's choice, and might be no spin count. A libgomp inside a stripped static program exports nothing,
//! so it is not found.

use super::loaded::Loaded;
use super::variable::Variable;
use corewise_code::library::Library;
use corewise_code::printed::printed;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The variable that libgomp reads when it is loaded.
pub const VARIABLE: &str = "GOMP_SPINCOUNT";

/// The variables by which a user decides.
pub const WISHES: [&str; 2] = [VARIABLE, "OMP_WAIT_POLICY"];

/// What a library that holds such a variable exports. LLVM's runtime exports it, too, but holds no such
/// variable.
pub(super) const EXPORTED: &str = "GOMP_parallel";

/// What LLVM's and Intel's runtimes export, too, and libgomp does not.
const NOT_LIBGOMP: &str = "kmp_get_blocktime";

/// Bytes of a library's writable segments that are searched at most; libgomp has some 10 KiB.
const SEARCHED_MAX: u64 = 16 << 20;

/// What stands in front of the spin count where libgomp prints it.
const LABEL: &str = "GOMP_SPINCOUNT = '";

/// What libgomp takes where nobody has decided.
pub(super) const DEFAULT: u64 = 300_000;

/// The code of a libgomp does not show where it keeps its spin count.
#[derive(Debug, thiserror::Error)]
#[error("the code of `{library}` does not show where the spin count is")]
pub struct NotShown {
    /// The library's path.
    pub library: String,
}

/// More than one word of a library has the value.
#[derive(Debug, thiserror::Error)]
#[error("`{library}` of process {pid} has the value {count} times, not once")]
pub struct Ambiguous {
    /// The process.
    pub pid: u32,
    /// The library's path.
    pub library: String,
    /// How often.
    pub count: usize,
}

/// The variables of every copy of libgomp, found by the value `planted`.
pub fn find(loaded: &Loaded, planted: u64) -> Result<Vec<Variable>, Ambiguous> {
    let mut found = Vec::new();
    for (copy, _) in loaded.defining(EXPORTED) {
        let segments = writable_segments(copy).into_iter();
        let addresses: Vec<u64> =
            segments.flat_map(|segment| occurrences(&loaded.memory, segment, planted)).collect();
        match addresses[..] {
            [] => {}
            [address] => found.extend(loaded.variable(copy, address, 8)),
            _ => {
                let (library, count) = (copy.elf.path().display().to_string(), addresses.len());
                return Err(Ambiguous { pid: loaded.pid, library, count });
            }
        }
    }
    Ok(found)
}

/// The variable of every copy of libgomp, found by its code, whatever stands there.
pub fn find_by_code(loaded: &Loaded) -> Vec<Result<Variable, NotShown>> {
    let copies = loaded.defining(EXPORTED).map(|(copy, _)| copy);
    let of_gnu = copies.filter(|copy| copy.elf.symbol(NOT_LIBGOMP).is_none());
    let found = of_gnu.map(|copy| {
        let variable = printed(&copy.elf, LABEL).and_then(|at| loaded.variable(copy, copy.loaded(at), 8));
        variable.ok_or_else(|| NotShown { library: copy.elf.path().display().to_string() })
    });
    found.collect()
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
fn occurrences(memory: &File, segment: Range<u64>, value: u64) -> Vec<u64> {
    let mut bytes = vec![0; (segment.end - segment.start) as usize];
    let mut filled = 0;
    // What is not mapped ends the segment.
    while let Ok(read @ 1..) = memory.read_at(&mut bytes[filled..], segment.start + filled as u64) {
        filled += read;
    }
    let words = bytes[..filled].chunks_exact(8).zip((segment.start..).step_by(8));
    let is_value = |word: &[u8]| word == value.to_ne_bytes();
    words.filter(|(word, _)| is_value(word)).map(|(_, address)| address).collect()
}
