//! Points of a thread's code that it may pass at a rate that can be counted.
//!
//! Problem. Hot code is passed far too often, most other code never. In between are the loops around it and
//! the functions that call it. A probe anywhere but on the first byte of an instruction damages the program.
//!
//! Approach. The stack of each clock sample is searched for return addresses. Candidates are the entry of
//! each function on the stack, each return address, and the backward jumps in those functions around a
//! sampled place. Most jumps are passed far too often or never, so they come last. What is always on the
//! stack (`main`), or is left from earlier calls, is not passed; the other candidates are sorted by how often
//! they differ from one sample to the next. A function is decoded from its beginning, and counts only if each
//! sampled place in it is the beginning of an instruction by that decoding; a return address counts only if
//! the instruction before it is a call.
//!
//! Limits. A point that is passed as often as samples are taken looks like one that is passed a million
//! times. Code outside files is ignored. Functions beyond [`BYTES_MAX`] have no candidates inside.

use super::counter::stepped_rate_max;
use corewise_code::elf::ElfFile;
use corewise_code::mapped_file;
use corewise_code::{AddressSpace, Backing, FileKey, FileText, Flow, Isa, Mapping};
use corewise_core::progress::RATE_MAX;
use corewise_paths::program::Function;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The largest function that is decoded.
const BYTES_MAX: u64 = 64 << 10;

/// The maximum number of backward jumps of one function; the longest come first.
const LOOPS_MAX: usize = 12;

/// The name of a backward jump.
const LOOP: &str = "loop in";

/// A place in a file's code.
#[derive(Debug, Clone)]
pub struct Point {
    /// The index of the file.
    pub module: usize,
    /// The offset of an instruction's first byte in the file.
    pub offset: u64,
    /// Its address in the process.
    pub address: u64,
    /// Its description, such as `xz: return from lzma_code in main`.
    pub name: String,
    /// How often per second it may be passed, by the cost of a pass.
    pub rate_max: f64,
}

/// A file with code that the process has mapped.
pub struct Module {
    /// The open file.
    pub file: File,
    name: String,
    elf: ElfFile,
    functions: Vec<Function>,
    text: FileText,
    /// The difference between addresses in the process and addresses as linked.
    loaded: u64,
}

/// The files with code of one process.
pub struct Modules {
    pid: u32,
    space: AddressSpace,
    modules: Vec<Module>,
    /// `None` if the file cannot be used.
    by_key: BTreeMap<(u64, u32, u32), Option<usize>>,
    /// The decoded functions, by module and start.
    decoded: BTreeMap<(usize, u64), Option<Decoded>>,
}

#[derive(Clone, Default)]
struct Decoded {
    begins: BTreeSet<u64>,
    /// Addresses after a call.
    returns: BTreeSet<u64>,
    /// Backward jumps, with their distances.
    loops: Vec<(u64, u64)>,
}

/// A sample of a thread.
#[derive(Debug, Clone, Default)]
pub struct Find {
    /// The next instruction.
    pub ip: u64,
    /// The words of its stack.
    pub stack: Vec<u64>,
}

impl Modules {
    /// Reads the files of a process as it is now.
    pub fn of(pid: u32) -> std::io::Result<Modules> {
        let space = AddressSpace::of_process(pid)?;
        Ok(Modules { pid, space, modules: Vec::new(), by_key: BTreeMap::new(), decoded: BTreeMap::new() })
    }

    /// Returns the file of a point.
    pub fn file(&self, point: &Point) -> &File {
        &self.modules[point.module].file
    }

    /// Returns the candidates; first those that came and went most often from sample to sample.
    pub fn candidates(&mut self, finds: &[Find]) -> Vec<Point> {
        let mut weighted: Vec<((bool, Reverse<usize>), Point)> = Vec::new();
        for ((module, start, end), seen) in self.seen(finds) {
            let function = Function { name: None, start, end };
            let Some(decoded) = self.decode(module, &function) else { continue };
            if !seen.found.iter().all(|address| decoded.begins.contains(address)) {
                continue;
            }
            let returns = seen.shown.keys().filter(|address| decoded.returns.contains(address));
            let returns = returns.map(|&address| (seen.changes(address..=address), address, "return to"));
            let inside = |&(from, by): &(u64, u64)| (seen.changes(from - by..=from), from, LOOP);
            let loops = decoded.loops.iter().map(inside).filter(|(changes, ..)| *changes > 0).take(LOOPS_MAX);
            let entry = (seen.changes(start..=end), start, "entry of");
            let places: Vec<_> = std::iter::once(entry).chain(returns).chain(loops).collect();
            for (changes, address, what) in places.into_iter().filter(|(changes, ..)| *changes > 0) {
                if let Some(point) = self.point(module, address, what) {
                    weighted.push(((what == LOOP, Reverse(changes)), point));
                }
            }
        }
        weighted.sort_by(|(weight, point), (other, against)| {
            (weight, point.address).cmp(&(other, against.address))
        });
        let mut known = BTreeSet::new();
        weighted.retain(|(_, point)| known.insert(point.address));
        weighted.into_iter().map(|(_, point)| point).collect()
    }

    /// Returns what the samples show of each function, by module, start and end.
    fn seen(&mut self, finds: &[Find]) -> BTreeMap<(usize, u64, u64), Seen> {
        let mut all: BTreeMap<(usize, u64, u64), Seen> = BTreeMap::new();
        for (sample, find) in finds.iter().enumerate() {
            if let Some((module, function, address)) = self.locate(find.ip) {
                let seen = all.entry((module, function.start, function.end)).or_default();
                seen.found.insert(address);
                seen.shown.entry(address).or_default().insert(sample);
            }
            for &word in &find.stack {
                let Some((module, function, address)) = self.locate(word) else { continue };
                let is_return = |decoded: &Decoded| decoded.returns.contains(&address);
                if self.decode(module, &function).is_some_and(is_return) {
                    let seen = all.entry((module, function.start, function.end)).or_default();
                    seen.shown.entry(address).or_default().insert(sample);
                }
            }
        }
        all
    }

    fn point(&self, module: usize, address: u64, what: &str) -> Option<Point> {
        let Module { file, elf, functions, name, loaded, .. } = &self.modules[module];
        let offset = elf.segments().offset(address)?;
        let function = function_at(functions, address)?;
        let label = function.name.clone().unwrap_or_else(|| format!("{:#x}", function.start));
        let distance = address - function.start;
        let place = if distance == 0 { label } else { format!("{label}+{distance:#x}") };
        let name = format!("{name}: {what} {place}");
        let mut bytes = [0; 2];
        file.read_exact_at(&mut bytes, offset).ok()?;
        let rate_max = if is_emulated(bytes) { RATE_MAX } else { stepped_rate_max() };
        Some(Point { module, offset, address: address.wrapping_add(*loaded), name, rate_max })
    }

    /// Returns module, function and address as linked for an address of the process.
    fn locate(&mut self, address: u64) -> Option<(usize, Function, u64)> {
        let mapping = self.space.find(address)?.clone();
        let module = self.module(&mapping)?;
        let Module { elf, functions, loaded, .. } = &mut self.modules[module];
        let linked = elf.segments().address(mapping.offset + (address - mapping.start))?;
        *loaded = address.wrapping_sub(linked);
        Some((module, function_at(functions, linked)?.clone(), linked))
    }

    fn module(&mut self, mapping: &Mapping) -> Option<usize> {
        let Backing::File(FileKey { device, inode, .. }, path) = &mapping.backing else { return None };
        let key = (*inode, device.0, device.1);
        if let Some(known) = self.by_key.get(&key) {
            return *known;
        }
        let opened = open(self.pid, mapping, path).map(|module| {
            self.modules.push(module);
            self.modules.len() - 1
        });
        self.by_key.insert(key, opened);
        opened
    }

    fn decode(&mut self, module: usize, function: &Function) -> Option<&Decoded> {
        let Module { elf, text, .. } = &mut self.modules[module];
        let decoded = self.decoded.entry((module, function.start));
        decoded.or_insert_with(|| decode(elf, text, function)).as_ref()
    }
}

/// Returns whether the kernel emulates the instruction that begins like this under a uprobe: pushes, nops,
/// and calls and jumps over a fixed distance (arch/x86/kernel/uprobes.c).
fn is_emulated(bytes: [u8; 2]) -> bool {
    matches!(
        bytes,
        [0x50..=0x57 | 0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb, _]
            | [0x41, 0x50..=0x57]
            | [0x0f, 0x80..=0x8f]
    )
}

/// What samples show of a function.
#[derive(Default)]
struct Seen {
    /// Sampled places in it.
    found: BTreeSet<u64>,
    /// The samples that contain an address, as the place of the thread or as a return address.
    shown: BTreeMap<u64, BTreeSet<usize>>,
}

impl Seen {
    /// Returns how often the set of these addresses changes from one sample to the next.
    fn changes(&self, addresses: RangeInclusive<u64>) -> usize {
        let mut changes = BTreeSet::new();
        for samples in self.shown.range(addresses).map(|(_, samples)| samples) {
            changes.extend(samples.iter().filter(|sample| !samples.contains(&(*sample + 1))).copied());
            let comes = samples.iter().filter_map(|sample| sample.checked_sub(1));
            changes.extend(comes.filter(|before| !samples.contains(before)));
        }
        changes.len()
    }
}

fn open(pid: u32, mapping: &Mapping, path: &str) -> Option<Module> {
    let file = mapped_file::open(pid, mapping)?;
    let elf = ElfFile::of(Path::new(path), file.try_clone().ok()?).ok()?;
    // Only files for this processor: those of another instruction set are executed by an emulator.
    let isa = elf.isa();
    let functions = elf.functions().ok().filter(|_| isa == Isa::HOST)?;
    let text = FileText::new(file.try_clone().ok()?, isa);
    let name = path.rsplit('/').next().unwrap_or(path).to_owned();
    Some(Module { file, name, elf, functions, text, loaded: 0 })
}

fn function_at(functions: &[Function], address: u64) -> Option<&Function> {
    let behind = functions.partition_point(|function| function.start <= address);
    functions[..behind].last().filter(|function| address < function.end)
}

/// Decodes a function's instructions from its beginning on; `None` if it is too long or is not all code.
fn decode(elf: &ElfFile, text: &mut FileText, function: &Function) -> Option<Decoded> {
    let mut decoded = Decoded::default();
    let mut here = function.start;
    if function.end - function.start > BYTES_MAX {
        return None;
    }
    while here < function.end {
        let instruction = text.instruction(elf.segments().offset(here)?)?;
        decoded.begins.insert(here);
        let next = here + u64::from(instruction.length);
        match instruction.flow {
            Flow::Call(_) | Flow::CallThrough(_) | Flow::CallAnywhere => drop(decoded.returns.insert(next)),
            Flow::Jump(by) | Flow::Branch(by)
                if by < 0 && here.saturating_add_signed(by) >= function.start =>
            {
                decoded.loops.push((here, by.unsigned_abs()));
            }
            Flow::Next
            | Flow::Jump(_)
            | Flow::Branch(_)
            | Flow::JumpThrough(_)
            | Flow::JumpAnywhere
            | Flow::Return
            | Flow::Kernel => {}
        }
        here = next;
    }
    // A return address must be code, too: a call that never returns may be the function's end.
    decoded.returns.retain(|address| decoded.begins.contains(address));
    decoded.loops.sort_by_key(|&(_, by)| std::cmp::Reverse(by));
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_is_distinguished_from_what_is_always_there() {
        let mut seen = Seen::default();
        for sample in 0..100 {
            seen.shown.entry(0x10).or_default().insert(sample);
            seen.shown.entry(0x20 + sample as u64 / 10 % 2).or_default().insert(sample);
        }
        // At the end of the samples all go.
        assert_eq!(seen.changes(0x10..=0x10), 1);
        assert_eq!(seen.changes(0x20..=0x20), 9);
        assert_eq!(seen.changes(0x10..=0x2f), 10);
        assert_eq!(seen.changes(0x30..=0x3f), 0);
    }

    #[test]
    fn instructions_that_the_kernel_carries_out_itself_are_cheap() {
        // push rbp; push r12; nop; call; jmp; jne, short and long.
        for bytes in [[0x55, 0x48], [0x41, 0x54], [0x90, 0], [0xe8, 1], [0xeb, 1], [0x75, 1], [0x0f, 0x85]] {
            assert!(is_emulated(bytes), "{bytes:x?}");
        }
        // endbr64; mov; test; pop r12; movzx; rex.w push.
        for bytes in [[0xf3, 0x0f], [0x48, 0x89], [0x48, 0x85], [0x41, 0x5c], [0x0f, 0xb6], [0x48, 0x50]] {
            assert!(!is_emulated(bytes), "{bytes:x?}");
        }
    }
}
