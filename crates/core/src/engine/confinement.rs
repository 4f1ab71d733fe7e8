//! Threads that a rule keeps on some PEs.
//!
//! Problem: a policy binds the threads that its principle is about, and leaves all others to the kernel,
//! which uses every PE. But "backups stay on the slow PEs" must hold for threads that no policy binds, too,
//! and while the guard measures without the placement.
//!
//! Approach: a thread whose treatment [names its PEs](crate::observe::Treatment::pes), and that neither the
//! policy nor a program's turns have bound, is bound to all PEs that it is permitted. Policies and the guard
//! do not see that: for them it is free, as it is within its PEs.
//!
//! One whose program [may ask](super::moves) how many PEs there are is bound to all of them, too, wherever
//! the policy would have it: the rule says what the program is to see.
//!
//! Limits: threads that may not be bound are not confined either: those that chose their PEs themselves, and
//! those that start programs, as every program that they start would inherit the mask.

use super::intake::Intake;
use super::moves;
use crate::cpuset::CpuSet;
use crate::plan::{Assignment, Placement};
use crate::policy::Subject;

/// Returns whether any thread is confined.
pub fn is_any(known: &Intake) -> bool {
    known.subjects().iter().any(|subject| of(subject).is_some())
}

/// Returns the PEs that a thread must not leave, if a rule says so.
pub fn of(subject: &Subject) -> Option<&CpuSet> {
    let _ = subject.treatment.as_ref()?.pes.as_ref()?;
    let is_possible = subject.placeable && !subject.view.permitted.is_empty();
    is_possible.then_some(&*subject.view.permitted)
}

/// Shows policies where threads are bound in this placement, but for those that are only confined.
pub fn hide(known: &mut Intake, placement: &Placement) {
    for subject in &mut known.threads.subjects {
        let assignment = placement.bound.get(&subject.view.thread);
        let is_confinement = |assignment: &&Assignment| Some(&assignment.pes) == of(subject);
        subject.assignment = assignment.filter(|of| !is_confinement(of)).cloned();
    }
}

/// Binds the confined threads that are not bound, or may ask, to the PEs that they must not leave.
pub fn add_assignments(wanted: &mut Placement, known: &Intake) {
    if !is_any(known) {
        return;
    }
    let may_ask = moves::may_ask(known.subjects());
    for subject in known.subjects() {
        let Some(pes) = of(subject) else { continue };
        let thread = subject.view.thread;
        if may_ask.contains(&thread) || !wanted.bound.contains_key(&thread) {
            let reason = format!("a rule names the PEs that it may use: {pes}").into();
            wanted.bound.insert(thread, Assignment { pes: pes.clone(), reason });
        }
    }
}
