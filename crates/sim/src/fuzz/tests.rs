//! The rules hold over the first seeds; the command `corewise sim --fuzz` tries more.

use super::*;

#[test]
fn the_rules_hold_for_the_first_seeds() {
    for seed in 0..60 {
        let policy = policy_of(seed, &policies());
        run(seed, policy).unwrap_or_else(|error| panic!("seed {seed}, policy {policy}: {error}"));
    }
}

#[test]
fn a_seed_fixes_scenario_and_run() {
    assert_eq!(scenario(5), scenario(5));
    assert_ne!(scenario(5), scenario(6));
    assert_eq!(run(5, "spread"), run(5, "spread"));
}
