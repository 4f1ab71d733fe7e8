//! The preset of a real machine against figures published of it that were not used as parameters; the table
//! is in `studies/power/README.md`. `cargo test -p corewise-sim --test analytic power_published --
//! --nocapture` prints it.

use corewise_core::time::Time;
use corewise_sim::scenario::{Scenario, Variant};

/// The clock of the A15 in GHz, and what sbc-bench measured at it: MIPS of 7-Zip and watts at the wall on the
/// A15 alone, then watts on all cores (the A7 stay at 1.4 GHz where the A15 go beyond).
const PUBLISHED: [(f64, f64, f64, f64); 16] = [
    (0.5, 1776.0, 5.125, 5.510),
    (0.6, 2101.0, 5.390, 5.715),
    (0.7, 2392.0, 5.595, 5.825),
    (0.8, 2699.0, 5.795, 6.140),
    (0.9, 2973.0, 6.115, 6.345),
    (1.0, 3246.0, 6.415, 6.755),
    (1.1, 3518.0, 6.740, 7.230),
    (1.2, 3770.0, 7.060, 7.620),
    (1.3, 4029.0, 7.440, 8.040),
    (1.4, 4248.0, 7.910, 8.495),
    (1.5, 4495.0, 8.280, 8.960),
    (1.6, 4713.0, 8.880, 9.575),
    (1.7, 4943.0, 9.545, 10.265),
    (1.8, 5161.0, 10.255, 10.870),
    (1.9, 5363.0, 11.320, 12.125),
    (2.0, 5522.0, 12.640, 13.195),
];

/// Likewise for threads on the A7 alone: their number, the clock, and watts above those of the idle board.
const PUBLISHED_A7: [(usize, f64, f64); 3] = [(1, 0.5, 0.260), (4, 0.5, 0.515), (1, 1.3, 0.505)];

/// Returns the seconds of a run and its mean power in watts.
fn run(threads: usize, cpus: &str, ghz: f64) -> (f64, f64) {
    let text = include_str!("../../../../studies/power/odroid-hc2.toml");
    let mut scenario = Scenario::parse(text).expect("a scenario");
    (scenario.applications[0].threads, scenario.applications[0].cpus) = (threads, Some(cpus.to_owned()));
    for domain in &mut scenario.machine.power.as_mut().expect("power is described").domains {
        domain.max_ghz = Some(ghz);
    }
    // What takes longer than the first thread would mix powers.
    scenario.stop.time = std::time::Duration::from_secs_f64(if cpus == "4-7" { 60.0 } else { 0.5 });
    let default = Variant::policy("default".parse().expect("a policy"));
    let mut sim = scenario.simulation(&default, 1).expect("a simulation");
    sim.run_until(Time(u64::MAX));
    let end = sim.all_done().map_or(0.5, |at| at.as_secs_f64());
    (end, sim.energy().expect("power is described").total() / end)
}

fn error(simulated: f64, published: f64) -> f64 {
    simulated / published - 1.0
}

#[test]
fn an_exynos_5422_runs_and_takes_power_as_measured() {
    let (at_2_ghz, _) = run(4, "4-7", 2.0);
    let mut errors = Vec::new();
    println!("| A15 GHz | MIPS | | A15 W | | all W | |");
    for (ghz, mips, big_w, all_w) in PUBLISHED {
        let (seconds, big) = run(4, "4-7", ghz);
        let (_, all) = run(8, "0-7", ghz);
        let speed = 5522.0 * at_2_ghz / seconds;
        println!("| {ghz} | {mips} | {speed:.0} | {big_w:.2} | {big:.2} | {all_w:.2} | {all:.2} |");
        assert!(error(speed, mips).abs() < 0.03, "{ghz} GHz: {speed} MIPS, {mips} were measured");
        // At 1.6 and 1.7 GHz the table of voltages has more than at 1.8 GHz.
        let most = if (1.6..1.75).contains(&ghz) { 0.22 } else { 0.14 };
        for (simulated, published) in [(big, big_w), (all, all_w)] {
            let found = error(simulated, published).abs();
            assert!(found < most, "{ghz} GHz: {simulated} W, {published} were measured");
            errors.push(found);
        }
    }
    for (threads, ghz, published) in PUBLISHED_A7 {
        let simulated = run(threads, "0-3", ghz).1 - 3.89;
        println!("| {threads} A7 at {ghz} GHz | {published:.3} W above idle | {simulated:.3} |");
        assert!(error(simulated, published).abs() < 0.2, "{simulated} W, {published} were measured");
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    println!("mean error of the powers: {:.1} %", 100.0 * mean);
    assert!(mean < 0.08, "{mean}");
}
