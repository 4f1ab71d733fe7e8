//! Fast PEs for the threads that gain most from them, by IPC ratios known beforehand: `static-ipc`.
//!
//! Problem: a compute-bound thread runs about twice as fast on a PE of twice the speed, a thread that waits
//! for memory hardly any faster; a fast PE is wasted on the latter.
//!
//! Approach (Saez et al., CF'10, §2.3, after Becchi and Crowley, CF'06): the IPC ratio of a thread is the
//! "quotient of IPCs on fast and slow cores"; "threads with the highest IPC ratios are scheduled on fast
//! cores while remaining threads are scheduled on slow cores". The paper's version is static: the ratios "of
//! all threads are measured a priori", here given by thread name.
//!
//! The paper counts instructions per second, we count per cycle: with one frequency per kind of PE the two
//! ratios differ by a factor that is the same for all threads, so the order is the same.
//!
//! Parameters: `ratios`.
//!
//! Limits: parallelism does not count (the paper's own finding against this policy). A busy-waiting thread
//! shows the highest ratio of all (§2.2.1). Those of [`super::amp`].

use super::amp::{Amp, Candidate, Rest, candidates};
use super::interface::{Policy, Scene, Subject};
use super::kind::{Parameters, PolicyKind};
use super::needs::{Needs, Reading};
use crate::plan::Placement;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};

/// The registry entry.
pub const KIND: PolicyKind = PolicyKind {
    name: "static-ipc",
    machine: "fast and slow PEs",
    rule: "the fast PEs go to the highest ratios of IPC on fast to IPC on slow PEs, which are given",
    why: "some programs gain much by a fast PE and some hardly anything: those that gain most get them",
    source: "PA §2.3",
    makes_claims: true,
    rest: None,
    make: |parameters| Box::new(StaticIpc::new(parameters)),
};

/// The policy.
struct StaticIpc {
    ratios: BTreeMap<String, f64>,
}

impl StaticIpc {
    fn new(parameters: &mut Parameters<'_>) -> Self {
        let doc =
            "how much higher the IPC of the threads of a name is on fast PEs; without any, nothing is bound";
        Self { ratios: parameters.numbers("ratios", "", doc) }
    }
}

impl Policy for StaticIpc {
    fn name(&self) -> &str {
        KIND.name
    }

    fn needs(&self) -> Needs {
        Needs { used: &[Reading::Spinning], ..Needs::NONE }
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

/// A thread's place in the ranking. Equal places have equal reasons.
#[derive(Clone, Copy)]
pub enum Standing {
    /// Before all others, with the reason.
    First(&'static str),
    /// By its ratio, the highest first.
    Ratio(f64),
    /// After all others, with the reason.
    Last(&'static str),
}

impl Standing {
    fn value(self) -> f64 {
        match self {
            Standing::First(_) => f64::INFINITY,
            Standing::Ratio(ratio) => ratio,
            Standing::Last(_) => f64::NEG_INFINITY,
        }
    }

    /// Returns the standing as it is reported. Rounding lets thousands of threads share a few formatted
    /// reasons.
    fn rounded(self) -> Standing {
        match self {
            Standing::Ratio(ratio) => Standing::Ratio((ratio * 100.0).round() / 100.0),
            Standing::First(_) | Standing::Last(_) => self,
        }
    }
}

impl Display for Standing {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Standing::First(why) | Standing::Last(why) => f.write_str(why),
            Standing::Ratio(ratio) => write!(f, "IPC ratio {ratio:.2}"),
        }
    }
}

impl Ord for Standing {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value().total_cmp(&other.value())
    }
}

impl PartialOrd for Standing {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Standing {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Standing {}

/// Ranks the candidates by their standing, the highest ratio first.
pub fn place_by(scene: &Scene<'_>, mut standing: impl FnMut(&Amp, &Subject) -> Standing) -> Placement {
    let amp = match Amp::of(scene) {
        Ok(amp) => amp,
        Err(placement) => return placement,
    };
    let ranked = candidates(scene).map(|subject| {
        let standing = standing(&amp, subject);
        let reason = standing.rounded();
        Candidate { claim: Reverse(standing), order: (), has_claim: true, subject, reason }
    });
    amp.place(scene, ranked.collect(), Rest::After)
}
