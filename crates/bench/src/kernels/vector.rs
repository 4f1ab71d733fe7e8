//! The vector units that kernels use, and the loop that sweeps over memory with them.

/// A vector unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vector {
    /// 512 bits, x86-64.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 256 bits, x86-64, with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 128 bits, each x86-64.
    #[cfg(target_arch = "x86_64")]
    Sse2,
    /// 128 bits, each aarch64. The scalable extensions are not used: their width says nothing of the width of
    /// the units behind, which on most processors is that of NEON.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Vector {
    /// Returns the units of this processor, the widest first.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn available() -> Vec<Vector> {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = avx2 && is_x86_feature_detected!("avx512f");
        let found = [(avx512, Vector::Avx512), (avx2, Vector::Avx2), (true, Vector::Sse2)];
        found.into_iter().filter_map(|(present, unit)| present.then_some(unit)).collect()
    }

    /// Returns the units of this processor, the widest first.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn available() -> Vec<Vector> {
        vec![Vector::Neon]
    }

    /// Returns the widest unit of this processor.
    pub(super) fn widest() -> Vector {
        Vector::available()[0]
    }

    /// Returns the number of 64-bit words per vector.
    pub(super) fn words(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Vector::Avx512 => 8,
            #[cfg(target_arch = "x86_64")]
            Vector::Avx2 => 4,
            #[cfg(target_arch = "x86_64")]
            Vector::Sse2 => 2,
            #[cfg(target_arch = "aarch64")]
            Vector::Neon => 2,
        }
    }

    /// Returns the name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Vector::Avx512 => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Vector::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Vector::Sse2 => "SSE2",
            #[cfg(target_arch = "aarch64")]
            Vector::Neon => "NEON",
        }
    }
}

/// A loop over memory, eight vector steps at a time: the common part of the bandwidth kernels and the
/// conversions. [`sweep`] runs it.
pub(super) struct Sweep {
    /// The start of the input.
    pub from: *const u8,
    /// The start of the output.
    pub to: *mut u8,
    /// The size of the input in bytes; a multiple of what a block reads.
    pub bytes: usize,
    /// The number of passes over all blocks.
    pub passes: u64,
    /// Before: the contents of each of the vector registers 0 to 8. Narrow ones take the first words.
    /// Afterwards: the sum of the registers 0 to 7, in so many words as a register has.
    pub lanes: [u64; 8],
}

impl Sweep {
    /// Returns the number of blocks in a pass, if each reads this many bytes.
    pub(super) fn blocks(&self, bytes_per_block: usize) -> usize {
        assert!(self.bytes > 0 && self.bytes.is_multiple_of(bytes_per_block) && self.passes > 0);
        self.bytes / bytes_per_block
    }
}

/// Runs a [`Sweep`]: `sweep!(unit, sweep, bytes read => bytes written by a block; instructions…)`. The
/// instructions make up one of eight steps: in them `\\i` is the step's number, 0 to 7, and that of the
/// vector register that belongs to it, `{from}` and `{to}` are the addresses at which the block begins.
#[cfg(target_arch = "x86_64")]
macro_rules! sweep {
    (avx512, $($rest:tt)+) => {
        sweep!(@ "vmovdqu64 zmm\\i, [{lanes}]", "vpaddq zmm0, zmm0, zmm\\i", "vmovdqu64 [{lanes}], zmm0",
            "vzeroupper", $($rest)+)
    };
    (avx2, $($rest:tt)+) => {
        sweep!(@ "vmovdqu ymm\\i, [{lanes}]", "vpaddq ymm0, ymm0, ymm\\i", "vmovdqu [{lanes}], ymm0",
            "vzeroupper", $($rest)+)
    };
    (sse2, $($rest:tt)+) => {
        sweep!(@ "movdqu xmm\\i, [{lanes}]", "paddq xmm0, xmm\\i", "movdqu [{lanes}], xmm0", "", $($rest)+)
    };
    (@ $load:literal, $add:literal, $store:literal, $leave:literal,
        $sweep:expr, $read:literal => $written:literal; $($step:literal),+) => {
        std::arch::asm!(
            ".irp i,0,1,2,3,4,5,6,7,8",
            $load,
            ".endr",
            "2:",
            "mov {from}, {from_begin}",
            "mov {to}, {to_begin}",
            "mov {left}, {blocks}",
            ".p2align 6",
            "3:",
            ".irp i,0,1,2,3,4,5,6,7",
            $($step,)+
            ".endr",
            concat!("add {from}, ", $read),
            concat!("add {to}, ", $written),
            "dec {left}",
            "jnz 3b",
            "dec {passes}",
            "jnz 2b",
            ".irp i,1,2,3,4,5,6,7",
            $add,
            ".endr",
            $store,
            $leave,
            lanes = in(reg) $sweep.lanes.as_mut_ptr(),
            from_begin = in(reg) $sweep.from,
            to_begin = in(reg) $sweep.to,
            blocks = in(reg) $sweep.blocks($read),
            passes = inout(reg) $sweep.passes => _,
            from = out(reg) _,
            to = out(reg) _,
            left = out(reg) _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
            out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            options(nostack),
        )
    };
}

/// Runs a [`Sweep`]: `sweep!(unit, sweep, bytes read => bytes written by a block; instructions…)`. The
/// instructions make up one of eight steps: in them `\\i` is the step's number, 0 to 7, and that of the
/// vector register that belongs to it (1`\\i` and 2`\\i` are free), `{from}` and `{to}` are the addresses at
/// which the block begins.
#[cfg(target_arch = "aarch64")]
macro_rules! sweep {
    (neon, $sweep:expr, $read:literal => $written:literal; $($step:literal),+) => {
        std::arch::asm!(
            ".irp i,0,1,2,3,4,5,6,7,8",
            "ldr q\\i, [{lanes}]",
            ".endr",
            "2:",
            "mov {from}, {from_begin}",
            "mov {to}, {to_begin}",
            "mov {left}, {blocks}",
            ".p2align 6",
            "3:",
            ".irp i,0,1,2,3,4,5,6,7",
            $($step,)+
            ".endr",
            concat!("add {from}, {from}, #", $read),
            concat!("add {to}, {to}, #", $written),
            "subs {left}, {left}, #1",
            "b.ne 3b",
            "subs {passes}, {passes}, #1",
            "b.ne 2b",
            ".irp i,1,2,3,4,5,6,7",
            "add v0.2d, v0.2d, v\\i\\().2d",
            ".endr",
            "str q0, [{lanes}]",
            lanes = in(reg) $sweep.lanes.as_mut_ptr(),
            from_begin = in(reg) $sweep.from,
            to_begin = in(reg) $sweep.to,
            blocks = in(reg) $sweep.blocks($read),
            passes = inout(reg) $sweep.passes => _,
            from = out(reg) _,
            to = out(reg) _,
            left = out(reg) _,
            out("v0") _, out("v1") _, out("v2") _, out("v3") _, out("v4") _, out("v5") _, out("v6") _,
            out("v7") _, out("v8") _, out("v10") _, out("v11") _, out("v12") _, out("v13") _, out("v14") _,
            out("v15") _, out("v16") _, out("v17") _, out("v20") _, out("v21") _, out("v22") _, out("v23") _,
            out("v24") _, out("v25") _, out("v26") _, out("v27") _,
            options(nostack),
        )
    };
}

pub(super) use sweep;
