//! Source lines of instructions, with what was inlined, as a sample profile names them.
//!
//! Problem: a sample profile counts by function, line below the function's declaration, and discriminator,
//! nested by inlining, since the compiler that reads it has not inlined anything yet. Approach: the
//! functions and inlined calls of the debug information are a tree of address ranges; a walk down the tree
//! gives the frames, the line table the innermost line. Libraries that print source lines (addr2line,
//! blazesym) leave out discriminators and lines of declaration, so this reads DWARF itself, with gimli.
//! Discriminators are taken apart as in LLVM's `Discriminator.h`: the base part, and how often the
//! optimiser has copied the code. Limits: no split debug information (`.dwo`), no compressed sections.
//!
//! A small file can name one list of ranges, one line table or one long name over and over again. So all that
//! is kept counts towards one limit.

use crate::elf::{Content, ElfError, OF_USER_MAX};
use corewise_paths::export::source::{Line, Lines, Place, SourceFrame};
use corewise_paths::window::Location;
use corewise_sys::input;
use gimli::{AttributeValue, DebuggingInformationEntry, EndianSlice, LittleEndian, UnitOffset};
use object::{Object, ObjectSection};
use std::cell::Cell;
use std::path::Path;

type Bytes<'d> = EndianSlice<'d, LittleEndian>;
type Dwarf<'d> = gimli::Dwarf<Bytes<'d>>;
type Unit<'d> = gimli::Unit<Bytes<'d>>;
type Entry<'d> = DebuggingInformationEntry<Bytes<'d>>;

/// Declarations lead to declarations, but only damaged files lead in circles.
const ORIGINS_MAX: usize = 8;

/// Inlined calls within each other that are distinguished. Compilers make some ten.
const DEPTH_MAX: usize = 256;

/// Ranges, rows of line tables, and 64 bytes of names that are kept. The largest compilers have a fourth.
const PARTS_MAX: u64 = 1 << 26;

/// A function, or an inlined call of one.
#[derive(Debug)]
struct Scope {
    ranges: Vec<(u64, u64)>,
    name: String,
    /// Line of the declaration.
    declared: u64,
    /// Where the call stands, if it was inlined.
    call: Spot,
    inlined: Vec<Scope>,
}

/// A place in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spot {
    /// Index in [`DebugLines::files`].
    file: usize,
    line: u64,
    discriminator: u64,
}

/// A row of the line table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    address: u64,
    /// `None` behind the end of a sequence.
    spot: Option<Spot>,
}

/// The debug information of an ELF file.
#[derive(Debug)]
pub struct DebugLines {
    /// By address; they do not overlap, except for parts of a function that was split.
    functions: Vec<(u64, u64, usize)>,
    scopes: Vec<Scope>,
    rows: Vec<Row>,
    /// Paths of sources; the first is of those that are not known.
    files: Vec<String>,
}

impl DebugLines {
    /// Reads a file's debug information.
    pub fn open(path: &Path) -> Result<DebugLines, ElfError> {
        let malformed = |problem: String| ElfError::Malformed { path: path.to_owned(), problem };
        let file = input::open_regular(path);
        let file = file.map_err(|source| ElfError::Read { path: path.to_owned(), source })?;
        let content = Content::new(file, OF_USER_MAX);
        let object = content.object().map_err(|error| malformed(error.to_string()))?;
        if object.section_by_name(".debug_line").is_none() {
            return Err(malformed("it has no debug information; compile it with -g".to_owned()));
        }
        let section = |id: gimli::SectionId| -> Result<Bytes<'_>, gimli::Error> {
            let data = object.section_by_name(id.name()).and_then(|section| section.data().ok());
            Ok(Bytes::new(data.unwrap_or_default(), LittleEndian))
        };
        let lines = Dwarf::load(section).map_err(Problem::from).and_then(|dwarf| read(&dwarf));
        lines.map_err(|problem| malformed(format!("its debug information: {problem}")))
    }

    fn row(&self, address: u64) -> Option<Spot> {
        let behind = self.rows.partition_point(|row| row.address <= address);
        self.rows[..behind].last()?.spot
    }

    fn function(&self, address: u64) -> Option<&Scope> {
        let behind = self.functions.partition_point(|(start, ..)| *start <= address);
        let (_, end, index) = *self.functions[..behind].last()?;
        (address < end).then(|| &self.scopes[index])
    }

    /// The function of an instruction and what was inlined there, the outermost first, each with the place
    /// of the inlined call or, at last, of the instruction.
    fn walk(&self, address: u64) -> Vec<(&Scope, Spot)> {
        let (Some(function), Some(innermost)) = (self.function(address), self.row(address)) else {
            return Vec::new();
        };
        let mut frames = Vec::new();
        let mut scope = function;
        let holds =
            |scope: &&Scope| scope.ranges.iter().any(|(start, end)| (*start..*end).contains(&address));
        while let Some(inner) = scope.inlined.iter().find(holds) {
            frames.push((scope, inner.call));
            scope = inner;
        }
        frames.push((scope, innermost));
        frames
    }
}

impl Lines for DebugLines {
    fn frames(&self, at: Location) -> Vec<SourceFrame> {
        self.walk(at.address).into_iter().map(|(scope, spot)| frame(scope, spot)).collect()
    }

    fn places(&self, at: Location) -> Vec<Place> {
        let place = |(scope, spot): (&Scope, Spot)| Place {
            function: scope.name.clone(),
            file: self.files[spot.file].clone(),
            line: spot.line,
        };
        self.walk(at.address).into_iter().map(place).collect()
    }
}

fn frame(scope: &Scope, Spot { line, discriminator, .. }: Spot) -> SourceFrame {
    SourceFrame {
        function: scope.name.clone(),
        line: Line {
            offset: line.wrapping_sub(scope.declared) as u16,
            discriminator: component(discriminator as u32),
        },
        copies: copies(discriminator as u32),
    }
}

/// The number that a discriminator begins with: nothing, 5 bits or 12 bits.
fn component(discriminator: u32) -> u32 {
    let number = discriminator >> 1;
    match discriminator & 1 {
        1 => 0,
        _ if number & 0x20 != 0 => ((number >> 1) & 0xfe0) | (number & 0x1f),
        _ => number & 0x1f,
    }
}

/// The number behind the first one, which is 0 where there is one copy.
fn copies(discriminator: u32) -> u32 {
    let rest = match discriminator & 0x41 {
        0x40 => discriminator >> 14,
        0 => discriminator >> 7,
        _ => discriminator >> 1,
    };
    component(rest).max(1)
}

/// Why debug information is of no use.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Damaged(#[from] gimli::Error),
    #[error("it says more than {PARTS_MAX} things")]
    TooMuch,
}

fn read(dwarf: &Dwarf<'_>) -> Result<DebugLines, Problem> {
    let mut units = Vec::new();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        units.push(dwarf.unit(header)?);
    }
    let reading = Reading { dwarf, units: &units, left: Cell::new(PARTS_MAX) };
    let (mut scopes, mut rows) = (Vec::new(), Vec::new());
    let mut files = vec![String::new()];
    for unit in &units {
        let first = files.len();
        files.extend(reading.files(unit)?);
        // Files are numbered from 1 up to DWARF 4, from 0 since.
        let numbers_from = u64::from(unit.header.version() < 5);
        let place = |number: u64| number.checked_sub(numbers_from).map(|index| first + index as usize);
        let count = files.len();
        let file = |number: u64| place(number).filter(|index| *index < count).unwrap_or(0);
        scopes.extend(reading.functions(unit, &file)?);
        reading.add_rows(unit, &file, &mut rows)?;
    }
    let ranges = |(index, scope): (usize, &Scope)| {
        scope.ranges.iter().map(|&(start, end)| (start, end, index)).collect::<Vec<_>>()
    };
    let mut functions: Vec<_> = scopes.iter().enumerate().flat_map(ranges).collect();
    functions.sort_unstable();
    // The end of a sequence comes before the start of the next one at the same address.
    rows.sort_by_key(|row| (row.address, row.spot.is_some()));
    Ok(DebugLines { functions, scopes, rows, files })
}

/// The index of the source that has this number in its unit.
type FileOf<'a> = &'a dyn Fn(u64) -> usize;

struct Reading<'a, 'd> {
    dwarf: &'a Dwarf<'d>,
    /// In the order of the file.
    units: &'a [Unit<'d>],
    /// How much may still be kept.
    left: Cell<u64>,
}

impl<'d> Reading<'_, 'd> {
    fn spend(&self, parts: u64) -> Result<(), Problem> {
        self.left.set(self.left.get().checked_sub(parts).ok_or(Problem::TooMuch)?);
        Ok(())
    }

    /// The paths of a unit's sources, by their numbers there.
    fn files(&self, unit: &Unit<'d>) -> Result<Vec<String>, Problem> {
        let Some(program) = &unit.line_program else { return Ok(Vec::new()) };
        let header = program.header();
        let text = |value: Option<AttributeValue<Bytes<'d>>>| {
            let text = value.and_then(|value| self.dwarf.attr_string(unit, value).ok());
            text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let compiled_in = unit.comp_dir.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        let mut files = Vec::new();
        for entry in header.file_names() {
            let path = Path::new(&compiled_in).join(text(entry.directory(header)));
            let path = path.join(text(Some(entry.path_name()))).to_string_lossy().into_owned();
            self.spend(1 + path.len() as u64 / 64)?;
            files.push(path);
        }
        Ok(files)
    }

    fn add_rows(&self, unit: &Unit<'d>, file: FileOf<'_>, rows: &mut Vec<Row>) -> Result<(), Problem> {
        let Some(program) = unit.line_program.clone() else { return Ok(()) };
        let mut unit_rows = program.rows();
        while let Some((_, row)) = unit_rows.next_row()? {
            self.spend(1)?;
            let spot = Spot {
                file: file(row.file_index()),
                line: row.line().map_or(0, std::num::NonZero::get),
                discriminator: row.discriminator(),
            };
            // Functions that the linker left out are at 0.
            if row.address() != 0 {
                rows.push(Row { address: row.address(), spot: (!row.end_sequence()).then_some(spot) });
            }
        }
        Ok(())
    }

    /// The functions of a unit that have code.
    fn functions(&self, unit: &Unit<'d>, file: FileOf<'_>) -> Result<Vec<Scope>, Problem> {
        // The scopes that are open, each with its depth in the tree of entries.
        let mut open: Vec<(isize, Scope)> = Vec::new();
        let mut functions = Vec::new();
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            close(&mut open, &mut functions, entry.depth());
            let is_function =
                matches!(entry.tag(), gimli::DW_TAG_subprogram | gimli::DW_TAG_inlined_subroutine);
            if is_function && open.len() < DEPTH_MAX {
                let scope = self.scope(unit, entry, file)?;
                if !scope.ranges.is_empty() {
                    open.push((entry.depth(), scope));
                }
            }
        }
        close(&mut open, &mut functions, isize::MIN);
        Ok(functions)
    }

    fn scope(&self, unit: &Unit<'d>, entry: &Entry<'d>, file: FileOf<'_>) -> Result<Scope, Problem> {
        let mut ranges = Vec::new();
        let mut found = self.dwarf.die_ranges(unit, entry)?;
        while let Some(range) = found.next()? {
            self.spend(1)?;
            if 0 < range.begin && range.begin < range.end {
                ranges.push((range.begin, range.end));
            }
        }
        let number = |name| entry.attr_value(name).and_then(|value| value.udata_value()).unwrap_or(0);
        let called_in = match entry.attr_value(gimli::DW_AT_call_file) {
            Some(AttributeValue::FileIndex(number)) => file(number),
            _ => 0,
        };
        let call = Spot {
            file: called_in,
            line: number(gimli::DW_AT_call_line),
            discriminator: number(gimli::DW_AT_GNU_discriminator),
        };
        let (name, declared) =
            if ranges.is_empty() { (String::new(), 0) } else { self.declaration(unit, entry)? };
        self.spend(name.len() as u64 / 64)?;
        Ok(Scope { ranges, name, declared, call, inlined: Vec::new() })
    }

    /// Linker name and line, which may stand at the entry that this one refers to.
    fn declaration(&self, unit: &Unit<'d>, entry: &Entry<'d>) -> Result<(String, u64), gimli::Error> {
        let (mut linker_name, mut name, mut line) = (None, None, None);
        let (mut unit, mut entry) = (unit, entry.clone());
        for _ in 0..ORIGINS_MAX {
            let text = |value: AttributeValue<Bytes<'d>>| {
                let text = self.dwarf.attr_string(unit, value).ok()?;
                Some(text.to_string_lossy().into_owned())
            };
            linker_name = linker_name.or_else(|| text(entry.attr_value(gimli::DW_AT_linkage_name)?));
            name = name.or_else(|| text(entry.attr_value(gimli::DW_AT_name)?));
            line = line.or_else(|| entry.attr_value(gimli::DW_AT_decl_line)?.udata_value());
            let origin = entry
                .attr_value(gimli::DW_AT_abstract_origin)
                .or_else(|| entry.attr_value(gimli::DW_AT_specification));
            let Some((its_unit, offset)) = origin.and_then(|origin| self.resolve(unit, origin)) else {
                break;
            };
            entry = its_unit.entry(offset)?;
            unit = its_unit;
        }
        Ok((linker_name.or(name).unwrap_or_default(), line.unwrap_or(0)))
    }

    fn resolve<'u>(
        &'u self,
        unit: &'u Unit<'d>,
        value: AttributeValue<Bytes<'d>>,
    ) -> Option<(&'u Unit<'d>, UnitOffset)> {
        match value {
            AttributeValue::UnitRef(offset) => Some((unit, offset)),
            AttributeValue::DebugInfoRef(offset) => {
                let starts_before =
                    |unit: &Unit<'d>| unit.header.debug_info_offset().is_some_and(|start| start <= offset);
                let unit = self.units[..self.units.partition_point(starts_before)].last()?;
                Some((unit, offset.to_unit_offset(&unit.header)?))
            }
            _ => None,
        }
    }
}

/// Hands scopes that do not hold an entry of this depth to the scopes around them.
fn close(open: &mut Vec<(isize, Scope)>, functions: &mut Vec<Scope>, depth: isize) {
    while let Some((_, scope)) = open.pop_if(|(its_depth, _)| *its_depth >= depth) {
        match open.last_mut() {
            Some((_, outer)) => outer.inlined.push(scope),
            None => functions.push(scope),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminators_are_taken_apart() {
        // As LLVM's DILocation::encodeDiscriminator writes base 3, 2 copies; base 100; nothing, 4 copies.
        assert_eq!((component(3 << 1 | 2 << 8), copies(3 << 1 | 2 << 8)), (3, 2));
        let hundred = (((100 & 0xfe0) << 1) | 0x20 | (100 & 0x1f)) << 1;
        assert_eq!((component(hundred), copies(hundred)), (100, 1));
        assert_eq!((component(0b1 | 4 << 2), copies(0b1 | 4 << 2)), (0, 4));
        assert_eq!((component(0), copies(0)), (0, 1));
    }
}
