//! The registers of an emulated thread, laid out for the thunks.

use super::vector_layout::VectorLayout;

/// A vector register of the widest kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Vector(pub [u8; 64]);

/// The x87 registers in the layout of FXSAVE; also the MMX registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct X87(pub [u8; 512]);

/// Carry, parity, auxiliary carry, zero, sign and overflow: the flags that arithmetic sets.
pub const STATUS_FLAGS: u64 = 0x8d5;
/// The direction flag.
pub const DIRECTION_FLAG: u64 = 0x400;
/// `MXCSR` with all exceptions masked and no mode changed.
pub const MXCSR_DEFAULT: u32 = 0x1f80;
/// Register number of the stack pointer.
pub const STACK_POINTER: usize = 4;
/// Register number of the frame pointer.
pub const FRAME_POINTER: usize = 5;

/// The registers of an emulated thread. Thunks use it by field offsets.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub struct State {
    /// General registers by their number in the encoding.
    pub gpr: [u64; 16],
    /// [`STATUS_FLAGS`]; other bits may have any value after a thunk.
    pub flags: u64,
    /// The emulator's own stack pointer while a thunk runs.
    pub host_stack: u64,
    /// The address of the memory operand of the next thunk.
    pub memory: u64,
    /// The thread's `MXCSR`.
    pub mxcsr: u32,
    /// The emulator's own.
    pub host_mxcsr: u32,
    /// `zmm0` to `zmm31`; narrower registers are their low parts.
    pub vectors: [Vector; 32],
    /// `k0` to `k7`.
    pub masks: [u64; 8],
    /// The x87 registers.
    pub x87: X87,
    /// Address of the next instruction.
    pub ip: u64,
    /// The flags when the thread was stopped.
    pub flags_at_start: u64,
    /// Whether string operations go downwards.
    pub down: bool,
    /// Base addresses of the segments.
    pub fs_base: u64,
    /// See `fs_base`.
    pub gs_base: u64,
}

impl State {
    /// All zero.
    pub fn new() -> Box<State> {
        Box::new(State {
            gpr: [0; 16],
            flags: 0,
            host_stack: 0,
            memory: 0,
            mxcsr: MXCSR_DEFAULT,
            host_mxcsr: MXCSR_DEFAULT,
            vectors: [Vector([0; 64]); 32],
            masks: [0; 8],
            x87: X87([0; 512]),
            ip: 0,
            flags_at_start: 0,
            down: false,
            fs_base: 0,
            gs_base: 0,
        })
    }

    /// Copies the general registers as `PTRACE_GETREGSET` gives them.
    pub fn set_general(&mut self, regs: &libc::user_regs_struct) {
        self.gpr = [
            regs.rax, regs.rcx, regs.rdx, regs.rbx, regs.rsp, regs.rbp, regs.rsi, regs.rdi, regs.r8, regs.r9,
            regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
        ];
        self.ip = regs.rip;
        self.flags_at_start = regs.eflags;
        self.flags = regs.eflags & STATUS_FLAGS;
        self.down = regs.eflags & DIRECTION_FLAG != 0;
        self.fs_base = regs.fs_base;
        self.gs_base = regs.gs_base;
    }

    /// Copies the vector and x87 registers from an XSAVE area in the standard format (Intel SDM volume 1,
    /// chapter 13), as far as it goes: missing parts are in their initial state.
    pub fn set_vectors(&mut self, area: &[u8], layout: &VectorLayout) {
        let part = |offset: usize, length: usize| area.get(offset..offset + length);
        self.mxcsr = part(24, 4).map_or(MXCSR_DEFAULT, |bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
        // FXRSTOR also sets the emulator's own MXCSR.
        self.x87.0 = part(0, 512).map_or([0; 512], |bytes| bytes.try_into().unwrap());
        self.x87.0[24..28].copy_from_slice(&self.host_mxcsr.to_le_bytes());
        for (number, vector) in self.vectors.iter_mut().enumerate() {
            vector.0 = [0; 64];
            let mut copy = |at: usize, offset: Option<usize>, length: usize| {
                if let Some(bytes) = offset.and_then(|offset| part(offset, length)) {
                    vector.0[at..at + length].copy_from_slice(bytes);
                }
            };
            if number < 16 {
                copy(0, Some(160 + number * 16), 16);
                copy(16, layout.high_half.map(|start| start + number * 16), 16);
                copy(32, layout.high_256.map(|start| start + number * 32), 32);
            } else {
                copy(0, layout.high_16.map(|start| start + (number - 16) * 64), 64);
            }
        }
        for (number, mask) in self.masks.iter_mut().enumerate() {
            let bytes = layout.masks.and_then(|start| part(start + number * 8, 8));
            *mask = bytes.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        }
    }
}
