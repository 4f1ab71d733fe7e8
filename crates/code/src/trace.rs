//! What does a thread do next?
//!
//! Problem. The code does not tell which way a branch goes, or where `jmp [r14+rax*8]` leads: that depends on
//! values that only the running program knows.
//!
//! Approach. A sample has the thread's registers. The instructions that follow are carried out on a copy of
//! them as far as they move values, compute addresses, compare and mask; memory is read from the thread, and
//! what is stored on the way is kept beside. Whatever else is done leaves its result unknown, and the trace
//! ends where the way depends on that.
//!
//! Limits. Memory is read later than the sample was taken. Types of values, tables of jumps, of virtual
//! functions and the code of interpreters rarely change, what other variables hold does. x86-64 only.

use super::{Isa, x86};
use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// Number of the stack and the frame pointer.
const STACK: usize = 4;
const FRAME: usize = 5;

/// What is needed of the thread.
pub trait Thread {
    /// Bytes of code at an address, and how many of them are valid.
    fn code(&mut self, address: u64) -> Option<([u8; Isa::INSTRUCTION_BYTES_MAX], usize)>;

    /// Eight bytes of its memory.
    fn memory(&mut self, address: u64) -> Option<u64>;
}

/// What was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// The instructions' addresses, in order.
    pub path: Vec<u64>,
    /// The conditional branches among them, and whether they were taken.
    pub branches: Vec<(u64, bool)>,
    /// The jumps (`true`) and calls through pointers, and where they led.
    pub pointers: Vec<(u64, bool, u64)>,
    /// The instruction that comes next and was not carried out; `None` where the program asks the kernel.
    pub next: Option<u64>,
    /// The stack pointer there.
    pub stack_pointer: Option<u64>,
    /// The register that may be the frame pointer.
    pub frame_pointer: Option<u64>,
}

/// How the last comparison went, as far as it is known.
#[derive(Clone, Copy)]
enum Flags {
    Unknown,
    /// Of the difference of two values of so many bits.
    Compared(u64, u64, u32),
    /// Of a result; whether nothing was carried, as by logical operations.
    Result(u64, u32, bool),
}

struct Machine<'a> {
    thread: &'a mut dyn Thread,
    /// General registers by number.
    registers: [Option<u64>; 16],
    flags: Flags,
    /// Address, bytes and value of what was stored.
    stored: Vec<(u64, u64, Option<u64>)>,
}

/// What a thread does from `here` on with these registers, at most `length` instructions.
pub fn trace(thread: &mut dyn Thread, here: u64, registers: &[u64; 16], length: usize) -> Trace {
    let mut machine =
        Machine { thread, registers: registers.map(Some), flags: Flags::Unknown, stored: Vec::new() };
    let mut trace = Trace { next: Some(here), ..Trace::default() };
    while let Some(here) = trace.next.filter(|_| trace.path.len() < length) {
        let Some((bytes, valid)) = machine.thread.code(here) else { break };
        let instruction = Decoder::with_ip(64, &bytes[..valid], here, DecoderOptions::NONE).decode();
        if instruction.flow_control() == FlowControl::Next {
            let Some(()) = machine.carry_out(&instruction, &bytes[..valid]) else { break };
            trace.path.push(here);
            trace.next = Some(instruction.next_ip());
            continue;
        }
        let Some(next) = machine.transfer(&instruction, &mut trace) else { break };
        trace.path.push(here);
        trace.next = next;
    }
    let registers = machine.registers;
    Trace { stack_pointer: registers[STACK], frame_pointer: registers[FRAME], ..trace }
}

impl Machine<'_> {
    /// Where a transfer leads, `None` if that is not known.
    fn transfer(&mut self, instruction: &Instruction, trace: &mut Trace) -> Option<Option<u64>> {
        let here = instruction.ip();
        let next = match instruction.flow_control() {
            FlowControl::UnconditionalBranch => instruction.near_branch_target(),
            FlowControl::ConditionalBranch => {
                let taken = self.holds(instruction.condition_code())?;
                trace.branches.push((here, taken));
                if taken { instruction.near_branch_target() } else { instruction.next_ip() }
            }
            FlowControl::IndirectBranch | FlowControl::IndirectCall => {
                let to = self.value(instruction, 0)?;
                let is_jump = instruction.flow_control() == FlowControl::IndirectBranch;
                // Through a fixed slot the code itself tells.
                if !instruction.is_ip_rel_memory_operand() {
                    trace.pointers.push((here, is_jump, to));
                }
                to
            }
            FlowControl::Call if instruction.is_call_near() => instruction.near_branch_target(),
            FlowControl::Return => self.load(self.registers[STACK]?, 64)?,
            _ => return Some(None),
        };
        let moved = instruction.stack_pointer_increment();
        self.registers[STACK] = self.registers[STACK].map(|at| at.wrapping_add_signed(moved.into()));
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            self.store(self.registers[STACK], 64, Some(instruction.next_ip()));
        }
        Some(Some(next))
    }

    fn holds(&self, condition: ConditionCode) -> Option<bool> {
        use ConditionCode as C;
        let (equal, below, less, negative) = match self.flags {
            Flags::Unknown => return None,
            Flags::Compared(a, b, bits) => {
                let (a, b) = (cut(a, bits), cut(b, bits));
                let less = (extended(a, bits) as i64) < extended(b, bits) as i64;
                let negative = (extended(a.wrapping_sub(b), bits) as i64) < 0;
                (a == b, Some(a < b), Some(less), negative)
            }
            Flags::Result(result, bits, is_logical) => {
                let negative = (extended(result, bits) as i64) < 0;
                let carried = is_logical.then_some(false);
                (cut(result, bits) == 0, carried, is_logical.then_some(negative), negative)
            }
        };
        match condition {
            C::e => Some(equal),
            C::ne => Some(!equal),
            C::s => Some(negative),
            C::ns => Some(!negative),
            C::b => below,
            C::ae => below.map(|below| !below),
            C::be => below.map(|below| below || equal),
            C::a => below.map(|below| !(below || equal)),
            C::l => less,
            C::ge => less.map(|less| !less),
            C::le => less.map(|less| less || equal),
            C::g => less.map(|less| !(less || equal)),
            _ => None,
        }
    }

    /// Carries out an instruction that goes on to the next; `None` if it repeats itself or is none.
    fn carry_out(&mut self, instruction: &Instruction, bytes: &[u8]) -> Option<()> {
        use Mnemonic::{Cmp, Endbr64, Leave, Mov, Movsx, Movsxd, Movzx, Nop, Pop, Push, Test};
        let bits = self.bits(instruction, 0);
        match instruction.mnemonic() {
            Nop | Endbr64 => {}
            Leave => {
                let frame = self.registers[FRAME];
                self.registers[FRAME] = frame.and_then(|at| self.load(at, 64));
                self.registers[STACK] = frame.map(|at| at.wrapping_add(8));
            }
            Push => {
                let value = self.value(instruction, 0);
                self.registers[STACK] = self.registers[STACK].map(|at| at.wrapping_sub(8));
                self.store(self.registers[STACK], 64, value);
            }
            Pop => {
                let value = self.registers[STACK].and_then(|at| self.load(at, 64));
                self.registers[STACK] = self.registers[STACK].map(|at| at.wrapping_add(8));
                self.write(instruction, value);
            }
            Mov | Movzx => {
                let value = self.value(instruction, 1);
                self.write(instruction, value);
            }
            Movsx | Movsxd => {
                let value =
                    self.value(instruction, 1).map(|value| extended(value, self.bits(instruction, 1)));
                self.write(instruction, value);
            }
            Mnemonic::Lea => {
                let value = self.address(instruction);
                self.write(instruction, value);
            }
            Cmp | Test => {
                let both = self.value(instruction, 0).zip(self.value(instruction, 1));
                self.flags = match (both, instruction.mnemonic()) {
                    (Some((a, b)), Cmp) => Flags::Compared(a, b, bits),
                    (Some((a, b)), _) => Flags::Result(a & b, bits, true),
                    (None, _) => Flags::Unknown,
                };
            }
            _ => return self.compute(instruction, bytes),
        }
        Some(())
    }

    fn compute(&mut self, instruction: &Instruction, bytes: &[u8]) -> Option<()> {
        use Mnemonic::{Add, And, Dec, Imul, Inc, Or, Sar, Shl, Shr, Sub, Xor};
        let bits = self.bits(instruction, 0);
        let count = |by: u64| by as u32 & (bits.max(32) - 1);
        let is_cleared = instruction.mnemonic() == Xor && {
            let to = instruction.op0_register();
            to != Register::None && to == instruction.op1_register()
        };
        let operands = match instruction.op_count() {
            1 => self.value(instruction, 0).map(|a| (a, 1)),
            2 if is_cleared => Some((0, 0)),
            2 => self.value(instruction, 0).zip(self.value(instruction, 1)),
            3 => self.value(instruction, 1).zip(self.value(instruction, 2)),
            _ => None,
        };
        let result = |f: fn(u64, u64) -> u64| operands.map(|(a, b)| f(a, b));
        let (value, is_logical) = match instruction.mnemonic() {
            Add | Inc => (result(u64::wrapping_add), false),
            Sub | Dec => (result(u64::wrapping_sub), false),
            And => (result(|a, b| a & b), true),
            Or => (result(|a, b| a | b), true),
            Xor => (result(|a, b| a ^ b), true),
            Shl => (operands.map(|(a, b)| a << count(b)), false),
            Shr => (operands.map(|(a, b)| cut(a, bits) >> count(b)), false),
            Sar => (operands.map(|(a, b)| (extended(a, bits) as i64 >> count(b)) as u64), false),
            Imul if instruction.op_count() > 1 => (result(u64::wrapping_mul), false),
            _ => return self.give_up(instruction, bytes),
        };
        self.flags = match (value, instruction.mnemonic(), operands) {
            (Some(_), Sub, Some((a, b))) => Flags::Compared(a, b, bits),
            (_, Imul, _) | (None, ..) => Flags::Unknown,
            (Some(value), ..) => Flags::Result(value, bits, is_logical),
        };
        self.write(instruction, value);
        Some(())
    }

    /// Forgets the values that an unknown instruction changes.
    fn give_up(&mut self, instruction: &Instruction, bytes: &[u8]) -> Option<()> {
        let decoded = x86::decode(bytes, 64).filter(|decoded| !decoded.repeats)?;
        for (number, register) in self.registers.iter_mut().enumerate() {
            if decoded.writes >> number & 1 == 1 {
                *register = None;
            }
        }
        if instruction.rflags_modified() != 0 {
            self.flags = Flags::Unknown;
        }
        if decoded.store != super::Store::None {
            let bits = instruction.memory_size().size() as u32 * 8;
            self.store(self.address(instruction), bits, None);
        }
        Some(())
    }

    fn bits(&self, instruction: &Instruction, operand: u32) -> u32 {
        let bytes = match instruction.op_kind(operand) {
            OpKind::Register => instruction.op_register(operand).size(),
            _ => instruction.memory_size().size(),
        };
        bytes as u32 * 8
    }

    fn get(&self, register: Register) -> Option<u64> {
        let is_high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
        let full = register.full_register();
        let known = register.is_gpr() && !is_high;
        self.registers.get(full.number()).copied().flatten().filter(|_| known)
    }

    fn address(&self, instruction: &Instruction) -> Option<u64> {
        let is_memory = |&operand: &u32| instruction.op_kind(operand) == OpKind::Memory;
        let operand = (0..instruction.op_count()).find(is_memory)?;
        instruction.virtual_address(operand, 0, |register, _, _| match register {
            Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
            register => self.get(register).map(|value| cut(value, register.size() as u32 * 8)),
        })
    }

    fn value(&mut self, instruction: &Instruction, operand: u32) -> Option<u64> {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let bits = self.bits(instruction, operand);
                self.get(instruction.op_register(operand)).map(|value| cut(value, bits))
            }
            OpKind::Memory => self.load(self.address(instruction)?, self.bits(instruction, operand)),
            _ => instruction.try_immediate(operand).ok(),
        }
    }

    /// Writes the first operand.
    fn write(&mut self, instruction: &Instruction, value: Option<u64>) {
        let bits = self.bits(instruction, 0);
        if instruction.op0_kind() == OpKind::Memory {
            self.store(self.address(instruction), bits, value);
            return;
        }
        let to = instruction.op0_register();
        if !to.is_gpr() {
            return;
        }
        let full = &mut self.registers[to.full_register().number()];
        *full = match bits {
            64 => value,
            32 => value.map(|value| cut(value, 32)),
            _ if to.number() != to.full_register().number() => None,
            _ => value.zip(*full).map(|(value, full)| full & !cut(u64::MAX, bits) | cut(value, bits)),
        };
    }

    fn load(&mut self, address: u64, bits: u32) -> Option<u64> {
        let bytes = u64::from(bits / 8);
        if bytes == 0 || bytes > 8 {
            return None;
        }
        let overlaps = |&&(at, length, _): &&(u64, u64, Option<u64>)| {
            address < at.wrapping_add(length) && at < address.wrapping_add(bytes)
        };
        let value = match self.stored.iter().rev().find(overlaps) {
            Some(&(at, length, value)) if at == address && length >= bytes => value?,
            Some(_) => return None,
            None => self.thread.memory(address)?,
        };
        Some(cut(value, bits))
    }

    fn store(&mut self, address: Option<u64>, bits: u32, value: Option<u64>) {
        if let Some(address) = address {
            self.stored.push((address, u64::from(bits / 8), value));
        }
    }
}

fn extended(value: u64, bits: u32) -> u64 {
    let unused = 64 - bits.clamp(8, 64);
    ((value << unused) as i64 >> unused) as u64
}

fn cut(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value & ((1 << bits) - 1) }
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

    fn traced(hex: &str, memory: &[(u64, u64)]) -> Trace {
        let code =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        // Each register holds 256 times its number.
        let registers = std::array::from_fn(|number| number as u64 * 256);
        trace(&mut Made { code, memory: memory.to_vec() }, 0x1000, &registers, 48)
    }

    fn led_to(hex: &str, site: u64, memory: &[(u64, u64)]) -> Option<u64> {
        let pointers = traced(hex, memory).pointers;
        pointers.iter().find(|(from, ..)| *from == 0x1000 + site).map(|&(.., to)| to)
    }

    #[test]
    fn branches_go_as_the_registers_and_memory_say() {
        for (name, hex, memory, branches) in [
            ("test rax,rax; je .+2", "4885c07400", &[][..], &[(3, true)][..]),
            ("cmp byte [rbx+8],4; jne .+2", "807b08047500", &[(0x308, 0x1104)], &[(4, false)]),
            ("cmp rcx,rdx; jl .+2; ja .+2", "4839d17c007700", &[], &[(3, true), (5, false)]),
            ("1: sub ecx,128; jne 1b", "81e98000000075f8", &[], &[(6, true), (6, false)]),
            (
                "mov [rsp],rcx; cmp qword [rsp],256; je .+2",
                "48890c2448813c24000100007400",
                &[],
                &[(12, true)],
            ),
            ("ucomisd xmm0,xmm1; ja .+2", "660f2ec17700", &[], &[]),
            (
                "call 1f; jmp 2f; 1: xor eax,eax; ret; 2: test eax,eax; je .+2",
                "e802000000eb0331c0c385c07400",
                &[],
                &[(12, true)],
            ),
        ] {
            let branches: Vec<(u64, bool)> =
                branches.iter().map(|&(at, taken)| (0x1000 + at, taken)).collect();
            assert_eq!(traced(hex, memory).branches, branches, "{name}");
        }
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
            // rdtsc; jmp rax
            ("behind what is not understood", "0f31ffe0", 2, &[][..], None),
            // bsr rbx,rcx; jmp rbx
            ("a value that is not computed", "480fbdd9ffe3", 4, &[][..], None),
            // ucomisd xmm0,xmm1; ja .+2; jmp rbx
            ("behind a branch that is not known", "660f2ec17700ffe3", 6, &[][..], None),
            ("memory that cannot be read", "ff5710", 0, &[][..], None),
        ] {
            assert_eq!(led_to(hex, site, memory), expected, "{name}");
        }
    }
}
