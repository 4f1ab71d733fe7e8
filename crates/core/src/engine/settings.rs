//! Settings of threads: what the world has confirmed, refused, or does not support.
//!
//! A refused setting is not requested again for [`RETRY_AFTER`], and a kind that the world's actuator does
//! not support is never requested again. If resetting a setting fails, the actuator restores it at the end of
//! the run.

use super::limits::RETRY_AFTER;
use crate::ids::ThreadId;
use crate::observe::Standing;
use crate::plan::{Outcome, OutcomeKind, SettingKind, WantedSetting};
use crate::policy::Subject;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

type Key = (ThreadId, SettingKind);

/// The state of the settings that were requested.
#[derive(Default)]
pub struct Settings {
    /// The settings that threads have, as confirmed by the world.
    held: HashMap<Key, WantedSetting>,
    refused: HashMap<Key, Time>,
    unsupported: BTreeSet<SettingKind>,
}

impl Settings {
    /// Takes in the outcome of a change; `present` is what the engine takes to be in force.
    pub fn take_outcome(
        &mut self,
        kind: SettingKind,
        outcome: &Outcome,
        present: &mut BTreeMap<Key, WantedSetting>,
        now: Time,
    ) {
        let key = (outcome.thread, kind);
        match &outcome.result {
            OutcomeKind::Done if outcome.change.gives_back() => drop(self.held.remove(&key)),
            OutcomeKind::Done => self.held.extend(present.get(&key).map(|wanted| (key, wanted.clone()))),
            OutcomeKind::Gone | OutcomeKind::NotOurs | OutcomeKind::GivenBack => {
                self.held.remove(&key);
                present.remove(&key);
            }
            OutcomeKind::Refused(_) if outcome.change.gives_back() => drop(self.held.remove(&key)),
            OutcomeKind::Refused(_) => {
                self.refused.insert(key, now);
                match self.held.get(&key) {
                    Some(held) => drop(present.insert(key, held.clone())),
                    None => drop(present.remove(&key)),
                }
            }
            OutcomeKind::Unsupported => {
                self.unsupported.insert(kind);
                self.held.retain(|(_, held), _| *held != kind);
                present.retain(|(_, present), _| *present != kind);
            }
        }
    }

    /// Drops the settings that are not permitted or not possible now.
    pub fn drop_impossible(
        &self,
        wanted: &mut BTreeMap<Key, WantedSetting>,
        subjects: &[Subject],
        now: Time,
    ) {
        if wanted.is_empty() {
            return;
        }
        let ours = |subject: &&Subject| matches!(subject.view.standing, Standing::Free | Standing::Bound);
        let threads: HashSet<ThreadId> =
            subjects.iter().filter(ours).map(|subject| subject.view.thread).collect();
        wanted.retain(|key, _| {
            let refused = self.refused.get(key).is_some_and(|&at| now.since(at) < RETRY_AFTER);
            // Settings of a process do not depend on where its first thread may run, or whether that thread
            // is known.
            let is_ours = key.1.is_of_process() || threads.contains(&key.0);
            is_ours && !refused && !self.unsupported.contains(&key.1)
        });
    }

    /// Forgets a thread that has ended.
    pub fn forget(&mut self, thread: ThreadId, present: &mut BTreeMap<Key, WantedSetting>) {
        for kind in SettingKind::ALL {
            self.held.remove(&(thread, kind));
            self.refused.remove(&(thread, kind));
            present.remove(&(thread, kind));
        }
    }
}
