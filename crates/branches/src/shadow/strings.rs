//! String operations: MOVS, STOS, LODS, SCAS and CMPS, also repeated.

use super::guest::{Guest, PAGE};
use super::machine::{Machine, Stop};
use super::translator::{StringKind, StringOperation};

const RCX: usize = 1;
const RSI: usize = 6;
const RDI: usize = 7;
/// The maximum number of elements of one repeated instruction: a longer one would be a long pause.
const ELEMENTS_MAX: u64 = 64 << 10;

/// Returns the status flags of `left - right` in operands of `size` bytes.
pub fn flags_of_subtraction(left: u64, right: u64, size: u8) -> u64 {
    let shift = 64 - u32::from(size) * 8;
    let (left, right) = (left << shift, right << shift);
    let (difference, borrow) = left.overflowing_sub(right);
    let (_, overflow) = (left as i64).overflowing_sub(right as i64);
    let low = (difference >> shift) as u8;
    u64::from(borrow)
        | u64::from(low.count_ones().is_multiple_of(2)) << 2
        | (((left >> shift) ^ (right >> shift) ^ (difference >> shift)) & 0x10)
        | u64::from(difference == 0) << 6
        | u64::from((difference as i64) < 0) << 7
        | u64::from(overflow) << 11
}

impl Machine {
    /// Executes a string operation.
    pub(super) fn string(&mut self, guest: &mut dyn Guest, operation: StringOperation) -> Result<(), Stop> {
        let mut left = if operation.repeats { self.state.gpr[RCX] } else { 1 };
        if left > ELEMENTS_MAX {
            return Err(Stop::Unsupported(iced_x86::Mnemonic::Movsb));
        }
        while left > 0 {
            let done = match self.bulk(guest, operation, left) {
                Some(elements) => elements,
                None => {
                    self.element(guest, operation).ok_or(Stop::Memory)?;
                    1
                }
            };
            left -= done;
            if operation.repeats {
                self.state.gpr[RCX] = left;
                let compares = matches!(operation.kind, StringKind::Scan | StringKind::Compare);
                if compares && (self.state.flags & 0x40 != 0) != operation.while_zero {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Executes many elements of an upward MOVS or STOS at once, within one page on either side; returns
    /// their number, or `None` if they must be executed one by one.
    fn bulk(&mut self, guest: &mut dyn Guest, operation: StringOperation, left: u64) -> Option<u64> {
        if self.state.down || left < 2 {
            return None;
        }
        let (from, to) = (self.state.gpr[RSI], self.state.gpr[RDI]);
        let room = |address: u64| PAGE as u64 - address % PAGE as u64;
        let size = u64::from(operation.size);
        let elements = match operation.kind {
            StringKind::Move => left.min(room(from) / size).min(room(to) / size).min(512 / size),
            StringKind::Store => left.min(room(to) / size).min(512 / size),
            _ => return None,
        };
        let length = (elements * size) as usize;
        // A copy to slightly above its source repeats a pattern.
        if elements < 2 || (operation.kind == StringKind::Move && to.wrapping_sub(from) < length as u64) {
            return None;
        }
        let mut bytes = [0; 512];
        if operation.kind == StringKind::Move {
            self.memory.read(guest, from, &mut bytes[..length]).then_some(())?;
            self.state.gpr[RSI] = from.wrapping_add(length as u64);
        } else {
            let element = self.state.gpr[0].to_le_bytes();
            for chunk in bytes[..length].chunks_exact_mut(operation.size.into()) {
                chunk.copy_from_slice(&element[..operation.size.into()]);
            }
        }
        self.memory.write(guest, to, &bytes[..length]).then_some(())?;
        self.state.gpr[RDI] = to.wrapping_add(length as u64);
        Some(elements)
    }

    fn element(&mut self, guest: &mut dyn Guest, operation: StringOperation) -> Option<()> {
        let StringOperation { kind, size, .. } = operation;
        let step = if self.state.down { -i64::from(size) } else { i64::from(size) };
        let (from, to) = (self.state.gpr[RSI], self.state.gpr[RDI]);
        let accumulator = self.state.gpr[0];
        let (mut moves_from, mut moves_to) = (false, true);
        match kind {
            StringKind::Move => {
                let element = self.memory.read_number(guest, from, size)?;
                self.memory.write_number(guest, to, size, element)?;
                moves_from = true;
            }
            StringKind::Store => self.memory.write_number(guest, to, size, accumulator)?,
            StringKind::Load => {
                let element = self.memory.read_number(guest, from, size)?;
                self.set_register(0, size, element);
                (moves_from, moves_to) = (true, false);
            }
            StringKind::Scan => {
                let element = self.memory.read_number(guest, to, size)?;
                self.state.flags = flags_of_subtraction(accumulator, element, size);
            }
            StringKind::Compare => {
                let left = self.memory.read_number(guest, from, size)?;
                let right = self.memory.read_number(guest, to, size)?;
                self.state.flags = flags_of_subtraction(left, right, size);
                moves_from = true;
            }
        }
        if moves_from {
            self.state.gpr[RSI] = from.wrapping_add_signed(step);
        }
        if moves_to {
            self.state.gpr[RDI] = to.wrapping_add_signed(step);
        }
        Some(())
    }
}
