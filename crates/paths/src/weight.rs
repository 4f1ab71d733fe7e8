//! The weight of each window.
//!
//! Problem: windows begin uniformly in time, but executions are to be counted. Code that takes long for each
//! branch (straight lines, mispredictions, cache misses) is in more windows than code that is fast, and a
//! window does not contain its time.
//!
//! Approach, in two steps. 1. *How long a window takes*: its instructions, and [`MISPREDICTION`] more for any
//! outcome probably mispredicted ([`crate::mispredicted`]). Its weight: its branches over that.
//! 2. *How long each straight line takes*, as measured: the share of all windows that begin in it. Over the
//! line's executions this is its time, whatever the reason. What it takes more than by step 1, relative to
//! the lines executed with it, says by how much windows that begin there are too many.
//!
//! How often lines are executed is itself estimated by the windows. Those of hundreds of branches forget
//! where they began: so they count as they are, and a line's excess divides the weight of the windows that
//! begin in it. Short windows show mostly the code near to where they began, and so have the bias that is to
//! be corrected. Therefore they are balanced ([`crate::balance`]), and the windows that begin in a line get
//! its balanced flow as their weight together; better weights make a better balance, so that is done twice. A
//! line in which few windows begin gives little information, so the new weight is mixed with the previous
//! one. Windows of recordings with different rates represent different times, and count in proportion.
//! (Windows of a branch-record unit end where the others begin: at the sample. All this holds for them with
//! the directions exchanged.)
//!
//! Evidence: `studies/paths/accuracy`. The constants were chosen on its programs bzip2, bc, gzip and lua. The
//! results of the others were seen, and decided that short windows are still balanced.
//!
//! Limits: parts of a program that exchange no control within a window (phases) are related by step 1 alone,
//! so a phase that waits for memory all the time is still overestimated.

use crate::balance::balanced_edges;
use crate::fragment::fragments;
use crate::graph::Graph;
use crate::join::Piece;
use crate::mispredicted::mispredicted;
use crate::outcome::Outcome;
use crate::trie::{Origin, Trie};

/// The time that a misprediction takes, in those of an instruction that waits for nothing: some 20 cycles of
/// a processor that executes four instructions in each.
const MISPREDICTION: f64 = 80.0;
/// How often the weights of short windows are improved by balance. More would fit the noise of few windows.
const PASSES: u32 = 2;
/// What was known before counts like this many windows that begin in the same line.
const BEFORE_COUNTS: f64 = 20.0;
/// From this many branches on a window is long.
const LONG: usize = 256;

/// The completed windows.
pub(crate) struct Windows<'a, 'p> {
    pub graph: &'a Graph<'p>,
    pub windows: &'a [Piece],
    pub outcomes: &'a [Outcome],
}

impl Windows<'_, '_> {
    /// The weight of each window, about 1 on average.
    pub fn weights(&self) -> Vec<f64> {
        let mean_time =
            self.windows.iter().map(|window| window.time).sum::<f64>() / self.windows.len() as f64;
        let times: Vec<f64> = self.windows.iter().map(|window| window.time / mean_time).collect();
        let costs = self.costs();
        let speed =
            |window: &Piece| window.range.len() as f64 / costs[window.range.clone()].iter().sum::<f64>();
        let mut weights: Vec<f64> =
            self.windows.iter().zip(&times).map(|(window, time)| time * speed(window)).collect();
        normalize(&mut weights);
        let mut begun = vec![0.0; self.graph.site_count()];
        for (window, time) in self.windows.iter().zip(&times) {
            begun[window.sampled.0 as usize] += time;
        }
        if self.are_long() {
            self.divide_by_excess(&mut weights, &begun, &costs);
            return weights;
        }
        for _ in 0..PASSES {
            let edges = balanced_edges(self.graph, &self.edge_weights(&weights));
            let flow = self.by_site(&edges);
            let unit = self.windows.len() as f64 / flow.iter().sum::<f64>();
            for ((window, weight), time) in self.windows.iter().zip(&mut weights).zip(&times) {
                let line = window.sampled.0 as usize;
                let before = BEFORE_COUNTS * *weight;
                *weight = (time * flow[line] * unit + before) / (begun[line] + BEFORE_COUNTS);
            }
        }
        weights
    }

    /// The time of each outcome by step 1, in instructions.
    fn costs(&self) -> Vec<f64> {
        let missed = mispredicted(self.graph, self.windows, self.outcomes);
        let cost = |(outcome, missed): (&Outcome, bool)| {
            f64::from(outcome.instructions) + if missed { MISPREDICTION } else { 0.0 }
        };
        self.outcomes.iter().zip(missed).map(cost).collect()
    }

    /// Returns whether most outcomes are in long windows.
    fn are_long(&self) -> bool {
        let lengths = self.windows.iter().map(|window| window.range.len());
        2 * lengths.filter(|&length| length >= LONG).sum::<usize>() > self.outcomes.len()
    }

    fn divide_by_excess(&self, weights: &mut [f64], begun: &[f64], costs: &[f64]) {
        let mut expected = vec![0.0; begun.len()];
        for (window, weight) in self.windows.iter().zip(&*weights) {
            for index in window.range.clone() {
                let site = self.graph.edge_of(self.outcomes[index].edge).site;
                expected[site.0 as usize] += weight * costs[index];
            }
        }
        let unit = self.windows.len() as f64 / expected.iter().sum::<f64>();
        for (window, weight) in self.windows.iter().zip(&mut *weights) {
            let line = window.sampled.0 as usize;
            *weight *= (expected[line] * unit + BEFORE_COUNTS) / (begun[line] + BEFORE_COUNTS);
        }
        normalize(weights);
    }

    /// Returns how often each site was executed.
    fn by_site(&self, edges: &[f64]) -> Vec<f64> {
        let mut flow = vec![0.0; self.graph.site_count()];
        for ((_, edge), weight) in self.graph.edges().zip(edges) {
            flow[edge.site.0 as usize] += weight;
        }
        flow
    }

    /// Returns the weight with which windows show each edge.
    pub fn edge_weights(&self, weights: &[f64]) -> Vec<f64> {
        let mut edges = vec![0.0; self.graph.edges().count()];
        for (window, weight) in self.windows.iter().zip(weights) {
            for outcome in &self.outcomes[window.range.clone()] {
                edges[outcome.edge.0 as usize] += weight;
            }
        }
        edges
    }

    /// Makes the tree of all fragments.
    pub fn tree(&self, weights: &[f64]) -> Trie {
        let graph = self.graph;
        let mut trie = Trie::default();
        for (window, weight) in self.windows.iter().zip(weights) {
            fragments(graph, window.first, &self.outcomes[window.range.clone()], |fragment| {
                let mut at = trie.root(if fragment.anchored {
                    Origin::Start(fragment.block)
                } else {
                    Origin::Before(graph.block(fragment.block).site)
                });
                for outcome in fragment.outcomes {
                    if graph.site(graph.edge_of(outcome.edge).site).has_choice() {
                        at = trie.child_or_new(at, outcome.edge);
                        trie.node_mut(at).reached += weight;
                    }
                }
                if fragment.complete {
                    trie.node_mut(at).ended += weight;
                }
            });
        }
        trie
    }
}

fn normalize(weights: &mut [f64]) {
    let scale = weights.len() as f64 / weights.iter().sum::<f64>();
    weights.iter_mut().for_each(|weight| *weight *= scale);
}
