//! Fast PEs for sequential phases and for programs of low parallelism: `pa`.
//!
//! Problem: fast PEs serve best where a program has a single runnable thread, but a scheduler that always
//! gives them to the least parallel program (`mintlp`) lets that one monopolise them.
//!
//! Approach (Saez et al., CF'10, §2.1). Each runnable thread is of one class:
//!
//! - SP: the thread "of parallel applications that have just entered a sequential phase". First right to fast
//!   PEs, for [`PaParameters::amp_boost_ticks`], then MP, "to avoid monopolizing fast cores".
//! - Master: the thread that its runtime library has named as the one that does the serial parts
//!   ([`crate::observe::Hints::master`]): PA "tries to ensure that the master thread runs on a fast core
//!   whenever it is active, but without permanently binding the thread to that core" (§2.2.2). After SP.
//! - MP, mildly parallel: of an application with few runnable threads, single-threaded ones included. They
//!   share in turns the fast PEs that SP threads leave ("the remaining fast cores will be shared among MP
//!   threads in a round-robin fashion").
//! - HP, highly parallel: of an application whose number of runnable threads exceeds
//!   [`PaParameters::hp_threshold`]. On slow PEs, unless a fast one is left over.
//!
//! A thread that has told that it spins does nothing useful: it is a candidate to leave its fast PE (§2.2.1,
//! "marks this thread as a candidate for migration to slow cores"). It keeps the PE until an SP, master or MP
//! thread wants it; HP threads have no claim, so none is swapped in for it: "this approach avoids premature
//! migrations". Spinning on a slow PE, it gets no fast one.
//!
//! Classes follow the number of runnable threads; threads are swapped once per step ("a thread swapping
//! mechanism to perform those adjustments periodically, instead of reacting to those transitions
//! immediately"), and a thread that is promoted takes a fast PE within its last-level cache where one is to
//! be had (§3.4).
//!
//! Parameters: [`PaParameters`].
//!
//! Limits: the number of runnable threads is the mean since the last step, rounded, and a boost lasts whole
//! steps; the paper counts at every change and in ticks of 10 ms. The paper does not say where the master
//! stands among the classes. Those of [`super::amp`].

use super::amp::{Amp, Candidate, Rest, candidates};
use super::turns::{TURN, Turns};
use super::{Policy, Scene, Subject, tlp};
use crate::ids::AppId;
use crate::plan::Placement;
use crate::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// A scheduling tick of the paper: it gives one hundred of them as one second (§2.1).
pub const TICK: Duration = Duration::from_millis(10);

/// The parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaParameters {
    /// Runnable threads that an application may have at most for its threads to be MP; `None`: one more than
    /// there are fast PEs (§2.1).
    pub hp_threshold: Option<usize>,
    /// For how many [`TICK`]s the thread of a sequential phase is SP: 100 (§2.1).
    pub amp_boost_ticks: u32,
    /// For how long an MP thread has its fast PE at a time. Not in the paper: [`TURN`].
    pub turn: Duration,
}

impl Default for PaParameters {
    fn default() -> Self {
        Self { hp_threshold: None, amp_boost_ticks: 100, turn: TURN }
    }
}

/// The policy.
#[derive(Debug, Clone, Default)]
pub struct Pa {
    parameters: PaParameters,
    turns: Turns,
    phases: BTreeMap<AppId, Phase>,
}

/// What an application is in. It moves from any to `Parallel` with two runnable threads, from there to
/// `Boosted` with one, and on to `Sequential` when the boost is spent. With none it stays what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Sequential,
    Parallel,
    Boosted { since: Time },
}

/// The class of a thread, by its right to a fast PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Sp,
    Master,
    Mp,
    Hp,
}

impl Pa {
    /// The policy with those parameters.
    pub fn new(parameters: PaParameters) -> Self {
        Self { parameters, ..Self::default() }
    }

    fn follow_phases(&mut self, scene: &Scene<'_>) {
        self.phases.retain(|app, _| scene.applications.contains_key(app));
        for &app in scene.applications.keys() {
            let phase = self.phases.entry(app).or_insert(Phase::Sequential);
            *phase = match (tlp(scene, app), *phase) {
                (Some(2..), _) => Phase::Parallel,
                (Some(1), Phase::Parallel) => Phase::Boosted { since: scene.now },
                (_, Phase::Boosted { since })
                    if scene.now.since(since) >= TICK * self.parameters.amp_boost_ticks =>
                {
                    Phase::Sequential
                }
                (_, phase) => phase,
            };
        }
    }

    fn class(&self, scene: &Scene<'_>, amp: &Amp, subject: &Subject) -> Class {
        let app = subject.view.app;
        let hp_threshold = self.parameters.hp_threshold.unwrap_or(amp.fast_pes() + 1);
        match (self.phases.get(&app), tlp(scene, app)) {
            (Some(Phase::Boosted { .. }), _) => Class::Sp,
            _ if subject.hints.master => Class::Master,
            (_, Some(tlp)) if tlp <= hp_threshold => Class::Mp,
            // An application of unknown parallelism has no claim either.
            _ => Class::Hp,
        }
    }
}

impl Policy for Pa {
    fn name(&self) -> &'static str {
        "pa"
    }

    fn needs_fpu_usage(&self) -> bool {
        false
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let amp = match Amp::of(scene) {
            Ok(amp) => amp,
            Err(placement) => return placement,
        };
        self.follow_phases(scene);
        let class_of = |subject| self.class(scene, &amp, subject);
        let (sharing, others): (Vec<&Subject>, Vec<&Subject>) =
            candidates(scene).partition(|subject| class_of(subject) == Class::Mp);
        let others = others.into_iter().map(|subject| {
            let class = class_of(subject);
            Candidate { rank: (class, None), subject, reason: reason(scene, class, subject) }
        });
        let spinning = amp.spinning_on_fast(scene).into_iter().map(|subject| {
            let reason = "it spins, but nobody with a claim wants its fast PE".to_owned();
            Candidate { rank: (Class::Hp, None), subject, reason }
        });
        let mut ranked: Vec<_> = others.chain(spinning).collect();
        let turns = self.turns.ranks(scene, &amp, self.parameters.turn, &sharing);
        ranked.extend(turns.zip(sharing).map(|(turn, subject)| Candidate {
            rank: (Class::Mp, Some(turn)),
            subject,
            reason: reason(scene, Class::Mp, subject),
        }));
        amp.place(scene, ranked, Rest::OnSlow)
    }
}

fn reason(scene: &Scene<'_>, class: Class, subject: &Subject) -> String {
    let runnable = match tlp(scene, subject.view.app) {
        Some(tlp) => format!("its application has {tlp} runnable threads"),
        None => "the parallelism of its application is unknown".to_owned(),
    };
    match class {
        Class::Sp => "SP: its application has just entered a sequential phase".to_owned(),
        Class::Master => "its runtime library says that it is the master thread".to_owned(),
        Class::Mp => format!("MP: {runnable}"),
        Class::Hp => format!("HP: {runnable}"),
    }
}
