//! What is in force: the changes that were requested, and which of them the world has confirmed or refused.

use super::confinement;
use super::intake::Intake;
use super::limits::RETRY_AFTER;
use super::moves;
use super::settings::Settings;
use crate::backoff::Backoff;
use crate::cpuset::CpuSet;
use crate::ids::ThreadId;
use crate::observe::{Standing, ThreadReading};
use crate::plan::{Action, Assignment, Change, Outcome, OutcomeKind, Placement, WantedSetting};
use crate::policy::Subject;
use crate::time::Time;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The reason given when a thread is freed because the run ends.
pub const OVER: &str = "the run is over";

/// How often a thread's binding is undone by others, or by the thread itself, before it is left alone.
const UNDONE_MAX: u32 = 3;

/// The placement and settings in force.
#[derive(Default)]
pub struct Present {
    /// The placement as the engine has requested it.
    placement: Placement,
    threads: FxHashMap<ThreadId, Binding>,
    settings: Settings,
    /// The number of threads of each name that are left alone because others undid their bindings.
    left_alone: BTreeMap<Arc<str>, usize>,
}

/// The state of a thread that was requested to be bound.
#[derive(Debug, Default)]
struct Binding {
    bound_at: Option<Time>,
    refused_at: Option<Time>,
    /// The assignment whose mask the thread has, as confirmed by the world.
    held: Option<Assignment>,
    /// How often somebody else replaced the mask that it was given.
    undone: u32,
    /// Whether it is counted among those that are left alone.
    is_noted: bool,
    /// Whether it was moved, and has the mask that its user permits.
    is_moved: bool,
    /// Once it has strayed: until when it is left where it strays to.
    strays: Option<Backoff>,
}

impl Binding {
    fn is_left_alone(&self) -> bool {
        self.undone >= UNDONE_MAX
    }

    /// The thread still has the mask of an earlier binding, if any, which is to be restored later.
    fn keep_held(&self, thread: ThreadId, bound: &mut FxHashMap<ThreadId, Assignment>) {
        match &self.held {
            Some(assignment) => drop(bound.insert(thread, assignment.clone())),
            None => drop(bound.remove(&thread)),
        }
    }
}

impl Present {
    /// Returns where threads are bound, as far as the engine knows.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Returns when to look whether a thread that has strayed, and was moved again, is where it should be.
    pub fn due(&self, now: Time) -> Option<Time> {
        let moved = self.threads.values().filter(|binding| binding.is_moved && binding.bound_at.is_some());
        moved.filter_map(|binding| binding.strays?.end()).filter(|end| *end > now).min()
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
            OutcomeKind::Done if matches!(outcome.change, Change::Move(_)) => binding.held = None,
            OutcomeKind::Done => binding.held = bound.get(&thread).cloned(),
            OutcomeKind::Gone => drop(bound.remove(&thread)),
            OutcomeKind::GivenBack => {
                (binding.bound_at, binding.held) = (None, None);
                bound.remove(&thread);
            }
            // Someone else has set the thread's mask: the engine no longer decides.
            OutcomeKind::NotOurs if outcome.change.gives_back() => {
                binding.undone += u32::from(binding.held.take().is_some());
                bound.remove(&thread);
            }
            // The next observation tells whether it still has the mask of an earlier binding.
            OutcomeKind::NotOurs => binding.keep_held(thread, bound),
            OutcomeKind::Refused(_) | OutcomeKind::Unsupported => {
                (binding.bound_at, binding.refused_at) = (None, Some(now));
                binding.keep_held(thread, bound);
            }
        }
    }

    /// Records who has set a thread's mask. For a thread that inherited a mask set by corewise, returns the
    /// action that restores its own mask.
    pub fn meet(&mut self, reading: &ThreadReading, allowed: &CpuSet) -> Option<Action> {
        let (thread, inherited) = (reading.thread, reading.standing == Standing::Inherited);
        let is_new = !self.threads.contains_key(&thread);
        let is_lost = match reading.standing {
            // If it is still bound, it is freed because it may not be placed.
            Standing::Bound | Standing::StartsPrograms | Standing::LeftAlone | Standing::NeedsAllPes => false,
            Standing::Free | Standing::Inherited | Standing::SelfPinned | Standing::UserPlaced => true,
        };
        if !is_lost || (is_new && !inherited) {
            return None;
        }
        let binding = self.threads.entry(thread).or_default();
        let lost = binding.held.take();
        let is_undone = match &lost {
            // If its PEs may not be used any more, the kernel has replaced the mask.
            Some(held) => held.pes.is_subset(allowed),
            // A thread inherits a mask once, when it is created.
            None => inherited && !is_new,
        };
        binding.undone += u32::from(is_undone);
        let is_left_alone = binding.is_left_alone();
        if is_left_alone && !std::mem::replace(&mut binding.is_noted, true) {
            *self.left_alone.entry(reading.name.clone()).or_default() += 1;
        }
        if lost.is_some() || inherited {
            binding.bound_at = None;
            self.placement.bound.remove(&thread);
        }
        let reason = || "it inherited the mask of the bound thread that created it".into();
        (inherited && !is_left_alone).then(|| Action { thread, change: Change::Free, reason: reason() })
    }

    /// Returns a note for each name of the threads that are left alone because others undid their bindings.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.left_alone.iter().map(|(name, count)| {
            let (what, have) = match count {
                1 => (format!("the thread `{name}`"), "was"),
                count => (format!("{count} threads `{name}`"), "were"),
            };
            format!(
                "{what} {have} bound {UNDONE_MAX} times, and each time the thread itself or another program \
                 set the mask anew: left alone since then"
            )
        })
    }

    /// Updates whether a thread may be bound now, and whether it was bound less than `residence` ago.
    pub fn judge(&self, subject: &mut Subject, now: Time, residence: Duration) {
        let binding = self.threads.get(&subject.view.thread);
        let within = |at: Option<Time>, time| at.is_some_and(|at| now.since(at) < time);
        let refused = binding.is_some_and(|binding| within(binding.refused_at, RETRY_AFTER));
        // A thread that inherited a mask gets its own mask back in the same step, before it is bound.
        let is_left_to_us = match subject.view.standing {
            Standing::Free | Standing::Bound | Standing::Inherited => true,
            Standing::StartsPrograms
            | Standing::SelfPinned
            | Standing::UserPlaced
            | Standing::LeftAlone
            | Standing::NeedsAllPes => false,
        };
        let is_left_alone = binding.is_some_and(Binding::is_left_alone);
        let treatment = subject.treatment.as_ref();
        let is_permitted = treatment.is_none_or(|treatment| treatment.left_alone.is_none());
        subject.placeable = is_left_to_us && is_permitted && !refused && !is_left_alone;
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
    /// actions for that. If not all fit, threads that want a PE come first. Returns how many would still fit.
    pub fn apply_wanted(
        &mut self,
        wanted: &Placement,
        most: usize,
        known: &Intake,
        actions: &mut Vec<Action>,
    ) -> usize {
        let (now, mut left) = (known.now, most);
        let living = known.subjects().iter().map(|subject| subject.view.thread);
        let mut towards = self.placement.actions_towards(wanted, living);
        self.move_instead(&mut towards, wanted, known);
        if towards.iter().filter(|action| !action.change.gives_back()).nth(most).is_some() {
            let rests = |thread| known.subject(thread).is_some_and(|subject| !subject.runnable);
            let comes_first = |action: &Action| action.change.gives_back() || !rests(action.thread);
            let (mut first, later): (Vec<_>, Vec<_>) = towards.into_iter().partition(comes_first);
            first.extend(later);
            towards = first;
        }
        for action in towards {
            if !action.change.gives_back() {
                if left == 0 {
                    continue;
                }
                left -= 1;
            }
            self.record_request(&action, now);
            actions.push(action);
        }
        left
    }

    /// Threads that are to be [moved](moves) are not bound, and moved again if they have strayed.
    fn move_instead(&self, towards: &mut Vec<Action>, wanted: &Placement, known: &Intake) {
        let may_ask = moves::may_ask(known.subjects());
        // Where a rule names its PEs, it is bound to these.
        let is_moved =
            |subject: &Subject| may_ask.contains(&subject.view.thread) && confinement::of(subject).is_none();
        for action in towards.iter_mut().filter(|action| known.subject(action.thread).is_some_and(is_moved)) {
            if let Change::Bind(pes) = &action.change {
                action.change = Change::Move(pes.clone());
            }
        }
        for subject in known.subjects() {
            let thread = subject.view.thread;
            let (Some(present), Some(wanted)) =
                (self.placement.bound.get(&thread), wanted.bound.get(&thread))
            else {
                continue;
            };
            let binding = self.threads.get(&thread).filter(|_| present.pes == wanted.pes);
            let Some(change) = binding.and_then(|binding| {
                let is_due = binding.strays.is_none_or(|strays| strays.is_over(known.now));
                let is_looked_for = known.is_fresh() && is_due;
                match (is_moved(subject), binding.is_moved) {
                    (false, false) => None,
                    (false, true) => Some(Change::Bind(wanted.pes.clone())),
                    (true, false) => Some(Change::Move(wanted.pes.clone())),
                    (true, true) => {
                        let strays = is_looked_for && moves::has_strayed(subject, &wanted.pes);
                        strays.then(|| Change::Move(wanted.pes.clone()))
                    }
                }
            }) else {
                continue;
            };
            towards.push(Action { thread, change, reason: wanted.reason.clone() });
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
            Change::Bind(pes) | Change::Move(pes) => {
                let assignment = Assignment { pes: pes.clone(), reason: action.reason.clone() };
                let before = placement.bound.insert(thread, assignment);
                let binding = self.threads.entry(thread).or_default();
                let is_move = matches!(action.change, Change::Move(_));
                let has_strayed = is_move && binding.is_moved && before.is_some_and(|of| of.pes == *pes);
                if has_strayed {
                    binding.strays.get_or_insert(moves::STRAYS).fail(now);
                } else {
                    binding.bound_at = Some(now);
                }
                binding.is_moved = is_move;
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
