//! How the loops of an OpenMP program are divided among its threads.
//!
//! Problem: what is best for a loop in equal parts is bad for one whose parts are handed out as threads ask
//! for them, and the schedule is written in the source. Approach: compilers do the first in the program's
//! own code, and call the library for the second; so a program shows by what it imports which it has.
//! Limits: scripts and programs without a table of imports tell nothing, nor does what they load later. A
//! program of GCC may run with LLVM's library, which has GNU's functions, too.

use crate::elf::ElfFile;
use std::path::Path;

/// How the loops of a program are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loops {
    /// All are divided into equal parts.
    Equal,
    /// Some are not, or there are tasks.
    HandedOut,
    /// Some may not be, as `OMP_SCHEDULE` says; without it they are divided into equal parts (LLVM, Intel).
    AsRequested,
}

/// Beginnings of what programs import that start teams of threads: of GCC, and of LLVM's and Intel's
/// compilers.
const TEAMS: [&str; 2] = ["GOMP_parallel", "__kmpc_fork_call"];

/// Of what hands out parts of loops, or tasks. GNU's library does so with `schedule(runtime)`, too.
const HANDS_OUT: [&str; 7] = [
    "GOMP_loop",
    "GOMP_parallel_loop",
    "GOMP_parallel_sections",
    "GOMP_sections",
    "GOMP_task",
    "__kmpc_omp_task",
    "__kmpc_taskloop",
];

/// Of what hands out parts of loops in LLVM's library, by the schedule that it is given.
const DISPATCHES: [&str; 1] = ["__kmpc_dispatch_init"];

/// Returns how the loops of a program are divided; `None` if it is not known to use OpenMP.
pub fn loops(program: &Path) -> Option<Loops> {
    of_imports(&ElfFile::open(program).ok()?.imports())
}

fn of_imports(imports: &[String]) -> Option<Loops> {
    let any = |of: &[&str]| imports.iter().any(|name| of.iter().any(|start| name.starts_with(start)));
    match any(&TEAMS) {
        false => None,
        true if any(&DISPATCHES) => Some(Loops::AsRequested),
        true if any(&HANDS_OUT) => Some(Loops::HandedOut),
        true => Some(Loops::Equal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_imports_tells_how_its_loops_are_divided() {
        let of = |names: &str| of_imports(&names.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(of("printf omp_get_wtime"), None);
        assert_eq!(of("GOMP_parallel GOMP_barrier omp_get_thread_num"), Some(Loops::Equal));
        assert_eq!(of("GOMP_parallel GOMP_loop_nonmonotonic_dynamic_next"), Some(Loops::HandedOut));
        assert_eq!(of("GOMP_parallel_loop_maybe_nonmonotonic_runtime"), Some(Loops::HandedOut));
        assert_eq!(of("GOMP_parallel GOMP_task GOMP_taskwait"), Some(Loops::HandedOut));
        assert_eq!(of("__kmpc_fork_call __kmpc_for_static_init_4"), Some(Loops::Equal));
        assert_eq!(of("__kmpc_fork_call __kmpc_dispatch_init_8"), Some(Loops::AsRequested));
        assert_eq!(of("__kmpc_fork_call __kmpc_omp_task_alloc"), Some(Loops::HandedOut));
    }
}
