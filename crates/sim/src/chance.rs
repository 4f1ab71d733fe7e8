//! Random draws of a run, each determined by the seed, its purpose, and what it concerns.
//!
//! Problem: variants of a scenario are compared seed by seed. That cancels chance out only if both meet the
//! same: the same variations of the programs, order of starts and phases of ticks. If all draws came from one
//! stream, one more decision in one variant would shift all later draws. Approach: common random numbers. A
//! draw is a function of the seed, its purpose and what it concerns (which thread of which run of which
//! application), not of what was drawn before. Where threads start is moreover stratified over consecutive
//! seeds: of the first 2ⁿ each takes another one of 2ⁿ equal parts of the range, in random order, so that few
//! seeds represent all. Sources: A. Law, "Simulation Modeling and Analysis", chapter 11; numbers by what they
//! are for instead of by order: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the
//! mixing function: G. Steele et al., "Fast splittable pseudorandom number generators", OOPSLA 2014;
//! stratification: B. Burley, "Practical hash-based Owen scrambling", JCGT 9(4), 2020. Limits: faults have
//! streams of their own, in the order in which they happen.

use crate::random::Random;

/// What a random number is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The order of applications that start at one instant.
    StartOrder,
    /// Where a thread goes that finds several PEs alike.
    Placement,
    /// How much of its slice a new thread has behind it.
    FirstSlice,
    /// When the ticks of a PE come.
    TickPhase,
    /// When the system balances next.
    BalancePause,
    /// Which PE of a domain balances.
    Balancer,
    /// How much work a run of an application is.
    Variation,
    /// How much of an unequally divided work a thread has.
    Imbalance,
    /// Which PE's time a decision takes.
    DecisionPlace,
    /// The errors of counters.
    CounterNoise,
    /// The errors of reported progress.
    ProgressNoise,
    /// How long a thread sleeps, or when its next arrival comes.
    Pause,
}

/// The random numbers of a seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chance {
    seed: u64,
}

impl Chance {
    /// Returns those of a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns a number that is uniform in 0..1, 1 excluded.
    pub fn unit(self, purpose: Purpose, of: &[u64]) -> f64 {
        (self.bits(purpose, of) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns one of the first `count` integers, uniformly; `count` is at least 1.
    pub fn below(self, purpose: Purpose, of: &[u64], count: usize) -> usize {
        below(self.unit(purpose, of), count)
    }

    /// Returns a stream of random numbers.
    pub fn stream(self, purpose: Purpose, of: &[u64]) -> Random {
        Random::new(self.seed, self.bits(purpose, of))
    }

    /// Returns a number that is uniform in 0..1, 1 excluded, and evenly spread over consecutive seeds.
    pub fn stratified(self, purpose: Purpose, of: &[u64]) -> f64 {
        // Most scenarios begin with seed 1.
        let place = self.seed.wrapping_sub(1);
        let key = of.iter().fold(mix(place >> 32, purpose as u64), |key, &value| mix(key, value));
        let shuffled = scrambled(place as u32, key as u32);
        f64::from(scrambled(shuffled.reverse_bits(), (key >> 32) as u32)) / f64::from(u32::MAX).next_up()
    }

    fn bits(self, purpose: Purpose, of: &[u64]) -> u64 {
        of.iter().fold(mix(self.seed, purpose as u64), |hash, &value| mix(hash, value))
    }
}

/// Returns one of the first `count` integers for a number in 0..1.
pub(crate) fn below(unit: f64, count: usize) -> usize {
    ((unit * count as f64) as usize).min(count - 1)
}

/// Mixes a number into a hash (SplitMix64).
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let mut bits = (hash ^ value.wrapping_mul(0xd134_2543_de82_ef95)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Randomly exchanges the halves of the range, the halves of each half, and so on (Owen's scrambling).
fn scrambled(number: u32, key: u32) -> u32 {
    let mut bits = number.reverse_bits().wrapping_add(key);
    for factor in [0x6c50_b47c_u32, 0xb82f_1e52, 0xc7af_e638, 0x8d22_f6e6] {
        bits ^= bits.wrapping_mul(factor);
    }
    bits.reverse_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_uniform_and_do_not_depend_on_each_other() {
        let mean = |of: fn(u64) -> f64| (0..4000).map(of).sum::<f64>() / 4e3;
        let seeds = |seed: u64| Chance::new(seed).unit(Purpose::Variation, &[3, 1]);
        let things = |thing: u64| Chance::new(7).unit(Purpose::Variation, &[3, thing]);
        for draws in [seeds, things] {
            assert!((mean(draws) - 0.5).abs() < 0.015, "{}", mean(draws));
        }
        let products = mean(|seed| {
            let draw = |thing| Chance::new(seed).unit(Purpose::Imbalance, &[thing]) - 0.5;
            draw(0) * draw(1)
        });
        assert!(products.abs() < 0.005, "correlation {products}");
    }

    #[test]
    fn consecutive_seeds_take_each_part_of_the_range_once() {
        for (runs, thing) in [(4, 0), (8, 1), (16, 2), (32, 3)] {
            let place =
                |seed| below(Chance::new(seed).stratified(Purpose::Placement, &[thing]), runs as usize);
            let mut places: Vec<usize> = (1..=runs).map(place).collect();
            assert!(!places.is_sorted(), "in random order: {places:?}");
            places.sort_unstable();
            assert_eq!(places, (0..runs as usize).collect::<Vec<_>>());
        }
        let both = (1..=1024).map(|seed| {
            let draw = |thing| Chance::new(seed).stratified(Purpose::Placement, &[thing]) - 0.5;
            draw(0) * draw(1)
        });
        let products = both.sum::<f64>() / 1024.0;
        assert!(products.abs() < 0.01, "two things are placed independently: {products}");
    }
}
