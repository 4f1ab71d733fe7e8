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
//!   take turns on the fast PEs that SP threads leave ("the remaining fast cores will be shared among MP
//!   threads in a round-robin fashion").
//! - HP, highly parallel: of an application whose number of runnable threads exceeds `hp_threshold`. They run
//!   on slow PEs, unless a fast one is left over.
//!
//! A thread that has reported that it spins does no useful work: it is a candidate to leave its fast PE
//! (§2.2.1, "marks this thread as a candidate for migration to slow cores"). It keeps the PE until an SP,
//! master or MP thread wants it; HP threads have no claim and are not swapped in for it: "this approach
//! avoids premature migrations". A thread that spins on a slow PE gets no fast one.
//!
//! Classes follow the number of runnable threads at every change that the world reports; threads are swapped
//! once per step ("a thread swapping mechanism to perform those adjustments periodically, instead of reacting
//! to those transitions immediately"), and a promoted thread takes a fast PE within its last-level cache if
//! one is available (§3.4).
//!
//! Parameters: `hp_threshold`, `amp_boost_ticks` and `turn`.
//!
//! Limits: where the world does not report every change, the number of runnable threads is the rounded mean
//! of the last window, and a boost ends with a step; the paper counts at every change and in ticks of 10 ms.
//! The paper does not rank the master among the classes. Those of [`super::amp`].

use super::amp::{Amp, Candidate, Rest, candidates};
use super::spec::{Parameters, PolicyKind};
use super::turns::{Turns, turn};
use super::{Cause, EventKind, Needs, Policy, Reading, Scene, Subject, tlp};
use crate::ids::{AppId, ThreadId};
use crate::observe::{Event, RunnableThreads};
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
    rule: "first to threads in a new sequential phase, then in turns to those of mildly parallel \
        applications",
    why: "while one thread works and the others wait for it, the whole program is as fast as this thread: it \
        should be on a fast PE",
    source: "PA §2.1",
    rest: None,
    make: |parameters| Box::new(Pa::new(parameters)),
};

/// The policy.
struct Pa {
    hp_threshold: Option<u32>,
    amp_boost_ticks: u32,
    turn: Duration,
    turns: Turns,
    phases: BTreeMap<AppId, Phase>,
    /// An application with more runnable threads than this is highly parallel; as of the last step.
    threshold: usize,
    /// For each application as last reported: whether it was mildly parallel, and its only runnable thread.
    reported: BTreeMap<AppId, (bool, Option<ThreadId>)>,
}

/// The phase of an application. Two runnable threads move it from any phase to `Parallel`; one moves it from
/// there to `Boosted`, and on to `Sequential` when the boost is used up. Without runnable threads it keeps
/// its phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Sequential,
    Parallel,
    Boosted { since: Time },
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
            turn: turn(parameters),
            threshold: 0,
            reported: BTreeMap::new(),
            turns: Turns::default(),
            phases: BTreeMap::new(),
        }
    }

    fn follow_phases(&mut self, scene: &Scene<'_>) {
        self.phases.retain(|app, _| scene.applications.contains_key(app));
        self.reported.retain(|app, _| scene.applications.contains_key(app));
        for &app in scene.applications.keys() {
            let phase = self.phases.entry(app).or_insert(Phase::Sequential);
            *phase = match (tlp(scene, app), *phase) {
                (Some(2..), _) => Phase::Parallel,
                (Some(1), Phase::Parallel) => Phase::Boosted { since: scene.now },
                (_, Phase::Boosted { since }) if scene.now.since(since) >= TICK * self.amp_boost_ticks => {
                    Phase::Sequential
                }
                (_, phase) => phase,
            };
        }
    }

    /// Returns whether a number of runnable threads changes the class of an application or the thread of its
    /// sequential phase.
    fn is_new(&mut self, runnable: &RunnableThreads) -> bool {
        let now = (runnable.count as usize <= self.threshold, runnable.only);
        let is_parallel = self.phases.get(&runnable.app) == Some(&Phase::Parallel);
        match runnable.count {
            // There is no thread to place.
            0 => false,
            count => {
                let same = self.reported.insert(runnable.app, now) == Some(now);
                !same || is_parallel != (count > 1)
            }
        }
    }

    fn class(&self, scene: &Scene<'_>, subject: &Subject) -> Class {
        let app = subject.view.app;
        match (self.phases.get(&app), tlp(scene, app)) {
            (Some(Phase::Boosted { .. }), _) => Class::Sp,
            _ if subject.hints.master => Class::Master,
            (_, Some(tlp)) if tlp <= self.threshold => Class::Mp,
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

    /// Returns whether an application enters another phase or crosses the threshold, or a thread starts or
    /// stops spinning.
    fn answers(&mut self, scene: &Scene<'_>) -> bool {
        let Cause::Events(events) = scene.cause else { return true };
        events.iter().any(|event| match event {
            Event::TlpChanged(runnable) => self.is_new(runnable),
            Event::Hint { .. } | Event::AllowedChanged(_) => true,
            // Their effects are reported by the events above or by the next observation.
            Event::ThreadStarted(_)
            | Event::ThreadEnded(_)
            | Event::ThreadRenamed { .. }
            | Event::Process(_) => false,
        })
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let amp = match Amp::of(scene) {
            Ok(amp) => amp,
            Err(placement) => return placement,
        };
        self.follow_phases(scene);
        self.threshold = self.hp_threshold.map_or(amp.fast_pes() + 1, |threads| threads as usize);
        let class_of = |subject| self.class(scene, subject);
        let (sharing, others): (Vec<&Subject>, Vec<&Subject>) =
            candidates(scene).partition(|subject| class_of(subject) == Class::Mp);
        let others = others.into_iter().map(|subject| {
            let class = class_of(subject);
            Candidate { rank: (class, None), subject, reason: Why::of(scene, class, subject) }
        });
        let spinning = amp.spinning_on_fast(scene).into_iter();
        let spinning =
            spinning.map(|subject| Candidate { rank: (Class::Hp, None), subject, reason: Why::Spins });
        let mut ranked: Vec<_> = others.chain(spinning).collect();
        let turns = self.turns.ranks(scene, &amp, self.turn, &sharing);
        ranked.extend(turns.zip(sharing).map(|(turn, subject)| Candidate {
            rank: (Class::Mp, Some(turn)),
            subject,
            reason: Why::of(scene, Class::Mp, subject),
        }));
        amp.place(scene, ranked, Rest::OnSlow)
    }
}

/// The reason for a thread's rank.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// The thread's class, and the number of runnable threads of its application, if known.
    Class(Class, Option<usize>),
    Spins,
}

impl Why {
    fn of(scene: &Scene<'_>, class: Class, subject: &Subject) -> Why {
        Why::Class(class, tlp(scene, subject.view.app))
    }
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
