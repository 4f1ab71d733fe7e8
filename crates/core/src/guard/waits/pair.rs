//! A pair of epochs within a second of the common clock: one with the changes and one without.

use super::super::meter::{Look, Rates};
use crate::random::Random;
use std::time::Duration;

/// At the beginning of an epoch so much is not measured, nor after it: threads that spin go on for a while.
/// *Derived*: the 300,000 iterations of libgomp's loop, of 40 to 140 cycles each, take 4 to 14 ms at 3 GHz.
pub const SETTLES: Duration = Duration::from_millis(16);

/// The loop may be a moment early: timers of poll(2) are exact to a millisecond.
pub const MOMENT: Duration = Duration::from_millis(1);

/// A run that is late by more than this part of an epoch has no result. *Chosen*: what is measured is then
/// still three quarters of it.
const LATE: u64 = 4;

/// The pair's place in time, and what was seen of it.
#[derive(Debug, Clone)]
pub struct Pair {
    second: u64,
    off_first: bool,
    lengths_ns: [u64; 2],
    /// The beginning, the measured part of the first epoch, and that of the second, by the common clock.
    bounds_ns: [u64; 5],
    /// The next of them.
    next: usize,
    is_spoilt: bool,
    from: Option<Look>,
    rates: [Option<Rates>; 2],
}

impl Pair {
    /// Returns the pair of a second. The order follows from the second, so it is the same for all runs.
    pub fn new(second: u64, off: Duration, on: Duration) -> Pair {
        let off_first = Random::new(second, 0).unit() < 0.5;
        let lengths = if off_first { [off, on] } else { [on, off] };
        let lengths_ns = lengths.map(|length| length.as_nanos() as u64);
        let (begin, settles) = (second * 1_000_000_000, SETTLES.as_nanos() as u64);
        let first = begin + settles;
        let switch = first + lengths_ns[0];
        let bounds_ns = [begin, first, switch, switch + settles, switch + settles + lengths_ns[1]];
        Pair {
            second,
            off_first,
            lengths_ns,
            bounds_ns,
            next: 0,
            is_spoilt: false,
            from: None,
            rates: [None, None],
        }
    }

    /// Returns its second.
    pub fn second(&self) -> u64 {
        self.second
    }

    /// Returns whether the changes are off now; `None` before and after the pair.
    pub fn is_off(&self) -> Option<bool> {
        match self.next {
            1 | 2 => Some(self.off_first),
            3 | 4 => Some(!self.off_first),
            _ => None,
        }
    }

    /// Returns when something is to be done next, by the common clock; `None` once it is over.
    pub fn due_ns(&self) -> Option<u64> {
        self.bounds_ns.get(self.next).copied()
    }

    /// Takes in a look at this time of the common clock.
    pub fn take(&mut self, clock_ns: u64, look: &Look) {
        while let Some(due) = self.due_ns()
            && clock_ns + MOMENT.as_nanos() as u64 >= due
        {
            let epoch = usize::from(self.next > 2);
            self.is_spoilt |= clock_ns.saturating_sub(due) > self.lengths_ns[epoch] / LATE;
            if self.next % 2 == 1 {
                self.from = Some(look.clone());
            } else if let Some(from) = self.from.take() {
                self.rates[epoch] = Some(look.since(&from));
            }
            self.next += 1;
        }
    }

    /// Returns the rates with the changes and without; `None` if they were not measured in time.
    pub fn rates(&self) -> Option<(&Rates, &Rates)> {
        let [first, second] = self.rates.each_ref().map(Option::as_ref);
        let both = first.zip(second).filter(|_| !self.is_spoilt);
        both.map(|(first, second)| if self.off_first { (second, first) } else { (first, second) })
    }
}
