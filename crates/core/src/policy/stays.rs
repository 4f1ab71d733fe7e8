//! Fast PEs for one thread after the other: how much of them each thread has had, and which thread is next.
//!
//! Problem: several threads are equally entitled to too few fast PEs. Approach: the time that each thread
//! spends on fast PEs is summed up. Threads in the middle of a *stay* keep their PEs; then come those with
//! the fewest stays. Time is counted in whole stays, so that the nearest thread can be chosen among those
//! with equally many. A new or returning thread starts with the count of the thread that had least, so that
//! it joins the others and does not get all stays until it has caught up. Source: the round-robin sharing
//! of fast cores of Saez et al., CF'10, §2.1 and §2.3; the accounting is ours. Limits: time counts while a
//! thread is bound to a fast PE and wants to run, whether or not the operating system lets it.

use super::amp::Amp;
use super::interface::{Scene, Subject};
use super::kind::Parameters;
use crate::ids::ThreadId;
use crate::time::Time;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// The default duration of a stay on a fast PE. The paper does not give one; this equals its boost of a
/// sequential phase.
const STAY: Duration = Duration::from_secs(1);

/// Takes the common parameter of the policies that share fast PEs.
pub fn stay(parameters: &mut Parameters<'_>) -> Duration {
    let range = Duration::from_millis(1)..=Duration::from_secs(3600);
    parameters.rename("turn", "stay");
    parameters.duration(
        "stay",
        STAY,
        range,
        "how long a thread has a fast PE at a time (ours; no paper says)",
    )
}

/// The claim to a fast PE: threads in the middle of a stay first, then by the number of stays had; among
/// equals, waiting threads first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StayRank {
    Amid,
    Had { stays: u64, is_over: bool },
}

/// The accounts of the threads that share.
#[derive(Debug, Clone, Default)]
pub struct Stays {
    accounts: FxHashMap<ThreadId, Account>,
    last: Time,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// Time on fast PEs so far.
    had: Duration,
    /// Since when the thread is on a fast PE, if it is.
    since: Option<Time>,
}

impl Stays {
    /// Returns the present claim of each sharing thread to a fast PE.
    pub fn ranks(
        &mut self,
        scene: &Scene<'_>,
        amp: &Amp,
        stay: Duration,
        sharing: &[&Subject],
    ) -> impl Iterator<Item = StayRank> + use<> {
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
        // A step that comes a little early or late must not halve or double a stay.
        let now = scene.now;
        let amid_stay =
            move |account: &Account| account.since.is_some_and(|since| now.since(since) + elapsed / 2 < stay);
        accounts.into_iter().map(move |account| {
            if amid_stay(&account) {
                return StayRank::Amid;
            }
            let stays = account.had.as_secs_f64() / stay.as_secs_f64().max(1e-9);
            StayRank::Had { stays: stays.round() as u64, is_over: account.since.is_some() }
        })
    }
}
