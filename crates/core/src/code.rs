//! What a machine instruction does, as plain data: the same for every architecture.
//!
//! Bytes are decoded elsewhere (`corewise-code`); what needs the result without a machine, as stitching path
//! profiles does, stays pure.

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
    /// Those of [`Instruction::reads`] that the address of the memory accessed is made of.
    pub address: u32,
    /// Displacement of the memory accessed from the stack or frame pointer, if it is on the stack.
    pub slot: Option<i32>,
    /// Whether it tells the core that the program waits (PAUSE, YIELD, WFE).
    pub waits: bool,
    /// Whether it repeats itself (`rep movs`): then it fills the processor for long.
    pub repeats: bool,
    /// What it does to the stack pointer, if it is no call or return.
    pub stack: StackMove,
}

/// What an instruction does to the stack pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackMove {
    /// Moves it by so many bytes.
    By(i32),
    /// Sets it to the frame pointer plus so many bytes.
    ToFrame(i32),
    /// Takes the frame pointer from where it points to, and moves on.
    PopFrame,
    /// Sets it to the frame pointer, then [`StackMove::PopFrame`] (`leave`).
    Leave,
    /// Sets it to what only the running program knows.
    Unknown,
}

impl StackMove {
    /// It stays as it is.
    pub const NONE: StackMove = StackMove::By(0);
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
    /// Elsewhere, as an atomic exchange, which may be conditional: an attempt to take what others may hold.
    Exchange,
}
