//! Policies: each turns the state of the threads into the placement that it wants. One policy per file.
//!
//! A policy never acts. It receives a [`Scene`] and returns a [`Placement`]; the engine computes the
//! difference to the present placement within the limits of users and machine, and the world carries it out.

use crate::classify::FpuClass;
use crate::cpuset::CpuSet;
use crate::ids::AppId;
use crate::machine_model::MachineModel;
use crate::observe::{Event, Hints, Treatment};
use crate::plan::{Assignment, Placement};
use crate::time::Time;
use crate::view::{ApplicationView, ThreadView};
use std::collections::BTreeMap;
use std::sync::Arc;

mod amp;
mod busyfcs;
mod by_rule;
mod claims;
mod cosched;
mod default;
pub mod dispatch;
pub mod exec;
mod measured_ipc;
mod mintlp;
mod near;
mod needs;
mod pa;
mod phases;
mod rr;
mod spec;
mod spread;
mod static_ipc;
mod turns;

pub use crate::observe::EventKind;
pub use by_rule::ByRule;
pub use claims::Claims;
pub use default::KIND as DEFAULT;
pub use needs::{Needs, Reading};
pub use spec::{Parameter, ParameterTable, Parameters, PolicyError, PolicyKind, PolicySpec};
pub use spread::KIND as SPREAD;

/// The registry: every policy, in the order in which policies are listed.
pub const KINDS: &[&PolicyKind] = &[
    &spread::KIND,
    &default::KIND,
    &busyfcs::KIND,
    &rr::KIND,
    &static_ipc::KIND,
    &measured_ipc::KIND,
    &mintlp::KIND,
    &pa::KIND,
    &cosched::KIND,
    &exec::KIND,
];

/// Returns the names of the policies.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    KINDS.iter().map(|kind| kind.name)
}

/// Builds the policy of a specification such as `pa:turn=500ms`, unless it needs a command of its own.
pub fn build(spec: &str) -> Result<Box<dyn Policy>, PolicyError> {
    spec.parse::<PolicySpec>()?.build(None)
}

/// The input of a policy.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The time.
    pub now: Time,
    /// Why the policy is asked now.
    pub cause: Cause<'a>,
    /// The machine model: what PEs share, and what that costs.
    pub machine: &'a MachineModel,
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
    fn example(view: ThreadView) -> Subject {
        Subject {
            view,
            name: "test".into(),
            runnable: true,
            hints: Hints::default(),
            treatment: None,
            fpu_class: FpuClass::Unknown,
            placeable: true,
            resident: false,
            assignment: None,
        }
    }

    /// Returns whether the thread only waits for others while it runs: its runtime library says so, or its
    /// samples show it.
    pub fn spins(&self) -> bool {
        self.hints.spinning || self.is_seen_spinning()
    }

    /// Returns whether the samples of the last window show that the thread only waits for others.
    fn is_seen_spinning(&self) -> bool {
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

#[cfg(test)]
mod tests;
