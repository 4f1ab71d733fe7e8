//! Which PEs are fast and which are slow: sources vote.
//!
//! Problem: the core type, the kernel's capacity, the highest frequency and hwloc's ranking all tell
//! something about speed, but none is always available, and firmware makes each of them wrong at times.
//!
//! Approach: a source orders the PEs in classes from slow to fast, so each PE gets one rank per source. PE
//! `a` is at most as fast as `b` if no source ranks it higher. If this makes a chain of all groups of equal
//! rank, the groups are the kinds; a source that does not distinguish two PEs does not object to another that
//! does. If two groups cannot be compared (one source ranks the first higher, another the second), the
//! sources contradict each other: the result is one kind `unknown`, with a note about the sources.
//!
//! How much slower a kind is comes from the first source that distinguishes all kinds by numbers in
//! proportion to the speed ([`Vote::in_proportion`]).
//!
//! Limits: numbers that differ by less than [`TOLERANCE_PERCENT`] form one class. Cores of one design differ
//! by that much in their highest frequency (Intel's and AMD's "favoured cores"), which does not make a kind
//! of its own. A ratio of clocks understates how much slower a smaller core of another design is.

use super::{CpuKind, ReportedSpeed};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use std::collections::BTreeMap;

/// Neighbouring values that differ by at most this share are one class. hwloc merges frequencies by the same.
pub const TOLERANCE_PERCENT: u64 = 10;

/// The vote of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vote {
    /// Name of the source: `max frequency`.
    pub source: String,
    /// Its classes from slow to fast, each with the finding in words: `max frequency 3.9 GHz`.
    pub classes: Vec<(CpuSet, String)>,
    /// The speed of each PE, in any unit; empty if the source only ranks them.
    pub speeds: BTreeMap<PeId, u64>,
}

impl Vote {
    /// Creates a vote from one number per PE, where larger is faster. Numbers within `tolerance_percent` of
    /// their neighbour are one class. `words` formats a number.
    pub fn from_numbers(
        source: &str,
        numbers: &BTreeMap<PeId, u64>,
        tolerance_percent: u64,
        words: impl Fn(u64) -> String,
    ) -> Vote {
        let mut by_number: BTreeMap<u64, CpuSet> = BTreeMap::new();
        for (&pe, &number) in numbers {
            by_number.entry(number).or_default().insert(pe);
        }
        let mut ranges: Vec<(u64, u64, CpuSet)> = Vec::new();
        for (number, pes) in by_number {
            match ranges.last_mut() {
                Some((_, high, set)) if number * 100 <= *high * (100 + tolerance_percent) => {
                    *high = number;
                    *set = set.union(&pes);
                }
                _ => ranges.push((number, number, pes)),
            }
        }
        let describe = |(low, high, pes): (u64, u64, CpuSet)| {
            let shown = if low == high { words(low) } else { format!("{} to {}", words(low), words(high)) };
            (pes, format!("{source} {shown}"))
        };
        let classes = ranges.into_iter().map(describe).collect();
        Vote { source: source.to_owned(), classes, speeds: BTreeMap::new() }
    }

    /// Adds numbers that are in proportion to the speed, not only in its order.
    pub fn in_proportion(self, speeds: &BTreeMap<PeId, u64>) -> Vote {
        Vote { speeds: speeds.clone(), ..self }
    }

    /// Returns whether the source knows all of some PEs.
    pub fn covers(&self, pes: &CpuSet) -> bool {
        pes.iter().all(|pe| self.rank(pe).is_some())
    }

    fn rank(&self, pe: PeId) -> Option<usize> {
        self.classes.iter().position(|(pes, _)| pes.contains(pe))
    }
}

/// Returns the kinds (fastest first) and notes for the user. A source that does not know every PE has no
/// vote.
pub fn decide(pes: &CpuSet, votes: &[Vote]) -> (Vec<CpuKind>, Vec<String>) {
    let mut notes = Vec::new();
    let (votes, partial): (Vec<&Vote>, Vec<&Vote>) = votes.iter().partition(|vote| vote.covers(pes));
    for vote in partial.iter().filter(|vote| !vote.classes.is_empty()) {
        notes.push(format!("{} is known for some PEs only and has no vote on kinds", vote.source));
    }
    if votes.is_empty() {
        return (Vec::new(), notes);
    }
    let mut groups: BTreeMap<Vec<usize>, CpuSet> = BTreeMap::new();
    for pe in pes.iter() {
        let ranks = votes.iter().filter_map(|vote| vote.rank(pe)).collect();
        groups.entry(ranks).or_default().insert(pe);
    }
    if let Some(note) = contradiction(&votes, &groups) {
        notes.push(note);
        let evidence = votes.iter().flat_map(|vote| &vote.classes);
        let evidence = evidence.map(|(pes, words)| format!("{words} on PEs {pes}")).collect();
        let unknown = CpuKind { name: "unknown".to_owned(), pes: pes.clone(), evidence, speed: None };
        return (vec![unknown], notes);
    }
    // The groups form a chain, and in a chain the order of the map is the order of speed.
    let groups: Vec<(Vec<usize>, CpuSet)> = groups.into_iter().rev().collect();
    let count = groups.len();
    let mut speeds = speeds(&votes, &groups).into_iter();
    let kinds = groups.into_iter().enumerate().map(|(index, (ranks, pes))| CpuKind {
        name: name(index, count),
        pes,
        evidence: votes.iter().zip(&ranks).map(|(vote, &rank)| vote.classes[rank].1.clone()).collect(),
        speed: speeds.next(),
    });
    (kinds.collect(), notes)
}

/// Returns the speed of each of these groups, fastest first, by the first source that knows the speeds and
/// distinguishes all of them; empty if there is none.
fn speeds(votes: &[&Vote], groups: &[(Vec<usize>, CpuSet)]) -> Vec<ReportedSpeed> {
    let distinguishes =
        |index: usize| groups.windows(2).all(|pair| pair[0].0[index] > pair[1].0[index]) && groups.len() > 1;
    let by = votes.iter().enumerate().find(|(index, vote)| !vote.speeds.is_empty() && distinguishes(*index));
    let Some((_, vote)) = by else { return Vec::new() };
    let mean = |pes: &CpuSet| {
        let sum: f64 = pes.iter().filter_map(|pe| vote.speeds.get(&pe)).map(|&speed| speed as f64).sum();
        sum / pes.len() as f64
    };
    let fastest = mean(&groups[0].1);
    let speed = |(_, pes): &(Vec<usize>, CpuSet)| ReportedSpeed {
        permille: (1e3 * mean(pes) / fastest).round() as u32,
        source: vote.source.clone(),
    };
    groups.iter().map(speed).collect()
}

/// Describes two groups that two sources put in opposite order.
fn contradiction(votes: &[&Vote], groups: &BTreeMap<Vec<usize>, CpuSet>) -> Option<String> {
    let groups: Vec<_> = groups.iter().collect();
    for (index, (low, low_pes)) in groups.iter().enumerate() {
        for (high, high_pes) in &groups[index + 1..] {
            let order = |wanted| low.iter().zip(high.iter()).position(|(a, b)| a.cmp(b) == wanted);
            if let (Some(up), Some(down)) =
                (order(std::cmp::Ordering::Less), order(std::cmp::Ordering::Greater))
            {
                return Some(format!(
                    "kinds are unknown: {} says that PEs {high_pes} are faster than PEs {low_pes}, \
                     {} says that they are slower",
                    votes[up].source, votes[down].source
                ));
            }
        }
    }
    None
}

fn name(index: usize, count: usize) -> String {
    match index {
        _ if count == 1 => "all".to_owned(),
        0 => "fast".to_owned(),
        _ if index + 1 == count => "slow".to_owned(),
        _ => format!("mid{index}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `numbers[i]` belongs to PE `i`.
    fn vote(source: &str, numbers: &[u64]) -> Vote {
        let numbers = (0..).map(PeId).zip(numbers.iter().copied()).collect();
        Vote::from_numbers(source, &numbers, TOLERANCE_PERCENT, |n| n.to_string())
    }

    fn check(votes: &[Vote], pes: u32, expected: &str) {
        let (kinds, notes) = decide(&CpuSet::first_n(pes), votes);
        let kinds = kinds.iter().map(|kind| format!("{}={}", kind.name, kind.pes));
        let found = kinds.chain(notes).collect::<Vec<_>>().join(" ");
        assert_eq!(found, expected);
    }

    #[test]
    fn sources_that_agree_make_kinds() {
        check(&[], 4, "");
        check(&[vote("f", &[5, 5, 5, 5])], 4, "all=0-3");
        check(&[vote("f", &[50, 50, 30, 30])], 4, "fast=0-1 slow=2-3");
        check(&[vote("f", &[50, 50, 30, 30]), vote("c", &[9, 9, 4, 4])], 4, "fast=0-1 slow=2-3");
        check(&[vote("f", &[10, 20, 30, 40])], 4, "fast=3 mid1=2 mid2=1 slow=0");
    }

    #[test]
    fn favoured_cores_are_no_kind_of_their_own() {
        check(&[vote("f", &[5000, 5200, 5000, 5200])], 4, "all=0-3");
        check(&[vote("f", &[5000, 5200, 3900, 3900])], 4, "fast=0-1 slow=2-3");
    }

    #[test]
    fn a_finer_source_refines_a_coarser_one() {
        let core_type = vote("type", &[1, 1, 2, 2]);
        let capacity = vote("capacity", &[300, 300, 800, 1024]);
        check(&[core_type, capacity], 4, "fast=3 mid1=2 slow=0-1");
    }

    #[test]
    fn speeds_are_those_of_a_source_that_tells_all_kinds_apart() {
        let speeds = |votes: &[Vote]| {
            let (kinds, _) = decide(&CpuSet::first_n(4), votes);
            let speeds = kinds.into_iter().map(|kind| kind.speed);
            speeds
                .map(|speed| speed.map_or("?".to_owned(), |s| format!("{} {}", s.permille, s.source)))
                .collect::<Vec<_>>()
        };
        let numbers = |numbers: &[u64]| (0..).map(PeId).zip(numbers.iter().copied()).collect();
        let vote = |source: &str, of: &[u64]| vote(source, of).in_proportion(&numbers(of));
        let core_type = self::vote("type", &[2, 2, 1, 1]);
        let frequency = vote("frequency", &[5000, 5200, 3900, 3900]);
        assert_eq!(speeds(&[core_type.clone(), frequency.clone()]), ["1000 frequency", "765 frequency"]);
        let capacity = vote("capacity", &[1024, 1024, 512, 512]);
        assert_eq!(speeds(&[capacity, frequency.clone()]), ["1000 capacity", "500 capacity"]);
        let equal = vote("capacity", &[1024; 4]);
        assert_eq!(speeds(&[equal.clone(), frequency]), ["1000 frequency", "765 frequency"]);
        assert_eq!(speeds(&[core_type.clone(), equal]), ["?", "?"], "no source says by how much");
        assert_eq!(speeds(&[core_type]), ["?", "?"]);
    }

    #[test]
    fn opposite_orders_are_unknown_and_say_why() {
        let votes = [vote("frequency", &[50, 50, 30, 30]), vote("capacity", &[4, 4, 9, 9])];
        check(
            &votes,
            4,
            "unknown=0-3 kinds are unknown: frequency says that PEs 0-1 are faster than PEs 2-3, \
             capacity says that they are slower",
        );
    }

    #[test]
    fn a_source_with_gaps_has_no_vote() {
        let votes = [vote("frequency", &[50, 30]), vote("capacity", &[9, 9, 4, 4])];
        check(&votes, 4, "fast=0-1 slow=2-3 frequency is known for some PEs only and has no vote on kinds");
    }
}
