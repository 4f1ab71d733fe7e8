//! Partitions elements by testing sets of them at once.
//!
//! Problem: an unknown partition of n elements. A test takes a set of elements; its answer says for each
//! member whether another member of its own group was in the set, but not which. Testing in pairs takes n²/2
//! tests for SMT siblings (groups of two under a flat level).
//!
//! Approach: divide and conquer. All members of a set are tested; a member without a partner in the set is
//! alone and finished. The rest is split, each half is partitioned, and the halves are merged using one
//! member of each group: tested together, each has at most one partner, on the other side. The k members of
//! the right side that have one are numbered, and one test for each of the ⌈log₂ k⌉ bits of that number
//! decodes all partners at once: all members of the left side are tested with those of the right side whose
//! number has the bit.
//!
//! Cost, in tested members: the sets at one depth of the recursion contain each element at most once, as do
//! their merges: 2 n log₂ n. Decoding k partners takes at most 1.5 k ⌈log₂ k⌉, and since each decoded partner
//! merges two groups, all decodings together take less than 1.5 n log₂ n. This bound makes no assumption
//! about sizes or order. Far fewer are needed if the order puts partners into different halves: two halves
//! without partners within take 2 n + 1.5 n/2 log₂ n/2.

use super::halt::Halt;
use crate::ids::PeId;

/// Returns for each PE of a set whether another PE of its group is in the set.
pub type Ask<'a> = dyn FnMut(&[PeId]) -> Result<Vec<bool>, Halt> + 'a;

/// Returns the groups that the answers show; [`Halt::Contradiction`] if no partition fits them.
pub fn partition(pes: &[PeId], ask: &mut Ask<'_>) -> Result<Vec<Vec<PeId>>, Halt> {
    if pes.len() < 2 {
        return Ok(pes.iter().map(|&pe| vec![pe]).collect());
    }
    let answers = ask(pes)?;
    let (with, without) = chosen(pes, &answers);
    let mut groups: Vec<Vec<PeId>> = without.into_iter().map(|pe| vec![pe]).collect();
    match with.len() {
        0 => {}
        1 => return Err(Halt::Contradiction),
        // Each has a partner among the others, so they are one group.
        2 | 3 => groups.push(with),
        count => {
            let (left, right) = with.split_at(count / 2);
            let (left, right) = (partition(left, ask)?, partition(right, ask)?);
            groups.extend(merge(left, right, ask)?);
        }
    }
    Ok(groups)
}

/// Merges the groups of two sides. Every member is known to have a partner on one of the sides.
fn merge(left: Vec<Vec<PeId>>, right: Vec<Vec<PeId>>, ask: &mut Ask<'_>) -> Result<Vec<Vec<PeId>>, Halt> {
    let firsts = |groups: &[Vec<PeId>]| -> Vec<PeId> { groups.iter().map(|group| group[0]).collect() };
    let (mut left_asked, mut right_asked) = (firsts(&left), firsts(&right));
    // A member that is single on its side has its partner on the other; others may have found theirs already.
    if left.iter().chain(&right).any(|group| group.len() > 1) {
        let both = [left_asked.as_slice(), &right_asked].concat();
        let answers = ask(&both)?;
        let (of_left, of_right) = answers.split_at(left_asked.len());
        left_asked = chosen(&left_asked, of_left).0;
        right_asked = chosen(&right_asked, of_right).0;
    }
    let partners = match_up(&left_asked, &right_asked, ask)?;
    let mut right: Vec<Option<Vec<PeId>>> = right.into_iter().map(Some).collect();
    let mut united = left;
    for (a, b) in partners {
        let position = right.iter().position(|group| group.as_ref().is_some_and(|group| group[0] == b));
        let taken = position.and_then(|position| right[position].take()).ok_or(Halt::Contradiction)?;
        let group = united.iter_mut().find(|group| group[0] == a).ok_or(Halt::Contradiction)?;
        group.extend(taken);
    }
    united.extend(right.into_iter().flatten());
    Ok(united)
}

/// Returns for each member of the left side its partner on the right; every member of both sides has exactly
/// one.
fn match_up(left: &[PeId], right: &[PeId], ask: &mut Ask<'_>) -> Result<Vec<(PeId, PeId)>, Halt> {
    if left.len() != right.len() {
        return Err(Halt::Contradiction);
    }
    let mut numbers = vec![0usize; left.len()];
    let bits = right.len().next_power_of_two().trailing_zeros();
    for bit in 0..bits {
        let with_bit = (0..right.len()).filter(|number| number >> bit & 1 == 1).map(|number| right[number]);
        let asked: Vec<PeId> = left.iter().copied().chain(with_bit).collect();
        let answers = ask(&asked)?;
        let (of_left, of_right) = answers.split_at(left.len());
        if of_right.contains(&false) {
            return Err(Halt::Contradiction);
        }
        for (number, &answer) in numbers.iter_mut().zip(of_left) {
            *number |= usize::from(answer) << bit;
        }
    }
    let pair = |(&a, &number): (&PeId, &usize)| right.get(number).map(|&b| (a, b));
    left.iter().zip(&numbers).map(pair).collect::<Option<Vec<_>>>().ok_or(Halt::Contradiction)
}

/// Splits the PEs by their answers: yes, then no.
fn chosen(pes: &[PeId], answers: &[bool]) -> (Vec<PeId>, Vec<PeId>) {
    let (yes, no): (Vec<_>, Vec<_>) = pes.iter().zip(answers).partition(|&(_, &answer)| answer);
    let pes_of = |list: Vec<(&PeId, &bool)>| list.into_iter().map(|(&pe, _)| pe).collect();
    (pes_of(yes), pes_of(no))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Partitions `count` PEs whose group is `group(pe)`; returns the numbers of tests and of tested members.
    fn check(count: u32, group: impl Fn(u32) -> u32) -> (usize, usize) {
        let (mut questions, mut members) = (0, 0);
        let mut ask = |pes: &[PeId]| {
            questions += 1;
            members += pes.len();
            let mates = |pe: &PeId| pes.iter().filter(|other| group(other.0) == group(pe.0)).count();
            Ok(pes.iter().map(|pe| mates(pe) > 1).collect())
        };
        let pes: Vec<PeId> = (0..count).map(PeId).collect();
        let mut found = partition(&pes, &mut ask).expect("a partition");
        let mut expected = std::collections::BTreeMap::<u32, Vec<PeId>>::new();
        pes.iter().for_each(|&pe| expected.entry(group(pe.0)).or_default().push(pe));
        found.iter_mut().for_each(|group| group.sort_unstable());
        found.sort_unstable();
        let mut expected: Vec<_> = expected.into_values().collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
        (questions, members)
    }

    #[test]
    fn every_partition_is_found_within_the_bound() {
        for count in [0, 1, 2, 3, 4, 5, 7, 16, 100, 256] {
            for size in [1, 2, 3, 4, 8, 64, 256] {
                let scrambled = |pe: u32| (pe * 97 % 257) / size;
                let found =
                    [check(count, |pe| pe / size), check(count, |pe| pe % size), check(count, scrambled)];
                let bound = 3.5 * f64::from(count) * f64::from(count.max(2)).log2().ceil();
                for (_, members) in found {
                    assert!(members as f64 <= bound, "{count} in groups of {size}: {members} asked");
                }
            }
        }
    }

    #[test]
    fn partners_in_different_halves_take_few_questions() {
        // All, two halves, seven bits.
        assert_eq!(check(256, |pe| pe % 128).0, 10);
        assert_eq!(check(256, |pe| pe).0, 1, "no PE has a partner");
    }

    #[test]
    fn answers_that_no_partition_gives_are_a_contradiction() {
        let pes: Vec<PeId> = (0..4).map(PeId).collect();
        let mut one = |pes: &[PeId]| Ok(pes.iter().map(|pe| pe.0 == 0).collect());
        assert!(matches!(partition(&pes, &mut one), Err(Halt::Contradiction)));
        let mut flips = true;
        let mut moving = |pes: &[PeId]| {
            flips = !flips;
            Ok(vec![pes.len() == 4 || flips; pes.len()])
        };
        assert!(matches!(partition(&pes, &mut moving), Err(Halt::Contradiction)));
    }
}
