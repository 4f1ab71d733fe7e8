//! What a policy is asked, and what it answers.
//!
//! A policy sees one instant: every living thread with its recent activity, the machine, and why it is asked.
//! It answers with the whole placement that it wants, not with changes, so that it need not know what is in
//! force.

use super::claims::Claims;
use super::needs::Needs;
use crate::classify::FpuClass;
use crate::cpuset::CpuSet;
use crate::ids::AppId;
use crate::losses::Knowledge;
use crate::machine_model::MachineModel;
use crate::observe::{Event, Hints, Sizing, Treatment};
use crate::plan::{Assignment, Placement};
use crate::time::Time;
use crate::view::{ApplicationView, ThreadView};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The input of a policy.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The time.
    pub now: Time,
    /// Why the policy is asked now.
    pub cause: Cause<'a>,
    /// The machine model: what PEs share, and what that costs.
    pub machine: &'a MachineModel,
    /// What earlier runs have taught about programs.
    pub knowledge: &'a Knowledge,
    /// The PEs that may be used now.
    pub allowed: &'a CpuSet,
    /// How claims to fast PEs are enforced.
    pub claims: Claims,
    /// Every living thread.
    pub threads: &'a [Subject],
    /// The recent activity of each application.
    pub applications: &'a BTreeMap<AppId, ApplicationView>,
}

/// Why a policy is asked.
#[derive(Debug, Clone, Copy)]
pub enum Cause<'a> {
    /// The interval has elapsed, and everything was observed.
    Interval,
    /// These events have happened since, and nothing else was observed.
    Events(&'a [Event]),
}

/// One thread as a policy sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// Its recent activity.
    pub view: ThreadView,
    /// Its name (`comm`).
    pub name: Arc<str>,
    /// Whether it wanted a PE for at least half of the last window. The present instant decides where that is
    /// unknown, and where the world reports that at most one thread of the application is runnable. A thread
    /// may want a PE only to busy-wait: see [`Hints::spinning`].
    pub runnable: bool,
    /// The hints of its runtime library.
    pub hints: Hints,
    /// How its process is treated, if not as everything else.
    pub treatment: Option<Arc<Treatment>>,
    /// Its process.
    pub pid: u32,
    /// How its program chooses the number of its threads.
    pub sizing: Sizing,
    /// Its FPU class.
    pub fpu_class: FpuClass,
    /// Whether corewise may place it now.
    pub placeable: bool,
    /// Whether it was bound so recently that it should stay where it is.
    pub resident: bool,
    /// Where it is bound and why, if it is. In [`Policy::answers`] this is the state when a placement was
    /// last requested, as updating it would take a pass over all threads.
    pub assignment: Option<Assignment>,
}

/// From this share of spinning samples on, a thread spins: it has hardly anything else to do.
const SPINS_MIN: f64 = 0.75;

impl Subject {
    /// Returns a runnable thread for tests.
    #[cfg(test)]
    pub(super) fn example(view: ThreadView) -> Subject {
        Subject {
            name: "test".into(),
            runnable: true,
            hints: Hints::default(),
            treatment: None,
            pid: view.thread.tid,
            sizing: Sizing::default(),
            fpu_class: FpuClass::Unknown,
            placeable: true,
            resident: false,
            assignment: None,
            view,
        }
    }

    /// Returns whether the thread only waits for others while it runs: its runtime library says so, or its
    /// samples show it.
    pub fn spins(&self) -> bool {
        self.hints.spinning || self.is_seen_spinning()
    }

    /// Returns whether the samples of the last window show that the thread only waits for others.
    pub(super) fn is_seen_spinning(&self) -> bool {
        self.view.usage.spin.is_some_and(|spin| spin.value >= SPINS_MIN)
    }
}

/// A scheduling policy.
pub trait Policy {
    /// Returns the name as users write it, with the parameters that they gave.
    fn name(&self) -> &str;

    /// Returns which readings and events the policy uses.
    fn needs(&self) -> Needs;

    /// Returns whether the events in the scene's cause may change the wanted placement. Called for every
    /// batch of events; [`Policy::place`] follows only if the result is `true`.
    fn answers(&mut self, _scene: &Scene<'_>) -> bool {
        true
    }

    /// Returns the wanted placement. Only threads that are `placeable` may be bound.
    fn place(&mut self, scene: &Scene<'_>) -> Placement;

    /// Returns when the policy wants to be asked even if nothing has happened, if it does.
    fn due(&self) -> Option<Time> {
        None
    }

    /// Returns why the policy has given up, if it has. It then binds nothing any more, and its earlier
    /// answers may be wrong.
    fn failure(&self) -> Option<&str> {
        None
    }
}
