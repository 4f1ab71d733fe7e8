//! From what is wanted to actions, within the limits of the guard, the rules and the work of a step.
//!
//! Problem: several parts of the engine want changes at the same moment: the policy, the gangs, the
//! confinement, the waits, and the guard, which moves a thread back before it frees it. Each of them may want
//! one per thread, and there may be thousands of threads. Approach: one budget for all of them
//! ([`BINDS_PER_PE_MAX`]), in the order of their importance: first the placement and the settings
//! ([`Present::apply_wanted`](super::present::Present::apply_wanted)), and with what is left the moves back,
//! without which a freed thread is only a little slower for a moment. Giving back is never put off. Source:
//! ours. Limits: what does not fit waits for the next observation.

use super::confinement;
use super::guards::Guards;
use super::intake::Intake;
use super::limits::{BINDS_PER_PE_MAX, drop_invalid};
use super::placing::Placing;
use super::present::Present;
use super::waiting::Waiting;
use crate::cpuset::CpuSet;
use crate::guard::{BACK, Guard};
use crate::ids::ThreadId;
use crate::plan::{Action, Change, Placement, SettingKind};
use std::sync::Arc;

/// The settings that the guard of waits switches off.
const OF_WAITS: [SettingKind; 2] = [SettingKind::SpinCount, SettingKind::Turns];

/// Those who want something, and what is in force and known.
pub struct Acting<'a> {
    pub placing: &'a mut Placing,
    pub waiting: &'a Waiting,
    pub guards: &'a Guards,
    pub present: &'a mut Present,
    pub known: &'a Intake,
}

impl Acting<'_> {
    /// Adds the actions towards the policy's placement, within the limits of the guard and the rules.
    pub fn decide(mut self, actions: &mut Vec<Action>) {
        let (is_placed, known) = (self.guards.is_placed(), self.known);
        if is_placed && !self.waiting.spreads() && !confinement::is_any(known) {
            return self.decide_as_intended(actions);
        }
        let mut wanted = self.placing.intended.clone();
        if !is_placed {
            wanted.bound.retain(|thread, _| !known.is_guarded(*thread));
            let is_tried = |thread, kind| kind == SettingKind::Weight && known.is_guarded(thread);
            wanted.settings.retain(|(thread, kind), _| !is_tried(*thread, *kind));
        }
        if !self.guards.are_waits_off() {
            self.waiting.add_assignments(&mut wanted, self.present.placement(), known);
        }
        drop_invalid(&mut wanted, known);
        let before = actions.len();
        let mut left = self.apply_wanted(&mut wanted, actions);
        if let (false, Some(guard)) = (is_placed, &self.guards.placement) {
            let reason: Arc<str> = guard.reason().into();
            for action in actions.split_off(before) {
                let is_free = action.change == Change::Free
                    && known.is_guarded(action.thread)
                    && known.why_not_permitted(&action).is_none();
                let back = self.move_back(guard, action.thread).filter(|_| is_free && left > 0);
                left -= usize::from(back.is_some());
                actions.extend(back);
                actions.push(if is_free { Action { reason: reason.clone(), ..action } } else { action });
            }
        }
    }

    /// Returns the action that moves a thread, which is freed next, to where it ran without the placement.
    fn move_back(&self, guard: &Guard, thread: ThreadId) -> Option<Action> {
        let (pe, subject) = (guard.before(thread)?, self.known.subject(thread)?);
        let may_use =
            subject.placeable && self.known.allowed().contains(pe) && subject.view.permitted.contains(pe);
        may_use.then(|| Action { thread, change: Change::Bind(CpuSet::single(pe)), reason: BACK.into() })
    }

    /// Like [`Self::decide`] when nothing modifies the policy's placement; avoids copying thousands of
    /// assignments.
    fn decide_as_intended(&mut self, actions: &mut Vec<Action>) {
        let mut wanted = std::mem::take(&mut self.placing.intended);
        let settings = wanted.settings.clone();
        self.apply_wanted(&mut wanted, actions);
        self.placing.intended = Placement { settings, ..wanted };
    }

    /// Adds the actions towards what is in force already, with other settings for waits.
    pub fn settle_waits(mut self, actions: &mut Vec<Action>) {
        let mut wanted = self.present.placement().clone();
        drop_invalid(&mut wanted, self.known);
        self.apply_wanted(&mut wanted, actions);
    }

    /// Adds the actions towards a placement that already satisfies the rules, together with the settings for
    /// waits. Returns how many more changes the step may make.
    fn apply_wanted(&mut self, wanted: &mut Placement, actions: &mut Vec<Action>) -> usize {
        let (known, are_off) = (self.known, self.guards.are_waits_off());
        self.waiting.add_settings(wanted, are_off);
        let before = actions.len();
        confinement::add_assignments(wanted, known);
        self.present.drop_impossible_settings(wanted, known.subjects(), known.now);
        // Before the first observation no PE is known to be allowed, but settings for waits may already be
        // due.
        let most = BINDS_PER_PE_MAX * known.allowed().len().max(1);
        let left = self.present.apply_wanted(wanted, most, known, actions);
        if let (true, Some(guard)) = (are_off, &self.guards.waits) {
            let is_of_waits = |change: &Change| match change {
                Change::Reset(kind) => OF_WAITS.contains(kind),
                Change::Free | Change::Bind(_) | Change::Move(_) | Change::Set(_) => false,
            };
            let reason: Arc<str> = guard.reason().into();
            let resets = actions[before..].iter_mut().filter(|action| is_of_waits(&action.change));
            resets.for_each(|action| action.reason = reason.clone());
        }
        known.explain(&mut actions[before..]);
        left
    }
}
