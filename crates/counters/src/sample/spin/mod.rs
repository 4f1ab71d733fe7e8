//! Does a thread wait busily at a sampled instruction?
//!
//! Problem. A thread that waits for another by checking a flag in a loop burns a PE and needs none of its
//! units. Its loop may be three instructions or seventy, with calls, round counters, back-off and several
//! places looked at. But many a working loop also holds a way around that does nothing, and the way into a
//! lock leads through the code that waits for it.
//!
//! Approach, in two steps. First: could this be a wait? The code around the sampled instruction is followed
//! through jumps, calls, returns and the linkage table ([`graph`]). What does lasting work is taken out:
//! vector instructions, system calls, stores of what differs from round to round, and whatever carries a
//! value on from one round to the next ([`carried`]); again and again, for an inner loop's counter is lasting
//! once the loop around it that resets it is gone. If a way around is left that looks at something, only
//! a change from outside can end it; one that looks at nothing is never taken.
//! Second: does the thread take that way ([`evidence`])? Its samples must show it there more often than
//! working around the loop explains, and, where the loop has a pause, in it.
//!
//! Source. The structural half is the classic analysis of spin loops for race detectors (Jannesari and Tichy,
//! "Identifying ad-hoc synchronization", IPDPS 2010: a loop whose conditions are loads that its body does
//! not change), done on machine code and with more than the shortest loops.
//!
//! Limits. A wait without a pause that goes through a function pointer, or one that asks the kernel in every
//! round for anything but to yield, is not seen (the kernel's samples are counted apart); what the
//! pointer leads to counts as work. What a called function does to its caller's variables through pointers is
//! work. A function that a wait loop calls counts with the loop only after a sample in the loop itself. A
//! bare exchange without back-off, taken often and mostly free, cannot be distinguished from a held one.

mod carried;
pub mod evidence;
mod graph;

use corewise_code::{Code, Flow, Store};
use evidence::Shape;
use graph::{Graph, NODES_MAX};

/// How much time passing an instruction takes: an exchange orders memory, and what is looked at was often
/// written by another PE. In units of a plain instruction.
const EXCHANGE_WEIGHT: f64 = 40.0;
const POLL_WEIGHT: f64 = 10.0;
const CALL_WEIGHT: f64 = 50.0;

/// A loop in which a thread can only wait for another.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitLoop {
    /// See there.
    pub shape: Shape,
    /// Its instructions' addresses, and whether only going around again leads there.
    pub points: Vec<(u64, bool)>,
}

/// The wait loop that holds the instruction at `address`.
pub fn wait_loop<C: Code>(code: &mut C, address: u64) -> Option<WaitLoop> {
    if graph::works(&code.instruction(address)?) {
        return None;
    }
    let graph = Graph::explore(code, address, false)?;
    let mut allowed: Vec<bool> = graph.nodes.iter().map(|node| !node.works).collect();
    let round = loop {
        let round = graph.circle(&allowed);
        let mut lasting = carried::lasting(&graph, &round);
        // What a function pointer leads to may be work, but for a thread whose samples prove a wait.
        if !round.iter().any(|&node| graph.nodes[node].instruction.waits) {
            let unknown = |&node: &usize| graph.nodes[node].calls_unknown;
            lasting.extend(round.iter().copied().filter(unknown));
        }
        if lasting.is_empty() {
            break round;
        }
        lasting.into_iter().for_each(|node| allowed[node] = false);
    };
    // Nothing can end a loop that looks at nothing: not even a wait goes that way.
    if !round.iter().any(|&node| graph.looks(node)) {
        return None;
    }
    let proofs = proofs(&graph, &round);
    let points: Vec<(u64, bool)> =
        round.iter().zip(&proofs).map(|(&node, &proof)| (graph.nodes[node].address, proof)).collect();
    let inside: f64 = round.iter().map(|&node| weight(&graph, node)).sum();
    let explained = inside / (inside + around(code, address, &points));
    let proofs = proofs.iter().filter(|&&proof| proof).count() as f64 / round.len() as f64;
    Some(WaitLoop { shape: Shape { explained, proofs }, points })
}

fn weight(graph: &Graph, node: usize) -> f64 {
    let instruction = &graph.nodes[node].instruction;
    match instruction.flow {
        Flow::CallAnywhere | Flow::Kernel => CALL_WEIGHT,
        _ if instruction.store == Store::Exchange => EXCHANGE_WEIGHT,
        _ if carried::polls(instruction) => POLL_WEIGHT,
        _ => 1.0,
    }
}

/// The weight of the work that the way back to `address` leads through. If there is no such way nearby, the
/// work is at least as long as what was looked at.
fn around<C: Code>(code: &mut C, address: u64, inside: &[(u64, bool)]) -> f64 {
    let Some(graph) = Graph::explore(code, address, true) else { return NODES_MAX as f64 };
    let outside = |&node: &usize| inside.iter().all(|&(address, _)| address != graph.nodes[node].address);
    let circle = graph.circle(&vec![true; graph.nodes.len()]);
    let work: f64 = circle.iter().copied().filter(outside).map(|node| weight(&graph, node)).sum();
    if work > 0.0 { work } else { NODES_MAX as f64 }
}

/// For each node of a round, whether only going around leads there: a pause and what comes right behind it.
fn proofs(graph: &Graph, round: &[usize]) -> Vec<bool> {
    let is_pause = |&node: &usize| graph.nodes[node].instruction.waits;
    let mut proves = vec![false; graph.nodes.len()];
    for pause in round.iter().copied().filter(is_pause) {
        proves[pause] = true;
        graph.next(pause).for_each(|behind| proves[behind] = true);
    }
    round.iter().map(|&node| proves[node]).collect()
}

#[cfg(test)]
mod tests;
