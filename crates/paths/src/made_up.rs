//! Made-up programs with random branches, for tests and benchmarks. The truth about their paths is known, and
//! windows can be cut from their trace as by a sampler.

use crate::path::{Path, Step};
use crate::program::{Function, Program};
use crate::window::{End, Location, ModuleId, Transfer, Window};
use corewise_core::code::{Flow, Instruction, StackMove, Store, Unit};
use corewise_core::random::Random;
use std::collections::BTreeMap;

/// One instruction, or several plain ones. Targets are indices into the function's list of operations.
#[derive(Debug, Clone, Copy)]
pub enum Op {
    /// This many instructions without a transfer.
    Plain(u32),
    /// One plain instruction that takes as long as this many.
    Slow(u32),
    /// A conditional branch.
    Branch(usize, Decide),
    /// A jump within the function.
    Jump(usize),
    /// An indirect jump to one of two places.
    Switch(usize, usize, Decide),
    /// A call of a function.
    Call(usize),
    /// An indirect call of one of two functions.
    CallEither(usize, usize),
    /// A jump to another function.
    TailCall(usize),
    /// Back to after the call.
    Return,
    /// Windows end before it.
    SystemCall,
}

/// The rule of a branch. An activation remembers bits.
#[derive(Debug, Clone, Copy)]
pub enum Decide {
    /// Taken with this probability.
    Chance(f64),
    /// The same, and remembered.
    Remember(usize, f64),
    /// As remembered.
    Recall(usize),
    /// By the thread's count: taken in all but every n-th execution.
    AllBut(u32),
}

/// The time of a misprediction, in those of an instruction.
const MISPREDICTION: u64 = 60;

/// Bytes of every instruction.
pub const LENGTH: u64 = 4;

#[derive(Debug, Clone, Copy)]
struct Code {
    op: Op,
    function: usize,
    cost: u32,
    /// The Branch's, Jump's or Switch's targets, as indices of code.
    targets: [usize; 2],
}

/// A program and what decides its branches.
pub struct World {
    code: Vec<Code>,
    starts: Vec<usize>,
    functions: Vec<Function>,
    modules: Vec<ModuleId>,
}

/// The instructions of a run, as indices of code.
pub struct Trace(pub Vec<u32>);

impl World {
    /// Functions with the number of their module; the first is where execution begins.
    pub fn new(functions: &[(u32, Vec<Op>)]) -> Self {
        let mut world =
            Self { code: Vec::new(), starts: Vec::new(), functions: Vec::new(), modules: Vec::new() };
        for (function, (module, ops)) in functions.iter().enumerate() {
            let begin = world.code.len();
            let mut places = Vec::new();
            let mut at = begin;
            for op in ops {
                places.push(at);
                at += if let Op::Plain(count) = op { *count as usize } else { 1 };
            }
            for &op in ops {
                let (count, cost) = match op {
                    Op::Plain(count) => (count, 1),
                    Op::Slow(cost) => (1, cost),
                    _ => (1, 1),
                };
                let targets = match op {
                    Op::Branch(to, _) | Op::Jump(to) => [places[to]; 2],
                    Op::Switch(one, other, _) => [places[other], places[one]],
                    _ => [0; 2],
                };
                world.code.extend((0..count).map(|_| Code { op, function, cost, targets }));
            }
            let address = |index: usize| 0x1000 + index as u64 * LENGTH;
            let name = Some(format!("f{function}"));
            world.functions.push(Function { name, start: address(begin), end: address(world.code.len()) });
            world.starts.push(begin);
            world.modules.push(ModuleId(*module));
        }
        world
    }

    /// Returns the location of an instruction, by its index.
    pub fn location(&self, index: usize) -> Location {
        let module = self.modules[self.code[index].function];
        Location { module, address: 0x1000 + index as u64 * LENGTH }
    }

    fn index(&self, at: Location) -> Option<usize> {
        let index = (at.address.checked_sub(0x1000)? / LENGTH) as usize;
        let aligned = at.address.is_multiple_of(LENGTH);
        (index < self.code.len() && aligned && self.location(index) == at).then_some(index)
    }

    /// Returns the location of operation `op` of a function, given the list of operations that it was made
    /// from.
    pub fn place(&self, function: usize, ops: &[Op], op: usize) -> Location {
        let before = ops[..op].iter().map(|op| if let Op::Plain(count) = op { *count as usize } else { 1 });
        self.location(self.starts[function] + before.sum::<usize>())
    }

    /// Executes this many instructions.
    pub fn run(&self, random: &mut Random, instructions: usize) -> Trace {
        let mut trace = Vec::with_capacity(instructions);
        let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
        let mut stack: Vec<(usize, [bool; 8])> = Vec::new();
        let (mut at, mut bits) = (0, [false; 8]);
        while trace.len() < instructions {
            trace.push(at as u32);
            let mut decide = |by: Decide, bits: &mut [bool; 8]| match by {
                Decide::Chance(chance) => random.unit() < chance,
                Decide::Remember(bit, chance) => {
                    bits[bit] = random.unit() < chance;
                    bits[bit]
                }
                Decide::Recall(bit) => bits[bit],
                Decide::AllBut(period) => {
                    let count = counts.entry(at).or_default();
                    *count = (*count + 1) % period;
                    *count != 0
                }
            };
            let Code { op, targets, .. } = self.code[at];
            let called = match op {
                Op::Call(function) | Op::TailCall(function) => Some(function),
                Op::CallEither(one, other) => {
                    Some(if decide(Decide::Chance(0.5), &mut bits) { one } else { other })
                }
                _ => None,
            };
            at = match op {
                Op::Plain(_) | Op::Slow(_) | Op::SystemCall => at + 1,
                Op::Branch(_, by) => {
                    if decide(by, &mut bits) {
                        targets[1]
                    } else {
                        at + 1
                    }
                }
                Op::Switch(_, _, by) => targets[usize::from(decide(by, &mut bits))],
                Op::Jump(_) => targets[0],
                Op::Call(_) | Op::CallEither(..) | Op::TailCall(_) => {
                    if !matches!(op, Op::TailCall(_)) {
                        stack.push((at + 1, bits));
                    }
                    bits = [false; 8];
                    self.starts[called.unwrap()]
                }
                Op::Return => {
                    let (back, theirs) = stack.pop().expect("the first function does not return");
                    bits = theirs;
                    back
                }
            };
        }
        Trace(trace)
    }

    fn is_transfer(&self, index: usize) -> bool {
        !matches!(self.code[index].op, Op::Plain(_) | Op::Slow(_) | Op::SystemCall)
    }

    /// Returns whether control went elsewhere than to the next instruction, or could have.
    fn taken(&self, trace: &[u32], at: usize) -> bool {
        let index = trace[at] as usize;
        let falls = trace[at + 1] as usize == index + 1;
        self.is_transfer(index) && !(falls && matches!(self.code[index].op, Op::Branch(..)))
    }

    /// Returns whether a branch went the less probable way.
    fn is_mispredicted(&self, trace: &[u32], at: usize) -> bool {
        let Code { op, targets, .. } = self.code[trace[at] as usize];
        let by = match op {
            Op::Branch(_, by) | Op::Switch(_, _, by) => by,
            Op::CallEither(..) => Decide::Chance(0.5),
            _ => return false,
        };
        let went = trace.get(at + 1).map(|&next| next as usize);
        match by {
            Decide::Chance(chance) | Decide::Remember(_, chance) => {
                went.is_some_and(|went| (went == targets[1]) != (chance >= 0.5))
            }
            // Rare enough that no history predicts it.
            Decide::AllBut(period) => period > 32 && went != Some(targets[1]),
            Decide::Recall(_) => false,
        }
    }

    /// Cuts windows of this many branches, beginning uniformly in time.
    pub fn windows(&self, trace: &Trace, random: &mut Random, count: usize, branches: u32) -> Vec<Window> {
        let Trace(trace) = trace;
        let mut clock = 0;
        let times: Vec<u64> = (0..trace.len())
            .map(|at| {
                clock += u64::from(self.code[trace[at] as usize].cost);
                clock += if self.is_mispredicted(trace, at) { MISPREDICTION } else { 0 };
                clock
            })
            .collect();
        let mut windows = Vec::new();
        while windows.len() < count {
            let time = (random.unit() * clock as f64) as u64;
            let begin = times.partition_point(|&end| end <= time);
            windows.extend(self.window(trace, begin, time, branches));
        }
        windows.sort_by_key(|window| window.time_ns);
        windows
    }

    fn window(&self, trace: &[u32], begin: usize, time_ns: u64, branches_max: u32) -> Option<Window> {
        let (mut transfers, mut branches) = (Vec::new(), 0);
        let mut at = begin;
        let mut ended = End::Full;
        while branches < branches_max {
            if at + 1 >= trace.len() {
                return None;
            }
            let (here, next) = (trace[at] as usize, trace[at + 1] as usize);
            if matches!(self.code[here].op, Op::SystemCall) {
                ended = End::SystemCall;
                break;
            }
            branches += u32::from(self.is_transfer(here));
            if self.taken(trace, at) {
                transfers.push(Transfer { from: self.location(here), to: self.location(next) });
            }
            at += 1;
        }
        let start = self.location(trace[begin] as usize);
        let end = self.location(trace[at] as usize);
        let instructions = Some((at - begin) as u32);
        let (tid, branches, period_ns) = (1, Some(branches), None);
        Some(Window { tid, time_ns, start, transfers, end, instructions, branches, ended, period_ns })
    }

    /// Returns the basic blocks of a trace, like an emulator that cuts them into at most `longest`
    /// instructions.
    pub fn blocks(&self, trace: &Trace, longest: usize) -> Vec<(Location, Location)> {
        let mut blocks = Vec::new();
        let mut begin = 0;
        for at in 0..trace.0.len() {
            if self.is_transfer(trace.0[at] as usize) || at + 1 - begin == longest {
                blocks.push((self.location(trace.0[begin] as usize), self.location(trace.0[at] as usize)));
                begin = at + 1;
            }
        }
        if let Some(&at) = trace.0.get(begin) {
            let last = trace.0[trace.0.len() - 1];
            blocks.push((self.location(at as usize), self.location(last as usize)));
        }
        blocks
    }

    /// Counts paths by their definition, straight from the trace, from the first boundary on.
    pub fn paths_by_definition(&self, trace: &Trace) -> BTreeMap<Path, u64> {
        let Trace(trace) = trace;
        let mut counts = BTreeMap::new();
        let mut path: Option<(Location, Vec<Step>)> = None;
        for at in 0..trace.len() - 1 {
            let (here, next) = (trace[at] as usize, trace[at + 1] as usize);
            let taken = self.taken(trace, at);
            let inside = self.code[here].function == self.code[next].function;
            let step = match self.code[here].op {
                Op::Branch(..) => Some(if taken { Step::Taken } else { Step::NotTaken }),
                Op::Switch(..) => Some(Step::To(self.location(next).address)),
                _ => None,
            };
            if let (Some(step), Some((_, steps))) = (step, &mut path) {
                steps.push(step);
            }
            let leaves = matches!(self.code[here].op, Op::Call(_) | Op::CallEither(..) | Op::Return);
            if leaves || taken && (!inside || next <= here) {
                if let Some((start, steps)) = path.take() {
                    *counts.entry(Path { start, steps: steps.into() }).or_insert(0) += 1;
                }
                path = Some((self.location(next), Vec::new()));
            }
        }
        counts
    }

    /// Counts the executions of each way out of each branch, by their definition.
    pub fn edges_by_definition(&self, trace: &Trace) -> BTreeMap<(Location, Location), u64> {
        let mut counts = BTreeMap::new();
        for pair in trace.0.windows(2).filter(|pair| self.is_transfer(pair[0] as usize)) {
            let edge = (self.location(pair[0] as usize), self.location(pair[1] as usize));
            *counts.entry(edge).or_insert(0) += 1;
        }
        counts
    }

    /// Makes a random program: calls go to later functions. A rough one has slow instructions and system
    /// calls.
    pub fn random(seed: u64, functions: usize, rough: bool) -> Self {
        let mut random = Random::new(seed, 0);
        let lists: Vec<_> =
            (0..functions).map(|own| random_function(&mut random, own, functions, rough)).collect();
        World::new(&lists)
    }
}

fn random_function(random: &mut Random, own: usize, functions: usize, rough: bool) -> (u32, Vec<Op>) {
    let length = 8 + random.below(24);
    let mut ops = vec![Op::Plain(1 + random.below(6) as u32)];
    while ops.len() < length {
        let here = ops.len();
        let later = here + 1 + random.below(length - here);
        let chance = [0.02, 0.1, 0.3, 0.5, 0.7, 0.95][random.below(6)];
        let bit = random.below(8);
        ops.push(match random.below(12) {
            0 if rough => Op::Slow(60),
            1 if rough && bit == 0 => Op::SystemCall,
            0..3 => Op::Plain(1 + random.below(12) as u32),
            3 => Op::Branch(later, Decide::Chance(chance)),
            4 => Op::Branch(later, Decide::Remember(bit, chance)),
            5 => Op::Branch(later, Decide::Recall(bit)),
            6 => Op::Branch(random.below(here), Decide::Chance(chance.min(0.7))),
            7 => Op::Branch(random.below(here), Decide::AllBut(2 + random.below(5) as u32)),
            8 => Op::Switch(later, here + 1 + random.below(length - here), Decide::Remember(bit, chance)),
            9 if own > 0 => Op::Plain(random.below(3) as u32 + 1),
            _ if own + 1 < functions => {
                let callee = own + 1 + random.below(functions - own - 1);
                if bit == 0 { Op::CallEither(callee, functions - 1) } else { Op::Call(callee) }
            }
            _ => Op::Plain(2),
        });
    }
    ops.push(if own == 0 { Op::Jump(0) } else { Op::Return });
    (u32::from(own % 3 == 2), ops)
}

impl Program for World {
    fn instruction(&self, at: Location) -> Option<Instruction> {
        let index = self.index(at)?;
        let by = |target: usize| (target as i64 - index as i64) * LENGTH as i64;
        let Code { op, targets, .. } = self.code[index];
        let flow = match op {
            Op::Plain(_) | Op::Slow(_) => Flow::Next,
            Op::SystemCall => Flow::Kernel,
            Op::Branch(..) => Flow::Branch(by(targets[0])),
            Op::Jump(_) => Flow::Jump(by(targets[0])),
            Op::Switch(..) => Flow::JumpAnywhere,
            // Modules do not know each other's addresses.
            Op::Call(to) | Op::TailCall(to) if self.modules[to] != at.module => match op {
                Op::Call(_) => Flow::CallThrough(0),
                _ => Flow::JumpThrough(0),
            },
            Op::Call(to) => Flow::Call(by(self.starts[to])),
            Op::TailCall(to) => Flow::Jump(by(self.starts[to])),
            Op::CallEither(..) => Flow::CallAnywhere,
            Op::Return => Flow::Return,
        };
        let (unit, store) = (Unit::None, Store::None);
        let length = LENGTH as u8;
        let plain = Instruction {
            length,
            flow,
            unit,
            loads: false,
            store,
            reads: 0,
            writes: 0,
            address: 0,
            slot: None,
            waits: false,
            reads_clock: false,
            repeats: false,
            stack: StackMove::NONE,
        };
        Some(plain)
    }

    fn function(&self, at: Location) -> Option<&Function> {
        self.index(at).map(|index| &self.functions[self.code[index].function])
    }
}
