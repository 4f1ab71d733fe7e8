//! Weights and quotas: the shares that nice levels, groups, quotas and sessions give.

use crate::{all_done, check, run, scenario, seeds};

/// Threads of a process that compute for ever.
fn hogs(name: &str, threads: u32, more: &str) -> String {
    format!(
        "{{ name = '{name}', threads = {threads}, {more} \
         steps = [{{ each = {{ mcycles = 1e6, demand = 'int' }} }}] }}"
    )
}

/// Each application's share of all PEs after 20 s, run after run, under both queues.
fn check_shares(what: &str, pes: u32, apps: &str, groups: &str, known: &[f64], tolerance: f64) {
    for queue in ["cfs", "eevdf"] {
        let rest = format!("os.queue = '{queue}'\nstop.time = '20s'\n{groups}");
        let scenario = scenario(&format!("core:{pes} pu:1"), apps, &rest);
        for seed in 1..=3 {
            let sim = run(&scenario, seed);
            let of_all = |cpu_ns: u64| cpu_ns as f64 / 20e9 / f64::from(pes);
            let found: Vec<f64> = sim.applications().map(|(_, _, cpu_ns, _)| of_all(cpu_ns)).collect();
            let far: Vec<f64> = found.iter().zip(known).map(|(found, known)| found - known).collect();
            check(&format!("{what}, {queue}, {pes} PEs: {found:.3?}"), &far, -tolerance, tolerance);
        }
    }
}

#[test]
fn nice_levels_are_weights() {
    let apps = format!("{}, {}", hogs("a", 1, "nice = 0,"), hogs("b", 1, "nice = 5,"));
    // 1024 and 335.
    check_shares("nice 0 and 5", 1, &apps, "", &[0.7535, 0.2465], 0.015);
    let apps = format!("{}, {}", hogs("a", 2, ""), hogs("b", 2, "nice = 19,"));
    check_shares("nice 0 and 19", 2, &apps, "", &[0.9856, 0.0144], 0.015);
}

#[test]
fn groups_have_equal_shares_whatever_their_size() {
    let apps = format!("{}, {}", hogs("a", 1, "group = 'x',"), hogs("b", 9, "group = 'y',"));
    let groups = "group = { x = {}, y = {} }";
    check_shares("1 and 9 threads", 1, &apps, groups, &[0.5, 0.5], 0.015);
    check_shares("1 and 9 threads", 2, &apps, groups, &[0.5, 0.5], 0.05);
}

#[test]
fn groups_have_shares_by_weight() {
    let apps = format!("{}, {}", hogs("a", 4, "group = 'x',"), hogs("b", 4, "group = 'y',"));
    let groups = "group = { x = {}, y = { weight = 300 } }";
    check_shares("weights 100 and 300", 1, &apps, groups, &[0.25, 0.75], 0.015);
    check_shares("weights 100 and 300", 4, &apps, groups, &[0.25, 0.75], 0.05);
    let nested = "group = { p = { weight = 100 }, x = { parent = 'p' }, y = { weight = 300 } }";
    check_shares("a group in another", 1, &apps, nested, &[0.25, 0.75], 0.015);
}

#[test]
fn a_session_of_nine_threads_has_no_more_than_one_of_one() {
    let apps = format!("{}, {}", hogs("a", 1, ""), hogs("b", 9, ""));
    check_shares("sessions", 1, &apps, "os.autogroup = true", &[0.5, 0.5], 0.015);
    check_shares("no sessions", 1, &apps, "os.autogroup = false", &[0.1, 0.9], 0.015);
}

#[test]
fn half_a_pe_takes_twice_as_long() {
    let app = |threads: u32, work: u32| {
        format!(
            "{{ name = 'a', threads = {threads}, group = 'half', \
             steps = [{{ each = {{ mcycles = {work}, demand = 'int' }} }}] }}"
        )
    };
    let groups = "group.half = { quota = '50ms' }";
    for (pes, threads) in [(1, 1), (2, 1), (2, 2), (4, 8)] {
        let scenario = scenario(&format!("core:{pes} pu:1"), &app(threads, 5_000 / threads), groups);
        let what = format!("{threads} threads on {pes} PEs");
        // The last period ends with its work.
        check(&what, &seeds(3, |seed| all_done(&scenario, seed)), 9.9, 10.05);
    }
    let groups = "group = { all = { quota = '150ms' }, half = { parent = 'all', quota = '50ms' } }";
    let scenario = scenario("core:2 pu:1", &app(2, 2_500), groups);
    check("a quota in a quota", &seeds(3, |seed| all_done(&scenario, seed)), 9.9, 10.05);
}

#[test]
fn threads_share_a_quota_that_is_hardly_more_than_a_slice() {
    let apps: Vec<String> = (0..12).map(|app| hogs(&format!("a{app}"), 1, "group = 'few',")).collect();
    let groups = "os.slice = '4ms'\ngroup.few = { quota = '5ms', period = '20ms' }";
    check_shares("12 in 5 of 20 ms", 1, &apps.join(", "), groups, &[0.25 / 12.0; 12], 0.001);
}
