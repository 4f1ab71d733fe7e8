//! A path profile from windows: stitching.
//!
//! Problem: windows hold some tens of branches each, begin anywhere and end anywhere; wanted is how often
//! each path was executed, including paths that no window holds whole.
//!
//! Approach: 1. Every window becomes outcomes ([`crate::outcome`]) and then fragments of paths
//! ([`crate::fragment`]), weighted by its *branches per instruction*. For windows begin uniformly in time, but
//! cover a fixed number N of branches. An execution of a branch is in a window exactly if the window begins
//! among the instructions of the N branches before it; so it is in proportion to their number: an
//! execution in branch-sparse code (long blocks) is seen more often than one in branch-dense code. The window's
//! own instructions per branch estimate that number over N, and dividing by it makes all executions
//! count alike. 2. What the weights leave of bias is removed by the balance of flow ([`crate::balance`]).
//! 3. How often paths begin at a location is the balanced weight of the boundaries that lead there. 4. How
//! they go on is estimated by outcome ([`crate::context`]), and paths are listed by flow ([`crate::enumerate`]).
//!
//! Source: Moseley et al. (CF 2005), section 3.2, expand Itanium-2 samples of 4 branches "to larger
//! intra-procedure paths" and report 60 to 95 % accuracy, without saying how; the method here is our own.
//!
//! Limits: instructions stand for time within a window. Outcomes that depend on what happened before the path
//! began are right on average only, which is all that a path profile asks. Code that runs only where windows
//! cannot begin or pass (between two system calls a few instructions apart) is estimated from few.

use crate::balance::balanced;
use crate::context::Contexts;
use crate::enumerate::Enumeration;
use crate::fragment::fragments;
use crate::graph::{EdgeId, Graph};
use crate::outcome::{Mismatch, Outcome, outcomes_of};
use crate::profile::PathProfile;
use crate::program::Program;
use crate::trie::{Origin, Trie};
use crate::window::Window;
use std::collections::BTreeMap;

/// Flow below which paths are not listed: a hundredth of the paper's threshold for hot ones.
pub const FLOW_MIN: f64 = 1.25e-5;

/// Collects windows of one program and estimates its path profile from them.
pub struct Estimator<'p> {
    graph: Graph<'p>,
    trie: Trie,
    edges: Vec<f64>,
    weight: f64,
    used: u64,
    outcomes: Vec<Outcome>,
}

/// What windows say of a program's paths.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The profile. Its unit: one window of average branch density adds 1 per branch execution.
    pub profile: PathProfile,
    /// Different paths that windows held whole.
    pub paths_seen_whole: usize,
    /// Windows with at least one branch.
    pub windows: u64,
}

impl<'p> Estimator<'p> {
    /// An estimator without windows.
    pub fn new(program: &'p dyn Program) -> Self {
        Self {
            graph: Graph::new(program),
            trie: Trie::default(),
            edges: Vec::new(),
            weight: 0.0,
            used: 0,
            outcomes: Vec::new(),
        }
    }

    /// Adds a window, or only its first branches. A window that disagrees with the code adds nothing.
    pub fn add(&mut self, window: &Window, branches_max: Option<usize>) -> Result<(), Mismatch> {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        let first = outcomes_of(&mut self.graph, window, &mut outcomes);
        if let Ok(first) = first {
            let kept = &outcomes[..outcomes.len().min(branches_max.unwrap_or(usize::MAX))];
            let instructions: u32 = kept.iter().map(|outcome| outcome.instructions).sum();
            if !kept.is_empty() {
                let weight = kept.len() as f64 / f64::from(instructions);
                self.used += 1;
                self.weight += weight;
                self.add_outcomes(first, kept, weight);
            }
        }
        self.outcomes = outcomes;
        first.map(drop)
    }

    fn add_outcomes(&mut self, first: crate::graph::BlockId, outcomes: &[Outcome], weight: f64) {
        let Self { graph, trie, edges, .. } = self;
        for &Outcome { edge: EdgeId(edge), .. } in outcomes {
            let edge = edge as usize;
            edges.resize(edges.len().max(edge + 1), 0.0);
            edges[edge] += weight;
        }
        fragments(graph, first, outcomes, |fragment| {
            let origin = if fragment.anchored {
                Origin::Start(fragment.block)
            } else {
                Origin::Before(graph.block(fragment.block).site)
            };
            let mut at = trie.root(origin);
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

    /// The profile that the windows so far make likely.
    pub fn estimate(&mut self) -> Estimate {
        let Self { graph, trie, edges, .. } = self;
        let unit = if self.used > 0 { self.weight / self.used as f64 } else { 1.0 };
        let contexts = Contexts::of(trie, graph, unit);
        edges.resize(graph.edges().count(), 0.0);
        let weights = balanced(graph, edges);
        let mut profile = PathProfile::default();
        let mut starts = BTreeMap::new();
        for ((_, edge), weight) in graph.edges().zip(weights).filter(|&(_, weight)| weight > 0.0) {
            let weight = weight / unit;
            profile.edges.insert((graph.site(edge.site).at, edge.to), weight);
            if edge.boundary.is_some() {
                profile.total += weight;
                if let Some(block) = edge.block {
                    *starts.entry(block).or_insert(0.0) += weight;
                }
            }
        }
        let flow_min = FLOW_MIN * profile.total;
        let mut enumeration = Enumeration { graph, trie, contexts: &contexts, flow_min };
        for (start, flow) in starts {
            let mut each = |path, flow| *profile.paths.entry(path).or_insert(0.0) += flow;
            enumeration.paths_from(start, flow, &mut each);
        }
        let mut whole = rustc_hash::FxHashSet::default();
        trie.ended_paths(graph, |path, _| _ = whole.insert(path));
        Estimate { profile, paths_seen_whole: whole.len(), windows: self.used }
    }
}
