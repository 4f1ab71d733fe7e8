//! A64 instructions by their encoding groups (Arm Architecture Reference Manual, DDI 0487, section C4.1:
//! "A64 instruction set encoding"). The encodings are regular, so the groups tell all that is wanted here.
//! SME is not known.

use corewise_core::code::{Flow, Instruction, StackMove, Store, Unit};

/// Register number 31 in a base register is the stack pointer; x29 is the frame pointer.
const STACK_POINTER: u32 = 31;
const FRAME_POINTER: u32 = 29;

/// `bits(word, high, low)`: the field as the manual writes it.
const fn bits(word: u32, high: u32, low: u32) -> u32 {
    word << (31 - high) >> (31 - high + low)
}

/// A signed field in units of instructions, as a displacement in bytes.
const fn displacement(word: u32, high: u32, low: u32) -> i64 {
    let width = high - low + 1;
    ((bits(word, high, low) as i64) << (64 - width) >> (64 - width)) * 4
}

/// Decodes the instruction at the start of `bytes`.
pub fn decode(bytes: &[u8]) -> Option<Instruction> {
    let word = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let plain = Instruction {
        length: 4,
        flow: Flow::Next,
        unit: Unit::None,
        loads: false,
        store: Store::None,
        reads: 0,
        writes: 0,
        address: 0,
        slot: None,
        waits: false,
        reads_clock: false,
        repeats: false,
        stack: StackMove::NONE,
    };
    match bits(word, 28, 25) {
        0b0010 => Some(scalable(word, plain)),
        0b1000 | 0b1001 => Some(data_immediate(word, plain)),
        0b1010 | 0b1011 => Some(branch_or_system(word, plain)),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => Some(load_or_store(word, plain)),
        0b0101 | 0b1101 => Some(data_register(word, plain)),
        0b0111 | 0b1111 => Some(simd_or_float(word, plain)),
        _ => None,
    }
}

/// General register `number` as a bit; 31 is the zero register in most places and counts as none.
const fn register(number: u32) -> u32 {
    if number == 31 { 0 } else { 1 << number }
}

fn data_immediate(word: u32, plain: Instruction) -> Instruction {
    // ADR, ADRP and the wide moves (less MOVK) have no source register.
    let has_source = match bits(word, 25, 23) {
        0b000 | 0b001 => false,
        0b101 => bits(word, 30, 29) == 0b11,
        _ => true,
    };
    let source = if bits(word, 25, 23) == 0b101 { bits(word, 4, 0) } else { bits(word, 9, 5) };
    let reads = if has_source { register(source) } else { 0 };
    Instruction { reads, writes: register(bits(word, 4, 0)), ..plain }
}

fn data_register(word: u32, plain: Instruction) -> Instruction {
    let third = if bits(word, 28, 24) == 0b11011 { register(bits(word, 14, 10)) } else { 0 };
    let reads = register(bits(word, 9, 5)) | register(bits(word, 20, 16)) | third;
    // Conditional comparisons (bits 28..21 11010010) write flags where others name a register.
    let writes = if bits(word, 28, 21) == 0b1101_0010 { 0 } else { register(bits(word, 4, 0)) };
    Instruction { reads, writes, ..plain }
}

fn branch_or_system(word: u32, plain: Instruction) -> Instruction {
    let flow = |flow| Instruction { flow, ..plain };
    match bits(word, 31, 29) {
        0b000 => flow(Flow::Jump(displacement(word, 25, 0))),
        0b100 => flow(Flow::Call(displacement(word, 25, 0))),
        0b010 => flow(Flow::Branch(displacement(word, 23, 5))),
        0b001 | 0b101 => {
            // Bit 25 tells TBZ/TBNZ (14-bit displacement) from CBZ/CBNZ (19-bit).
            let last = if bits(word, 25, 25) == 1 { 18 } else { 23 };
            let flow = Flow::Branch(displacement(word, last, 5));
            Instruction { flow, reads: register(bits(word, 4, 0)), ..plain }
        }
        _ if bits(word, 31, 25) == 0b110_1011 => match bits(word, 24, 21) & 0b0111 {
            0b000 => flow(Flow::JumpAnywhere),
            0b001 => flow(Flow::CallAnywhere),
            0b010 => flow(Flow::Return),
            _ => flow(Flow::Kernel),
        },
        _ if bits(word, 31, 24) == 0b1101_0100 => flow(Flow::Kernel),
        // MRS; which register it reads does not matter.
        _ if bits(word, 31, 20) == 0b1101_0101_0011 => {
            Instruction { reads_clock: true, writes: register(bits(word, 4, 0)), ..plain }
        }
        // YIELD, WFE, WFI and ISB: what spin loops use to pause.
        _ => Instruction {
            waits: matches!(word, 0xd503_203f | 0xd503_205f | 0xd503_207f | 0xd503_3fdf),
            ..plain
        },
    }
}

fn load_or_store(word: u32, plain: Instruction) -> Instruction {
    let vector = bits(word, 26, 26) == 1;
    let base = bits(word, 9, 5);
    let target = register(bits(word, 4, 0));
    // Literal loads have no base; of the others, opc (bits 23..22) is 00 for stores; pairs, exclusive and
    // SIMD structure instructions keep the load flag in bit 22.
    let (literal, load, second) = match bits(word, 29, 28) {
        0b01 => (bits(word, 29, 24) & 0b111011 == 0b011000, bits(word, 23, 22) != 0, 0),
        0b10 => (false, bits(word, 22, 22) == 1, register(bits(word, 14, 10))),
        0b11 if vector => (false, bits(word, 22, 22) == 1, 0),
        0b11 => (false, bits(word, 23, 22) != 0, 0),
        _ => (false, bits(word, 22, 22) == 1, 0),
    };
    let exclusive = !vector && bits(word, 29, 24) == 0b001000;
    let third_operand =
        bits(word, 29, 28) == 0b11 && bits(word, 24, 24) == 0 && bits(word, 21, 21) == 1 && !literal;
    let atomic = third_operand && !vector && bits(word, 11, 10) == 0;
    let compare_and_swap = exclusive && bits(word, 23, 23) == 1 && bits(word, 21, 21) == 1;
    let attempt =
        compare_and_swap || exclusive && bits(word, 23, 23) == 0 || atomic && bits(word, 15, 12) == 0b1000;
    let loads = literal || load || atomic;
    let writes_memory = !literal && (!load || atomic);
    let on_stack = base == STACK_POINTER || base == FRAME_POINTER;
    let store = match () {
        () if !writes_memory => Store::None,
        // Exclusive pairs, CAS and SWP; LDADD and its like write whatever was there.
        () if attempt => Store::Exchange,
        () if on_stack => Store::Stack,
        () => Store::Data,
    };
    let data = if vector { 0 } else { target | second };
    // Pre- and post-indexing also move the base: single registers by bits 11..10, pairs by bit 23.
    let moves_base = match bits(word, 29, 28) {
        0b11 => bits(word, 24, 24) == 0 && bits(word, 21, 21) == 0 && bits(word, 10, 10) == 1,
        0b10 => bits(word, 23, 23) == 1,
        _ => false,
    };
    let base_bit = if literal { 0 } else { register(base) };
    // The operand of an atomic, or an index; a store-exclusive writes its status there.
    let third = register(bits(word, 20, 16));
    let unsigned_offset = bits(word, 29, 28) == 0b11 && bits(word, 24, 24) == 1;
    Instruction {
        unit: if vector { Unit::Move } else { Unit::None },
        loads,
        store,
        reads: base_bit
            | if writes_memory && !atomic { data } else { 0 }
            | if third_operand { third } else { 0 },
        writes: if loads { data } else { 0 }
            | if exclusive && !load { third } else { 0 }
            | if moves_base { base_bit } else { 0 },
        address: base_bit | if third_operand && !atomic { third } else { 0 },
        slot: (on_stack && unsigned_offset && !vector)
            .then_some((bits(word, 21, 10) << bits(word, 31, 30)) as i32),
        ..plain
    }
}

/// The group "scalar floating-point and advanced SIMD" (C4.1.96).
fn simd_or_float(word: u32, plain: Instruction) -> Instruction {
    let scalar_float = bits(word, 30, 30) == 0 && bits(word, 28, 24) == 0b11110 && bits(word, 21, 21) == 1;
    let fused = bits(word, 30, 30) == 0 && bits(word, 28, 24) == 0b11111;
    let unit = if fused {
        Unit::Float
    } else if scalar_float {
        scalar(word)
    } else if bits(word, 28, 24) & 0b01110 == 0b01110 && is_float_vector(word) {
        Unit::Float
    } else if word & 0xbff8_fc00 == 0x0f00_e400 || word & 0xfff8_fc00 == 0x6f00_e400 {
        // MOVI of bytes or doublewords, the usual way to zero a register.
        Unit::None
    } else {
        Unit::Integer
    };
    // Conversions and FMOV to a general register (opcode bits 20..16 with bits 15..10 zero) write it.
    let to_general =
        scalar_float && bits(word, 15, 10) == 0 && !matches!(bits(word, 18, 16), 0b010 | 0b011 | 0b111);
    Instruction { unit, writes: if to_general { register(bits(word, 4, 0)) } else { 0 }, ..plain }
}

/// Scalar floating-point: moves are FMOV between registers (opcode 0 of the one-source group), of an
/// immediate, and from or to a general register.
fn scalar(word: u32) -> Unit {
    let one_source = bits(word, 14, 10) == 0b10000;
    let immediate = bits(word, 12, 10) == 0b100;
    let general = bits(word, 15, 10) == 0;
    let is_move = (one_source && bits(word, 20, 15) == 0)
        || immediate
        || (general && matches!(bits(word, 20, 16), 0b00110 | 0b00111 | 0b01110 | 0b01111));
    if is_move { Unit::Move } else { Unit::Float }
}

/// Advanced SIMD three-same (opcode 11xxx), two-register miscellaneous (opcode 11xxx, 01100 to 01111) and
/// by-element (opcodes 0001, 0101, 1001) forms that compute in floating point.
fn is_float_vector(word: u32) -> bool {
    if bits(word, 24, 24) == 1 {
        return bits(word, 10, 10) == 0
            && bits(word, 23, 23) == 1
            && matches!(bits(word, 15, 12), 0b0001 | 0b0101 | 0b1001);
    }
    let three_same = bits(word, 21, 21) == 1 && bits(word, 10, 10) == 1;
    let miscellaneous = bits(word, 21, 17) == 0b10000 && bits(word, 11, 10) == 0b10;
    let two_register = bits(word, 16, 12);
    (three_same && bits(word, 15, 14) == 0b11 && bits(word, 15, 11) != 0b11000)
        || (three_same && bits(word, 15, 11) == 0b11000 && bits(word, 29, 29) == 0)
        || (miscellaneous && (two_register >= 0b11000 || (0b01100..=0b01111).contains(&two_register)))
}

/// SVE: bits 31 to 29 are the group.
fn scalable(word: u32, plain: Instruction) -> Instruction {
    match bits(word, 31, 29) {
        0b011 => Instruction { unit: Unit::Float, ..plain },
        0b111 => Instruction { unit: Unit::Move, store: Store::Data, ..plain },
        0b100..=0b110 => Instruction { unit: Unit::Move, loads: true, ..plain },
        _ => Instruction { unit: Unit::Integer, ..plain },
    }
}
