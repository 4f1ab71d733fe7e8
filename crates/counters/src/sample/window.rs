//! How likely is it that the floating-point unit holds work at the instant of a clock sample?
//!
//! Problem. The unit counts as used in every cycle in which it is not empty: an addition that waits for its
//! load occupies it as much as one that computes. Whether the sampled instruction is itself floating-point
//! says little, because a clock interrupt lands on the instruction that waits longest, mostly a load.
//!
//! Approach. A processor executes out of order: while the sampled instruction waits to retire, those behind
//! it in program order have entered the window already. So the code is followed forwards from the sampled
//! instruction for the length of the window, and the estimate is the probability that this meets
//! floating-point work. At a conditional branch the walk divides: branches that close a loop are mostly
//! taken, the more so the shorter it is, those that leave it or skip far ahead hardly ever, others as often
//! as not, unless samples have landed on one side more often than on the other. Probabilities flow
//! through the code and are absorbed where work is met. Calls are entered and return to where they came
//! from. Where the code does not tell the way (a return to an unknown caller, a jump through a table, a call
//! through a pointer), the walk has an [`Exit`]: [`super::beyond`] looks for where it leads.
//!
//! Source. `FPUusage = 1 - empty / cycles` is equation 1 of the BulldOver paper, whose Table I is the
//! reference that the constants were chosen by (`studies/fpu-usage`, which has the comparison, also with
//! programs that were not used for that).
//!
//! Limits. It knows nothing of latencies, of cache misses, or of which way a branch really goes.

use super::ahead::{Ahead, STEPS};
use corewise_code::{Code, Flow, Instruction, StackMove, Store, Unit};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// What the estimator assumes of a processor and of code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Assumptions {
    /// Instructions in flight behind the oldest one.
    pub length: u32,
    /// How often a branch is taken that leaves a loop or skips far ahead.
    pub rarely_taken: f64,
    /// Bytes of code that a loop executes, mostly at least, before it is left: a sample lies in a short loop
    /// because that has many rounds.
    pub loop_bytes: f64,
    /// How often a branch forwards is taken.
    pub forward_taken: f64,
    /// Code that a branch skips more than this many bytes to reach is out of the way because it is rarely
    /// needed: errors, checks of bounds.
    pub far_bytes: i64,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self { length: 48, rarely_taken: 0.05, loop_bytes: 4000.0, forward_taken: 0.5, far_bytes: 256 }
    }
}

/// What the window around one sampled instruction holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Judgement {
    /// Floating-point arithmetic in it.
    pub fp: Ahead,
    /// Vector arithmetic, floating-point or integer. Moves compute nothing.
    pub vector: Ahead,
    /// Where it goes on by ways that the code does not tell.
    pub exits: Vec<Exit>,
    /// Share of memory instructions.
    pub memory: f64,
    /// Share of branches.
    pub branches: f64,
}

/// A way out of what the code tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exit {
    /// Where to.
    pub to: To,
    /// Probability, by step, that the window leaves here before it has met floating-point work.
    pub fp: [f32; STEPS],
    /// The same for vector work.
    pub vector: [f32; STEPS],
}

/// Where an exit leads. Displacements count from the sampled instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// Back to the caller of the sampled function.
    Caller(Frame),
    /// By the jump through a pointer at `site`.
    Jump {
        /// Its displacement.
        site: i64,
    },
    /// By the call through a pointer at `site`.
    Call {
        /// Its displacement.
        site: i64,
    },
}

/// Where the stack and frame pointers are, relative to what they were at the sample. `None`: not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Frame {
    /// The stack pointer.
    pub stack: Option<Spot>,
    /// Where the frame pointer was taken from, if it was.
    pub popped_from: Option<Spot>,
}

/// A place on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Whether it counts from the frame pointer instead of the stack pointer.
    pub of_frame: bool,
    /// Bytes.
    pub offset: i32,
}

impl Frame {
    const START: Frame = Frame { stack: Some(Spot { of_frame: false, offset: 0 }), popped_from: None };

    /// What an instruction makes of it.
    fn moved(self, by: StackMove) -> Frame {
        let Frame { stack, popped_from } = self;
        let plus = |spot: Option<Spot>, by| {
            spot.and_then(|spot| Some(Spot { offset: spot.offset.checked_add(by)?, ..spot }))
        };
        // The frame pointer counts only as long as it is the sample's.
        let of_frame = |offset| popped_from.is_none().then_some(Spot { of_frame: true, offset });
        match by {
            StackMove::By(by) => Frame { stack: plus(stack, by), popped_from },
            StackMove::ToFrame(by) => Frame { stack: of_frame(by), popped_from },
            StackMove::PopFrame => Frame { stack: plus(stack, 8), popped_from: stack },
            StackMove::Leave => Frame { stack: of_frame(8), popped_from: of_frame(0) },
            StackMove::Unknown => Frame { stack: None, popped_from },
        }
    }
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

/// Masses below this are dropped: they could not change the second decimal.
const MASS_MIN: f64 = 0.02;

/// Bytes behind each side of a branch in which samples tell whether that is the way.
const SIDE_BYTES: u64 = 64;

/// Samples that outweigh what is presumed of a branch.
const PRESUMED_VISITS: f64 = 2.0;

/// Index in [`Walk::calls`] of the function of the sample itself.
const OUTERMOST: usize = 0;

/// Instructions behind a branch among which the end of its loop is looked for.
const LOOP_LENGTH_MAX: u32 = 32;

/// An instruction reached with certain calls entered: what it does to the mass that passes it.
#[derive(Debug, Clone, Copy, Default)]
struct Point {
    address: u64,
    /// Index of the innermost call entered, in [`Walk::calls`].
    call: usize,
    expanded: bool,
    unit: Option<Unit>,
    is_memory: bool,
    is_branch: bool,
    /// Where it goes on, with shares.
    next: [(usize, f64); 2],
    /// Whether there is no code to be read.
    is_lost: bool,
    exit: Option<To>,
    frame: Frame,
}

/// A call that was entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Call {
    returns_to: u64,
    caller: usize,
}

struct Walk<'a, C: Code> {
    code: &'a mut C,
    visits: &'a mut dyn FnMut(&mut C, Range<u64>) -> u32,
    assumptions: &'a Assumptions,
    calls: Vec<Call>,
    points: Vec<Point>,
    known: FxHashMap<(u64, usize), usize>,
}

impl Assumptions {
    /// Judges the code from `address` on. `visits` tells how many samples lay in a range of addresses so far.
    /// `None` if there is no valid instruction.
    pub fn judge<C: Code>(
        &self,
        code: &mut C,
        visits: &mut dyn FnMut(&mut C, Range<u64>) -> u32,
        address: u64,
    ) -> Option<Judgement> {
        code.instruction(address)?;
        let outermost = Call { returns_to: 0, caller: 0 };
        let mut walk = Walk {
            code,
            visits,
            assumptions: self,
            calls: vec![outermost],
            points: Vec::new(),
            known: FxHashMap::default(),
        };
        let start = walk.point(address, OUTERMOST, Frame::START);
        Some(walk.flow_from(start))
    }

    /// How often a loop of so many bytes is left after a round.
    fn left(&self, bytes: u64) -> f64 {
        (bytes as f64 / self.loop_bytes).min(self.rarely_taken)
    }
}

impl<C: Code> Walk<'_, C> {
    /// Lets a mass of 1 flow from a point for the length of the window.
    fn flow_from(&mut self, start: usize) -> Judgement {
        let mut here = vec![(start, Mass { all: 1.0, without_fp: 1.0, without_vector: 1.0 })];
        let mut arrived: Vec<Mass> = Vec::new();
        let mut judgement = Judgement::default();
        let mut instructions = 0.0;
        for executed in 0..self.assumptions.length {
            let step = executed as usize * STEPS / self.assumptions.length as usize;
            let mut reached = Vec::with_capacity(here.len() * 2);
            for (index, mass) in here.drain(..) {
                let point = self.expanded(index);
                arrived.resize(self.points.len(), Mass::default());
                instructions += mass.all;
                judgement.memory += if point.is_memory { mass.all } else { 0.0 };
                judgement.branches += if point.is_branch { mass.all } else { 0.0 };
                let mass = judgement.meet(step, point.unit, mass);
                if point.is_lost {
                    judgement.lose(step, mass);
                }
                if let Some(to) = point.exit {
                    judgement.leave(step, to, mass);
                }
                for (next, share) in point.next {
                    if mass.all * share < MASS_MIN {
                        judgement.lose(step, mass.scaled(share));
                        continue;
                    }
                    if arrived[next].all == 0.0 {
                        reached.push(next);
                    }
                    arrived[next].add(mass.scaled(share));
                }
            }
            here.extend(reached.into_iter().map(|next| (next, std::mem::take(&mut arrived[next]))));
        }
        judgement.memory /= instructions;
        judgement.branches /= instructions;
        judgement
    }

    fn point(&mut self, address: u64, call: usize, frame: Frame) -> usize {
        *self.known.entry((address, call)).or_insert_with(|| {
            self.points.push(Point { address, call, frame, ..Point::default() });
            self.points.len() - 1
        })
    }

    fn expanded(&mut self, index: usize) -> Point {
        let point = self.points[index];
        if point.expanded {
            return point;
        }
        let Point { address, call, .. } = point;
        let expanded = match self.code.instruction(address) {
            None => Point { expanded: true, is_lost: true, ..point },
            Some(instruction) => {
                let point = Point {
                    expanded: true,
                    unit: Some(instruction.unit),
                    is_memory: instruction.loads || instruction.store != Store::None,
                    is_branch: !matches!(instruction.flow, Flow::Next | Flow::Kernel),
                    ..point
                };
                self.follow(instruction, address, call, point)
            }
        };
        self.points[index] = expanded;
        expanded
    }

    /// Fills in where the point goes on.
    fn follow(&mut self, instruction: Instruction, address: u64, call: usize, point: Point) -> Point {
        let behind = address + u64::from(instruction.length);
        let at = |displacement: i64| address.wrapping_add_signed(displacement);
        let to = |next| Point { next: [(next, 1.0), (0, 0.0)], ..point };
        // What a called function does to the stack it undoes.
        let frame = if call == OUTERMOST { point.frame.moved(instruction.stack) } else { point.frame };
        let from_start = |address: u64| address.wrapping_sub(self.points[0].address) as i64;
        let exit = |exit| Point { exit: Some(exit), ..point };
        let site = from_start(address);
        match instruction.flow {
            // Its repetitions fill the window.
            Flow::Next if instruction.repeats => point,
            Flow::Next => to(self.point(behind, call, frame)),
            Flow::Jump(displacement) => to(self.point(at(displacement), call, frame)),
            Flow::Branch(displacement) => {
                let taken = self.taken(address, behind, displacement);
                let there = self.point(at(displacement), call, frame);
                let next = [(there, taken), (self.point(behind, call, frame), 1.0 - taken)];
                Point { next, ..point }
            }
            Flow::Call(displacement) => to(self.enter(at(displacement), behind, call, frame)),
            Flow::CallThrough(slot) => match self.code.pointer(at(slot)) {
                Some(target) => to(self.enter(target, behind, call, frame)),
                None => exit(To::Call { site }),
            },
            Flow::CallAnywhere => exit(To::Call { site }),
            Flow::JumpThrough(slot) => match self.code.pointer(at(slot)) {
                Some(target) => to(self.point(target, call, frame)),
                None => exit(To::Jump { site }),
            },
            Flow::JumpAnywhere => exit(To::Jump { site }),
            Flow::Return if call != OUTERMOST => {
                let Call { returns_to, caller } = self.calls[call];
                to(self.point(returns_to, caller, frame))
            }
            Flow::Return => exit(To::Caller(frame)),
            Flow::Kernel => point,
        }
    }

    fn enter(&mut self, target: u64, returns_to: u64, caller: usize, frame: Frame) -> usize {
        let call = Call { returns_to, caller };
        let index = self.calls.iter().position(|&known| known == call).unwrap_or_else(|| {
            self.calls.push(call);
            self.calls.len() - 1
        });
        self.point(target, index, frame)
    }

    /// How often a branch is taken: as was seen, with what is presumed.
    fn taken(&mut self, address: u64, behind: u64, displacement: i64) -> f64 {
        let (taken, passed) = self.code.branched(address);
        let presumed = self.presumed(address, behind, displacement);
        let seen = f64::from(taken) + f64::from(passed);
        (presumed * PRESUMED_VISITS + f64::from(taken)) / (PRESUMED_VISITS + seen)
    }

    /// How often a branch is taken that was not seen: hardly ever if it leaves a loop or goes far ahead,
    /// mostly if it goes back.
    fn presumed(&mut self, address: u64, behind: u64, displacement: i64) -> f64 {
        let Assumptions { forward_taken, rarely_taken, far_bytes, .. } = *self.assumptions;
        let target = address.wrapping_add_signed(displacement);
        if let Some(bytes) = self.leaves_loop(address, behind, target) {
            self.assumptions.left(bytes)
        } else if displacement < 0 {
            1.0 - self.assumptions.left(behind - target)
        } else {
            let presumed = if displacement > far_bytes { rarely_taken } else { forward_taken };
            let taken = f64::from((self.visits)(self.code, target..target + SIDE_BYTES));
            let skipped = f64::from((self.visits)(self.code, behind..target.min(behind + SIDE_BYTES)));
            (presumed * PRESUMED_VISITS + taken) / (PRESUMED_VISITS + taken + skipped)
        }
    }

    /// Whether the code behind a branch soon jumps back to before it, closing a loop that does not hold the
    /// branch's target: the loop's bytes.
    fn leaves_loop(&mut self, address: u64, behind: u64, target: u64) -> Option<u64> {
        let mut at = behind;
        for _ in 0..LOOP_LENGTH_MAX {
            let instruction = self.code.instruction(at).filter(|_| at != target)?;
            if let Flow::Branch(back) | Flow::Jump(back) = instruction.flow {
                let head = at.wrapping_add_signed(back);
                if head <= address && !(head..=at).contains(&target) {
                    return Some(at - head);
                }
            }
            if !matches!(instruction.flow, Flow::Next | Flow::Branch(_) | Flow::Call(_) | Flow::CallAnywhere)
            {
                return None;
            }
            at += u64::from(instruction.length);
        }
        None
    }
}

impl Judgement {
    /// Takes in an instruction's work; what passes it without having met any.
    fn meet(&mut self, step: usize, unit: Option<Unit>, mass: Mass) -> Mass {
        let mut rest = mass;
        if unit == Some(Unit::Float) {
            self.fp.met[step] += std::mem::take(&mut rest.without_fp) as f32;
        }
        if matches!(unit, Some(Unit::Float | Unit::Integer)) {
            self.vector.met[step] += std::mem::take(&mut rest.without_vector) as f32;
        }
        rest
    }

    fn leave(&mut self, step: usize, to: To, mass: Mass) {
        let index = self.exits.iter().position(|exit| exit.to == to).unwrap_or_else(|| {
            self.exits.push(Exit { to, fp: [0.0; STEPS], vector: [0.0; STEPS] });
            self.exits.len() - 1
        });
        self.exits[index].fp[step] += mass.without_fp as f32;
        self.exits[index].vector[step] += mass.without_vector as f32;
    }

    fn lose(&mut self, step: usize, mass: Mass) {
        self.fp.lost[step] += mass.without_fp as f32;
        self.vector.lost[step] += mass.without_vector as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_code::snippet::Snippet;

    fn judged(snippet: &mut Snippet) -> Judgement {
        let window = Assumptions {
            length: 16,
            rarely_taken: 0.1,
            loop_bytes: 0.0,
            forward_taken: 0.5,
            far_bytes: 256,
        };
        window.judge(snippet, &mut |_, _| 0, Snippet::BASE).expect("the snippet decodes")
    }

    fn met(ahead: &Ahead) -> f64 {
        ahead.met.iter().sum::<f32>().into()
    }

    /// With what leaves by exits.
    fn lost(judgement: &Judgement) -> f64 {
        let exits = judgement.exits.iter().flat_map(|exit| exit.fp).sum::<f32>();
        (judgement.fp.lost.iter().sum::<f32>() + exits).into()
    }

    #[test]
    fn work_ahead_is_met_on_every_kind_of_way() {
        for (name, hex, fp, vector) in [
            ("1: movsd; addsd; inc; cmp; jne 1b", "f20f100cc7f20f58c148ffc04839c875efc3", 1.0, 1.0),
            ("a loop that hashes", "6bc01f0fb61701d048ffc784d275f1c3", 0.0, 0.0),
            ("call 1f; syscall; 1: addsd; ret", "e8020000000f05f20f58c0c3", 1.0, 1.0),
            ("test; je 1f; syscall; 1: addsd; syscall", "85c074020f05f20f58c00f05", 0.5, 0.5),
            ("addsd; ret", "f20f58c0c3", 1.0, 1.0),
            ("syscall; addsd", "0f05f20f58c0", 0.0, 0.0),
            ("paddd; syscall", "660ffec10f05", 0.0, 1.0),
            ("pxor xmm0,xmm0; syscall", "660fefc00f05", 0.0, 0.0),
        ] {
            let judgement = judged(&mut Snippet::new(hex));
            assert!((met(&judgement.fp) - fp).abs() < 1e-6, "{name}: fp {:?}", judgement.fp);
            assert!((met(&judgement.vector) - vector).abs() < 1e-6, "{name}: vector {:?}", judgement.vector);
        }
    }

    #[test]
    fn moves_and_repetitions_are_no_arithmetic() {
        for (name, hex) in [
            ("a copy of 16 bytes: movups; movups; syscall", "0f10070f11060f05"),
            ("rep movsb; addsd: the repetitions fill the window", "f3a4f20f58c00f05"),
            ("rep stosq; addsd", "f348abf20f58c00f05"),
        ] {
            let judgement = judged(&mut Snippet::new(hex));
            assert_eq!((judgement.fp, judgement.vector), (Ahead::default(), Ahead::default()), "{name}");
        }
    }

    #[test]
    fn where_the_code_does_not_tell_the_way_nothing_is_known() {
        for (name, hex, expected) in [
            ("ret", "c3", 1.0),
            ("nop; nop; ret", "9090c3", 1.0),
            ("call rax; syscall", "ffd00f05", 1.0),
            ("jmp rax", "ffe0", 1.0),
            ("call [rip+16], which cannot be read; syscall", "ff15100000000f05", 1.0),
            ("jmp [rip+16], which cannot be read", "ff2510000000", 1.0),
            ("test; je 1f; ret; 1: syscall", "85c07401c30f05", 0.5),
            ("addsd; ret", "f20f58c0c3", 0.0),
        ] {
            let judgement = judged(&mut Snippet::new(hex));
            assert!((lost(&judgement) - expected).abs() < 1e-6, "{name}: {judgement:?}");
        }
        let unseen = |hex| {
            let mut judgement = judged(&mut Snippet::new(hex));
            let [exit] = judgement.exits[..] else { panic!("one way out") };
            judgement.fp.lose(&exit.fp);
            judgement.fp.unseen()
        };
        assert!((unseen("c3") - 1.0).abs() < 1e-6);
        assert!(unseen("9090909090909090c3") < 0.6, "half is seen");
    }

    #[test]
    fn the_way_to_a_return_tells_where_its_address_lies() {
        let spot = |offset| Some(Spot { of_frame: false, offset });
        let of_frame = |offset| Some(Spot { of_frame: true, offset });
        for (name, hex, stack, popped_from) in [
            ("ret", "c3", spot(0), None),
            ("add rsp,24; pop rbx; pop rbp; ret", "4883c4185b5dc3", spot(40), spot(32)),
            (
                "sub rsp,8; call 1f; add rsp,8; ret; 1: push rax; ret",
                "4883ec08e8050000004883c408c350c3",
                spot(0),
                None,
            ),
            ("leave; ret", "c9c3", of_frame(8), of_frame(0)),
            (
                "lea rsp,[rbp-16]; pop rbx; pop r12; pop rbp; ret",
                "488d65f05b415c5dc3",
                of_frame(8),
                of_frame(0),
            ),
            ("and rsp,-32; ret", "4883e4e0c3", None, None),
        ] {
            let judgement = judged(&mut Snippet::new(hex));
            let found: Vec<To> = judgement.exits.iter().map(|exit| exit.to).collect();
            assert_eq!(found, [To::Caller(Frame { stack, popped_from })], "{name}");
        }
    }

    #[test]
    fn samples_tell_which_way_a_branch_goes() {
        // test eax,eax; je 1f; addsd xmm0,xmm0; 62 nops; syscall; 1: syscall
        let hex = "85c07444f20f58c0".to_owned() + &"90".repeat(62) + "0f050f05";
        let mut snippet = Snippet::new(&hex);
        let mut judge = |hot: Range<u64>| {
            let visits = &mut |_: &mut Snippet, side: Range<u64>| {
                if side.start >= Snippet::BASE + hot.start && side.end <= Snippet::BASE + hot.end {
                    100
                } else {
                    0
                }
            };
            met(&Assumptions::default().judge(&mut snippet, visits, Snippet::BASE).unwrap().fp)
        };
        assert!((judge(0..0) - 0.5).abs() < 1e-6, "nothing is known");
        assert!(judge(4..72) > 0.95, "where the branch is not taken");
        assert!(judge(72..200) < 0.05, "where it is taken");
    }

    #[test]
    fn calls_are_entered_however_deep() {
        // Six times call .+5, each into the next; then addsd xmm0,xmm0; ret
        let hex = "e800000000".repeat(6) + "f20f58c0c3";
        assert_eq!(met(&judged(&mut Snippet::new(&hex)).fp), 1.0);
    }

    #[test]
    fn a_branch_over_the_end_of_its_loop_is_rarely_taken() {
        // 1: cmp rax,rcx; jae 2f; add rax,1; jmp 1b; 2: addsd xmm0,xmm0; syscall
        let judgement = judged(&mut Snippet::new("4839c873064883c001ebf5f20f58c00f05"));
        // Four rounds of four instructions; the last round's way out ends at the window's.
        assert!((met(&judgement.fp) - (1.0 - 0.9f64.powi(4))).abs() < 1e-6, "{:?}", judgement.fp);
        assert!((judgement.branches - 0.5).abs() < 0.05, "{}", judgement.branches);
    }

    #[test]
    fn the_linkage_table_is_followed() {
        // jmp [rip+10]; four nops; addsd xmm0,xmm0; ret
        let hex = "ff250a00000090909090f20f58c0c3";
        assert_eq!(met(&judged(&mut Snippet::new(hex).with_pointer(10)).fp), 1.0);
    }

    #[test]
    fn memory_and_branch_shares_are_those_of_the_window() {
        let judgement = judged(&mut Snippet::new("f20f100cc7f20f58c148ffc04839c875efc3"));
        assert!((judgement.memory - 0.2).abs() < 0.06, "{}", judgement.memory);
        assert!((judgement.branches - 0.2).abs() < 0.06, "{}", judgement.branches);
    }
}
