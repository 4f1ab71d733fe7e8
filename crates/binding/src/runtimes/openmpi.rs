//! Whether processes of Open MPI give their PEs away while they wait for messages.
//!
//! Problem: they look for messages again and again, and never sleep; by default they keep their PEs
//! meanwhile, unless mpirun itself has started more of them than there are PEs (`mpi_yield_when_idle`).
//! Approach: each turn reads an exported variable, so what is written there holds at once. The library sets
//! it when MPI begins; then it is written to again.
//!
//! Limits: who gives way is still ready to run, and comes back as soon as the PE is free. MPICH has no such
//! variable.

use super::variable::Variable;
use corewise_code::library;
use corewise_code::space::FileKey;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;

/// The variable by which a user decides.
pub const VARIABLE: &str = "OMPI_MCA_mpi_yield_when_idle";

const EXPORTED: &str = "opal_progress_yield_when_idle";

/// What is written so that they give way.
pub const YIELD: u64 = 1;

/// The variables of every copy in a process that does not give way. Files of `others` are known to be no such
/// library, and those that turn out to be none are added.
pub fn find_again(pid: u32, others: &mut HashSet<FileKey>) -> io::Result<Vec<Variable>> {
    let memory = Arc::new(library::memory(pid)?);
    let copies = library::libraries(pid, others, |elf| elf.symbol(EXPORTED).is_some())?;
    let found = copies.into_iter().filter_map(|copy| {
        let address = copy.loaded(copy.elf.symbol(EXPORTED)?);
        Variable::at(&memory, pid, address, 1, &copy)
    });
    Ok(found.filter(|variable| variable.own() == 0).collect())
}
