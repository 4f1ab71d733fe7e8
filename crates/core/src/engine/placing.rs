//! What the policy wants: when it is asked, what it is shown, and its last answer.

use super::confinement;
use super::guards::Guards;
use super::intake::Intake;
use super::limits::drop_invalid;
use crate::ids::ThreadId;
use crate::machine_model::MachineModel;
use crate::plan::{Assignment, Placement, SettingKind};
use crate::policy::{Cause, Claims, Policy, Predicted};
use crate::time::Time;
use std::collections::hash_map::Entry;
use std::time::Duration;

/// The policy and its answer.
pub struct Placing {
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// What it wants, whether or not the guard permits it.
    pub intended: Placement,
    /// When it was last asked because the interval had elapsed.
    asked: Option<Time>,
    /// Why it does nothing on this machine, if it gave a reason.
    pub nothing_to_gain: Option<String>,
    /// What its answer is predicted to lose and to gain.
    pub predicted: Option<Predicted>,
}

impl Placing {
    /// It was not asked yet.
    pub fn new(policy: Box<dyn Policy>) -> Placing {
        Placing {
            policy,
            intended: Placement::default(),
            asked: None,
            nothing_to_gain: None,
            predicted: None,
        }
    }

    /// Returns whether the policy is asked at this observation: its interval has elapsed, or it wants to
    /// be. While a process is checked for spinning or the guard measures, observations are more frequent
    /// than that.
    pub fn begin(&mut self, now: Time, interval: Duration) -> bool {
        let wants = self.policy.due().is_some_and(|due| due <= now);
        let is_due = wants || self.asked.is_none_or(|asked| now.since(asked) >= interval - interval / 8);
        self.asked = if is_due { Some(now) } else { self.asked };
        is_due
    }

    /// Asks the policy what it wants, if there is a PE: before the first observation none is known, and a
    /// scene without PEs has no right answer. `present` is in force.
    pub fn ask(
        &mut self,
        (cause, machine, claims): (Cause<'_>, &MachineModel, Claims),
        present: &Placement,
        known: &mut Intake,
        guards: &Guards,
    ) {
        if known.allowed().is_empty() {
            return drop_invalid(&mut self.intended, known);
        }
        known.settle_runnable();
        // The guard's trials are invisible to policies.
        confinement::hide(known, if guards.is_placed() { present } else { &self.intended });
        let mut wanted = self.policy.place(&known.scene(cause, machine, claims));
        self.nothing_to_gain = wanted.nothing_to_gain.take();
        // A thread that rests briefly will want its PE again, and keeping its assignment costs nothing until
        // then.
        for subject in known.threads.resting() {
            let (thread, key) = (subject.view.thread, (subject.view.thread, SettingKind::Weight));
            let Some(assignment) = &subject.assignment else { continue };
            // A claim passes to the thread of the application that works now.
            if present.settings.contains_key(&key) && known.applications.works(subject.view.app) {
                continue;
            }
            if let Entry::Vacant(entry) = wanted.bound.entry(thread) {
                entry.insert(assignment.clone());
                let weight = present.settings.get(&key);
                wanted.settings.extend(weight.map(|weight| (key, weight.clone())));
            }
        }
        drop_invalid(&mut wanted, known);
        // A prediction costs more than a decision: it is made once of each placement, and answers to events
        // come too often for one of each.
        if matches!(cause, Cause::Interval) && !is_same(&wanted, &self.intended) {
            self.predicted = Predicted::of(&known.scene(cause, machine, claims), &wanted);
        }
        self.intended = wanted;
    }

    /// Returns the threads that the policy wants bound and that are guarded.
    pub fn guarded<'a>(&'a self, known: &'a Intake) -> impl Iterator<Item = ThreadId> {
        self.intended.bound.keys().copied().filter(|thread| known.is_guarded(*thread))
    }
}

/// Returns whether two placements bind the same threads to the same PEs.
fn is_same(a: &Placement, b: &Placement) -> bool {
    let is_there = |(thread, assignment): (&ThreadId, &Assignment)| {
        b.bound.get(thread).is_some_and(|other| other.pes == assignment.pes)
    };
    a.bound.len() == b.bound.len() && a.bound.iter().all(is_there)
}
