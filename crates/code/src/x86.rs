//! x86 instructions by iced-x86. Floating-point work is recognised by registers and mnemonic, not by CPUID
//! feature: SSE2 holds both `addsd` and `paddd`.

use corewise_core::code::{Flow, Instruction, StackMove, Store, Unit};
use iced_x86::{
    CodeSize, Decoder, DecoderOptions, FlowControl, Formatter, InstructionInfo, InstructionInfoFactory,
    InstructionInfoOptions, Mnemonic, NasmFormatter, OpAccess, OpKind, Register, UsedMemory,
};
use std::cell::RefCell;
use std::sync::LazyLock;

/// Bit of the stack pointer in [`Instruction::reads`] and [`Instruction::writes`].
const STACK_POINTER: u32 = 1 << 4;
const FRAME_POINTER: u32 = 1 << 5;

/// Prefixes of the mnemonics (less a leading `v`) of floating-point arithmetic; integer SIMD starts with `p`.
const FLOAT_PREFIXES: [&str; 27] = [
    "add", "sub", "mul", "div", "sqrt", "rsqrt", "rcp", "max", "min", "cmp", "comis", "ucomis", "cvt",
    "hadd", "hsub", "dp", "round", "rndscale", "reduce", "range", "getexp", "getmant", "scalef", "fixupimm",
    "fm", "fnm", "4f",
];

/// x87 instructions that only move data or set modes.
const X87_MOVES: [&str; 5] = ["fld", "fst", "fnst", "fxch", "ffree"];

/// What each mnemonic asks of the unit, given that it touches its registers at all.
static UNIT: LazyLock<Vec<Unit>> = LazyLock::new(|| {
    Mnemonic::values().map(|mnemonic| unit_by_name(&format!("{mnemonic:?}").to_lowercase())).collect()
});

fn unit_by_name(name: &str) -> Unit {
    let starts = |prefixes: &[&str], name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
    let plain = name.strip_prefix('v').unwrap_or(name);
    if name.starts_with('f') {
        if starts(&X87_MOVES, name) { Unit::Move } else { Unit::Float }
    } else if plain == "zeroupper" || plain == "zeroall" || plain == "emms" {
        Unit::None
    } else if starts(&FLOAT_PREFIXES, plain) {
        Unit::Float
    } else if starts(&["mov", "lddqu", "kmov"], plain) && !plain.starts_with("movmsk") {
        Unit::Move
    } else {
        Unit::Integer
    }
}

thread_local! {
    static INFO: RefCell<InstructionInfoFactory> = RefCell::new(InstructionInfoFactory::new());
}

/// See [`Isa::may_wait`](super::Isa::may_wait): `pause`, and `tpause` and `umwait`.
pub fn may_wait(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| matches!(pair, [0xf3, 0x90] | [0x0f, 0xae]))
}

/// Decodes the instruction at the start of `bytes` in 32- or 64-bit mode.
pub fn decode(bytes: &[u8], bits: u32) -> Option<Instruction> {
    let instruction = Decoder::with_ip(bits, bytes, 0, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return None;
    }
    INFO.with_borrow_mut(|factory| {
        // Nothing but registers and memory is asked of the factory; flags would cost time.
        let info = factory.info_options(&instruction, InstructionInfoOptions::NONE);
        let (mut reads, mut writes) = registers(info);
        if is_zeroing(&instruction) {
            reads = 0;
        }
        let stack = stack_move(&instruction, writes & STACK_POINTER != 0);
        // Calls and returns are balanced within any loop that the walker follows.
        writes &= !STACK_POINTER;
        let accesses = if is_fence(&instruction) { &[] } else { info.used_memory() };
        Some(Instruction {
            length: instruction.len() as u8,
            flow: flow(&instruction),
            unit: unit(&instruction, bytes),
            loads: accesses.iter().any(|memory| is_read(memory.access())),
            store: store(&instruction, accesses),
            reads,
            writes,
            address: accesses.iter().fold(0, |address, memory| address | address_registers(memory)),
            slot: slot(&instruction, accesses),
            waits: matches!(instruction.mnemonic(), Mnemonic::Pause | Mnemonic::Tpause | Mnemonic::Umwait),
            reads_clock: matches!(
                instruction.mnemonic(),
                Mnemonic::Rdtsc | Mnemonic::Rdtscp | Mnemonic::Rdpmc
            ),
            repeats: instruction.is_string_instruction()
                && (instruction.has_rep_prefix() || instruction.has_repne_prefix()),
            stack,
        })
    })
}

/// The instruction at the start of `bytes` in Intel's syntax, if it stands at this address.
pub fn assembly(bytes: &[u8], address: u64, bits: u32) -> Option<String> {
    let instruction = Decoder::with_ip(bits, bytes, address, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return None;
    }
    let mut formatter = NasmFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_space_after_operand_separator(true);
    options.set_show_branch_size(false);
    let mut text = String::new();
    formatter.format(&instruction, &mut text);
    Some(text)
}

fn stack_move(instruction: &iced_x86::Instruction, moves: bool) -> StackMove {
    use Mnemonic::{Add, Lea, Leave, Mov, Pop, Sub};
    let destination = instruction.op0_register().full_register();
    let immediate = || i32::try_from(instruction.try_immediate(1).ok()? as i64).ok();
    let source = || (instruction.memory_base().full_register(), instruction.memory_index());
    let by = || i32::try_from(instruction.memory_displacement64() as i64).ok();
    if !moves || instruction.flow_control() != FlowControl::Next {
        return StackMove::NONE;
    }
    let known = match instruction.mnemonic() {
        Leave => Some(StackMove::Leave),
        Pop if destination == Register::RBP => Some(StackMove::PopFrame),
        Add => immediate().map(StackMove::By),
        Sub => immediate().and_then(i32::checked_neg).map(StackMove::By),
        Mov if instruction.op1_register().full_register() == Register::RBP => Some(StackMove::ToFrame(0)),
        Lea if source() == (Register::RSP, Register::None) => by().map(StackMove::By),
        Lea if source() == (Register::RBP, Register::None) => by().map(StackMove::ToFrame),
        _ if destination == Register::RSP => None,
        _ => Some(StackMove::By(instruction.stack_pointer_increment())),
    };
    known.unwrap_or(StackMove::Unknown)
}

fn is_read(access: OpAccess) -> bool {
    use OpAccess::{CondRead, Read, ReadCondWrite, ReadWrite};
    matches!(access, Read | CondRead | ReadWrite | ReadCondWrite)
}

pub(crate) fn is_write(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

fn registers(info: &InstructionInfo) -> (u32, u32) {
    let mut reads = 0;
    let mut writes = 0;
    for used in info.used_registers() {
        let bit = register_bit(used.register());
        if is_read(used.access()) {
            reads |= bit;
        }
        if is_write(used.access()) {
            writes |= bit;
            // A conditional write keeps the old value otherwise.
            if matches!(used.access(), OpAccess::CondWrite) {
                reads |= bit;
            }
        }
    }
    (reads, writes)
}

fn register_bit(register: Register) -> u32 {
    if register.is_gpr() { 1 << register.full_register().number() } else { 0 }
}

fn is_zeroing(instruction: &iced_x86::Instruction) -> bool {
    use Mnemonic::{Pxor, Sub, Vpxor, Vpxord, Vpxorq, Vxorpd, Vxorps, Xor, Xorpd, Xorps};
    let sources = match instruction.mnemonic() {
        Xor | Sub | Pxor | Xorps | Xorpd => (0, 1),
        Vpxor | Vpxord | Vpxorq | Vxorps | Vxorpd => (1, 2),
        _ => return false,
    };
    instruction.op_kind(sources.0) == OpKind::Register
        && instruction.op_kind(sources.1) == OpKind::Register
        && instruction.op_register(sources.0) == instruction.op_register(sources.1)
}

fn flow(instruction: &iced_x86::Instruction) -> Flow {
    // Decoded at address 0, a target is a displacement; in 32-bit mode addresses wrap at 32 bits.
    let target = || match instruction.code_size() {
        CodeSize::Code32 => i64::from(instruction.near_branch_target() as i32),
        _ => instruction.near_branch_target() as i64,
    };
    let slot = instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address() as i64);
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::XbeginXabortXend => Flow::Next,
        FlowControl::UnconditionalBranch => Flow::Jump(target()),
        FlowControl::ConditionalBranch => Flow::Branch(target()),
        FlowControl::IndirectBranch => slot.map_or(Flow::JumpAnywhere, Flow::JumpThrough),
        FlowControl::IndirectCall => slot.map_or(Flow::CallAnywhere, Flow::CallThrough),
        FlowControl::Call if instruction.is_call_near() => Flow::Call(target()),
        FlowControl::Return => Flow::Return,
        // SYSCALL counts as a call for iced; the rest traps.
        FlowControl::Call | FlowControl::Interrupt | FlowControl::Exception => Flow::Kernel,
    }
}

fn unit(instruction: &iced_x86::Instruction, bytes: &[u8]) -> Unit {
    let of_unit = |register: Register| {
        register.is_vector_register() || register.is_mm() || register.is_st() || register.is_k()
    };
    let touches = (0..instruction.op_count()).any(|operand| {
        instruction.op_kind(operand) == OpKind::Register && of_unit(instruction.op_register(operand))
    });
    if is_zeroing(instruction) || !(touches || is_x87(bytes)) {
        return Unit::None;
    }
    UNIT[instruction.mnemonic() as usize]
}

/// x87 instructions are the opcodes D8 to DF; many name no register of the unit.
fn is_x87(bytes: &[u8]) -> bool {
    let is_prefix =
        |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    bytes.iter().find(|byte| !is_prefix(byte)).is_some_and(|opcode| (0xd8..=0xdf).contains(opcode))
}

/// `lock or dword ptr [rsp], 0` and its like: the stack is nobody else's, so this only orders memory.
fn is_fence(instruction: &iced_x86::Instruction) -> bool {
    instruction.has_lock_prefix() && instruction.memory_base().full_register() == Register::RSP
}

fn address_registers(memory: &UsedMemory) -> u32 {
    register_bit(memory.base()) | register_bit(memory.index())
}

/// Whether an address made of these registers lies on the stack.
fn on_stack(address: u32) -> bool {
    address != 0 && address & !(STACK_POINTER | FRAME_POINTER) == 0
}

/// See [`Instruction::slot`]. What is pushed and popped has no fixed one.
fn slot(instruction: &iced_x86::Instruction, accesses: &[UsedMemory]) -> Option<i32> {
    let explicit = (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
    let [access] = accesses else { return None };
    (explicit && on_stack(address_registers(access))).then_some(access.displacement() as i32)
}

fn store(instruction: &iced_x86::Instruction, accesses: &[UsedMemory]) -> Store {
    use Mnemonic::{Bts, Cmpxchg, Cmpxchg8b, Cmpxchg16b, Xchg};
    let attempt = match instruction.mnemonic() {
        Xchg => true,
        Bts | Cmpxchg | Cmpxchg8b | Cmpxchg16b => instruction.has_lock_prefix(),
        _ => false,
    };
    let mut store = Store::None;
    for memory in accesses.iter().filter(|memory| is_write(memory.access())) {
        store = match store {
            _ if attempt => Store::Exchange,
            Store::None if on_stack(address_registers(memory)) => Store::Stack,
            _ => Store::Data,
        };
    }
    store
}
