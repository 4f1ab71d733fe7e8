//! Bytes and decoded instructions of code, read once and kept.
//!
//! What an instruction is decoded to, the user of a store says by its [`Decoder`]: what the instruction does
//! ([`Plain`], for looking at code), or how to carry it out (the emulation of `branches`).
//!
//! Code in a file is kept for all processes that map it. Code in memory may be replaced at any time by a
//! compiler at run time: [`CodeStore::begin_epoch`] makes every process's kept pages be compared with its
//! memory before they are used again, and a difference discards all that is kept of that process.
//!
//! A daemon that watches a machine for days meets ever more code, so what is kept has one budget in bytes
//! ([`KEPT_BYTES`]). Where an epoch begins above it, the pages that were not used since the last time go
//! (the clock algorithm: F. Corbató, "A paging experiment with the Multics system", MIT Project MAC, 1968),
//! and with its last page a file is closed. Limit: what one epoch reads comes on top of the budget.

use super::names::Names;
use super::{AddressSpace, Backing, Code, FileKey, Instruction, Isa, Mapping, Role};
use crate::mapped_file;
use corewise_sys::proc::{Memory, Proc};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;

/// Files that are known; the code of more is read from memory.
const FILES_MAX: usize = 512;

/// Bytes of code that are kept, bytes and decoded instructions together. A page takes some 20 KiB, and what a
/// machine's programs do most of the time is in some hundred pages.
pub const KEPT_BYTES: usize = 16 << 20;

/// How many pages of a text are kept; with one more, all are forgotten.
const PAGES_MAX: usize = 1 << 12;

/// Where an instruction lies, independent of where a process maps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// In a file, at an offset.
    File(FileKey, u64),
    /// In a process's memory, at an address. The version changes when the memory has changed.
    Memory {
        /// The process.
        pid: u32,
        /// Another number after each change.
        version: u32,
        /// Virtual address.
        address: u64,
    },
}

/// Makes of an instruction's bytes what its user wants to keep of it.
pub trait Decoder {
    /// What is kept.
    type Decoded: Copy;

    /// Decodes the instruction at the start of `bytes`; `None` if there is no valid one.
    fn decode(&mut self, isa: Isa, bytes: &[u8]) -> Option<Self::Decoded>;
}

/// Decodes to what an instruction does.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Decoder for Plain {
    type Decoded = Instruction;

    fn decode(&mut self, isa: Isa, bytes: &[u8]) -> Option<Instruction> {
        isa.decode(bytes)
    }
}

/// Code, page by page.
struct Text<T> {
    pages: FxHashMap<u64, Page<T>>,
    /// What the pages take.
    kept_bytes: usize,
}

impl<T> Default for Text<T> {
    fn default() -> Text<T> {
        Text { pages: FxHashMap::default(), kept_bytes: 0 }
    }
}

struct Page<T> {
    /// `None` if the page cannot be read; shorter than a page at the end of a file.
    bytes: Option<Box<[u8]>>,
    /// For each offset: [`NOT_DECODED`], [`INVALID`], or [`FIRST`] plus its index in `decoded`.
    index: Box<[u16; PAGE]>,
    decoded: Vec<T>,
    /// Whether it was used since pages were last forgotten.
    is_used: bool,
}

const NOT_DECODED: u16 = 0;
const INVALID: u16 = 1;
const FIRST: u16 = 2;

/// The code of one file, by file offset.
pub struct FileText<T = Instruction> {
    file: File,
    isa: Isa,
    text: Text<T>,
    /// Read when first asked for.
    names: Option<Names>,
}

impl<T> FileText<T> {
    /// The code of an open file; nothing is read yet.
    pub fn new(file: File, isa: Isa) -> FileText<T> {
        FileText { file, isa, text: Text::default(), names: None }
    }

    fn names(&mut self) -> &Names {
        self.names.get_or_insert_with(|| self.file.try_clone().map(Names::of).unwrap_or_default())
    }
}

impl FileText {
    /// The instruction at a file offset, `None` if there is none or it cannot be read.
    pub fn instruction(&mut self, offset: u64) -> Option<Instruction> {
        let FileText { file, isa, text, .. } = self;
        text.instruction(offset, &mut |bytes| isa.decode(bytes), &|page| read_file(file, page))
    }

    /// The instruction at a file offset in the words of an assembler, if it is loaded to this address.
    pub fn assembly(&self, offset: u64, address: u64) -> Option<String> {
        let mut bytes = [0; Isa::INSTRUCTION_BYTES_MAX];
        let length = self.file.read_at(&mut bytes, offset).ok()?;
        self.isa.assembly(&bytes[..length], address)
    }
}

struct MemoryText<T> {
    version: u32,
    checked_in: u64,
    text: Text<T>,
}

/// All code that was needed so far.
pub struct CodeStore<D: Decoder = Plain> {
    decoder: D,
    files: Vec<FileText<D::Decoded>>,
    /// Index in `files`; `None` if the file could not be opened, or is another one by now.
    file_by_key: FxHashMap<FileKey, Option<usize>>,
    memories: FxHashMap<u32, MemoryText<D::Decoded>>,
    /// For as long as an epoch.
    opened: Opened,
    epoch: u64,
    /// Versions of memories given out so far; never reused, so that a reused process id is no danger.
    versions: u32,
}

impl Default for CodeStore {
    fn default() -> CodeStore {
        CodeStore::new(Plain)
    }
}

impl<D: Decoder> CodeStore<D> {
    /// An empty store.
    pub fn new(decoder: D) -> CodeStore<D> {
        CodeStore {
            decoder,
            files: Vec::new(),
            file_by_key: FxHashMap::default(),
            memories: FxHashMap::default(),
            opened: Opened::default(),
            epoch: 0,
            versions: 0,
        }
    }

    /// Code in memory that was read before this call is compared before it is trusted again. Where more is
    /// kept than the budget, what was not used lately is forgotten.
    pub fn begin_epoch(&mut self) {
        self.epoch += 1;
        self.opened = Opened::default();
        // Half of the files are for those that this epoch meets.
        if self.kept_bytes() > KEPT_BYTES || self.file_by_key.len() > FILES_MAX / 2 {
            self.forget_unused();
        }
    }

    /// What the code takes that is kept, in bytes.
    pub fn kept_bytes(&self) -> usize {
        let files = self.files.iter().map(|file| file.text.kept_bytes);
        files.chain(self.memories.values().map(|memory| memory.text.kept_bytes)).sum()
    }

    /// Forgets the pages that were not used since the last call, and files and memories without any.
    fn forget_unused(&mut self) {
        self.memories.retain(|_, memory| memory.text.keep_used());
        let mut files: Vec<_> = std::mem::take(&mut self.files).into_iter().map(Some).collect();
        // Nobody holds an index between two views. A file that could not be opened may be tried again.
        self.file_by_key.retain(|_, index| {
            let file = index.and_then(|index| files[index].take());
            let Some(file) = file.and_then(|mut file| file.text.keep_used().then_some(file)) else {
                return false;
            };
            *index = Some(self.files.len());
            self.files.push(file);
            true
        });
    }

    /// Forgets the memory of a process that ended or executed another program.
    pub fn forget_process(&mut self, pid: u32) {
        self.memories.remove(&pid);
        self.opened = Opened::default();
    }

    /// The code of one process.
    pub fn view<'a>(&'a mut self, pid: u32, space: &'a AddressSpace) -> CodeView<'a, D> {
        CodeView { store: self, pid, space, last: None }
    }

    fn file(&mut self, pid: u32, key: FileKey, mapping: &Mapping) -> Option<usize> {
        if self.file_by_key.len() >= FILES_MAX {
            return self.file_by_key.get(&key).copied().flatten();
        }
        *self.file_by_key.entry(key).or_insert_with(|| {
            self.files.push(open(pid, mapping)?);
            Some(self.files.len() - 1)
        })
    }

    fn memory(&mut self, pid: u32) -> &mut MemoryText<D::Decoded> {
        let epoch = self.epoch;
        let mut new_version = || {
            self.versions += 1;
            self.versions
        };
        let memory = self.memories.entry(pid).or_insert_with(|| MemoryText {
            version: new_version(),
            checked_in: epoch,
            text: Text::default(),
        });
        if memory.checked_in != epoch {
            memory.checked_in = epoch;
            let same = |(&at, page): (&u64, &Page<_>)| page.bytes == self.opened.page(pid, at);
            if !memory.text.pages.iter().all(same) {
                memory.text = Text::default();
                memory.version = new_version();
            }
        }
        memory
    }
}

/// The text of a mapped file, if it may be read.
fn open<T>(pid: u32, mapping: &Mapping) -> Option<FileText<T>> {
    let file = mapped_file::open(pid, mapping)?;
    let isa = Isa::of_file(&file);
    Some(FileText::new(file, isa.unwrap_or(Isa::HOST)))
}

fn read_file(file: &File, page: u64) -> Option<Box<[u8]>> {
    let mut bytes = vec![0; PAGE];
    let length = file.read_at(&mut bytes, page).ok().filter(|&length| length > 0)?;
    bytes.truncate(length);
    Some(bytes.into())
}

/// The memory of the process that was read last, which stays open: what comes next is often of the same one.
#[derive(Default)]
struct Opened(RefCell<Option<(u32, Option<Memory>)>>);

impl Opened {
    /// Fills `bytes` with what a process has in its memory; whether all could be read.
    fn read(&self, pid: u32, address: u64, bytes: &mut [u8]) -> bool {
        let mut opened = self.0.borrow_mut();
        if opened.as_ref().is_none_or(|(of, _)| *of != pid) {
            *opened = Some((pid, Proc::own().memory(pid, false).ok()));
        }
        let memory = opened.as_ref().and_then(|(_, memory)| memory.as_ref());
        memory.is_some_and(|memory| memory.read(address, bytes).is_ok())
    }

    fn page(&self, pid: u32, at: u64) -> Option<Box<[u8]>> {
        let mut bytes = vec![0; PAGE];
        self.read(pid, at, &mut bytes).then(|| bytes.into())
    }
}

impl<T: Copy> Text<T> {
    /// The instruction at `at`.
    fn instruction(
        &mut self,
        at: u64,
        decode: &mut dyn FnMut(&[u8]) -> Option<T>,
        read_page: &dyn Fn(u64) -> Option<Box<[u8]>>,
    ) -> Option<T> {
        let start = at & !(PAGE as u64 - 1);
        let offset = (at - start) as usize;
        let page = self.page(start, read_page);
        match page.index[offset] {
            NOT_DECODED => {}
            INVALID => return None,
            known => return Some(page.decoded[usize::from(known - FIRST)]),
        }
        let (bytes, length) = self.bytes(at, read_page);
        let decoded = decode(&bytes[..length]);
        let page = self.page(start, read_page);
        let before = page.decoded.capacity();
        page.index[offset] = match decoded {
            None => INVALID,
            Some(instruction) => {
                page.decoded.push(instruction);
                page.decoded.len() as u16 - 1 + FIRST
            }
        };
        let grown = page.decoded.capacity() - before;
        self.kept_bytes += grown * size_of::<T>();
        decoded
    }

    /// Bytes from `at` on, and how many of them there are.
    fn bytes(
        &mut self,
        at: u64,
        read_page: &dyn Fn(u64) -> Option<Box<[u8]>>,
    ) -> ([u8; Isa::INSTRUCTION_BYTES_MAX], usize) {
        let start = at & !(PAGE as u64 - 1);
        let offset = (at - start) as usize;
        let mut bytes = [0; Isa::INSTRUCTION_BYTES_MAX];
        let mut length = self.page(start, read_page).copy(offset, &mut bytes);
        if offset + bytes.len() > PAGE {
            length += self.page(start + PAGE as u64, read_page).copy(0, &mut bytes[length..]);
        }
        (bytes, length)
    }

    fn page(&mut self, start: u64, read_page: &dyn Fn(u64) -> Option<Box<[u8]>>) -> &mut Page<T> {
        if self.pages.len() == PAGES_MAX && !self.pages.contains_key(&start) {
            self.pages.clear();
            self.kept_bytes = 0;
        }
        let kept_bytes = &mut self.kept_bytes;
        let page = self.pages.entry(start).or_insert_with(|| {
            let page = Page {
                bytes: read_page(start),
                index: Box::new([NOT_DECODED; PAGE]),
                decoded: Vec::new(),
                is_used: true,
            };
            *kept_bytes += page.kept_bytes();
            page
        });
        page.is_used = true;
        page
    }

    /// Forgets the pages that were not used since the last call; whether any is left.
    fn keep_used(&mut self) -> bool {
        self.pages.retain(|_, page| std::mem::take(&mut page.is_used));
        self.pages.shrink_to_fit();
        self.kept_bytes = self.pages.values().map(Page::kept_bytes).sum();
        !self.pages.is_empty()
    }
}

impl<T> Page<T> {
    fn kept_bytes(&self) -> usize {
        let bytes = self.bytes.as_ref().map_or(0, |bytes| bytes.len());
        size_of::<Self>() + bytes + size_of_val(&*self.index) + self.decoded.capacity() * size_of::<T>()
    }

    /// Copies what the page holds from an offset on, as far as there is room; how many bytes that were.
    fn copy(&self, offset: usize, room: &mut [u8]) -> usize {
        let bytes = self.bytes.as_deref().and_then(|bytes| bytes.get(offset..)).unwrap_or_default();
        let length = bytes.len().min(room.len());
        room[..length].copy_from_slice(&bytes[..length]);
        length
    }
}

/// The code of one process, by virtual address.
pub struct CodeView<'a, D: Decoder = Plain> {
    store: &'a mut CodeStore<D>,
    pid: u32,
    space: &'a AddressSpace,
    /// The mapping of the last address, and the index of its file if it has one: code stays in a mapping.
    last: Option<(&'a Mapping, Option<usize>)>,
}

impl<'a, D: Decoder> CodeView<'a, D> {
    /// Where an address lies. `None` if nothing executable is known to be mapped there.
    pub fn place(&mut self, address: u64) -> Option<Place> {
        let (mapping, file) = self.mapping(address)?;
        if let (Backing::File(key, _), Some(_)) = (&mapping.backing, file) {
            return Some(Place::File(*key, file_offset(mapping, address)));
        }
        let version = self.store.memory(self.pid).version;
        Some(Place::Memory { pid: self.pid, version, address })
    }

    fn mapping(&mut self, address: u64) -> Option<(&'a Mapping, Option<usize>)> {
        if let Some((mapping, _)) = self.last
            && (mapping.start..mapping.end).contains(&address)
        {
            return self.last;
        }
        let mapping = self.space.find(address)?;
        let file = match &mapping.backing {
            Backing::File(key, _) => self.store.file(self.pid, *key, mapping),
            Backing::Memory => None,
        };
        self.last = Some((mapping, file));
        self.last
    }

    /// What the decoder made of the instruction at an address; `None` if there is none or it cannot be read.
    pub fn decoded(&mut self, address: u64) -> Option<D::Decoded> {
        let (mapping, file) = self.mapping(address)?;
        if file.is_none() {
            self.store.memory(self.pid);
        }
        let pid = self.pid;
        let CodeStore { decoder, files, memories, opened, .. } = &mut *self.store;
        match file {
            Some(file) => {
                let FileText { file, isa, text, .. } = &mut files[file];
                let mut decode = |bytes: &[u8]| decoder.decode(*isa, bytes);
                text.instruction(file_offset(mapping, address), &mut decode, &|page| read_file(file, page))
            }
            None => {
                let mut decode = |bytes: &[u8]| decoder.decode(Isa::HOST, bytes);
                let text = &mut memories.get_mut(&pid)?.text;
                text.instruction(address, &mut decode, &|page| opened.page(pid, page))
            }
        }
    }

    /// Bytes of code from an address on, and how many of them there are.
    pub fn bytes(&mut self, address: u64) -> Option<([u8; Isa::INSTRUCTION_BYTES_MAX], usize)> {
        let (mapping, file) = self.mapping(address)?;
        let pid = self.pid;
        match file {
            Some(file) => {
                let FileText { file, text, .. } = &mut self.store.files[file];
                Some(text.bytes(file_offset(mapping, address), &|page| read_file(file, page)))
            }
            None => {
                self.store.memory(pid);
                let CodeStore { memories, opened, .. } = &mut *self.store;
                Some(memories.get_mut(&pid)?.text.bytes(address, &|page| opened.page(pid, page)))
            }
        }
    }

    /// Fills `bytes` with what the process has in its memory from an address on; whether all could be read.
    pub fn data(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.store.opened.read(self.pid, address, bytes)
    }

    /// Whether an instruction follows a call of `sched_yield`: that, and before it the loading of its number.
    pub fn follows_yield(&mut self, address: u64) -> bool {
        // mov eax, 24; syscall. Nobody else has been seen to make it: glibc, musl, Go.
        const YIELD: [u8; 7] = [0xb8, libc::SYS_sched_yield as u8, 0, 0, 0, 0x0f, 0x05];
        let bytes = address.checked_sub(YIELD.len() as u64).and_then(|start| self.bytes(start));
        cfg!(target_arch = "x86_64")
            && bytes.is_some_and(|(bytes, filled)| bytes[..filled].starts_with(&YIELD))
    }

    /// Whether code is of a file whose exports say that its idle threads yield.
    pub fn yields(&mut self, address: u64) -> bool {
        let file = self.mapping(address).and_then(|(_, file)| file);
        file.is_some_and(|file| self.store.files[file].names().yields())
    }

    /// The mapping and whether its file can be read: where code may be emulated and recorded.
    pub fn in_file(&mut self, address: u64) -> Option<&'a Mapping> {
        let (mapping, file) = self.mapping(address)?;
        file.map(|_| mapping)
    }
}

impl Code for CodeView<'_> {
    fn instruction(&mut self, address: u64) -> Option<Instruction> {
        self.decoded(address)
    }

    fn pointer(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.data(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    fn role(&mut self, function: u64) -> Role {
        match self.mapping(function) {
            Some((mapping, Some(file))) => self.store.files[file].names().at(file_offset(mapping, function)),
            _ => Role::Unknown,
        }
    }

    fn role_of_slot(&mut self, user: u64, slot: u64) -> Role {
        match self.mapping(user) {
            Some((mapping, Some(file))) => {
                self.store.files[file].names().of_slot(slot, user, file_offset(mapping, user))
            }
            _ => Role::Unknown,
        }
    }
}

fn file_offset(mapping: &Mapping, address: u64) -> u64 {
    mapping.offset + (address - mapping.start)
}
