//! Fast PEs for the applications with the least parallelism: `mintlp`.
//!
//! Problem: a fast PE speeds up the whole of a sequential program or phase, but only a small part of a
//! program with many runnable threads.
//!
//! Approach (Saez et al., CF'10, §2.1): "selects applications with the smallest thread-level parallelism and
//! maps threads of these applications to fast cores. Thread-level parallelism is determined by examining the
//! number of runnable (i.e., not blocked) threads. If not enough fast cores are available to accommodate all
//! these threads, some will be left running on slow cores. MinTLP makes no effort to fairly share." Threads
//! are swapped once per step, following §2.1, "to avoid premature migrations". Threads of applications with
//! equal parallelism do not displace each other, so the first to get a fast PE keeps it. An idle fast PE
//! takes a thread of any application (in §2.2 it migrates at once, here at the next step). A thread that
//! spins, by its report or its samples, comes after all others, but keeps its fast PE while none of them
//! wants it. A step is made at every change of an application's parallelism, apart from moments with fewer
//! runnable threads ([`super::phases`]). The threads of an application have a claim if another one has more.
//!
//! Parameters: `patience`.
//!
//! Limits: an application of unknown parallelism comes last. Those of [`super::amp`] and [`super::phases`].

use super::amp::{Amp, Candidate, Rest, candidates};
use super::interface::{Policy, Scene};
use super::kind::PolicyKind;
use super::needs::{Needs, Reading};
use super::phases::{Phases, patience};
use crate::ids::AppId;
use crate::observe::EventKind;
use crate::plan::Placement;
use crate::time::Time;
use std::fmt::{Display, Formatter};

/// The registry entry.
pub const KIND: PolicyKind = PolicyKind {
    name: "mintlp",
    machine: "fast and slow PEs",
    rule: "the fast PEs go to the applications with the fewest runnable threads",
    why: "a program with few threads at work waits for each of them, so it gains most if these are fast",
    source: "PA §2.1",
    makes_claims: true,
    rest: None,
    make: |parameters| Box::new(MinTlp { phases: Phases::new(patience(parameters)) }),
};

/// The policy. Which threads are on fast PEs is part of the scene.
struct MinTlp {
    phases: Phases,
}

impl Policy for MinTlp {
    fn name(&self) -> &str {
        KIND.name
    }

    fn needs(&self) -> Needs {
        Needs {
            required: &[Reading::Tlp],
            used: &[Reading::Spinning],
            events: &[EventKind::TlpChanged, EventKind::Hint],
        }
    }

    fn answers(&mut self, scene: &Scene<'_>) -> bool {
        self.phases.answer(scene)
    }

    fn due(&self) -> Option<Time> {
        self.phases.due()
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let amp = match Amp::of(scene) {
            Ok(amp) => amp,
            Err(placement) => return placement,
        };
        self.phases.follow(scene);
        // An application that has just appeared was idle before; now it has this thread.
        let rank = |app: AppId| self.phases.width(app).map_or(usize::MAX, |width| width.max(1));
        let widest = candidates(scene).map(|subject| rank(subject.view.app)).max().unwrap_or(1).max(2);
        let working = candidates(scene).map(|subject| {
            let app = subject.view.app;
            let reason = Why::Works(self.phases.width(app));
            Candidate { claim: rank(app), order: (), has_claim: rank(app) < widest, subject, reason }
        });
        let spins = |subject| Candidate {
            claim: usize::MAX,
            order: (),
            has_claim: false,
            subject,
            reason: Why::Spins,
        };
        let spinning = amp.spinning_on_fast(scene).into_iter().map(spins);
        amp.place(scene, working.chain(spinning).collect(), Rest::After)
    }
}

/// The reason for a thread's rank.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// The number of runnable threads of its application, if known.
    Works(Option<usize>),
    Spins,
}

impl Display for Why {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Works(Some(tlp)) => write!(f, "its application has {tlp} runnable threads"),
            Why::Works(None) => f.write_str("the parallelism of its application is unknown"),
            Why::Spins => f.write_str("it spins, and no other thread wants its fast PE"),
        }
    }
}
