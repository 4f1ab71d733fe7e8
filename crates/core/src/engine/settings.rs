//! The settings of threads beside their PEs: what the world has confirmed, refused, or cannot do at all.
//!
//! A refused setting is left alone for [`RETRY_AFTER`]; of a kind that the world's actuator does not support
//! nothing is asked again. Whatever else goes wrong with giving one back, the actuator gives it back at the
//! end.

use super::RETRY_AFTER;
use crate::ids::ThreadId;
use crate::observe::Standing;
use crate::plan::{Outcome, OutcomeKind, SettingKind, WantedSetting};
use crate::policy::Subject;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

type Key = (ThreadId, SettingKind);

/// What is known of the settings that were asked for.
#[derive(Default)]
pub(super) struct Settings {
    /// Those that threads have, as the world has confirmed.
    held: HashMap<Key, WantedSetting>,
    refused: HashMap<Key, Time>,
    unsupported: BTreeSet<SettingKind>,
}

impl Settings {
    /// Takes in what became of a change; `present` is what the engine takes to be in force.
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
            OutcomeKind::Gone | OutcomeKind::NotOurs => {
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

    /// Drops what no policy may want, or cannot have now.
    pub fn guard(&self, wanted: &mut BTreeMap<Key, WantedSetting>, subjects: &[Subject], now: Time) {
        if wanted.is_empty() {
            return;
        }
        let ours = |subject: &&Subject| matches!(subject.view.standing, Standing::Free | Standing::Bound);
        let threads: HashSet<ThreadId> =
            subjects.iter().filter(ours).map(|subject| subject.view.thread).collect();
        wanted.retain(|key, _| {
            let refused = self.refused.get(key).is_some_and(|&at| now.since(at) < RETRY_AFTER);
            // That is no matter of where its first thread may run, or whether it is known yet.
            let is_ours = key.1.is_of_process() || threads.contains(&key.0);
            is_ours && !refused && !self.unsupported.contains(&key.1)
        });
    }

    /// A thread has ended.
    pub fn forget(&mut self, thread: ThreadId, present: &mut BTreeMap<Key, WantedSetting>) {
        for kind in SettingKind::ALL {
            self.held.remove(&(thread, kind));
            self.refused.remove(&(thread, kind));
            present.remove(&(thread, kind));
        }
    }
}
