//! The queue of future events, ordered by time, and by order of entry for equal times.
//!
//! Most events belong to PEs, and most of these are moved before they happen. Each PE has at most one, so
//! these are kept in a tournament (a tree in which each node holds the earlier of its two children): moving
//! one takes a walk from its leaf to the root. All others are in a heap.

use corewise_core::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A future event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A PE needs attention: its thread has done its work, spun long enough, or used up its slice.
    Pe {
        /// Its index.
        pe: u32,
    },
    /// A thread's sleep is over.
    Wake {
        /// Its index.
        thread: u32,
    },
    /// An application starts.
    Start {
        /// Its index.
        app: u32,
    },
    /// The number of an application's runnable threads may be reported again.
    ReportTlp {
        /// Its index.
        app: u32,
    },
    /// The operating system balances its queues.
    Balance,
    /// The next gang has its turn.
    Turn,
    /// The delays of processes are looked at.
    Look,
    /// A group has spent its quota, unless this event is no longer its last.
    Spent {
        /// Its index.
        group: u32,
        /// The number of the event.
        number: u32,
    },
    /// A group's quota is renewed.
    Refill {
        /// Its index.
        group: u32,
    },
    /// The operating system scans the memory of running threads.
    ScanMemory,
    /// A clock domain may change its clock.
    Clock {
        /// Its index.
        clock: u32,
    },
    /// A thread is killed.
    Kill,
    /// A PE goes offline.
    Unplug,
    /// A PE comes back.
    Plug {
        /// Its index.
        pe: u32,
    },
}

/// When an event is due, its sequence number, and the PE to which it belongs, in one number, which is
/// compared at once.
type Key = u128;

/// The bits of a key for the PE, and for it and the sequence number.
const PE_BITS: u32 = 24;
const ENTRY_BITS: u32 = 64;

/// The key of a PE without an event, after all others.
const NEVER: Key = Key::MAX;

/// The queue.
#[derive(Debug)]
pub struct Queue {
    heap: BinaryHeap<Reverse<(Key, Event)>>,
    /// The tournament: children of node i are 2i and 2i + 1, leaves begin in the middle, the root is 1.
    pes: Vec<Key>,
    entered: u64,
}

impl Queue {
    /// Creates an empty queue for that many PEs.
    pub fn new(pes: usize) -> Self {
        Self { heap: BinaryHeap::new(), pes: vec![NEVER; 2 * pes.next_power_of_two()], entered: 0 }
    }

    /// Replaces the event of a PE.
    pub fn set_pe(&mut self, pe: usize, at: Option<Time>) {
        let mut node = self.pes.len() / 2 + pe;
        self.pes[node] = NEVER;
        if let Some(at) = at {
            self.pes[node] = self.key(at) | pe as Key;
        }
        while node > 1 {
            node /= 2;
            let earlier = self.pes[2 * node].min(self.pes[2 * node + 1]);
            if self.pes[node] == earlier {
                return;
            }
            self.pes[node] = earlier;
        }
    }

    /// Adds an event that does not belong to a PE.
    pub fn push(&mut self, at: Time, event: Event) {
        let key = self.key(at);
        self.heap.push(Reverse((key, event)));
    }

    fn key(&mut self, at: Time) -> Key {
        self.entered += 1;
        Key::from(at.0) << ENTRY_BITS | Key::from(self.entered) << PE_BITS
    }

    /// Returns when the next event is due.
    pub fn next_at(&self) -> Option<Time> {
        self.first_key().map(|key| Time((key >> ENTRY_BITS) as u64))
    }

    /// Removes and returns the next event if it is due by then.
    pub fn pop_until(&mut self, until: Time) -> Option<Event> {
        let key = self.first_key().filter(|key| (key >> ENTRY_BITS) as u64 <= until.0)?;
        if key == self.pes[1] {
            let pe = key as u32 & ((1 << PE_BITS) - 1);
            self.set_pe(pe as usize, None);
            return Some(Event::Pe { pe });
        }
        self.heap.pop().map(|Reverse((_, event))| event)
    }

    fn first_key(&self) -> Option<Key> {
        let others = self.heap.peek().map_or(NEVER, |Reverse((key, _))| *key);
        Some(others.min(self.pes[1])).filter(|key| *key != NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_entry() {
        let mut queue = Queue::new(3);
        queue.push(Time(5), Event::Balance);
        queue.set_pe(2, Some(Time(1)));
        queue.set_pe(0, Some(Time(3)));
        queue.push(Time(3), Event::Wake { thread: 9 });
        queue.push(Time(3), Event::Wake { thread: 1 });
        queue.set_pe(2, Some(Time(3)));
        assert_eq!(queue.pop_until(Time(4)), Some(Event::Pe { pe: 0 }));
        assert_eq!(queue.pop_until(Time(4)), Some(Event::Wake { thread: 9 }));
        assert_eq!(queue.pop_until(Time(4)), Some(Event::Wake { thread: 1 }));
        assert_eq!(queue.pop_until(Time(4)), Some(Event::Pe { pe: 2 }), "it was moved");
        assert_eq!(queue.pop_until(Time(4)), None);
        assert_eq!(queue.next_at(), Some(Time(5)));
    }
}
