//! What the log says of users who are refused something: each user once a minute.

use std::collections::HashMap;
use std::fmt::Arguments;
use std::time::{Duration, Instant};

const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The users about whose refusal the log has a record, and when it was written.
#[derive(Debug, Default)]
pub struct Refusals(HashMap<u32, Instant>);

impl Refusals {
    /// Logs that a user is refused something, unless that was logged lately.
    pub fn log(&mut self, uid: u32, words: Arguments<'_>) {
        if self.is_new(uid, Instant::now()) {
            log::warn!(corewise_event = "client_refused"; "{words}");
        }
    }

    fn is_new(&mut self, uid: u32, now: Instant) -> bool {
        if self.0.get(&uid).is_some_and(|last| now < *last + LOGGED_EVERY) {
            return false;
        }
        self.0.retain(|_, last| now < *last + LOGGED_EVERY);
        self.0.insert(uid, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusals_of_a_user_are_logged_once_a_minute_and_forgotten_then() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let mut is_new = |uid, seconds| refusals.is_new(uid, now + Duration::from_secs(seconds));
        let said = [(1, 0), (1, 1), (2, 1), (1, 59), (1, 60), (1, 61)].map(|(uid, at)| is_new(uid, at));
        assert_eq!(said, [true, false, true, false, true, false]);
        assert!(is_new(3, 1000));
        assert_eq!(refusals.0.len(), 1);
    }
}
