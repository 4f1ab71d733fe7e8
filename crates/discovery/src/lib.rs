//! Which threads applications have, from the first instant of each to its last.
//!
//! Two sources behind one interface: [`bpf`] (exact, at once, needs privileges) and [`poll`] (`/proc`, for
//! everybody). Which one is in use is part of every report.

mod apps;
pub mod attach;
pub mod bpf;
pub mod followed;
mod groups;
mod known;
pub mod poll;
mod unwatched;

use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::observe::RunnableThreads;
use corewise_sys::cgroup::{ControlGroup, GroupError};
use corewise_sys::proc::{Proc, ProcError};
use groups::Groups;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whom to follow, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the applications begin with; the number of each is its [`AppId`].
    pub roots: Vec<Root>,
    /// Processes that are not followed, nor what descends from them: corewise itself, its guardian. They must
    /// run already.
    pub excluded: Vec<u32>,
    /// Where `/proc` is, for polling.
    pub proc: Proc,
    /// Which source to use.
    pub choice: Choice,
}

/// What an application begins with. It is followed with all its descendants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Root {
    /// Each child of this process: the command that corewise starts, or has just started. What it did before
    /// the source was opened counts, but for threads that had ended by then.
    ChildrenOf(u32),
    /// This process, which runs already.
    Process(u32),
    /// Each process that is in this control group or one below it, or comes into it. Of those that are there
    /// at first, only what they start from then on is followed elsewhere: services start sessions that are
    /// none of theirs.
    Group(ControlGroup),
}

impl Options {
    /// The roots with the numbers of their applications.
    fn roots(&self) -> impl Iterator<Item = (AppId, &Root)> {
        self.roots.iter().zip(0..).map(|(root, index)| (AppId(index), root))
    }

    /// The control groups among the roots.
    fn groups(&self) -> Groups {
        let group = |(app, root): (AppId, &Root)| match root {
            Root::Group(group) => Some((app, group.clone())),
            Root::ChildrenOf(_) | Root::Process(_) => None,
        };
        Groups::new(self.proc.clone(), self.roots().filter_map(group).collect(), self.excluded.clone())
    }
}

/// Which source of threads to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// BPF where it is permitted, else polling.
    #[default]
    Auto,
    /// BPF or nothing.
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

/// Opens the source that `options.choice` asks for. Returns with it why BPF is not used, if it was tried.
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

/// A source of threads. It follows process trees: every descendant of a root, also those whose parent has
/// ended (corewise is a child subreaper, so its own become its children and stay visible; of a process that
/// ran already only BPF, or a look while the parent lived, tells).
pub trait Discovery {
    /// The name for reports: `bpf` or `poll`.
    fn name(&self) -> &'static str;

    /// Descriptors that become readable when there is something new; none if the source must be asked, or
    /// just now wants to be only after [`Discovery::refresh_within`]: ask for them before every wait.
    fn wake_fds(&self) -> Vec<BorrowedFd<'_>>;

    /// How long the source may go without a call of [`Discovery::refresh`].
    fn refresh_within(&self) -> Option<Duration>;

    /// A BPF program that lets the samples of followed threads pass, for a clock that samples all.
    fn clock_filter(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Takes in what is new since the last call. Cheap: called at every wake-up. Among it are the threads
    /// that appeared, so that counters can be opened at once.
    fn refresh(&mut self) -> Result<News, DiscoveryError>;

    /// Reports changes of the number of runnable threads from now on, at most once per application and
    /// [`COALESCED_WITHIN`](corewise_core::observe::COALESCED_WITHIN).
    fn report_tlp(&mut self);

    /// Every living thread, and each ended one exactly once.
    fn threads(&mut self) -> Result<Vec<ThreadFacts>, DiscoveryError>;

    /// What is known of a living thread.
    fn facts(&self, tid: u32) -> Option<ThreadFacts>;

    /// Whether no followed thread lives, as far as is known.
    fn is_idle(&self) -> bool;

    /// An application's runnable threads integrated over time so far.
    fn parallelism(&mut self, app: AppId) -> Parallelism;

    /// The kernel's own list of the followed threads, if that is the source.
    fn followed(&self) -> Option<std::io::Result<followed::Followed>> {
        None
    }

    /// What could not be seen, in words: lost events, more threads than the map holds.
    fn notes(&self) -> Vec<String>;
}

/// What is new.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct News {
    /// Threads that appeared.
    pub appeared: Vec<NewThread>,
    /// Threads that ended: they are among the next [`Discovery::threads`].
    pub ended: Vec<ThreadId>,
    /// Threads that have another name.
    pub renamed: Vec<(ThreadId, Arc<str>)>,
    /// Applications that have another number of runnable threads than was reported.
    pub runnable: Vec<RunnableThreads>,
}

/// A thread that was not known before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewThread {
    /// Kernel thread id.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// The thread that created it, where the source knows it.
    pub creator_tid: Option<u32>,
    /// Tells it from an earlier user of the same id.
    pub generation: u64,
    /// When it was created, as far as the source knows.
    pub created: Instant,
}

/// What is known of one thread; times are cumulative since its start.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadFacts {
    /// Kernel thread id.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its application.
    pub app: AppId,
    /// Tells it from an earlier user of the same id.
    pub generation: u64,
    /// Its name (`comm`).
    pub name: Arc<str>,
    /// CPU time since it is followed, in nanoseconds.
    pub cpu_ns: u64,
    /// Time runnable (running or waiting for a PE) in nanoseconds, where known.
    pub runnable_ns: Option<u64>,
    /// Whether it is runnable now.
    pub runnable: bool,
    /// The PE it runs on or ran on last.
    pub last_pe: Option<PeId>,
    /// Whether it has ended.
    pub ended: bool,
}

/// Thread-level parallelism of the followed tree since the start. See
/// [`corewise_core::observe::ApplicationReading`] for the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parallelism {
    /// Integral of the number of runnable threads, thread-nanoseconds.
    pub runnable_thread_ns: u64,
    /// Time with at least one runnable thread, nanoseconds.
    pub active_ns: u64,
    /// Time with exactly one runnable thread, nanoseconds.
    pub sequential_ns: u64,
    /// Most threads runnable at once.
    pub runnable_max: u32,
    /// Integrated at every switch all the time, or estimated.
    pub exact: bool,
}

impl ThreadFacts {
    /// The thread's identity.
    pub fn id(&self) -> ThreadId {
        ThreadId { tid: self.tid, generation: self.generation }
    }
}

impl DiscoveryError {
    fn bpf(error: std::io::Error) -> DiscoveryError {
        DiscoveryError::Bpf { reason: error.to_string() }
    }
}

/// Of each application that it has no runnable thread.
fn nobody_runnable(applications: usize) -> Vec<RunnableThreads> {
    (0..applications as u32).map(|app| RunnableThreads { app: AppId(app), count: 0, only: None }).collect()
}

/// Why threads cannot be discovered.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// A file under `/proc` could not be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// A control group could not be looked at.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// BPF is not permitted, or the kernel lacks something.
    #[error("BPF cannot be used: {reason}")]
    Bpf {
        /// What was refused and what would help.
        reason: String,
    },
}
