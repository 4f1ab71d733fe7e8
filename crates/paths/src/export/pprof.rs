//! The profile that `go build -pgo=FILE` reads: protocol buffers, in the format of pprof.
//!
//! Problem: Go's compiler takes one thing from a CPU profile, the weight of each call from a line of a
//! function to another function, and inlines and devirtualises the heavy ones (`cmd/internal/pgo`). Approach:
//! the profile has one sample for each such call, of two frames, with the number of its executions; for an
//! inlined call, the executions of the most frequent inlined line. A profile of time would contain the time
//! spent below the call instead, which says less about the cost of a call.
//!
//! By hand: the messages as types of `prost` take 20 lines more than writing them, for two more crates.
//!
//! Format: `profile.proto` of github.com/google/pprof, not compressed, which its readers accept. Limits: only
//! the distance from a function's first line matters to Go, and only that is written, so viewers show wrong
//! lines.

use super::format::{Format, Needs, Writer};
use super::source::{FunctionCounts, Line, SourceCounts};
use std::collections::BTreeMap;
use std::io::{Result, Write};

/// `--format pprof`.
pub const FORMAT: Format = Format {
    name: "pprof",
    about: "What `go build -pgo` reads; needs debug information (-ldflags=-compressdwarf=false)",
    writer: Writer::Module(|of, out| write(&of.source()?, out)),
    needs: Needs::Lines,
};

/// The line where every function begins, in place of the real one.
const FIRST_LINE: u64 = 1;

/// Writes the profile.
pub fn write(source: &SourceCounts, out: &mut dyn Write) -> Result<()> {
    let mut calls = BTreeMap::new();
    source.functions.iter().for_each(|(name, function)| add_calls(name, function, &mut calls));
    let mut names = Numbered::default();
    let mut frames = Numbered::default();
    let mut profile = Message::default();
    let (samples, count) = (names.number("samples"), names.number("count"));
    let mut unit = Message::default();
    unit.integer(1, samples).integer(2, count);
    profile.message(1, &unit);
    for ((caller, line, callee), executions) in calls {
        let called = frames.number((names.number(callee), 0));
        let calling = frames.number((names.number(caller), line.into()));
        let mut sample = Message::default();
        // The innermost frame comes first.
        sample.integer(1, called).integer(1, calling).integer(2, executions);
        profile.message(2, &sample);
    }
    for ((function, offset), &id) in &frames.0 {
        let (mut line, mut frame) = (Message::default(), Message::default());
        line.integer(1, *function).integer(2, FIRST_LINE + offset);
        frame.integer(1, id).message(4, &line);
        profile.message(4, &frame);
    }
    // A function's number is that of its name.
    for &name in names.0.values() {
        let mut function = Message::default();
        function.integer(1, name).integer(2, name).integer(3, name).integer(5, FIRST_LINE);
        profile.message(5, &function);
    }
    // Number 0 is the empty text.
    profile.bytes(6, b"");
    let mut texts: Vec<(&str, u64)> = names.0.into_iter().collect();
    texts.sort_by_key(|(_, number)| *number);
    texts.iter().for_each(|(text, _)| profile.bytes(6, text.as_bytes()));
    out.write_all(&profile.0)
}

/// Executions by caller, line of the call and callee.
type Calls<'a> = BTreeMap<(&'a str, u16, &'a str), u64>;

fn add_calls<'a>(caller: &'a str, of: &'a FunctionCounts, calls: &mut Calls<'a>) {
    for (line, counts) in &of.lines {
        for (callee, count) in &counts.callees {
            *calls.entry((caller, line.offset, callee)).or_default() += count;
        }
    }
    for ((Line { offset, .. }, name), inner) in &of.inlined {
        *calls.entry((caller, *offset, name)).or_default() += most_frequent(inner);
        add_calls(name, inner, calls);
    }
}

fn most_frequent(of: &FunctionCounts) -> u64 {
    let lines = of.lines.values().map(|line| line.count);
    lines.chain(of.inlined.values().map(most_frequent)).max().unwrap_or(0)
}

/// Numbers things, from 1 on.
#[derive(Default)]
struct Numbered<K>(BTreeMap<K, u64>);

impl<K: Ord> Numbered<K> {
    fn number(&mut self, of: K) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry(of).or_insert(next)
    }
}

/// A message of protocol buffers: fields, each with its number.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn integer(&mut self, field: u64, value: u64) -> &mut Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn message(&mut self, field: u64, value: &Message) {
        self.bytes(field, &value.0);
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// Seven bits per byte, the lowest first; all but the last have the highest bit.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::fixture;

    #[test]
    fn each_call_is_a_sample_inlined_or_not() {
        let source = fixture::source();
        let mut calls = BTreeMap::new();
        source.functions.iter().for_each(|(name, function)| add_calls(name, function, &mut calls));
        let calls: Vec<_> = calls.into_iter().collect();
        assert_eq!(calls, [(("main", 0, "work"), 2680), (("work", 1, "step"), 2679)]);
    }

    #[test]
    fn the_profile_is_one_message() {
        let mut bytes = Vec::new();
        write(&fixture::source(), &mut bytes).unwrap();
        let unit = [0x0a, 4, 8, 1, 0x10, 2];
        // work (name 3, frame 1) called by main (name 4, frame 2) 2680 times, step (5) by work one line down.
        let first = [0x12, 7, 8, 1, 8, 2, 0x10, 0xf8, 0x14];
        let second = [0x12, 7, 8, 3, 8, 4, 0x10, 0xf7, 0x14];
        let frame = |id, name, line| [0x22, 8, 8, id, 0x22, 4, 8, name, 0x10, line];
        let frames = [frame(1, 3, 1), frame(4, 3, 2), frame(2, 4, 1), frame(3, 5, 1)].concat();
        let texts = b"\x32\0\x32\x07samples\x32\x05count\x32\x04work\x32\x04main\x32\x04step";
        assert!(bytes.starts_with(&[&unit[..], &first, &second, &frames].concat()), "{bytes:x?}");
        assert!(bytes.ends_with(texts), "{bytes:x?}");
        let mut message = Message::default();
        message.integer(5, 1 << 63);
        assert_eq!(message.0.len(), 11);
    }
}
