//! Machine code of running programs: where it lies, its bytes, and what each instruction does.
//!
//! [`AddressSpace`] maps an address of a process to a place: an offset in a mapped file, or the memory of
//! the process itself (compilers at run time, the vDSO). [`CodeStore`] reads and decodes places and keeps
//! what it decoded: for a file once for all processes, for memory only as long as the bytes stay the same.
//! [`Instruction`] is the same for every architecture; [`x86`] and [`aarch64`] make it of bytes.

pub mod aarch64;
pub mod elf;
pub mod library;
pub mod lines;
pub mod mapped_file;
pub mod names;
pub mod openmp;
pub mod printed;
pub mod snippet;
pub mod space;
pub mod store;
pub mod trace;
pub mod x86;

pub use corewise_core::code::{Flow, Instruction, StackMove, Store, Unit};
pub use names::Role;
pub use space::{AddressSpace, Backing, FileKey, Mapping};
pub use store::{CodeStore, CodeView, Decoder, FileText, Place, Plain};

use std::fs::File;
use std::os::unix::fs::FileExt;

/// An instruction set that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// x86 in 32-bit mode.
    X86,
    /// x86 in 64-bit mode.
    X86_64,
    /// A64.
    Aarch64,
}

impl Isa {
    /// The instruction set of corewise itself: what the code of a process without an ELF file is taken for.
    pub const HOST: Isa = if cfg!(target_arch = "aarch64") { Isa::Aarch64 } else { Isa::X86_64 };

    /// Bytes that hold at least one whole instruction.
    pub const INSTRUCTION_BYTES_MAX: usize = 15;

    /// The instruction set that an ELF header names; `None` if it is none of ours or no ELF header.
    pub fn of_elf(header: &[u8]) -> Option<Isa> {
        if header.get(..4)? != b"\x7fELF" {
            return None;
        }
        match u16::from_le_bytes([*header.get(18)?, *header.get(19)?]) {
            3 => Some(Isa::X86),
            62 => Some(Isa::X86_64),
            183 => Some(Isa::Aarch64),
            _ => None,
        }
    }

    /// The same of an open file.
    pub fn of_file(file: &File) -> Option<Isa> {
        let mut header = [0; 20];
        file.read_exact_at(&mut header, 0).ok().and_then(|()| Isa::of_elf(&header))
    }

    /// The instruction at the start of `bytes` in the words of an assembler, if it stands at this address.
    /// A64 has none here: its word as it is.
    pub fn assembly(self, bytes: &[u8], address: u64) -> Option<String> {
        match self {
            Isa::X86 => x86::assembly(bytes, address, 32),
            Isa::X86_64 => x86::assembly(bytes, address, 64),
            Isa::Aarch64 => {
                let word = bytes.first_chunk().map(|word| u32::from_le_bytes(*word))?;
                Some(format!(".inst {word:#010x}"))
            }
        }
    }

    /// Whether an instruction that [waits](Instruction::waits) can begin among these bytes: `false` without
    /// decoding them, which takes a hundred times as long, where none of theirs are there.
    pub fn may_wait(self, bytes: &[u8]) -> bool {
        match self {
            Isa::X86 | Isa::X86_64 => x86::may_wait(bytes),
            Isa::Aarch64 => true,
        }
    }

    /// Decodes the instruction at the start of `bytes`, `None` if there is no valid one.
    pub fn decode(self, bytes: &[u8]) -> Option<Instruction> {
        match self {
            Isa::X86 => x86::decode(bytes, 32),
            Isa::X86_64 => x86::decode(bytes, 64),
            Isa::Aarch64 => aarch64::decode(bytes),
        }
    }
}

/// Code by virtual address, as one process sees it.
pub trait Code {
    /// The instruction at an address, `None` if there is none or it cannot be read.
    fn instruction(&mut self, address: u64) -> Option<Instruction>;

    /// The pointer that memory holds at an address, `None` if it cannot be read.
    fn pointer(&mut self, address: u64) -> Option<u64>;

    /// Where the jump or call through a pointer at an address has always led so far.
    fn always_leads_to(&mut self, _address: u64) -> Option<u64> {
        None
    }

    /// How often the branch at an address was seen taken, and not taken.
    fn branched(&mut self, _address: u64) -> (u32, u32) {
        (0, 0)
    }

    /// What the name of the function that begins at an address says.
    fn role(&mut self, _function: u64) -> Role {
        Role::Unknown
    }

    /// What the name of the function says whose address the linker puts into a slot that code at `user` uses.
    fn role_of_slot(&mut self, _user: u64, _slot: u64) -> Role {
        Role::Unknown
    }
}

#[cfg(test)]
mod tests;
