//! Code in hexadecimal, for tests of what reads code.

use crate::{Code, Instruction, Isa, Role};

/// The bytes that hexadecimal digits stand for.
pub fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Code at [`Snippet::BASE`].
pub struct Snippet {
    bytes: Vec<u8>,
    /// What every pointer in memory points to.
    pointer: Option<u64>,
    /// What the names of the functions say that are called through memory.
    role: Role,
}

impl Snippet {
    /// Where it begins.
    pub const BASE: u64 = 0x1000;

    /// The code that hexadecimal digits stand for.
    pub fn new(hex: &str) -> Snippet {
        Snippet { bytes: bytes(hex), pointer: None, role: Role::Unknown }
    }

    /// The same, where every pointer in memory points into the code, so many bytes from its start.
    pub fn with_pointer(self, offset: u64) -> Snippet {
        Snippet { pointer: Some(Snippet::BASE + offset), ..self }
    }

    /// The same, where the functions that are called through memory have this role.
    pub fn with_role(self, role: Role) -> Snippet {
        Snippet { role, ..self }
    }
}

impl Code for Snippet {
    fn instruction(&mut self, address: u64) -> Option<Instruction> {
        let offset = usize::try_from(address.checked_sub(Snippet::BASE)?).ok()?;
        Isa::X86_64.decode(self.bytes.get(offset..)?)
    }

    fn pointer(&mut self, _address: u64) -> Option<u64> {
        self.pointer
    }

    fn role_of_slot(&mut self, _user: u64, _slot: u64) -> Role {
        self.role
    }
}
