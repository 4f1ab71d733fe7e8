//! The control-flow graph of the executed code, decoded as it is reached, and cached.
//!
//! Everything that follows control through a program asks the same two questions millions of times: which
//! instruction ends the straight line that begins here, and what does a transfer from it to a location mean.
//! Both answers are static, so each is computed once and is then an index.

use crate::path::{Boundary, Path, Step};
use crate::program::Program;
use crate::window::Location;
use corewise_core::code::Flow;
use rustc_hash::FxHashMap;

/// Index of a [`Block`] in its [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub(crate) u32);

/// Index of a [`Site`] in its [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteId(pub(crate) u32);

/// Index of an [`Edge`] in its [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EdgeId(pub(crate) u32);

/// A straight line of instructions up to the next control transfer. Blocks that begin at different places may
/// share their end.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// Its first instruction.
    pub start: Location,
    /// Its last instruction.
    pub site: SiteId,
    /// The number of its instructions, including the last.
    pub instructions: u32,
}

/// A control-transfer instruction.
#[derive(Debug)]
pub struct Site {
    /// Its location.
    pub at: Location,
    /// The address after it.
    pub after: u64,
    /// Its possible successors.
    pub exit: Exit,
    /// Start of its function.
    function: Option<u64>,
    /// The ways out of it that were taken, in the order of their first occurrence.
    pub edges: Vec<EdgeId>,
}

impl Site {
    /// Returns whether a path can continue from here in more than one way.
    pub fn has_choice(&self) -> bool {
        match self.exit {
            Exit::Branch(_) | Exit::JumpAnywhere => true,
            Exit::Jump(_) | Exit::Call(_) | Exit::Return | Exit::Unknown => false,
        }
    }
}

/// The possible successors of a block's last instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// To this address or to the next instruction.
    Branch(u64),
    /// To this address.
    Jump(u64),
    /// To an address that only the running program knows.
    JumpAnywhere,
    /// Into a function; its address if the code contains it.
    Call(Option<u64>),
    /// Back to a caller.
    Return,
    /// The following bytes are not an instruction, or the straight line is absurdly long.
    Unknown,
}

/// One way out of a site.
#[derive(Debug, Clone, Copy)]
pub struct Edge {
    /// The site.
    pub site: SiteId,
    /// The destination.
    pub to: Location,
    /// The block there, if there is code.
    pub block: Option<BlockId>,
    /// What it adds to the path; `None` if the code leaves no choice, or if it leaves the function.
    pub step: Option<Step>,
    /// Why a path ends here and the next begins at `to`; `None` if the path continues.
    pub boundary: Option<Boundary>,
}

/// No compiler emits such a long straight line; data that is taken for code can be one.
const BLOCK_MAX: u32 = 1 << 16;
/// Sites with more ways out (returns, interpreters' jumps) are looked up in a table.
const SCANNED_EDGES: usize = 4;

/// The blocks, sites and edges so far, over a [`Program`].
pub struct Graph<'p> {
    program: &'p dyn Program,
    blocks: Vec<Block>,
    sites: Vec<Site>,
    edges: Vec<Edge>,
    block_at: FxHashMap<Location, Option<BlockId>>,
    site_at: FxHashMap<Location, SiteId>,
    edge_to: FxHashMap<(SiteId, Location), EdgeId>,
}

impl<'p> Graph<'p> {
    /// Makes an empty graph of a program.
    pub fn new(program: &'p dyn Program) -> Self {
        Self {
            program,
            blocks: Vec::new(),
            sites: Vec::new(),
            edges: Vec::new(),
            block_at: FxHashMap::default(),
            site_at: FxHashMap::default(),
            edge_to: FxHashMap::default(),
        }
    }

    /// Returns the block that begins at a location; `None` if there is no instruction.
    pub fn block_at(&mut self, start: Location) -> Option<BlockId> {
        if let Some(&known) = self.block_at.get(&start) {
            return known;
        }
        let decoded = self.decode(start);
        self.block_at.insert(start, decoded);
        decoded
    }

    fn decode(&mut self, start: Location) -> Option<BlockId> {
        let mut at = start;
        let mut instruction = self.program.instruction(at)?;
        for instructions in 1.. {
            let address = at.address;
            let to = |displacement: i64| address.wrapping_add_signed(displacement);
            let after = address.wrapping_add(u64::from(instruction.length));
            let next = Location { address: after, ..at };
            let exit = match instruction.flow {
                Flow::Branch(by) => Exit::Branch(to(by)),
                Flow::Jump(by) => Exit::Jump(to(by)),
                Flow::JumpThrough(_) | Flow::JumpAnywhere => Exit::JumpAnywhere,
                Flow::Call(by) => Exit::Call(Some(to(by))),
                Flow::CallThrough(_) | Flow::CallAnywhere => Exit::Call(None),
                Flow::Return => Exit::Return,
                Flow::Next | Flow::Kernel if instructions == BLOCK_MAX || instruction.length == 0 => {
                    Exit::Unknown
                }
                Flow::Next | Flow::Kernel => match self.program.instruction(next) {
                    None => Exit::Unknown,
                    Some(following) => {
                        (at, instruction) = (next, following);
                        continue;
                    }
                },
            };
            let site = self.intern_site(at, after, exit);
            self.blocks.push(Block { start, site, instructions });
            return Some(BlockId(self.blocks.len() as u32 - 1));
        }
        unreachable!("a block has at most {BLOCK_MAX} instructions")
    }

    fn intern_site(&mut self, at: Location, after: u64, exit: Exit) -> SiteId {
        let Self { program, sites, site_at, .. } = self;
        *site_at.entry(at).or_insert_with(|| {
            let function = program.function(at).map(|function| function.start);
            sites.push(Site { at, after, exit, function, edges: Vec::new() });
            SiteId(sites.len() as u32 - 1)
        })
    }

    /// Returns the edge from a site to a location; `None` if the code does not allow it.
    pub fn edge(&mut self, site: SiteId, to: Location) -> Option<EdgeId> {
        let edges = &self.sites[site.0 as usize].edges;
        let known = if edges.len() <= SCANNED_EDGES {
            edges.iter().copied().find(|edge| self.edges[edge.0 as usize].to == to)
        } else {
            self.edge_to.get(&(site, to)).copied()
        };
        known.or_else(|| self.add_edge(site, to))
    }

    fn add_edge(&mut self, site: SiteId, to: Location) -> Option<EdgeId> {
        let from = &self.sites[site.0 as usize];
        let same_module = from.at.module == to.module;
        let step = match from.exit {
            Exit::Branch(_) if same_module && to.address == from.after => Some(Step::NotTaken),
            Exit::Branch(target) if same_module && to.address == target => Some(Step::Taken),
            Exit::Jump(target) if same_module && to.address == target => None,
            Exit::JumpAnywhere => Some(Step::To(to.address)),
            Exit::Call(None) | Exit::Return => None,
            Exit::Call(Some(target)) if same_module && to.address == target => None,
            Exit::Branch(_) | Exit::Jump(_) | Exit::Call(Some(_)) | Exit::Unknown => return None,
        };
        let boundary = match from.exit {
            Exit::Call(_) => Some(Boundary::Call),
            Exit::Return => Some(Boundary::Return),
            Exit::Branch(_) if step == Some(Step::NotTaken) => None,
            Exit::Branch(_) | Exit::Jump(_) | Exit::JumpAnywhere | Exit::Unknown => {
                let function = self.program.function(to).map(|function| function.start);
                let inside = same_module && function == from.function;
                let backwards = to.address <= from.at.address;
                if inside { backwards.then_some(Boundary::BackEdge) } else { Some(Boundary::Jump) }
            }
        };
        // A path that leaves by an indirect jump ends at the jump, as one that calls ends at the call.
        let step = step.filter(|step| !(matches!(step, Step::To(_)) && boundary == Some(Boundary::Jump)));
        let block = self.block_at(to);
        let id = EdgeId(self.edges.len() as u32);
        self.edges.push(Edge { site, to, block, step, boundary });
        self.sites[site.0 as usize].edges.push(id);
        self.edge_to.insert((site, to), id);
        Some(id)
    }

    /// Returns a block of this graph.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    /// Returns all blocks so far.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter()
    }

    /// Returns a site of this graph.
    pub fn site(&self, id: SiteId) -> &Site {
        &self.sites[id.0 as usize]
    }

    /// Returns an edge of this graph.
    pub fn edge_of(&self, id: EdgeId) -> &Edge {
        &self.edges[id.0 as usize]
    }

    /// Returns all edges so far, in the order of their ids.
    pub fn edges(&self) -> impl Iterator<Item = (EdgeId, &Edge)> {
        self.edges.iter().enumerate().map(|(index, edge)| (EdgeId(index as u32), edge))
    }

    /// Returns the number of sites.
    pub fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// Returns the blocks of a path in order; `None` if the code has no such path.
    pub fn blocks_of(&mut self, path: &Path) -> Option<Vec<Block>> {
        let mut steps = path.steps.iter();
        let mut blocks = Vec::new();
        let mut at = self.block_at(path.start)?;
        loop {
            let block = *self.block(at);
            blocks.push(block);
            let site = self.site(block.site);
            let address = match (site.exit, steps.as_slice().first()) {
                (Exit::Jump(target), _) => target,
                (Exit::Branch(_), Some(Step::NotTaken)) => site.after,
                (Exit::Branch(target), Some(Step::Taken)) => target,
                (Exit::JumpAnywhere, Some(&Step::To(target))) => target,
                (Exit::JumpAnywhere | Exit::Call(_) | Exit::Return, None) => return Some(blocks),
                (Exit::Branch(_) | Exit::JumpAnywhere | Exit::Call(_) | Exit::Return | Exit::Unknown, _) => {
                    return None;
                }
            };
            let to = Location { address, ..site.at };
            let edge = self.edge(block.site, to)?;
            let edge = self.edge_of(edge);
            if edge.step.is_some() {
                steps.next();
            }
            if edge.boundary.is_some() {
                return steps.as_slice().is_empty().then_some(blocks);
            }
            at = edge.block?;
        }
    }
}
