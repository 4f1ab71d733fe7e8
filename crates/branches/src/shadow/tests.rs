//! Tests emulated instructions against the processor itself: every form of instruction in the code that this
//! test has loaded (the C library and the test's own) is run natively, with all registers and its memory
//! operand as in the emulation, and both must give the same result.

use super::guest::{Guest, PAGE, Page};
use super::machine::{Flowed, Machine, Stop};
use super::state::{STATUS_FLAGS, State, Vector};
use super::strings::flags_of_subtraction;
use super::translator::{Action, Operation, Translator};
use corewise_code::{Decoder as _, Isa};
use corewise_core::random::Random;
use iced_x86::{
    Code, Decoder, DecoderOptions, Encoder, Instruction, MemoryOperand, Mnemonic, OpKind, Register,
};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::LazyLock;

/// This process: emulated instructions use its memory.
struct Own;

impl Guest for Own {
    fn read_pages(&mut self, addresses: &[u64], pages: &mut [Page]) -> usize {
        for (&address, page) in addresses.iter().zip(&mut *pages) {
            let remote = nix::sys::uio::RemoteIoVec { base: address as usize, len: PAGE };
            let local = &mut [std::io::IoSliceMut::new(&mut page.0)];
            let own = nix::unistd::getpid();
            if nix::sys::uio::process_vm_readv(own, local, &[remote]) != Ok(PAGE) {
                return 0;
            }
        }
        addresses.len()
    }

    fn read_vectors(&mut self, _: &mut State) -> bool {
        true
    }
}

/// Executable memory followed by a state, so that code reaches the state without any register.
struct Bench {
    memory: *mut u8,
}

const BENCH_BYTES: usize = 4 * PAGE;
const STATE_AT: usize = PAGE;
const OPERAND_AT: usize = 3 * PAGE;

impl Bench {
    fn new() -> Bench {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), BENCH_BYTES, protection, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        Bench { memory: memory.cast() }
    }

    fn operand(&mut self) -> &mut [u8] {
        // SAFETY: within the mapping, which lives as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.memory.add(OPERAND_AT), PAGE) }
    }

    /// Runs an instruction on a state.
    fn run(&mut self, bytes: &[u8], state: &mut State) {
        let base = self.memory as u64;
        let mut writer = Native { encoder: Encoder::new(64), ip: base, base: base + STATE_AT as u64 };
        writer.registers(bytes);
        let code = writer.encoder.take_buffer();
        assert!(code.len() < PAGE);
        // SAFETY: code and state fit into their parts of the mapping. The code saves what a function must
        // keep, and its instruction was harvested as one that only computes.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), self.memory, code.len());
            let place = self.memory.add(STATE_AT).cast::<State>();
            place.write(state.clone());
            let function: extern "sysv64" fn() = std::mem::transmute(self.memory);
            function();
            *state = place.read();
        }
    }
}

struct Native {
    encoder: Encoder,
    ip: u64,
    base: u64,
}

impl Native {
    fn add(&mut self, instruction: Instruction) {
        self.ip += self.encoder.encode(&instruction, self.ip).expect("encodable") as u64;
    }

    fn slot(&self, offset: usize) -> MemoryOperand {
        MemoryOperand::with_base_displ(Register::RIP, (self.base + offset as u64) as i64)
    }

    fn registers(&mut self, bytes: &[u8]) {
        let saved =
            [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
        let wide = is_x86_feature_detected!("avx512bw");
        for register in saved {
            self.add(Instruction::with1(Code::Push_r64, register).unwrap());
        }
        self.add(Instruction::with1(Code::Fxrstor64_m512byte, self.slot(offset_of!(State, x87))).unwrap());
        self.add(Instruction::with1(Code::Ldmxcsr_m32, self.slot(offset_of!(State, mxcsr))).unwrap());
        self.vectors(wide, true);
        self.add(Instruction::with1(Code::Push_rm64, self.slot(offset_of!(State, flags))).unwrap());
        self.add(Instruction::with(Code::Popfq));
        for number in (0..16).filter(|&number| number != 4) {
            let register = Register::RAX + number;
            self.add(
                Instruction::with2(Code::Mov_r64_rm64, register, self.slot(8 * number as usize)).unwrap(),
            );
        }
        for &byte in bytes {
            self.add(Instruction::with_declare_byte_1(byte));
        }
        for number in (0..16).filter(|&number| number != 4) {
            let register = Register::RAX + number;
            self.add(
                Instruction::with2(Code::Mov_rm64_r64, self.slot(8 * number as usize), register).unwrap(),
            );
        }
        self.add(Instruction::with(Code::Pushfq));
        self.add(Instruction::with1(Code::Pop_rm64, self.slot(offset_of!(State, flags))).unwrap());
        self.add(Instruction::with(Code::Cld));
        self.vectors(wide, false);
        self.add(Instruction::with1(Code::Stmxcsr_m32, self.slot(offset_of!(State, mxcsr))).unwrap());
        self.add(Instruction::with1(Code::Ldmxcsr_m32, self.slot(offset_of!(State, host_mxcsr))).unwrap());
        self.add(Instruction::with1(Code::Fxsave64_m512byte, self.slot(offset_of!(State, x87))).unwrap());
        self.add(Instruction::with(Code::Fninit));
        for register in saved.into_iter().rev() {
            self.add(Instruction::with1(Code::Pop_r64, register).unwrap());
        }
        self.add(Instruction::with(Code::Retnq));
    }

    fn vectors(&mut self, wide: bool, load: bool) {
        for number in 0..if wide { 32 } else { 16 } {
            let slot = self.slot(offset_of!(State, vectors) + 64 * number);
            let (from, to, register) = if wide {
                (Code::EVEX_Vmovups_zmm_k1z_zmmm512, Code::EVEX_Vmovups_zmmm512_k1z_zmm, Register::ZMM0)
            } else {
                (Code::VEX_Vmovups_ymm_ymmm256, Code::VEX_Vmovups_ymmm256_ymm, Register::YMM0)
            };
            let register = register + number as u32;
            self.add(match load {
                true => Instruction::with2(from, register, slot).unwrap(),
                false => Instruction::with2(to, slot, register).unwrap(),
            });
        }
        for number in 0..if wide { 8 } else { 0 } {
            let slot = self.slot(offset_of!(State, masks) + 8 * number);
            let register = Register::K0 + number as u32;
            self.add(match load {
                true => Instruction::with2(Code::VEX_Kmovq_kr_km64, register, slot).unwrap(),
                false => Instruction::with2(Code::VEX_Kmovq_m64_kr, slot, register).unwrap(),
            });
        }
    }
}

/// An instruction found in code of this process.
#[derive(Clone)]
struct Found {
    instruction: Instruction,
    bytes: Vec<u8>,
}

/// Collects some of each form of instruction, and the forms that cannot be emulated.
struct Harvest {
    found: Vec<Found>,
    unsupported: BTreeMap<String, usize>,
}

static HARVEST: LazyLock<Harvest> = LazyLock::new(|| {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut translator = Translator::new().unwrap();
    let mut forms: BTreeMap<(Code, u32), Vec<Found>> = BTreeMap::new();
    let mut harvest = Harvest { found: Vec::new(), unsupported: BTreeMap::new() };
    for line in maps.lines().filter(|line| line.contains(" r-xp ") && line.contains('/')) {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
        // SAFETY: the mapping is code of this process and stays.
        let code = unsafe { std::slice::from_raw_parts(start as *const u8, end - start) };
        let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        while decoder.can_decode() && decoder.position() < 4 << 20 {
            let at = decoder.position();
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                continue;
            }
            let operands = (0..instruction.op_count())
                .fold(0, |all, operand| all * 16 + instruction.op_kind(operand) as u32);
            let of_form = forms.entry((instruction.code(), operands)).or_default();
            if of_form.len() < 6 {
                let bytes = code[at..at + instruction.len()].to_vec();
                of_form.push(Found { instruction, bytes });
            }
        }
    }
    for ((code, _), of_form) in forms {
        for found in of_form {
            let operation = translator.decode(Isa::X86_64, &found.bytes);
            match operation.map(|operation| operation.action) {
                Some(Action::Unsupported(_)) => {
                    *harvest.unsupported.entry(format!("{code:?}")).or_default() += 1
                }
                Some(Action::SystemCall) | None => {}
                Some(_) if can_be_run_here(&found.instruction) => harvest.found.push(found),
                Some(_) => {}
            }
        }
    }
    harvest
});

/// What the bench cannot do: transfers of control, the stack pointer, segments, and results that differ each
/// time.
fn can_be_run_here(instruction: &Instruction) -> bool {
    let registers = (0..instruction.op_count())
        .filter(|&operand| instruction.op_kind(operand) == OpKind::Register)
        .map(|operand| instruction.op_register(operand))
        .chain([instruction.memory_base(), instruction.memory_index()]);
    let uses_stack = registers.into_iter().any(|register| register.full_register() == Register::RSP);
    let differs = matches!(
        instruction.mnemonic(),
        Mnemonic::Rdtsc
            | Mnemonic::Rdtscp
            | Mnemonic::Rdpid
            | Mnemonic::Rdfsbase
            | Mnemonic::Rdgsbase
            | Mnemonic::Wrfsbase
            | Mnemonic::Wrgsbase
            | Mnemonic::Pushfq
            | Mnemonic::Popfq
            | Mnemonic::Xgetbv
    );
    instruction.flow_control() == iced_x86::FlowControl::Next
        && !uses_stack
        && !differs
        && !instruction.is_stack_instruction()
        && !instruction.is_ip_rel_memory_operand()
        && !matches!(instruction.memory_segment(), Register::FS | Register::GS)
        && !matches!(instruction.memory_base(), Register::None if uses_memory(instruction))
        && instruction.memory_base() != instruction.memory_index()
        && !instruction.memory_base().is_gpr32()
        && instruction.memory_displ_size() != 2
        || instruction.is_string_instruction()
}

fn uses_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
}

/// Random registers and operand, such that the memory operand is in the bench.
fn drawn(found: &Found, random: &mut Random, bench: &mut Bench) -> Box<State> {
    let mut state = State::new();
    // Small numbers and numbers near limits make flags and branches interesting.
    let number = |random: &mut Random| {
        let any = (random.unit() * (1u64 << 32) as f64) as u64
            | ((random.unit() * (1u64 << 32) as f64) as u64) << 32;
        [any, any & 0xff, u64::MAX, 1 << 63, 0, any & 0xffff_ffff][random.below(6)]
    };
    state.gpr = std::array::from_fn(|_| number(random));
    state.flags = number(random) & STATUS_FLAGS;
    for Vector(bytes) in &mut state.vectors {
        for chunk in bytes.chunks_mut(8) {
            // Also numbers that are ordinary as floats.
            let float = ((random.unit() - 0.5) * 1e3).to_bits();
            chunk.copy_from_slice(&[number(random), float][random.below(2)].to_le_bytes());
        }
    }
    state.masks = std::array::from_fn(|_| number(random));
    state.x87.0[0..2].copy_from_slice(&0x37fu16.to_le_bytes());
    state.x87.0[4] = 0xff;
    state.x87.0[24..28].copy_from_slice(&state.host_mxcsr.to_le_bytes());
    for slot in 0..8 {
        let at = 32 + slot * 16;
        state.x87.0[at..at + 8].copy_from_slice(&(random.unit() + 1.0).to_bits().to_le_bytes());
        state.x87.0[at + 7] |= 0x80;
        state.x87.0[at + 8..at + 10].copy_from_slice(&(0x3ff0 + slot as u16).to_le_bytes());
    }
    for byte in bench.operand() {
        *byte = number(random) as u8;
    }
    let operand = bench.operand().as_ptr() as u64 + 1024 + 64 * random.below(16) as u64;
    if found.instruction.is_string_instruction() {
        (state.gpr[6], state.gpr[7], state.gpr[1]) = (operand, operand + 512, random.below(9) as u64);
    } else if uses_memory(&found.instruction) {
        place_operand(&found.instruction, &mut state, operand, random);
    }
    state
}

fn place_operand(instruction: &Instruction, state: &mut State, operand: u64, random: &mut Random) {
    let is_aligned = instruction.memory_size().size() >= 16;
    let operand = operand + if is_aligned { 0 } else { random.below(64) as u64 };
    let index = instruction.memory_index();
    let mut offset = instruction.memory_displacement64();
    if index != Register::None {
        let value = random.below(64) as u64;
        state.gpr[index.full_register().number()] = value;
        offset = offset.wrapping_add(value.wrapping_mul(instruction.memory_index_scale().into()));
    }
    state.gpr[instruction.memory_base().full_register().number()] = operand.wrapping_sub(offset);
    if instruction.op1_kind() == OpKind::Register && format!("{:?}", instruction.mnemonic()).starts_with("Bt")
    {
        // A bit's number reaches far: only near ones stay in the bench.
        let register = instruction.op1_register().full_register().number();
        if instruction.op1_register().full_register() != instruction.memory_base() {
            state.gpr[register] = (random.below(4000) as u64).wrapping_sub(2000);
        }
    }
}

/// Flags that an instruction leaves undefined differ for reasons that cannot be controlled; they are not
/// compared.
fn defined_flags(instruction: &Instruction) -> u64 {
    use iced_x86::RflagsBits;
    let undefined = instruction.rflags_undefined();
    [
        (RflagsBits::CF, 1u64),
        (RflagsBits::PF, 4),
        (RflagsBits::AF, 0x10),
        (RflagsBits::ZF, 0x40),
        (RflagsBits::SF, 0x80),
        (RflagsBits::OF, 0x800),
    ]
    .into_iter()
    .filter(|(bit, _)| undefined & bit == 0)
    .fold(0, |all, (_, flag)| all | flag)
}

thread_local! {
    static EMULATION: RefCell<(Translator, Machine)> = RefCell::new({
        let translator = Translator::new().unwrap();
        let machine = Machine::new(translator.arena());
        (translator, machine)
    });
}

/// Runs an instruction both ways; returns the differences.
fn difference(found: &Found, seed: u64, bench: &mut Bench) -> Option<String> {
    EMULATION.with_borrow_mut(|(translator, machine)| differs(found, seed, bench, translator, machine))
}

fn differs(
    found: &Found,
    seed: u64,
    bench: &mut Bench,
    translator: &mut Translator,
    machine: &mut Machine,
) -> Option<String> {
    let operation: Operation = translator.decode(Isa::X86_64, &found.bytes).unwrap();
    let mut random = Random::new(seed, 0);
    let start = drawn(found, &mut random, bench);
    let registers = libc::user_regs_struct { rsp: bench.operand().as_ptr() as u64, ..unsafe_zeroed() };
    machine.begin(&mut Own, &registers);
    machine.state = start.clone();
    let before = bench.operand().to_vec();
    match machine.step(&mut Own, operation) {
        Ok(Flowed::Next) => {}
        // It faults, and would here.
        Err(Stop::Memory) => return None,
        other => return Some(format!("{other:?}")),
    }
    let mut native = start.clone();
    bench.run(&found.bytes, &mut native);
    let operand = bench.operand().as_ptr() as u64;
    let mut emulated = vec![0; PAGE];
    assert!(machine.memory.read(&mut Own, operand, &mut emulated));
    let (ours, real) = (&machine.state, &native);
    let mut differences = Vec::new();
    for number in (0..16).filter(|&number| number != 4 && ours.gpr[number] != real.gpr[number]) {
        differences.push(format!("register {number}: {:#x}, not {:#x}", ours.gpr[number], real.gpr[number]));
    }
    if (ours.flags ^ real.flags) & defined_flags(&found.instruction) != 0 {
        differences.push(format!(
            "flags {:#x}, not {:#x}",
            ours.flags & STATUS_FLAGS,
            real.flags & STATUS_FLAGS
        ));
    }
    if ours.vectors != real.vectors || ours.masks != real.masks {
        differences.push("vectors or masks".to_owned());
    }
    if ours.mxcsr != real.mxcsr {
        differences.push(format!("mxcsr {:#x}, not {:#x}", ours.mxcsr, real.mxcsr));
    }
    // Control, status, tag and registers; the addresses of the last instruction and operand are the
    // emulator's.
    if ours.x87.0[..6] != real.x87.0[..6] || ours.x87.0[32..160] != real.x87.0[32..160] {
        differences.push("x87".to_owned());
    }
    if emulated != bench.operand() {
        let at = (0..PAGE).find(|&at| emulated[at] != bench.operand()[at]).unwrap();
        differences.push(format!("memory at {at}: {:#x}, not {:#x}", emulated[at], bench.operand()[at]));
    }
    bench.operand().copy_from_slice(&before);
    let text = format!(
        "{:?} {:02x?}, seed {seed}: {}",
        found.instruction.code(),
        found.bytes,
        differences.join("; ")
    );
    (!differences.is_empty()).then_some(text)
}

fn unsafe_zeroed() -> libc::user_regs_struct {
    // SAFETY: the structure is numbers only.
    unsafe { std::mem::zeroed() }
}

#[test]
fn every_form_of_instruction_does_what_the_processor_does() {
    let mut bench = Bench::new();
    let harvest = &*HARVEST;
    println!("{} instructions; not emulated: {:?}", harvest.found.len(), harvest.unsupported);
    assert!(harvest.found.len() > 500, "{}", harvest.found.len());
    let wrong: Vec<String> =
        harvest.found.iter().flat_map(|found| difference(found, 1, &mut bench)).collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_instruction_with_any_registers(index in any::<prop::sample::Index>(), seed in any::<u64>()) {
        let mut bench = Bench::new();
        let found = &HARVEST.found[index.index(HARVEST.found.len())];
        let differs = difference(found, seed, &mut bench);
        prop_assert!(differs.is_none(), "{}", differs.unwrap());
    }

    #[test]
    fn flags_of_a_subtraction_are_the_processors(left in any::<u64>(), right in any::<u64>(), size in 0..4) {
        let mut flags: u64;
        // SAFETY: each only compares and reads the flags.
        unsafe {
            match size {
                0 => std::arch::asm!(
                    "cmp {0:l}, {1:l}", "pushfq", "pop {2}",
                    in(reg_abcd) left, in(reg_abcd) right, out(reg) flags
                ),
                1 => std::arch::asm!(
                    "cmp {0:x}, {1:x}", "pushfq", "pop {2}",
                    in(reg) left, in(reg) right, out(reg) flags
                ),
                2 => std::arch::asm!(
                    "cmp {0:e}, {1:e}", "pushfq", "pop {2}",
                    in(reg) left, in(reg) right, out(reg) flags
                ),
                _ => std::arch::asm!(
                    "cmp {0}, {1}", "pushfq", "pop {2}",
                    in(reg) left, in(reg) right, out(reg) flags
                ),
            }
        }
        prop_assert_eq!(flags_of_subtraction(left, right, 1 << size), flags & STATUS_FLAGS);
    }
}

#[test]
fn a_thunk_that_faults_is_left_unharmed() {
    let mut translator = Translator::new().unwrap();
    let mut machine = Machine::new(translator.arena());
    let zeroed = unsafe_zeroed();
    let stack = &zeroed as *const _ as u64;
    for (what, bytes) in [
        ("div rcx", &[0x48, 0xf7, 0xf1][..]),
        ("movaps xmm0, [rsp+1]", &[0x0f, 0x28, 0x44, 0x24, 0x01]),
        ("idiv ecx", &[0xf7, 0xf9]),
    ] {
        let operation = translator.decode(Isa::X86_64, bytes).unwrap();
        machine.begin(&mut Own, &libc::user_regs_struct { rax: 1, rsp: stack & !63, ..zeroed });
        assert_eq!(machine.step(&mut Own, operation), Err(Stop::Memory), "{what}");
        // And the next one works.
        let operation = translator.decode(Isa::X86_64, &[0x48, 0x01, 0xc0]).unwrap();
        assert_eq!(machine.step(&mut Own, operation), Ok(Flowed::Next));
        assert_eq!(machine.state.gpr[0], 2, "add rax, rax after {what}");
    }
}

#[test]
fn the_stack_pointer_is_the_threads_own() {
    let mut translator = Translator::new().unwrap();
    let mut machine = Machine::new(translator.arena());
    let page = [7u64; 512];
    let stack = &page[256] as *const u64 as u64;
    machine.begin(&mut Own, &libc::user_regs_struct { rsp: stack, rbp: 5, rip: 0x1000, ..unsafe_zeroed() });
    for (bytes, flowed) in [
        (&[0x55][..], Flowed::Next),                      // push rbp
        (&[0x48, 0x89, 0xe5], Flowed::Next),              // mov rbp, rsp
        (&[0x48, 0x83, 0xec, 0x20], Flowed::Next),        // sub rsp, 32
        (&[0x48, 0x83, 0xe4, 0xf0], Flowed::Next),        // and rsp, -16
        (&[0xe8, 0x00, 0x01, 0x00, 0x00], Flowed::Taken), // call .+261
        (&[0x5a], Flowed::Next),                          // pop rdx
        (&[0xc9], Flowed::Next),                          // leave
        (&[0x5f], Flowed::Next),                          // pop rdi
    ] {
        let operation = translator.decode(Isa::X86_64, bytes).unwrap();
        assert_eq!(machine.step(&mut Own, operation), Ok(flowed), "{bytes:x?}");
    }
    let state = &machine.state;
    assert_eq!((state.gpr[4], state.gpr[5], state.gpr[7]), (stack + 8, 5, 7));
    // push, mov, sub and and are 12 bytes, the call 5.
    assert_eq!((state.gpr[2], state.ip), (0x1000 + 17, 0x1000 + 17 + 256 + 3));
    assert_eq!(page[255], 7, "only the copy was written");
}
