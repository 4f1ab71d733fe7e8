//! The interface of what changes threads: one implementation for each kind of change.
//!
//! An actuator carries out the changes of its kind, each recorded before it is made ([`crate::changes`]), and
//! gives everything back. A change that the system does not permit is [`OutcomeKind::Refused`]: an
//! observation like every outcome. [`crate::actuators`] holds all of them; what is changed must be restored
//! also after the death of corewise ([`crate::restore`]).

use corewise_core::ids::ThreadId;
use corewise_core::plan::{Action, Change, OutcomeKind};
use corewise_discovery::NewThread;
use nix::errno::Errno;
use std::collections::HashSet;
use std::time::Duration;

/// Changes threads in one way, and restores what it has changed; see the module documentation.
pub trait Actuator {
    /// Registers a new thread.
    fn meet(&mut self, thread: &NewThread);

    /// Forgets a thread that has ended.
    fn forget(&mut self, thread: ThreadId);

    /// Forgets all processes but the living ones.
    fn retain_processes(&mut self, _living: &HashSet<u32>) {}

    /// Carries out a change; `None` if it is of another kind.
    fn apply(&mut self, action: &Action) -> Option<OutcomeKind>;

    /// Returns the time until the actuator's own next action is due; `None` if there is none.
    fn due_within(&self) -> Option<Duration> {
        None
    }

    /// Carries out the actuator's own actions that are due.
    fn act_in_time(&mut self) {}

    /// Takes note that everything was given back in corewise's place ([`crate::heartbeat`]), and gives back
    /// what is still changed. Returns by which changes: of threads, or of processes by their numbers.
    fn take_given_back(&mut self) -> Vec<(u32, Change)>;

    /// Gives back what the ledger does not have, and changes nothing from then on. What the ledger has is
    /// restored afterwards, with what threads have inherited of it ([`crate::restore`]).
    fn give_back(&mut self);

    /// Returns notes for the user.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Returns the outcome of a change for which a system call has failed.
pub fn refusal(errno: Errno) -> OutcomeKind {
    match errno {
        Errno::ESRCH => OutcomeKind::Gone,
        errno => OutcomeKind::Refused(errno.to_string()),
    }
}
