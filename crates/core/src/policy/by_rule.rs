//! Several policies side by side, as rules say.
//!
//! Problem: one program needs its sequential phases on fast PEs, another one its floating-point threads
//! apart, and a third must stay where Linux puts it, all on one machine at the same time. A policy considers
//! one principle only, and knows nothing of other policies.
//!
//! Approach: each process has a [`Treatment`](crate::observe::Treatment), which says also
//! which policy places it; all others are placed by the run's own. A policy is made when the first thread
//! that it places is seen, and dropped after the last one. Threads with the same specification share one
//! policy, and so one ranking. The policies choose in the order of the rules, the run's own last, as in the
//! rules the first that says something wins:
//!
//! - Each sees all threads and applications, but only those that it places are placeable. The others are load
//!   that is there, with the PEs to which they are bound.
//! - Each bound thread that wants a PE *holds* one of its mask that no other thread holds: the one that it
//!   held before, or where it ran last. A policy may use the PEs that the threads of earlier ones do not
//!   hold; if there are none, all. This is how corewise treats the PEs of other runs, too, and it needs no
//!   word about other policies in any of them.
//!
//! So an earlier policy decides as if it were alone, no later one can push it aside, and nothing goes in
//! circles. A policy is asked when it would be without the others: at the interval, at events that it
//! [uses](Needs) and [answers](Policy::answers), and when the PEs that it may use have changed.
//!
//! Source: ours; the order is that of rules, the PEs left over are the engine's treatment of
//! [`taken`](crate::observe::Observation::taken) ones.
//!
//! Limits: it cannot weigh two policies: if the first holds all fast PEs, the second has none, however much
//! it would gain there. A mask of a later policy excludes PEs only as long as an earlier one's threads want
//! them, so it may change with them. If any policy wants to be asked early ([`Policy::due`]), all are. What a
//! policy requires of the machine ([`Needs::required`]) is reported for the run's own only; without it the
//! others bind nothing.

use super::{Cause, EventKind, Needs, Policy, Scene, Subject, build};
use crate::cpuset::CpuSet;
use crate::ids::{PeId, ThreadId};
use crate::plan::{Assignment, Placement};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The events that policies use.
const EVENTS: &[EventKind] = &[EventKind::TlpChanged, EventKind::Hint];

/// Places each thread by the policy that rules name for it, and all others by the run's own.
pub struct ByRule {
    /// The name of the run's own policy.
    name: String,
    own: Placer,
    /// Those that rules name, in the order in which they choose.
    others: BTreeMap<Key, Placer>,
    /// The PE that each bound thread holds.
    held: BTreeMap<ThreadId, PeId>,
}

/// When a policy chooses, and its specification.
type Key = (u32, Arc<str>);

/// The policy of some threads.
struct Placer {
    policy: Box<dyn Policy>,
    /// Whether it answers an event.
    answers: bool,
    /// The PEs that it might use when it was last asked, and what it wanted.
    within: CpuSet,
    wanted: Placement,
}

impl Placer {
    fn new(policy: Box<dyn Policy>) -> Placer {
        Placer { policy, answers: false, within: CpuSet::new(), wanted: Placement::default() }
    }
}

impl ByRule {
    /// Lets `own` place all threads of which no rule says who does.
    pub fn new(own: Box<dyn Policy>) -> ByRule {
        let name = own.name().to_owned();
        ByRule { name, own: Placer::new(own), others: BTreeMap::new(), held: BTreeMap::new() }
    }

    /// Returns all policies, in the order in which they choose.
    fn policies(&self) -> impl Iterator<Item = &dyn Policy> {
        self.others.values().chain([&self.own]).map(|placer| &*placer.policy)
    }

    /// Makes the policies that these threads need, and drops those that none needs.
    fn meet(&mut self, threads: &[Subject]) {
        let keys: BTreeSet<Key> = threads.iter().filter_map(|subject| key_of(subject, &self.name)).collect();
        self.others.retain(|key, _| keys.contains(key));
        for key in keys {
            if !self.others.contains_key(&key) {
                // Rules name only policies that can be built; what cannot places nothing.
                self.others.extend(build(&key.1).ok().map(|policy| (key, Placer::new(policy))));
            }
        }
    }

    /// Asks all policies, one after the other.
    fn place_all(&mut self, scene: &Scene<'_>) -> Placement {
        let ByRule { name, own, others, held } = self;
        let mut placement = Placement::default();
        let mut holds = BTreeMap::new();
        let mut left = scene.allowed.clone();
        let others = others.iter_mut().map(|(key, placer)| (Some(key), placer));
        for (key, placer) in others.chain([(None, own)]) {
            let seen = |subject: &Subject| {
                let is_theirs = key_of(subject, name).as_ref() == key;
                Subject { placeable: subject.placeable && is_theirs, ..subject.clone() }
            };
            let threads: Vec<Subject> = scene.threads.iter().map(seen).collect();
            let allowed = if left.is_empty() { scene.allowed } else { &left };
            let is_to_be_asked = std::mem::take(&mut placer.answers)
                || matches!(scene.cause, Cause::Interval)
                || placer.within != *allowed;
            if is_to_be_asked {
                placer.wanted = placer.policy.place(&Scene { threads: &threads, allowed, ..*scene });
                placer.within.clone_from(allowed);
            }
            let Placement { bound, settings, nothing_to_gain } = &placer.wanted;
            let theirs = threads.iter().filter(|subject| subject.placeable);
            let theirs: Vec<(&Subject, &Assignment)> =
                theirs.filter_map(|subject| Some((subject, bound.get(&subject.view.thread)?))).collect();
            hold(&theirs, held, &mut left, &mut holds);
            let bound = theirs.iter().map(|(subject, to)| (subject.view.thread, Assignment::clone(to)));
            placement.bound.extend(bound);
            let settings = settings.iter().filter(|((thread, _), _)| placement.bound.contains_key(thread));
            placement.settings.extend(settings.map(|(key, setting)| (*key, setting.clone())));
            // At last that of the run's own.
            placement.nothing_to_gain.clone_from(nothing_to_gain);
        }
        self.held = holds;
        placement.nothing_to_gain = placement.nothing_to_gain.filter(|_| placement.bound.is_empty());
        placement
    }
}

/// Returns which policy places a thread, if not the run's own, whose specification is `own`.
fn key_of(subject: &Subject, own: &str) -> Option<Key> {
    let treatment = subject.treatment.as_ref()?;
    Some((treatment.order, treatment.policy.clone().filter(|policy| **policy != *own)?))
}

/// Gives each of these bound threads that wants a PE one to hold, of those that are left: who may use the
/// fewest comes first.
fn hold(
    bound: &[(&Subject, &Assignment)],
    before: &BTreeMap<ThreadId, PeId>,
    left: &mut CpuSet,
    held: &mut BTreeMap<ThreadId, PeId>,
) {
    let mut wanting: Vec<_> = bound.iter().filter(|(subject, _)| subject.runnable).collect();
    wanting.sort_by_key(|(subject, assignment)| (assignment.pes.len(), subject.view.thread));
    for (subject, assignment) in wanting {
        let open = assignment.pes.intersection(left);
        let liked = [before.get(&subject.view.thread).copied(), subject.view.last_pe];
        let liked = liked.into_iter().flatten().find(|pe| open.contains(*pe));
        if let Some(pe) = liked.or_else(|| open.first()) {
            left.remove(pe);
            held.insert(subject.view.thread, pe);
        }
    }
}

impl Policy for ByRule {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self) -> Needs {
        let needs = self.own.policy.needs();
        let is_any_used = self.policies().any(|policy| !policy.needs().events.is_empty());
        if is_any_used { Needs { events: EVENTS, ..needs } } else { needs }
    }

    fn answers(&mut self, scene: &Scene<'_>) -> bool {
        let Cause::Events(events) = scene.cause else { return true };
        if self.others.is_empty() {
            return self.own.policy.answers(scene);
        }
        let mut is_any_answered = false;
        for Placer { policy, answers, .. } in self.others.values_mut().chain([&mut self.own]) {
            let used = policy.needs().events;
            let is_concerned = events.iter().any(|event| used.contains(&event.kind()));
            *answers |= is_concerned && policy.answers(scene);
            is_any_answered |= *answers;
        }
        is_any_answered
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        self.meet(scene.threads);
        if self.others.is_empty() { self.own.policy.place(scene) } else { self.place_all(scene) }
    }

    fn due(&self) -> Option<Time> {
        self.policies().filter_map(Policy::due).min()
    }

    fn failure(&self) -> Option<&str> {
        self.own.policy.failure()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::KINDS;

    #[test]
    fn policies_use_no_other_events_than_those_that_are_passed_on() {
        for kind in KINDS.iter().filter(|kind| !kind.takes_command()) {
            assert!(kind.needs().events.iter().all(|event| EVENTS.contains(event)), "{}", kind.name);
        }
    }
}
