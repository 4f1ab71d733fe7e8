//! A set of processing elements by OS index, and the parser for its notations.
//!
//! The parser understands kernel lists (`0-3,8`), strides (`0-15:2/4`: of each four, the first two) and
//! hexadecimal masks (`0xff`, the kernel's `ffffffff,00000000`). Notations that depend on a machine
//! (`core:0-3`, `S0:0-3`, `fast`) are resolved by [`crate::topology::Topology::locate`], which calls this
//! parser for the rest.

use crate::ids::PeId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A set of PEs (OS indices) of any size. Clones share their memory, as thousands of threads have equal sets.
///
/// Equality does not depend on how the set was made: trailing zero words are never kept.
#[derive(Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct CpuSet {
    words: Arc<[u64]>,
}

/// Why a text is not a set of PEs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a set of PEs: {problem}; write for instance 0-3,8 or 0-15:2/4 or 0xff")]
pub struct CpuSetError {
    /// The given text.
    pub text: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The largest OS index that the parser accepts. This is not a limit of the set: it keeps a typing error such
/// as `0-99999999999` from allocating all memory.
const PARSED_INDEX_MAX: u32 = (1 << 20) - 1;

impl CpuSet {
    /// Returns the empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the set of one PE.
    pub fn single(pe: PeId) -> Self {
        Self::from_iter([pe])
    }

    /// Returns the set of the PEs `0..count`.
    pub fn first_n(count: u32) -> Self {
        (0..count).map(PeId).collect()
    }

    /// Returns the set whose bit `i` of word `w` tells whether PE `64 w + i` is a member (the layout of
    /// `sched_setaffinity`).
    pub fn from_words(words: &[u64]) -> Self {
        Self::trimmed(words.iter().copied())
    }

    fn trimmed(words: impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + Clone) -> Self {
        let end = words.clone().rposition(|word| word != 0).map_or(0, |last| last + 1);
        Self { words: words.take(end).collect() }
    }

    /// Returns the words as in [`CpuSet::from_words`], without trailing zeros.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds a PE.
    pub fn insert(&mut self, pe: PeId) {
        match Arc::make_mut(&mut self.words).get_mut(word_of(pe)) {
            Some(word) => *word |= bit_of(pe),
            None => *self = self.iter().chain([pe]).collect(),
        }
    }

    /// Removes a PE.
    pub fn remove(&mut self, pe: PeId) {
        if let Some(word) = Arc::make_mut(&mut self.words).get_mut(word_of(pe)) {
            *word &= !bit_of(pe);
        }
        if self.words.last() == Some(&0) {
            *self = Self::from_words(&self.words);
        }
    }

    /// Returns whether the PE is a member.
    pub fn contains(&self, pe: PeId) -> bool {
        self.word(word_of(pe)) & bit_of(pe) != 0
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = PeId> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros();
                    rest &= rest - 1;
                    PeId(index as u32 * 64 + bit)
                })
            })
        })
    }

    /// Returns the lowest member.
    pub fn first(&self) -> Option<PeId> {
        self.iter().next()
    }

    /// Returns the highest member.
    pub fn last(&self) -> Option<PeId> {
        let word = *self.words.last()?;
        Some(PeId(self.words.len() as u32 * 64 - 1 - word.leading_zeros()))
    }

    /// Returns the members of both sets.
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        Self::trimmed(self.words.iter().zip(&*other.words).map(|(a, b)| a & b))
    }

    /// Returns the members of either set.
    pub fn union(&self, other: &CpuSet) -> CpuSet {
        let (long, short) = if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        Self::trimmed(long.words.iter().enumerate().map(|(index, word)| word | short.word(index)))
    }

    /// Returns the members of `self` that are not in `other`.
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        Self::trimmed(self.words.iter().enumerate().map(|(index, word)| word & !other.word(index)))
    }

    fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    /// Returns whether every member is in `other`.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.words.len() <= other.words.len()
            && self.words.iter().zip(&*other.words).all(|(a, b)| a & !b == 0)
    }

    /// Returns the lowest common member.
    pub fn first_common(&self, other: &CpuSet) -> Option<PeId> {
        let common = |(index, word): (usize, &u64)| {
            let both = word & other.word(index);
            (both != 0).then(|| PeId(index as u32 * 64 + both.trailing_zeros()))
        };
        self.words.iter().enumerate().find_map(common)
    }

    /// Returns whether the sets have a member in common.
    pub fn intersects(&self, other: &CpuSet) -> bool {
        self.words.iter().zip(&*other.words).any(|(a, b)| a & b != 0)
    }
}

fn word_of(pe: PeId) -> usize {
    pe.0 as usize / 64
}

fn bit_of(pe: PeId) -> u64 {
    1 << (pe.0 % 64)
}

fn add(words: &mut Vec<u64>, pe: PeId) {
    if words.len() <= word_of(pe) {
        words.resize(word_of(pe) + 1, 0);
    }
    words[word_of(pe)] |= bit_of(pe);
}

impl FromIterator<PeId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = PeId>>(pes: I) -> Self {
        let mut words = Vec::new();
        pes.into_iter().for_each(|pe| add(&mut words, pe));
        Self { words: words.into() }
    }
}

/// The kernel's list form: `0-3,8`; the empty set is the empty text.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut pes = self.iter().map(|pe| pe.0).peekable();
        let mut separator = "";
        while let Some(start) = pes.next() {
            let mut end = start;
            while let Some(next) = pes.next_if(|&next| end.checked_add(1) == Some(next)) {
                end = next;
            }
            if start == end {
                write!(f, "{separator}{start}")?;
            } else {
                write!(f, "{separator}{start}-{end}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let trimmed = text.trim();
        let parsed = if is_mask(trimmed) { parse_mask(trimmed) } else { parse_list(trimmed) };
        parsed.map_err(|problem| CpuSetError { text: text.to_owned(), problem })
    }
}

/// A mask starts with `0x`, or is the kernel's comma-separated groups of exactly eight hexadecimal digits.
fn is_mask(text: &str) -> bool {
    let groups_of_eight = || text.split(',').skip(1).all(|group| group.len() == 8) && text.contains(',');
    let has_letter = || text.bytes().any(|b| b.is_ascii_alphabetic());
    text.starts_with("0x")
        || (text.bytes().all(|b| b.is_ascii_hexdigit() || b == b',') && (groups_of_eight() || has_letter()))
}

fn parse_mask(text: &str) -> Result<CpuSet, String> {
    let digits: String = text.split(',').map(|group| group.strip_prefix("0x").unwrap_or(group)).collect();
    if digits.is_empty() {
        return Err("the mask has no digits".into());
    }
    if digits.len() > PARSED_INDEX_MAX as usize / 4 {
        return Err("the mask is too long".into());
    }
    let mut words = Vec::new();
    for (position, digit) in digits.chars().rev().enumerate() {
        let value = digit.to_digit(16).ok_or_else(|| format!("`{digit}` is not a hexadecimal digit"))?;
        for bit in 0..4 {
            if value >> bit & 1 == 1 {
                add(&mut words, PeId(position as u32 * 4 + bit));
            }
        }
    }
    Ok(CpuSet::from_words(&words))
}

fn parse_list(text: &str) -> Result<CpuSet, String> {
    if text.is_empty() {
        return Ok(CpuSet::new());
    }
    let mut words = Vec::new();
    for item in text.split(',') {
        let (range, stride) = match item.split_once(':') {
            Some((range, stride)) => (range, Some(stride)),
            None => (item, None),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (parse_index(first)?, parse_index(last)?),
            None => (parse_index(range)?, parse_index(range)?),
        };
        if last < first {
            return Err(format!("the range {range} ends before it starts"));
        }
        let (used, group) = match stride {
            None => (1, 1),
            Some(stride) => {
                let (used, group) = stride
                    .split_once('/')
                    .ok_or_else(|| format!("the stride `{stride}` is not USED/GROUP"))?;
                (parse_index(used)?, parse_index(group)?)
            }
        };
        if group == 0 || used == 0 || used > group {
            return Err(format!("the stride {used}/{group} violates 0 < {used} <= {group}"));
        }
        for index in (first..=last).filter(|index| (index - first) % group < used) {
            add(&mut words, PeId(index));
        }
    }
    Ok(CpuSet::from_words(&words))
}

fn parse_index(text: &str) -> Result<u32, String> {
    match text.trim().parse::<u32>() {
        Ok(index) if index <= PARSED_INDEX_MAX => Ok(index),
        Ok(index) => Err(format!("index {index} is above {PARSED_INDEX_MAX}")),
        Err(_) => Err(format!("`{text}` is not an index")),
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(text.parse::<CpuSet>().map(|set| set.to_string()), Ok(expected.to_owned()), "{text}");
    }

    #[test]
    fn every_notation_is_understood() {
        check("", "");
        check("0", "0");
        check("3,1,2", "1-3");
        check("0-3,8", "0-3,8");
        check(" 0-1 ", "0-1");
        check("0-15:2/4", "0-1,4-5,8-9,12-13");
        check("1-9:1/2", "1,3,5,7,9");
        check("0x5", "0,2");
        check("ff", "0-7");
        check("00000001,00000000", "32");
        check("0x1,00000003", "0-1,32");
        check("4095", "4095");
    }

    #[test]
    fn an_error_names_the_text() {
        for bad in [
            "3-1",
            "a-b",
            "1-",
            "-1",
            "0-3:4",
            "0-3:5/4",
            "0-3:0/4",
            "99999999999",
            "0x",
            "0xg",
            "1;2",
            "2000000",
        ] {
            let error = bad.parse::<CpuSet>().expect_err(bad).to_string();
            assert!(error.contains(bad), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_parsed_back(pes in proptest::collection::vec(0u32..600, 0..80)) {
            let set: CpuSet = pes.iter().copied().map(PeId).collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set.clone());
            prop_assert_eq!(set.iter().collect::<CpuSet>(), set);
        }

        #[test]
        fn set_algebra_agrees_with_a_tree_set(
            a in proptest::collection::btree_set(0u32..300, 0..60),
            b in proptest::collection::btree_set(0u32..300, 0..60),
        ) {
            let set = |pes: &mut dyn Iterator<Item = u32>| pes.map(PeId).collect::<CpuSet>();
            let (x, y) = (set(&mut a.iter().copied()), set(&mut b.iter().copied()));
            prop_assert_eq!(x.union(&y), set(&mut a.union(&b).copied()));
            prop_assert_eq!(x.intersection(&y), set(&mut a.intersection(&b).copied()));
            prop_assert_eq!(x.difference(&y), set(&mut a.difference(&b).copied()));
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert_eq!(x.intersects(&y), !a.is_disjoint(&b));
            prop_assert_eq!(x.first_common(&y), a.intersection(&b).next().copied().map(PeId));
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.first(), a.first().copied().map(PeId));
            prop_assert_eq!(x.last(), a.last().copied().map(PeId));
            let mut without = x.clone();
            for &pe in &a { without.remove(PeId(pe)); }
            prop_assert_eq!(without, CpuSet::new());
        }
    }
}
