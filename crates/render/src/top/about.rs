//! What does not change while a display runs.

use crate::terminal::live::Look;
use corewise_core::report::Sources;

/// What does not change while a display runs.
#[derive(Debug, Clone)]
pub struct About {
    /// What is watched, in words.
    pub what: String,
    /// Where readings come from.
    pub sources: Sources,
    /// How it is drawn.
    pub look: Look,
    /// What could not be seen, and what was left out.
    pub notes: Vec<String>,
    /// The duration of a recording in seconds; `None` of the present.
    pub replayed_seconds: Option<f64>,
}
