//! Machine code of running programs: where it lies, its bytes, and what each instruction does.
//!
//! [`AddressSpace`] maps an address of a process to a place: an offset in a mapped file, or the memory of
//! the process itself (compilers at run time, the vDSO). [`CodeStore`] reads and decodes places and keeps
//! what it decoded: for a file once for all processes, for memory only as long as the bytes stay the same.
//! [`Instruction`] is the same for every architecture; [`x86`] and [`aarch64`] make it of bytes.

pub mod aarch64;
pub mod space;
pub mod store;
pub mod x86;

pub use space::{AddressSpace, Backing, FileKey, Mapping};
pub use store::{CodeStore, CodeView, Place};

/// What one instruction does, as far as corewise wants to know. Relative to its own address, so that it
/// holds wherever the code is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Length in bytes.
    pub length: u8,
    /// Which instruction comes next.
    pub flow: Flow,
    /// What it asks of the floating-point and vector unit.
    pub unit: Unit,
    /// Whether it reads memory.
    pub loads: bool,
    /// Where it writes memory.
    pub store: Store,
    /// General registers read, one bit each.
    pub reads: u32,
    /// General registers written, one bit each.
    pub writes: u32,
    /// Whether it tells the core that the program waits (PAUSE, YIELD, WFE).
    pub waits: bool,
}

/// Where control goes after an instruction. Displacements count from the instruction's own address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// Always elsewhere.
    Jump(i64),
    /// Elsewhere or to the next instruction.
    Branch(i64),
    /// Into a function that returns to the next instruction.
    Call(i64),
    /// To the address that a memory slot holds (a jump through the linkage table).
    JumpThrough(i64),
    /// Into the function whose address a memory slot holds.
    CallThrough(i64),
    /// To an address that only the running program knows.
    JumpAnywhere,
    /// Into a function that only the running program knows.
    CallAnywhere,
    /// Back to the caller.
    Return,
    /// Into the kernel: nothing of user code is in flight meanwhile.
    Kernel,
}

/// What an instruction asks of the floating-point and vector unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nothing; also zeroing a register, which register renaming does.
    None,
    /// Passing data through its registers without computing.
    Move,
    /// Integer, logic and shuffle work.
    Integer,
    /// Floating-point arithmetic, comparison and conversion.
    Float,
}

/// Where an instruction writes memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Nowhere.
    None,
    /// Relative to the stack pointer or frame pointer.
    Stack,
    /// Elsewhere.
    Data,
    /// Elsewhere, as an atomic read-modify-write.
    Atomic,
}

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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `HEX`, what an assembler was given, and what is expected to be known of it.
    const X86_64: &[(&str, &str, &str)] = &[
        ("f20f58c1", "addsd xmm0, xmm1", ""),
        ("c4e2f5b8c2", "vfmadd231pd ymm0, ymm1, ymm2", ""),
        ("660f2e07", "ucomisd xmm0, [rdi]", ""),
        ("f20f2cc0", "cvttsd2si eax, xmm0", ""),
        ("f30f51c1", "sqrtss xmm0, xmm1", ""),
        ("d8c1", "fadd st(1)", ""),
        ("dd442408", "fld qword ptr [rsp+8]", ""),
        ("d93c24", "fnstcw [rsp]", ""),
        ("0f1007", "movups xmm0, [rdi]", ""),
        ("f20f1107", "movsd [rdi], xmm0", ""),
        ("a5", "movsd", ""),
        ("a7", "cmpsd", ""),
        ("660fefc0", "pxor xmm0, xmm0", ""),
        ("c5f457c9", "vxorps ymm1, ymm1, ymm1", ""),
        ("660fefc1", "pxor xmm0, xmm1", ""),
        ("660ffec1", "paddd xmm0, xmm1", ""),
        ("660f7407", "pcmpeqb xmm0, [rdi]", ""),
        ("660fd7c0", "pmovmskb eax, xmm0", ""),
        ("66480f6ec0", "movq xmm0, rax", ""),
        ("c5f877", "vzeroupper", ""),
        ("0307", "add eax, [rdi]", ""),
        ("8907", "mov [rdi], eax", ""),
        ("89442408", "mov [rsp+8], eax", ""),
        ("50", "push rax", ""),
        ("f00fb10f", "lock cmpxchg [rdi], ecx", ""),
        ("8707", "xchg [rdi], eax", ""),
        ("31c0", "xor eax, eax", ""),
        ("488d4708", "lea rax, [rdi+8]", ""),
        ("0f45c1", "cmovne eax, ecx", ""),
        ("f390", "pause", ""),
        ("eb0e", "jmp .+16", ""),
        ("75fc", "jne .-2", ""),
        ("e80b000000", "call .+16", ""),
        ("c3", "ret", ""),
        ("ffe0", "jmp rax", ""),
        ("ff2510000000", "jmp [rip+16]", ""),
        ("ff1510000000", "call [rip+16]", ""),
        ("ffd0", "call rax", ""),
        ("0f05", "syscall", ""),
        ("0f0b", "ud2", ""),
    ];

    const AARCH64: &[(&str, &str, &str)] = &[
        ("2028621e", "fadd d0, d1, d2", ""),
        ("200c421f", "fmadd d0, d1, d2, d3", ""),
        ("2040601e", "fmov d0, d1", ""),
        ("00106e1e", "fmov d0, #1.0", ""),
        ("0000669e", "fmov x0, d0", ""),
        ("0000781e", "fcvtzs w0, d0", ""),
        ("0000621e", "scvtf d0, w0", ""),
        ("0020611e", "fcmp d0, d1", ""),
        ("20c0611e", "fsqrt d0, d1", ""),
        ("20d4624e", "fadd v0.2d, v1.2d, v2.2d", ""),
        ("2010a24f", "fmla v0.4s, v1.4s, v2.s[1]", ""),
        ("20b8a14e", "fcvtzs v0.4s, v1.4s", ""),
        ("2084a24e", "add v0.4s, v1.4s, v2.4s", ""),
        ("201c224e", "and v0.16b, v1.16b, v2.16b", ""),
        ("00e4006f", "movi v0.2d, #0", ""),
        ("000040fd", "ldr d0, [x0]", ""),
        ("0004803d", "str q0, [x0, #16]", ""),
        ("0004c16c", "ldp d0, d1, [x0], #16", ""),
        ("2000c265", "fadd z0.d, z1.d, z2.d", ""),
        ("2000e204", "add z0.d, z1.d, z2.d", ""),
        ("00a0e0a5", "ld1d {z0.d}, p0/z, [x0]", ""),
        ("010040b9", "ldr w1, [x0]", ""),
        ("010000b9", "str w1, [x0]", ""),
        ("e10700f9", "str x1, [sp, #8]", ""),
        ("fd7bbfa9", "stp x29, x30, [sp, #-16]!", ""),
        ("018440f8", "ldr x1, [x0], #8", ""),
        ("81000058", "ldr x1, #16", ""),
        ("01fc5f88", "ldaxr w1, [x0]", ""),
        ("017c0288", "stxr w2, w1, [x0]", ""),
        ("020021b8", "ldadd w1, w2, [x0]", ""),
        ("01fcdf88", "ldar w1, [x0]", ""),
        ("20040091", "add x0, x1, #1", ""),
        ("2000028b", "add x0, x1, x2", ""),
        ("200c029b", "madd x0, x1, x2, x3", ""),
        ("200080d2", "mov x0, #1", ""),
        ("200080f2", "movk x0, #1", ""),
        ("40000010", "adr x0, #8", ""),
        ("000041fa", "ccmp x0, x1, #0, eq", ""),
        ("04000014", "b #16", ""),
        ("c1ffff54", "b.ne #-8", ""),
        ("400000b4", "cbz x0, #8", ""),
        ("e0ff1f37", "tbnz w0, #3, #-4", ""),
        ("04000094", "bl #16", ""),
        ("c0035fd6", "ret", ""),
        ("00001fd6", "br x0", ""),
        ("00003fd6", "blr x0", ""),
        ("010000d4", "svc #0", ""),
        ("3f2003d5", "yield", ""),
        ("5f2003d5", "wfe", ""),
        ("df3f03d5", "isb", ""),
        ("1f2003d5", "nop", ""),
    ];

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// `FLOW UNIT MEMORY reads->writes`, less what is usual.
    fn drawn(instruction: Instruction) -> String {
        let registers = |mask: u32| {
            let numbers: Vec<String> =
                (0..32).filter(|bit| mask >> bit & 1 == 1).map(|bit| bit.to_string()).collect();
            numbers.join(",")
        };
        let mut words = vec![];
        if instruction.flow != Flow::Next {
            words.push(format!("{:?}", instruction.flow));
        }
        if instruction.unit != Unit::None {
            words.push(format!("{:?}", instruction.unit));
        }
        if instruction.loads {
            words.push("loads".into());
        }
        if instruction.store != Store::None {
            words.push(format!("stores:{:?}", instruction.store));
        }
        if instruction.waits {
            words.push("waits".into());
        }
        words.push(format!("{}->{}", registers(instruction.reads), registers(instruction.writes)));
        words.join(" ")
    }

    #[test]
    fn instructions_are_understood() {
        for (isa, table) in [(Isa::X86_64, X86_64), (Isa::Aarch64, AARCH64)] {
            for (hex, text, expected) in table {
                let instruction = isa.decode(&bytes(hex)).unwrap_or_else(|| panic!("{text} decodes"));
                assert_eq!(usize::from(instruction.length), hex.len() / 2, "{text}");
                assert_eq!(drawn(instruction), *expected, "{text}");
            }
        }
    }
}
