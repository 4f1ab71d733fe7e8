//! Where threads should run, where they run now, and the difference: the actions.

use crate::cpuset::CpuSet;
use crate::ids::ThreadId;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a policy wants: the bound threads and their settings. Threads that are not listed are free; settings
/// that are not listed keep the system's value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// Each bound thread with its PEs and the reason.
    pub bound: FxHashMap<ThreadId, Assignment>,
    /// The settings of threads.
    pub settings: BTreeMap<(ThreadId, SettingKind), WantedSetting>,
    /// Why the policy has nothing to do on this machine; reported to the user once.
    pub nothing_to_gain: Option<String>,
}

/// Where one thread is bound and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The PEs that the thread may use.
    pub pes: CpuSet,
    /// The rule and the numbers that led to this decision, and the alternatives considered.
    pub reason: Arc<str>,
}

/// How long a gang's turn is ([`Setting::InTurns`]).
pub const TURN: Duration = Duration::from_millis(100);

/// The nice level of a session while it has no turn: 1.8 % of the part of a session at level 0. Nobody else
/// uses this level, so a session found at it was set by another corewise, and its own level was 0.
pub const NICE_OUTSIDE_TURN: i32 = 18;

/// A setting that a thread should have, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedSetting {
    /// The setting.
    pub setting: Setting,
    /// The rule and the numbers that led to this decision.
    pub reason: Arc<str>,
}

/// How a thread is treated, apart from where it runs. Which of these can be changed depends on the world's
/// actuator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// The thread's share of a PE that others want, too.
    Weight(Weight),
    /// The spin count: how often the idle threads of the thread's process check for work before they sleep.
    /// Applies to the whole process.
    SpinCount(u64),
    /// The threads of the process run together, in turns with those of other processes that have this
    /// setting, including those under other runs of corewise.
    InTurns,
    /// The same as soon as another process has this setting or [`Setting::InTurns`]; nothing until then.
    MayTakeTurns,
}

/// A share of a PE's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Only PE time that no other thread wants (Linux: `SCHED_IDLE`).
    Idle,
    /// A proportional share: 100 is the weight that the thread has by its user's choice (Linux: the nearest
    /// nice level, each a factor of 1.25 by sched(7)).
    Percent(u32),
}

/// The kind of a [`Setting`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingKind {
    /// [`Setting::Weight`].
    Weight,
    /// [`Setting::SpinCount`].
    SpinCount,
    /// [`Setting::InTurns`] and [`Setting::MayTakeTurns`].
    Turns,
}

impl SettingKind {
    /// Every kind.
    pub const ALL: [SettingKind; 3] = [SettingKind::Weight, SettingKind::SpinCount, SettingKind::Turns];

    /// Returns whether the setting applies to a whole process, which is identified by its first thread.
    pub fn is_of_process(self) -> bool {
        match self {
            SettingKind::Weight => false,
            SettingKind::SpinCount | SettingKind::Turns => true,
        }
    }
}

impl Setting {
    /// Returns the kind of the setting.
    pub fn kind(self) -> SettingKind {
        match self {
            Setting::Weight(_) => SettingKind::Weight,
            Setting::SpinCount(_) => SettingKind::SpinCount,
            Setting::InTurns | Setting::MayTakeTurns => SettingKind::Turns,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match *self {
            Setting::Weight(Weight::Idle) => write!(f, "{kind}: only what nobody else wants"),
            Setting::Weight(Weight::Percent(percent)) => write!(f, "{kind}: {percent} %"),
            Setting::SpinCount(count) => write!(f, "{kind}: {count}"),
            Setting::InTurns => write!(f, "{kind}: with other programs that wait often"),
            Setting::MayTakeTurns => write!(f, "{kind}: if another program takes them, too"),
        }
    }
}

impl fmt::Display for SettingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettingKind::Weight => "weight",
            SettingKind::SpinCount => "spin count",
            SettingKind::Turns => "turns",
        })
    }
}

/// One change that the engine requests from the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The thread to change.
    pub thread: ThreadId,
    /// What to change.
    pub change: Change,
    /// Why, for people.
    pub reason: Arc<str>,
}

/// The kinds of change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Restrict the thread to these PEs.
    Bind(CpuSet),
    /// Let the thread run on one of these PEs now, with the PEs that its user permits from then on.
    Move(CpuSet),
    /// Restore the PEs that the thread's user permits.
    Free,
    /// Apply the setting to the thread.
    Set(Setting),
    /// Restore the setting that the thread had before.
    Reset(SettingKind),
}

impl Change {
    /// Returns whether the change restores an original state.
    pub fn gives_back(&self) -> bool {
        match self {
            Change::Free | Change::Reset(_) => true,
            Change::Bind(_) | Change::Move(_) | Change::Set(_) => false,
        }
    }

    /// Returns the kind of the changed setting; `None` for a change of PEs.
    pub fn setting_kind(&self) -> Option<SettingKind> {
        match *self {
            Change::Bind(_) | Change::Move(_) | Change::Free => None,
            Change::Set(setting) => Some(setting.kind()),
            Change::Reset(kind) => Some(kind),
        }
    }
}

/// The outcome of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The thread that was to be changed.
    pub thread: ThreadId,
    /// The requested change.
    pub change: Change,
    /// The result.
    pub result: OutcomeKind,
}

/// The result of an action. A failure is an observation, not a program error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// Done.
    Done,
    /// The thread had ended.
    Gone,
    /// The thread's mask was no longer the one set by corewise: someone else decides now.
    NotOurs,
    /// Nobody asked for it: the change was made in corewise's place, while corewise was stopped or hung.
    GivenBack,
    /// The system refused, with its error message.
    Refused(String),
    /// The world's actuator cannot change this setting for any thread.
    Unsupported,
}

impl OutcomeKind {
    /// Each kind once, where it is named for itself.
    pub const EACH: [OutcomeKind; 6] = [
        OutcomeKind::Done,
        OutcomeKind::Gone,
        OutcomeKind::NotOurs,
        OutcomeKind::GivenBack,
        OutcomeKind::Refused(String::new()),
        OutcomeKind::Unsupported,
    ];
}

impl Placement {
    /// Returns a placement that binds no thread because there is nothing to gain, with the reason.
    pub fn without_gain(reason: impl Into<String>) -> Placement {
        Placement { nothing_to_gain: Some(reason.into()), ..Placement::default() }
    }

    /// Returns the actions that turn `self` into `wanted`: PEs before settings, and restoring before
    /// changing, so that PEs are vacated before they are filled. Binds follow the order of `living`; wanted
    /// threads that are not among these are left out.
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
            reason: "it is no longer needed".into(),
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
