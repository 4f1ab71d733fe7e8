//! The queue of what will happen: ordered by time, and among equals by the order of entry.

use corewise_core::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that will happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A PE wants a look: its thread has done its work, spun long enough, or used up its slice. Void if the
    /// PE's stamp has moved on.
    Pe {
        /// Its index.
        pe: u32,
        /// Its stamp when the event was entered.
        stamp: u32,
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
    /// The operating system evens out its queues.
    Balance,
}

/// The queue.
#[derive(Debug, Default)]
pub struct Queue {
    heap: BinaryHeap<Reverse<(Time, u64, Event)>>,
    entered: u64,
}

impl Queue {
    /// Enters an event.
    pub fn push(&mut self, at: Time, event: Event) {
        self.heap.push(Reverse((at, self.entered, event)));
        self.entered += 1;
    }

    /// When the next event is due.
    pub fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Takes the next event if it is due by then.
    pub fn pop_until(&mut self, until: Time) -> Option<Event> {
        if self.next_at()? > until {
            return None;
        }
        self.heap.pop().map(|Reverse((_, _, event))| event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_entry() {
        let mut queue = Queue::default();
        queue.push(Time(5), Event::Balance);
        queue.push(Time(3), Event::Wake { thread: 9 });
        queue.push(Time(3), Event::Wake { thread: 1 });
        assert_eq!(queue.pop_until(Time(4)), Some(Event::Wake { thread: 9 }));
        assert_eq!(queue.pop_until(Time(4)), Some(Event::Wake { thread: 1 }));
        assert_eq!(queue.pop_until(Time(4)), None);
        assert_eq!(queue.next_at(), Some(Time(5)));
    }
}
