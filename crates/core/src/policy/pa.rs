//! Fast PEs for sequential phases and for programs of low parallelism: `pa`.
//!
//! Problem: fast PEs help most where a program has a single runnable thread, but a scheduler that always
//! gives them to the least parallel program (`mintlp`) lets that program monopolise them.
//!
//! Approach (Saez et al., CF'10, §2.1). Each runnable thread is of one class:
//!
//! - SP: the thread "of parallel applications that have just entered a sequential phase". It has the first
//!   claim to fast PEs for `amp_boost_ticks`; afterwards it is MP, "to avoid monopolizing fast cores".
//! - Master: the thread that its runtime library has named as the one that executes the serial parts
//!   ([`crate::observe::Hints::master`]): PA "tries to ensure that the master thread runs on a fast core
//!   whenever it is active, but without permanently binding the thread to that core" (§2.2.2). After SP.
//! - MP, mildly parallel: of an application with few runnable threads, including single-threaded ones. They
//!   stay in turn on the fast PEs that SP threads leave ("the remaining fast cores will be shared among MP
//!   threads in a round-robin fashion").
//! - HP, highly parallel: of an application whose number of runnable threads exceeds `hp_threshold`. They run
//!   on slow PEs, unless a fast one is left over.
//!
//! A thread that has reported that it spins, or is seen spinning, does no useful work: it is a candidate to
//! leave its fast PE (§2.2.1, "marks this thread as a candidate for migration to slow cores"). It keeps the
//! PE until an SP, master or MP thread wants it; HP threads have no claim and are not swapped in for it:
//! "this approach avoids premature migrations". A thread that spins on a slow PE gets no fast one.
//!
//! Classes follow the number of runnable threads, apart from moments with fewer of them, such as the end of a
//! barrier ([`super::phases`]; the paper has "a thread swapping mechanism to perform those adjustments
//! periodically, instead of reacting to those transitions immediately"). A promoted thread takes a fast PE
//! within its last-level cache if one is available (§3.4).
//!
//! Parameters: `hp_threshold`, `amp_boost_ticks`, `stay` and `patience`.
//!
//! Limits: a boost ends with a step; the paper counts it in ticks of 10 ms. The paper does not rank the
//! master among the classes. Those of [`super::amp`] and [`super::phases`].

use super::amp::{Amp, Candidate, Rest, candidates};
use super::interface::{Policy, Scene, Subject};
use super::kind::{Parameters, PolicyKind};
use super::needs::{Needs, Reading};
use super::phases::{Phases, patience};
use super::stays::{Stays, stay};
use crate::ids::AppId;
use crate::observe::EventKind;
use crate::plan::Placement;
use crate::time::Time;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::time::Duration;

/// A scheduling tick of the paper, which equates one hundred of them with one second (§2.1).
const TICK: Duration = Duration::from_millis(10);

/// The registry entry.
pub const KIND: PolicyKind = PolicyKind {
    name: "pa",
    machine: "fast and slow PEs",
    rule: "first to threads in a new sequential phase, then in turn to those of mildly parallel \
        applications",
    why: "while one thread works and the others wait for it, the whole program is as fast as this thread: it \
        should be on a fast PE",
    source: "PA §2.1",
    makes_claims: true,
    rest: None,
    make: |parameters| Box::new(Pa::new(parameters)),
};

/// The policy.
struct Pa {
    hp_threshold: Option<u32>,
    amp_boost_ticks: u32,
    stay: Duration,
    stays: Stays,
    phases: Phases,
    boosts: BTreeMap<AppId, Boost>,
    /// An application with more runnable threads than this is highly parallel; as of the last step.
    threshold: usize,
}

/// Whether an application is boosted. Two runnable threads move it to `NotYet`; one moves it from there to
/// `Boosted`, and on to `UsedUp` after a time. Without runnable threads it stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Boost {
    NotYet,
    Boosted { since: Time },
    UsedUp,
}

/// The class of a thread, ordered by its claim to a fast PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Sp,
    Master,
    Mp,
    Hp,
}

impl Pa {
    fn new(parameters: &mut Parameters<'_>) -> Self {
        Self {
            hp_threshold: parameters.integer_or(
                "hp_threshold",
                "number of fast PEs + 1".to_owned(),
                1..=1_000_000,
                "threads",
                "with more runnable threads than this an application is highly parallel (PA §2.1)",
            ),
            amp_boost_ticks: parameters.integer(
                "amp_boost_ticks",
                100,
                0..=1_000_000,
                "ticks of 10 ms",
                "for how long the thread of a new sequential phase comes first (PA §2.1)",
            ),
            stay: stay(parameters),
            threshold: 0,
            stays: Stays::default(),
            phases: Phases::new(patience(parameters)),
            boosts: BTreeMap::new(),
        }
    }

    fn follow_phases(&mut self, scene: &Scene<'_>) {
        self.phases.follow(scene);
        self.boosts.retain(|app, _| scene.applications.contains_key(app));
        for &app in scene.applications.keys() {
            let boost = self.boosts.entry(app).or_insert(Boost::UsedUp);
            *boost = match (self.phases.width(app), *boost) {
                (Some(2..), _) => Boost::NotYet,
                (Some(1), Boost::NotYet) => Boost::Boosted { since: scene.now },
                (_, Boost::Boosted { since }) if scene.now.since(since) >= TICK * self.amp_boost_ticks => {
                    Boost::UsedUp
                }
                (_, boost) => boost,
            };
        }
    }

    fn class(&self, subject: &Subject) -> Class {
        let app = subject.view.app;
        match (self.boosts.get(&app), self.phases.width(app)) {
            (Some(Boost::Boosted { .. }), _) => Class::Sp,
            _ if subject.hints.master => Class::Master,
            (_, Some(width)) if width <= self.threshold => Class::Mp,
            // An application of unknown parallelism has no claim either.
            _ => Class::Hp,
        }
    }
}

impl Policy for Pa {
    fn name(&self) -> &str {
        KIND.name
    }

    fn needs(&self) -> Needs {
        Needs {
            required: &[Reading::Tlp],
            used: &[Reading::Spinning, Reading::Master],
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
        self.follow_phases(scene);
        self.threshold = self.hp_threshold.map_or(amp.fast_pes() + 1, |threads| threads as usize);
        let why = |class, subject: &Subject| Why::Class(class, self.phases.width(subject.view.app));
        let (sharing, others): (Vec<&Subject>, Vec<&Subject>) =
            candidates(scene).partition(|subject| self.class(subject) == Class::Mp);
        let others = others.into_iter().map(|subject| {
            let class = self.class(subject);
            let has_claim = class != Class::Hp;
            Candidate { claim: class, order: None, has_claim, subject, reason: why(class, subject) }
        });
        let spins = |subject| {
            let claim = Class::Hp;
            Candidate { claim, order: None, has_claim: false, subject, reason: Why::Spins }
        };
        let mut ranked: Vec<_> = others.chain(amp.spinning_on_fast(scene).into_iter().map(spins)).collect();
        let stays = self.stays.ranks(scene, &amp, self.stay, &sharing);
        ranked.extend(stays.zip(sharing).map(|(stay, subject)| {
            let (claim, reason) = (Class::Mp, why(Class::Mp, subject));
            Candidate { claim, order: Some(stay), has_claim: true, subject, reason }
        }));
        amp.place(scene, ranked, Rest::After)
    }
}

/// The reason for a thread's rank.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// The thread's class, and the number of runnable threads of its application, if known.
    Class(Class, Option<usize>),
    Spins,
}

impl Display for Why {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (class, tlp) = match self {
            Why::Spins => return f.write_str("it spins, but no thread with a claim wants its fast PE"),
            Why::Class(Class::Sp, _) => {
                return f.write_str("SP: its application has just entered a sequential phase");
            }
            Why::Class(Class::Master, _) => {
                return f.write_str("its runtime library says that it is the master thread");
            }
            Why::Class(Class::Mp, tlp) => ("MP", tlp),
            Why::Class(Class::Hp, tlp) => ("HP", tlp),
        };
        match tlp {
            Some(tlp) => write!(f, "{class}: its application has {tlp} runnable threads"),
            None => write!(f, "{class}: the parallelism of its application is unknown"),
        }
    }
}
