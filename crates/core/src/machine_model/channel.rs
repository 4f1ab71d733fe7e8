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

impl Use {
    /// Returns the work cycles per nanosecond of a thread whose lines wait for so long.
    pub fn pace(&self, wait_ns: f64) -> f64 {
        1.0 / (self.ns + self.loss * wait_ns)
    }
}

/// A term of a node's equation.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Term {
    a: f64,
    b: f64,
    c: f64,
}

/// A node's channel: its users with their terms, in the order of users, and its wait in S.
#[derive(Debug, Default)]
struct Channel {
    users: Vec<usize>,
    terms: Vec<Term>,
    /// Whether a term has changed since it was solved.
    is_stale: bool,
    x: f64,
}

/// What a user asks for, and of which nodes: one, or the shares of several.
#[derive(Debug, Clone, Default)]
struct User {
    asks: Use,
    one: Option<usize>,
    shares: Vec<f64>,
}

/// The channels of all nodes. Each keeps its users and its solution, and is solved anew only if what it is
/// asked for has changed.
#[derive(Debug, Default)]
pub struct Channels {
    service_ns: f64,
    nodes: Vec<Channel>,
    waits_ns: Vec<f64>,
    users: Vec<User>,
    /// Users of several nodes, which connect them.
    spread: Vec<usize>,
    changed: Vec<usize>,
}

impl Channels {
    /// Creates the channels of a machine, without users. Policies do so for each prediction: it costs little.
    pub fn new(machine: &MachineModel) -> Self {
        let count = machine.nodes.len();
        Self {
            service_ns: service_ns(machine),
            nodes: (0..count).map(|_| Channel::default()).collect(),
            waits_ns: vec![0.0; count],
            ..Self::default()
        }
    }

    /// Returns the mean wait of a thread's lines, in nanoseconds.
    pub fn wait_ns(&self, homes: Homes<'_>) -> f64 {
        match homes {
            Homes::One(node) => self.waits_ns[node],
            Homes::Spread(shares) => mean_wait(&self.waits_ns, shares),
        }
    }

    /// Returns the mean wait of a user's lines, in nanoseconds.
    pub fn wait_of(&self, user: usize) -> f64 {
        let Some(User { one, shares, .. }) = self.users.get(user) else { return 0.0 };
        one.map_or_else(|| mean_wait(&self.waits_ns, shares), |node| self.waits_ns[node])
    }

    /// Returns the nodes whose wait the last solution changed, in order.
    pub fn changed(&self) -> &[usize] {
        &self.changed
    }

    /// Returns the users of a node's channel, in order.
    pub fn users(&self, node: usize) -> &[usize] {
        &self.nodes[node].users
    }

    /// Says what a user asks of which nodes from now on.
    pub fn ask(&mut self, user: usize, asks: Use, homes: Homes<'_>) {
        if self.users.len() <= user {
            self.users.resize(user + 1, User::default());
        }
        let before = &mut self.users[user];
        let uses_any = asks.lines > 0.0;
        let (one, shares) = match homes {
            Homes::One(node) => (Some(node).filter(|_| uses_any), &[][..]),
            Homes::Spread(shares) => (None, if uses_any { shares } else { &[] }),
        };
        if before.asks == asks && before.one == one && before.shares == shares {
            return;
        }
        if before.one != one {
            before.one.into_iter().for_each(|node| self.nodes[node].remove(user));
        }
        if before.shares != shares {
            let spread = self.spread.binary_search(&user);
            match (spread, shares.is_empty()) {
                (Ok(place), true) => drop(self.spread.remove(place)),
                (Err(place), false) => self.spread.insert(place, user),
                _ => {}
            }
            let served = before.shares.iter().enumerate().filter(|(_, share)| **share > 0.0);
            served.for_each(|(node, _)| self.nodes[node].remove(user));
            before.shares.clear();
            before.shares.extend_from_slice(shares);
        }
        (before.asks, before.one) = (asks, one);
        if let Some(node) = one {
            self.nodes[node].put(user, term(asks, self.service_ns, 1.0, 0.0));
        }
    }

    /// Solves the equations that have changed.
    pub fn solve(&mut self) {
        self.changed.clear();
        for _ in 0..ROUNDS_MAX {
            self.connect();
            let mut still_changes = false;
            for (node, channel) in self.nodes.iter_mut().enumerate().filter(|(_, channel)| channel.is_stale) {
                let before = channel.x;
                if channel.solve()
                    && let Err(place) = self.changed.binary_search(&node)
                {
                    self.changed.insert(place, node);
                }
                still_changes |= (channel.x - before).abs() > SAME * (1.0 + before);
                self.waits_ns[node] = self.service_ns * channel.x;
            }
            if !still_changes || self.spread.is_empty() {
                break;
            }
        }
    }

    /// Updates the terms of users of several nodes: what they lose at each leaves less for the others.
    fn connect(&mut self) {
        let Self { service_ns, nodes, waits_ns, users, spread, .. } = self;
        for &number in spread.iter() {
            let User { asks, shares, .. } = &users[number];
            let all = mean_wait(waits_ns, shares);
            for (node, &share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
                let elsewhere = all - share * waits_ns[node];
                nodes[node].put(number, term(*asks, *service_ns, share, elsewhere));
            }
        }
    }
}

fn mean_wait(waits_ns: &[f64], shares: &[f64]) -> f64 {
    shares.iter().zip(waits_ns).map(|(share, wait)| share * wait).sum()
}

/// Returns the term of a user at a node that serves a share of its lines, if it waits so long elsewhere.
fn term(asks: Use, service_ns: f64, share: f64, elsewhere_ns: f64) -> Term {
    Term {
        a: asks.lines * share * service_ns,
        b: asks.ns + asks.loss * elsewhere_ns,
        c: asks.loss * share * service_ns,
    }
}

impl Channel {
    /// Adds a user, or gives it another term.
    fn put(&mut self, user: usize, term: Term) {
        match self.users.binary_search(&user) {
            Ok(place) if self.terms[place] == term => return,
            Ok(place) => self.terms[place] = term,
            Err(place) => {
                self.users.insert(place, user);
                self.terms.insert(place, term);
            }
        }
        self.is_stale = true;
    }

    fn remove(&mut self, user: usize) {
        if let Ok(place) = self.users.binary_search(&user) {
            self.users.remove(place);
            self.terms.remove(place);
            self.is_stale = true;
        }
    }

    /// Solves the equation, and returns whether the wait is another one.
    fn solve(&mut self) -> bool {
        self.is_stale = false;
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
    use crate::topology::Topology;

    fn solved(terms: &[(f64, f64, f64)], from: f64) -> f64 {
        let terms = terms.iter().map(|&(a, b, c)| Term { a, b, c }).collect();
        let mut channel = Channel { terms, x: from, ..Channel::default() };
        channel.solve();
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
    fn what_is_asked_one_after_the_other_is_solved_as_if_it_were_asked_at_once() {
        let machine = MachineModel::from(Topology::synthetic("numa:3 core:4 pu:1").unwrap());
        let spread = [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]];
        // Users that come, ask for something else or elsewhere, and go.
        let asks = |step: usize| {
            let user = step * 7 % 12;
            let lines = [0.0, 0.01, 0.03, 0.06][step * 5 % 4];
            let homes = match step % 5 {
                0 => Homes::Spread(&spread[0]),
                1 => Homes::Spread(&spread[1]),
                other => Homes::One(other - 2),
            };
            (user, Use { lines, ns: 0.5 + 0.01 * step as f64, loss: 0.4 * lines }, homes)
        };
        let mut channels = Channels::new(&machine);
        for step in 0..100 {
            let (user, asked, homes) = asks(step);
            channels.ask(user, asked, homes);
            channels.solve();
            let mut at_once = Channels::new(&machine);
            for user in 0..12 {
                let last = (0..=step).rev().map(asks).find(|(other, ..)| *other == user);
                last.into_iter().for_each(|(user, asked, homes)| at_once.ask(user, asked, homes));
            }
            at_once.solve();
            for (one, other) in channels.waits_ns.iter().zip(&at_once.waits_ns) {
                assert!((one - other).abs() <= 1e-4 * (1.0 + other), "step {step}: {one} and {other}");
            }
            assert_eq!(
                channels.nodes.iter().map(|node| &node.users).collect::<Vec<_>>(),
                at_once.nodes.iter().map(|node| &node.users).collect::<Vec<_>>()
            );
        }
        assert!(channels.waits_ns.iter().all(|wait| *wait > 0.0));
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
