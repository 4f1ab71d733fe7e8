//! Where threads shall run, where they run now, and the difference: the actions.

use crate::cpuset::CpuSet;
use crate::ids::ThreadId;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a policy wants: the bound threads and their settings. A thread that is not mentioned is free, a
/// setting that is not mentioned is the system's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// Each bound thread with its PEs and the reason.
    pub bound: FxHashMap<ThreadId, Assignment>,
    /// What else threads shall have.
    pub settings: BTreeMap<(ThreadId, SettingKind), WantedSetting>,
    /// Said once to the user when the policy has nothing to do on this machine, and why.
    pub nothing_to_gain: Option<String>,
}

/// Where one thread is bound and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The PEs that it may use.
    pub pes: CpuSet,
    /// The rule and the numbers that led here, and what else was considered.
    pub reason: Arc<str>,
}

/// How one thread shall be treated, beside where it runs, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedSetting {
    /// The setting.
    pub setting: Setting,
    /// The rule and the numbers that led here.
    pub reason: Arc<str>,
}

/// How a thread is treated, beside where it runs. Which of these can be changed depends on the world's
/// actuator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Its share of a PE that others want, too.
    Weight(Weight),
    /// How long it may run before others that wait for its PE get their turn.
    SliceNs(u64),
    /// How many turns of their loop the idle threads of its process spin before they sleep. It holds for the
    /// whole process.
    SpinCount(u64),
    /// The threads of its process run, all together, in turns with those of other processes that have this
    /// setting, also under other runs of corewise.
    InTurns,
    /// Of how many threads the runtime libraries of its process make their teams at most. It holds for the
    /// whole process.
    TeamSize(u32),
}

/// A share of a PE's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// What nobody else wants (Linux: `SCHED_IDLE`).
    Idle,
    /// In proportion to this: 100 is normal, as for `cpu.weight` of control groups (sched(7): a nice level is
    /// a factor of about 1.25).
    Percent(u32),
}

/// Which setting a [`Setting`] is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingKind {
    /// [`Setting::Weight`].
    Weight,
    /// [`Setting::SliceNs`].
    Slice,
    /// [`Setting::SpinCount`].
    SpinCount,
    /// [`Setting::InTurns`].
    Turns,
    /// [`Setting::TeamSize`].
    TeamSize,
}

impl SettingKind {
    /// Every kind.
    pub const ALL: [SettingKind; 5] = [
        SettingKind::Weight,
        SettingKind::Slice,
        SettingKind::SpinCount,
        SettingKind::Turns,
        SettingKind::TeamSize,
    ];

    /// Whether it is one of a whole process, named by its first thread, wherever that may run.
    pub fn is_of_process(self) -> bool {
        match self {
            SettingKind::Weight | SettingKind::Slice => false,
            SettingKind::SpinCount | SettingKind::Turns | SettingKind::TeamSize => true,
        }
    }
}

impl Setting {
    /// Of which kind it is.
    pub fn kind(self) -> SettingKind {
        match self {
            Setting::Weight(_) => SettingKind::Weight,
            Setting::SliceNs(_) => SettingKind::Slice,
            Setting::SpinCount(_) => SettingKind::SpinCount,
            Setting::InTurns => SettingKind::Turns,
            Setting::TeamSize(_) => SettingKind::TeamSize,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match *self {
            Setting::Weight(Weight::Idle) => write!(f, "{kind}: only what nobody else wants"),
            Setting::Weight(Weight::Percent(percent)) => write!(f, "{kind}: {percent} %"),
            Setting::SliceNs(ns) => write!(f, "{kind}: {:?}", Duration::from_nanos(ns)),
            Setting::SpinCount(turns) => write!(f, "{kind}: {turns}"),
            Setting::InTurns => write!(f, "{kind}: with other programs that spin"),
            Setting::TeamSize(threads) => write!(f, "{kind}: {threads}"),
        }
    }
}

impl fmt::Display for SettingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettingKind::Weight => "weight",
            SettingKind::Slice => "slice",
            SettingKind::SpinCount => "spin count",
            SettingKind::Turns => "turns",
            SettingKind::TeamSize => "size of teams",
        })
    }
}

/// One change that the engine asks of the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The thread to change.
    pub thread: ThreadId,
    /// What to change.
    pub change: Change,
    /// Why, in words.
    pub reason: Arc<str>,
}

/// The kinds of change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Let the thread run on these PEs only.
    Bind(CpuSet),
    /// Give the thread back the PEs that its user lets it have.
    Free,
    /// Treat the thread so.
    Set(Setting),
    /// Give the thread back the setting that it had.
    Reset(SettingKind),
}

impl Change {
    /// Whether it gives something back.
    pub fn gives_back(&self) -> bool {
        match self {
            Change::Free | Change::Reset(_) => true,
            Change::Bind(_) | Change::Set(_) => false,
        }
    }

    /// The setting that it changes; `None` for the PEs.
    pub fn setting_kind(&self) -> Option<SettingKind> {
        match *self {
            Change::Bind(_) | Change::Free => None,
            Change::Set(setting) => Some(setting.kind()),
            Change::Reset(kind) => Some(kind),
        }
    }
}

/// What became of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The thread that was to be changed.
    pub thread: ThreadId,
    /// What was asked.
    pub change: Change,
    /// How it went.
    pub result: OutcomeKind,
}

/// How an action went. A failure is an observation, not an error of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// Done.
    Done,
    /// The thread had ended.
    Gone,
    /// The thread's mask was no longer what corewise had left: someone else decides now.
    NotOurs,
    /// The system refused; its words.
    Refused(String),
    /// The world's actuator cannot change this setting, of whatever thread.
    Unsupported,
}

impl Placement {
    /// Nobody bound, as there is nothing to gain, and why.
    pub fn without_gain(reason: impl Into<String>) -> Placement {
        Placement { nothing_to_gain: Some(reason.into()), ..Placement::default() }
    }

    /// The actions that turn `self` into `wanted`: PEs before settings, what is given back before what is
    /// taken, so that PEs are empty before they are filled. Of the threads that are `wanted` somewhere those
    /// are bound that are among the `living`, in their order.
    pub fn actions_towards(
        &self,
        wanted: &Placement,
        living: impl IntoIterator<Item = ThreadId>,
    ) -> Vec<Action> {
        let reason: Arc<str> = "no longer among the threads that the policy binds".into();
        let free = |&thread: &ThreadId| Action { thread, change: Change::Free, reason: reason.clone() };
        let mut frees: Vec<Action> =
            self.bound.keys().filter(|thread| !wanted.bound.contains_key(thread)).map(free).collect();
        frees.sort_unstable_by_key(|action| action.thread);
        let binds = living.into_iter().filter_map(|thread| {
            let Assignment { pes, reason } = wanted.bound.get(&thread)?;
            let is_new = self.bound.get(&thread).is_none_or(|present| present.pes != *pes);
            let change = || Change::Bind(pes.clone());
            is_new.then(|| Action { thread, change: change(), reason: reason.clone() })
        });
        let resets = self.settings.keys().filter(|key| !wanted.settings.contains_key(key));
        let resets = resets.map(|&(thread, kind)| Action {
            thread,
            change: Change::Reset(kind),
            reason: "what called for it is over".into(),
        });
        let sets = wanted.settings.iter().filter(|(key, wanted)| {
            self.settings.get(key).map(|present| present.setting) != Some(wanted.setting)
        });
        let sets = sets.map(|(&(thread, _), wanted)| Action {
            thread,
            change: Change::Set(wanted.setting),
            reason: wanted.reason.clone(),
        });
        frees.into_iter().chain(binds).chain(resets).chain(sets).collect()
    }
}
