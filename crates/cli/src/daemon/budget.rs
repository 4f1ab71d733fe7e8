//! How much the daemon spends on answers.
//!
//! Problem. Everybody may ask the daemon of the machine, and answers cost CPU time, with root's rights. A
//! user who asks without end would take a PE at the expense of all others, and if answers counted as the
//! daemon's own cost, which has a limit, it would look more rarely at everything else. Approach. The time
//! that answers take is counted apart, by the user who asks. On average a user gets [`SHARE`] of a PE, and
//! [`BURST`] at once; beyond that, their requests wait, and nobody else's ([`Allowance`]).
//!
//! Limits. What connecting costs before the user is known, and waking up for it, counts for nobody; such
//! connections come in at a bounded rate. Root and the daemon's own user are not limited: they may end the
//! daemon, too. Nobody knows the users behind HTTP, so they all have one budget together.

use corewise_sys::allowance::Allowance;
use corewise_sys::clock;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The share of a PE that answers to a user take on average.
const SHARE: f64 = 0.02;

/// The CPU time that answers to a user may take at once.
const BURST: Duration = Duration::from_millis(250);

/// The shortest wait: to wake up for each single answer would cost more than the answer.
const WAIT_MIN: Duration = Duration::from_millis(100);

/// The user who asks; `None`: they are not known.
pub type User = Option<u32>;

/// What answers have cost.
#[derive(Debug)]
pub struct Budget {
    /// These are not limited.
    trusted: [u32; 2],
    /// The users who were answered lately.
    users: HashMap<User, Answered>,
    spent: Duration,
}

/// What a user was given.
#[derive(Debug)]
struct Answered {
    allowance: Allowance,
    /// From then on more is answered.
    again: Instant,
}

impl Budget {
    /// Nothing was spent yet.
    pub fn new() -> Budget {
        let trusted = [0, nix::unistd::geteuid().as_raw()];
        Budget { trusted, users: HashMap::new(), spent: Duration::ZERO }
    }

    /// Returns whether this user has no limits.
    pub fn is_trusted(&self, user: User) -> bool {
        user.is_some_and(|uid| self.trusted.contains(&uid))
    }

    /// Returns how long requests of this user wait; zero: they are answered.
    pub fn wait(&self, user: User, now: Instant) -> Duration {
        let again = self.users.get(&user).filter(|_| !self.is_trusted(user)).map(|user| user.again);
        again.map_or(Duration::ZERO, |again| again.saturating_duration_since(now))
    }

    /// Does something for a user, and counts what that costs.
    pub fn pay<T>(&mut self, user: User, work: impl FnOnce() -> T) -> T {
        let before = clock::own_cpu_time();
        let done = work();
        self.spend(user, clock::own_cpu_time().saturating_sub(before), Instant::now());
        done
    }

    /// Returns what was spent on all users so far.
    pub fn spent(&self) -> Duration {
        self.spent
    }

    fn spend(&mut self, user: User, cpu: Duration, now: Instant) {
        self.spent += cpu;
        // After that time all is saved that can be, as for a user who has never asked.
        let full_after = BURST.div_f64(SHARE);
        self.users.retain(|_, user| now < user.again + full_after);
        let new = || Answered { allowance: Allowance::with_burst(SHARE, BURST), again: now };
        let Answered { allowance, again } = self.users.entry(user).or_insert_with(new);
        let wait = allowance.spend_at(cpu, now);
        *again = now + if wait.is_zero() { wait } else { wait.max(WAIT_MIN) };
    }
}

#[cfg(test)]
impl Budget {
    /// A budget that trusts nobody.
    pub fn without_trust() -> Budget {
        Budget { trusted: [u32::MAX; 2], ..Budget::new() }
    }

    /// This user has had a minute of CPU time.
    pub fn exhaust(&mut self, user: User) {
        self.spend(user, Duration::from_secs(60), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second of a user who asks whenever they may, and of answers that take so long: how many they get in
    /// each of some seconds.
    fn answered(user: User, answer: Duration) -> Vec<u32> {
        let (mut budget, begin) = (Budget { trusted: [0, 7], ..Budget::new() }, Instant::now());
        let mut counts = vec![0; 4];
        let mut now = Duration::ZERO;
        while now < Duration::from_secs(4) {
            now += budget.wait(user, begin + now);
            budget.spend(user, answer, begin + now);
            now += answer;
            if let Some(count) = counts.get_mut(now.as_secs() as usize) {
                *count += 1;
            }
        }
        counts
    }

    #[test]
    fn a_user_gets_some_answers_at_once_and_then_their_share() {
        let counts = answered(Some(1000), Duration::from_millis(10));
        assert!((26..=29).contains(&counts[0]), "{counts:?}");
        assert!(counts[1..].iter().all(|count| (1..=3).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_user_with_few_requests_never_waits() {
        let (mut budget, begin) = (Budget::without_trust(), Instant::now());
        for second in 0..1000 {
            let now = begin + Duration::from_secs(second);
            assert_eq!(budget.wait(Some(1000), now), Duration::ZERO);
            budget.spend(Some(1000), Duration::from_millis(15), now);
        }
        assert_eq!(budget.spent(), Duration::from_secs(15));
    }

    #[test]
    fn a_user_waits_for_their_own_requests_only_and_root_for_none() {
        let (mut budget, now) = (Budget { trusted: [0, 7], ..Budget::new() }, Instant::now());
        for user in [Some(0), Some(7), Some(1000), None] {
            budget.spend(user, Duration::from_secs(1), now);
        }
        let waits = [Some(0), Some(7), Some(1000), None, Some(1001)].map(|user| budget.wait(user, now));
        let [none, long] = [Duration::ZERO, Duration::from_secs_f64(37.5)];
        assert_eq!(
            waits.map(|wait| wait.as_millis()),
            [none, none, long, long, none].map(|wait| wait.as_millis())
        );
    }

    #[test]
    fn users_without_requests_are_forgotten() {
        let (mut budget, begin) = (Budget::without_trust(), Instant::now());
        for user in 0..1000 {
            let now = begin + Duration::from_secs(user);
            budget.spend(Some(user as u32), Duration::from_millis(1), now);
        }
        assert!(budget.users.len() <= 13, "{}", budget.users.len());
    }
}
