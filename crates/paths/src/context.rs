//! The probability of a branch's next outcome, given what its path did before.
//!
//! The best estimate is how often each outcome followed the *whole* path so far: a node of the tree of
//! anchored fragments. Fragments that a window's end cut off before the outcome are censored: they are in the
//! nodes that they reached and nowhere else, so that at each node only those whose outcome was seen are in
//! the denominator. The product of such conditional probabilities along a path is the estimate of Kaplan and
//! Meier (1958) with outcomes instead of deaths, and unbiased although long paths are cut off more often.
//!
//! If a path is rare, or longer than any window, too few or no anchored fragments reach that far. Then
//! shorter contexts help: the last 8, 4, 2, 1 or 0 outcomes before the branch, which all fragments contain,
//! anchored or not. Each context is mixed with the next shorter one as Witten and Bell (1991, method C) do
//! for text: a context seen with weight n and d distinct outcomes leaves d/(n + d) to the shorter one. So the
//! whole prefix dominates wherever it was seen often. An outcome never seen at a branch has probability 0.

use crate::graph::{EdgeId, Graph, SiteId};
use crate::trie::{NodeId, Trie};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// The numbers of earlier outcomes in the shorter contexts.
const ORDERS: [usize; 5] = [0, 1, 2, 4, 8];

/// Tallies of all shorter contexts. A context is identified by a hash of 64 bits: of a million, two collide
/// with a probability below 10⁻⁷.
pub(crate) struct Contexts {
    seen: FxHashMap<u64, Seen>,
    outcomes: FxHashMap<(u64, EdgeId), f64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    weight: f64,
    distinct: u32,
}

impl Seen {
    /// The weight that a context leaves to the next shorter one.
    fn left_over(&self) -> f64 {
        f64::from(self.distinct)
    }
}

/// Returns the context of a site: the outcomes before it, the latest first.
fn context(site: SiteId, order: usize, latest_first: impl Iterator<Item = EdgeId>) -> u64 {
    let mut hasher = FxHasher::default();
    // This hash does not notice zeros at the beginning.
    (u64::from(site.0) + 1, order).hash(&mut hasher);
    latest_first.take(order).for_each(|edge| edge.hash(&mut hasher));
    hasher.finish()
}

impl Contexts {
    /// Tallies every fragment in the tree. One observation weighs 1 on average.
    pub fn of(trie: &Trie, graph: &Graph) -> Self {
        let mut contexts = Self { seen: FxHashMap::default(), outcomes: FxHashMap::default() };
        let mut before = Vec::new();
        for id in trie.ids() {
            let node = trie.node(id);
            let Some(mut at) = node.parent else { continue };
            before.clear();
            while let (Some(parent), true) = (trie.node(at).parent, before.len() < ORDERS[ORDERS.len() - 1]) {
                before.push(trie.node(at).edge);
                at = parent;
            }
            let site = graph.edge_of(node.edge).site;
            for order in ORDERS.into_iter().take_while(|&order| order <= before.len()) {
                contexts.add(context(site, order, before.iter().copied()), node.edge, node.reached);
            }
        }
        contexts
    }

    fn add(&mut self, context: u64, edge: EdgeId, weight: f64) {
        let seen = self.seen.entry(context).or_default();
        seen.weight += weight;
        let outcome = self.outcomes.entry((context, edge)).or_insert_with(|| {
            seen.distinct += 1;
            0.0
        });
        *outcome += weight;
    }

    /// Returns the probability of each way out of a site after `history` since the path's start. `node` is
    /// the node of that whole history, if any fragment reached it. Empty if no exit of the site was seen.
    pub fn probabilities(
        &self,
        (trie, graph): (&Trie, &Graph),
        site: SiteId,
        history: &[EdgeId],
        node: Option<NodeId>,
    ) -> Vec<(EdgeId, f64)> {
        let mut mixed: Vec<(EdgeId, f64)> = Vec::new();
        for order in ORDERS.into_iter().take_while(|&order| order <= history.len()) {
            let context = context(site, order, history.iter().rev().copied());
            let Some(seen) = self.seen.get(&context) else { break };
            let weight = |edge| self.outcomes.get(&(context, edge)).copied();
            if order == 0 {
                let ways = graph.site(site).edges.iter();
                mixed = ways.filter_map(|&edge| Some((edge, weight(edge)? / seen.weight))).collect();
                continue;
            }
            let shorter = seen.left_over();
            for (edge, probability) in &mut mixed {
                let here = weight(*edge).unwrap_or(0.0);
                *probability = (here + shorter * *probability) / (seen.weight + shorter);
            }
        }
        if let Some(node) = node {
            self.mix_whole_prefix(trie, node, &mut mixed);
        }
        mixed
    }

    fn mix_whole_prefix(&self, trie: &Trie, node: NodeId, mixed: &mut [(EdgeId, f64)]) {
        let reached = |edge| trie.child(node, edge).map_or(0.0, |child| trie.node(child).reached);
        let here: Vec<f64> = mixed.iter().map(|&(edge, _)| reached(edge)).collect();
        let distinct = here.iter().filter(|&&weight| weight > 0.0).count() as u32;
        let seen = Seen { weight: here.iter().sum(), distinct };
        if distinct == 0 {
            return;
        }
        let shorter = seen.left_over();
        for ((_, probability), here) in mixed.iter_mut().zip(here) {
            *probability = (here + shorter * *probability) / (seen.weight + shorter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn contexts_of_different_sites_orders_and_outcomes_differ() {
        let edges = |number: usize| (0..2).map(move |place| EdgeId((number / [1, 8][place] % 8) as u32));
        let (mut contexts, mut hashes) = (0, HashSet::new());
        for site in 0..20 {
            for (order, histories) in [(0, 1), (1, 8), (2, 64)] {
                contexts += histories;
                hashes.extend((0..histories).map(|number| context(SiteId(site), order, edges(number))));
            }
        }
        assert_eq!(hashes.len(), contexts);
    }
}
