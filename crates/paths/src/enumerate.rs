//! Lists all paths from a start whose flow matters.
//!
//! A path's flow is that of its start times the probabilities of its outcomes. From each start the code is
//! followed; at each branch the flow divides. A path only goes forwards, so this ends, and a branch whose
//! flow falls below the threshold is left, so there are at most 1 / threshold paths. A path need not have
//! been seen whole, so paths longer than any window are found, too.

use crate::context::Contexts;
use crate::graph::{BlockId, EdgeId, Exit, Graph};
use crate::path::Path;
use crate::trie::{NodeId, Origin, Trie};
use crate::window::Location;

/// The beginning of a path, up to a block.
struct Prefix {
    block: BlockId,
    /// Its node in the tree, while fragments reach so far.
    node: Option<NodeId>,
    /// The number of outcomes that it shares with the prefix handled before it.
    shared: usize,
    /// Its last outcome, which follows those.
    last: Option<EdgeId>,
    flow: f64,
}

pub(crate) struct Enumeration<'a, 'p> {
    pub graph: &'a mut Graph<'p>,
    pub trie: &'a Trie,
    pub contexts: &'a Contexts,
    /// The flow below which a path is not followed.
    pub flow_min: f64,
    /// The flow of paths that were not followed because of that.
    pub rare: f64,
    /// The flow of paths to places where no window shows the continuation.
    pub open: f64,
}

impl Enumeration<'_, '_> {
    /// Calls `each` with the paths that begin with a block, and their flow.
    pub fn paths_from(&mut self, start: BlockId, flow: f64, each: &mut impl FnMut(Path, f64)) {
        let node = self.trie.root_of(Origin::Start(start));
        let mut waiting = vec![Prefix { block: start, node, shared: 0, last: None, flow }];
        let mut history = Vec::new();
        while let Some(prefix) = waiting.pop() {
            history.truncate(prefix.shared);
            history.extend(prefix.last);
            let Some(block) = self.forced(prefix.block) else {
                self.open += prefix.flow;
                continue;
            };
            let site = self.graph.block(block).site;
            if !self.graph.site(site).has_choice() {
                each(self.path(start, &history, None), prefix.flow);
                continue;
            }
            let known = (self.trie, &*self.graph);
            let ways = self.contexts.probabilities(known, site, &history, prefix.node);
            if ways.is_empty() {
                self.open += prefix.flow;
            }
            for (edge, probability) in ways {
                let flow = prefix.flow * probability;
                let taken = self.graph.edge_of(edge);
                match taken.block {
                    _ if flow < self.flow_min => self.rare += flow,
                    _ if taken.boundary.is_some() => each(self.path(start, &history, Some(edge)), flow),
                    None => self.open += flow,
                    Some(block) => {
                        let node = prefix.node.and_then(|node| self.trie.child(node, edge));
                        waiting.push(Prefix { block, node, shared: history.len(), last: Some(edge), flow });
                    }
                }
            }
        }
    }

    /// Returns the block after direct jumps where the path ends or has a choice; `None` if the code ends.
    fn forced(&mut self, mut at: BlockId) -> Option<BlockId> {
        loop {
            let id = self.graph.block(at).site;
            let site = self.graph.site(id);
            match site.exit {
                Exit::Unknown => return None,
                Exit::Jump(address) => {
                    let to = Location { address, ..site.at };
                    let edge = self.graph.edge(id, to)?;
                    let edge = self.graph.edge_of(edge);
                    if edge.boundary.is_some() {
                        return Some(at);
                    }
                    at = edge.block?;
                }
                Exit::Branch(_) | Exit::JumpAnywhere | Exit::Call(_) | Exit::Return => return Some(at),
            }
        }
    }

    fn path(&self, start: BlockId, history: &[EdgeId], last: Option<EdgeId>) -> Path {
        let edges = history.iter().copied().chain(last);
        let steps = edges.filter_map(|edge| self.graph.edge_of(edge).step).collect();
        Path { start: self.graph.block(start).start, steps }
    }
}
