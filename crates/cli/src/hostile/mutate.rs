//! Mutates inputs but keeps much of their structure, so that they get beyond the first checks of a parser.

use corewise_core::random::Random;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Boundary values of number types and limits.
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "-1",
    "2",
    "64",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999",
    "0.1",
    "1e308",
    "-1e-320",
    "NaN",
];

/// Texts with a meaning to some parser, terminal or file system.
const TEXTS: [&str; 16] = [
    "",
    "\0",
    "\u{1b}[2J",
    "\n",
    "é\u{202e}",
    "\"",
    "{",
    "]",
    "<a>",
    "</object>",
    "&x;",
    "<!DOCTYPE x [<!ENTITY x \"&y;&y;\">]>",
    "../../../../etc/passwd",
    "/dev/zero",
    "0xf...f",
    "0-4294967295",
];

/// A nesting depth that a recursive parser must not follow.
const DEEP: usize = 3000;

/// A seeded source of mutations.
pub struct Mutator(Random);

impl Mutator {
    pub fn new(seed: u64) -> Mutator {
        Mutator(Random::new(seed, 0))
    }

    /// Returns a number below `count`, which is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        self.0.below(count)
    }

    fn one_of<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.0.below(texts.len())]
    }

    /// Returns a non-empty part of 0..length, usually a short one.
    fn part(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.0.below(length);
        let longest = if self.0.below(4) == 0 { length } else { 8 };
        start..length.min(start + 1 + self.0.below(longest))
    }

    /// Makes up to four changes at any place, with a preference for binary numbers.
    pub fn bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.0.below(4) {
            if bytes.is_empty() {
                break;
            }
            let part = self.part(bytes.len());
            // Headers, which contain the structure, are at the beginning.
            let at = if self.0.below(2) == 0 { self.0.below(bytes.len().min(512)) } else { part.start };
            match self.0.below(6) {
                0 => bytes[at] ^= 1 << self.0.below(8),
                1 => bytes[at] = self.0.below(256) as u8,
                2 => {
                    let width = [1, 2, 4, 8][self.0.below(4)].min(bytes.len() - at);
                    let fill = [0, 0x7f, 0x80, 0xff][self.0.below(4)];
                    bytes[at..at + width].fill(fill);
                }
                3 => {
                    let copy = bytes[part.clone()].to_vec();
                    bytes.splice(at..at, copy);
                }
                4 => drop(bytes.drain(part)),
                _ => bytes.truncate(part.start),
            }
        }
        bytes
    }

    /// Makes up to four changes of the words, numbers, signs and lines of a text.
    pub fn text(&mut self, text: &str) -> String {
        let mut words: Vec<String> = words(text).into_iter().map(str::to_owned).collect();
        for _ in 0..=self.0.below(4) {
            if words.is_empty() {
                break;
            }
            let part = self.part(words.len());
            let at = self.0.below(words.len());
            match self.0.below(9) {
                0 => drop(words.drain(part)),
                1 => {
                    let copy = words[part].to_vec();
                    words.splice(at..at, copy);
                }
                2 => words.swap(at, part.start),
                3 => words[at] = words[part.start].clone(),
                4 => words[at] = self.one_of(&TEXTS).to_owned(),
                5 => words.insert(at, self.one_of(&TEXTS).to_owned()),
                6 => words.truncate(part.start),
                7 if self.0.below(8) == 0 => words[at] = words[at].repeat(DEEP),
                _ => {
                    let is_number = |word: &&mut String| word.starts_with(|c: char| c.is_ascii_digit());
                    let count = words.iter_mut().filter(is_number).count();
                    if count > 0 {
                        let chosen = self.0.below(count);
                        let number = self.one_of(&NUMBERS).to_owned();
                        if let Some(word) = words.iter_mut().filter(is_number).nth(chosen) {
                            *word = number;
                        }
                    }
                }
            }
        }
        words.concat()
    }

    /// Makes up to four changes of values of a JSON tree, which stays JSON.
    pub fn json(&mut self, value: &Value) -> Value {
        let mut value = value.clone();
        for _ in 0..=self.0.below(4) {
            let count = nodes(&value);
            let other = node(&mut value, &mut self.0.below(count)).map(|node| node.clone());
            let chosen = self.0.below(count);
            if let (Some(node), Some(other)) = (node(&mut value, &mut { chosen }), other) {
                self.change(node, other);
            }
        }
        value
    }

    fn change(&mut self, node: &mut Value, other: Value) {
        match (self.0.below(5), node) {
            (0, node) => *node = other,
            (1, Value::Array(items)) if !items.is_empty() => {
                let part = self.part(items.len());
                drop(items.drain(part));
            }
            (2, Value::Array(items)) if !items.is_empty() => {
                let copy = items[self.0.below(items.len())].clone();
                items.insert(self.0.below(items.len() + 1), copy);
            }
            (1 | 2, Value::Object(fields)) if !fields.is_empty() => {
                let key = fields.keys().nth(self.0.below(fields.len())).cloned().unwrap_or_default();
                fields.remove(&key);
            }
            (3, node @ Value::String(_)) => *node = json!(self.one_of(&TEXTS)),
            (_, node) => {
                let number = self.one_of(&NUMBERS);
                let text = self.one_of(&TEXTS);
                *node = match self.0.below(5) {
                    0 => json!(text),
                    1 => [Value::Null, json!(true), json!([]), json!({})][self.0.below(4)].clone(),
                    _ => serde_json::from_str(number).unwrap_or(Value::Null),
                };
            }
        }
    }
}

/// Splits text into words, numbers and single other characters.
fn words(text: &str) -> Vec<&str> {
    let is_inner = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
    let mut starts = BTreeSet::from([0]);
    let mut before = '\0';
    for (at, c) in text.char_indices() {
        if !(is_inner(c) && is_inner(before)) {
            starts.insert(at);
        }
        before = c;
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(&start, end)| &text[start..end]).collect()
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(fields) => fields.values().map(nodes).sum(),
        _ => 0,
    }
}

/// Returns the node with this number in the order of a walk.
fn node<'a>(value: &'a mut Value, number: &mut usize) -> Option<&'a mut Value> {
    if *number == 0 {
        return Some(value);
    }
    *number -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| node(item, number)),
        Value::Object(fields) => fields.values_mut().find_map(|field| node(field, number)),
        _ => None,
    }
}

#[test]
fn changes_come_from_the_seed_alone_and_do_change() {
    let text = "[machine]\ntopology = \"core:2 pu:1\"\nspeeds = [1.0, 0.5]\n";
    let value = json!({"a": [1, 2, {"b": "c"}], "d": null});
    let all = |seed| {
        let mut mutator = Mutator::new(seed);
        (mutator.text(text), mutator.json(&value), mutator.bytes(text.as_bytes()))
    };
    assert_eq!(words(text).concat(), text);
    assert_eq!(all(7), all(7));
    let changed: BTreeSet<String> = (0..100).map(|seed| all(seed).0).collect();
    assert!(changed.len() > 80, "{}", changed.len());
}
