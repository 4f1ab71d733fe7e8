//! How likely is it that the floating-point unit holds work at the instant of a clock sample?
//!
//! Problem. The unit counts as used in every cycle in which it is not empty: an addition that waits for its
//! load occupies it as much as one that computes. Whether the sampled instruction is itself floating-point says
//! little, because a clock interrupt lands on the instruction that waits longest, mostly a load.
//!
//! Approach. A processor executes out of order: while the sampled instruction waits to retire, those behind it
//! in program order have entered the window already. So the code is followed forwards from the sampled
//! instruction for the length of the window, and the estimate is the probability that this meets
//! floating-point work. At a conditional branch the walk divides: backwards branches are mostly taken, forwards
//! branches as often as not. Probabilities flow through the code and are absorbed where work is met. Calls are entered and
//! return to where they came from. Where the walk loses the way (a return to an unknown caller, a jump through
//! a table), the rest is taken to be like what was seen.
//!
//! Source. `FPUusage = 1 - empty / cycles` is equation 1 of the BulldOver paper, whose Table I is the reference that the
//! constants were chosen by (`docs/fpu-usage.md`, which has the comparison and a leave-one-out check).
//!
//! Limits. It knows nothing of latencies, of cache misses, or of which way a branch really goes.

use crate::code::{Code, Flow, Instruction, Store, Unit};
use std::collections::HashMap;

/// What the estimator assumes of a processor and of code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Instructions in flight behind the oldest one.
    pub length: u32,
    /// How often a branch backwards is taken.
    pub backward_taken: f64,
    /// How often a branch forwards is taken.
    pub forward_taken: f64,
    /// The share of a cycle's worth of occupancy that passing data through the unit counts for.
    pub move_weight: f64,
    /// The same for integer SIMD work in the vector value.
    pub integer_weight: f64,
}

impl Default for Window {
    fn default() -> Self {
        Self { length: 64, backward_taken: 0.9, forward_taken: 0.5, move_weight: 0.1, integer_weight: 1.0 }
    }
}

/// What the window around one sampled instruction holds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Judgement {
    /// Probability that floating-point arithmetic is in flight.
    pub fp: f64,
    /// Probability that the vector unit is occupied.
    pub vector: f64,
    /// Share of memory instructions.
    pub memory: f64,
    /// Share of branches.
    pub branches: f64,
}

/// Probability at one point of the walk: of being there at all, and of being there without having met
/// floating-point or vector work.
#[derive(Debug, Clone, Copy, Default)]
struct Mass {
    all: f64,
    without_fp: f64,
    without_vector: f64,
}

impl Mass {
    fn scaled(self, by: f64) -> Mass {
        Mass {
            all: self.all * by,
            without_fp: self.without_fp * by,
            without_vector: self.without_vector * by,
        }
    }

    fn add(&mut self, other: Mass) {
        self.all += other.all;
        self.without_fp += other.without_fp;
        self.without_vector += other.without_vector;
    }
}

/// A point of the walk: an address and the calls that were entered since the sample, as an index into
/// [`Walk::calls`]; 0 is the function of the sample itself.
type Point = (u64, usize);

/// Masses below this are dropped; they could not change the third decimal.
const MASS_MIN: f64 = 1e-3;

/// Calls that are entered within each other. Deeper ones are stepped over.
const CALL_DEPTH_MAX: u32 = 4;

struct Walk<'a, C: Code> {
    code: &'a mut C,
    window: &'a Window,
    /// `(return address, index of the caller's entry, depth)`.
    calls: Vec<(u64, usize, u32)>,
    next: HashMap<Point, Mass>,
    lost: Mass,
    /// Mass that reached the window's end, or the kernel.
    ended: Mass,
    instructions: f64,
    memory: f64,
    branches: f64,
}

impl Window {
    /// Judges the code from `address` on. `None` if there is no valid instruction.
    pub fn judge<C: Code>(&self, code: &mut C, address: u64) -> Option<Judgement> {
        code.instruction(address)?;
        let mut walk = Walk {
            code,
            window: self,
            calls: vec![(0, 0, 0)],
            next: HashMap::new(),
            lost: Mass::default(),
            ended: Mass::default(),
            instructions: 0.0,
            memory: 0.0,
            branches: 0.0,
        };
        let mut points =
            HashMap::from([((address, 0), Mass { all: 1.0, without_fp: 1.0, without_vector: 1.0 })]);
        for _ in 0..self.length {
            for (point, mass) in points.drain() {
                walk.step(point, mass);
            }
            std::mem::swap(&mut points, &mut walk.next);
        }
        for mass in points.into_values() {
            walk.ended.add(mass);
        }
        Some(walk.judgement())
    }
}

impl<C: Code> Walk<'_, C> {
    fn step(&mut self, point: Point, mut mass: Mass) {
        let (address, calls) = point;
        let Some(instruction) = self.code.instruction(address) else {
            self.lost.add(mass);
            return;
        };
        self.instructions += mass.all;
        if instruction.loads || instruction.store != Store::None {
            self.memory += mass.all;
        }
        if !matches!(instruction.flow, Flow::Next | Flow::Kernel) {
            self.branches += mass.all;
        }
        let (fp, vector) = self.window.occupancy(instruction.unit);
        mass.without_fp *= 1.0 - fp;
        mass.without_vector *= 1.0 - vector;
        self.follow(instruction, address, calls, mass);
    }

    fn follow(&mut self, instruction: Instruction, address: u64, calls: usize, mass: Mass) {
        let behind = address + u64::from(instruction.length);
        let at = |displacement: i64| address.wrapping_add_signed(displacement);
        match instruction.flow {
            Flow::Next => self.arrive((behind, calls), mass),
            Flow::Jump(displacement) => self.arrive((at(displacement), calls), mass),
            Flow::Branch(displacement) => {
                let taken =
                    if displacement < 0 { self.window.backward_taken } else { self.window.forward_taken };
                self.arrive((at(displacement), calls), mass.scaled(taken));
                self.arrive((behind, calls), mass.scaled(1.0 - taken));
            }
            Flow::Call(displacement) => self.enter(Some(at(displacement)), behind, calls, mass),
            Flow::CallThrough(slot) => {
                let target = self.code.pointer(at(slot));
                self.enter(target, behind, calls, mass);
            }
            Flow::CallAnywhere => self.arrive((behind, calls), mass),
            Flow::JumpThrough(slot) => match self.code.pointer(at(slot)) {
                Some(target) => self.arrive((target, calls), mass),
                None => self.leave(calls, mass),
            },
            Flow::Return => self.leave(calls, mass),
            Flow::JumpAnywhere => self.lost.add(mass),
            Flow::Kernel => self.ended.add(mass),
        }
    }

    fn arrive(&mut self, point: Point, mass: Mass) {
        if mass.all >= MASS_MIN {
            self.next.entry(point).or_default().add(mass);
        } else {
            self.lost.add(mass);
        }
    }

    fn enter(&mut self, target: Option<u64>, behind: u64, calls: usize, mass: Mass) {
        let depth = self.calls[calls].2 + 1;
        match target {
            Some(target) if depth <= CALL_DEPTH_MAX => {
                let call = (behind, calls, depth);
                let index = self.calls.iter().position(|&known| known == call).unwrap_or_else(|| {
                    self.calls.push(call);
                    self.calls.len() - 1
                });
                self.arrive((target, index), mass);
            }
            _ => self.arrive((behind, calls), mass),
        }
    }

    fn leave(&mut self, calls: usize, mass: Mass) {
        match self.calls[calls] {
            (_, _, 0) => self.lost.add(mass),
            (behind, caller, _) => self.arrive((behind, caller), mass),
        }
    }

    /// Lost ways are taken to be like the known ones; where all is lost, what was seen until then counts.
    fn judgement(&self) -> Judgement {
        let share = |ended: f64, lost: f64| {
            let met = 1.0 - ended - lost;
            if met + ended > MASS_MIN { met / (met + ended) } else { 0.0 }
        };
        Judgement {
            fp: share(self.ended.without_fp, self.lost.without_fp),
            vector: share(self.ended.without_vector, self.lost.without_vector),
            memory: self.memory / self.instructions,
            branches: self.branches / self.instructions,
        }
    }
}

impl Window {
    /// Probability that an instruction in the window makes the unit not empty: by arithmetic, by anything.
    fn occupancy(&self, unit: Unit) -> (f64, f64) {
        match unit {
            Unit::None => (0.0, 0.0),
            Unit::Move => (0.0, self.move_weight),
            Unit::Integer => (0.0, self.integer_weight),
            Unit::Float => (1.0, 1.0),
        }
    }
}
