//! The size of a command's thread teams, chosen before it starts (`--adapt-team`).

use corewise_core::waits::teams;
use corewise_sys::proc::Proc;
use corewise_sys::{affinity, demand, environment, limits};
use std::path::Path;

/// The variable by which OpenMP runtimes, OpenBLAS, MKL and others learn a size when they are loaded.
pub const VARIABLE: &str = "OMP_NUM_THREADS";

/// The variables by which a user decides about sizes.
pub const WISHES: [&str; 11] = [
    VARIABLE,
    "OMP_NUM_THREADS_ALL",
    "OMP_THREAD_LIMIT",
    "OMP_THREAD_LIMIT_ALL",
    "OMP_DYNAMIC",
    "OMP_DYNAMIC_ALL",
    "OPENBLAS_NUM_THREADS",
    "OPENBLAS_DEFAULT_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
];

/// Returns the size for a command that starts now; `None` if that of the libraries fits, a thread for each
/// PE, or if the user has decided.
pub fn choose(notes: &mut Vec<String>) -> Option<u32> {
    let own = std::process::id();
    let wish = environment::first_set(own, &WISHES).map(|name| format!("{name} is set"));
    // Smaller teams of several programs would use the same first PEs.
    let placed = || environment::places_threads(own).then(|| "the user binds their threads".to_owned());
    if let Some(why) = wish.or_else(placed) {
        notes.push(format!("teams stay as they are: {why}"));
        return None;
    }
    let pes = affinity::get(0).ok()?;
    let others = demand::of_others(&Proc::own(), &pes);
    let size = teams::size(pes.len(), limits::pes_permitted(Path::new("/")), &others);
    (size < pes.len()).then_some(size as u32)
}
