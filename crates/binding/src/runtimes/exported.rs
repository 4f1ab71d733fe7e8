//! What runtime libraries export, by which they are known.

/// What GNU's OpenMP exports. LLVM's runtime exports it, too, but holds no spin count.
pub const LIBGOMP: &str = "GOMP_parallel";

/// The variable of Open MPI that decides whether processes yield while they wait.
pub const OPEN_MPI: &str = "opal_progress_yield_when_idle";

/// What OpenBLAS exports, in wheels, too, whatever the prefix of their functions.
pub const OPENBLAS: &str = "blas_cpu_number";

/// Whether what a library imports starts a team of GNU's or LLVM's OpenMP. Threads of an OpenBLAS that does
/// are not its own, and wait as that runtime lets them.
pub fn is_team_of_openmp(name: &str) -> bool {
    ["GOMP_parallel", "__kmpc_fork_call"].iter().any(|start| name.starts_with(start))
}
