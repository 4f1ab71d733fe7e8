//! Converts the extended state of a thread from the kernel's format to that of `ptrace`.
//!
//! The kernel saves with XSAVES, in the compacted format: only the components in use, one after another,
//! without those in their initial state (Intel SDM volume 1, sections 13.4 and 13.8).

use std::arch::x86_64::__cpuid_count;

/// The offset of the header, after the x87 and SSE registers.
const HEADER: usize = 512;
/// The offset of the other components.
const EXTENDED: usize = 576;
/// Marks the compacted format.
const COMPACTED: u64 = 1 << 63;

/// A component of the state on this machine.
#[derive(Debug, Clone, Copy)]
struct Component {
    /// Its size in bytes.
    size: usize,
    /// Its offset in the standard format.
    offset: usize,
    /// Whether it is aligned to 64 bytes in the compacted format.
    is_aligned: bool,
}

/// All components, by number; the first two have fixed offsets.
#[derive(Debug, Clone)]
pub struct Components(Vec<Component>);

impl Components {
    /// Returns those of this machine.
    pub fn of_this_machine() -> Components {
        let component = |number| {
            let leaf = __cpuid_count(0xd, number);
            Component { size: leaf.eax as usize, offset: leaf.ebx as usize, is_aligned: leaf.ecx & 2 != 0 }
        };
        Components((0..63).map(component).collect())
    }

    /// Converts a saved area to the standard format, with zeros for components in their initial state.
    /// Returns false if it is cut short. Components beyond the end of `standard` are dropped.
    pub fn expand(&self, saved: &[u8], standard: &mut [u8]) -> bool {
        let word = |at: usize| Some(u64::from_le_bytes(saved.get(at..at + 8)?.try_into().ok()?));
        let (Some(in_use), Some(format)) = (word(HEADER), word(HEADER + 8)) else { return false };
        standard.fill(0);
        standard[..2].copy_from_slice(&0x37fu16.to_le_bytes());
        standard[24..28].copy_from_slice(&super::super::shadow::state::MXCSR_DEFAULT.to_le_bytes());
        let mut copy = |from: usize, to: usize, length: usize| {
            let Some(place) = standard.get_mut(to..to + length) else { return true };
            saved.get(from..from + length).is_some_and(|bytes| {
                place.copy_from_slice(bytes);
                true
            })
        };
        let mut whole = true;
        if in_use & 1 != 0 {
            whole &= copy(0, 0, 24) && copy(32, 32, 128);
        }
        // MXCSR belongs to the SSE and the AVX component.
        if in_use & 6 != 0 {
            whole &= copy(24, 24, 8);
        }
        if in_use & 2 != 0 {
            whole &= copy(160, 160, 256);
        }
        let mut next = EXTENDED;
        for (number, component) in self.0.iter().enumerate().skip(2) {
            let is_there = if format & COMPACTED == 0 { in_use } else { format } >> number & 1 != 0;
            if !is_there {
                continue;
            }
            let from = if format & COMPACTED == 0 {
                component.offset
            } else {
                if component.is_aligned {
                    next = next.next_multiple_of(64);
                }
                next += component.size;
                next - component.size
            };
            // Supervisor components have no place in the standard format.
            if in_use >> number & 1 != 0 && component.offset >= EXTENDED {
                whole &= copy(from, component.offset, component.size);
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn components() -> Components {
        let nothing = Component { size: 0, offset: 0, is_aligned: false };
        let mut all = vec![nothing; 63];
        all[2] = Component { size: 256, offset: 576, is_aligned: false };
        all[5] = Component { size: 64, offset: 1088, is_aligned: false };
        all[6] = Component { size: 512, offset: 1152, is_aligned: true };
        all[11] = Component { size: 16, offset: 0, is_aligned: false };
        Components(all)
    }

    /// An area whose bytes encode their position.
    fn saved(in_use: u64, format: u64) -> Vec<u8> {
        let mut area: Vec<u8> = (0..2048usize).map(|at| (at / 16) as u8).collect();
        area[512..520].copy_from_slice(&in_use.to_le_bytes());
        area[520..528].copy_from_slice(&format.to_le_bytes());
        area
    }

    #[test]
    fn components_move_to_where_the_standard_format_has_them() {
        // AVX, supervisor component 11, and half of AVX-512, whose masks are in their initial state.
        let area = saved(0b1000_0100_0111, COMPACTED | 0b1000_0110_0111);
        let mut standard = vec![0xee; 1664];
        assert!(components().expand(&area, &mut standard));
        assert_eq!(standard[160..416], area[160..416]);
        assert_eq!(standard[576..832], area[576..832]);
        assert_eq!(standard[1088..1152], [0; 64], "in its initial state");
        let in_use = saved(0b110_0100, COMPACTED | 0b110_0111);
        assert!(components().expand(&in_use, &mut standard));
        assert_eq!(standard[1088..1152], in_use[832..896]);
        assert_eq!(standard[1152..1664], in_use[896..1408]);
        assert_eq!(standard[160..416], [0; 256]);
        assert_eq!(standard[..2], 0x37fu16.to_le_bytes());
    }

    #[test]
    fn the_standard_format_stays_as_it_is() {
        let area = saved(0b111, 0);
        let mut standard = vec![0; 1664];
        assert!(components().expand(&area, &mut standard));
        assert_eq!(standard[576..832], area[576..832]);
        assert_eq!(standard[1088..], [0; 576]);
    }

    #[test]
    fn an_area_that_is_cut_short_is_refused() {
        let area = saved(0b111, COMPACTED | 0b111);
        for length in [0, 100, 527, 600, 831] {
            assert!(!components().expand(&area[..length], &mut vec![0; 1664]), "{length}");
        }
        assert!(components().expand(&area[..832], &mut vec![0; 1664]));
    }
}
