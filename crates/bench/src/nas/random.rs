//! The random numbers of NPB: x' = a·x mod 2^46 with a = 5^13 (RNR-94-007, §2.3).
//!
//! NPB computes it in double precision by halves; 64-bit integers give the same numbers, because a product
//! modulo 2^64 is right modulo 2^46. The generator can jump to any place of its sequence, so threads make
//! their parts of one sequence independently.

const MULTIPLIER: u64 = 1_220_703_125;
const MASK: u64 = (1 << 46) - 1;

/// A place in NPB's sequence of random numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// `skipped` numbers after the start of the sequence of a seed.
    pub fn at(seed: u64, skipped: u64) -> Self {
        Self(seed.wrapping_mul(power(skipped)) & MASK)
    }

    /// The next number, within 0 to 1 exclusively. Exact: 46 bits fit into a double's 53.
    #[inline]
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER) & MASK;
        self.0 as f64 * (1.0 / (1u64 << 46) as f64)
    }
}

/// The multiplier to the power of `exponent`, by repeated squaring.
fn power(mut exponent: u64) -> u64 {
    let (mut result, mut square) = (1u64, MULTIPLIER);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(square) & MASK;
        }
        square = square.wrapping_mul(square) & MASK;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_lands_where_steps_lead() {
        let mut stepped = Random::at(271_828_183, 0);
        for step in 0..1000 {
            assert_eq!(stepped.0, Random::at(271_828_183, step).0, "after {step} steps");
            let number = stepped.next();
            assert!(0.0 < number && number < 1.0);
        }
    }
}
