//! Which variable a library prints behind a text: how a hidden variable is found where no exported function
//! refers to it alone.
//!
//! Problem. A library keeps a setting in a variable that it does not export, but prints it somewhere, named:
//! `fprintf(file, "  GOMP_SPINCOUNT = '%lu'\n", count)`.
//!
//! Approach. The text lies in `.rodata`, once. The code takes its address in one place (`lea`); the function
//! around that place is decoded from its start. Between the last jump or call before that place and the call
//! behind it instructions follow one another, so that it is certain what they leave in registers: the text in
//! one for an argument, and in the one for the next argument the word that was loaded from a fixed address
//! (`mov`). That is the variable. In which function it is does not matter (libgomp has it in the exported
//! `omp_display_env` since GCC 12, before that in what it does when it is loaded), so that no call or jump is
//! followed, and nothing can go around in circles.
//!
//! Source. System V ABI, AMD64 supplement, "Parameter Passing".
//!
//! Limits. x86-64 only: A64 makes both addresses of several instructions, of which some are far away. Code
//! that does anything else, such as to load the word before an earlier call, gives no answer; neither do
//! texts that occur twice, or behind which different words are printed. Of sections and functions only so
//! many bytes are looked at.

use crate::Isa;
use crate::elf::ElfFile;
use crate::x86::is_write;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, Register,
};

/// Bytes of a section, and of a function, that are looked at. A libgomp has 9 KiB of texts and 150 KiB of
/// code; the function that prints has 8 KiB at most.
const SECTION_MAX: u64 = 16 << 20;
const FUNCTION_MAX: usize = 1 << 16;

/// The registers of arguments, in their order.
const ARGUMENTS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

/// The address as linked of the 8-byte word that is printed behind the text which contains `label`.
pub fn printed(elf: &ElfFile, label: &str) -> Option<u64> {
    if elf.isa() != Isa::X86_64 {
        return None;
    }
    let (start, texts) = elf.section(".rodata", SECTION_MAX)?;
    let text = start.checked_add(start_of_text(&texts, label.as_bytes())?)?;
    let (start, code) = elf.section(".text", SECTION_MAX)?;
    let functions = elf.functions().ok()?;
    // Bytes that are no instruction may look like a reference by chance, so each place is decoded.
    let mut words = displacements_to(text, &code, start).filter_map(|offset| {
        let place = start.checked_add(offset)?;
        let function = functions.iter().find(|function| (function.start..function.end).contains(&place))?;
        let code = code.get(function.start.checked_sub(start)? as usize..)?;
        let size = (function.end - function.start).min(FUNCTION_MAX as u64) as usize;
        argument_behind(&code[..size.min(code.len())], function.start, text)
    });
    words.next().filter(|word| words.all(|other| other == *word))
}

/// Where the only text that contains a label begins.
fn start_of_text(texts: &[u8], label: &[u8]) -> Option<u64> {
    let labels = texts.windows(label.len()).enumerate().filter(|(_, bytes)| *bytes == label);
    let label = only(labels.map(|(at, _)| at))?;
    let before = texts[..label].iter().rposition(|&byte| byte == 0);
    Some(before.map_or(0, |end| end + 1) as u64)
}

/// Where in code at an address four bytes end an instruction that refers to another address, if any do.
fn displacements_to(address: u64, code: &[u8], at: u64) -> impl Iterator<Item = u64> {
    let displacements = code.windows(4).zip(0u64..).filter(move |(bytes, offset)| {
        let displacement = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let next = at.wrapping_add(offset + 4);
        next.wrapping_add_signed(i64::from(displacement)) == address
    });
    displacements.map(|(_, offset)| offset)
}

/// The instructions of code at an address, up to the first bytes that are none.
fn instructions(code: &[u8], at: u64) -> impl Iterator<Item = Instruction> {
    let decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    decoder.into_iter().take_while(|instruction| !instruction.is_invalid())
}

/// The address of the word that the function's code at an address passes behind a text.
fn argument_behind(code: &[u8], at: u64, text: u64) -> Option<u64> {
    let takes = |i: &Instruction| i.mnemonic() == Mnemonic::Lea && refers_to(i) == Some(text);
    // Since the last jump or call.
    let mut block = Vec::new();
    for instruction in instructions(code, at) {
        match instruction.flow_control() {
            FlowControl::Next => block.push(instruction),
            FlowControl::Call | FlowControl::IndirectCall if block.iter().any(takes) => {
                return passed_behind(&block, takes);
            }
            _ => block.clear(),
        }
    }
    None
}

/// The address of the word that is in the register of the argument behind the text when all of this is done.
fn passed_behind(block: &[Instruction], takes: impl Fn(&Instruction) -> bool) -> Option<u64> {
    let text = ARGUMENTS.iter().position(|&register| last_write(block, register).is_some_and(&takes))?;
    let load = last_write(block, *ARGUMENTS.get(text + 1)?)?;
    refers_to(load).filter(|_| load.code() == Code::Mov_r64_rm64)
}

fn last_write(block: &[Instruction], register: Register) -> Option<&Instruction> {
    let mut factory = InstructionInfoFactory::new();
    block.iter().rev().find(|instruction| {
        let mut used = factory.info(instruction).used_registers().iter();
        used.any(|used| used.register().full_register() == register && is_write(used.access()))
    })
}

/// The fixed address of an instruction's operand in memory.
fn refers_to(instruction: &Instruction) -> Option<u64> {
    let is_fixed = instruction.is_ip_rel_memory_operand() && instruction.segment_prefix() == Register::None;
    is_fixed.then(|| instruction.ip_rel_memory_address())
}

fn only<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    found.next().filter(|_| found.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snippet::bytes;

    /// Where the code stands, what its text is and what it prints.
    const AT: u64 = 0xd881;
    const TEXT: u64 = 0x3930e;
    const WORD: u64 = 0x476c0;

    /// The word that code passes behind the text.
    fn found(hex: &str) -> Option<u64> {
        argument_behind(&bytes(&hex.replace(' ', "")), AT, TEXT)
    }

    /// As GCC 12 compiles `omp_display_env`, from an earlier line on.
    #[test]
    fn it_is_loaded_into_the_register_of_the_argument_behind_the_text() {
        // mov rdi,[rbx]; mov rdx,[rip+..]; xor eax,eax; lea rsi,[rip+..]; call
        let line_before = "488b3b 488b154d9e0300 31c0 488d3560ba0200 e897caffff";
        let line = "488b3b 488b151d9e0300 31c0 488d3562ba0200";
        assert_eq!(found(&format!("{line_before} {line} e87ccaffff c3")), Some(WORD));
        assert_eq!(found(&format!("{line_before} {line} ff1500000000")), Some(WORD), "through a pointer");
        assert_eq!(found(line_before), None, "another text");
    }

    /// As with `-D_FORTIFY_SOURCE`: one argument more before the text.
    #[test]
    fn it_may_be_another_argument() {
        // mov rdi,[rbx]; mov rcx,[rip+..]; mov esi,2; lea rdx,[rip+..]; call
        assert_eq!(found("488b3b 488b0d359e0300 be02000000 488d1577ba0200 e800000000"), Some(WORD));
    }

    #[test]
    fn code_that_does_anything_else_gives_no_answer() {
        for (why, hex) in [
            ("no call", "488b15389e0300 488d357fba0200 c3"),
            ("a jump before the call", "488b15389e0300 488d357fba0200 eb00 e800000000"),
            ("loaded before another call", "488b15389e0300 e800000000 488d357aba0200 e800000000"),
            ("from a register: mov rdx,rax", "488b05389e0300 4889c2 488d357cba0200 e800000000"),
            ("half a word: mov edx,[rip+..]", "8b15399e0300 488d3580ba0200 e800000000"),
            ("not the word itself: add rdx,[rip+..]", "480315389e0300 488d357fba0200 e800000000"),
            ("its address: lea rdx,[rip+..]", "488d15389e0300 488d357fba0200 e800000000"),
            ("written to afterwards: cqo", "488b15389e0300 4899 488d357dba0200 e800000000"),
            ("a thread's: mov rdx,fs:[rip+..]", "64488b15379e0300 488d357eba0200 e800000000"),
            ("another text in the end: xor esi,esi", "488b15389e0300 488d357fba0200 31f6 e800000000"),
            ("no argument: lea rax,[rip+..]", "488b15389e0300 488d057fba0200 e800000000"),
            ("the last argument: lea r9,[rip+..]", "488b15389e0300 4c8d0d7fba0200 e800000000"),
            ("cut off", "488b15389e0300 488d35"),
            ("no code", "06"),
            ("none", ""),
        ] {
            assert_eq!(found(hex), None, "{why}");
        }
    }

    #[test]
    fn a_text_begins_behind_the_one_before_and_occurs_once() {
        assert_eq!(start_of_text(b"one\0  label = '%lu'\n\0", b"label = '"), Some(4));
        assert_eq!(start_of_text(b"  label = '%lu'\n\0", b"label = '"), Some(0));
        assert_eq!(start_of_text(b"label = '\0label = '\0", b"label = '"), None);
        assert_eq!(start_of_text(b"label\0", b"label = '"), None);
    }

    #[test]
    fn what_refers_to_an_address_is_found_at_any_place() {
        let places = |address| displacements_to(address, &[0, 0, 0, 0, 0, 0x90], 0x1000).collect::<Vec<_>>();
        assert_eq!(places(0x1004), [0]);
        assert_eq!(places(0x1005), [1]);
        assert!(places(0x1003).is_empty());
    }
}
