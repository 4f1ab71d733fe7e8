//! The code around a sampled instruction as a graph: which instructions may follow each other, through calls
//! and back.

use corewise_code::{Code, Flow, Instruction, Role, Store, Unit};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Instructions looked at: several rounds of the longest wait loop known (libomp's, 70 instructions and what
/// they call).
pub const NODES_MAX: usize = 1024;

/// Calls that are entered within each other.
const CALL_DEPTH_MAX: u32 = 4;

/// An instruction, reached with certain calls entered.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    pub address: u64,
    /// Index of the innermost call entered; 0 is the function of the sample.
    pub call: usize,
    pub instruction: Instruction,
    /// The nodes that may come next.
    next: [Option<usize>; 2],
    /// Whether it does what no wait does, by itself.
    pub works: bool,
    /// Whether it calls what is not known.
    pub calls_unknown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Call {
    returns_to: u64,
    caller: usize,
    depth: u32,
}

/// See the module. Node 0 is the sampled instruction.
pub struct Graph {
    pub nodes: Vec<Node>,
}

struct Explorer<'a, C: Code> {
    code: &'a mut C,
    calls: Vec<Call>,
    nodes: Vec<Node>,
    known: FxHashMap<(u64, usize), usize>,
    /// Whether to go on behind instructions that work.
    through_work: bool,
    /// Nodes to be expanded: those of the sample's own function, and later those of functions called.
    queue: VecDeque<usize>,
    called: VecDeque<usize>,
}

impl Graph {
    /// Looks at the code from `start` on, its own function and the nearest first. `None` if there is no
    /// instruction.
    pub fn explore<C: Code>(code: &mut C, start: u64, through_work: bool) -> Option<Graph> {
        let mut explorer = Explorer {
            code,
            calls: vec![Call { returns_to: 0, caller: 0, depth: 0 }],
            nodes: Vec::new(),
            known: FxHashMap::default(),
            through_work,
            queue: VecDeque::new(),
            called: VecDeque::new(),
        };
        explorer.node(start, 0)?;
        while let Some(index) = explorer.queue.pop_front().or_else(|| explorer.called.pop_front()) {
            explorer.expand(index);
        }
        Some(Graph { nodes: explorer.nodes })
    }

    pub fn next(&self, index: usize) -> impl Iterator<Item = usize> {
        self.nodes[index].next.into_iter().flatten()
    }

    /// Whether a node's instruction sees what may change from outside, or pauses: memory, the
    /// clock, a pause, or a function that is not entered.
    pub fn looks(&self, node: usize) -> bool {
        let Node { address, call, instruction, .. } = self.nodes[node];
        let behind = (address + u64::from(instruction.length), call);
        let is_at = |next: usize| (self.nodes[next].address, self.nodes[next].call) == behind;
        let is_passed = match instruction.flow {
            Flow::Call(_) | Flow::CallThrough(_) | Flow::CallAnywhere => self.next(node).any(is_at),
            Flow::JumpThrough(_) => true,
            _ => false,
        };
        let loads = instruction.loads && instruction.flow != Flow::Return;
        loads || instruction.waits || instruction.reads_clock || is_passed
    }

    /// Whether a way leads from a node back to it, by nodes that `allowed` names.
    pub fn returns(&self, node: usize, allowed: &[bool]) -> bool {
        let mut known = vec![false; self.nodes.len()];
        let mut open = vec![node];
        while let Some(index) = open.pop() {
            for next in self.next(index).filter(|&next| allowed[next]) {
                if next == node {
                    return true;
                }
                if !std::mem::replace(&mut known[next], true) {
                    open.push(next);
                }
            }
        }
        false
    }

    /// The nodes that lie on a way from node 0 back to it, by nodes that `allowed` names. Empty if there is
    /// none.
    pub fn circle(&self, allowed: &[bool]) -> Vec<usize> {
        // Chains of ways into each node: a way's node of origin, and the next way.
        let (mut into, mut ways) = (vec![None; self.nodes.len()], Vec::with_capacity(2 * self.nodes.len()));
        let mut ahead = vec![false; self.nodes.len()];
        let mut open = if allowed[0] { vec![0] } else { Vec::new() };
        while let Some(index) = open.pop() {
            for next in self.next(index).filter(|&next| allowed[next]) {
                ways.push((index, into[next].replace(ways.len())));
                if !std::mem::replace(&mut ahead[next], true) && next != 0 {
                    open.push(next);
                }
            }
        }
        let mut behind = vec![false; self.nodes.len()];
        let mut open = vec![0];
        while let Some(index) = open.pop() {
            let mut way = into[index];
            while let Some((before, other)) = way.map(|way| ways[way]) {
                if !std::mem::replace(&mut behind[before], true) && before != 0 {
                    open.push(before);
                }
                way = other;
            }
        }
        (0..self.nodes.len()).filter(|&index| behind[index]).collect()
    }
}

impl<C: Code> Explorer<'_, C> {
    /// The node of an instruction; new ones are noted to be expanded.
    fn node(&mut self, address: u64, call: usize) -> Option<usize> {
        if let Some(&known) = self.known.get(&(address, call)) {
            return Some(known);
        }
        if self.nodes.len() == NODES_MAX {
            return None;
        }
        let instruction = self.code.instruction(address)?;
        let works = works(&instruction);
        self.nodes.push(Node { address, call, instruction, next: [None; 2], works, calls_unknown: false });
        let index = self.nodes.len() - 1;
        self.known.insert((address, call), index);
        if call == 0 {
            self.queue.push_back(index)
        } else {
            self.called.push_back(index)
        }
        Some(index)
    }

    fn expand(&mut self, index: usize) {
        let Node { address, call, instruction, works, .. } = self.nodes[index];
        if works && !self.through_work {
            return;
        }
        let behind = address + u64::from(instruction.length);
        let at = |displacement: i64| address.wrapping_add_signed(displacement);
        let next = match instruction.flow {
            Flow::Next | Flow::Kernel => [self.node(behind, call), None],
            Flow::CallAnywhere => match self.code.always_leads_to(address) {
                Some(target) => [self.enter(index, Some(target), behind), None],
                None => {
                    self.nodes[index].calls_unknown = true;
                    [self.node(behind, call), None]
                }
            },
            Flow::Jump(displacement) => [self.node(at(displacement), call), None],
            Flow::Branch(displacement) => [self.node(at(displacement), call), self.node(behind, call)],
            // A function that only looks leaves nothing behind.
            Flow::JumpThrough(slot) if call != 0 && self.is_known(address, at(slot)) => {
                let Call { returns_to, caller, .. } = self.calls[call];
                [self.node(returns_to, caller), None]
            }
            Flow::CallThrough(slot) if self.is_known(address, at(slot)) => [self.node(behind, call), None],
            Flow::JumpThrough(slot) => {
                [self.code.pointer(at(slot)).and_then(|target| self.node(target, call)), None]
            }
            Flow::Call(displacement) => [self.enter(index, Some(at(displacement)), behind), None],
            Flow::CallThrough(slot) => {
                let target = self.code.pointer(at(slot));
                [self.enter(index, target, behind), None]
            }
            Flow::Return if call != 0 => {
                let Call { returns_to, caller, .. } = self.calls[call];
                [self.node(returns_to, caller), None]
            }
            Flow::Return | Flow::JumpAnywhere => [None; 2],
        };
        self.nodes[index].next = next;
    }

    /// Whether the slot's function has a name that says that it waits or looks.
    fn is_known(&mut self, user: u64, slot: u64) -> bool {
        self.code.role_of_slot(user, slot) != Role::Unknown
    }

    /// The first instruction of the function called, or what comes behind one that only looks or waits.
    /// What is not known or too deep is work.
    fn enter(&mut self, index: usize, target: Option<u64>, returns_to: u64) -> Option<usize> {
        let caller = self.nodes[index].call;
        if target.is_some_and(|target| self.code.role(target) != Role::Unknown) {
            return self.node(returns_to, caller);
        }
        let call = Call { returns_to, caller, depth: self.calls[caller].depth + 1 };
        let entered = match self.calls.iter().position(|&known| known == call) {
            Some(known) => Some(known),
            None if call.depth <= CALL_DEPTH_MAX => {
                self.calls.push(call);
                Some(self.calls.len() - 1)
            }
            None => None,
        };
        if let (Some(target), Some(entered)) = (target, entered)
            && let Some(first) = self.node(target, entered)
        {
            return Some(first);
        }
        self.nodes[index].works = true;
        if self.through_work { self.node(returns_to, caller) } else { None }
    }
}

/// Computing with the vector unit, changing what memory holds, asking the kernel.
pub fn works(instruction: &Instruction) -> bool {
    instruction.unit != Unit::None
        || (instruction.store == Store::Data && instruction.loads)
        || instruction.flow == Flow::Kernel
}
