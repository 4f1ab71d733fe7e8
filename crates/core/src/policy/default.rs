//! The operating system's own scheduler, left alone: `default`.
//!
//! Problem: every comparison needs a baseline that is observed and reported in the same way. Approach: bind
//! nothing. Source: the papers' "Default". Limits: none; it does nothing.

use super::interface::{Policy, Scene};
use super::kind::PolicyKind;
use super::needs::Needs;
use crate::plan::Placement;

/// The registry entry.
pub const KIND: PolicyKind = PolicyKind {
    name: "default",
    machine: "any",
    rule: "everything is left to the operating system",
    why: "it is what the others are compared with",
    source: "the papers' baseline",
    makes_claims: false,
    rest: None,
    make: |_| Box::new(Default),
};

/// Binds nothing.
struct Default;

impl Policy for Default {
    fn name(&self) -> &str {
        KIND.name
    }

    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn place(&mut self, _: &Scene<'_>) -> Placement {
        Placement::default()
    }
}
