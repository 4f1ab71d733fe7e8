//! Decides how to execute an instruction: directly, by a thunk, or not at all.

use super::native::Arena;
use super::thunk::{Needs, Thunks};
use corewise_code::{Decoder, Isa, Unit, x86};
use iced_x86::{
    CodeSize, ConditionCode, CpuidFeature, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register,
};
use std::rc::Rc;

/// How to execute one instruction. Displacements count from its own address.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// Its length in bytes.
    pub length: u8,
    /// The action.
    pub action: Action,
}

/// The action for one instruction.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    /// Run a thunk.
    Thunk(Thunk),
    /// No visible effect: hints, fences.
    Nothing,
    /// Jump.
    Jump(i64),
    /// Jump if the flags say so.
    JumpIf(ConditionCode, i64),
    /// JRCXZ and the LOOP instructions.
    JumpByCounter(ByCounter),
    /// Jump to the operand's target.
    JumpTo(Source),
    /// Call.
    Call(i64),
    /// Call the operand's target.
    CallTo(Source),
    /// Return, and remove this many bytes of arguments.
    Return(u16),
    /// Push this many bytes.
    Push(Source, u8),
    /// Pop this many bytes.
    Pop(Source, u8),
    /// LEAVE.
    Leave,
    /// Compute an address into a register of this many bytes.
    Address(u8, u8, Operand),
    /// A string operation.
    String(StringOperation),
    /// PUSHF.
    PushFlags,
    /// POPF.
    PopFlags,
    /// CLD (false) and STD (true).
    SetDirection(bool),
    /// VZEROUPPER (false) and VZEROALL (true).
    ClearVectors(bool),
    /// LDMXCSR.
    LoadControl(Operand),
    /// STMXCSR.
    StoreControl(Operand),
    /// RDFSBASE and RDGSBASE into a register of this many bytes.
    ReadBase(Segment, u8, u8),
    /// WRFSBASE and WRGSBASE likewise.
    WriteBase(Segment, u8, u8),
    /// It goes into the kernel.
    SystemCall,
    /// It cannot be emulated.
    Unsupported(Mnemonic),
}

/// A thunk and what must be prepared for it.
#[derive(Debug, Clone, Copy)]
pub struct Thunk {
    /// Its place in the arena.
    pub place: u32,
    /// Its memory operand, if it accesses memory.
    pub memory: Option<Access>,
    /// It uses vector, mask, x87 or MMX registers.
    pub vectors: bool,
    /// It depends on `MXCSR`.
    pub float: bool,
}

/// How a thunk accesses memory.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// The address.
    pub operand: Operand,
    /// The number of bytes.
    pub size: u8,
    /// Whether it writes them.
    pub writes: bool,
    /// By a mask, it may access fewer.
    pub masked: bool,
    /// The register of this many bytes that contains a bit's number, counted from the operand (BT and
    /// similar).
    pub bit: Option<(u8, u8)>,
}

/// A segment whose base is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// FS.
    Fs,
    /// GS.
    Gs,
}

/// The address of a memory operand.
#[derive(Debug, Clone, Copy)]
pub struct Operand {
    base: Option<u8>,
    index: Option<u8>,
    scale: u8,
    displacement: i64,
    segment: Option<Segment>,
    from_ip: bool,
    narrow: bool,
}

/// The place of a value.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// In a general register.
    Register(u8),
    /// In memory.
    Memory(Operand),
    /// In the instruction.
    Immediate(i64),
}

/// Jumps by RCX.
#[derive(Debug, Clone, Copy)]
pub struct ByCounter {
    /// Whether it is decremented first; if not, the jump is for zero, else for not zero.
    pub decrements: bool,
    /// The required value of the zero flag, if any.
    pub zero_flag: Option<bool>,
    /// Whether only ECX counts.
    pub narrow: bool,
    /// The target.
    pub target: i64,
}

/// A string operation.
#[derive(Debug, Clone, Copy)]
pub struct StringOperation {
    /// The operation.
    pub kind: StringKind,
    /// Bytes of an element.
    pub size: u8,
    /// Whether it is repeated RCX times.
    pub repeats: bool,
    /// Comparisons end when the zero flag no longer has this value.
    pub while_zero: bool,
}

/// Which string operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StringKind {
    /// MOVS.
    Move,
    /// STOS.
    Store,
    /// LODS.
    Load,
    /// SCAS.
    Scan,
    /// CMPS.
    Compare,
}

impl Operand {
    fn of(instruction: &Instruction) -> Option<Operand> {
        let general = |register: Register| match register {
            Register::None => Some(None),
            _ if register.is_gpr() => Some(Some(register.full_register().number() as u8)),
            _ => None,
        };
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let from_ip = instruction.is_ip_rel_memory_operand();
        Some(Operand {
            base: if from_ip { None } else { general(base)? },
            index: general(index)?,
            scale: instruction.memory_index_scale() as u8,
            displacement: instruction.memory_displacement64() as i64,
            segment: match instruction.memory_segment() {
                Register::FS => Some(Segment::Fs),
                Register::GS => Some(Segment::Gs),
                _ => None,
            },
            from_ip,
            narrow: [base, index]
                .into_iter()
                .any(|register| register.is_gpr32() || register == Register::EIP),
        })
    }

    /// Returns the address, without the segment's base.
    pub fn offset(&self, state: &super::state::State) -> u64 {
        let of = |register: Option<u8>| register.map_or(0, |number| state.gpr[usize::from(number)]);
        let start = if self.from_ip { state.ip } else { of(self.base) };
        let index = of(self.index).wrapping_mul(self.scale.into());
        let offset = start.wrapping_add(index).wrapping_add_signed(self.displacement);
        if self.narrow { offset & 0xffff_ffff } else { offset }
    }

    /// Returns the address.
    pub fn address(&self, state: &super::state::State) -> u64 {
        self.offset(state).wrapping_add(match self.segment {
            None => 0,
            Some(Segment::Fs) => state.fs_base,
            Some(Segment::Gs) => state.gs_base,
        })
    }
}

/// Makes plans.
pub struct Translator {
    /// The thunks of the plans.
    thunks: Thunks,
    info: InstructionInfoFactory,
}

impl Translator {
    /// Makes a translator without thunks.
    pub fn new() -> nix::Result<Translator> {
        Ok(Translator { thunks: Thunks::new()?, info: InstructionInfoFactory::new() })
    }

    /// Returns the memory of the plans' thunks.
    pub fn arena(&self) -> Rc<Arena> {
        Rc::clone(&self.thunks.arena)
    }

    fn action(&mut self, instruction: &Instruction, bytes: &[u8]) -> Option<Action> {
        if let Some(action) = flow(instruction) {
            return action;
        }
        if let Some(action) = direct(instruction) {
            return action;
        }
        self.thunk(instruction, bytes).map(Action::Thunk)
    }

    fn thunk(&mut self, instruction: &Instruction, bytes: &[u8]) -> Option<Thunk> {
        if !may_run(instruction) {
            return None;
        }
        let memory = self.access(instruction)?;
        let float = x86::decode(bytes, 64)?.unit == Unit::Float;
        let info = self.info.info(instruction);
        let registers = info.used_registers().iter().map(|used| used.register());
        let vectors = registers.clone().any(|register| register.is_vector_register() || register.is_k());
        let x87 = registers.clone().any(|register| register.is_mm()) || uses_x87(instruction);
        let place = self.thunks.make(instruction, Needs { memory: memory.is_some(), float, x87 })?;
        Some(Thunk { place, memory, vectors: vectors || x87, float })
    }

    /// Returns how it accesses memory; `None` if a thunk cannot do that.
    fn access(&mut self, instruction: &Instruction) -> Option<Option<Access>> {
        let info = self.info.info(instruction);
        let explicit = (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory);
        let [memory] = info.used_memory() else {
            return (info.used_memory().is_empty() && !explicit).then_some(None);
        };
        if !explicit || instruction.is_vsib() || memory.access() == OpAccess::NoMemAccess {
            return None;
        }
        let size = instruction.memory_size().size();
        let is_bit_test =
            matches!(instruction.mnemonic(), Mnemonic::Bt | Mnemonic::Btc | Mnemonic::Btr | Mnemonic::Bts);
        let register = instruction.op1_register();
        let bit = is_bit_test && instruction.op1_kind() == OpKind::Register;
        let is_masked_move = matches!(
            instruction.mnemonic(),
            Mnemonic::Vmaskmovps | Mnemonic::Vmaskmovpd | Mnemonic::Vpmaskmovd | Mnemonic::Vpmaskmovq
        );
        let access = Access {
            operand: Operand::of(instruction)?,
            size: u8::try_from(size).ok().filter(|&size| (1..=64).contains(&size))?,
            writes: !matches!(memory.access(), OpAccess::Read | OpAccess::CondRead),
            masked: instruction.op_mask() != Register::None || is_masked_move,
            bit: bit.then(|| (register.full_register().number() as u8, register.size() as u8)),
        };
        Some(Some(access))
    }
}

impl Decoder for Translator {
    type Decoded = Operation;

    fn decode(&mut self, isa: Isa, bytes: &[u8]) -> Option<Operation> {
        let mut decoder = iced_x86::Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if isa != Isa::X86_64 || instruction.is_invalid() || instruction.code_size() != CodeSize::Code64 {
            return None;
        }
        let unsupported = Action::Unsupported(instruction.mnemonic());
        let action = self.action(&instruction, &bytes[..instruction.len()]).unwrap_or(unsupported);
        Some(Operation { length: instruction.len() as u8, action })
    }
}

/// Returns the action of an instruction that transfers control; the outer `None` if it does not, the inner
/// one if it is not supported.
fn flow(instruction: &Instruction) -> Option<Option<Action>> {
    let target = instruction.near_branch_target() as i64;
    let source = || source(instruction, 0);
    Some(match instruction.flow_control() {
        FlowControl::Next => return None,
        // Compilers do not make far jumps and calls, or calls with a 16-bit operand.
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => Some(Action::Jump(target)),
        FlowControl::ConditionalBranch => match instruction.condition_code() {
            // LOOPE and LOOPNE have a condition, too.
            _ if instruction.is_loop() || instruction.is_loopcc() || instruction.is_jcx_short() => {
                Some(by_counter(instruction, target))
            }
            ConditionCode::None => None,
            condition => Some(Action::JumpIf(condition, target)),
        },
        FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => source().map(Action::JumpTo),
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => source().map(Action::CallTo),
        FlowControl::Call if instruction.is_call_near() => Some(Action::Call(target)),
        FlowControl::Call | FlowControl::Interrupt
            if matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int) =>
        {
            Some(Action::SystemCall)
        }
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => {
            Some(Action::Return(if instruction.op_count() == 1 { instruction.immediate16() } else { 0 }))
        }
        _ => None,
    })
}

fn by_counter(instruction: &Instruction, target: i64) -> Action {
    let mnemonic = instruction.mnemonic();
    Action::JumpByCounter(ByCounter {
        decrements: matches!(mnemonic, Mnemonic::Loop | Mnemonic::Loope | Mnemonic::Loopne),
        zero_flag: match mnemonic {
            Mnemonic::Loope => Some(true),
            Mnemonic::Loopne => Some(false),
            _ => None,
        },
        narrow: mnemonic == Mnemonic::Jecxz || format!("{:?}", instruction.code()).ends_with("_ECX"),
        target,
    })
}

fn source(instruction: &Instruction, operand: u32) -> Option<Source> {
    match instruction.op_kind(operand) {
        OpKind::Register if instruction.op_register(operand).is_gpr() => {
            Some(Source::Register(instruction.op_register(operand).full_register().number() as u8))
        }
        OpKind::Memory => Operand::of(instruction).map(Source::Memory),
        OpKind::Register => None,
        _ => Some(Source::Immediate(instruction.try_immediate(operand).ok()? as i64)),
    }
}

/// Returns the action of an instruction that is executed without a thunk; `None`s as in [`flow`].
fn direct(instruction: &Instruction) -> Option<Option<Action>> {
    let register = || instruction.op0_register().full_register().number() as u8;
    let size = || instruction.op0_register().size() as u8;
    // The stack moves by this.
    let width = || instruction.stack_pointer_increment().unsigned_abs() as u8;
    if let Some(kind) = string_kind(instruction) {
        return Some(string(instruction, kind));
    }
    Some(match instruction.mnemonic() {
        Mnemonic::Push => source(instruction, 0).map(|source| Action::Push(source, width())),
        Mnemonic::Pop => source(instruction, 0).map(|source| Action::Pop(source, width())),
        Mnemonic::Leave if width() != 2 => Some(Action::Leave),
        Mnemonic::Lea => Operand::of(instruction).map(|operand| Action::Address(register(), size(), operand)),
        Mnemonic::Pushfq => Some(Action::PushFlags),
        Mnemonic::Popfq => Some(Action::PopFlags),
        Mnemonic::Cld => Some(Action::SetDirection(false)),
        Mnemonic::Std => Some(Action::SetDirection(true)),
        Mnemonic::Vzeroupper => Some(Action::ClearVectors(false)),
        Mnemonic::Vzeroall => Some(Action::ClearVectors(true)),
        Mnemonic::Ldmxcsr | Mnemonic::Vldmxcsr => Operand::of(instruction).map(Action::LoadControl),
        Mnemonic::Stmxcsr | Mnemonic::Vstmxcsr => Operand::of(instruction).map(Action::StoreControl),
        Mnemonic::Rdfsbase => Some(Action::ReadBase(Segment::Fs, register(), size())),
        Mnemonic::Rdgsbase => Some(Action::ReadBase(Segment::Gs, register(), size())),
        Mnemonic::Wrfsbase => Some(Action::WriteBase(Segment::Fs, register(), size())),
        Mnemonic::Wrgsbase => Some(Action::WriteBase(Segment::Gs, register(), size())),
        // Without a shadow stack RDSSP does nothing.
        Mnemonic::Endbr64 | Mnemonic::Nop | Mnemonic::Pause | Mnemonic::Rdsspd | Mnemonic::Rdsspq => {
            Some(Action::Nothing)
        }
        Mnemonic::Mfence | Mnemonic::Lfence | Mnemonic::Sfence => Some(Action::Nothing),
        Mnemonic::Prefetchnta | Mnemonic::Prefetcht0 | Mnemonic::Prefetcht1 | Mnemonic::Prefetcht2 => {
            Some(Action::Nothing)
        }
        Mnemonic::Prefetchw | Mnemonic::Prefetchwt1 | Mnemonic::Reservednop => Some(Action::Nothing),
        Mnemonic::Clflush | Mnemonic::Clflushopt | Mnemonic::Clwb | Mnemonic::Cldemote => {
            Some(Action::Nothing)
        }
        _ => return None,
    })
}

fn string_kind(instruction: &Instruction) -> Option<StringKind> {
    if !instruction.is_string_instruction() {
        return None;
    }
    match instruction.mnemonic() {
        Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsd | Mnemonic::Movsq => Some(StringKind::Move),
        Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => Some(StringKind::Store),
        Mnemonic::Lodsb | Mnemonic::Lodsw | Mnemonic::Lodsd | Mnemonic::Lodsq => Some(StringKind::Load),
        Mnemonic::Scasb | Mnemonic::Scasw | Mnemonic::Scasd | Mnemonic::Scasq => Some(StringKind::Scan),
        Mnemonic::Cmpsb | Mnemonic::Cmpsw | Mnemonic::Cmpsd | Mnemonic::Cmpsq => Some(StringKind::Compare),
        _ => None,
    }
}

fn string(instruction: &Instruction, kind: StringKind) -> Option<Action> {
    let wide = [OpKind::MemorySegRSI, OpKind::MemoryESRDI];
    let kinds = [instruction.op0_kind(), instruction.op1_kind()];
    let has_segment = matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    let is_plain = kinds.iter().all(|kind| wide.contains(kind) || *kind == OpKind::Register);
    (is_plain && !has_segment).then(|| {
        Action::String(StringOperation {
            kind,
            size: instruction.memory_size().size() as u8,
            repeats: instruction.has_rep_prefix() || instruction.has_repne_prefix(),
            while_zero: !instruction.has_repne_prefix(),
        })
    })
}

fn uses_x87(instruction: &Instruction) -> bool {
    use CpuidFeature::{FPU, FPU287, FPU387, MMX};
    instruction.cpuid_features().iter().any(|feature| matches!(*feature, FPU | FPU287 | FPU387 | MMX))
}

/// Parts of the instruction set that only compute, except for the instructions that [`may_run`] excludes.
const COMPUTING: &[CpuidFeature] = {
    use CpuidFeature::*;
    &[
        ADX,
        AES,
        AVX,
        AVX2,
        AVX512BW,
        AVX512CD,
        AVX512DQ,
        AVX512F,
        AVX512VL,
        AVX512_BF16,
        AVX512_BITALG,
        AVX512_FP16,
        AVX512_IFMA,
        AVX512_VBMI,
        AVX512_VBMI2,
        AVX512_VNNI,
        AVX512_VP2INTERSECT,
        AVX512_VPOPCNTDQ,
        AVX_IFMA,
        AVX_NE_CONVERT,
        AVX_VNNI,
        AVX_VNNI_INT16,
        AVX_VNNI_INT8,
        BMI1,
        BMI2,
        CMOV,
        CMPXCHG16B,
        CX8,
        F16C,
        FMA,
        FPU,
        FPU287,
        FPU387,
        GFNI,
        INTEL186,
        INTEL386,
        INTEL486,
        INTEL8086,
        LZCNT,
        MMX,
        MOVBE,
        PCLMULQDQ,
        POPCNT,
        RDPID,
        RDTSCP,
        SHA,
        SHA512,
        SM3,
        SM4,
        SSE,
        SSE2,
        SSE3,
        SSE4_1,
        SSE4_2,
        SSSE3,
        TBM,
        TSC,
        VAES,
        VPCLMULQDQ,
        X64,
    ]
};

/// Returns whether the bare instruction may run in corewise's own process: it must only compute, and not
/// affect the process itself or the kernel.
fn may_run(instruction: &Instruction) -> bool {
    let may = |feature: &CpuidFeature| COMPUTING.contains(feature);
    let never = matches!(
        instruction.mnemonic(),
        Mnemonic::In
            | Mnemonic::Out
            | Mnemonic::Cli
            | Mnemonic::Sti
            | Mnemonic::Xlatb
            | Mnemonic::Enter
            | Mnemonic::Maskmovdqu
            | Mnemonic::Vmaskmovdqu
            | Mnemonic::Popf
            | Mnemonic::Pushf
            | Mnemonic::Leave
    );
    (instruction.cpuid_features().iter().all(may) || instruction.mnemonic() == Mnemonic::Xgetbv)
        && !never
        && !instruction.is_privileged()
        && !instruction.is_string_instruction()
        && instruction.flow_control() == FlowControl::Next
}
