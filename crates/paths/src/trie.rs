//! Paths and fragments that share their beginnings, with a weight at each node.

use crate::graph::{BlockId, EdgeId, Graph, SiteId};
use crate::path::Path;
use rustc_hash::FxHashMap;

/// Index of a [`Node`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(u32);

const NO_NODE: NodeId = NodeId(u32::MAX);
const NO_EDGE: EdgeId = EdgeId(u32::MAX);

/// A sequence of outcomes from a root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    /// The node before the last outcome, `None` at a root.
    pub parent: Option<NodeId>,
    /// The last outcome; unused at a root.
    pub edge: EdgeId,
    /// Weight that came here.
    pub reached: f64,
    /// The weight of the paths that ended here.
    pub ended: f64,
    /// Conditional branches have two outcomes, so most nodes need no table.
    children: [(EdgeId, NodeId); 2],
}

/// Where a fragment begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// At the start of its path.
    Start(BlockId),
    /// Within its path, before this instruction.
    Before(SiteId),
}

#[derive(Debug, Default)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
    roots: Vec<(Origin, NodeId)>,
    starts: Vec<NodeId>,
    befores: FxHashMap<SiteId, NodeId>,
    more_children: FxHashMap<(NodeId, EdgeId), NodeId>,
}

impl Trie {
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    fn add(&mut self, parent: Option<NodeId>, edge: EdgeId) -> NodeId {
        let children = [(NO_EDGE, NO_NODE); 2];
        self.nodes.push(Node { parent, edge, reached: 0.0, ended: 0.0, children });
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Returns the root of an origin, added if it is new.
    pub fn root(&mut self, origin: Origin) -> NodeId {
        if let Some(known) = self.root_of(origin) {
            return known;
        }
        let id = self.add(None, NO_EDGE);
        self.roots.push((origin, id));
        match origin {
            Origin::Start(BlockId(block)) => {
                let block = block as usize;
                self.starts.resize(self.starts.len().max(block + 1), NO_NODE);
                self.starts[block] = id;
            }
            Origin::Before(site) => _ = self.befores.insert(site, id),
        }
        id
    }

    /// Returns the root of an origin, if there is one.
    pub fn root_of(&self, origin: Origin) -> Option<NodeId> {
        match origin {
            Origin::Start(BlockId(block)) => {
                self.starts.get(block as usize).copied().filter(|&id| id != NO_NODE)
            }
            Origin::Before(site) => self.befores.get(&site).copied(),
        }
    }

    /// Returns the node after an outcome, if there is one.
    pub fn child(&self, node: NodeId, edge: EdgeId) -> Option<NodeId> {
        let children = &self.node(node).children;
        if children[0].0 == edge {
            return Some(children[0].1);
        }
        if children[1].0 == edge {
            return Some(children[1].1);
        }
        if children[1].0 == NO_EDGE { None } else { self.more_children.get(&(node, edge)).copied() }
    }

    /// Returns the node after an outcome, added if it is new.
    pub fn child_or_new(&mut self, node: NodeId, edge: EdgeId) -> NodeId {
        if let Some(known) = self.child(node, edge) {
            return known;
        }
        let id = self.add(Some(node), edge);
        match self.node_mut(node).children.iter_mut().find(|(edge, _)| *edge == NO_EDGE) {
            Some(free) => *free = (edge, id),
            None => _ = self.more_children.insert((node, edge), id),
        }
        id
    }

    /// Calls `each` with every path from a start that ended somewhere, and its weight.
    pub fn ended_paths(&self, graph: &Graph, mut each: impl FnMut(Path, f64)) {
        let starts: FxHashMap<NodeId, BlockId> = self.roots.iter().filter_map(start_of).collect();
        for mut at in self.ids() {
            let weight = self.node(at).ended;
            if weight == 0.0 {
                continue;
            }
            let mut steps = Vec::new();
            while let Some(parent) = self.node(at).parent {
                steps.extend(graph.edge_of(self.node(at).edge).step);
                at = parent;
            }
            if let Some(&block) = starts.get(&at) {
                steps.reverse();
                each(Path { start: graph.block(block).start, steps: steps.into() }, weight);
            }
        }
    }
}

fn start_of(&(origin, node): &(Origin, NodeId)) -> Option<(NodeId, BlockId)> {
    match origin {
        Origin::Start(block) => Some((node, block)),
        Origin::Before(_) => None,
    }
}
