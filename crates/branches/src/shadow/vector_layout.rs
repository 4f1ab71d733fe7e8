//! Where the kernel puts the vector registers of a stopped thread.

/// The positions of the parts of vector registers in an XSAVE area of this machine; `None` if it lacks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VectorLayout {
    /// Bits 128 to 255 of registers 0 to 15.
    pub high_half: Option<usize>,
    /// The mask registers.
    pub masks: Option<usize>,
    /// Bits 256 to 511 of registers 0 to 15.
    pub high_256: Option<usize>,
    /// Registers 16 to 31.
    pub high_16: Option<usize>,
    /// The size of an area with all these parts, in bytes.
    pub bytes: usize,
}

impl VectorLayout {
    /// Returns those of this machine.
    pub fn of_this_machine() -> VectorLayout {
        use std::arch::x86_64::__cpuid_count;
        let avx = is_x86_feature_detected!("avx");
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let mut bytes = 576;
        let mut component = |present: bool, number: u32| {
            present.then(|| {
                let leaf = __cpuid_count(0xd, number);
                bytes = bytes.max((leaf.ebx + leaf.eax) as usize);
                leaf.ebx as usize
            })
        };
        let high_half = component(avx, 2);
        let (masks, high_256, high_16) = (component(avx512, 5), component(avx512, 6), component(avx512, 7));
        VectorLayout { high_half, masks, high_256, high_16, bytes }
    }
}
