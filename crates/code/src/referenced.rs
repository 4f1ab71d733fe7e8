//! Which variable a function speaks of: how hidden variables of libraries are found by what they export.
//!
//! Problem. A library keeps a setting in a variable that it does not export, but exports a function that
//! looks at it. Approach. The function's instructions are read in order, without following jumps, and one
//! that gives the variable away is looked for. Limits. x86-64 only; two answers are none.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use std::collections::{BTreeSet, HashMap};

/// Bytes of a function that are read at most.
pub const BYTES_MAX: usize = 256;

/// The variable of 32 bits that code at an address compares with a number.
pub fn compared_with(code: &[u8], at: u64, number: u32) -> Option<u64> {
    let mut taken: HashMap<Register, u64> = HashMap::new();
    let mut found = BTreeSet::new();
    for instruction in instructions(code, at) {
        if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() {
            taken.insert(instruction.op0_register(), instruction.ip_rel_memory_address());
            continue;
        }
        let is_compared = instruction.mnemonic() == Mnemonic::Cmp
            && instruction.op0_kind() == OpKind::Memory
            && instruction.memory_size().size() == 4
            && (1..instruction.op_count()).all(|operand| instruction.try_immediate(operand).is_ok())
            && instruction.immediate(1) as u32 == number;
        if is_compared {
            found.extend(address_of(&instruction, &taken));
        }
        if instruction.op0_kind() == OpKind::Register {
            taken.remove(&instruction.op0_register().full_register());
        }
    }
    only(found)
}

/// The one variable of the library whose address code at an address takes.
pub fn taken(code: &[u8], at: u64) -> Option<u64> {
    let function = instructions(code, at).take_while(|instruction| instruction.mnemonic() != Mnemonic::Ret);
    let takes = |i: &Instruction| i.mnemonic() == Mnemonic::Lea && i.is_ip_rel_memory_operand();
    only(function.filter(takes).map(|instruction| instruction.ip_rel_memory_address()).collect())
}

fn instructions(code: &[u8], at: u64) -> impl Iterator<Item = Instruction> {
    let decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    decoder.into_iter().take_while(|instruction| !instruction.is_invalid())
}

fn address_of(instruction: &Instruction, taken: &HashMap<Register, u64>) -> Option<u64> {
    if instruction.is_ip_rel_memory_operand() {
        return Some(instruction.ip_rel_memory_address());
    }
    let is_plain = instruction.memory_index() == Register::None;
    let base = taken.get(&instruction.memory_base()).filter(|_| is_plain)?;
    Some(base.wrapping_add(instruction.memory_displacement64()))
}

fn only(found: BTreeSet<u64>) -> Option<u64> {
    found.first().copied().filter(|_| found.len() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u32 = 0x7fff_ffff;

    /// As LLVM 19 compiles `kmp_get_blocktime`, and as others may.
    #[test]
    fn a_variable_is_told_by_the_number_that_it_is_compared_with() {
        // lea rdx,[rip+0x10]; cmp dword [rdx],0x7fffffff
        let by_register = [0x48, 0x8d, 0x15, 0x10, 0, 0, 0, 0x81, 0x3a, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(compared_with(&by_register, 0x1000, MAX), Some(0x1017));
        // cmp dword [rip+0x20],0x7fffffff
        let direct = [0x81, 0x3d, 0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(compared_with(&direct, 0x1000, MAX), Some(0x102a));
        assert_eq!(compared_with(&direct, 0x1000, MAX - 1), None);
        assert_eq!(compared_with(&[direct, direct].concat(), 0x1000, MAX), None, "which of both?");
        // mov rdx,rax between them
        let changed = [&by_register[..7], &[0x48, 0x89, 0xc2], &by_register[7..]].concat();
        assert_eq!(compared_with(&changed, 0x1000, MAX), None);
    }

    /// As GCC compiles `omp_get_max_threads`.
    #[test]
    fn a_variable_is_told_by_its_address_that_is_taken() {
        // test rdx,rdx; lea rax,[rdx+0x98]; lea rdx,[rip+0x30]; cmove rax,rdx; mov eax,[rax]; ret
        let code = [
            0x48, 0x85, 0xd2, 0x48, 0x8d, 0x82, 0x98, 0, 0, 0, 0x48, 0x8d, 0x15, 0x30, 0, 0, 0, 0x48, 0x0f,
            0x44, 0xc2, 0x8b, 0x00, 0xc3,
        ];
        assert_eq!(taken(&code, 0x2000), Some(0x2041));
        let behind = [&code[..], &code[10..17]].concat();
        assert_eq!(taken(&behind, 0x2000), Some(0x2041), "the function has ended");
        assert_eq!(taken(&code[..10], 0x2000), None);
    }
}
