//! The profile that GCC's `-fauto-profile=FILE` reads, from GCC 12 on: the same as the output of the AutoFDO
//! tools' `create_gcov` from branch records.
//!
//! Format (GCC 12, `auto-profile.c`): 32-bit words, little-endian, counts as two of them, the lower first.
//! The magic number, the version, an unused word; then sections, each with a tag and an unused length: the
//! names, the functions, and an empty list of modules. A name is its length including the final zero, and the
//! bytes. A function is its name's index, the numbers of its lines and inlined calls, the lines (offset,
//! number of callees, count, callees) and, by the offset of their calls, the inlined functions. Before GCC 12
//! lengths of names were words, not bytes.
//!
//! GCC looks at lines only, so a line's count is the largest of its discriminators'. Limits: a function with
//! several names is found by the name in its debug information only.

use super::format::{Format, Needs, Writer};
use super::source::{FunctionCounts, SourceCounts};
use std::collections::BTreeMap;
use std::io::{Result, Write};

/// `gcda`.
const MAGIC: u32 = 0x6763_6461;
const VERSION: u32 = 2;
const NAMES: u32 = 0xaa00_0000;
const FUNCTIONS: u32 = 0xac00_0000;
const MODULES: u32 = 0xae00_0000;
/// The type of a count for the callee of an indirect call.
const INDIRECT_CALL: u32 = 7;

/// `--format gcov`.
pub const FORMAT: Format = Format {
    name: "gcov",
    about: "What `gcc -fauto-profile` reads (GCC 12 and newer); needs debug information",
    writer: Writer::Module(|of, out| write(&of.source()?, out)),
    needs: Needs::Lines,
};

/// Writes the profile.
pub fn write(source: &SourceCounts, out: &mut dyn Write) -> Result<()> {
    let mut names = BTreeMap::new();
    for (name, function) in &source.functions {
        names.insert(name.as_str(), 0);
        collect_names(function, &mut names);
    }
    names.values_mut().zip(0..).for_each(|(index, next)| *index = next);
    let mut words = Words(out);
    [MAGIC, VERSION, 0, NAMES, 0, names.len() as u32].into_iter().try_for_each(|word| words.word(word))?;
    names.keys().try_for_each(|name| words.name(name))?;
    let functions = source.hottest();
    [FUNCTIONS, 0, functions.len() as u32].into_iter().try_for_each(|word| words.word(word))?;
    for (name, function) in functions {
        words.count(source.head(name))?;
        words.function(name, function, &names)?;
    }
    [MODULES, 0, 0].into_iter().try_for_each(|word| words.word(word))
}

fn collect_names<'a>(of: &'a FunctionCounts, names: &mut BTreeMap<&'a str, u32>) {
    for callee in of.lines.values().flat_map(|line| line.callees.keys()) {
        names.insert(callee, 0);
    }
    for ((_, name), inner) in &of.inlined {
        names.insert(name, 0);
        collect_names(inner, names);
    }
}

/// A function's line: its count, and the functions called from it.
#[derive(Default)]
struct LineTotal<'a> {
    count: u64,
    callees: BTreeMap<&'a str, u64>,
}

struct Words<'o>(&'o mut dyn Write);

impl Words<'_> {
    fn word(&mut self, word: u32) -> Result<()> {
        self.0.write_all(&word.to_le_bytes())
    }

    fn count(&mut self, count: u64) -> Result<()> {
        self.0.write_all(&count.to_le_bytes())
    }

    fn name(&mut self, name: &str) -> Result<()> {
        self.word(name.len() as u32 + 1)?;
        self.0.write_all(name.as_bytes())?;
        self.0.write_all(&[0])
    }

    fn function(&mut self, name: &str, of: &FunctionCounts, names: &BTreeMap<&str, u32>) -> Result<()> {
        let mut lines: BTreeMap<u16, LineTotal> = BTreeMap::new();
        for (line, line_count) in &of.lines {
            let total = lines.entry(line.offset).or_default();
            total.count = total.count.max(line_count.count);
            for (callee, count) in &line_count.callees {
                *total.callees.entry(callee).or_default() += count;
            }
        }
        let place = |offset: u16| u32::from(offset) << 16;
        self.word(names[name])?;
        self.word(lines.len() as u32)?;
        self.word(of.inlined.len() as u32)?;
        for (offset, LineTotal { count, callees }) in lines {
            self.word(place(offset))?;
            self.word(callees.len() as u32)?;
            self.count(count)?;
            for (callee, count) in callees {
                self.word(INDIRECT_CALL)?;
                self.count(u64::from(names[callee]))?;
                self.count(count)?;
            }
        }
        for ((line, name), inner) in &of.inlined {
            self.word(place(line.offset))?;
            self.function(name, inner, names)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture;

    #[test]
    fn functions_are_lines_callees_and_what_was_inlined() {
        let mut bytes = Vec::new();
        write(&fixture::source(), &mut bytes).unwrap();
        let words = |bytes: &[u8]| -> Vec<u32> {
            bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
        };
        let names = b"\x05\0\0\0main\0\x05\0\0\0step\0\x05\0\0\0work\0";
        let (header, rest) = bytes.split_at(6 * 4);
        assert_eq!(words(header), [MAGIC, VERSION, 0, NAMES, 0, 3]);
        assert_eq!(&rest[..names.len()], names);
        let work = [2680, 0, 2, 1, 1, 0, 0, 5358, 0];
        let step = [1 << 16, 1, 1, 0, 2 << 16, 0, 2679, 0];
        let main = [0, 0, 0, 4, 0, 0, 1, 2680, 0, INDIRECT_CALL, 2, 0, 2680, 0];
        let lines = [1 << 16, 0, 2680, 0, 2 << 16, 0, 0, 0, 3 << 16, 0, 0, 0];
        let all = [&[FUNCTIONS, 0, 2][..], &work, &step, &main, &lines, &[MODULES, 0, 0]].concat();
        assert_eq!(words(&rest[names.len()..]), all);
    }
}
