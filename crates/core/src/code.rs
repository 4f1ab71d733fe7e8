//! What a machine instruction does, as plain data that is the same for every architecture.
//!
//! Bytes are decoded elsewhere (`corewise-code`), so that code that only needs the result, such as stitching
//! path profiles, stays pure.

/// The properties of an instruction that corewise uses. All are relative to its own address, so that they
/// hold wherever the code is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Length in bytes.
    pub length: u8,
    /// Which instruction is next.
    pub flow: Flow,
    /// Its use of the floating-point and vector unit.
    pub unit: Unit,
    /// Whether it reads memory.
    pub loads: bool,
    /// Where it writes memory.
    pub store: Store,
    /// General registers read, one bit each.
    pub reads: u32,
    /// General registers written, one bit each.
    pub writes: u32,
    /// Those of [`Instruction::reads`] that form the address of the memory access.
    pub address: u32,
    /// Displacement of the memory access from the stack or frame pointer, if it is on the stack.
    pub slot: Option<i32>,
    /// Whether it is a spin-wait hint (PAUSE, YIELD, WFE).
    pub waits: bool,
    /// Whether it reads a register that changes by itself, as that of the clock does.
    pub reads_clock: bool,
    /// Whether it repeats itself (`rep movs`) and may therefore run for long.
    pub repeats: bool,
    /// Its effect on the stack pointer, unless it is a call or return.
    pub stack: StackMove,
}

/// The effect of an instruction on the stack pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackMove {
    /// Moves it by this many bytes.
    By(i32),
    /// Sets it to the frame pointer plus this many bytes.
    ToFrame(i32),
    /// Pops the frame pointer.
    PopFrame,
    /// Sets it to the frame pointer, then [`StackMove::PopFrame`] (`leave`).
    Leave,
    /// Sets it to a value that is known only at run time.
    Unknown,
}

impl StackMove {
    /// No change.
    pub const NONE: StackMove = StackMove::By(0);
}

/// Where control continues after an instruction. Displacements are relative to the instruction's own address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// Always at the target.
    Jump(i64),
    /// At the target or at the next instruction.
    Branch(i64),
    /// Into a function that returns to the next instruction.
    Call(i64),
    /// At the address in a memory slot (a jump through the linkage table).
    JumpThrough(i64),
    /// Into the function whose address is in a memory slot.
    CallThrough(i64),
    /// At an address that is known only at run time.
    JumpAnywhere,
    /// Into a function that is known only at run time.
    CallAnywhere,
    /// Back to the caller.
    Return,
    /// Into the kernel: no user code is in flight meanwhile.
    Kernel,
}

/// An instruction's use of the floating-point and vector unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// None; this includes zeroing a register, which register renaming does.
    None,
    /// Passes data through its registers without computing.
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
    /// Elsewhere, by an atomic exchange that may be conditional: an attempt to acquire something.
    Exchange,
}
