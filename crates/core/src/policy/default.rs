//! The operating system's own scheduler, left alone.
//!
//! Problem: every comparison needs a baseline that is watched and reported in the same way.
//! Approach: bind nothing. Source: the papers' "Default". Limits: none; it does nothing.

use super::{Policy, Scene};
use crate::plan::Placement;

/// Binds nothing.
#[derive(Debug, Clone, Copy)]
pub struct Default;

impl Policy for Default {
    fn name(&self) -> &'static str {
        "default"
    }

    fn needs_fpu_usage(&self) -> bool {
        false
    }

    fn place(&mut self, _: &Scene<'_>) -> Placement {
        Placement::default()
    }
}
