//! A path profile from windows: stitching.
//!
//! Problem: windows contain some tens of branches each, and begin and end anywhere; the result is how often
//! each path was executed, including paths that no window contains whole.
//!
//! Approach: 1. Every window is converted to outcomes ([`crate::outcome`]); those that ended early are
//! continued by others (`join.rs`). 2. Windows are weighted so that all executions count alike (`weight.rs`),
//! and so that what enters also leaves (`balance.rs`). 3. Windows are cut into fragments of paths
//! ([`crate::fragment`]). 4. How often paths begin at a location is the balanced weight of the boundaries
//! that lead there; their continuation is estimated outcome by outcome (`context.rs`), and paths are listed
//! by flow (`enumerate.rs`).
//!
//! Source: Moseley et al. (CF 2005), section 3.2, expand Itanium-2 samples of 4 branches "to larger
//! intra-procedure paths" and report 60 to 95 % accuracy, without describing how; the method here is our own.
//!
//! Limits: code that runs only where windows cannot begin or pass (between two system calls, a few
//! instructions apart) is estimated from few windows, and code after a system call as if it did not depend on
//! what came before. Phases of a program are weighted by their instructions, not by their time.

use crate::balance::balanced_edges;
use crate::context::Contexts;
use crate::enumerate::Enumeration;
use crate::graph::Graph;
use crate::join::{Piece, joined};
use crate::outcome::{Mismatch, Outcome, outcomes_of};
use crate::profile::PathProfile;
use crate::program::Program;
use crate::weight::Windows;
use crate::window::{End, Window};
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;

/// The flow below which paths are not listed: a hundredth of the paper's threshold for hot ones.
pub const FLOW_MIN: f64 = 1.25e-5;

/// Collects windows of one program and estimates its path profile from them. Uses 8 bytes for each branch.
pub struct Estimator<'p> {
    graph: Graph<'p>,
    windows: Vec<Piece>,
    /// The outcomes of all windows, one window after another.
    outcomes: Vec<Outcome>,
    walked: Vec<Outcome>,
}

/// The estimate from windows.
#[derive(Debug, Clone, PartialEq)]
pub struct PathEstimate {
    /// The profile. Its unit: one window of average branch density adds 1 per branch execution.
    pub profile: PathProfile,
    /// The number of different paths that windows contained whole, with system calls bridged.
    pub paths_seen_whole: usize,
    /// The number of windows with at least one branch.
    pub windows: usize,
    /// The weight of paths too rare to be listed, in the profile's unit.
    pub rare: f64,
    /// The weight of paths to places where no window shows the continuation.
    pub open: f64,
}

/// How often control went which way: the basis of [`PathEstimate::profile`] and the exporters.
pub(crate) struct Flow {
    /// The executions of each edge of the graph, by its id, in the profile's unit.
    pub edges: Vec<f64>,
    /// The weight of each window with a branch, in the order in which they were added; about 1 on average.
    pub weights: Vec<f64>,
}

impl<'p> Estimator<'p> {
    /// Makes an estimator without windows.
    pub fn new(program: &'p dyn Program) -> Self {
        Self { graph: Graph::new(program), windows: Vec::new(), outcomes: Vec::new(), walked: Vec::new() }
    }

    /// Adds a window, or only its first branches. A window that disagrees with the code adds nothing.
    pub fn add(&mut self, window: &Window, branches_max: Option<usize>) -> Result<(), Mismatch> {
        let span = outcomes_of(&mut self.graph, window, &mut self.walked)?;
        let kept = &self.walked[..self.walked.len().min(branches_max.unwrap_or(usize::MAX))];
        let cut = kept.len() < self.walked.len();
        if !kept.is_empty() {
            let begin = self.outcomes.len();
            self.outcomes.extend_from_slice(kept);
            let place = |block, address| (self.graph.block(block).site, address);
            let first = place(span.first, window.start.address);
            let last = span.last.filter(|_| !cut).map(|block| place(block, window.end.address));
            // The window of a branch-record unit ends where the sample was taken; all others begin there.
            let (sampled, stopped) = match window.ended {
                End::Hardware => (last.unwrap_or(first).0, None),
                End::Full => (first.0, None),
                End::SystemCall
                | End::Unsupported(_)
                | End::Memory
                | End::InstructionCap
                | End::NoFile
                | End::Interrupted => (first.0, last),
            };
            let range = begin..self.outcomes.len();
            let time = window.period_ns.map_or(1.0, |period| period.max(1) as f64);
            self.windows.push(Piece { first: span.first, sampled, range, time, stopped });
        }
        Ok(())
    }

    /// Returns the number of windows with at least one branch so far.
    pub fn window_count(&self) -> usize {
        self.windows.len()
    }

    /// Returns the code that the windows so far have reached.
    pub(crate) fn graph(&self) -> &Graph<'p> {
        &self.graph
    }

    /// Returns the estimate of how often control went which way, from the windows so far.
    pub(crate) fn flow(&self) -> Flow {
        self.flow_and(|_, _| ()).0
    }

    /// Returns the flow, and the intermediate results of the weighted windows.
    fn flow_and<T>(&self, beside: impl FnOnce(&Windows<'_, '_>, &[f64]) -> T) -> (Flow, T) {
        let (windows, outcomes) = joined(&self.graph, &self.windows, &self.outcomes);
        let windows = Windows { graph: &self.graph, windows: &windows, outcomes: &outcomes };
        let weights = windows.weights();
        let edges = balanced_edges(&self.graph, &windows.edge_weights(&weights));
        let beside = beside(&windows, &weights);
        (Flow { edges, weights }, beside)
    }

    /// Returns the estimated profile from the windows so far.
    pub fn estimate(&mut self) -> PathEstimate {
        let (Flow { edges, .. }, trie) = self.flow_and(|windows, weights| windows.tree(weights));
        let Self { graph, .. } = self;
        let mut profile = PathProfile::default();
        let (mut starts, mut open) = (BTreeMap::new(), 0.0);
        for ((_, edge), weight) in graph.edges().zip(edges).filter(|&(_, weight)| weight > 0.0) {
            profile.edges.insert((graph.site(edge.site).at, edge.to), weight);
            if edge.boundary.is_some() {
                profile.total += weight;
                match edge.block {
                    Some(block) => *starts.entry(block).or_insert(0.0) += weight,
                    None => open += weight,
                }
            }
        }
        let contexts = Contexts::of(&trie, graph);
        let flow_min = FLOW_MIN * profile.total;
        let mut enumeration =
            Enumeration { graph, trie: &trie, contexts: &contexts, flow_min, rare: 0.0, open };
        for (start, flow) in starts {
            let mut each = |path, flow| *profile.paths.entry(path).or_insert(0.0) += flow;
            enumeration.paths_from(start, flow, &mut each);
        }
        let Enumeration { rare, open, .. } = enumeration;
        let mut whole = FxHashSet::default();
        trie.ended_paths(graph, |path, _| _ = whole.insert(path));
        PathEstimate { profile, paths_seen_whole: whole.len(), windows: self.windows.len(), rare, open }
    }
}
