//! Of how many threads the runtime libraries of a process make their teams.
//!
//! Problem: GNU's OpenMP runtime and OpenBLAS choose a size once, when they are loaded: the number of PEs.
//! Approach: both look into a variable before each parallel region, so what is written there holds from the
//! next one on. OpenBLAS exports it (`blas_cpu_number`, in wheels, too, whatever the prefix of their
//! functions); that nobody has chosen another size shows in its equality with the number of threads that
//! there are. The exported `omp_get_max_threads` of libgomp takes the address of its variable. So nothing is
//! loaded into the program. That is what `openblas_set_num_threads` does for sizes up to the first, and what
//! `omp_set_num_threads` would do for all threads that have not called it.
//!
//! A size that the program or its user chooses wins: variables of the environment ([`WISHES`]), the clause
//! `num_threads`, threads that have called `omp_set_num_threads`, a variable that somebody else has written
//! to since. Limits: libgomp on x86-64 only. LLVM's OpenMP keeps a size for each thread: it is left alone. A
//! program that saves the size and writes it back later (threadpoolctl) may write back a smaller one of ours.

use super::variable::Variable;
use corewise_code::library::{self, Library};
use corewise_code::referenced::{BYTES_MAX, taken};
use corewise_code::space::FileKey;
use nix::unistd::{SysconfVar, sysconf};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The variables by which a user decides about sizes of teams.
pub const WISHES: [&str; 6] = [
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OMP_DYNAMIC",
    "OPENBLAS_NUM_THREADS",
    "OPENBLAS_DEFAULT_NUM_THREADS",
    "GOTO_NUM_THREADS",
];

const OPENBLAS: &str = "blas_cpu_number";
const OPENBLAS_THREADS: &str = "blas_num_threads";
const LIBGOMP: &str = "omp_get_max_threads";

/// What LLVM's and Intel's runtimes export, too, and libgomp does not.
const NOT_LIBGOMP: &str = "kmp_get_blocktime";

/// The variables of every such library in a process, where they have the first size. Files of `others` are
/// known to be none, and those that turn out to be none are added.
pub fn find_again(pid: u32, others: &mut HashSet<FileKey>) -> io::Result<Vec<Variable>> {
    let memory = Arc::new(library::memory(pid)?);
    let copies = library::libraries(pid, others, |elf| {
        elf.symbol(OPENBLAS).or_else(|| elf.symbol(LIBGOMP)).is_some() && elf.symbol(NOT_LIBGOMP).is_none()
    })?;
    let found = copies
        .iter()
        .filter_map(|copy| of_openblas(&memory, pid, copy).or_else(|| of_libgomp(&memory, pid, copy)));
    // Of their own accord they take no more than the machine has PEs.
    let pes = sysconf(SysconfVar::_NPROCESSORS_CONF)?.map_or(0, |pes| pes as u64);
    Ok(found.filter(|size| (2..=pes).contains(&size.own())).collect())
}

fn of_openblas(memory: &Arc<File>, pid: u32, copy: &Library) -> Option<Variable> {
    let word = |symbol| Variable::at(memory, pid, copy.loaded(copy.elf.symbol(symbol)?), 4, copy);
    let size = word(OPENBLAS)?;
    (size.own() == word(OPENBLAS_THREADS)?.own()).then_some(size)
}

fn of_libgomp(memory: &Arc<File>, pid: u32, copy: &Library) -> Option<Variable> {
    let function = copy.loaded(copy.elf.symbol(LIBGOMP)?);
    let mut code = [0; BYTES_MAX];
    let read = memory.read_at(&mut code, function).ok()?;
    Variable::at(memory, pid, taken(&code[..read], function)?, 8, copy)
}
