//! Which threads applications have, from the first instant of each to its last.
//!
//! Two sources implement one interface: [`bpf`] (exact, immediate, needs privileges) and [`poll`] (`/proc`,
//! for every user). Every report names the source in use. A third one, [`tree`], follows a command until one
//! of these is ready and takes its place ([`continued`]).

mod applications;
mod apps;
pub mod attach;
pub mod bpf;
pub mod continued;
mod entries;
mod estimate;
pub mod followed;
mod groups;
pub mod heirs;
mod known;
mod others;
pub mod poll;
pub mod tree;
mod unwatched;

pub use applications::{ExecutedProgram, Extent};

use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::observe::RunnableThreads;
use corewise_sys::cgroup::{ControlGroup, GroupError};
use corewise_sys::proc::{Proc, ProcError};
use groups::Groups;
use others::Others;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What to follow, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The roots of the applications, in order of their [`AppId`]s.
    pub roots: Vec<Root>,
    /// Processes that are not followed, including their descendants: corewise itself, its guardian. They must
    /// run already.
    pub excluded: Vec<u32>,
    /// Where `/proc` is, for polling.
    pub proc: Proc,
    /// What an application consists of.
    pub extent: Extent,
    /// Which source to use.
    pub choice: Choice,
}

/// The start of an application, which is followed with all its descendants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// Each child of this process: the command that corewise starts, or has just started. What it did before
    /// the source was opened counts, except for threads that had ended by then.
    ChildrenOf(u32),
    /// This running process.
    Process(u32),
    /// Each process that is in this control group or one below it, or joins it. Of the processes that are
    /// there at first, existing children elsewhere are not followed, only those started from then on:
    /// services start sessions that do not belong to them.
    Group(ControlGroup),
    /// What is named later ([`Discovery::attach`]); with `all` also each process that this one may look into
    /// and that descends from no other root. At most one root is of this kind.
    Others {
        /// Whether processes are looked for that nobody names.
        all: bool,
    },
}

impl Options {
    /// Returns the roots with their application IDs.
    fn roots(&self) -> impl Iterator<Item = (AppId, &Root)> {
        self.roots.iter().zip(0..).map(|(root, index)| (AppId(index), root))
    }

    /// Returns the name of each root's program, if it runs one already.
    fn named_roots(&self) -> impl Iterator<Item = (Option<String>, Option<u32>)> {
        self.roots.iter().map(|root| match root {
            Root::Process(pid) => (self.proc.program_name(*pid), Some(*pid)),
            Root::Others { .. } => (Some("others".to_owned()), None),
            Root::ChildrenOf(_) | Root::Group(_) => (None, None),
        })
    }

    /// Returns what belongs to no other root.
    fn others(&self) -> Others {
        let find = |(app, root): (AppId, &Root)| match root {
            Root::Others { all } => Some((app, *all)),
            Root::ChildrenOf(_) | Root::Process(_) | Root::Group(_) => None,
        };
        Others::new(self.proc.clone(), self.roots().find_map(find), self.excluded.clone())
    }

    /// Returns the control groups among the roots.
    fn groups(&self) -> Groups {
        let group = |(app, root): (AppId, &Root)| match root {
            Root::Group(group) => Some((app, group.clone())),
            Root::ChildrenOf(_) | Root::Process(_) | Root::Others { .. } => None,
        };
        Groups::new(self.proc.clone(), self.roots().filter_map(group).collect(), self.excluded.clone())
    }
}

/// The choice of a source of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// BPF if it is permitted, else polling.
    #[default]
    Auto,
    /// BPF, or an error.
    Bpf,
    /// Polling.
    Poll,
}

impl std::str::FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Choice::Auto),
            "bpf" => Ok(Choice::Bpf),
            "poll" => Ok(Choice::Poll),
            _ => Err(format!("`{text}` is none of auto, bpf, poll")),
        }
    }
}

/// Opens the source that `options.choice` requests. Also returns why BPF is not used, if it was tried.
pub fn open(options: &Options) -> Result<(Box<dyn Discovery>, Vec<String>), DiscoveryError> {
    let mut why_not_bpf = Vec::new();
    if options.choice != Choice::Poll {
        match bpf::Bpf::open(options) {
            Ok(bpf) => return Ok((Box::new(bpf), why_not_bpf)),
            Err(error) if options.choice == Choice::Bpf => return Err(error),
            Err(error) => why_not_bpf.push(error.to_string()),
        }
    }
    Ok((Box::new(poll::Poll::open(options)?), why_not_bpf))
}

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
    /// see that in time ([`heirs`]).
    fn starts(&mut self) -> Vec<Start> {
        Vec::new()
    }

    /// Takes in what is new since the last call. Cheap, as it is called at every wake-up. The result includes
    /// new threads, so that counters can be opened at once.
    fn refresh(&mut self) -> Result<News, DiscoveryError>;

    /// Follows another running process with its descendants from now on, below [`Root::Others`]. They appear
    /// in the next news.
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

    /// Returns what could not be seen, in words: lost events, more threads than the map holds.
    fn notes(&self) -> Vec<String>;
}

/// The changes since the last call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct News {
    /// Threads that appeared.
    pub appeared: Vec<NewThread>,
    /// Processes that were seen to have a child process, from a source without [`Discovery::starts`].
    pub starters: Vec<u32>,
    /// Threads that ended; they are among the next [`Discovery::threads`].
    pub ended: Vec<ThreadId>,
    /// The first threads of processes that have executed another program.
    pub executed: Vec<ThreadId>,
    /// Threads with a new name.
    pub renamed: Vec<(ThreadId, Arc<str>)>,
    /// Applications whose number of runnable threads differs from the last report.
    pub runnable: Vec<RunnableThreads>,
}

/// A newly found thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewThread {
    /// Kernel thread ID.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// The thread that created it, if the source knows it.
    pub creator_tid: Option<u32>,
    /// Distinguishes it from an earlier thread with the same ID.
    pub generation: u64,
    /// When it was created, as far as the source knows.
    pub created: Instant,
}

/// A thread that runs with the mask of the bound thread that created it, or of its own earlier program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Distinguishes it from an earlier thread with the same ID.
    pub generation: u64,
    /// The bound thread: its creator, or itself if it executes another program.
    pub by_tid: u32,
    /// The process of the bound thread.
    pub by_pid: u32,
}

impl Start {
    /// Returns whether a program starts, or may start next: a new process or another program, not a thread.
    pub fn is_of_program(&self) -> bool {
        self.pid != self.by_pid || self.tid == self.by_tid
    }
}

/// The facts of one thread; times are cumulative since its start.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadFacts {
    /// Kernel thread ID.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its application.
    pub app: AppId,
    /// Distinguishes it from an earlier thread with the same ID.
    pub generation: u64,
    /// Its name (`comm`).
    pub name: Arc<str>,
    /// CPU time since it has been followed, in nanoseconds.
    pub cpu_ns: u64,
    /// Time runnable (running or waiting for a PE) in nanoseconds, if known.
    pub runnable_ns: Option<u64>,
    /// Whether it is runnable now.
    pub runnable: bool,
    /// The PE that it runs on or ran on last.
    pub last_pe: Option<PeId>,
    /// Whether it has ended.
    pub ended: bool,
}

/// Thread-level parallelism of the followed tree since the start. See
/// [`corewise_core::observe::ApplicationReading`] for the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parallelism {
    /// Integral of the number of runnable threads, in thread-nanoseconds.
    pub runnable_thread_ns: u64,
    /// Time with at least one runnable thread, in nanoseconds.
    pub active_ns: u64,
    /// Time with exactly one runnable thread, in nanoseconds.
    pub sequential_ns: u64,
    /// Maximum number of threads runnable at once.
    pub runnable_max: u32,
    /// Whether it was integrated at every switch all the time, as opposed to estimated.
    pub exact: bool,
}

impl ThreadFacts {
    /// Returns the thread's identity.
    pub fn id(&self) -> ThreadId {
        ThreadId { tid: self.tid, generation: self.generation }
    }
}

impl DiscoveryError {
    fn bpf(error: std::io::Error) -> DiscoveryError {
        DiscoveryError::Bpf { reason: error.to_string() }
    }
}

fn bpf_error(error: libbpf_rs::Error) -> DiscoveryError {
    refused(corewise_bpf::reason(error))
}

fn refused(reason: String) -> DiscoveryError {
    DiscoveryError::Bpf { reason }
}

/// Why a process is not followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// It may not, or should not.
    #[error(transparent)]
    Attach(#[from] attach::AttachError),
    /// Nobody can be followed any more.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The source was opened without [`Root::Others`].
    #[error("only what was named at the start is followed")]
    Fixed,
}

impl From<ProcError> for FollowError {
    fn from(error: ProcError) -> FollowError {
        FollowError::Discovery(error.into())
    }
}

/// Why threads cannot be discovered.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// A file under `/proc` could not be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// A control group could not be read.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// BPF is not permitted, or the kernel lacks something.
    #[error("BPF cannot be used: {reason}")]
    Bpf {
        /// What was refused, and what would help.
        reason: String,
    },
}
