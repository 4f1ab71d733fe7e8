//! The functions of an ELF file.
//!
//! Problem. Paths begin and end at functions, so their bounds must be known, also of programs without
//! symbols.
//!
//! Approach. Function symbols of the file and of its separate debug file, if one is installed under
//! `/usr/lib/debug` for its build id. A symbol without a size ends where the next begins, or its section
//! ends. Of symbols that begin alike, one with a size is taken, then a global before a weak before a local
//! one, then the first by name, so that the choice is the same in every run. A symbol inside another
//! function (a second entry) is left out: the function around it stays whole. If there is no full symbol
//! table, what the exported symbols leave out is filled with the ranges of the unwind table (`.eh_frame`):
//! those have no names.
//!
//! Source. System V ABI, chapter "Symbol table"; Linux Standard Base, "Exception frames".
//!
//! Limits. A function that the compiler has split (`name.cold`) is two. One unwind range is taken to be one
//! function; the linkage table's is none.

use super::{Content, ElfError, ElfFile};
use corewise_paths::program::Function;
use corewise_sys::input;
use gimli::UnwindSection;
use object::read::ReadRef;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};
use std::cmp::Reverse;
use std::fs::File;
use std::path::Path;

/// A function symbol, before its end is known.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Symbol {
    start: u64,
    has_no_size: bool,
    is_local: bool,
    is_weak: bool,
    size: Reverse<u64>,
    name: String,
}

impl ElfFile {
    /// Its functions by address, without overlaps: from its symbols or those of its debug file, else from its
    /// unwind table.
    pub fn functions(&self) -> Result<Vec<Function>, ElfError> {
        let malformed = |error: object::Error| ElfError::Malformed {
            path: self.path.clone(),
            problem: error.to_string(),
        };
        let content = self.content();
        let object = content.object().map_err(malformed)?;
        let sections = code_sections(&object);
        let mut symbols = Vec::new();
        collect(object.symbols(), &mut symbols);
        let mut is_stripped = symbols.is_empty();
        collect(object.dynamic_symbols(), &mut symbols);
        let debug_file = self.build_id.as_deref().and_then(debug_file);
        if let Some(content) = debug_file.map(|file| Content::new(file, self.bytes_max))
            && let Ok(debug) = content.object()
        {
            collect(debug.symbols(), &mut symbols);
            is_stripped = false;
        }
        symbols.sort_unstable();
        let mut functions = bounded(symbols, &sections);
        if is_stripped {
            let ranges = unwind_ranges(&object, &sections);
            functions.extend(ranges.map(|(start, end)| Function { name: None, start, end }));
            // Named ones come first among those that begin alike: the sort is stable.
            functions.sort_by_key(|function| function.start);
            functions = without_overlaps(functions);
        }
        Ok(functions)
    }
}

/// `/usr/lib/debug/.build-id/12/34….debug`.
fn debug_file(build_id: &str) -> Option<File> {
    let (directory, name) = build_id.split_at_checked(2)?;
    let path = format!("/usr/lib/debug/.build-id/{directory}/{name}.debug");
    input::open_regular(Path::new(&path)).ok()
}

/// Address ranges of the sections that hold functions, in order. They do not overlap in sound files.
pub(crate) fn code_sections<'a, R: ReadRef<'a>>(object: &object::File<'a, R>) -> Vec<(u64, u64)> {
    let is_linkage_table = |name: &str| name.starts_with(".plt") || name == ".iplt";
    let mut sections: Vec<(u64, u64)> = object
        .sections()
        .filter(|section| section.kind() == SectionKind::Text && !section.name().is_ok_and(is_linkage_table))
        .map(|section| (section.address(), section.address().saturating_add(section.size())))
        .collect();
    sections.sort_unstable();
    sections
}

/// The end of the section that holds an address.
fn section_end(sections: &[(u64, u64)], address: u64) -> Option<u64> {
    let behind = sections.partition_point(|&(start, _)| start <= address);
    sections[..behind].last().map(|&(_, end)| end).filter(|&end| address < end)
}

fn collect<'a>(of_table: impl Iterator<Item = impl ObjectSymbol<'a>>, symbols: &mut Vec<Symbol>) {
    for symbol in of_table.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition()) {
        let Some(name) = symbol.name().ok().filter(|name| !name.is_empty()) else { continue };
        symbols.push(Symbol {
            start: symbol.address(),
            has_no_size: symbol.size() == 0,
            is_local: symbol.is_local(),
            is_weak: symbol.is_weak(),
            size: Reverse(symbol.size()),
            // Versioned symbols of a debug file: `memcpy@@GLIBC_2.14`.
            name: name.split('@').next().unwrap_or(name).to_owned(),
        });
    }
}

/// Functions of sorted symbols, the first of those that begin alike.
fn bounded(mut symbols: Vec<Symbol>, sections: &[(u64, u64)]) -> Vec<Function> {
    symbols.dedup_by_key(|symbol| symbol.start);
    let starts: Vec<u64> = symbols.iter().skip(1).map(|symbol| symbol.start).chain([u64::MAX]).collect();
    let functions = symbols.into_iter().zip(starts).filter_map(|(symbol, next_start)| {
        let section_end = section_end(sections, symbol.start)?;
        let end = if symbol.has_no_size { next_start } else { symbol.start.saturating_add(symbol.size.0) };
        Some(Function { name: Some(symbol.name), start: symbol.start, end: end.min(section_end) })
    });
    without_overlaps(functions.collect())
}

/// Of functions sorted by their start: leaves out those inside another, and cuts one that reaches into the
/// next.
fn without_overlaps(functions: Vec<Function>) -> Vec<Function> {
    let mut apart: Vec<Function> = Vec::with_capacity(functions.len());
    for function in functions {
        match apart.last_mut() {
            Some(last) if function.end <= last.end => continue,
            Some(last) if function.start == last.start => continue,
            Some(last) => last.end = last.end.min(function.start),
            None => {}
        }
        apart.push(function);
    }
    apart
}

/// The ranges that `.eh_frame` tells how to unwind; none if it is missing or damaged.
pub(crate) fn unwind_ranges<'a, R: ReadRef<'a>>(
    object: &object::File<'a, R>,
    sections: &[(u64, u64)],
) -> impl Iterator<Item = (u64, u64)> {
    let mut ranges = Vec::new();
    if let Some(section) = object.section_by_name(".eh_frame")
        && let Ok(data) = section.data()
    {
        let address_of = |name| object.section_by_name(name).map_or(0, |section| section.address());
        let bases = gimli::BaseAddresses::default()
            .set_eh_frame(section.address())
            .set_text(address_of(".text"))
            .set_got(address_of(".got"));
        let frame = gimli::EhFrame::new(data, gimli::LittleEndian);
        let mut entries = frame.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            let gimli::CieOrFde::Fde(partial) = entry else { continue };
            if let Ok(fde) = partial.parse(gimli::EhFrame::cie_from_offset) {
                ranges.push((fde.initial_address(), fde.end_address()));
            }
        }
    }
    ranges.sort_unstable();
    ranges.into_iter().filter(|&(start, end)| start < end && section_end(sections, start).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, start: u64, size: u64) -> Symbol {
        Symbol {
            start,
            has_no_size: size == 0,
            is_local: false,
            is_weak: name.starts_with("weak"),
            size: Reverse(size),
            name: name.to_owned(),
        }
    }

    fn drawn(functions: &[Function]) -> String {
        let texts = functions.iter().map(|f| {
            let name = f.name.as_deref().unwrap_or("?");
            format!("{name} {:x}-{:x}", f.start, f.end)
        });
        texts.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn symbols_become_functions_without_overlaps() {
        let mut symbols = vec![
            symbol("sized", 0x10, 0x20),
            symbol("entry", 0x20, 4),
            symbol("open", 0x30, 0),
            symbol("weak", 0x50, 0x10),
            symbol("strong", 0x50, 0x10),
            symbol("last", 0x60, 0),
            symbol("linkage", 0x90, 8),
        ];
        symbols.sort_unstable();
        let functions = bounded(symbols, &[(0x10, 0x80)]);
        assert_eq!(drawn(&functions), "sized 10-30, open 30-50, strong 50-60, last 60-80");
    }

    #[test]
    fn unwind_ranges_fill_what_names_leave() {
        let function =
            |name: Option<&str>, start, end| Function { name: name.map(str::to_owned), start, end };
        let functions = vec![
            function(Some("main"), 0x10, 0x20),
            function(None, 0x10, 0x20),
            function(None, 0x20, 0x30),
            function(Some("end"), 0x2c, 0x40),
        ];
        assert_eq!(drawn(&without_overlaps(functions)), "main 10-20, ? 20-2c, end 2c-40");
    }
}
