//! The interface for changing threads, between the live world, which knows the threads, and the parts that
//! act on them.
//!
//! An actuator knows who decides about a thread (its user, the thread itself, corewise), carries out changes,
//! and restores everything. A change that it does not support is [`OutcomeKind::Unsupported`], one that the
//! system does not permit [`OutcomeKind::Refused`]: both are observations. Its changes must be restored even
//! after the death of corewise; [`crate`], for affinity masks, shows how.

use corewise_core::cpuset::CpuSet;
use corewise_core::observe::Standing;
#[cfg(doc)]
use corewise_core::plan::OutcomeKind;
use corewise_core::plan::{Action, Outcome};
use corewise_discovery::{NewThread, Start, ThreadFacts};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Changes threads, and restores what it has changed; see the module documentation.
pub trait Actuator {
    /// Registers a new thread.
    fn meet(&mut self, thread: &NewThread);

    /// Gives those who run with the mask of a bound thread their own masks back. A process that starts
    /// programs is not bound any more.
    fn give_back_to(&mut self, starts: &[Start]);

    /// Registers processes that have started others: they are not bound (any more).
    fn note_starters(&mut self, processes: &[u32]);

    /// Begins a pass over all threads; later decisions rest on the state found from now on. `allowed` are the
    /// PEs that corewise itself may use: those that user and cpuset allow for the whole application.
    fn begin_look(&mut self, allowed: &Arc<CpuSet>);

    /// Forgets all processes but the living ones.
    fn retain_processes(&mut self, living: &HashSet<u32>);

    /// Returns who decides where the thread runs, and the PEs that its user permits. The thread lives and was
    /// found since the pass began.
    fn standing(&mut self, thread: &ThreadFacts) -> (Standing, Arc<CpuSet>);

    /// Forgets a thread that has ended.
    fn forget(&mut self, thread: &ThreadFacts);

    /// Carries out changes and returns their outcomes. A dry-run actuator does nothing and returns no
    /// outcomes.
    fn apply(&mut self, actions: &[Action]) -> Vec<Outcome>;

    /// Returns the PEs to which other runs of corewise have bound threads.
    fn taken(&self) -> CpuSet;

    /// Returns the time until the actuator's own next action is due; `None` if there is none.
    fn due_within(&self) -> Option<Duration>;

    /// Carries out the actuator's own actions that are due.
    fn act_in_time(&mut self);

    /// Restores everything, and only observes from then on.
    fn give_back(&mut self);

    /// Returns notes for the user.
    fn notes(&self) -> Vec<String>;
}
