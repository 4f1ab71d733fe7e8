//! Fast PEs for the threads that gain most by them: `static-ipc`, and `measured-ipc` without foreknowledge.
//!
//! Problem: a compute-bound thread runs about twice as fast on a PE of twice the speed, one that waits for
//! memory hardly any faster; a fast PE is wasted on the second.
//!
//! Approach (Saez et al., CF'10, §2.3, after Becchi and Crowley, CF'06): the IPC ratio of a thread is the
//! "quotient of IPCs on fast and slow cores"; "threads with the highest IPC ratios are scheduled on fast
//! cores while remaining threads are scheduled on slow cores". The paper's version is static: the ratios "of
//! all threads are measured a priori", here given as data by thread name. `measured-ipc` measures them
//! itself: a thread of unknown ratio goes first to a fast PE, then to the slow ones, each for a step; later
//! readings, on whichever kind it runs, keep its ratio up to date. That is the sampling of the original,
//! without its new sample at every phase, the overhead of which made the paper choose the static version.
//!
//! The paper counts instructions per second, we per cycle: with one frequency per kind of PE the two ratios
//! differ by a factor that is the same for all threads, and the order is the same.
//!
//! Parameters: the ratios; [`SEAT_BONUS`] (ours) for measured ones.
//!
//! Limits: parallelism counts for nothing (the paper's own finding against this policy). A busy-waiting
//! thread shows the highest ratio of all (§2.2.1). A thread whose nature changes while it is on a slow PE is
//! found out by its IPC there alone. Those of [`super::amp`].

use super::amp::{Amp, Candidate, Rest, candidates};
use super::{Policy, Scene, Subject};
use crate::ids::ThreadId;
use crate::plan::Placement;
use std::collections::{BTreeMap, BTreeSet};

/// By what factor a rival's measured ratio must exceed that of a thread on a fast PE, so that noise moves
/// nobody.
pub const SEAT_BONUS: f64 = 1.05;

/// The policy with ratios that are known beforehand.
#[derive(Debug, Clone, Default)]
pub struct StaticIpc {
    ratios: BTreeMap<String, f64>,
}

impl StaticIpc {
    /// Ratios of the IPC on fast and on slow PEs, by the names of the threads.
    pub fn new(ratios: BTreeMap<String, f64>) -> Self {
        Self { ratios }
    }
}

impl Policy for StaticIpc {
    fn name(&self) -> &'static str {
        "static-ipc"
    }

    fn needs_fpu_usage(&self) -> bool {
        false
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        if self.ratios.is_empty() {
            return Placement::without_gain("no IPC ratios are given; measured-ipc measures them");
        }
        place_by(scene, |_, subject| match self.ratios.get(&*subject.name) {
            Some(&ratio) => Standing::Ratio(ratio),
            None => Standing::Last("its IPC ratio is not given"),
        })
    }
}

/// The policy that measures the ratios.
#[derive(Debug, Clone, Default)]
pub struct MeasuredIpc {
    measured: BTreeMap<ThreadId, Measured>,
}

/// IPC of one thread as last seen on each kind of PE.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    on_fast: Option<f64>,
    on_slow: Option<f64>,
}

impl Policy for MeasuredIpc {
    fn name(&self) -> &'static str {
        "measured-ipc"
    }

    fn needs_fpu_usage(&self) -> bool {
        false
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        if candidates(scene).next().is_some() && candidates(scene).all(|s| s.view.usage.ipc.is_none()) {
            return Placement::without_gain("no hardware counters tell how many instructions a cycle takes");
        }
        let alive: BTreeSet<ThreadId> = scene.threads.iter().map(|subject| subject.view.thread).collect();
        self.measured.retain(|thread, _| alive.contains(thread));
        place_by(scene, |amp, subject| {
            let measured = self.measured.entry(subject.view.thread).or_default();
            // The present binding held since the last step, so that is where the reading was made.
            if amp.bound_to_fast(scene, subject) {
                measured.on_fast = subject.view.usage.ipc.or(measured.on_fast);
            } else if amp.bound_to_slow(scene, subject) {
                measured.on_slow = subject.view.usage.ipc.or(measured.on_slow);
            }
            match (measured.on_fast, measured.on_slow) {
                (None, _) => Standing::First("to measure its IPC on a fast PE"),
                (_, None) => Standing::Last("to measure its IPC on a slow PE"),
                (Some(fast), Some(slow)) => {
                    let bonus = if amp.on_fast(scene, subject) { SEAT_BONUS } else { 1.0 };
                    Standing::Ratio(bonus * fast / slow.max(f64::MIN_POSITIVE))
                }
            }
        })
    }
}

/// A thread's place in the ranking.
enum Standing {
    First(&'static str),
    Ratio(f64),
    Last(&'static str),
}

/// Ranks the candidates by their standing, the highest ratio first.
fn place_by(scene: &Scene<'_>, mut standing: impl FnMut(&Amp, &Subject) -> Standing) -> Placement {
    let amp = match Amp::of(scene) {
        Ok(amp) => amp,
        Err(placement) => return placement,
    };
    let mut ranked: Vec<(f64, &Subject, String)> = candidates(scene)
        .map(|subject| {
            let (rank, reason) = match standing(&amp, subject) {
                Standing::First(why) => (f64::INFINITY, why.to_owned()),
                Standing::Ratio(ratio) => (ratio, format!("IPC ratio {ratio:.2}")),
                Standing::Last(why) => (f64::NEG_INFINITY, why.to_owned()),
            };
            (rank, subject, reason)
        })
        .collect();
    ranked.sort_by(|(a, ..), (b, ..)| b.total_cmp(a));
    let groups = ranked.chunk_by(|(a, ..), (b, ..)| a == b).enumerate();
    let ranked = groups.flat_map(|(rank, equals)| {
        equals.iter().map(move |(_, subject, reason)| Candidate { rank, subject, reason: reason.clone() })
    });
    amp.place(scene, ranked.collect(), Rest::OnSlow)
}
