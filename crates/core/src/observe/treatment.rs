//! How a process is treated, where not as everything else.
//!
//! Problem: rules, clients that detach a process, another corewise that places it, and a machine that saves
//! power all have a say in what may be done with one process, and they change their minds while it runs. If
//! each of them acted by itself, none could explain, record or replay what follows. Approach: one place that
//! knows them makes one [`Treatment`] per process of what they say together. The world reports it as a fact,
//! and the [engine](crate::engine) alone draws the conclusions, with ordinary actions and their reasons.

use crate::cpuset::CpuSet;
use crate::wait_changes::WaitChanges;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The treatments of processes, by their IDs.
pub type Treatments = BTreeMap<u32, Arc<Treatment>>;

/// What may be done with a process. The default is what holds for everything else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Treatment {
    /// The PEs that its threads must not leave, whether or not a policy binds them; `None`: they may use all
    /// that they may without corewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pes: Option<CpuSet>,
    /// The policy that places its threads, as a specification; `None`: the one that places everything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Arc<str>>,
    /// When that policy chooses: those with lower numbers do so before.
    pub order: u32,
    /// Whether the [guard](crate::guard) measures what their placement gains, if there is one.
    pub guard: bool,
    /// What may be changed about how its threads wait, as far as the run may change that.
    pub waits: WaitChanges,
    /// Why its threads are not placed; `None`: they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_alone: Option<Arc<str>>,
}

impl Default for Treatment {
    fn default() -> Treatment {
        let waits = WaitChanges::ALL;
        Treatment { pes: None, policy: None, order: 0, guard: true, waits, left_alone: None }
    }
}

impl Treatment {
    /// Returns the treatment of a process of which nothing is changed.
    pub fn untouched(why: impl Into<Arc<str>>) -> Treatment {
        Treatment { waits: WaitChanges::NONE, left_alone: Some(why.into()), ..Treatment::default() }
    }

    /// Returns it; `None` if it says the same as nothing.
    pub fn if_special(self) -> Option<Treatment> {
        (self != Treatment::default()).then_some(self)
    }
}
