//! Executes plans on a state and private memory.

use super::guest::{Guest, PAGE};
use super::memory::{AHEAD_MAX, Memory};
use super::native::Arena;
use super::state::{DIRECTION_FLAG, FRAME_POINTER, MXCSR_DEFAULT, STACK_POINTER, STATUS_FLAGS, State};
use super::translator::{Access, Action, ByCounter, Operation, Segment, Source, Thunk};
use corewise_paths::window::End;
use iced_x86::{ConditionCode, Mnemonic};
use std::rc::Rc;

/// Room for a memory operand across two pages: any operand at any position in a cache line.
#[derive(Debug)]
#[repr(C, align(64))]
struct Bridge([u8; 128]);

/// Why an instruction was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It goes into the kernel.
    SystemCall,
    /// It cannot be emulated.
    Unsupported(Mnemonic),
    /// It would fault, or its memory cannot be read.
    Memory,
}

impl From<Stop> for End {
    fn from(stop: Stop) -> End {
        match stop {
            Stop::SystemCall => End::SystemCall,
            Stop::Unsupported(mnemonic) => End::Unsupported(format!("{mnemonic:?}").to_lowercase()),
            Stop::Memory => End::Memory,
        }
    }
}

/// The effect of an instruction on the flow of control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flowed {
    /// It is not a branch.
    Next,
    /// It is a branch that was not taken.
    NotTaken,
    /// It is a branch that was taken, to the new address in the state.
    Taken,
}

/// An emulated thread: its registers and its memory.
#[derive(Debug)]
pub struct Machine {
    /// Its registers.
    pub state: Box<State>,
    pub(super) memory: Memory,
    arena: Rc<Arena>,
    bridge: Bridge,
    has_vectors: bool,
}

impl Machine {
    /// Makes one whose thunks are in this arena.
    pub fn new(arena: Rc<Arena>) -> Machine {
        let bridge = Bridge([0; 128]);
        Machine { state: State::new(), memory: Memory::new(), arena, bridge, has_vectors: false }
    }

    /// Starts from a thread's registers.
    pub fn begin(&mut self, guest: &mut dyn Guest, regs: &libc::user_regs_struct) {
        self.state.set_general(regs);
        self.has_vectors = false;
        // The stack above, in addition to what registers point to.
        let stack = self.state.gpr[STACK_POINTER];
        let mut likely = [stack.wrapping_add(PAGE as u64 / 2); 17];
        likely[1..].copy_from_slice(&self.state.gpr);
        debug_assert!(AHEAD_MAX < likely.len());
        self.memory.begin(guest, stack, &likely);
    }

    /// Executes the instruction at the state's address. After an error the state is that before it, as far as
    /// control goes.
    pub fn step(&mut self, guest: &mut dyn Guest, operation: Operation) -> Result<Flowed, Stop> {
        let here = self.state.ip;
        let next = here.wrapping_add(operation.length.into());
        let to = |displacement| here.wrapping_add_signed(displacement);
        let target = match operation.action {
            Action::Jump(displacement) => Some(to(displacement)),
            Action::JumpIf(condition, displacement) => {
                holds(condition, self.state.flags).then(|| to(displacement))
            }
            Action::JumpByCounter(by) => self.by_counter(by).then(|| to(by.target)),
            Action::JumpTo(source) => Some(self.value(guest, source, 8)?),
            Action::Call(displacement) => {
                self.push(guest, next, 8)?;
                Some(to(displacement))
            }
            Action::CallTo(source) => {
                let target = self.value(guest, source, 8)?;
                self.push(guest, next, 8)?;
                Some(target)
            }
            Action::Return(arguments) => {
                let target = self.pop(guest, 8)?;
                let stack = &mut self.state.gpr[STACK_POINTER];
                *stack = stack.wrapping_add(arguments.into());
                Some(target)
            }
            _ => {
                self.plain(guest, operation)?;
                self.state.ip = next;
                return Ok(Flowed::Next);
            }
        };
        self.state.ip = target.unwrap_or(next);
        Ok(if target.is_some() { Flowed::Taken } else { Flowed::NotTaken })
    }

    /// Executes an instruction that is not a branch.
    fn plain(&mut self, guest: &mut dyn Guest, operation: Operation) -> Result<(), Stop> {
        match operation.action {
            Action::Thunk(thunk) => self.thunk(guest, &thunk),
            Action::Nothing => Ok(()),
            Action::Push(source, size) => {
                let value = self.value(guest, source, size)?;
                self.push(guest, value, size)
            }
            Action::Pop(to, size) => {
                let value = self.pop(guest, size)?;
                match to {
                    Source::Register(register) => self.set_register(register, size, value),
                    // The address is computed with the stack pointer after the pop.
                    Source::Memory(operand) => {
                        self.write(guest, operand.address(&self.state), size, value)?;
                    }
                    Source::Immediate(_) => {}
                }
                Ok(())
            }
            Action::Leave => {
                self.state.gpr[STACK_POINTER] = self.state.gpr[FRAME_POINTER];
                self.state.gpr[FRAME_POINTER] = self.pop(guest, 8)?;
                Ok(())
            }
            Action::Address(register, size, operand) => {
                self.set_register(register, size, operand.offset(&self.state));
                Ok(())
            }
            Action::String(operation) => self.string(guest, operation),
            Action::SystemCall => Err(Stop::SystemCall),
            Action::Unsupported(mnemonic) => Err(Stop::Unsupported(mnemonic)),
            _ => self.special(guest, operation),
        }
    }

    /// Handles flags, control registers and segments.
    fn special(&mut self, guest: &mut dyn Guest, operation: Operation) -> Result<(), Stop> {
        match operation.action {
            Action::PushFlags => {
                let others = self.state.flags_at_start & !(STATUS_FLAGS | DIRECTION_FLAG);
                let down = if self.state.down { DIRECTION_FLAG } else { 0 };
                self.push(guest, others | down | self.state.flags & STATUS_FLAGS, 8)?;
            }
            Action::PopFlags => {
                let flags = self.pop(guest, 8)?;
                self.state.flags = flags & STATUS_FLAGS;
                self.state.down = flags & DIRECTION_FLAG != 0;
            }
            Action::SetDirection(down) => self.state.down = down,
            Action::ClearVectors(all) => {
                self.load_vectors(guest)?;
                for vector in &mut self.state.vectors[..16] {
                    let kept = if all { 0 } else { 16 };
                    vector.0[kept..].fill(0);
                }
            }
            Action::LoadControl(operand) => {
                self.load_vectors(guest)?;
                let address = operand.address(&self.state);
                let value = self.read(guest, address, 4)? as u32;
                // Reserved bits fault.
                self.state.mxcsr = (value < 1 << 16).then_some(value).ok_or(Stop::Memory)?;
            }
            Action::StoreControl(operand) => {
                self.load_vectors(guest)?;
                let address = operand.address(&self.state);
                self.write(guest, address, 4, self.state.mxcsr.into())?;
            }
            Action::ReadBase(segment, register, size) => {
                let base = *self.base(segment);
                self.set_register(register, size, base);
            }
            Action::WriteBase(segment, register, size) => {
                let value = self.state.gpr[usize::from(register)];
                *self.base(segment) = if size == 4 { value & 0xffff_ffff } else { value };
            }
            Action::Thunk(_)
            | Action::Nothing
            | Action::Jump(_)
            | Action::JumpIf(..)
            | Action::JumpByCounter(_)
            | Action::JumpTo(_)
            | Action::Call(_)
            | Action::CallTo(_)
            | Action::Return(_)
            | Action::Push(..)
            | Action::Pop(..)
            | Action::Leave
            | Action::Address(..)
            | Action::String(_)
            | Action::SystemCall
            | Action::Unsupported(_) => unreachable!("{:?} is carried out elsewhere", operation.action),
        }
        Ok(())
    }

    fn base(&mut self, segment: Segment) -> &mut u64 {
        match segment {
            Segment::Fs => &mut self.state.fs_base,
            Segment::Gs => &mut self.state.gs_base,
        }
    }

    fn by_counter(&mut self, by: ByCounter) -> bool {
        let size = if by.narrow { 4 } else { 8 };
        if by.decrements {
            self.set_register(1, size, self.state.gpr[1].wrapping_sub(1));
        }
        let count = if by.narrow { self.state.gpr[1] & 0xffff_ffff } else { self.state.gpr[1] };
        let zero_flag = self.state.flags & 0x40 != 0;
        (count != 0) == by.decrements && by.zero_flag.is_none_or(|wanted| wanted == zero_flag)
    }

    /// Writes a register of `size` bytes: with 4, the upper half becomes zero; otherwise the other bytes
    /// stay.
    pub(super) fn set_register(&mut self, register: u8, size: u8, value: u64) {
        let register = &mut self.state.gpr[usize::from(register)];
        *register = match size {
            8 => value,
            4 => value & 0xffff_ffff,
            _ => {
                let mask = (1 << (u32::from(size) * 8)) - 1;
                *register & !mask | value & mask
            }
        };
    }

    fn value(&mut self, guest: &mut dyn Guest, source: Source, size: u8) -> Result<u64, Stop> {
        match source {
            Source::Register(register) => Ok(self.state.gpr[usize::from(register)]),
            Source::Memory(operand) => self.read(guest, operand.address(&self.state), size),
            Source::Immediate(value) => Ok(value as u64),
        }
    }

    fn read(&mut self, guest: &mut dyn Guest, address: u64, size: u8) -> Result<u64, Stop> {
        self.memory.read_number(guest, address, size).ok_or(Stop::Memory)
    }

    fn write(&mut self, guest: &mut dyn Guest, address: u64, size: u8, value: u64) -> Result<(), Stop> {
        self.memory.write_number(guest, address, size, value).ok_or(Stop::Memory)
    }

    fn push(&mut self, guest: &mut dyn Guest, value: u64, size: u8) -> Result<(), Stop> {
        let stack = self.state.gpr[STACK_POINTER].wrapping_sub(size.into());
        self.write(guest, stack, size, value)?;
        self.state.gpr[STACK_POINTER] = stack;
        Ok(())
    }

    fn pop(&mut self, guest: &mut dyn Guest, size: u8) -> Result<u64, Stop> {
        let stack = self.state.gpr[STACK_POINTER];
        let value = self.read(guest, stack, size)?;
        self.state.gpr[STACK_POINTER] = stack.wrapping_add(size.into());
        Ok(value)
    }

    /// Reads the vector registers, which most windows need late or never.
    fn load_vectors(&mut self, guest: &mut dyn Guest) -> Result<(), Stop> {
        if !self.has_vectors {
            guest.read_vectors(&mut self.state).then_some(()).ok_or(Stop::Memory)?;
            self.has_vectors = true;
        }
        Ok(())
    }

    fn thunk(&mut self, guest: &mut dyn Guest, thunk: &Thunk) -> Result<(), Stop> {
        if thunk.vectors {
            self.load_vectors(guest)?;
        }
        // With an exception unmasked the program expects a signal.
        if thunk.float && self.state.mxcsr & MXCSR_DEFAULT != MXCSR_DEFAULT {
            return Err(Stop::Memory);
        }
        match &thunk.memory {
            None => self.run(thunk.place),
            Some(access) => self.with_memory(guest, thunk.place, access),
        }
    }

    fn with_memory(&mut self, guest: &mut dyn Guest, place: u32, access: &Access) -> Result<(), Stop> {
        let mut address = access.operand.address(&self.state);
        let mut from_operand = 0;
        if let Some((register, size)) = access.bit {
            let shift = 64 - u32::from(size) * 8;
            let bit = (self.state.gpr[usize::from(register)] << shift) as i64 >> shift;
            from_operand = bit.div_euclid(i64::from(size) * 8) * i64::from(size);
            address = address.wrapping_add_signed(from_operand);
        }
        let size = usize::from(access.size);
        if address as usize % PAGE + size <= PAGE
            && let Some(bytes) = self.memory.rest_of_page(guest, address)
        {
            self.state.memory = (bytes.as_mut_ptr() as u64).wrapping_add_signed(-from_operand);
            return self.run(place);
        }
        let offset = address as usize % 64;
        let mut bytes = [0; 64];
        let is_read = self.memory.read(guest, address, &mut bytes[..size]);
        // Masked-out elements may be unreadable; unreadable bytes are then taken for zero.
        if !is_read && !access.masked {
            return Err(Stop::Memory);
        }
        self.bridge.0[offset..offset + size].copy_from_slice(&bytes[..size]);
        let bridge = &mut self.bridge.0[offset..offset + size];
        self.state.memory = (bridge.as_mut_ptr() as u64).wrapping_add_signed(-from_operand);
        self.run(place)?;
        if access.writes && !self.memory.write(guest, address, &self.bridge.0[offset..offset + size]) {
            return if access.masked { Ok(()) } else { Err(Stop::Memory) };
        }
        Ok(())
    }

    fn run(&mut self, place: u32) -> Result<(), Stop> {
        // SAFETY: the place is that of an operation, whose thunk changes only the state and the memory
        // operand; that is in a private page or the bridge with all the bytes that the instruction accesses.
        let ran = unsafe { self.arena.run(place, &mut self.state) };
        ran.then_some(()).ok_or(Stop::Memory)
    }
}

/// Returns whether a condition holds with these flags.
fn holds(condition: ConditionCode, flags: u64) -> bool {
    let flag = |bit: u32| flags >> bit & 1 != 0;
    let (carry, parity, zero, sign, overflow) = (flag(0), flag(2), flag(6), flag(7), flag(11));
    match condition {
        ConditionCode::None => true,
        ConditionCode::o => overflow,
        ConditionCode::no => !overflow,
        ConditionCode::b => carry,
        ConditionCode::ae => !carry,
        ConditionCode::e => zero,
        ConditionCode::ne => !zero,
        ConditionCode::be => carry || zero,
        ConditionCode::a => !(carry || zero),
        ConditionCode::s => sign,
        ConditionCode::ns => !sign,
        ConditionCode::p => parity,
        ConditionCode::np => !parity,
        ConditionCode::l => sign != overflow,
        ConditionCode::ge => sign == overflow,
        ConditionCode::le => zero || sign != overflow,
        ConditionCode::g => !(zero || sign != overflow),
    }
}
