//! What a source of threads does.

use super::applications::ExecutedProgram;
use super::asks::Ask;
use super::error::{DiscoveryError, FollowError};
use super::facts::{News, Parallelism, Start, ThreadFacts};
use super::followed;
use corewise_core::ids::AppId;
use corewise_core::observe::BesideReading;
use corewise_core::topology::Topology;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A source of threads. It follows process trees: every descendant of a root, including those whose parent
/// has ended. (corewise is a child subreaper, so its own orphans become its children and stay visible.
/// Orphans of a process that ran already are only found by BPF, or if they were seen while the parent lived.)
pub trait Discovery: Send {
    /// Returns the name for reports: `bpf` or `poll`.
    fn name(&self) -> &'static str;

    /// Returns descriptors that become readable when there is news. Empty if the source must be polled, or at
    /// present needs to be called only after [`Discovery::refresh_within`]; the result must be renewed before
    /// every wait.
    fn wake_fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Returns the maximum time between two calls of [`Discovery::refresh`].
    fn refresh_within(&self) -> Option<Duration>;

    /// Returns a BPF program that passes the samples of followed threads, for a clock that samples all.
    fn clock_filter(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns who runs with the mask of a bound thread since the last call: the threads and processes that a
    /// bound thread has created, and bound threads that execute another program. Empty if the source does not
    /// see that in time ([`heirs`](super::heirs)).
    fn starts(&mut self) -> Vec<Start> {
        Vec::new()
    }

    /// Returns which processes have asked for what bound threads cannot have since the last call; the first
    /// call begins to look. `None` if the source does not see that ([`asks`](super::asks)).
    fn asks(&mut self) -> Option<Vec<Ask>> {
        None
    }

    /// Takes in what is new since the last call. Cheap, as it is called at every wake-up. The result includes
    /// new threads, so that counters can be opened at once.
    fn refresh(&mut self) -> Result<News, DiscoveryError>;

    /// Follows another running process with its descendants from now on, below
    /// [`Root::Others`](super::Root::Others). They appear in the next news.
    fn attach(&mut self, _pid: u32) -> Result<(), FollowError> {
        Err(FollowError::Fixed)
    }

    /// Enables reports of changes of the number of runnable threads, at most one per application and
    /// [`COALESCED_WITHIN`](corewise_core::observe::COALESCED_WITHIN).
    fn report_tlp(&mut self);

    /// Returns every living thread, and each ended one exactly once.
    fn threads(&mut self) -> Result<Vec<ThreadFacts>, DiscoveryError>;

    /// Returns the facts of a living thread.
    fn facts(&self, tid: u32) -> Option<ThreadFacts>;

    /// Returns whether no followed thread is known to live.
    fn is_idle(&self) -> bool;

    /// Returns the integrals of an application's runnable threads so far.
    fn parallelism(&mut self, app: AppId) -> Parallelism;

    /// Returns the applications that are no roots: programs that were executed, as far as they are
    /// distinguished. One that has ended stays until its place is needed.
    fn programs(&mut self) -> Vec<ExecutedProgram> {
        Vec::new()
    }

    /// Returns the kernel's list of the followed threads, if the source has one.
    fn followed(&self) -> Option<std::io::Result<followed::Followed>> {
        None
    }

    /// Tells from now on which processes run beside which on the PEs of this machine
    /// ([`Discovery::beside`]).
    fn see_neighbours(&mut self, _topology: &Topology) -> Result<(), DiscoveryError> {
        Err(DiscoveryError::Unseen)
    }

    /// Returns for how long processes have run beside each other, at least one of each pair a followed one.
    /// Empty if that is not seen.
    fn beside(&mut self) -> Vec<BesideReading> {
        Vec::new()
    }

    /// Returns what could not be seen, in words: lost events, more threads than the map holds.
    fn notes(&self) -> Vec<String>;
}
