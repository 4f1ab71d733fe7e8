//! Caches, channels and memory nodes: cases with closed-form answers. Ranges are as wide as what is not
//! determined.

use corewise_core::time::Time;
use corewise_sim::scenario::{Scenario, Variant};
use corewise_sim::sim::Sim;
use std::collections::BTreeMap;

/// A scenario on a machine with a clock of 1 GHz: a Mcycle of work is a millisecond.
fn scenario(topology: &str, memory: &str, demand: &str, applications: &str, rest: &str) -> Scenario {
    let text = format!(
        "name = 'analytic'\n{rest}\napplication = [{applications}]\n[demand]\n{demand}\n\
         [machine]\nname = 'm'\ntopology = '{topology}'\nghz = 1.0\nmemory = {{ {memory} }}\n\
         costs = {{ switch_us = 0, wake_us = 0, idle_exit_us = 0, migration_us = 0 }}\n"
    );
    Scenario::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Applications of one thread and one second of work alone, by name, number, demand and PEs.
fn apps(list: &[(&str, u32, &str, &str)]) -> String {
    let app = |&(name, copies, demand, cpus): &(&str, u32, &str, &str)| {
        format!(
            "{{ name = '{name}', copies = {copies}, cpus = '{cpus}', \
             steps = [{{ each = {{ mcycles = 1000, demand = '{demand}' }} }}] }}"
        )
    };
    list.iter().map(app).collect::<Vec<_>>().join(", ")
}

/// Runs the default scheduler.
fn run(scenario: &Scenario) -> Sim {
    let default = Variant::policy("default".parse().expect("a policy"));
    let mut sim = scenario.simulation(&default, 1).expect("a simulation");
    sim.run_until(Time(u64::MAX));
    sim
}

/// The seconds of each application's first run.
fn seconds(scenario: &Scenario) -> BTreeMap<String, f64> {
    let sim = run(scenario);
    sim.applications().map(|(name, completions, ..)| (name.to_owned(), completions[0])).collect()
}

/// The work that each application does in a second of 10, relative to its work alone.
fn paces(scenario: &Scenario) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::<String, (f64, f64)>::new();
    for (name, completions, ..) in run(scenario).applications() {
        let sum = all.entry(name.to_owned()).or_default();
        *sum = (sum.0 + completions.iter().sum::<f64>(), sum.1 + completions.len() as f64);
    }
    all.into_iter().map(|(name, (seconds, count))| (name, count / seconds)).collect()
}

#[track_caller]
fn check(what: &str, found: f64, least: f64, most: f64) {
    println!("{what}: {found:.4}, must be {least} to {most}");
    assert!((least..=most).contains(&found), "{what}: {found} is not in {least}..{most}");
}

/// Everything keeps running while it is watched.
const TEN_SECONDS: &str = "stop = { completions = 1000, time = '10s' }";

/// Four threads that do nothing but wait for memory; each asks for `each` GB/s of a channel of 20.
fn delivered(each: f64) -> f64 {
    let misses = 100.0 * each / 64.0;
    let demand =
        format!("stream = {{ l2_misses_per_100_cycles = {misses}, l2_accesses_per_100_cycles = 0 }}");
    let memory = "memory_latency_ns = 200, bandwidth_gb_per_s = 20";
    let all = apps(&[("stream", 4, "stream", "all")]);
    let scenario = scenario("core:4 pu:1", memory, &demand, &all, TEN_SECONDS);
    4.0 * each * paces(&scenario)["stream"]
}

#[test]
fn a_channel_delivers_its_bandwidth_and_no_more() {
    check("asked for 20.5 of 20 GB/s", delivered(20.5 / 4.0), 17.5, 19.5);
    check("asked for 41 of 20 GB/s", delivered(41.0 / 4.0), 18.5, 20.0);
    check("asked for 100 of 20 GB/s", delivered(25.0), 19.5, 20.0);
}

#[test]
fn a_half_loaded_channel_costs_next_to_nothing() {
    // A line takes 3.2 ns of the channel, and at half load waits for 3.2 · 0.5 / (2 · 0.5) = 1.6 ns: of 200
    // ns that is 0.8 %, for a thread that does nothing but wait.
    let demand = "load = { l2_misses_per_100_cycles = 3.91, l2_accesses_per_100_cycles = 0 }\n\
                  probe = { l2_misses_per_100_cycles = 1.6, l2_accesses_per_100_cycles = 0 }";
    let memory = "memory_latency_ns = 200, bandwidth_gb_per_s = 20";
    let all = apps(&[("load", 4, "load", "1-4"), ("probe", 1, "probe", "0")]);
    let scenario = scenario("core:5 pu:1", memory, demand, &all, TEN_SECONDS);
    check("a thread that waits for memory", 1.0 / paces(&scenario)["probe"], 1.005, 1.012);
}

#[test]
fn sets_that_fit_one_at_a_time_do_not_fit_together() {
    let shape = "pack:1 l2:1(size=2MB) core:2 pu:1";
    let memory = "memory_latency_ns = 200";
    let slower = |demand: &str, copies| {
        let all = apps(&[("loop", copies, "loop", "all")]);
        seconds(&scenario(shape, memory, &format!("loop = {{ {demand} }}"), &all, ""))["loop"]
    };
    // Each has 1 of 1.5 MiB; a third of its 2 accesses in 100 cycles misses: 0.0067 · 200 · 0.3 = 0.4.
    let old = "working_set_mib = 1.5, l2_misses_per_100_cycles = 0.001";
    check("sets of 1.5 MiB alone", slower(old, 1), 1.0, 1.0001);
    check("two sets of 1.5 MiB in 2", slower(old, 2), 1.15, 1.9);
    let points = "l2_accesses_per_100_cycles = 2, miss_ratio = [[1.5, 0.0]]";
    check("nothing is missed alone", slower(points, 1), 1.0, 1.0001);
    check("but together", slower(points, 2), 1.399, 1.401);
    let cliff = "l2_accesses_per_100_cycles = 2, miss_ratio = [[1.25, 0.8], [1.5, 0.0]]";
    check("beyond a cliff at 1.25 MiB", slower(cliff, 2), 1.99, 2.05);
    let small = "l2_accesses_per_100_cycles = 2, miss_ratio = [[1.0, 0.0]]";
    check("what fits together", slower(small, 2), 1.0, 1.0001);
}

#[test]
fn memory_is_no_faster_for_a_fast_pe() {
    // 0.95 of the time is stall, which is the limit, so that a PE of half the speed adds 0.05.
    let demand = "stall = { l2_misses_per_100_cycles = 1.6, l2_accesses_per_100_cycles = 0 }\nint = {}";
    let memory = "memory_latency_ns = 200, bandwidth_gb_per_s = 1000";
    let all = apps(&[
        ("stall fast", 1, "stall", "0"),
        ("stall slow", 1, "stall", "1"),
        ("int fast", 1, "int", "2"),
        ("int slow", 1, "int", "3"),
    ]);
    let mut scenario = scenario("core:4 pu:1", memory, demand, &all, "");
    let slow =
        |pes: &str| corewise_sim::machine::SpeedSpec { pes: pes.to_owned(), speed: 0.5, reported: None };
    scenario.machine.speeds = vec![slow("1"), slow("3")];
    let found = seconds(&scenario);
    check("computation", found["int slow"] / found["int fast"], 1.999, 2.001);
    check("waiting for memory", found["stall slow"] / found["stall fast"], 1.045, 1.055);
}

/// Two nodes of two PEs.
const TWO_NODES: &str = "numa:2 pack:1 core:2 pu:1";

/// Streams that ask for 10 GB/s each and do nothing else.
const STREAM: &str = "stream = { l2_misses_per_100_cycles = 15.625, l2_accesses_per_100_cycles = 0 }";

#[test]
fn remote_traffic_loads_the_node_that_serves_it() {
    // Each asks for 10 GB/s of channels of 10, the first for half of it from the other one's node: alone on
    // its node the second shares a channel. With a wait of w of its latency 5/(1 + w/2) + 10/(1 + w) = 10:
    // 0.62.
    let memory = "memory_latency_ns = 200, bandwidth_gb_per_s = 10, remote_factor = 1.0";
    let other = |policy: &str| {
        let all = format!(
            "{{ name = 'a', cpus = '0', memory = {{ policy = '{policy}' }}, \
             steps = [{{ each = {{ mcycles = 1000, demand = 'stream' }} }}] }}, {}",
            apps(&[("b", 1, "stream", "2")])
        );
        1.0 / paces(&scenario(TWO_NODES, memory, STREAM, &all, TEN_SECONDS))["b"]
    };
    check("beside one on its own node", other("first-touch"), 1.0, 1.1);
    check("beside one that uses both nodes", other("interleave"), 1.5, 1.75);
}

#[test]
fn interleaving_halves_the_load_of_a_node_and_makes_half_of_it_remote() {
    let memory = "memory_latency_ns = 200, bandwidth_gb_per_s = 10, remote_factor = 1.4";
    let demand = "stream = { l2_misses_per_100_cycles = 12.5, l2_accesses_per_100_cycles = 0 }";
    let with = |policy: &str| {
        let all = format!(
            "{{ name = 's', copies = 2, cpus = '0-1', memory = {{ policy = '{policy}' }}, \
             steps = [{{ each = {{ mcycles = 1000, demand = 'stream' }} }}] }}"
        );
        seconds(&scenario(TWO_NODES, memory, demand, &all, ""))["s"]
    };
    // Two streams that ask for 16 GB/s of a channel of 10 take 1.6 times as long. Of two channels each has
    // 8, as alone; but half of the latency, 0.95 of the time alone, is 1.4 times as long.
    check("first touch", with("first-touch"), 1.6, 1.75);
    check("interleaved", with("interleave"), 1.12, 1.2);
}

#[test]
fn half_of_interleaved_memory_is_remote() {
    let memory = "memory_latency_ns = 200, bandwidth_gb_per_s = 1000, remote_factor = 1.5";
    let demand = "probe = { l2_misses_per_100_cycles = 1.5, l2_accesses_per_100_cycles = 0 }";
    let all = "{ name = 'p', cpus = '0', memory = { policy = 'interleave' }, \
               steps = [{ each = { mcycles = 1000, demand = 'probe' } }] }";
    // It waits for 0.015 · 200 · 0.3 = 0.9 of its time: a quarter longer, as half of it is half again as
    // long.
    check("interleaved", seconds(&scenario(TWO_NODES, memory, demand, all, ""))["p"], 1.224, 1.226);
}

#[test]
fn moving_pages_pays_back() {
    // Two threads on two nodes touch a region of 1 GiB, and then only one works with it. Half of it is
    // remote and takes twice as long: 0.9 of its time alone is waiting, so that 10 s take 14.5.
    let memory = "memory_latency_ns = 200, bandwidth_gb_per_s = 1000, remote_factor = 2.0";
    let demand = "data = { l2_misses_per_100_cycles = 1.5, l2_accesses_per_100_cycles = 0, \
                  working_set_mib = 1024, miss_exponent = 0.0 }";
    let time = |os: &str| {
        let all = "{ name = 'p', threads = 2, cpus = '0,2', memory = { private = 0.0, shared = 1.0 }, \
                   steps = [\
                   { parallel = { mcycles = 0.001, demand = 'data' } }, \
                   { serial = { mcycles = 10000, demand = 'data' } }] }";
        seconds(&scenario(TWO_NODES, memory, demand, all, os))["p"]
    };
    // Scans of 256 MiB bring the half home in two seconds, in which 1/1.45 and 1/1.225 of a second's work is
    // done, and cost 131,072 pages · 3 µs = 0.39 s.
    let scans = 2.0 - 1.0 / 1.45 - 1.0 / 1.225 + 131_072.0 * 3e-6;
    check("pages stay", time(""), 14.49, 14.51);
    check("pages follow", time("os = { numa_balancing = {} }"), 10.0 + scans - 0.05, 10.0 + scans + 0.1);
    check("at a high price", time("os = { numa_balancing = { page_us = 100 } }"), 23.0, 24.0);
}

#[test]
fn a_shared_region_lies_where_its_threads_start() {
    // Two threads on two nodes: half of the shared region is remote to each.
    let memory = "memory_latency_ns = 200, bandwidth_gb_per_s = 1000, remote_factor = 1.5";
    let demand = "probe = { l2_misses_per_100_cycles = 1.5, l2_accesses_per_100_cycles = 0 }";
    let time = |private: f64| {
        let all = format!(
            "{{ name = 'p', threads = 2, cpus = '0,2', memory = {{ private = {private:?}, shared = {:?} }}, \
             steps = [{{ each = {{ mcycles = 1000, demand = 'probe' }} }}] }}",
            1.0 - private
        );
        seconds(&scenario(TWO_NODES, memory, demand, &all, ""))["p"]
    };
    check("all private", time(1.0), 0.9999, 1.0001);
    check("all shared", time(0.0), 1.224, 1.226);
    check("half shared", time(0.5), 1.112, 1.113);
}

/// Threads on the PEs of one core.
fn core_of(pes: u32, units: &str, demand: &str) -> f64 {
    let all = apps(&[("t", pes, "t", "all")]);
    let mut text = scenario(&format!("core:1 pu:{pes}"), "", &format!("t = {{ {demand} }}"), &all, "");
    text.machine.units = toml::from_str(units).expect("units");
    seconds(&text)["t"]
}

#[test]
fn issue_slots_are_conserved_for_any_number_of_threads() {
    // 4 threads of 3 of 4 slots: at least 3 times as long, and no more than in turn.
    check("4 threads of IPC 3", core_of(4, "", "ipc = 3.0"), 3.0, 3.2);
    for (threads, ipc) in [(2, 1.0), (2, 4.0), (3, 2.0), (4, 1.0), (8, 0.5), (8, 4.0)] {
        let slower = core_of(threads, "", &format!("ipc = {ipc:?}"));
        let used = f64::from(threads) * ipc / slower;
        check(&format!("{threads} threads of IPC {ipc}: slots used"), used, 0.0, 4.0 + 1e-3);
        check("how long it takes", slower, 1.0, f64::from(threads) + 1e-3);
    }
}

#[test]
fn a_conflict_may_cost_more_than_the_unit() {
    // κ = 1.5: 2.5 times as long where both want the unit all the time.
    check("issue slots", core_of(2, "issue_conflict = 1.5", "ipc = 4.0"), 2.499, 2.501);
    check("FPU", core_of(2, "fpu_conflict = 1.5\nissue_conflict = 0.0", "fpu = 1.0"), 2.499, 2.501);
    check(
        "half intensity",
        core_of(2, "fpu_conflict = 1.5\nissue_conflict = 0.0", "fpu = 1.0, fpu_intensity = 0.5"),
        1.374,
        1.376,
    );
}
