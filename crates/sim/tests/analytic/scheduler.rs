//! The operating system's own scheduler: what a run takes where nobody places anything.

use crate::{all_done, check, first_done, hogs, run, scenario, seeds, team};
use corewise_core::time::Time;
use corewise_sim::scenario::Variant;

const FOUR_MODULES: &str = "pack:1 l3:1(size=8MB) l2:4(size=2MB) module:1 core:2 pu:1";

#[test]
fn two_threads_never_share_a_module_while_others_are_free() {
    for copies in [2, 4] {
        let scenario = scenario(FOUR_MODULES, &hogs("fp", copies, 10_000, "fp"), "");
        check(&format!("{copies} threads"), &seeds(60, |seed| all_done(&scenario, seed)), 10.0, 10.01);
    }
}

#[test]
fn two_threads_of_one_process_never_share_a_module_while_others_are_free() {
    let app = "{ name = 'fp', threads = 2, steps = [{ each = { mcycles = 10000, demand = 'fp' } }] }";
    let scenario = scenario(FOUR_MODULES, app, "");
    check("a process", &seeds(60, |seed| all_done(&scenario, seed)), 10.0, 10.01);
}

#[test]
fn a_policy_gains_nothing_where_the_system_already_spreads() {
    let scenario = scenario(FOUR_MODULES, &hogs("fp", 4, 10_000, "fp"), "");
    let gain = |seed| {
        let placed = Variant {
            pin: [("fp".to_owned(), ["0", "2", "4", "6"].map(str::to_owned).to_vec())].into(),
            ..Variant::policy("default".parse().expect("a policy"))
        };
        let mut best = scenario.simulation(&placed, seed).expect("a simulation");
        best.run_until(Time(u64::MAX));
        all_done(&scenario, seed) / best.all_done().expect("it ends").as_secs_f64() - 1.0
    };
    check("the gain", &seeds(60, gain), -0.001, 0.001);
}

#[test]
fn free_cores_come_before_a_busy_core_s_sibling() {
    let scenario = scenario("pack:1 l3:1 core:4 pu:2", &hogs("wide", 2, 10_000, "wide"), "");
    check("2 threads", &seeds(60, |seed| all_done(&scenario, seed)), 10.0, 10.01);
}

#[test]
fn a_surplus_thread_is_rotated() {
    for (queue, pes, least) in [("cfs", 4, 10.0), ("eevdf", 4, 10.0), ("cfs", 8, 9.0), ("eevdf", 8, 9.0)] {
        let os = format!("os = {{ queue = '{queue}' }}");
        let scenario =
            scenario(&format!("pack:1 l3:1 core:{pes} pu:1"), &hogs("a", pes + 1, 8_000, "int"), &os);
        // Which one is the surplus is chance, so that the last one ends a little late.
        check(&format!("{queue} on {pes}"), &seeds(10, |seed| all_done(&scenario, seed)), least, least + 0.9);
    }
}

#[test]
fn a_pinned_thread_costs_all_others_alike() {
    // The two free ones change places beside the pinned one: each has between 2/3 of a PE (all three have
    // the same) and 3/4.
    let apps = format!(
        "{}, {{ name = 'pinned', cpus = '0', steps = [{{ each = {{ mcycles = 1e6, demand = 'int' }} }}] }}",
        hogs("free", 2, 1_000_000, "int")
    );
    for queue in ["cfs", "eevdf"] {
        let rest = format!("os = {{ queue = '{queue}' }}\nstop = {{ time = '20s' }}");
        let scenario = scenario("core:2 pu:1", &apps, &rest);
        for seed in 1..=10 {
            let sim = run(&scenario, seed);
            let shares: Vec<f64> =
                sim.applications().map(|(_, _, cpu_ns, _)| cpu_ns as f64 / 20e9).take(2).collect();
            check(queue, &shares, 0.58, 0.78);
        }
    }
}

#[test]
fn a_sleeper_gets_its_pe_beside_hogs() {
    let sleeper = "{ name = 'sleeper', steps = [{ repeat = { times = 1000, steps = [\
        { each = { mcycles = 0.1, demand = 'int' } }, { sleep = '9900us' }] } }] }";
    for (queue, most) in [("cfs", 10.5), ("eevdf", 12.2)] {
        for pes in [1, 2, 4] {
            let apps = format!("{sleeper}, {}", hogs("hog", 2 * pes, 1_000_000, "int"));
            let rest = format!("os = {{ queue = '{queue}' }}\nstop = {{ time = '20s' }}");
            let scenario = scenario(&format!("core:{pes} pu:1"), &apps, &rest);
            let found = seeds(3, |seed| first_done(&scenario, seed));
            check(&format!("{queue} on {pes}"), &found, 10.0, most);
        }
    }
}

#[test]
fn handing_a_lock_over_costs_a_switch_wherever_the_waiter_is() {
    let steps = "steps = [{ repeat = { times = 10000, steps = [\
        { critical = { lock = 'l', work = { mcycles = 0.01, demand = 'int' } } }] } }]";
    let app = format!("{{ name = 'a', threads = 4, {steps} }}");
    for topology in ["core:4 pu:1", "core:2 pu:1", "core:1 pu:1"] {
        let mut scenario = scenario(topology, &app, "");
        scenario.machine.costs.switch_us = 5.0;
        check(topology, &seeds(2, |seed| all_done(&scenario, seed)), 0.59, 1.2);
    }
}

#[test]
fn sleeping_at_barriers_costs_wake_ups() {
    let scenario = scenario("core:2 pu:1", &team("a", 2, 20_000, "'sleep'"), "");
    check("20,000 barriers", &seeds(5, |seed| all_done(&scenario, seed)), 0.29, 1.4);
}

#[test]
fn spinning_teams_that_share_pes_disturb_each_other_by_chance() {
    let teams = format!("{}, {}", team("a", 2, 20_000, "'spin'"), team("b", 2, 20_000, "'spin'"));
    for queue in ["cfs", "eevdf"] {
        let rest = format!("os = {{ queue = '{queue}' }}\nstop = {{ time = '15s' }}");
        let scenario = scenario("core:2 pu:1", &teams, &rest);
        let mut found = seeds(30, |seed| all_done(&scenario, seed));
        found.sort_by(f64::total_cmp);
        check(&format!("{queue}: the mean of {found:?}"), &[found.iter().sum::<f64>() / 30.0], 1.0, 14.0);
        let between = found.iter().filter(|seconds| (0.6..14.0).contains(*seconds)).count();
        assert!(between >= 10, "{queue}: only {between} of 30 are neither gangs nor stuck: {found:?}");
    }
}

#[test]
fn blocking_soon_beats_spinning_beside_a_hog() {
    // Regions of 1 ms. A thread that blocks at once frees its PE for the other one, so that both run at half
    // speed or better. After 3 ms of spinning a thread is woken where its waker spins, as Linux does it, and
    // each waits for the other's 3 ms: that is no better than spinning.
    let region = "{ parallel = { mcycles = 2, demand = 'int' } }";
    for queue in ["cfs", "eevdf"] {
        let time = |wait: &str| {
            let steps = format!("steps = [{{ repeat = {{ times = 1000, steps = [{region}] }} }}]");
            let apps = format!(
                "{{ name = 'team', threads = 2, wait = {wait}, {steps} }}, {}",
                hogs("hog", 1, 1_000_000, "int")
            );
            let rest = format!("os = {{ queue = '{queue}' }}\nstop = {{ time = '20s' }}");
            let scenario = scenario("core:2 pu:1", &apps, &rest);
            seeds(4, |seed| first_done(&scenario, seed)).iter().sum::<f64>() / 4.0
        };
        let adaptive = |after: &str| time(&format!("{{ adaptive = {{ block_after = '{after}' }} }}"));
        let spinning = time("'spin'");
        check(&format!("{queue}: blocking at once"), &[time("'sleep'") / spinning], 0.4, 0.95);
        check(&format!("{queue}: after 100 us"), &[adaptive("100us") / spinning], 0.4, 0.95);
        check(&format!("{queue}: after 3 ms"), &[adaptive("3ms") / spinning], 0.4, 2.0);
    }
}
