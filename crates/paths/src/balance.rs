//! Executions of each edge from the outcomes that windows show, corrected so that what enters a block also
//! leaves it.
//!
//! Which outcomes windows show is biased in ways that the window's weight does not remove. Windows begin more
//! often in slow instructions (cache misses) than in fast ones, so that code within N branches behind slow
//! code is seen more often; and where windows end early (before system calls), what follows is only
//! seen by the few windows that begin between there and it. But *which way* control leaves a site, once there,
//! is seen without bias. And over a run, every block is left as often as it is entered (but for one per
//! thread): the executions c of the sites and the shares P with which each is left this way or that satisfy
//! c = cP. So we start from the weights seen and let them flow: half of each site's weight moves on along its
//! edges, in each of some rounds.
//!
//! Parts of a program that are executed one after the other (phases) hardly exchange flow; in what proportion
//! they stand is known from the windows' weights alone, and the number of rounds is small enough not to
//! replace that by what the few windows across their borders say.

use crate::graph::{Graph, SiteId};

/// Rounds of flow, half a branch each: flow is balanced among what lies about a window's length apart.
const ROUNDS: u32 = 64;

/// The weights of all edges (by their ids), balanced.
pub(crate) fn balanced(graph: &Graph, seen: &[f64]) -> Vec<f64> {
    let mut seen_out = vec![0.0; graph.site_count()];
    let edges: Vec<(SiteId, Option<SiteId>, f64)> = graph
        .edges()
        .zip(seen)
        .map(|((_, edge), &weight)| (edge.site, edge.block.map(|block| graph.block(block).site), weight))
        .collect();
    for &(from, _, weight) in &edges {
        seen_out[from.0 as usize] += weight;
    }
    let total: f64 = seen_out.iter().sum();
    let mut flow = seen_out.clone();
    let mut entered = vec![0.0; flow.len()];
    let share =
        |from: SiteId, weight: f64| if weight > 0.0 { weight / seen_out[from.0 as usize] } else { 0.0 };

    for _ in 0..ROUNDS {
        entered.fill(0.0);
        for &(from, to, weight) in &edges {
            if let Some(to) = to {
                entered[to.0 as usize] += flow[from.0 as usize] * share(from, weight);
            }
        }
        let mut sum = 0.0;
        for ((flow, entered), &seen) in flow.iter_mut().zip(&entered).zip(&seen_out) {
            *flow = if seen > 0.0 { 0.5 * (*flow + entered) } else { 0.0 };
            sum += *flow;
        }
        if sum > 0.0 {
            flow.iter_mut().for_each(|flow| *flow *= total / sum);
        }
    }
    edges.iter().map(|&(from, _, weight)| flow[from.0 as usize] * share(from, weight)).collect()
}
