//! What an ELF file's headers and its hash table show.
//!
//! Problem: a program of Python's maps a hundred files, and it matters of each whether it exports one of a
//! few symbols. Reading all symbols of all libraries took a third of corewise's CPU time for such a program.
//! Approach: symbols are left alone, and what is exported is looked up in the hash table, as the dynamic
//! linker does. Limits: a file without GNU's hash table tells only by its symbols.

use super::content::Bytes;
use super::segments::Segment;
use object::elf::{
    DF_1_PIE, DT_FLAGS_1, ELF_NOTE_GNU, ET_EXEC, FileHeader32, FileHeader64, Machine, NT_GNU_BUILD_ID, PF_W,
    PF_X, PT_INTERP, PT_LOAD, SHT_DYNSYM,
};
use object::read::elf::{
    Dyn, FileHeader, GnuHashTable, ProgramHeader, SectionHeader, Sym, SymbolTable, VersionTable,
};
use object::{Endianness, FileKind, ReadRef};

/// Headers of segments that are looked at: the kernel starts no program with more than 64 KiB of them.
const SEGMENTS_MAX: usize = (64 << 10) / 56;

/// Bytes of a build id. Linkers make 32 at most.
const BUILD_ID_MAX: usize = 64;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Headers {
    pub machine: Machine,
    pub build_id: Option<Vec<u8>>,
    /// What is loaded.
    pub segments: Vec<Segment>,
    /// Whether it is a program, and no library: it is linked for a fixed place, names what loads it, or is
    /// marked so.
    pub is_program: bool,
}

impl Headers {
    pub fn of(bytes: Bytes<'_>) -> object::Result<Headers> {
        match FileKind::parse(bytes)? {
            FileKind::Elf32 => Headers::of_class::<FileHeader32<Endianness>>(bytes),
            _ => Headers::of_class::<FileHeader64<Endianness>>(bytes),
        }
    }

    fn of_class<Elf: FileHeader<Endian = Endianness>>(bytes: Bytes<'_>) -> object::Result<Headers> {
        let header = Elf::parse(bytes)?;
        let endian = header.endian()?;
        let all = header.program_headers(endian, bytes)?;
        // They are kept as long as the file is.
        let all = &all[..all.len().min(SEGMENTS_MAX)];
        let loaded = all.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
        let segment = |segment: &Elf::ProgramHeader| Segment {
            address: segment.p_vaddr(endian).into(),
            offset: segment.p_offset(endian).into(),
            length: segment.p_filesz(endian).into(),
            size: segment.p_memsz(endian).into(),
            is_code: segment.p_flags(endian).contains(PF_X),
            is_writable: segment.p_flags(endian).contains(PF_W),
        };
        let is_mark = |entry: &Elf::Dyn| {
            entry.d_tag(endian) == DT_FLAGS_1 && entry.d_val(endian).into() & DF_1_PIE.0 != 0
        };
        let mut is_program = header.e_type(endian) == ET_EXEC;
        let mut build_id = None;
        for segment in all {
            // A file of debug information has these headers, too, but not what they refer to.
            let entries = segment.dynamic(endian, bytes).ok().flatten().unwrap_or_default();
            is_program |= segment.p_type(endian) == PT_INTERP || entries.iter().any(is_mark);
            let mut notes = segment.notes(endian, bytes).ok().flatten();
            while let Some(Ok(Some(note))) = notes.as_mut().map(|notes| notes.next()) {
                let is_build_id = note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID;
                if is_build_id && note.desc().len() <= BUILD_ID_MAX {
                    build_id.get_or_insert_with(|| note.desc().to_vec());
                }
            }
        }
        let segments = loaded.map(segment).collect();
        Ok(Headers { machine: header.e_machine(endian), build_id, segments, is_program })
    }
}

/// The address as linked and the first bytes, at most so many, of a section; `None` if there is none.
pub(super) fn section(bytes: Bytes<'_>, name: &str, bytes_max: u64) -> Option<(u64, Vec<u8>)> {
    match FileKind::parse(bytes).ok()? {
        FileKind::Elf32 => section_of_class::<FileHeader32<Endianness>>(bytes, name, bytes_max),
        _ => section_of_class::<FileHeader64<Endianness>>(bytes, name, bytes_max),
    }
}

fn section_of_class<Elf: FileHeader<Endian = Endianness>>(
    bytes: Bytes<'_>,
    name: &str,
    bytes_max: u64,
) -> Option<(u64, Vec<u8>)> {
    let header = Elf::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let (_, section) = header.sections(endian, bytes).ok()?.section_by_name(endian, name.as_bytes())?;
    let content = match section.file_range(endian) {
        Some((offset, size)) => bytes.read_bytes_at(offset, size.min(bytes_max)).ok()?.to_vec(),
        None => Vec::new(),
    };
    Some((section.sh_addr(endian).into(), content))
}

/// What a file exports.
pub(crate) struct Exported<'a> {
    endian: Endianness,
    table: GnuHashTable<'a, FileHeader64<Endianness>>,
    symbols: SymbolTable<'a, FileHeader64<Endianness>, Bytes<'a>>,
}

impl<'a> Exported<'a> {
    /// `None` if the file has no such table.
    pub fn of(bytes: Bytes<'a>) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, bytes).ok()?;
        let (table, _) = sections.gnu_hash(endian, bytes).ok()??;
        let symbols = sections.symbols(endian, bytes, SHT_DYNSYM).ok()?;
        Some(Self { endian, table, symbols })
    }

    /// The address as linked of a symbol that it defines.
    pub fn address(&self, name: &str) -> Option<u64> {
        let hash = object::elf::gnu_hash(name.as_bytes());
        let (name, versions) = (name.as_bytes(), VersionTable::default());
        let found = self.table.find(self.endian, name, hash, None, &self.symbols, &versions);
        let defined = found.filter(|(_, symbol)| symbol.is_definition(self.endian, self.symbols.strings()));
        defined.map(|(_, symbol)| symbol.st_value(self.endian))
    }
}
