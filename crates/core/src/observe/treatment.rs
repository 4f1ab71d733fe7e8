//! What a user's rules say about how a thread is placed.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What rules say about how the threads of a process are placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Treatment {
    /// The policy that places them, as a specification; `None`: the one that places everything else.
    pub policy: Option<Arc<str>>,
    /// When that policy chooses: those with lower numbers do so before.
    pub order: u32,
    /// Whether the [guard](crate::guard) measures what their placement gains, if there is one.
    pub guard: bool,
    /// Whether they are kept on the PEs that they are permitted, also where no policy binds them.
    #[serde(default)]
    pub confined: bool,
}

impl Treatment {
    /// Returns whether the guard measures a thread with this treatment.
    pub fn is_guarded(treatment: &Option<Arc<Treatment>>) -> bool {
        treatment.as_ref().is_none_or(|treatment| treatment.guard)
    }
}
