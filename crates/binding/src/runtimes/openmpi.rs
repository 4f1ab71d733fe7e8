//! Whether processes of Open MPI yield while they wait for messages.
//!
//! Problem: they look for messages again and again, and never sleep; by default they keep their PEs
//! meanwhile, unless mpirun itself has started more of them than there are PEs (`mpi_yield_when_idle`).
//! Approach: each iteration reads an exported variable, so what is written there holds at once. The library
//! sets it when MPI begins; then it is written to again.
//!
//! Limits: a process that yields is still ready to run, and comes back as soon as the PE is free. MPICH has
//! no such variable.

use super::exported;
use super::loaded::Loaded;
use super::variable::Variable;

/// The variable by which a user decides.
pub const VARIABLE: &str = "OMPI_MCA_mpi_yield_when_idle";

/// What is written so that they yield.
pub const YIELD: u64 = 1;

/// The variables of every copy that does not yield.
pub fn find(loaded: &Loaded) -> Vec<Variable> {
    let found =
        loaded.defining(exported::OPEN_MPI).filter_map(|(copy, address)| loaded.variable(copy, address, 1));
    found.filter(|variable| variable.own() == 0).collect()
}
