//! A path profile from windows: stitching.
//!
//! Problem: windows hold some tens of branches each, begin anywhere and end anywhere; wanted is how often
//! each path was executed, including paths that no window holds whole.
//!
//! Approach: 1. Every window becomes outcomes ([`crate::outcome`]); those that ended early are continued by
//! others (`join.rs`). 2. Windows are weighted so that all executions count alike (`weight.rs`), in balance
//! of what enters and what leaves (`balance.rs`). 3. Windows are cut into fragments of paths
//! ([`crate::fragment`]). 4. How often paths begin at a location is the balanced weight of the boundaries
//! that lead there; how they go on is estimated outcome by outcome (`context.rs`), and paths are listed by
//! flow (`enumerate.rs`).
//!
//! Source: Moseley et al. (CF 2005), section 3.2, expand Itanium-2 samples of 4 branches "to larger
//! intra-procedure paths" and report 60 to 95 % accuracy, without saying how; the method here is our own.
//!
//! Limits: code that runs only where windows cannot begin or pass (between two system calls, a few
//! instructions apart) is estimated from few, and what follows a system call as if it did not depend on what
//! came before. Phases of a program are weighted by their instructions, not by their time.

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

/// Flow below which paths are not listed: a hundredth of the paper's threshold for hot ones.
pub const FLOW_MIN: f64 = 1.25e-5;

/// Collects windows of one program and estimates its path profile from them. Keeps 8 bytes for each branch.
pub struct Estimator<'p> {
    graph: Graph<'p>,
    windows: Vec<Piece>,
    /// The outcomes of all windows, one window behind the other.
    outcomes: Vec<Outcome>,
    walked: Vec<Outcome>,
}

/// What windows say of a program's paths.
#[derive(Debug, Clone, PartialEq)]
pub struct PathEstimate {
    /// The profile. Its unit: one window of average branch density adds 1 per branch execution.
    pub profile: PathProfile,
    /// Different paths that windows held whole, system calls within bridged.
    pub paths_seen_whole: usize,
    /// Windows with at least one branch.
    pub windows: usize,
    /// Weight of paths too rare to be listed, in the profile's unit.
    pub rare: f64,
    /// Weight of paths that lead where no window saw what comes next.
    pub open: f64,
}

/// How often control went which way: what [`PathEstimate::profile`] and the exporters are made of.
pub(crate) struct Flow {
    /// The executions of each edge of the graph, by its id, in the profile's unit.
    pub edges: Vec<f64>,
    /// What each window with a branch counts, in the order in which they were added; about 1 on average.
    pub weights: Vec<f64>,
}

impl<'p> Estimator<'p> {
    /// An estimator without windows.
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
            // A branch-record unit's window ends where the sample was taken; all others begin there.
            let (sampled, stopped) = match window.ended {
                End::Hardware => (last.unwrap_or(first), None),
                End::Full => (first, None),
                End::SystemCall
                | End::Unsupported(_)
                | End::Memory
                | End::InstructionCap
                | End::NoFile
                | End::Interrupted => (first, last),
            };
            let range = begin..self.outcomes.len();
            let time = window.period_ns.map_or(1.0, |period| period.max(1) as f64);
            self.windows.push(Piece { first: span.first, sampled, range, time, stopped });
        }
        Ok(())
    }

    /// Windows with at least one branch so far.
    pub fn window_count(&self) -> usize {
        self.windows.len()
    }

    /// The code that the windows so far have met.
    pub(crate) fn graph(&self) -> &Graph<'p> {
        &self.graph
    }

    /// How often control went which way, as the windows so far make likely.
    pub(crate) fn flow(&self) -> Flow {
        self.flow_and(|_, _| ()).0
    }

    /// The flow, and what is made of the weighted windows beside it.
    fn flow_and<T>(&self, beside: impl FnOnce(&Windows<'_, '_>, &[f64]) -> T) -> (Flow, T) {
        let branches_max = self.windows.iter().map(|window| window.range.len()).max().unwrap_or(0);
        let (windows, outcomes) = joined(&self.graph, &self.windows, &self.outcomes, branches_max);
        let windows = Windows { graph: &self.graph, windows: &windows, outcomes: &outcomes };
        let weights = windows.weights();
        let edges = balanced_edges(&self.graph, &windows.edge_weights(&weights));
        let beside = beside(&windows, &weights);
        (Flow { edges, weights }, beside)
    }

    /// The profile that the windows so far make likely.
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
