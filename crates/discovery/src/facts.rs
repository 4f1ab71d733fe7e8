//! What a source of threads says about them.

use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::observe::RunnableThreads;
use std::sync::Arc;
use std::time::Instant;

/// The changes since the last call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct News {
    /// Threads that appeared.
    pub appeared: Vec<NewThread>,
    /// Processes that were seen to have a child process, from a source without
    /// [`Discovery::starts`](super::Discovery::starts).
    pub starters: Vec<u32>,
    /// Threads that ended; they are among the next [`Discovery::threads`](super::Discovery::threads).
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
