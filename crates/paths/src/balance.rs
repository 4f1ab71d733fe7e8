//! Executions of each branch from the outcomes in windows, corrected so that what enters a block also leaves
//! it.
//!
//! Windows show outcomes with a bias that branches per instruction do not reveal. Windows begin more often in
//! slow instructions (cache misses) than in fast ones, so the code after slow code is seen more often; and
//! where windows end early (before system calls), the code that follows is seen only by the few that begin
//! between there and it. But *which way* control leaves a site, once there, is seen nearly without bias. Over
//! a run, every block is left as often as it is entered (but for one per thread): the executions c of the
//! sites and the shares P with which each is left in each way satisfy c = cP. The method starts from the
//! observed weights and lets them flow: in each round, half of each site's weight moves on along its edges.
//!
//! Parts of a program that are executed one after another (phases) hardly exchange flow; their proportion is
//! known from the windows' weights alone. So there are few rounds: enough to balance sites that are some
//! windows apart, too few to replace those proportions by what the few windows across borders show.

use crate::graph::{Graph, SiteId};

/// The number of rounds of flow, half a branch each. On random programs, 64 to 256 worked equally well.
const ROUNDS: u32 = 128;

/// Returns the weights of all edges (by their ids), balanced. Their sum is that of the observed weights.
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
