//! What holds whatever is wanted: where threads may be bound, how often, and how soon again.

use super::intake::Intake;
use crate::plan::Placement;
use std::time::Duration;

/// How long the engine leaves a thread alone after the system refused to bind it.
pub const RETRY_AFTER: Duration = Duration::from_secs(30);

/// The maximum number of binds and settings per allowed PE that follow from one observation or one batch of
/// events; it bounds the work of a step. *Ours*: enough for four threads a PE to be placed at once.
pub const BINDS_PER_PE_MAX: usize = 4;

/// Drops assignments that violate a rule: unknown or unplaceable threads, and PEs that are not allowed or
/// permitted.
pub fn drop_invalid(wanted: &mut Placement, known: &Intake) {
    wanted.bound.retain(|&thread, assignment| {
        known.subject(thread).is_some_and(|subject| {
            subject.placeable
                && !assignment.pes.is_empty()
                && assignment.pes.is_subset(known.allowed())
                && assignment.pes.is_subset(&subject.view.permitted)
        })
    });
}
