//! Worlds by Latin hypercube: of as many equal parts of each parameter's range as there are worlds, each is
//! drawn once.
//!
//! A parameter's draws depend on the seed and on its name alone, so that experiments that share a parameter
//! have the same value of it in the world of the same number.

use super::parameter::{Draw, Parameter};
use crate::chance::mix;
use crate::random::Random;

/// Returns the draws of each parameter in each world: `[world][parameter]`.
pub fn draw(parameters: &[Parameter], worlds: usize, seed: u64) -> Vec<Vec<Draw>> {
    let positions: Vec<Vec<f64>> =
        parameters.iter().map(|parameter| positions(&parameter.name, worlds, seed)).collect();
    let world = |number: usize| {
        let draws = parameters.iter().zip(&positions);
        draws.map(|(parameter, positions)| parameter.at(positions[number])).collect()
    };
    (0..worlds).map(world).collect()
}

/// Returns positions in 0..1, one in each of `count` equal parts, in random order.
fn positions(name: &str, count: usize, seed: u64) -> Vec<f64> {
    let stream = name.bytes().fold(0, |hash, byte| mix(hash, byte.into()));
    let mut random = Random::new(seed, stream);
    let mut parts: Vec<usize> = (0..count).collect();
    random.shuffle(&mut parts);
    parts.into_iter().map(|part| (part as f64 + random.unit()) / count as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_range_is_drawn_once_and_parameters_do_not_go_together() {
        for count in [1, 7, 200] {
            let mut parts: Vec<usize> =
                positions("x", count, 3).iter().map(|position| (position * count as f64) as usize).collect();
            assert!(count < 3 || !parts.is_sorted(), "in random order: {parts:?}");
            parts.sort_unstable();
            assert_eq!(parts, (0..count).collect::<Vec<_>>());
        }
        let (x, y) = (positions("x", 200, 3), positions("y", 200, 3));
        let covariance: f64 = x.iter().zip(&y).map(|(x, y)| (x - 0.5) * (y - 0.5)).sum::<f64>() / 200.0;
        assert!(12.0 * covariance.abs() < 0.25, "{covariance}");
        assert_eq!(x, positions("x", 200, 3));
        assert_ne!(x, positions("x", 200, 4));
    }
}
