//! What is in force: the changes that were requested, and which of them the world has confirmed or refused.

use super::intake::Intake;
use super::settings::Settings;
use super::{OVER, RETRY_AFTER};
use crate::ids::ThreadId;
use crate::observe::{Standing, ThreadReading};
use crate::plan::{Action, Assignment, Change, Outcome, OutcomeKind, Placement, WantedSetting};
use crate::policy::Subject;
use crate::time::Time;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::time::Duration;

/// The placement and settings in force.
#[derive(Default)]
pub(super) struct Present {
    /// The placement as the engine has requested it.
    placement: Placement,
    threads: FxHashMap<ThreadId, Binding>,
    settings: Settings,
}

/// The state of a thread that was requested to be bound.
#[derive(Debug, Default)]
struct Binding {
    bound_at: Option<Time>,
    refused_at: Option<Time>,
    /// The assignment whose mask the thread has, as confirmed by the world.
    held: Option<Assignment>,
}

impl Present {
    /// Returns where threads are bound, as far as the engine knows.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Takes in the outcome of an action.
    pub fn take_outcome(&mut self, outcome: &Outcome, now: Time) {
        if let Some(kind) = outcome.change.setting_kind() {
            return self.settings.take_outcome(kind, outcome, &mut self.placement.settings, now);
        }
        let (thread, bound) = (outcome.thread, &mut self.placement.bound);
        // The thread has ended since.
        let Some(binding) = self.threads.get_mut(&thread) else { return };
        match &outcome.result {
            OutcomeKind::Done if outcome.change.gives_back() => binding.held = None,
            OutcomeKind::Done => binding.held = bound.get(&thread).cloned(),
            // Someone else has set the thread's mask, or the thread has ended: the engine no longer decides.
            OutcomeKind::Gone | OutcomeKind::NotOurs => {
                binding.held = None;
                bound.remove(&thread);
            }
            OutcomeKind::Refused(_) | OutcomeKind::Unsupported => {
                (binding.bound_at, binding.refused_at) = (None, Some(now));
                // The thread still has the mask of an earlier binding, which is to be restored later.
                match &binding.held {
                    Some(assignment) => drop(bound.insert(thread, assignment.clone())),
                    None => drop(bound.remove(&thread)),
                }
            }
        }
    }

    /// Records who has set a thread's mask. For a thread that inherited a mask set by corewise, returns the
    /// action that restores its own mask.
    pub fn meet(&mut self, reading: &ThreadReading) -> Option<Action> {
        let (thread, bound) = (reading.thread, &mut self.placement.bound);
        if reading.standing == Standing::Inherited {
            bound.remove(&thread);
            self.threads.entry(thread).or_default();
            let reason = "it inherited the mask of the bound thread that created it".into();
            return Some(Action { thread, change: Change::Free, reason });
        }
        if reading.standing == Standing::Free
            && let Some(binding) = self.threads.get_mut(&thread)
            && binding.held.take().is_some()
        {
            // The kernel has reset the mask, for example because its last PE was unplugged.
            bound.remove(&thread);
            binding.bound_at = None;
        }
        None
    }

    /// Updates whether a thread may be bound now, and whether it was bound less than `residence` ago.
    pub fn judge(&self, subject: &mut Subject, now: Time, residence: Duration) {
        let binding = self.threads.get(&subject.view.thread);
        let within = |at: Option<Time>, time| at.is_some_and(|at| now.since(at) < time);
        let refused = binding.is_some_and(|binding| within(binding.refused_at, RETRY_AFTER));
        // A thread that inherited a mask gets its own mask back in the same step, before it is bound.
        let is_left_to_us = match subject.view.standing {
            Standing::Free | Standing::Bound | Standing::Inherited => true,
            Standing::SelfPinned | Standing::UserPlaced => false,
        };
        subject.placeable = is_left_to_us && !refused;
        subject.resident = binding.is_some_and(|binding| within(binding.bound_at, residence));
    }

    /// Forgets a thread that has ended.
    pub fn forget(&mut self, thread: ThreadId) {
        self.threads.remove(&thread);
        self.placement.bound.remove(&thread);
        self.settings.forget(thread, &mut self.placement.settings);
    }

    /// Drops the settings that are not permitted or not possible now.
    pub fn drop_impossible_settings(&self, wanted: &mut Placement, subjects: &[Subject], now: Time) {
        self.settings.drop_impossible(&mut wanted.settings, subjects, now);
    }

    /// Makes the wanted placement the present one, with at most `most` binds and settings, and adds the
    /// actions for that. If not all fit, threads that want a PE come first.
    pub fn apply_wanted(
        &mut self,
        wanted: &Placement,
        most: usize,
        known: &Intake,
        actions: &mut Vec<Action>,
    ) {
        let (now, mut taken) = (known.now, 0);
        let living = known.subjects.iter().map(|subject| subject.view.thread);
        let mut towards = self.placement.actions_towards(wanted, living);
        if towards.iter().filter(|action| !action.change.gives_back()).nth(most).is_some() {
            let rests = |thread| known.subject(thread).is_some_and(|subject| !subject.runnable);
            let comes_first = |action: &Action| action.change.gives_back() || !rests(action.thread);
            let (mut first, later): (Vec<_>, Vec<_>) = towards.into_iter().partition(comes_first);
            first.extend(later);
            towards = first;
        }
        for action in towards {
            if !action.change.gives_back() {
                if taken == most {
                    continue;
                }
                taken += 1;
            }
            self.record_request(&action, now);
            actions.push(action);
        }
    }

    fn record_request(&mut self, action: &Action, now: Time) {
        let (thread, placement) = (action.thread, &mut self.placement);
        match &action.change {
            Change::Free => {
                placement.bound.remove(&thread);
                if let Some(binding) = self.threads.get_mut(&thread) {
                    binding.bound_at = None;
                }
            }
            Change::Bind(pes) => {
                let assignment = Assignment { pes: pes.clone(), reason: action.reason.clone() };
                placement.bound.insert(thread, assignment);
                self.threads.entry(thread).or_default().bound_at = Some(now);
            }
            Change::Set(setting) => {
                let wanted = WantedSetting { setting: *setting, reason: action.reason.clone() };
                placement.settings.insert((thread, setting.kind()), wanted);
            }
            Change::Reset(kind) => drop(placement.settings.remove(&(thread, *kind))),
        }
    }

    /// Returns the actions that restore everything.
    pub fn release_all(&mut self) -> Vec<Action> {
        let mut actions = self.placement.actions_towards(&Placement::default(), []);
        let over: Arc<str> = OVER.into();
        for action in &mut actions {
            action.reason = over.clone();
        }
        self.placement = Placement::default();
        actions
    }
}
