//! Claims: how a thread that has a right to a fast PE comes first there.
//!
//! Problem: a policy for fast and slow PEs gives the few fast PEs to the threads that need them most. If it
//! keeps all others away from them by masks, a fast PE idles whenever its thread blocks, while several of the
//! others share a slow PE: a parallel program took 45 % longer beside a single-threaded one.
//!
//! Approach: the thread with a claim is bound to the fast PEs and gets a larger weight; no other thread is
//! bound. The operating system then runs it whenever it wants its PE, and others whenever it does not,
//! without any reaction time: work-conserving. Without the right to change weights (CAP_SYS_NICE), the others
//! are kept on the slow PEs by masks, but only while all those with a claim run.
//!
//! Source: ours. The paper's scheduler (Saez et al., CF'10, §2) is part of the kernel, and work-conserving by
//! itself.
//!
//! Limits: a weight counts among the threads of one control group (of one session where the kernel groups
//! sessions, `sched_autogroup_enabled`), on the PE where they meet.

use crate::plan::{Setting, WantedSetting, Weight};
use serde::{Deserialize, Serialize};

/// How claims to fast PEs are enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claims {
    /// A thread with a claim has a larger weight; all others may use its PE whenever it does not.
    Weights,
    /// All others are kept on the slow PEs while those with a claim run.
    #[default]
    Masks,
}

/// The weight of a thread with a claim: fifteen nice levels, so that one other thread on the same PE gets 3 %
/// of it, and none starves.
const OF_CLAIM: Weight = Weight::Percent(2842);

/// Returns the setting of a thread with a claim.
pub fn setting() -> WantedSetting {
    WantedSetting {
        setting: Setting::Weight(OF_CLAIM),
        reason: "its claim to a fast PE: others may use the PE when it does not".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_for_fast_and_slow_pes_make_claims_also_with_parameters() {
        let made_by =
            ["pa", "pa:stay=2s", "mintlp", "rr", "busyfcs", "spread", "exec:pa"].map(Claims::are_made_by);
        assert_eq!(made_by, [true, true, true, true, false, false, false]);
    }
}
