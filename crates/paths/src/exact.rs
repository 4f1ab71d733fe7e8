//! Exact path counts from a whole trace.
//!
//! The trace is every basic block that a thread executed, in order, as an emulator reports them. The
//! successors of a block are cached per site ([`crate::graph`]), and an unfinished path is a node in a tree
//! of all paths so far, so counting takes two short look-ups per block.

use crate::graph::{BlockId, EdgeId, Graph};
use crate::profile::PathProfile;
use crate::program::Program;
use crate::trie::{NodeId, Origin, Trie};
use crate::window::Location;

/// The position of one thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadPosition {
    place: Place,
    /// The unfinished path; `None` until the first boundary.
    path: Option<NodeId>,
}

#[derive(Debug, Clone, Copy, Default)]
enum Place {
    /// Unknown: the thread has just appeared, or its trace broke.
    #[default]
    Unknown,
    /// In code that the program does not have; a transfer from there begins a path.
    Outside,
    /// Within this block: the trace's blocks may be shorter than those of the graph.
    Within(BlockId),
    /// This block's last instruction was executed.
    Behind(BlockId),
}

/// Counts the paths of one program over all its threads. Code that the program does not have (a module left
/// out on purpose) counts as called and returned from.
///
/// The tree of paths has at most the given number of nodes, about 48 bytes each. Beyond that, new paths count
/// towards the total only; earlier ones, and so all that are frequent from the start, are still counted.
pub struct PathCounter<'p> {
    graph: Graph<'p>,
    trie: Trie,
    places_max: usize,
    edges: Vec<u64>,
    paths: u64,
    not_stored: u64,
    breaks: u64,
}

impl<'p> PathCounter<'p> {
    /// Makes a counter. 2²⁴ is a good `places_max`: under 1 GiB.
    pub fn new(program: &'p dyn Program, places_max: usize) -> Self {
        let graph = Graph::new(program);
        Self {
            graph,
            trie: Trie::default(),
            places_max,
            edges: Vec::new(),
            paths: 0,
            not_stored: 0,
            breaks: 0,
        }
    }

    /// Takes in that a thread executed the instructions from `start` to `last` in a straight line.
    pub fn block(&mut self, thread: &mut ThreadPosition, start: Location, last: Location) {
        let block = match thread.place {
            Place::Behind(block) => self.went(thread, block, start),
            Place::Within(block) if self.holds(block, start) => Some(block),
            Place::Outside => self.begin_path(thread, start),
            Place::Unknown => self.graph.block_at(start),
            Place::Within(_) => self.lose(thread, start),
        };
        thread.place = match block {
            None => Place::Outside,
            Some(block) if self.graph.site(self.graph.block(block).site).at == last => Place::Behind(block),
            Some(block) if self.holds(block, last) => Place::Within(block),
            Some(_) => {
                _ = self.lose(thread, start);
                Place::Unknown
            }
        };
    }

    fn holds(&self, block: BlockId, at: Location) -> bool {
        let block = self.graph.block(block);
        let last = self.graph.site(block.site).at;
        at.module == last.module && (block.start.address..=last.address).contains(&at.address)
    }

    /// Takes in that the trace does not continue as the code says (mostly a signal's handler): the unfinished
    /// path is lost.
    #[cold]
    fn lose(&mut self, thread: &mut ThreadPosition, start: Location) -> Option<BlockId> {
        self.breaks += 1;
        thread.path = None;
        self.graph.block_at(start)
    }

    fn begin_path(&mut self, thread: &mut ThreadPosition, start: Location) -> Option<BlockId> {
        let block = self.graph.block_at(start);
        thread.path = block.map(|block| self.trie.root(Origin::Start(block)));
        block
    }

    fn went(&mut self, thread: &mut ThreadPosition, from: BlockId, to: Location) -> Option<BlockId> {
        let site = self.graph.block(from).site;
        let Some(id) = self.graph.edge(site, to) else { return self.lose(thread, to) };
        let edge = *self.graph.edge_of(id);
        self.count_edge(id);
        if edge.step.is_some() {
            thread.path = thread.path.and_then(|path| self.step(path, id));
        }
        if edge.boundary.is_some() {
            self.paths += 1;
            if let Some(path) = thread.path {
                self.trie.node_mut(path).ended += 1.0;
            } else {
                self.not_stored += 1;
            }
            thread.path = edge.block.map(|block| self.trie.root(Origin::Start(block)));
        }
        edge.block
    }

    fn count_edge(&mut self, EdgeId(id): EdgeId) {
        let id = id as usize;
        if id >= self.edges.len() {
            self.edges.resize(id + 1, 0);
        }
        self.edges[id] += 1;
    }

    fn step(&mut self, path: NodeId, edge: EdgeId) -> Option<NodeId> {
        let known = self.trie.child(path, edge);
        if known.is_some() || self.trie.len() >= self.places_max {
            return known;
        }
        Some(self.trie.child_or_new(path, edge))
    }

    /// Returns the number of paths so far.
    pub fn paths(&self) -> u64 {
        self.paths
    }

    /// Returns the number of these whose identity is unknown: their beginning was not seen, or the tree was
    /// full.
    pub fn without_identity(&self) -> u64 {
        self.not_stored
    }

    /// Returns how often a trace did not continue as the code says.
    pub fn breaks(&self) -> u64 {
        self.breaks
    }

    /// Returns the counts. Unfinished paths are not included.
    pub fn profile(&self) -> PathProfile {
        let mut profile = PathProfile { total: self.paths as f64, ..PathProfile::default() };
        self.trie.ended_paths(&self.graph, |path, count| *profile.paths.entry(path).or_default() += count);
        for (id, edge) in self.graph.edges() {
            let count = self.edges.get(id.0 as usize).copied().unwrap_or(0);
            if count > 0 {
                profile.edges.insert((self.graph.site(edge.site).at, edge.to), count as f64);
            }
        }
        profile
    }
}
