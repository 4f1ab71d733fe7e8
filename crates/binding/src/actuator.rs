//! How threads are changed: the seam between the live world, which knows who is there, and what acts on them.
//!
//! An actuator knows who decides about a thread (its user, the thread itself, corewise), carries out changes,
//! and gives everything back. A change that it has no means for is [`OutcomeKind::Unsupported`], one that the
//! system does not permit [`OutcomeKind::Refused`]: both are observations. What it changes must be given back
//! also after the death of corewise; [`crate`], the one of affinity masks, shows how.

use corewise_core::cpuset::CpuSet;
use corewise_core::observe::Standing;
#[cfg(doc)]
use corewise_core::plan::OutcomeKind;
use corewise_core::plan::{Action, Outcome};
use corewise_discovery::{NewThread, ThreadFacts};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// What changes threads, and gives back what it has changed. See the module's text.
pub trait Actuator {
    /// A thread is new.
    fn meet(&mut self, thread: &NewThread);

    /// A look at all threads begins. What is decided next rests on what they are found to be from now on.
    /// `allowed` are the PEs that corewise itself may use: what user and cpuset allow the whole application.
    fn begin_look(&mut self, allowed: &Arc<CpuSet>);

    /// These are the processes that live.
    fn retain_processes(&mut self, living: &HashSet<u32>);

    /// Who decides where the thread runs, and where its user lets it run. It lives, and has been found since
    /// the look began.
    fn standing(&mut self, thread: &ThreadFacts) -> (Standing, Arc<CpuSet>);

    /// The thread has ended.
    fn forget(&mut self, thread: &ThreadFacts);

    /// Carries out changes; what became of each. One that only looks on does nothing and answers nothing.
    fn apply(&mut self, actions: &[Action]) -> Vec<Outcome>;

    /// The PEs on which others, who tell so, have bound threads.
    fn taken(&self) -> CpuSet;

    /// Until when something is due that it does by itself, in the course of time; `None`: nothing.
    fn due_within(&self) -> Option<Duration>;

    /// Does what is due.
    fn act_in_time(&mut self);

    /// Gives everything back. From then on it only looks on.
    fn give_back(&mut self);

    /// What a user should know, in words.
    fn notes(&self) -> Vec<String>;
}
