//! Fast PEs in turns: who has had how much of them, and who is next.
//!
//! Problem: several threads have an equal right to too few fast PEs. Approach: for each of them the time on
//! fast PEs is added up; who is in the middle of a turn stays, then come those who had fewest turns. Time is
//! counted in whole turns, so that of those who had as many the nearest can be chosen. A newcomer, or one
//! that comes back, counts as having had as much as the one that had least, so that it takes its place in the
//! round and not all turns until it has caught up. Source: the round-robin sharing of fast cores of
//! Saez et al., CF'10, §2.1 and §2.3; the accounts are ours. Limits: time counts while a thread is bound to a
//! fast PE and wants to run, whether or not the operating system let it.

use super::amp::Amp;
use super::spec::Parameters;
use super::{Scene, Subject};
use crate::ids::ThreadId;
use crate::time::Time;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// How long a turn on a fast PE lasts unless told otherwise. The paper does not say; it is as long as its
/// boost of a sequential phase.
const TURN: Duration = Duration::from_secs(1);

/// The parameter of all policies with turns.
pub fn turn(parameters: &mut Parameters<'_>) -> Duration {
    let range = Duration::from_millis(1)..=Duration::from_secs(3600);
    parameters.duration(
        "turn",
        TURN,
        range,
        "how long a thread has a fast PE at a time (ours; no paper says)",
    )
}

/// The right to a fast PE: who is in the middle of a turn, then by the number of turns had, of equals first
/// those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TurnRank {
    Amid,
    Had { turns: u64, is_over: bool },
}

/// The accounts of those who share.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    accounts: FxHashMap<ThreadId, Account>,
    last: Time,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// Time on fast PEs so far.
    had: Duration,
    /// Since when it is on one.
    since: Option<Time>,
}

impl Turns {
    /// The right of each that shares to a fast PE now.
    pub fn ranks(
        &mut self,
        scene: &Scene<'_>,
        amp: &Amp,
        turn: Duration,
        sharing: &[&Subject],
    ) -> impl Iterator<Item = TurnRank> + use<> {
        let elapsed = scene.now.since(self.last);
        let before = |subject: &&Subject| self.accounts.get(&subject.view.thread).copied();
        let before: Vec<Option<Account>> = sharing.iter().map(before).collect();
        let least = before.iter().flatten().map(|account| account.had).min().unwrap_or_default();
        let renewed = |(subject, before): (&&Subject, &Option<Account>)| match (before, amp.on_fast(subject))
        {
            (Some(account), true) => {
                Account { had: account.had + elapsed, since: Some(account.since.unwrap_or(self.last)) }
            }
            (Some(account), false) => Account { since: None, ..*account },
            (None, on_fast) => Account { had: least, since: on_fast.then_some(scene.now) },
        };
        let accounts: Vec<Account> = sharing.iter().zip(&before).map(renewed).collect();
        let threads = sharing.iter().map(|subject| subject.view.thread);
        self.accounts = threads.zip(accounts.iter().copied()).collect();
        self.last = scene.now;
        // A step that comes a little early or late must not double or halve a turn.
        let now = scene.now;
        let amid_turn =
            move |account: &Account| account.since.is_some_and(|since| now.since(since) + elapsed / 2 < turn);
        accounts.into_iter().map(move |account| {
            if amid_turn(&account) {
                return TurnRank::Amid;
            }
            let turns = account.had.as_secs_f64() / turn.as_secs_f64().max(1e-9);
            TurnRank::Had { turns: turns.round() as u64, is_over: account.since.is_some() }
        })
    }
}
