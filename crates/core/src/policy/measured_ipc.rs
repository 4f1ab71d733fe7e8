//! Fast PEs for the threads that gain most from them, by IPC ratios measured at run time: `measured-ipc`.
//!
//! Problem: that of [`super::static_ipc`], for threads of which nothing is known beforehand.
//!
//! Approach: a thread of unknown IPC ratio runs first on a fast PE, then on the slow ones, for one step each;
//! later readings on either kind keep its ratio up to date. This is the sampling of the original (Becchi and
//! Crowley, CF'06) without its new sample at every phase, whose overhead made Saez et al. (CF'10, §2.3)
//! choose the static version.
//!
//! Parameters: `hysteresis`.
//!
//! Limits: if a thread's behaviour changes while it is on a slow PE, only its IPC there reveals that. Those
//! of [`super::static_ipc`] and [`super::amp`].

use super::amp::candidates;
use super::interface::{Policy, Scene, Subject};
use super::kind::{Parameters, PolicyKind};
use super::needs::{Needs, Reading};
use super::static_ipc::{Standing, place_by};
use crate::ids::ThreadId;
use crate::plan::Placement;
use rustc_hash::FxHashMap;

/// The registry entry.
pub const KIND: PolicyKind = PolicyKind {
    name: "measured-ipc",
    machine: "fast and slow PEs, hardware counters",
    rule: "the fast PEs go to the highest ratios of IPC on fast to IPC on slow PEs, which it measures",
    why: "some programs gain much by a fast PE and some hardly anything: those that gain most get them",
    source: "PA §2.3",
    makes_claims: true,
    rest: None,
    make: |parameters| Box::new(MeasuredIpc::new(parameters)),
};

/// The policy.
struct MeasuredIpc {
    hysteresis: f64,
    measured: FxHashMap<ThreadId, Measured>,
}

/// The IPC of one thread as last measured on each kind of PE.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    on_fast: Option<f64>,
    on_slow: Option<f64>,
}

impl MeasuredIpc {
    fn new(parameters: &mut Parameters<'_>) -> Self {
        let doc = "how many times as high a rival's ratio must be for it to take the place of a thread on a \
            fast PE, so that noise moves nobody (ours)";
        Self {
            hysteresis: parameters.number("hysteresis", 1.05, 1.0..=100.0, "", doc),
            measured: FxHashMap::default(),
        }
    }
}

impl Policy for MeasuredIpc {
    fn name(&self) -> &str {
        KIND.name
    }

    fn needs(&self) -> Needs {
        Needs { required: &[Reading::Ipc], used: &[Reading::Spinning], ..Needs::NONE }
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        if candidates(scene).next().is_some() && candidates(scene).all(|s| s.view.usage.ipc.is_none()) {
            return Placement::without_gain("no hardware counters count instructions per cycle");
        }
        let known = |subject: &Subject| {
            let thread = subject.view.thread;
            Some((thread, *self.measured.get(&thread)?))
        };
        // Drops threads that have ended.
        self.measured = scene.threads.iter().filter_map(known).collect();
        place_by(scene, |amp, subject| {
            let measured = self.measured.entry(subject.view.thread).or_default();
            let ipc = subject.view.usage.ipc.map(|ipc| ipc.value);
            // The present binding has held since the last step, so the reading was made there.
            if amp.bound_to_fast(subject) {
                measured.on_fast = ipc.or(measured.on_fast);
            } else if amp.bound_to_slow(subject) {
                measured.on_slow = ipc.or(measured.on_slow);
            }
            match (measured.on_fast, measured.on_slow) {
                (None, _) => Standing::First("to measure its IPC on a fast PE"),
                (_, None) => Standing::Last("to measure its IPC on a slow PE"),
                (Some(fast), Some(slow)) => {
                    let bonus = if amp.on_fast(subject) { self.hysteresis } else { 1.0 };
                    Standing::Ratio(bonus * fast / slow.max(f64::MIN_POSITIVE))
                }
            }
        })
    }
}
