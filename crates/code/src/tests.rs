//! What is known of single instructions; and [`Snippet`].

use super::*;
use crate::snippet::bytes;
use crate::store::KEPT_BYTES;

/// `HEX`, what an assembler was given, and what is expected to be known of it.
const X86_64: &[(&str, &str, &str)] = &[
    ("f20f58c1", "addsd xmm0, xmm1", "Float ->"),
    ("c4e2f5b8c2", "vfmadd231pd ymm0, ymm1, ymm2", "Float ->"),
    ("660f2e07", "ucomisd xmm0, [rdi]", "Float loads 7->"),
    ("f20f2cc0", "cvttsd2si eax, xmm0", "Float ->0"),
    ("f30f51c1", "sqrtss xmm0, xmm1", "Float ->"),
    ("d8c1", "fadd st(1)", "Float ->"),
    ("dd442408", "fld qword ptr [rsp+8]", "Move loads slot:8 4->"),
    ("d93c24", "fnstcw [rsp]", "Move stores:Stack slot:0 4->"),
    ("0f1007", "movups xmm0, [rdi]", "Move loads 7->"),
    ("f20f1107", "movsd [rdi], xmm0", "Move stores:Data 7->"),
    ("a5", "movsd", "loads stores:Data 6,7->6,7"),
    ("a7", "cmpsd", "loads 6,7->6,7"),
    ("f3a4", "rep movsb", "loads stores:Data repeats 1,6,7->1,6,7"),
    ("f2ae", "repne scasb", "loads repeats 0,1,7->1,7"),
    ("f3c3", "rep ret", "Return loads 4->"),
    ("660fefc0", "pxor xmm0, xmm0", "->"),
    ("c5f457c9", "vxorps ymm1, ymm1, ymm1", "->"),
    ("660fefc1", "pxor xmm0, xmm1", "Integer ->"),
    ("660ffec1", "paddd xmm0, xmm1", "Integer ->"),
    ("660f7407", "pcmpeqb xmm0, [rdi]", "Integer loads 7->"),
    ("660fd7c0", "pmovmskb eax, xmm0", "Integer ->0"),
    ("66480f6ec0", "movq xmm0, rax", "Move 0->"),
    ("c5f877", "vzeroupper", "->"),
    ("0307", "add eax, [rdi]", "loads 0,7->0"),
    ("8907", "mov [rdi], eax", "stores:Data 0,7->"),
    ("89442408", "mov [rsp+8], eax", "stores:Stack slot:8 0,4->"),
    ("50", "push rax", "stores:Stack By(-8) 0,4->"),
    ("5d", "pop rbp", "loads PopFrame 4->5"),
    ("4883ec18", "sub rsp, 24", "By(-24) 4->"),
    ("4883c418", "add rsp, 24", "By(24) 4->"),
    ("4829c4", "sub rsp, rax", "Unknown 0,4->"),
    ("480320", "add rsp, [rax]", "loads Unknown 0,4->"),
    ("4883e4e0", "and rsp, -32", "Unknown 4->"),
    ("488d65f0", "lea rsp, [rbp-16]", "ToFrame(-16) 5->"),
    ("c9", "leave", "loads Leave 5->5"),
    ("f00fb10f", "lock cmpxchg [rdi], ecx", "loads stores:Exchange 0,1,7->0"),
    ("8707", "xchg [rdi], eax", "loads stores:Exchange 0,7->0"),
    ("f0ff07", "lock inc dword ptr [rdi]", "loads stores:Data 7->"),
    ("f0830c2400", "lock or dword ptr [rsp], 0", "4->"),
    ("8345fc01", "add dword ptr [rbp-4], 1", "loads stores:Stack slot:-4 5->"),
    ("31c0", "xor eax, eax", "->0"),
    ("488d4708", "lea rax, [rdi+8]", "7->0"),
    ("0f45c1", "cmovne eax, ecx", "0,1->0"),
    ("f390", "pause", "waits ->"),
    ("0f31", "rdtsc", "clock ->0,2"),
    ("660faef0", "tpause eax", "waits 0,2->"),
    ("f20faef0", "umwait eax", "waits 0,2->"),
    ("eb0e", "jmp .+16", "Jump(16) ->"),
    ("75fc", "jne .-2", "Branch(-2) ->"),
    ("e80b000000", "call .+16", "Call(16) stores:Stack 4->"),
    ("c3", "ret", "Return loads 4->"),
    ("ffe0", "jmp rax", "JumpAnywhere 0->"),
    ("ff2510000000", "jmp [rip+16]", "JumpThrough(22) loads ->"),
    ("ff1510000000", "call [rip+16]", "CallThrough(22) loads stores:Stack 4->"),
    ("ffd0", "call rax", "CallAnywhere stores:Stack 0,4->"),
    ("0f05", "syscall", "Kernel ->1,11"),
    ("0f0b", "ud2", "Kernel ->"),
];

const AARCH64: &[(&str, &str, &str)] = &[
    ("2028621e", "fadd d0, d1, d2", "Float ->"),
    ("200c421f", "fmadd d0, d1, d2, d3", "Float ->"),
    ("2040601e", "fmov d0, d1", "Move ->"),
    ("00106e1e", "fmov d0, #1.0", "Move ->"),
    ("0000669e", "fmov x0, d0", "Move ->0"),
    ("0000781e", "fcvtzs w0, d0", "Float ->0"),
    ("0000621e", "scvtf d0, w0", "Float ->"),
    ("0020611e", "fcmp d0, d1", "Float ->"),
    ("20c0611e", "fsqrt d0, d1", "Float ->"),
    ("20d4624e", "fadd v0.2d, v1.2d, v2.2d", "Float ->"),
    ("2010a24f", "fmla v0.4s, v1.4s, v2.s[1]", "Float ->"),
    ("20b8a14e", "fcvtzs v0.4s, v1.4s", "Float ->"),
    ("2084a24e", "add v0.4s, v1.4s, v2.4s", "Integer ->"),
    ("201c224e", "and v0.16b, v1.16b, v2.16b", "Integer ->"),
    ("00e4006f", "movi v0.2d, #0", "->"),
    ("000040fd", "ldr d0, [x0]", "Move loads 0->"),
    ("0004803d", "str q0, [x0, #16]", "Move stores:Data 0->"),
    ("0004c16c", "ldp d0, d1, [x0], #16", "Move loads 0->0"),
    ("2000c265", "fadd z0.d, z1.d, z2.d", "Float ->"),
    ("2000e204", "add z0.d, z1.d, z2.d", "Integer ->"),
    ("00a0e0a5", "ld1d {z0.d}, p0/z, [x0]", "Move loads ->"),
    ("010040b9", "ldr w1, [x0]", "loads 0->1"),
    ("010000b9", "str w1, [x0]", "stores:Data 0,1->"),
    ("e10700f9", "str x1, [sp, #8]", "stores:Stack slot:8 1->"),
    ("fd7bbfa9", "stp x29, x30, [sp, #-16]!", "stores:Stack 29,30->"),
    ("018440f8", "ldr x1, [x0], #8", "loads 0->0,1"),
    ("81000058", "ldr x1, #16", "loads ->1"),
    ("01fc5f88", "ldaxr w1, [x0]", "loads 0->1"),
    ("017c0288", "stxr w2, w1, [x0]", "stores:Exchange 0,1->2"),
    ("020021b8", "ldadd w1, w2, [x0]", "loads stores:Data 0,1->2"),
    ("01fcdf88", "ldar w1, [x0]", "loads 0->1"),
    ("20040091", "add x0, x1, #1", "1->0"),
    ("2000028b", "add x0, x1, x2", "1,2->0"),
    ("200c029b", "madd x0, x1, x2, x3", "1,2,3->0"),
    ("200080d2", "mov x0, #1", "->0"),
    ("200080f2", "movk x0, #1", "0->0"),
    ("40000010", "adr x0, #8", "->0"),
    ("000041fa", "ccmp x0, x1, #0, eq", "0,1->"),
    ("04000014", "b #16", "Jump(16) ->"),
    ("c1ffff54", "b.ne #-8", "Branch(-8) ->"),
    ("400000b4", "cbz x0, #8", "Branch(8) 0->"),
    ("e0ff1f37", "tbnz w0, #3, #-4", "Branch(-4) 0->"),
    ("04000094", "bl #16", "Call(16) ->"),
    ("c0035fd6", "ret", "Return ->"),
    ("00001fd6", "br x0", "JumpAnywhere ->"),
    ("00003fd6", "blr x0", "CallAnywhere ->"),
    ("010000d4", "svc #0", "Kernel ->"),
    ("3f2003d5", "yield", "waits ->"),
    ("5f2003d5", "wfe", "waits ->"),
    ("df3f03d5", "isb", "waits ->"),
    ("40e03bd5", "mrs x0, cntvct_el0", "clock ->0"),
    ("1f2003d5", "nop", "->"),
];

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
    if let Some(slot) = instruction.slot {
        words.push(format!("slot:{slot}"));
    }
    if instruction.waits {
        words.push("waits".into());
    }
    if instruction.reads_clock {
        words.push("clock".into());
    }
    if instruction.repeats {
        words.push("repeats".into());
    }
    if instruction.stack != StackMove::NONE {
        words.push(format!("{:?}", instruction.stack));
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
            assert!(isa.may_wait(&bytes(hex)) || !instruction.waits, "{text}");
        }
    }
}

#[test]
fn most_code_is_seen_not_to_wait() {
    assert!(!Isa::X86_64.may_wait(&bytes("f30f10450090c3f3a4")));
    assert!(Isa::X86_64.may_wait(&bytes("f30f104500f390c3")));
}

#[test]
fn what_is_no_instruction_is_not_decoded() {
    for isa in [Isa::X86, Isa::X86_64, Isa::Aarch64] {
        assert_eq!(isa.decode(&[]), None);
    }
    assert_eq!(Isa::X86_64.decode(&bytes("06")), None, "PUSH ES is 32-bit only");
    assert!(Isa::X86.decode(&bytes("06")).is_some());
    assert_eq!(Isa::X86_64.decode(&bytes("e80b00")), None, "cut off");
    assert_eq!(Isa::Aarch64.decode(&[0; 4]), None, "UDF");
}

#[test]
fn mapped_files_are_read_by_virtual_address() {
    let own_maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let space = AddressSpace::from_maps(&own_maps);
    let start = libc::printf as *const () as u64;
    let mut store = CodeStore::default();
    let mut view = store.view(std::process::id(), &space);
    let mut address = start;
    for _ in 0..20 {
        address += u64::from(view.instruction(address).expect("printf's first instructions decode").length);
    }
    assert!(matches!(view.place(start), Some(Place::File(..))));
}

/// A file of `pages` pages of zeros, which are instructions, too, mapped as code.
fn mapped_zeros(file: &std::fs::File, pages: usize) -> u64 {
    use nix::sys::mman::{MapFlags, ProtFlags, mmap};
    let length = std::num::NonZeroUsize::new(4096 * pages).unwrap();
    file.set_len(length.get() as u64).unwrap();
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
    // SAFETY: a new mapping, whose memory nothing of ours uses.
    unsafe { mmap(None, length, access, MapFlags::MAP_PRIVATE, file, 0) }.unwrap().as_ptr() as u64
}

#[test]
fn an_endless_row_of_code_is_kept_within_the_budget_and_what_is_in_use_stays() {
    const PAGES: usize = 4 * KEPT_BYTES / 4096;
    let file = tempfile::NamedTempFile::new().unwrap();
    let start = mapped_zeros(file.as_file(), PAGES);
    let space = AddressSpace::from_maps(&std::fs::read_to_string("/proc/self/maps").unwrap());
    let mut store = CodeStore::default();
    let (mut read, mut most) = (0, 0);
    for page in 0..PAGES as u64 {
        store.begin_epoch();
        let mut view = store.view(std::process::id(), &space);
        assert!(matches!(view.place(start), Some(Place::File(..))));
        assert!(view.instruction(start).is_some() && view.instruction(start + 4096 * page).is_some());
        most = most.max(store.kept_bytes());
        read += usize::from(store.kept_bytes() >= KEPT_BYTES);
    }
    assert!(read > 1, "it was full more than once");
    assert!(most < KEPT_BYTES + KEPT_BYTES / 64, "{most} bytes");
}

#[test]
fn a_file_whose_code_is_not_used_any_more_makes_room_for_others() {
    let mut store = CodeStore::default();
    let read = |store: &mut CodeStore| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let start = mapped_zeros(file.as_file(), 1);
        let space = AddressSpace::from_maps(&std::fs::read_to_string("/proc/self/maps").unwrap());
        store.begin_epoch();
        let mut view = store.view(std::process::id(), &space);
        let instruction = view.instruction(start);
        matches!(view.place(start), Some(Place::File(..))) && instruction.is_some()
    };
    // A build makes far more programs than can be open at once.
    assert!((0..1100).all(|_| read(&mut store)));
    store.forget_process(std::process::id());
    assert!(store.kept_bytes() < KEPT_BYTES);
}
