//! Policies: each turns the state of the threads into the placement that it wants. One policy per file.
//!
//! A policy never acts. It receives a [`Scene`] and returns a [`Placement`]; the engine computes the
//! difference to the present placement within the limits of users and machine, and the world carries it out.

mod amp;
mod busyfcs;
mod by_rule;
mod claims;
mod cosched;
mod default;
pub mod dispatch;
pub mod exec;
mod interface;
mod kind;
mod measured_ipc;
mod mintlp;
mod near;
mod needs;
mod pa;
mod peer;
mod phases;
mod predicted;
mod rr;
mod seats;
mod spec;
mod spread;
mod static_ipc;
mod stays;

pub use crate::observe::EventKind;
pub use by_rule::ByRule;
pub use claims::Claims;
pub use default::KIND as DEFAULT;
pub use interface::{Cause, Policy, Scene, Subject};
pub use kind::{Parameter, Parameters, PolicyError, PolicyKind};
pub use needs::{Needs, Reading};
pub use predicted::Predicted;
pub use spec::{ParameterTable, PolicySpec};
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

impl PolicyKind {
    /// Returns the policy with this name.
    pub fn find(name: &str) -> Result<&'static PolicyKind, PolicyError> {
        KINDS.iter().copied().find(|kind| kind.name == name).ok_or_else(|| PolicyError::Policy {
            name: name.to_owned(),
            known: names().collect::<Vec<_>>().join(", "),
            nearest: kind::nearest(name, names()).unwrap_or_default(),
        })
    }
}

impl Claims {
    /// Returns whether a policy, given by its specification, makes claims at all.
    pub fn are_made_by(policy: &str) -> bool {
        let name = policy.split(':').next().unwrap_or_default();
        PolicyKind::find(name).is_ok_and(|kind| kind.makes_claims)
    }
}

/// Builds the policy of a specification such as `pa:stay=500ms`, unless it needs a command of its own.
pub fn build(spec: &str) -> Result<Box<dyn Policy>, PolicyError> {
    spec.parse::<PolicySpec>()?.build(None)
}

#[cfg(test)]
mod tests;
