//! A path profile from windows: stitching.
//!
//! Problem: windows hold some tens of branches each, begin anywhere and end anywhere; wanted is how often
//! each path was executed, including paths that no window holds whole.
//!
//! Approach: 1. Every window becomes outcomes ([`crate::outcome`]) and then fragments of paths
//! ([`crate::fragment`]). 2. Windows are weighted. They begin uniformly in time, but cover a fixed number
//! N of branches. An execution of a branch is in a window exactly if the window begins among the instructions
//! of the N branches before it, and so in proportion to their number: what runs in branch-sparse code (long
//! blocks) is seen more often than what runs in branch-dense code. The window's own instructions per branch
//! estimate that number over N; a first weight, *branches per instruction*, makes all executions
//! count alike. It is right where the density changes slowly, and takes instructions for time. 3. The balance
//! of flow (`balance.rs`) then says how often each site is executed, and that yields better weights: the
//! windows that begin before one site together must weigh what the site's executions do, whatever
//! time it takes to get there. A site where few begin says little, so both are mixed. 4. With these weights, how often
//! paths begin at a location is the balanced weight of the boundaries that lead there, 5. how they go on is
//! estimated outcome by outcome (`context.rs`), and paths are listed by flow (`enumerate.rs`).
//!
//! Source: Moseley et al. (CF 2005), section 3.2, expand Itanium-2 samples of 4 branches "to larger
//! intra-procedure paths" and report 60 to 95 % accuracy, without saying how; the method here is our own.
//! Simulated, on the programs of the tests: steps 3 and 4 cut what the edge overlap lacks to about a third (of
//! programs without slow instructions and system calls) or a sixth (with them) of what step 2 alone leaves.
//!
//! Limits: code that runs only where windows cannot begin or pass (between two system calls, a few
//! instructions apart) is estimated from few. Phases are weighted by instructions, not by branches' time.

use crate::balance::{balanced_sites, out_of_sites};
use crate::context::Contexts;
use crate::enumerate::Enumeration;
use crate::fragment::fragments;
use crate::graph::{BlockId, Graph};
use crate::outcome::{Mismatch, Outcome, outcomes_of};
use crate::profile::PathProfile;
use crate::program::Program;
use crate::trie::{Origin, Trie};
use crate::window::Window;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use std::ops::Range;

/// Flow below which paths are not listed: a hundredth of the paper's threshold for hot ones.
pub const FLOW_MIN: f64 = 1.25e-5;

/// As how many windows that begin at the same site a window's own density counts in its weight.
const DENSITY_COUNTS: f64 = 8.0;

/// Collects windows of one program and estimates its path profile from them. Keeps 8 bytes for each branch.
pub struct Estimator<'p> {
    graph: Graph<'p>,
    windows: Vec<Outcomes>,
    /// The outcomes of all windows, one window behind the other.
    outcomes: Vec<Outcome>,
    walked: Vec<Outcome>,
}

/// One window's outcomes.
struct Outcomes {
    /// Where it begins.
    first: BlockId,
    /// Where its outcomes are among all.
    range: Range<usize>,
    /// Branches per instruction.
    density: f64,
}

/// What windows say of a program's paths.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The profile. Its unit: one window of average branch density adds 1 per branch execution.
    pub profile: PathProfile,
    /// Different paths that windows held whole.
    pub paths_seen_whole: usize,
    /// Windows with at least one branch.
    pub windows: usize,
}

impl<'p> Estimator<'p> {
    /// An estimator without windows.
    pub fn new(program: &'p dyn Program) -> Self {
        Self { graph: Graph::new(program), windows: Vec::new(), outcomes: Vec::new(), walked: Vec::new() }
    }

    /// Adds a window, or only its first branches. A window that disagrees with the code adds nothing.
    pub fn add(&mut self, window: &Window, branches_max: Option<usize>) -> Result<(), Mismatch> {
        let first = outcomes_of(&mut self.graph, window, &mut self.walked)?;
        let kept = &self.walked[..self.walked.len().min(branches_max.unwrap_or(usize::MAX))];
        if !kept.is_empty() {
            let instructions: u32 = kept.iter().map(|outcome| outcome.instructions).sum();
            let density = kept.len() as f64 / f64::from(instructions);
            let begin = self.outcomes.len();
            self.outcomes.extend_from_slice(kept);
            self.windows.push(Outcomes { first, range: begin..self.outcomes.len(), density });
        }
        Ok(())
    }

    /// The profile that the windows so far make likely.
    pub fn estimate(&mut self) -> Estimate {
        let weights = self.weights();
        let seen = self.edge_weights(&weights);
        let trie = self.tree(&weights);
        let Self { graph, .. } = self;
        let sites = balanced_sites(graph, &seen);
        let seen_out = out_of_sites(graph, &seen);
        let mut profile = PathProfile::default();
        let mut starts = BTreeMap::new();
        for ((_, edge), seen) in graph.edges().zip(seen).filter(|&(_, seen)| seen > 0.0) {
            let site = edge.site.0 as usize;
            let weight = sites[site] * seen / seen_out[site];
            profile.edges.insert((graph.site(edge.site).at, edge.to), weight);
            if edge.boundary.is_some() {
                profile.total += weight;
                if let Some(block) = edge.block {
                    *starts.entry(block).or_insert(0.0) += weight;
                }
            }
        }
        let contexts = Contexts::of(&trie, graph);
        let flow_min = FLOW_MIN * profile.total;
        let mut enumeration = Enumeration { graph, trie: &trie, contexts: &contexts, flow_min };
        for (start, flow) in starts {
            let mut each = |path, flow| *profile.paths.entry(path).or_insert(0.0) += flow;
            enumeration.paths_from(start, flow, &mut each);
        }
        let mut whole = FxHashSet::default();
        trie.ended_paths(graph, |path, _| _ = whole.insert(path));
        Estimate { profile, paths_seen_whole: whole.len(), windows: self.windows.len() }
    }

    /// The weight of each window, 1 on average: its density, mixed with what makes the windows that begin at
    /// its site stand for as many executions as the site has.
    fn weights(&self) -> Vec<f64> {
        let densities: f64 = self.windows.iter().map(|window| window.density).sum();
        let scale = self.windows.len() as f64 / densities;
        let by_density: Vec<f64> = self.windows.iter().map(|window| window.density * scale).collect();
        let site_of = |window: &Outcomes| self.graph.block(window.first).site.0 as usize;
        let mut begun = vec![0.0; self.graph.site_count()];
        self.windows.iter().for_each(|window| begun[site_of(window)] += 1.0);
        let executed = balanced_sites(&self.graph, &self.edge_weights(&by_density));
        let unit = self.windows.len() as f64 / executed.iter().sum::<f64>();
        let mixed = |(window, density): (&Outcomes, f64)| {
            let site = site_of(window);
            (executed[site] * unit + DENSITY_COUNTS * density) / (begun[site] + DENSITY_COUNTS)
        };
        self.windows.iter().zip(by_density).map(mixed).collect()
    }

    /// The weight with which windows show each edge.
    fn edge_weights(&self, weights: &[f64]) -> Vec<f64> {
        let mut edges = vec![0.0; self.graph.edges().count()];
        for (window, weight) in self.windows.iter().zip(weights) {
            for outcome in &self.outcomes[window.range.clone()] {
                edges[outcome.edge.0 as usize] += weight;
            }
        }
        edges
    }

    /// The tree of all fragments.
    fn tree(&self, weights: &[f64]) -> Trie {
        let graph = &self.graph;
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
