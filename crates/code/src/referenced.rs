//! Which variable a function speaks of: how hidden variables of libraries are found by what they export.
//!
//! Problem. A library keeps a setting in a variable that it does not export, but exports a function that
//! looks at it. Approach. The function's instructions are read in order, without following jumps, and one
//! that gives the variable away is looked for. Limits. x86-64 only; two answers are none.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use std::collections::BTreeSet;

/// Bytes of a function that are read at most.
pub const BYTES_MAX: usize = 256;

/// The one variable of the library whose address code at an address takes.
pub fn taken(code: &[u8], at: u64) -> Option<u64> {
    let function = instructions(code, at).take_while(|instruction| instruction.mnemonic() != Mnemonic::Ret);
    let takes = |i: &Instruction| i.mnemonic() == Mnemonic::Lea && i.is_ip_rel_memory_operand();
    only(function.filter(takes).map(|instruction| instruction.ip_rel_memory_address()).collect())
}

/// The instructions of code at an address, up to the first bytes that are none.
pub(crate) fn instructions(code: &[u8], at: u64) -> impl Iterator<Item = Instruction> {
    let decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    decoder.into_iter().take_while(|instruction| !instruction.is_invalid())
}

fn only(found: BTreeSet<u64>) -> Option<u64> {
    found.first().copied().filter(|_| found.len() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

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
