//! How much the daemon spends on answers.
//!
//! Problem. Everybody may ask the daemon of the machine, and answers cost CPU time, with root's rights. A
//! user who asks without end would take a PE at the expense of all others, and if answers counted as the
//! daemon's own cost, which has a limit, it would look more rarely at everything else. Approach. The time
//! that answers take is counted apart, by the user who asks. On average a user gets [`SHARE`] of a PE, and
//! [`BURST`] at once; beyond that, their requests wait, and nobody else's ([`Allowance`]). One person may
//! have thousands of user IDs (subuid(5)), so all users together get no more than [`USERS`] of them would.
//! While that is spent, they are served in turn: the user whose last answer is the oldest comes first.
//!
//! Limits. What connecting costs before the user is known, and waking up for it, counts for nobody; such
//! connections come in at a bounded rate. Root and the daemon's own user are not limited: they may end the
//! daemon, too. Nobody knows the users behind HTTP, so they all have one budget together, of their own.

use corewise_sys::allowance::Allowance;
use corewise_sys::clock;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The share of a PE that answers to a user take on average.
const SHARE: f64 = 0.02;

/// The CPU time that answers to a user may take at once.
const BURST: Duration = Duration::from_millis(250);

/// So many users get their full share at the same time.
const USERS: u32 = 5;

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
    /// At this number of users those who were not answered lately are forgotten.
    users_max: usize,
    /// All users at the socket who are not trusted.
    together: Answered,
    spent: Duration,
}

/// What a user was given, or all of them.
#[derive(Debug)]
struct Answered {
    allowance: Allowance,
    last: Instant,
    /// From then on more is answered.
    again: Instant,
}

impl Answered {
    /// Nothing yet: the budget of so many users.
    fn nothing(users: u32, now: Instant) -> Answered {
        let allowance = Allowance::with_burst(SHARE * f64::from(users), BURST * users);
        Answered { allowance, last: now, again: now }
    }

    fn spend(&mut self, cpu: Duration, now: Instant) {
        let wait = self.allowance.spend_at(cpu, now);
        self.last = now;
        self.again = now + if wait.is_zero() { wait } else { wait.max(WAIT_MIN) };
    }
}

impl Budget {
    /// Nothing was spent yet.
    pub fn new() -> Budget {
        let trusted = [0, nix::unistd::geteuid().as_raw()];
        let together = Answered::nothing(USERS, Instant::now());
        Budget { trusted, users: HashMap::new(), users_max: 0, together, spent: Duration::ZERO }
    }

    /// Returns whether this user has no limits.
    pub fn is_trusted(&self, user: User) -> bool {
        user.is_some_and(|uid| self.trusted.contains(&uid))
    }

    /// Returns how long requests of this user wait; zero: they are answered.
    pub fn wait(&self, user: User, now: Instant) -> Duration {
        if self.is_trusted(user) {
            return Duration::ZERO;
        }
        let together = user.map(|_| self.together.again);
        let again = self.users.get(&user).map(|user| user.again).max(together);
        again.map_or(Duration::ZERO, |again| again.saturating_duration_since(now))
    }

    /// Returns when this user was last answered, if that was lately.
    pub fn last_answer(&self, user: User) -> Option<Instant> {
        self.users.get(&user).map(|user| user.last)
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
        if self.users.len() >= self.users_max {
            // After that time all is saved that can be, as for a user who has never asked.
            let full_after = BURST.div_f64(SHARE);
            self.users.retain(|_, user| now < user.again + full_after);
            // To look through all of them for each answer would cost more than the answer.
            self.users_max = 16.max(2 * self.users.len());
        }
        self.users.entry(user).or_insert_with(|| Answered::nothing(1, now)).spend(cpu, now);
        if user.is_some() && !self.is_trusted(user) {
            self.together.spend(cpu, now);
        }
    }
}

#[cfg(test)]
impl Budget {
    /// A budget that trusts nobody.
    pub fn without_trust() -> Budget {
        Budget { trusted: [u32::MAX; 2], ..Budget::new() }
    }

    /// This user has had twice what they may have at once.
    pub fn exhaust(&mut self, user: User) {
        self.spend(user, 2 * BURST, Instant::now());
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
        assert!(budget.users.len() <= 32, "{}", budget.users.len());
    }

    #[test]
    fn a_thousand_users_together_get_what_a_few_would() {
        let (mut budget, begin) = (Budget::without_trust(), Instant::now());
        let (answer, mut now) = (Duration::from_millis(5), Duration::ZERO);
        while now < Duration::from_secs(100) {
            // Each asks whenever they may.
            for user in 1..=1000 {
                if budget.wait(Some(user), begin + now).is_zero() {
                    budget.spend(Some(user), answer, begin + now);
                    now += answer;
                }
            }
            now += Duration::from_millis(10);
        }
        let share = budget.spent().as_secs_f64() / now.as_secs_f64();
        assert!((0.09..0.12).contains(&share), "{share} of a PE");
        let waits =
            [Some(1), Some(5000), Some(u32::MAX), None].map(|user| !budget.wait(user, begin).is_zero());
        assert_eq!(waits, [true, true, false, false], "trusted users and those behind HTTP do not wait");
    }
}
