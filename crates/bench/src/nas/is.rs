//! IS, "integer sort": the ranks of random keys (RNR-94-007, §2.2).
//!
//! Keys are small integers, distributed like the sum of four uniform numbers. Each of ten rounds changes two
//! of them and ranks them all by counting: every member throws its keys into buckets of its own, then every
//! member takes a range of buckets from all members and counts its keys. There is no floating point; what
//! counts is access to memory at places that nothing predicts, and the exchange of buckets.

use super::problem::Problem;
use super::random::Random;
use super::team::Team;
use corewise_core::calibrate::NasRun;
use corewise_core::kernels::ProblemClass;
use std::iter::zip;
use std::ops::Range;
use std::time::Instant;

const ROUNDS: usize = 10;

/// A key whose rank is published: the rank of the key at `index` is `rank + step · (round − since)`.
struct Probe {
    index: usize,
    rank: i64,
    step: i64,
    since: i64,
}

/// IS at one size.
pub struct Is {
    log_keys: u32,
    log_max: u32,
    log_buckets: u32,
    probes: [Probe; 5],
}

impl Is {
    /// The problem of a class, if it is built in.
    pub fn of(class: ProblemClass) -> Option<Self> {
        let probe = |(index, rank, step, since)| Probe { index, rank, step, since };
        let (log_keys, log_max, log_buckets, probes) = match class {
            ProblemClass::S => (
                16,
                11,
                9,
                [
                    (48_427, 0, 1, 0),
                    (17_148, 18, 1, 0),
                    (23_627, 346, 1, 0),
                    (62_548, 64_917, -1, 0),
                    (4_431, 65_463, -1, 0),
                ],
            ),
            ProblemClass::W => (
                20,
                16,
                10,
                [
                    (357_773, 1_249, 1, 2),
                    (934_767, 11_698, 1, 2),
                    (875_723, 1_039_987, -1, 0),
                    (898_999, 1_043_896, -1, 0),
                    (404_505, 1_048_018, -1, 0),
                ],
            ),
            ProblemClass::A => (
                23,
                19,
                10,
                [
                    (2_112_377, 104, 1, 1),
                    (662_041, 17_523, 1, 1),
                    (5_336_171, 123_928, 1, 1),
                    (3_642_833, 8_288_932, -1, 1),
                    (4_250_760, 8_388_264, -1, 1),
                ],
            ),
            ProblemClass::B => (
                25,
                21,
                10,
                [
                    (41_869, 33_422_937, -1, 0),
                    (812_306, 10_244, 1, 0),
                    (5_102_857, 59_149, 1, 0),
                    (18_232_239, 33_135_281, -1, 0),
                    (26_860_214, 99, 1, 0),
                ],
            ),
            ProblemClass::C => return None,
        };
        Some(Self { log_keys, log_max, log_buckets, probes: probes.map(probe) })
    }

    fn keys(&self) -> usize {
        1 << self.log_keys
    }

    /// Keys are less than this.
    fn max(&self) -> usize {
        1 << self.log_max
    }

    /// The keys of the problem.
    fn make(&self, team: &Team, seed: u64) -> Vec<u32> {
        let mut keys = vec![0; self.keys()];
        let quarter = (self.max() / 4) as f64;
        let parts = zip(team.split(&mut keys, 1), team.shares(self.keys()));
        team.each(parts, |(keys, share)| {
            let mut random = Random::at(seed, 4 * share.start as u64);
            for key in keys {
                let sum = random.next() + random.next() + random.next() + random.next();
                *key = (quarter * sum) as u32;
            }
        });
        keys
    }

    /// Whether the published ranks came out. The rank of a key is the number of smaller ones.
    fn ranks_match(&self, probed: [u32; 5], ends: &[u32], round: usize) -> bool {
        self.probes.iter().zip(probed).all(|(probe, key)| {
            let rank = if key == 0 { 0 } else { ends[key as usize - 1] };
            i64::from(rank) == probe.rank + probe.step * (round as i64 - probe.since)
        })
    }
}

impl Problem for Is {
    fn seed(&self) -> u64 {
        314_159_265
    }

    fn bytes(&self, threads: u64) -> u64 {
        // Keys, buckets and, for the check at the end, the sorted keys; what is counted, twice in that check.
        (self.keys() * 12 + self.max() * 8) as u64 + threads * (4 << self.log_buckets)
    }

    fn operations(&self) -> f64 {
        (ROUNDS * self.keys()) as f64
    }

    fn run(&self, team: &Team, seed: u64) -> NasRun {
        let keys = self.make(team, seed);
        let mut ranking = Ranking {
            team,
            shift: self.log_max - self.log_buckets,
            buckets: 1 << self.log_buckets,
            sorted: vec![0; keys.len()],
            ends: vec![0; self.max()],
            keys,
        };
        let mut round = |round: usize| {
            ranking.keys[round] = round as u32;
            ranking.keys[round + ROUNDS] = (self.max() - round) as u32;
            let probed = self.probes.each_ref().map(|probe| ranking.keys[probe.index]);
            ranking.rank();
            self.ranks_match(probed, &ranking.ends, round)
        };
        round(1);
        let start = Instant::now();
        let mut verified = true;
        for number in 1..=ROUNDS {
            verified &= round(number);
        }
        let elapsed = start.elapsed();
        NasRun { elapsed, verified: verified && sorts(&ranking.keys, ranking.ends) }
    }
}

/// Keys and what ranks them.
struct Ranking<'a> {
    team: &'a Team<'a>,
    keys: Vec<u32>,
    /// The bits of a key within its bucket.
    shift: u32,
    buckets: usize,
    /// Each member's keys, by buckets.
    sorted: Vec<u32>,
    /// The number of keys up to and with each.
    ends: Vec<u32>,
}

impl Ranking<'_> {
    /// Finds the rank of every key.
    fn rank(&mut self) {
        let team = self.team;
        let shares = team.shares(self.keys.len());
        let (keys, shift, buckets) = (&self.keys, self.shift, self.buckets);
        let parts = zip(team.split(&mut self.sorted, 1), shares.iter().cloned());
        let starts: Vec<Vec<u32>> =
            team.each(parts, |(sorted, share)| into_buckets(&keys[share], sorted, shift, buckets));
        let before: Vec<u32> =
            (0..=buckets).map(|bucket| starts.iter().map(|starts| starts[bucket]).sum()).collect();
        let sorted = &self.sorted;
        let mut ends = &mut self.ends[..];
        let ranges = even_ranges(&before, shares.len());
        let cut = |range: Range<usize>| {
            let own = ends.split_off_mut(..range.len() << shift).expect("the buckets hold all keys");
            (range, own)
        };
        team.each(ranges.into_iter().map(cut), |(range, ends)| {
            ends.fill(0);
            for (share, starts) in shares.iter().zip(&starts) {
                let of_member = &sorted[share.clone()];
                let first = (range.start << shift) as u32;
                for key in &of_member[starts[range.start] as usize..starts[range.end] as usize] {
                    ends[(key - first) as usize] += 1;
                }
            }
            let mut sum = before[range.start];
            for end in ends {
                sum += *end;
                *end = sum;
            }
        });
    }
}

/// Sorts keys by buckets and returns where each bucket begins, and where the last ends.
fn into_buckets(keys: &[u32], sorted: &mut [u32], shift: u32, buckets: usize) -> Vec<u32> {
    let mut starts = vec![0; buckets + 1];
    for key in keys {
        starts[(key >> shift) as usize + 1] += 1;
    }
    for bucket in 0..buckets {
        starts[bucket + 1] += starts[bucket];
    }
    let mut next = starts.clone();
    for &key in keys {
        let place = &mut next[(key >> shift) as usize];
        sorted[*place as usize] = key;
        *place += 1;
    }
    starts
}

/// Cuts the buckets into ranges of about equally many keys, given the number of keys before each bucket.
fn even_ranges(before: &[u32], count: usize) -> Vec<Range<usize>> {
    let (buckets, keys) = (before.len() - 1, before[before.len() - 1] as usize);
    let bound = |index| match index {
        index if index == count => buckets,
        index => before.partition_point(|&before| (before as usize) < keys * index / count),
    };
    (0..count).map(|index| bound(index)..bound(index + 1)).collect()
}

/// Whether the ranks sort the keys: each goes to a place of its own, and they stand in order.
fn sorts(keys: &[u32], mut ends: Vec<u32>) -> bool {
    let mut sorted = vec![u32::MAX; keys.len()];
    for &key in keys {
        let end = &mut ends[key as usize];
        *end = end.wrapping_sub(1);
        match sorted.get_mut(*end as usize) {
            Some(place) if *place == u32::MAX => *place = key,
            _ => return false,
        }
    }
    sorted.is_sorted()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_do_not_sort_are_seen() {
        assert!(sorts(&[2, 0, 2, 1], vec![1, 2, 4]));
        assert!(!sorts(&[2, 0, 2, 1], vec![1, 1, 4]), "a place is used twice");
        assert!(!sorts(&[2, 0, 2, 1], vec![2, 1, 4]), "out of order");
        assert!(!sorts(&[2, 0, 2, 1], vec![0, 2, 4]), "beyond the end");
    }

    #[test]
    fn ranges_fill_the_buckets() {
        let before = [0, 1, 5, 90, 95, 100];
        assert_eq!(even_ranges(&before, 1), vec![0..5; 1]);
        assert_eq!(even_ranges(&before, 2), [0..3, 3..5]);
        assert_eq!(even_ranges(&before, 4), [0..3, 3..3, 3..3, 3..5]);
    }
}
