//! Policies: each turns what is known of the threads into the placement it wants. One policy, one file.
//!
//! A policy never acts. It gets a [`Scene`] and returns a [`Placement`]; the engine makes the difference to
//! the present placement, keeps to the limits of users and machine, and the world carries it out.

use crate::classify::FpuClass;
use crate::cpuset::CpuSet;
use crate::ids::AppId;
use crate::machine_model::MachineModel;
use crate::observe::{Event, Hints};
use crate::plan::{Assignment, Placement};
use crate::time::Time;
use crate::view::{ApplicationView, ThreadView};
use std::collections::BTreeMap;
use std::sync::Arc;

mod amp;
mod busyfcs;
mod cosched;
mod default;
pub mod exec;
mod measured_ipc;
mod mintlp;
mod near;
mod needs;
mod pa;
mod rr;
mod spec;
mod spread;
mod static_ipc;
mod turns;

pub use crate::observe::EventKind;
pub use default::KIND as DEFAULT;
pub use needs::{Needs, Reading};
pub use spec::{Parameter, ParameterTable, Parameters, PolicyError, PolicyKind, PolicySpec};
pub use spread::KIND as SPREAD;

/// The registry: every policy, in the order in which they are listed.
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

/// The policies' names.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    KINDS.iter().map(|kind| kind.name)
}

/// The policy of a specification such as `pa:turn=500ms`, if it needs no command of its own.
pub fn build(spec: &str) -> Result<Box<dyn Policy>, PolicyError> {
    spec.parse::<PolicySpec>()?.build(None)
}

/// What a policy is told.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The time.
    pub now: Time,
    /// Why it is asked now.
    pub cause: Cause<'a>,
    /// The machine: what its PEs share, and what that costs.
    pub machine: &'a MachineModel,
    /// The PEs that may be used now.
    pub allowed: &'a CpuSet,
    /// Every living thread.
    pub threads: &'a [Subject],
    /// What each application did lately.
    pub applications: &'a BTreeMap<AppId, ApplicationView>,
}

/// Why a policy is asked.
#[derive(Debug, Clone, Copy)]
pub enum Cause<'a> {
    /// The interval is over, and everything was looked at.
    Interval,
    /// This has happened since, and nothing else was looked at.
    Events(&'a [Event]),
}

/// One thread as a policy sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// What it did lately.
    pub view: ThreadView,
    /// Its name (`comm`).
    pub name: Arc<str>,
    /// Whether it wanted a PE for at least half of the last window; by the present instant where that is not
    /// known, or where the world tells that just one thread of its application is runnable.
    /// [`Hints::spinning`] tells whether it wants it only to wait.
    pub runnable: bool,
    /// What its runtime library told of it.
    pub hints: Hints,
    /// Its FPU class.
    pub fpu_class: FpuClass,
    /// Whether corewise may place it now.
    pub placeable: bool,
    /// Whether it was bound so lately that it should stay where it is.
    pub resident: bool,
    /// Where it is bound and why, if it is; in [`Policy::answers`], where it was when a placement was last
    /// asked for: an event costs no look at every thread.
    pub assignment: Option<Assignment>,
}

/// A scheduling policy.
pub trait Policy {
    /// How users name it: the policy, and the parameters that they gave.
    fn name(&self) -> &str;

    /// What it goes by.
    fn needs(&self) -> Needs;

    /// Whether it may want another placement because of the events that the scene tells of as its cause. It
    /// is asked at every event, and [`Policy::place`] only if so.
    fn answers(&mut self, _scene: &Scene<'_>) -> bool {
        true
    }

    /// The placement it wants. Only threads that are `placeable` may be bound.
    fn place(&mut self, scene: &Scene<'_>) -> Placement;

    /// Why it has given up, if it has: it binds nothing any more, and what it said before may be wrong.
    fn failure(&self) -> Option<&str> {
        None
    }
}

/// The number of runnable threads of an application: at this instant where the world tells every change, else
/// the mean of the last window, rounded. `None` where the world does not tell.
fn tlp(scene: &Scene<'_>, app: AppId) -> Option<usize> {
    let now = |view: &ApplicationView| view.runnable.map(|count| count as usize);
    scene.applications.get(&app).map(|view| now(view).unwrap_or(view.tlp_mean.round() as usize))
}

#[cfg(test)]
mod tests;
