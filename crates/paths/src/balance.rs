//! Executions of each branch from the outcomes that windows show, corrected so that what enters a block also
//! leaves it.
//!
//! Which outcomes windows show is biased in ways that branches per instruction do not tell. Windows begin
//! more often in slow instructions (cache misses) than in fast ones, so that the code behind slow code is
//! seen more often; and where windows end early (before system calls), what follows is seen only by the few
//! that begin between there and it. But *which way* control leaves a site, once there, is seen nearly
//! without bias. And over a run every block is left as often as it is entered (but for one per thread): the
//! executions c of the sites and the shares P with which each is left this way or that satisfy c = cP. So we
//! start from the weights seen and let them flow: in each round, half of each site's weight moves on along
//! its edges.
//!
//! Parts of a program that are executed one after the other (phases) hardly exchange flow; in what
//! proportion they stand is known from the windows' weights alone. So the rounds are few: enough to balance
//! what lies some windows apart, too few to replace those proportions by what the few windows across borders
//! say.

use crate::graph::{Graph, SiteId};

/// Rounds of flow, half a branch each. On programs of chance, 64 to 256 served alike.
const ROUNDS: u32 = 128;

/// The weights of all edges (by their ids), balanced. Their sum is that of the weights seen.
pub(crate) fn balanced_edges(graph: &Graph, seen: &[f64]) -> Vec<f64> {
    let mut seen_out = vec![0.0; graph.site_count()];
    for ((_, edge), weight) in graph.edges().zip(seen) {
        seen_out[edge.site.0 as usize] += weight;
    }
    let share =
        |from: SiteId, weight: f64| if weight > 0.0 { weight / seen_out[from.0 as usize] } else { 0.0 };
    let edges: Vec<(SiteId, Option<SiteId>, f64)> = graph
        .edges()
        .zip(seen)
        .map(|((_, edge), &weight)| {
            (edge.site, edge.block.map(|block| graph.block(block).site), share(edge.site, weight))
        })
        .collect();
    let total: f64 = seen_out.iter().sum();
    let mut flow = seen_out.clone();
    let mut entered = vec![0.0; flow.len()];
    for _ in 0..ROUNDS {
        entered.fill(0.0);
        for &(from, to, share) in &edges {
            if let Some(to) = to {
                entered[to.0 as usize] += flow[from.0 as usize] * share;
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
    edges.into_iter().map(|(from, _, share)| flow[from.0 as usize] * share).collect()
}
