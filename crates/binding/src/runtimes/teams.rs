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

use super::loaded::Loaded;
use super::variable::Variable;
use corewise_code::library::Library;
use corewise_code::referenced::taken;
use nix::unistd::{SysconfVar, sysconf};

/// The variables by which a user decides about sizes of teams.
pub const WISHES: [&str; 6] = [
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OMP_DYNAMIC",
    "OPENBLAS_NUM_THREADS",
    "OPENBLAS_DEFAULT_NUM_THREADS",
    "GOTO_NUM_THREADS",
];

pub(super) const OPENBLAS: &str = "blas_cpu_number";
const OPENBLAS_THREADS: &str = "blas_num_threads";
pub(super) const LIBGOMP: &str = "omp_get_max_threads";

/// What LLVM's and Intel's runtimes export, too, and libgomp does not.
pub(super) const NOT_LIBGOMP: &str = "kmp_get_blocktime";

/// The variables of every such library, where they have the first size.
pub fn find(loaded: &Loaded) -> Vec<Variable> {
    // Of their own accord they take no more than the machine has PEs.
    let pes = sysconf(SysconfVar::_NPROCESSORS_CONF).ok().flatten().map_or(0, |pes| pes as u64);
    let found = of_openblas(loaded).chain(of_libgomp(loaded));
    found.filter(|size| (2..=pes).contains(&size.own())).collect()
}

fn of_openblas(loaded: &Loaded) -> impl Iterator<Item = Variable> {
    loaded.defining(OPENBLAS).filter_map(|(copy, size)| {
        let threads = copy.loaded(copy.elf.symbol(OPENBLAS_THREADS)?);
        let (size, threads) = (loaded.variable(copy, size, 4)?, loaded.variable(copy, threads, 4)?);
        (size.own() == threads.own()).then_some(size)
    })
}

fn of_libgomp(loaded: &Loaded) -> impl Iterator<Item = Variable> {
    let is_it = |(copy, _): &(&Library, u64)| copy.elf.symbol(NOT_LIBGOMP).is_none();
    loaded
        .defining(LIBGOMP)
        .filter(is_it)
        .filter_map(|(copy, function)| loaded.variable(copy, taken(&loaded.code(function)?, function)?, 8))
}
