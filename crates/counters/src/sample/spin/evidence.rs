//! Does a thread wait, or does it only pass through code in which it could?
//!
//! The way into a lock that is free is the way into one that is held, and a queue that is never empty is
//! asked like one that always is. A sample there is in doubt, and the thread's other samples decide. What
//! only goes around, the pause between two attempts, proves that it waits. And a thread that waits is seen
//! in the loop more often than passing through would explain, by the lengths of the loop and of the work
//! around it.

use std::collections::VecDeque;

/// Samples of a thread that are looked back on: at most so many, for what it does changes.
const SAMPLES: usize = 32;

/// A sampled instruction of a wait loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Which loop, in the order in which they were found.
    pub of: u32,
    /// Whether only going around again leads here.
    pub proof: bool,
    /// Whether nothing but a function's name says so.
    pub by_name: bool,
}

/// What a wait loop is like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Share of the samples of a thread that does not wait but works around the loop.
    pub explained: f64,
    /// Share of the instructions that prove a wait.
    pub proofs: f64,
}

impl Shape {
    /// Of a function that its name says to wait.
    pub const NAMED: Shape = Shape { explained: 0.0, proofs: 1.0 };
}

/// The latest samples of a thread in user code.
#[derive(Debug, Default)]
pub struct History(VecDeque<Option<Point>>);

impl History {
    /// Takes in a sample outside any wait loop: the thread works.
    pub fn work(&mut self) -> bool {
        self.push(None);
        false
    }

    /// Takes in a sample in a wait loop; whether the thread waits.
    pub fn may_wait(&mut self, point: Point, shape: Shape) -> bool {
        self.push(Some(point));
        let inside: Vec<Point> =
            self.0.iter().flatten().filter(|other| other.of == point.of).copied().collect();
        let proofs = inside.iter().filter(|point| point.proof).count();
        let share = inside.len() as f64 / self.0.len() as f64;
        let often = (2.0 * shape.explained).min((1.0 + shape.explained) / 2.0);
        let proved = shape.proofs == 0.0
            || proofs > 0 && proofs as f64 >= (shape.proofs / 2.0).min(0.125) * inside.len() as f64;
        point.proof || (inside.len() > 1 && share > often && proved)
    }

    fn push(&mut self, sample: Option<Point>) {
        if self.0.len() == SAMPLES {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSING: Point = Point { of: 0, proof: false, by_name: false };
    const AROUND: Point = Point { of: 0, proof: true, by_name: false };

    /// How many of the samples count as waiting, when `pattern` is repeated.
    fn waiting(shape: Shape, pattern: &[Option<Point>]) -> usize {
        let mut history = History::default();
        let samples = pattern.iter().cycle().take(100 * pattern.len());
        samples
            .filter(|sample| match sample {
                Some(point) => history.may_wait(*point, shape),
                None => history.work(),
            })
            .count()
    }

    #[test]
    fn what_passing_through_explains_is_no_wait() {
        let free_lock = Shape { explained: 0.8, proofs: 0.2 };
        let mut mostly = vec![Some(PASSING); 9];
        mostly.push(None);
        assert_eq!(waiting(free_lock, &mostly), 0, "nothing but the way in: the lock is free");
        assert_eq!(waiting(free_lock, &[Some(PASSING), Some(AROUND)]), 199, "the lock is held");

        let short = Shape { explained: 0.03, proofs: 0.0 };
        assert!(
            waiting(short, &[Some(PASSING), None, None]) >= 98,
            "a third of the time in three instructions"
        );
        let polling = Shape { explained: 0.45, proofs: 0.0 };
        assert_eq!(waiting(polling, &[Some(PASSING), None]), 0, "half of the time in a half of the loop");
        assert_eq!(waiting(polling, &[Some(PASSING)]), 99);
    }
}
