//! What the names of functions tell, where a file has them.
//!
//! Three kinds of function are worth knowing. In a *wait* of a runtime (OpenMP, MPI, TBB, Go, Java, a BLAS) a
//! thread is because it has nothing to do, however long the way around is; what it calls may be work that
//! was found. What a *progress engine* (MPI) calls only looks for messages: that is waiting, too. A *look*
//! leaves nothing behind but its answer, though its code may be long, store through pointers or be chosen
//! when the program starts: reading the clock, comparing strings. A loop that does nothing but look is a
//! wait.
//!
//! Names come from the symbols of a file, and for functions of other files from the linker's slots:
//! `memcmp` has a name where it is called from, but the variant for this processor has none. A stripped
//! runtime of OpenMP, as Debian's are, still says what it is by what it exports: of its functions, which the
//! unwind table tells, those with a pause wait.

use crate::Isa;
use crate::elf::functions::{code_sections, unwind_ranges};
use crate::elf::{Content, Exported, OF_PROGRAM_MAX};
use object::read::ReadRef;
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, ObjectSymbolTable, RelocationTarget, SymbolKind,
};
use regex::Regex;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::LazyLock;

/// What a function's name says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Nothing, or it has none.
    Unknown,
    /// Its threads wait.
    Waits,
    /// Its threads wait, also in all that it calls.
    Polls,
    /// It leaves nothing behind but its answer.
    Looks,
}

/// Beginnings of the names of functions that wait, by runtime.
const WAITS: &[&str] = &[
    // libgomp
    "gomp_barrier_wait",
    "gomp_team_barrier_wait",
    "gomp_team_barrier_cancel",
    "gomp_mutex_lock_slow",
    "gomp_sem_wait_slow",
    "gomp_ptrlock_get_slow",
    "do_wait",
    "do_spin",
    // libomp
    "__kmp_wait_",
    "__kmp_hyper_barrier_",
    "__kmp_linear_barrier_",
    "__kmp_tree_barrier_",
    "__kmp_dist_barrier_",
    "__kmp_hierarchical_barrier_",
    "__kmp_fork_barrier",
    "__kmp_join_barrier",
    "__kmp_yield",
    "__kmp_x86_pause",
    "__kmp_execute_tasks_",
    // Open MPI, MPICH
    "ompi_sync_wait",
    "ompi_request_default_wait",
    "ompi_request_default_test",
    "MPIR_Wait",
    // OpenBLAS
    "blas_thread_server",
    "exec_blas_async_wait",
    // Go
    "runtime.procyield",
    "runtime.osyield",
    "runtime.findRunnable",
    "runtime.findrunnable",
    "runtime.stealWork",
    // Java
    "SpinPause",
];

/// Beginnings of the names of progress engines.
const POLLS: &[&str] = &[
    // Open MPI, UCX
    "opal_progress",
    "mca_btl_sm_component_progress",
    "mca_btl_vader_component_progress",
    "mca_pml_ob1_progress",
    "mca_pml_ucx_progress",
    "ucp_worker_progress",
    "uct_worker_progress",
    // MPICH, libfabric
    "MPIDI_CH3I_Progress",
    "MPIDI_progress",
    "MPIDI_OFI_progress",
    "MPIDI_POSIX_progress",
    "MPIDI_SHM_progress",
    "MPIDI_UCX_progress",
    "MPIDU_Sched_progress",
    "MPID_Progress",
    "ofi_cq_progress",
];

/// Parts of mangled names of functions that wait.
const WAITS_WITHIN: &[&str] = &[
    "__kmp_wait_template",
    "__kmp_execute_tasks_template",
    "kmp_flag_64",
    "ObjectMonitor7TrySpin",
    "ObjectMonitor9TrySpin",
    "9SpinYield",
    "20SafepointSynchronize",
    "wait_until_cold",
    "10rayon_core5sleep",
    "7Backoff4spin",
    "7Backoff6snooze",
    "out_of_work",
    "receive_or_steal_task",
    "16sleep_node",
];

/// What only runtimes of OpenMP export.
const OPENMP: &[&str] = &["__kmpc_fork_call", "GOMP_parallel"];

/// What a runtime exports whose idle threads yield while they spin: LLVM's OpenMP, and Intel's.
pub const YIELDS: &str = "kmp_get_blocktime";

/// Code of a runtime: LLVM's has 0.7 MB.
const RUNTIME_BYTES_MAX: usize = 16 << 20;

/// Functions of a file whose names say something, slots, and segments that are kept of each. Programs and
/// libraries have some ten; a file of a few MiB can name millions, and hundreds of files are kept.
const PLACES_MAX: usize = 1 << 12;

/// Functions that only look. Those of the standard libraries by their mangled names.
const LOOKS: &[&str] = &[
    "bcmp",
    "clock",
    "clock_gettime",
    "getpid",
    "gettimeofday",
    "memchr",
    "memcmp",
    "pthread_self",
    "sched_getcpu",
    "sched_yield",
    "strcasecmp",
    "strchr",
    "strcmp",
    "strlen",
    "strncasecmp",
    "strncmp",
    "strnlen",
    "time",
    "wmemcmp",
    "__clock_gettime",
    "__errno_location",
    "__vdso_clock_gettime",
    "__vdso_gettimeofday",
    "__vdso_time",
    "_ZNSt6chrono3_V212steady_clock3nowEv",
    "_ZNSt6chrono3_V212system_clock3nowEv",
    "MPI_Wtime",
    "omp_get_wtime",
    "runtime.memequal",
    "runtime.nanotime",
    "runtime.nanotime1",
    "runtime.walltime",
];

/// What a name says that is one of these, or begins like one of the others: a file may have a hundred
/// thousand names, so each is compared with one of them only, the last that is not behind it in the alphabet.
static KNOWN: LazyLock<BTreeMap<&str, Role>> = LazyLock::new(|| {
    let with = |names: &'static [&str], role| names.iter().map(move |&name| (name, role));
    with(WAITS, Role::Waits).chain(with(POLLS, Role::Polls)).chain(with(LOOKS, Role::Looks)).collect()
});

/// One of [`WAITS_WITHIN`].
static WITHIN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&WAITS_WITHIN.join("|")).expect("the parts are letters and digits"));

impl Role {
    /// What a name says.
    pub fn of(name: &str) -> Role {
        let name = name.split('@').next().unwrap_or(name);
        let is_mangled = name.starts_with("_Z") || name.starts_with("_R");
        match KNOWN.range(..=name).next_back() {
            Some((known, Role::Looks)) if *known == name => Role::Looks,
            Some((start, role @ (Role::Waits | Role::Polls))) if name.starts_with(start) => *role,
            _ if is_mangled && WITHIN.is_match(name) => Role::Waits,
            _ => Role::Unknown,
        }
    }
}

/// The functions of a file whose names say something.
#[derive(Debug, Default)]
pub struct Names {
    /// Address as linked and offset in the file of what is loaded, with its length.
    segments: Vec<(u64, u64, u64)>,
    /// First and last offset in the file, by the first.
    functions: Vec<(u64, u64, Role)>,
    /// Addresses as linked of the linker's slots, in order.
    slots: Vec<(u64, Role)>,
    yields: bool,
}

impl Names {
    /// Those of an open file; none if it is no ELF file, or damaged.
    pub fn of(file: File) -> Names {
        let isa = Isa::of_file(&file);
        let content = Content::new(file, OF_PROGRAM_MAX);
        let Ok(object) = content.object() else { return Names::default() };
        let segment = |segment: object::Segment<'_, '_, _>| {
            let (offset, length) = segment.file_range();
            (segment.address(), offset, length)
        };
        let segments = object.segments().take(PLACES_MAX).map(segment).collect();
        let mut names = Names { segments, ..Names::default() };
        for symbol in object.symbols().chain(object.dynamic_symbols()) {
            if names.functions.len() == PLACES_MAX {
                break;
            }
            if symbol.kind() != SymbolKind::Text || !symbol.is_definition() {
                continue;
            }
            let role = symbol.name().map_or(Role::Unknown, Role::of);
            if role != Role::Unknown
                && let Some(start) = names.offset(symbol.address())
            {
                names.functions.push((start, start.saturating_add(symbol.size().saturating_sub(1)), role));
            }
        }
        for (start, end) in unnamed_waits(&content, &object, isa).into_iter().take(PLACES_MAX) {
            if let Some(start_offset) = names.offset(start) {
                names.functions.push((
                    start_offset,
                    start_offset.saturating_add(end - start - 1),
                    Role::Waits,
                ));
            }
        }
        names.functions.sort_unstable_by_key(|&(start, ..)| start);
        names.functions.dedup_by_key(|&mut (start, ..)| start);
        names.slots = slots(&object);
        names.yields = exports_one_of(&content, &object, &[YIELDS]);
        names
    }

    /// Whether it is a runtime whose idle threads yield while they spin.
    pub fn yields(&self) -> bool {
        self.yields
    }

    fn offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|&(start, offset, length)| {
            let within = address.checked_sub(start).filter(|&within| within < length)?;
            offset.checked_add(within)
        })
    }

    /// The role of the function that holds an offset in the file.
    pub fn at(&self, offset: u64) -> Role {
        let behind = self.functions.partition_point(|&(start, ..)| start <= offset);
        match self.functions[..behind].last() {
            Some(&(_, last, role)) if offset <= last => role,
            _ => Role::Unknown,
        }
    }

    /// The role of the function whose address the linker puts into a slot: at `slot` in memory where the
    /// byte at `offset` in the file is at `address`.
    pub fn of_slot(&self, slot: u64, address: u64, offset: u64) -> Role {
        let linked = self.segments.iter().find_map(|&(start, from, length)| {
            let within = offset.checked_sub(from).filter(|&within| within < length)?;
            start.checked_add(within)
        });
        let Some(linked) = linked else { return Role::Unknown };
        let slot = slot.wrapping_sub(address).wrapping_add(linked);
        let found = self.slots.binary_search_by_key(&slot, |&(address, _)| address);
        found.map_or(Role::Unknown, |at| self.slots[at].1)
    }
}

fn exports_one_of<'a, R: ReadRef<'a>>(
    content: &Content,
    object: &object::File<'a, R>,
    names: &[&str],
) -> bool {
    if let Some(exported) = Exported::of(content.bytes()) {
        return names.iter().any(|name| exported.address(name).is_some());
    }
    let mut exported = object.dynamic_symbols().filter(|symbol| symbol.is_definition());
    exported.any(|symbol| symbol.name().is_ok_and(|name| names.contains(&name)))
}

/// The functions that wait of a stripped runtime of OpenMP: first address and the one behind the last.
fn unnamed_waits<'a, R: ReadRef<'a>>(
    content: &Content,
    object: &object::File<'a, R>,
    isa: Option<Isa>,
) -> Vec<(u64, u64)> {
    if object.symbols().next().is_some() || !exports_one_of(content, object, OPENMP) {
        return Vec::new();
    }
    let (Some(isa), Some(text)) = (isa, object.section_by_name(".text")) else { return Vec::new() };
    let (Ok(bytes), from) = (text.data(), text.address()) else { return Vec::new() };
    if bytes.len() > RUNTIME_BYTES_MAX {
        return Vec::new();
    }
    let code = |(start, end): (u64, u64)| {
        bytes.get(start.checked_sub(from)? as usize..end.checked_sub(from)? as usize)
    };
    let sections = code_sections(object);
    apart(unwind_ranges(object, &sections))
        .filter(|&function| code(function).is_some_and(|code| isa.may_wait(code) && pauses(isa, code)))
        .collect()
}

/// Of ranges in order those that begin behind all before: a hostile file may name the same code a million
/// times, and each would be decoded.
fn apart(ranges: impl Iterator<Item = (u64, u64)>) -> impl Iterator<Item = (u64, u64)> {
    let mut behind = 0;
    ranges.filter(move |&(start, end)| {
        let is_apart = start >= behind;
        behind = behind.max(end);
        is_apart
    })
}

/// Whether there is a pause among these instructions.
fn pauses(isa: Isa, mut bytes: &[u8]) -> bool {
    while let Some(instruction) = isa.decode(bytes) {
        if instruction.waits {
            return true;
        }
        bytes = &bytes[usize::from(instruction.length).min(bytes.len())..];
    }
    false
}

fn slots<'a, R: object::ReadRef<'a>>(object: &object::File<'a, R>) -> Vec<(u64, Role)> {
    let mut slots = Vec::new();
    let symbols = object.dynamic_symbol_table();
    let role_of = |index| {
        let symbol = symbols.as_ref().and_then(|symbols| symbols.symbol_by_index(index).ok());
        symbol.and_then(|symbol| symbol.name().ok().map(Role::of)).unwrap_or(Role::Unknown)
    };
    // The tables of virtual functions name the same ones again and again.
    let mut roles = FxHashMap::default();
    for (address, relocation) in object.dynamic_relocations().into_iter().flatten() {
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let role = *roles.entry(index.0).or_insert_with(|| role_of(index));
        if role != Role::Unknown {
            slots.push((address, role));
        }
        if slots.len() == PLACES_MAX {
            break;
        }
    }
    slots.sort_unstable_by_key(|&(address, _)| address);
    slots.dedup_by_key(|&mut (address, _)| address);
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_known_name_hides_another() {
        for start in WAITS.iter().chain(POLLS) {
            let behind = KNOWN.keys().filter(|name| name.starts_with(start)).count();
            assert_eq!(behind, 1, "{start}: one is found by the beginning of the other");
        }
        assert_eq!(KNOWN.len(), WAITS.len() + POLLS.len() + LOOKS.len());
    }

    #[test]
    fn names_of_runtimes_are_known() {
        for (name, role) in [
            ("gomp_team_barrier_wait_end", Role::Waits),
            ("_Z20__kmp_wait_template", Role::Waits),
            ("_ZN10rayon_core8registry12WorkerThread15wait_until_cold17h0E", Role::Waits),
            ("is_out_of_work", Role::Unknown),
            ("opal_progress", Role::Polls),
            ("runtime.procyield.abi0", Role::Waits),
            ("memcmp@GLIBC_2.2.5", Role::Looks),
            ("clock_gettime", Role::Looks),
            ("pthread_spin_lock", Role::Unknown),
            ("clock_getres", Role::Unknown),
            ("opal_progres", Role::Unknown),
            ("", Role::Unknown),
            ("main", Role::Unknown),
        ] {
            assert_eq!(Role::of(name), role, "{name}");
        }
    }

    #[test]
    fn no_code_is_decoded_for_two_functions() {
        let ranges = [(0, 10), (0, 10), (2, 30), (30, 31), (29, 40), (40, 41)];
        assert_eq!(apart(ranges.into_iter()).collect::<Vec<_>>(), [(0, 10), (30, 31), (40, 41)]);
    }

    #[test]
    fn of_a_file_that_names_too_many_functions_some_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let (source, library) = (directory.path().join("many.s"), directory.path().join("many.so"));
        let function = |index| {
            format!(
                ".type gomp_team_barrier_wait_{index},%function\n\
                                        gomp_team_barrier_wait_{index}: nop\n"
            )
        };
        let functions: String = (0..=PLACES_MAX).map(function).collect();
        std::fs::write(&source, format!(".text\n{functions}")).unwrap();
        let built =
            std::process::Command::new("cc").arg("-shared").arg("-o").args([&library, &source]).status();
        assert!(built.unwrap().success());
        assert_eq!(Names::of(File::open(&library).unwrap()).functions.len(), PLACES_MAX);
    }

    #[test]
    fn functions_that_pause_wait_in_a_stripped_runtime() {
        let directory = tempfile::tempdir().unwrap();
        let (source, library) = (directory.path().join("runtime.c"), directory.path().join("runtime.so"));
        let pause = if cfg!(target_arch = "aarch64") { "yield" } else { "pause" };
        let text = format!(
            "int flag; __attribute__((noinline)) static void work(int n) {{ while (n--) flag ^= n; }}\n\
             __attribute__((noinline)) static void pass(volatile int *p) {{ while (*p) asm(\"{pause}\"); }}\n\
             void __kmpc_fork_call(int n) {{ work(n); pass(&flag); work(n); }}\n"
        );
        std::fs::write(&source, text).unwrap();
        let waiting = |options: &[&str]| {
            let built = std::process::Command::new("cc")
                .args(["-O1", "-fno-ipa-icf", "-shared", "-fPIC"])
                .args(options)
                .arg("-o")
                .args([&library, &source])
                .status();
            assert!(built.unwrap().success());
            Names::of(File::open(&library).unwrap()).functions
        };
        let [(first, last, Role::Waits)] = waiting(&["-s"])[..] else { panic!("one of three functions") };
        assert!(last > first && last - first < 64, "{first} {last}");
        assert_eq!(waiting(&[]), [], "it has names, and none that is known");
        assert_eq!(waiting(&["-s", "-D__kmpc_fork_call=other"]), [], "it is no runtime");
    }

    #[test]
    fn functions_and_slots_of_a_file_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        let source = directory.path().join("program.c");
        let text = "#include <string.h>\nint do_wait(volatile int *p) { while (*p); return 0; }\n\
                    int main(int n, char **v) { return memcmp(v[0], v[1], n * 1000) + do_wait(&n); }\n";
        std::fs::write(&source, text).unwrap();
        let built = std::process::Command::new("cc")
            .args(["-O1", "-fno-inline", "-o"])
            .args([&program, &source])
            .status();
        assert!(built.unwrap().success());
        let names = Names::of(File::open(program).unwrap());
        let [(first, last, Role::Waits)] = names.functions[..] else { panic!("{names:?}") };
        assert_eq!((names.at(first), names.at(last)), (Role::Waits, Role::Waits));
        assert_eq!((names.at(first - 1), names.at(last + 1)), (Role::Unknown, Role::Unknown));
        let [(slot, Role::Looks)] = names.slots[..] else { panic!("{names:?}") };
        // Loaded 0x40000 higher than linked.
        let (linked, offset, _) = names.segments[0];
        assert_eq!(names.of_slot(slot + 0x40000, linked + 0x40000, offset), Role::Looks);
        assert_eq!(names.of_slot(slot + 0x40008, linked + 0x40000, offset), Role::Unknown);
    }
}
