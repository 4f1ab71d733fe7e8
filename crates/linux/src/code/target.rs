//! Where does a jump or call through a pointer lead?
//!
//! Problem. The code does not tell where `jmp [r14+rax*8]` goes: that depends on values that only the running
//! program knows.
//!
//! Approach. A sample has the thread's registers. If nothing but straight code lies between the sampled
//! instruction and the jump, what the jump needs is computed: moves, address arithmetic, shifts and masks are
//! carried out on the registers, and memory is read from the thread. Whatever else is done leaves its result
//! unknown.
//!
//! Limits. Memory is read later than the sample was taken. What tables of jumps, tables of virtual
//! functions and the code of interpreters hold rarely changes, what variables hold does; what is written in
//! between is not seen. x86-64 only.

use super::{Isa, x86};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Instructions carried out at most.
const LENGTH_MAX: usize = 48;

/// The number of the stack pointer.
const STACK: usize = 4;

/// The values of general registers by number, as far as they are known.
type Registers = [Option<u64>; 16];

/// What is needed of the thread.
pub trait Thread {
    /// Bytes of code at an address, and how many of them are valid.
    fn code(&mut self, address: u64) -> Option<([u8; Isa::INSTRUCTION_BYTES_MAX], usize)>;

    /// Eight bytes of its memory.
    fn memory(&mut self, address: u64) -> Option<u64>;
}

/// Where the transfer at `site` leads a thread that comes to it from `here` with these registers.
pub fn target(thread: &mut dyn Thread, here: u64, site: u64, registers: &[u64; 16]) -> Option<u64> {
    let mut registers = registers.map(Some);
    let mut here = here;
    for _ in 0..LENGTH_MAX {
        let (bytes, length) = thread.code(here)?;
        let instruction = Decoder::with_ip(64, &bytes[..length], here, DecoderOptions::NONE).decode();
        let operand = |thread: &mut dyn Thread| value(thread, &registers, &instruction, 0);
        if here == site {
            return operand(thread);
        }
        here = match instruction.flow_control() {
            FlowControl::Next => {
                let writes = x86::decode(&bytes[..length], 64)?.writes;
                carry_out(thread, &mut registers, &instruction, writes);
                instruction.next_ip()
            }
            FlowControl::UnconditionalBranch => instruction.near_branch_target(),
            FlowControl::IndirectBranch => operand(thread)?,
            _ => return None,
        };
    }
    None
}

fn carry_out(thread: &mut dyn Thread, registers: &mut Registers, instruction: &Instruction, writes: u32) {
    use Mnemonic::{Add, And, Imul, Lea, Mov, Movsx, Movsxd, Movzx, Or, Pop, Push, Sar, Shl, Shr, Sub, Xor};
    let mnemonic = instruction.mnemonic();
    let to = instruction.op0_register();
    let bits = to.size() as u32 * 8;
    let count = |by: u64| by as u32 & (bits.max(32) - 1);
    let operand = |thread: &mut dyn Thread, index| value(thread, registers, instruction, index);
    let both = |thread: &mut dyn Thread| Some((operand(thread, 0)?, operand(thread, 1)?));
    let result = match mnemonic {
        Mov | Movzx => operand(thread, 1),
        Movsx | Movsxd => operand(thread, 1).map(|value| extended(value, operand_bits(instruction, 1))),
        Lea => address(registers, instruction),
        Xor if to != Register::None && to == instruction.op1_register() => Some(0),
        Add => both(thread).map(|(a, b)| a.wrapping_add(b)),
        Sub => both(thread).map(|(a, b)| a.wrapping_sub(b)),
        And => both(thread).map(|(a, b)| a & b),
        Or => both(thread).map(|(a, b)| a | b),
        Xor => both(thread).map(|(a, b)| a ^ b),
        Shl => both(thread).map(|(a, b)| a << count(b)),
        Shr => both(thread).map(|(a, b)| a >> count(b)),
        Sar => both(thread).map(|(a, b)| (extended(a, bits) as i64 >> count(b)) as u64),
        Imul if instruction.op_count() == 3 => {
            operand(thread, 1).zip(operand(thread, 2)).map(|(a, b)| a.wrapping_mul(b))
        }
        Pop => registers[STACK].and_then(|at| thread.memory(at)),
        _ => None,
    };
    let moved =
        registers[STACK].map(|at| at.wrapping_add_signed(instruction.stack_pointer_increment().into()));
    for (number, register) in registers.iter_mut().enumerate().filter(|(number, _)| writes >> number & 1 == 1)
    {
        let is_result = to.is_gpr() && to.full_register().number() == number;
        // Of a part of a register the rest stays: nothing that addresses are made of.
        *register = result.filter(|_| is_result && bits >= 32).map(|value| cut(value, bits));
    }
    if matches!(mnemonic, Push | Pop) {
        registers[STACK] = moved;
    }
}

fn operand_bits(instruction: &Instruction, operand: u32) -> u32 {
    match instruction.op_kind(operand) {
        OpKind::Register => instruction.op_register(operand).size() as u32 * 8,
        _ => instruction.memory_size().size() as u32 * 8,
    }
}

fn extended(value: u64, bits: u32) -> u64 {
    let unused = 64 - bits.clamp(8, 64);
    ((value << unused) as i64 >> unused) as u64
}

fn cut(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
}

fn get(registers: &Registers, register: Register) -> Option<u64> {
    if !register.is_gpr() || matches!(register, Register::AH | Register::BH | Register::CH | Register::DH) {
        return None;
    }
    registers[register.full_register().number()].map(|value| cut(value, register.size() as u32 * 8))
}

fn address(registers: &Registers, instruction: &Instruction) -> Option<u64> {
    instruction.virtual_address(memory_operand(instruction)?, 0, |register, _, _| match register {
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        register => get(registers, register),
    })
}

fn memory_operand(instruction: &Instruction) -> Option<u32> {
    (0..instruction.op_count()).find(|&operand| instruction.op_kind(operand) == OpKind::Memory)
}

fn value(
    thread: &mut dyn Thread,
    registers: &Registers,
    instruction: &Instruction,
    operand: u32,
) -> Option<u64> {
    match instruction.op_kind(operand) {
        OpKind::Register => get(registers, instruction.op_register(operand)),
        OpKind::Memory => {
            let value = thread.memory(address(registers, instruction)?)?;
            Some(cut(value, operand_bits(instruction, operand)))
        }
        OpKind::NearBranch64 => Some(instruction.near_branch_target()),
        _ => instruction.try_immediate(operand).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Made {
        code: Vec<u8>,
        /// Address and value.
        memory: Vec<(u64, u64)>,
    }

    impl Thread for Made {
        fn code(&mut self, address: u64) -> Option<([u8; Isa::INSTRUCTION_BYTES_MAX], usize)> {
            let rest = self.code.get(address.checked_sub(0x1000)? as usize..)?;
            let mut bytes = [0; Isa::INSTRUCTION_BYTES_MAX];
            let length = rest.len().min(bytes.len());
            bytes[..length].copy_from_slice(&rest[..length]);
            Some((bytes, length))
        }

        fn memory(&mut self, address: u64) -> Option<u64> {
            self.memory.iter().find(|(at, _)| *at == address).map(|&(_, value)| value)
        }
    }

    fn led_to(hex: &str, site: u64, memory: &[(u64, u64)]) -> Option<u64> {
        let code =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        // Each register holds 256 times its number.
        let registers = std::array::from_fn(|number| number as u64 * 256);
        target(&mut Made { code, memory: memory.to_vec() }, 0x1000, 0x1000 + site, &registers)
    }

    #[test]
    fn the_registers_of_a_sample_tell_where_a_pointer_leads() {
        for (name, hex, site, memory, expected) in [
            ("jmp rbx", "ffe3", 0, &[][..], Some(0x300)),
            ("call [rdi+16]", "ff5710", 0, &[(0x710, 0x5000)][..], Some(0x5000)),
            // mov rax,[rdi]; call [rax+24]
            ("a virtual function", "488b07ff5018", 3, &[(0x700, 0x9000), (0x9018, 0x77)][..], Some(0x77)),
            // movzx eax,byte [rbx]; add rbx,1; jmp [r14+rax*8]
            ("threaded code", "0fb6034883c30141ff24c6", 7, &[(0x300, 0xf03), (0xe18, 0x44)][..], Some(0x44)),
            // lea rdx,[rip+9]; movsxd rax,[rdx+rcx*4]; add rax,rdx; jmp rax
            (
                "a table of offsets",
                "488d15090000004863048a4801d0ffe0",
                14,
                &[(0x1010 + 0x400, 0xffff_fff0)][..],
                Some(0x1000),
            ),
            // cvtsi2sd xmm0,rcx; jmp rbx
            ("behind what does not matter", "f2480f2ac1ffe3", 5, &[][..], Some(0x300)),
            // rdtsc; jmp rbx
            ("behind what is not understood", "0f31ffe3", 2, &[][..], None),
            // bsr rbx,rcx; jmp rbx
            ("a value that is not computed", "480fbdd9ffe3", 4, &[][..], None),
            // test eax,eax; je .+2; jmp rbx
            ("behind a branch", "85c07400ffe3", 4, &[][..], None),
            ("memory that cannot be read", "ff5710", 0, &[][..], None),
        ] {
            assert_eq!(led_to(hex, site, memory), expected, "{name}");
        }
    }
}
