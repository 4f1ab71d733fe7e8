//! Memory channels: how long a cache line waits where many are requested.
//!
//! *Problem.* A memory node delivers so many bytes per second and no more. Below that its lines wait a
//! little for each other, near it a lot, and a thread that waits asks for less.
//!
//! *Approach.* A line occupies its node's channel for the time S = line / bandwidth. At a utilisation U it
//! waits for the channel, in the mean, as in an M/D/1 queue (Pollaczek and Khinchine):
//!
//! ```text
//! W = S U / 2(1 - U)
//! ```
//!
//! The wait is *added* to the latency of the memory behind the channel, which does not grow with the load: a
//! half-loaded channel of 20 GB/s adds 1.6 ns to 200. A thread pays for the part of it that it cannot hide,
//! as of the latency. U is the traffic of all threads, from all nodes, at the speed that the waits leave
//! them; with x = W/S,
//!
//! ```text
//! Σ a / (b + c x) = U = 2x / (1 + 2x)
//! ```
//!
//! a: what a thread asks of the channel per unit of work, b: the time of its work without waits there, c:
//! what it pays per S of waiting. The left side less the right one falls and is convex, so that Newton's
//! method goes up to the only solution from below, and the traffic never exceeds the bandwidth. Threads
//! that use several nodes connect these equations; each is solved in turn until none changes.
//!
//! *Limits.* The bandwidth is what can be used, not what the modules are sold with. Reads and writes, banks
//! and row hits are not distinguished. The wait behind a thread's own lines is part of its time alone.

use super::model::MachineModel;

/// Bytes that one miss moves.
pub const LINE_BYTES: f64 = 64.0;

/// The largest utilisation by a lone thread that counts as part of its time alone.
const ALONE_MAX: f64 = 0.95;

/// Relative error of a solution.
const TOLERANCE: f64 = 1e-9;

/// Waits that differ by less of S, relative to the wait, are the same to threads that use several nodes.
const SAME: f64 = 1e-6;

/// Steps at most; a few are needed.
const STEPS_MAX: usize = 100;

/// Rounds over connected nodes at most.
const ROUNDS_MAX: usize = 50;

/// Returns the time for which a line occupies a channel, in nanoseconds.
fn service_ns(machine: &MachineModel) -> f64 {
    LINE_BYTES / machine.memory.bandwidth_gb_per_s
}

/// Returns the wait at the channel of a thread that alone moves so many bytes per nanosecond.
pub(super) fn wait_alone_ns(machine: &MachineModel, bytes_per_ns: f64) -> f64 {
    let utilisation = (bytes_per_ns / machine.memory.bandwidth_gb_per_s).min(ALONE_MAX);
    service_ns(machine) * utilisation / (2.0 * (1.0 - utilisation))
}

/// The nodes that serve a thread's misses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Homes<'a> {
    /// One node.
    One(usize),
    /// Each node's share; they add up to 1.
    Spread(&'a [f64]),
}

impl Homes<'_> {
    /// Returns the share that a node serves.
    pub fn share(&self, node: usize) -> f64 {
        match self {
            Homes::One(home) => f64::from(u8::from(*home == node)),
            Homes::Spread(shares) => shares[node],
        }
    }
}

/// A thread's use of memory per work cycle.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Use {
    /// Lines that it fetches.
    pub lines: f64,
    /// The time of its work without waits at channels, in nanoseconds.
    pub ns: f64,
    /// How many nanoseconds it loses per nanosecond that a line waits.
    pub loss: f64,
}

/// A term of a node's equation.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Term {
    a: f64,
    b: f64,
    c: f64,
}

/// A node's channel: the terms that it was solved for, and its wait in S.
#[derive(Debug, Default)]
struct Channel {
    terms: Vec<Term>,
    next: Vec<Term>,
    x: f64,
}

/// The channels of all nodes. Solutions are kept, and recomputed where something has changed.
#[derive(Debug, Default)]
pub struct Channels {
    nodes: Vec<Channel>,
    waits_ns: Vec<f64>,
}

impl Channels {
    /// Creates the channels of a machine.
    pub fn new(machine: &MachineModel) -> Self {
        let count = machine.nodes.len();
        Self { nodes: (0..count).map(|_| Channel::default()).collect(), waits_ns: vec![0.0; count] }
    }

    /// Returns the wait of a line at each node, in nanoseconds.
    pub fn waits_ns(&self) -> &[f64] {
        &self.waits_ns
    }

    /// Returns the mean wait of a thread's lines, in nanoseconds.
    pub fn wait_ns(&self, homes: Homes<'_>) -> f64 {
        match homes {
            Homes::One(node) => self.waits_ns[node],
            Homes::Spread(shares) => {
                shares.iter().zip(&self.waits_ns).map(|(share, wait)| share * wait).sum()
            }
        }
    }

    /// Solves the equations of some nodes anew; `users` are all threads with traffic there. Returns whether
    /// a wait changed.
    pub fn solve<'a, I>(&mut self, machine: &MachineModel, nodes: std::ops::Range<usize>, users: I) -> bool
    where
        I: Iterator<Item = (Use, Homes<'a>)> + Clone,
    {
        let mut has_changed = false;
        for _ in 0..ROUNDS_MAX {
            let is_connected = self.collect(machine, nodes.clone(), users.clone());
            let mut still_changes = false;
            for node in nodes.clone() {
                let channel = &mut self.nodes[node];
                let before = channel.x;
                has_changed |= channel.update();
                still_changes |= (channel.x - before).abs() > SAME * (1.0 + before);
                self.waits_ns[node] = service_ns(machine) * channel.x;
            }
            if !(is_connected && still_changes) {
                break;
            }
        }
        has_changed
    }

    /// Writes down the equations; returns whether a thread connects several.
    fn collect<'a>(
        &mut self,
        machine: &MachineModel,
        nodes: std::ops::Range<usize>,
        users: impl Iterator<Item = (Use, Homes<'a>)>,
    ) -> bool {
        let service = service_ns(machine);
        self.nodes[nodes.clone()].iter_mut().for_each(|channel| channel.next.clear());
        let mut is_connected = false;
        for (user, homes) in users.filter(|(user, _)| user.lines > 0.0) {
            let term = |share: f64, elsewhere: f64| Term {
                a: user.lines * share * service,
                b: user.ns + user.loss * elsewhere,
                c: user.loss * share * service,
            };
            match homes {
                Homes::One(node) => self.nodes[node].next.push(term(1.0, 0.0)),
                Homes::Spread(shares) => {
                    is_connected = true;
                    let all = self.wait_ns(homes);
                    for node in nodes.clone().filter(|&node| shares[node] > 0.0) {
                        let here = shares[node] * self.waits_ns[node];
                        self.nodes[node].next.push(term(shares[node], all - here));
                    }
                }
            }
        }
        is_connected
    }
}

impl Channel {
    /// Solves the equation if it has changed, and returns whether it had.
    fn update(&mut self) -> bool {
        if self.next == self.terms {
            return false;
        }
        std::mem::swap(&mut self.terms, &mut self.next);
        let before = self.x;
        // The last solution is a good start: from above, one step leads below the solution.
        for _ in 0..STEPS_MAX {
            let (mut asked, mut slope) = (0.0, 0.0);
            for term in &self.terms {
                let share = 1.0 / (term.b + term.c * self.x);
                asked += term.a * share;
                slope += term.a * term.c * share * share;
            }
            let free = 1.0 / (1.0 + 2.0 * self.x);
            let excess = asked - 1.0 + free;
            let step = excess / (slope + 2.0 * free * free);
            let next = (self.x + step).max(0.0);
            let is_there = (next - self.x).abs() <= TOLERANCE * (1.0 + next);
            self.x = next;
            if is_there {
                break;
            }
        }
        // A difference by rounding would make all threads of the node look at their times again.
        if (self.x - before).abs() <= TOLERANCE * (1.0 + before) {
            self.x = before;
        }
        self.x != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solved(terms: &[(f64, f64, f64)], from: f64) -> f64 {
        let next = terms.iter().map(|&(a, b, c)| Term { a, b, c }).collect();
        let mut channel = Channel { next, x: from, ..Channel::default() };
        channel.update();
        channel.x
    }

    #[test]
    fn the_solution_does_not_depend_on_where_it_starts() {
        // a / (1 + c x) = 2x / (1 + 2x) with a = 2, c = 1/10: x² - 4.5 x - 5 = 0 after multiplication.
        for from in [0.0, 1.0, 5.0, 40.0, 1e6] {
            let x = solved(&[(2.0, 1.0, 0.1)], from);
            let (asked, served) = (2.0 / (1.0 + 0.1 * x), 2.0 * x / (1.0 + 2.0 * x));
            assert!((asked / served - 1.0).abs() < 1e-9, "from {from}: {asked} and {served}");
        }
        assert_eq!(solved(&[], 0.0), 0.0);
    }

    #[test]
    fn no_demand_is_too_high() {
        for asked in [0.1, 1.0, 10.0, 1e4] {
            let x = solved(&[(asked, 1.0, 0.01), (asked, 0.5, 1.0)], 0.0);
            let used = asked / (1.0 + 0.01 * x) + asked / (0.5 + x);
            assert!(used <= 1.0 + 1e-9 && x > 0.0, "{asked}: {used}");
        }
    }
}
