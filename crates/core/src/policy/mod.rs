//! Policies: each turns what is known of the threads into the placement it wants. One policy, one file.
//!
//! A policy never acts. It gets a [`Scene`] and returns a [`Placement`]; the engine makes the difference to
//! the present placement, keeps to the limits of users and machine, and the world carries it out.

use crate::classify::FpuClass;
use crate::cpuset::CpuSet;
use crate::ids::AppId;
use crate::observe::Hints;
use crate::plan::Placement;
use crate::time::Time;
use crate::topology::Topology;
use crate::view::{ApplicationView, ThreadView};
use std::collections::BTreeMap;
use std::sync::Arc;

mod amp;
mod busyfcs;
mod cosched;
mod default;
mod mintlp;
mod near;
mod pa;
mod rr;
mod spread;
mod static_ipc;
mod turns;

pub use busyfcs::BusyFcs;
pub use cosched::{Cosched, CoschedParameters, Weights};
pub use default::Default;
pub use mintlp::MinTlp;
pub use pa::{Pa, PaParameters};
pub use rr::RoundRobin;
pub use spread::Spread;
pub use static_ipc::{MeasuredIpc, StaticIpc};

/// What a policy is told.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The time.
    pub now: Time,
    /// The machine.
    pub topology: &'a Topology,
    /// The PEs that may be used now.
    pub allowed: &'a CpuSet,
    /// Every living thread.
    pub threads: &'a [Subject],
    /// What each application did since the last step.
    pub applications: &'a BTreeMap<AppId, ApplicationView>,
    /// The present placement.
    pub present: &'a Placement,
}

/// One thread as a policy sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// What it did lately.
    pub view: ThreadView,
    /// Its name (`comm`).
    pub name: Arc<str>,
    /// Whether it wanted a PE for at least half of the time since the last step; by the present instant where
    /// that is not known. [`Hints::spinning`] tells whether it wants it only to wait.
    pub runnable: bool,
    /// What its runtime library told of it.
    pub hints: Hints,
    /// Its FPU class.
    pub fpu_class: FpuClass,
    /// Whether corewise may place it now.
    pub placeable: bool,
    /// Whether it was bound so lately that it should stay where it is.
    pub resident: bool,
}

/// A scheduling policy.
pub trait Policy {
    /// The name that users give to `--policy`.
    fn name(&self) -> &'static str;

    /// Whether it decides by FPU usage, and so needs counters.
    fn needs_fpu_usage(&self) -> bool;

    /// The placement it wants. Only threads that are `placeable` may be bound.
    fn place(&mut self, scene: &Scene<'_>) -> Placement;
}

/// The number of runnable threads of an application: the mean since the last step, rounded. `None` where the
/// world does not tell.
fn tlp(scene: &Scene<'_>, app: AppId) -> Option<usize> {
    scene.applications.get(&app).map(|view| view.tlp_mean.round() as usize)
}

/// The policies by name, for help texts and errors.
pub const NAMES: &[&str] =
    &["spread", "default", "busyfcs", "rr", "static-ipc", "measured-ipc", "mintlp", "pa", "cosched"];

/// The policy of that name, with the paper's parameters.
pub fn by_name(name: &str) -> Option<Box<dyn Policy>> {
    match name {
        "spread" => Some(Box::new(Spread)),
        "default" => Some(Box::new(Default)),
        "busyfcs" => Some(Box::new(BusyFcs)),
        "rr" => Some(Box::<RoundRobin>::default()),
        "static-ipc" => Some(Box::<StaticIpc>::default()),
        "measured-ipc" => Some(Box::<MeasuredIpc>::default()),
        "mintlp" => Some(Box::new(MinTlp)),
        "pa" => Some(Box::<Pa>::default()),
        "cosched" => Some(Box::<Cosched>::default()),
        _ => None,
    }
}
