//! Makes thunks: an instruction with loads and stores around it, so that it works on a [`State`].
//!
//! A thunk is called with the state in `rdi`. It loads the registers that the instruction uses, runs the
//! instruction and stores what it has written:
//!
//! ```text
//! mov  S, rdi                 S: a register that the instruction does not use
//! fxrstor [S+x87]             if it is an x87 or MMX instruction
//! vmovups zmm1, [S+...]       the vector and mask registers it uses
//! push [S+flags]; popfq       if it uses flags
//! mov  rax, [S+0]             the general registers it uses
//! mov  M, [S+memory]          M: another that it does not use, if it has a memory operand
//! INSTRUCTION with [M] for its memory operand
//! mov  [S+0], rax             what it has written, likewise
//! ret
//! ```
//!
//! A stack pointer among its operands is replaced by a third unused register, because the real one is the
//! emulator's. The same instruction makes the same thunk wherever it is, so thunks are cached by their bytes.

use super::native::Arena;
use super::state::{STACK_POINTER, State};
use iced_x86::{
    Code, Encoder, Instruction, InstructionInfoFactory, MemoryOperand, OpAccess, OpKind, Register,
    UsedRegister,
};
use rustc_hash::FxHashMap;
use std::mem::offset_of;
use std::rc::Rc;

/// Makes and caches thunks.
#[derive(Debug)]
pub struct Thunks {
    /// The memory that contains them.
    pub arena: Rc<Arena>,
    by_code: FxHashMap<Box<[u8]>, u32>,
    width: VectorWidth,
    info: InstructionInfoFactory,
}

/// What a thunk must do in addition to loading registers.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// The instruction accesses memory by its one memory operand.
    pub memory: bool,
    /// It depends on `MXCSR`.
    pub float: bool,
    /// It uses the x87 or MMX registers.
    pub x87: bool,
}

/// The widest vector registers of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VectorWidth {
    Xmm,
    Ymm,
    Zmm,
}

/// The registers that an instruction uses, by number.
#[derive(Debug, Default)]
struct Uses {
    general: u16,
    general_written: u16,
    vectors: u32,
    vectors_written: u32,
    masks: u8,
    masks_written: u8,
}

fn is_write(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

impl Uses {
    /// `None` if it uses a register that thunks do not handle.
    fn of(registers: &[UsedRegister]) -> Option<Uses> {
        let mut uses = Uses::default();
        for used in registers {
            let register = used.register();
            let number = register.number() as u32;
            let written = is_write(used.access());
            if register.is_gpr() {
                let bit = 1 << register.full_register().number();
                uses.general |= bit;
                uses.general_written |= if written { bit } else { 0 };
            } else if register.is_vector_register() {
                uses.vectors |= 1 << number;
                uses.vectors_written |= if written { 1 << number } else { 0 };
            } else if register.is_k() {
                uses.masks |= 1 << number;
                uses.masks_written |= if written { 1 << number } else { 0 };
            } else if register.is_st() || register.is_mm() {
                // They are loaded and stored all together.
            } else if written || !register.is_segment_register() {
                return None;
            }
        }
        Some(uses)
    }
}

/// Returns register `number` of the kind of `like`.
fn renamed(like: Register, number: usize) -> Register {
    let first = match like.size() {
        8 => Register::RAX,
        4 => Register::EAX,
        2 => Register::AX,
        _ if number >= 4 => return Register::SPL + (number as u32 - 4),
        _ => Register::AL,
    };
    first + number as u32
}

impl Thunks {
    /// Makes an empty cache.
    pub fn new() -> nix::Result<Thunks> {
        let width = if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            VectorWidth::Zmm
        } else if is_x86_feature_detected!("avx") {
            VectorWidth::Ymm
        } else {
            VectorWidth::Xmm
        };
        Ok(Thunks {
            arena: Rc::new(Arena::new()?),
            by_code: FxHashMap::default(),
            width,
            info: InstructionInfoFactory::new(),
        })
    }

    /// Returns the thunk of an instruction; `None` if none can be made.
    pub fn make(&mut self, instruction: &Instruction, needs: Needs) -> Option<u32> {
        let code = self.code(instruction, needs)?;
        if let Some(&known) = self.by_code.get(code.as_slice()) {
            return Some(known);
        }
        let place = self.arena.add(&code)?;
        self.by_code.insert(code.into(), place);
        Some(place)
    }

    fn code(&mut self, instruction: &Instruction, needs: Needs) -> Option<Vec<u8>> {
        let mut inner = *instruction;
        if needs.memory {
            // First without a register, to see what else it uses.
            replace_memory(&mut inner, Register::None);
        }
        let uses = Uses::of(self.info.info(&inner).used_registers())?;
        let stack_is_used = uses.general & 1 << STACK_POINTER != 0;
        // Beside the high byte registers some instructions can name only the first eight registers, so these
        // are used first; rsp stays the emulator's.
        let taken = uses.general | 1 << STACK_POINTER;
        let mut free = [0u32, 1, 2, 3, 6, 7, 5, 8, 9, 10, 11, 12, 13, 14, 15]
            .into_iter()
            .filter(move |number| taken & (1 << number) == 0);
        let memory = if needs.memory { Some(Register::RAX + free.next()?) } else { None };
        if let Some(register) = memory {
            replace_memory(&mut inner, register);
        }
        let stack = if stack_is_used { Some(Register::RAX + free.next()?) } else { None };
        if let Some(register) = stack {
            replace_stack_pointer(&mut inner, register)?;
        }
        let state = Register::RAX + free.next()?;
        let flags = (instruction.rflags_read() | instruction.rflags_modified()) != 0;
        let mut writer =
            Writer { encoder: Encoder::new(64), uses, state, memory, stack, flags, needs, width: self.width };
        writer.before()?;
        writer.add(&inner)?;
        writer.after()?;
        Some(writer.encoder.take_buffer())
    }
}

/// Replaces the stack pointer, which must be an explicit operand, by `register`.
fn replace_stack_pointer(inner: &mut Instruction, register: Register) -> Option<()> {
    let mut replaced = None;
    for operand in 0..inner.op_count() {
        let old = inner.op_register(operand);
        if inner.op_kind(operand) == OpKind::Register && old.full_register() == Register::RSP {
            inner.set_op_register(operand, renamed(old, register.number()));
            replaced = Some(());
        }
    }
    replaced
}

/// Replaces the memory operand by what `register` points to.
fn replace_memory(inner: &mut Instruction, register: Register) {
    let code = match inner.code() {
        Code::Mov_AL_moffs8 => Code::Mov_r8_rm8,
        Code::Mov_AX_moffs16 => Code::Mov_r16_rm16,
        Code::Mov_EAX_moffs32 => Code::Mov_r32_rm32,
        Code::Mov_RAX_moffs64 => Code::Mov_r64_rm64,
        Code::Mov_moffs8_AL => Code::Mov_rm8_r8,
        Code::Mov_moffs16_AX => Code::Mov_rm16_r16,
        Code::Mov_moffs32_EAX => Code::Mov_rm32_r32,
        Code::Mov_moffs64_RAX => Code::Mov_rm64_r64,
        other => other,
    };
    inner.set_code(code);
    inner.set_segment_prefix(Register::None);
    inner.set_memory_base(register);
    inner.set_memory_index(Register::None);
    inner.set_memory_index_scale(1);
    inner.set_memory_displacement64(0);
    inner.set_memory_displ_size(if register == Register::None { 8 } else { 0 });
}

/// Assembles one thunk.
struct Writer {
    encoder: Encoder,
    uses: Uses,
    state: Register,
    memory: Option<Register>,
    stack: Option<Register>,
    flags: bool,
    needs: Needs,
    width: VectorWidth,
}

impl Writer {
    fn add(&mut self, instruction: &Instruction) -> Option<()> {
        self.encoder.encode(instruction, 0).ok().map(|_| ())
    }

    fn slot(&self, offset: usize) -> MemoryOperand {
        MemoryOperand::with_base_displ(self.state, offset as i64)
    }

    fn load(&mut self, code: Code, register: Register, offset: usize) -> Option<()> {
        self.add(&Instruction::with2(code, register, self.slot(offset)).ok()?)
    }

    fn store(&mut self, code: Code, offset: usize, register: Register) -> Option<()> {
        self.add(&Instruction::with2(code, self.slot(offset), register).ok()?)
    }

    fn with_slot(&mut self, code: Code, offset: usize) -> Option<()> {
        self.add(&Instruction::with1(code, self.slot(offset)).ok()?)
    }

    fn before(&mut self) -> Option<()> {
        self.add(&Instruction::with2(Code::Mov_r64_rm64, self.state, Register::RDI).ok()?)?;
        if self.needs.x87 {
            self.with_slot(Code::Fxrstor64_m512byte, offset_of!(State, x87))?;
        }
        if self.needs.float {
            self.with_slot(Code::Ldmxcsr_m32, offset_of!(State, mxcsr))?;
        }
        for number in bits(self.uses.vectors.into()) {
            let (code, _, register) = vector_move(self.width, number)?;
            self.load(code, register, offset_of!(State, vectors) + 64 * number)?;
        }
        for number in bits(self.uses.masks.into()) {
            let register = Register::K0 + number as u32;
            self.load(Code::VEX_Kmovq_kr_km64, register, offset_of!(State, masks) + 8 * number)?;
        }
        if self.flags {
            self.with_slot(Code::Push_rm64, offset_of!(State, flags))?;
            self.add(&Instruction::with(Code::Popfq))?;
        }
        for number in bits(u64::from(self.uses.general) & !(1 << STACK_POINTER)) {
            self.load(Code::Mov_r64_rm64, Register::RAX + number as u32, 8 * number)?;
        }
        if let Some(register) = self.stack {
            self.load(Code::Mov_r64_rm64, register, 8 * STACK_POINTER)?;
        }
        match self.memory {
            Some(register) => self.load(Code::Mov_r64_rm64, register, offset_of!(State, memory)),
            None => Some(()),
        }
    }

    fn after(&mut self) -> Option<()> {
        for number in bits(u64::from(self.uses.general_written) & !(1 << STACK_POINTER)) {
            self.store(Code::Mov_rm64_r64, 8 * number, Register::RAX + number as u32)?;
        }
        if let Some(register) = self.stack {
            self.store(Code::Mov_rm64_r64, 8 * STACK_POINTER, register)?;
        }
        if self.flags {
            self.add(&Instruction::with(Code::Pushfq))?;
            self.with_slot(Code::Pop_rm64, offset_of!(State, flags))?;
        }
        for number in bits(self.uses.vectors_written.into()) {
            let (_, code, register) = vector_move(self.width, number)?;
            self.store(code, offset_of!(State, vectors) + 64 * number, register)?;
        }
        for number in bits(self.uses.masks_written.into()) {
            let register = Register::K0 + number as u32;
            self.store(Code::VEX_Kmovq_m64_kr, offset_of!(State, masks) + 8 * number, register)?;
        }
        if self.needs.float {
            self.with_slot(Code::Stmxcsr_m32, offset_of!(State, mxcsr))?;
            self.with_slot(Code::Ldmxcsr_m32, offset_of!(State, host_mxcsr))?;
        }
        if self.needs.x87 {
            self.with_slot(Code::Fxsave64_m512byte, offset_of!(State, x87))?;
            self.add(&Instruction::with(Code::Fninit))?;
        }
        if self.uses.vectors != 0 && self.width != VectorWidth::Xmm {
            self.add(&Instruction::with(Code::VEX_Vzeroupper))?;
        }
        self.add(&Instruction::with(Code::Retnq))
    }
}

fn bits(set: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |bit| set & (1 << bit) != 0)
}

/// Returns the load, the store and the register for a whole vector register.
fn vector_move(width: VectorWidth, number: usize) -> Option<(Code, Code, Register)> {
    let number = number as u32;
    match width {
        VectorWidth::Zmm => Some((
            Code::EVEX_Vmovups_zmm_k1z_zmmm512,
            Code::EVEX_Vmovups_zmmm512_k1z_zmm,
            Register::ZMM0 + number,
        )),
        _ if number >= 16 => None,
        VectorWidth::Ymm => {
            Some((Code::VEX_Vmovups_ymm_ymmm256, Code::VEX_Vmovups_ymmm256_ymm, Register::YMM0 + number))
        }
        VectorWidth::Xmm => {
            Some((Code::Movups_xmm_xmmm128, Code::Movups_xmmm128_xmm, Register::XMM0 + number))
        }
    }
}
