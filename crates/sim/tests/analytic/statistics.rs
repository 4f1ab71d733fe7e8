//! Comparisons whose outcome is known: equal variants, a planted difference, starts by chance.

use corewise_sim::comparison::{Comparison, VariantResult, compare};
use corewise_sim::scenario::Scenario;

/// Compares variants of programs of 0.2 s on two PEs at 1 GHz whose work varies by 5 % from run to run.
fn compared(seed: u64, runs: u32, machine: &str, variants: &str) -> Comparison {
    let program = |name: &str| {
        format!(
            "{{ name = '{name}', variation = 0.05, \
             steps = [{{ each = {{ mcycles = 200, demand = 'int' }} }}] }}"
        )
    };
    let applications = ["a", "b", "c"].map(program).join(", ");
    let text = format!(
        "name = 's'\nseed = {seed}\nruns = {runs}\ndemand.int = {{}}\napplication = [{applications}]\n\
         variant = [{variants}]\n[machine]\nname = 'm'\nghz = 1.0\n{machine}\n"
    );
    compare(&Scenario::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}")), None)
        .expect("a comparison")
}

fn pinned(name: &str, [a, b, c]: [&str; 3]) -> String {
    format!("{{ name = '{name}', policy = 'default', pin = {{ a = ['{a}'], b = ['{b}'], c = ['{c}'] }} }}")
}

/// The ratio of the second of two variants to the first in each seed.
fn ratios(first: &VariantResult, second: &VariantResult) -> Vec<f64> {
    let pairs = first.by_seed.speedup.iter().zip(&second.by_seed.speedup);
    pairs.map(|(first, second)| second / first).collect()
}

#[test]
fn equal_variants_do_not_differ_in_95_of_100_comparisons() {
    // One is the other's mirror image. They differ in chance only: each PE has a tick of its own.
    let variants = [pinned("one", ["0", "1", "0"]), pinned("mirrored", ["1", "0", "1"])].join(", ");
    let machine = "topology = 'core:2 pu:1'";
    let agrees = |trial: &u64| {
        let found = compared(1 + 6 * trial, 6, machine, &variants);
        let ratios = ratios(&found.variants[1], &found.variants[2]);
        assert!(ratios.iter().any(|ratio| *ratio != 1.0), "chance matters");
        let mean = corewise_sim::estimate::Estimate::mean_ratio(&ratios).expect("six seeds");
        mean.low <= Some(1.0) && Some(1.0) <= mean.high
    };
    let agree = (0..200).filter(agrees).count();
    println!("equal variants: no difference in {agree} of 200 comparisons, must be 188 or more");
    assert!(agree >= 188, "{agree} of 200");
}

#[test]
fn a_planted_gain_of_one_percent_is_found_with_six_seeds() {
    let variants = [pinned("slow", ["1", "1", "1"]), pinned("fast", ["0", "0", "0"])].join(", ");
    let machine = "topology = 'core:2 pu:1'\nspeeds = [{ pes = '1', speed = 0.99, reported = 1.0 }]";
    let found = compared(1, 6, machine, &variants);
    let gains = ratios(&found.variants[1], &found.variants[2]);
    let gain = corewise_sim::estimate::Estimate::mean_ratio(&gains).expect("six seeds");
    println!("planted 1.0101: {gain:?}");
    assert!(Some(1.0) < gain.low && gain.low < Some(1.0101), "{gain:?}");
    assert!(Some(1.0101) < gain.high && gain.high < Some(1.02), "{gain:?}");

    // Without pairs, the same runs: the intervals of both means overlap widely.
    let widths = [&found.variants[1], &found.variants[2]].map(|variant| {
        let seconds = variant.all_done_seconds.expect("all are done");
        seconds.half_width().expect("six seeds") / seconds.value
    });
    let unpaired = widths[0].hypot(widths[1]);
    let by_pair = gain.half_width().expect("six seeds");
    println!("half width: {unpaired:.4} unpaired, {by_pair:.4} by pairs");
    assert!(unpaired > 10.0 * by_pair, "{unpaired} against {by_pair}");
}

#[test]
fn decisions_do_not_change_the_chance_of_the_programs() {
    let machine = "topology = 'core:4 pu:1'";
    let free = compared(3, 4, machine, "{ name = 'spread', policy = 'spread' }");
    // With a PE for each, both take exactly as long in every seed, though one observes and decides.
    assert_eq!(ratios(&free.variants[0], &free.variants[1]), [1.0; 4]);
    let spread = free.variants[0].applications[0].spread.expect("four seeds");
    assert!(spread.value > 0.01, "work varies: {spread:?}");
}

#[test]
fn eight_seeds_start_a_thread_once_on_each_of_eight_pes() {
    let text = "name = 's'\nruns = 8\ndemand.int = {}\n\
        application = [{ name = 'a', steps = [{ each = { mcycles = 10, demand = 'int' } }] }]\n\
        variant = [{ name = 'best', policy = 'default', pin = { a = ['0'] } }]\n\
        [machine]\nname = 'm'\nghz = 1.0\ntopology = 'core:8 pu:1'\n\
        speeds = [{ pes = '0-1', speed = 1.0 }, { pes = '2-7', speed = 0.5 }]\n";
    for first in [1, 9, 17] {
        let mut scenario = Scenario::parse(text).expect("a scenario");
        scenario.seed = first;
        let found = compare(&scenario, None).expect("a comparison");
        let seconds = found.variants[0].all_done_seconds.expect("it is done");
        // Two of eight on a fast PE: (2 · 10 + 6 · 20) / 8 ms.
        assert!((seconds.value - 0.0175).abs() < 1e-4, "{seconds:?}");
    }
}
