//! The scheduler over longer times: shares that even out, queues at locks, which thread moves where when a PE
//! falls idle.

use crate::{all_done, check, hogs, run, scenario, seeds};
use corewise_sim::machine::SpeedSpec;

#[test]
fn shares_even_out_within_twenty_seconds() {
    for queue in ["cfs", "eevdf"] {
        for pes in [2, 4, 8] {
            let rest = format!("os.queue = '{queue}'\nstop.time = '20s'");
            let scenario =
                scenario(&format!("core:{pes} pu:1"), &hogs("a", pes + 1, 1_000_000, "int"), &rest);
            let fair_ns = 20e9 * f64::from(pes) / f64::from(pes + 1);
            for seed in 1..=2 {
                let sim = run(&scenario, seed);
                let shares: Vec<f64> =
                    sim.applications().map(|(_, _, cpu_ns, _)| cpu_ns as f64 / fair_ns).collect();
                check(&format!("{queue}, {} threads on {pes}", pes + 1), &shares, 0.9, 1.1);
            }
        }
    }
}

#[test]
fn a_thread_that_stays_alone_has_had_its_fair_share() {
    // Three share two PEs, each at 2/3, until two are done after 1.5 s; the third has 1 s left then.
    let apps = format!("{}, {}", hogs("short", 2, 1_000, "int"), hogs("long", 1, 2_000, "int"));
    for queue in ["cfs", "eevdf"] {
        let scenario = scenario("core:2 pu:1", &apps, &format!("os.queue = '{queue}'"));
        check(queue, &seeds(10, |seed| all_done(&scenario, seed)), 2.2, 2.75);
    }
}

#[test]
fn a_convoy_goes_at_the_pace_of_its_lock() {
    // Each holds the lock half of its time, so that it is always taken: four times 500 times 1 ms, and what
    // handing it over costs: up to 6 us with a wake-up, a switch, and the end of an idle state.
    let step = "{ each = { mcycles = 1, demand = 'int' } }";
    let steps = format!(
        "{{ repeat = {{ times = 500, steps = [{step}, \
         {{ critical = {{ lock = 'l', work = {{ mcycles = 1, demand = 'int' }} }} }}] }} }}"
    );
    for wait in ["'sleep'", "'spin'"] {
        let app = format!("{{ name = 'a', threads = 4, wait = {wait}, steps = [{steps}] }}");
        let scenario = scenario("core:4 pu:1", &app, "");
        check(wait, &seeds(3, |seed| all_done(&scenario, seed)), 2.0, 2.02);
    }
}

#[test]
fn woken_threads_prefer_idle_cores() {
    // Beside each other they would take 1.25 times as long: 250 ms more.
    let app = "{ name = 'a', copies = 2, steps = [{ repeat = { times = 1000, steps = [\
               { each = { mcycles = 1, demand = 'wide', imbalance = 0.5 } }, { sleep = '1ms' }] } }] }";
    let scenario = scenario("pack:1 l3:1 core:2 pu:2", app, "");
    check("two sleepers", &seeds(10, |seed| all_done(&scenario, seed)), 1.95, 2.06);
}

#[test]
fn a_misfit_moves_to_the_fast_pe() {
    let time = |scheduler: &str| {
        let os = format!("os.scheduler = '{scheduler}'");
        let mut scenario = scenario("core:2 pu:1", &hogs("a", 2, 4_000, "int"), &os);
        scenario.machine.speeds.push(SpeedSpec { pes: "1".into(), speed: 0.5, reported: None });
        seeds(10, |seed| all_done(&scenario, seed))
    };
    // One ends after 4 s on the fast PE; the other one has done 2 s of work, and does the rest there.
    check("capacity", &time("capacity"), 6.0, 6.1);
    // A system that takes PEs for equal leaves it where it is.
    check("fair", &time("fair"), 8.0, 8.01);
}

#[test]
fn a_heavy_thread_has_a_pe_for_itself() {
    let apps = format!(
        "{}, {{ name = 'heavy', nice = -20, steps = [{{ each = {{ mcycles = 1e6, demand = 'int' }} }}] }}",
        hogs("light", 4, 1_000_000, "int")
    );
    for queue in ["cfs", "eevdf"] {
        let rest = format!("os.queue = '{queue}'\nstop.time = '10s'");
        let scenario = scenario("core:2 pu:1", &apps, &rest);
        for seed in 1..=3 {
            let sim = run(&scenario, seed);
            let cpu: Vec<f64> = sim.applications().map(|(_, _, cpu_ns, _)| cpu_ns as f64 / 10e9).collect();
            check(&format!("{queue}: the heavy one"), &cpu[4..], 0.97, 1.0);
            check(&format!("{queue}: the others"), &cpu[..4], 0.2, 0.3);
        }
    }
}

#[test]
fn quotas_leave_what_others_want() {
    let app = |name: &str| {
        format!(
            "{{ name = '{name}', threads = 2, group = '{name}', \
             steps = [{{ each = {{ mcycles = 1e6, demand = 'int' }} }}] }}"
        )
    };
    let groups = "stop.time = '10s'\ngroup = { a = { quota = '25ms' }, b = {} }";
    let scenario = scenario("core:1 pu:1", &format!("{}, {}", app("a"), app("b")), groups);
    for seed in 1..=3 {
        let sim = run(&scenario, seed);
        let cpu: Vec<f64> = sim.applications().map(|(_, _, cpu_ns, _)| cpu_ns as f64 / 10e9).collect();
        check("a quarter", &cpu[..1], 0.245, 0.255);
        check("the rest", &cpu[1..], 0.745, 0.755);
    }
}

#[test]
fn threads_of_a_group_share_its_quota() {
    // The first slice of a period takes all of the quota: whose it is must change.
    for queue in ["cfs", "eevdf"] {
        let rest = format!("os.queue = '{queue}'\nstop.time = '10s'\ngroup.a = {{ quota = '5ms' }}");
        let app = |name: &str| {
            let steps = "steps = [{ each = { mcycles = 1e6, demand = 'int' } }]";
            format!("{{ name = '{name}', group = 'a', {steps} }}")
        };
        let scenario = scenario("core:1 pu:1", &format!("{}, {}", app("a"), app("b")), &rest);
        let sim = run(&scenario, 1);
        let cpu: Vec<f64> = sim.applications().map(|(_, _, cpu_ns, _)| cpu_ns as f64 / 10e9).collect();
        check(queue, &cpu, 0.015, 0.035);
    }
}

#[test]
fn classes_have_their_weights_and_a_batch_thread_interrupts_no_other() {
    // A thread of class idle weighs 3 of 1024.
    let hog = |name: &str, class: &str| {
        format!(
            "{{ name = '{name}', class = '{class}', \
             steps = [{{ each = {{ mcycles = 1e6, demand = 'int' }} }}] }}"
        )
    };
    let apps = format!("{}, {}", hog("idle", "idle"), hog("normal", "normal"));
    let sim = run(&scenario("core:1 pu:1", &apps, "stop.time = '100s'"), 1);
    let shares: Vec<f64> = sim.applications().map(|(_, _, ns, _)| ns as f64 / 100e9).collect();
    check("class idle", &shares[..1], 3.0 / 1027.0 - 0.001, 3.0 / 1027.0 + 0.001);
    // 100 wake-ups with 0.1 ms of work, between which a hog has its slice or is interrupted.
    let seconds = |class: &str| {
        let sleeper = format!(
            "{{ name = 's', class = '{class}', steps = [{{ repeat = {{ times = 100, steps = [\
             {{ each = {{ mcycles = 0.1, demand = 'int' }} }}, {{ sleep = '900us' }}] }} }}] }}"
        );
        let apps = format!("{sleeper}, {}", hog("h", "normal"));
        crate::first_done(&scenario("core:1 pu:1", &apps, "stop.time = '10s'"), 1)
    };
    check("a normal sleeper", &[seconds("normal")], 0.1, 0.13);
    // It waits for the next tick at which the hog's slice is over.
    check("a batch sleeper", &[seconds("batch")], 0.38, 0.42);
}
