//! What to follow, and how.

use super::applications::Extent;
use super::groups::Groups;
use super::others::Others;
use corewise_core::ids::AppId;
use corewise_sys::cgroup::ControlGroup;
use corewise_sys::proc::Proc;

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
    /// What is named later ([`Discovery::attach`](super::Discovery::attach)); with `all` also each process
    /// that this one may look into and that descends from no other root. At most one root is of this kind.
    Others {
        /// Whether processes are looked for that nobody names.
        all: bool,
    },
}

impl Options {
    /// Returns the roots with their application IDs.
    pub(super) fn roots(&self) -> impl Iterator<Item = (AppId, &Root)> {
        self.roots.iter().zip(0..).map(|(root, index)| (AppId(index), root))
    }

    /// Returns the name of each root's program, if it runs one already.
    pub(super) fn named_roots(&self) -> impl Iterator<Item = (Option<String>, Option<u32>)> {
        self.roots.iter().map(|root| match root {
            Root::Process(pid) => (self.proc.program_name(*pid), Some(*pid)),
            Root::Others { .. } => (Some("others".to_owned()), None),
            Root::ChildrenOf(_) | Root::Group(_) => (None, None),
        })
    }

    /// Returns what belongs to no other root.
    pub(super) fn others(&self) -> Others {
        let find = |(app, root): (AppId, &Root)| match root {
            Root::Others { all } => Some((app, *all)),
            Root::ChildrenOf(_) | Root::Process(_) | Root::Group(_) => None,
        };
        Others::new(self.proc.clone(), self.roots().find_map(find), self.excluded.clone())
    }

    /// Returns the control groups among the roots.
    pub(super) fn groups(&self) -> Groups {
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

impl Choice {
    /// The words that users give for them.
    pub const WORDS: &str = "auto|bpf|poll";
}

impl std::str::FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Choice::Auto),
            "bpf" => Ok(Choice::Bpf),
            "poll" => Ok(Choice::Poll),
            _ => Err(format!("`{text}` is none of {}", Choice::WORDS)),
        }
    }
}
