//! Where threads shall run, where they run now, and the difference: the actions.

use crate::cpuset::CpuSet;
use crate::ids::ThreadId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a policy wants: the bound threads. A thread that is not mentioned is free.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Placement {
    /// Each bound thread with its PEs and the reason.
    pub bound: BTreeMap<ThreadId, Seat>,
    /// Said once to the user when the policy has nothing to do on this machine, and why.
    pub nothing_to_gain: Option<String>,
}

/// Where one thread is bound and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// The PEs that it may use.
    pub pes: CpuSet,
    /// The rule and the numbers that led here, and what else was considered.
    pub reason: String,
}

/// One change that the engine asks of the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The thread to change.
    pub thread: ThreadId,
    /// What to change.
    pub change: Change,
    /// Why, in words.
    pub reason: String,
}

/// The kinds of change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Let the thread run on these PEs only.
    Bind(CpuSet),
    /// Give the thread back the PEs that its user lets it have.
    Free,
}

/// What became of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The thread that was to be changed.
    pub thread: ThreadId,
    /// What was asked.
    pub change: Change,
    /// How it went.
    pub result: OutcomeKind,
}

/// How an action went. A failure is an observation, not an error of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// Done.
    Done,
    /// The thread had ended.
    Gone,
    /// The thread's mask was no longer what corewise had left: someone else decides now.
    NotOurs,
    /// The system refused; its words.
    Refused(String),
}

impl Placement {
    /// Nobody bound, as there is nothing to gain, and why.
    pub fn without_gain(reason: impl Into<String>) -> Placement {
        Placement { nothing_to_gain: Some(reason.into()), ..Placement::default() }
    }

    /// The actions that turn `self` into `wanted`, frees first so that PEs are empty before they are filled.
    pub fn actions_towards(&self, wanted: &Placement) -> Vec<Action> {
        let frees =
            self.bound.keys().filter(|thread| !wanted.bound.contains_key(thread)).map(|&thread| Action {
                thread,
                change: Change::Free,
                reason: "no longer among the threads that the policy binds".to_owned(),
            });
        let binds = wanted
            .bound
            .iter()
            .filter(|(thread, seat)| self.bound.get(thread).map(|s| &s.pes) != Some(&seat.pes))
            .map(|(&thread, seat)| Action {
                thread,
                change: Change::Bind(seat.pes.clone()),
                reason: seat.reason.clone(),
            });
        frees.chain(binds).collect()
    }
}
