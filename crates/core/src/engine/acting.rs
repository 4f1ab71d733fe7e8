//! From what is wanted to actions, within the limits of the guard, the rules and the work of a step.
//!
//! Problem: several parts of the engine want changes at the same moment: the policy, the gangs, the
//! confinement, the waits, and the guard, which moves a thread back before it frees it. Each of them may want
//! one per thread, and there may be thousands of threads. Approach: one budget for all of them
//! ([`BINDS_PER_PE_MAX`]), in the order of their importance: first the placement and the settings
//! ([`Present::apply_wanted`](super::present::Present::apply_wanted)), and with what is left the moves back,
//! without which a freed thread is only a little slower for a moment. Giving back is never put off. Source:
//! ours. Limits: what does not fit waits for the next observation.

use super::config::BINDS_PER_PE_MAX;
use super::intake::drop_invalid;
use super::{Engine, confinement};
use crate::cpuset::CpuSet;
use crate::guard::waits::WaitsGuard;
use crate::guard::{BACK, Guard};
use crate::ids::ThreadId;
use crate::plan::{Action, Change, Placement, SettingKind};
use std::sync::Arc;

/// The settings that the guard of waits switches off.
const OF_WAITS: [SettingKind; 2] = [SettingKind::SpinCount, SettingKind::Turns];

impl Engine {
    /// Adds the actions towards the policy's placement, within the limits of the guard and the rules.
    pub(super) fn decide(&mut self, actions: &mut Vec<Action>) {
        let is_placed = self.guard.as_ref().is_none_or(Guard::is_in_force);
        if is_placed && self.gangs.is_empty() && !confinement::is_any(&self.intake) {
            return self.decide_as_intended(actions);
        }
        let mut wanted = self.intended.clone();
        if !is_placed {
            let known = &self.intake;
            wanted.bound.retain(|thread, _| !known.is_guarded(*thread));
            let is_tried = |thread, kind| kind == SettingKind::Weight && known.is_guarded(thread);
            wanted.settings.retain(|(thread, kind), _| !is_tried(*thread, *kind));
        }
        if !self.are_waits_off() {
            self.gangs.add_assignments(&mut wanted, self.present.placement(), &self.intake);
        }
        drop_invalid(&mut wanted, &self.intake);
        let before = actions.len();
        let mut left = self.apply_wanted(&mut wanted, actions);
        if let (false, Some(guard)) = (is_placed, &self.guard) {
            let reason: Arc<str> = guard.reason().into();
            for action in actions.split_off(before) {
                let is_free = action.change == Change::Free
                    && self.intake.is_guarded(action.thread)
                    && self.intake.why_not_permitted(&action).is_none();
                let back = self.move_back(guard, action.thread).filter(|_| is_free && left > 0);
                left -= usize::from(back.is_some());
                actions.extend(back);
                actions.push(if is_free { Action { reason: reason.clone(), ..action } } else { action });
            }
        }
    }

    /// Returns the action that moves a thread, which is freed next, to where it ran without the placement.
    fn move_back(&self, guard: &Guard, thread: ThreadId) -> Option<Action> {
        let (pe, subject) = (guard.before(thread)?, self.intake.subject(thread)?);
        let may_use =
            subject.placeable && self.intake.allowed.contains(pe) && subject.view.permitted.contains(pe);
        may_use.then(|| Action { thread, change: Change::Bind(CpuSet::single(pe)), reason: BACK.into() })
    }

    /// Like [`Self::decide`] when nothing modifies the policy's placement; avoids copying thousands of
    /// assignments.
    fn decide_as_intended(&mut self, actions: &mut Vec<Action>) {
        let mut wanted = std::mem::take(&mut self.intended);
        let settings = wanted.settings.clone();
        self.apply_wanted(&mut wanted, actions);
        self.intended = Placement { settings, ..wanted };
    }

    /// Adds the actions towards a placement that already satisfies the rules, together with the settings for
    /// waits. Returns how many more changes the step may make.
    pub(super) fn apply_wanted(&mut self, wanted: &mut Placement, actions: &mut Vec<Action>) -> usize {
        self.waits.add_to(wanted);
        let are_off = self.are_waits_off();
        if are_off {
            self.waits.undo_for_an_epoch(wanted);
        }
        let before = actions.len();
        let known = &self.intake;
        confinement::add_assignments(wanted, known);
        self.present.drop_impossible_settings(wanted, &known.subjects, known.now);
        // Before the first observation no PE is known to be allowed, but settings for waits may already be
        // due.
        let most = BINDS_PER_PE_MAX * known.allowed.len().max(1);
        let left = self.present.apply_wanted(wanted, most, known, actions);
        if let (true, Some(guard)) = (are_off, &self.waits_guard) {
            let is_of_waits = |change: &Change| match change {
                Change::Reset(kind) => OF_WAITS.contains(kind),
                Change::Free | Change::Bind(_) | Change::Set(_) => false,
            };
            let reason: Arc<str> = guard.reason().into();
            let resets = actions[before..].iter_mut().filter(|action| is_of_waits(&action.change));
            resets.for_each(|action| action.reason = reason.clone());
        }
        self.intake.explain(&mut actions[before..]);
        left
    }

    /// Returns whether waits and turns are now as without corewise, whatever their rules say.
    fn are_waits_off(&self) -> bool {
        self.waits_guard.as_ref().is_some_and(WaitsGuard::is_off)
    }
}
