//! Bounded queues between threads of any application.

use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};

/// A queue as written in a scenario. One of capacity 1 that is filled is a lock: who takes holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSpec {
    /// How much it holds at most.
    pub capacity: u32,
    /// How much is in it at first.
    #[serde(default)]
    pub filled: u32,
}

/// A queue: what is in it, who waits, in order, and the PE that used it last.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub capacity: u32,
    pub filled: u32,
    pub putting: VecDeque<usize>,
    pub taking: VecDeque<usize>,
    pub line: Option<usize>,
}

impl Shelf {
    /// Creates the queues of a scenario, in its order.
    pub fn all(specs: &BTreeMap<String, QueueSpec>) -> Vec<Shelf> {
        let shelf = |&QueueSpec { capacity, filled }: &QueueSpec| Shelf {
            capacity,
            filled,
            putting: VecDeque::new(),
            taking: VecDeque::new(),
            line: None,
        };
        specs.values().map(shelf).collect()
    }
}
