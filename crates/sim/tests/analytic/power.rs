//! Cases of clocks, idle states and energy with answers that arithmetic gives.

use corewise_core::time::Time;
use corewise_sim::scenario::{Scenario, Variant};
use corewise_sim::sim::Sim;
use corewise_sim::sim::power::Energy;

/// A machine whose switches and wake-ups are free, with a power that the case describes.
fn scenario(machine: &str, power: &str, applications: &str) -> Scenario {
    let text = format!(
        "name = 'analytic'\ndemand = {{ int = {{}}, mem = {{ l2_misses_per_100_cycles = 1.0 }} }}\n\
         application = [{applications}]\n[machine]\nname = 'm'\n{machine}\n\
         costs = {{ switch_us = 0, wake_us = 0, idle_exit_us = 0, migration_us = 0 }}\n\
         [machine.power]\n{power}"
    );
    Scenario::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn run(scenario: &Scenario, seed: u64) -> Sim {
    let default = Variant::policy("default".parse().expect("a policy"));
    let mut sim = scenario.simulation(&default, seed).expect("a simulation");
    sim.run_until(Time(u64::MAX));
    sim
}

/// Returns when the last application was done, in seconds, and the energy.
fn outcome(scenario: &Scenario) -> (f64, Energy) {
    let sim = run(scenario, 1);
    (sim.all_done().expect("it ends").as_secs_f64(), sim.energy().expect("power is described"))
}

fn near(what: &str, found: f64, known: f64) {
    println!("{what}: {found:.4}, known {known:.4}");
    assert!((found - known).abs() <= 1e-4 * known.abs().max(1e-3), "{what}: {found} is not {known}");
}

fn hog(name: &str, mcycles: u32) -> String {
    format!("{{ name = '{name}', steps = [{{ each = {{ mcycles = {mcycles}, demand = 'int' }} }}] }}")
}

/// One clock of 1 GHz at 1 V, at which a running core takes 2.5 W and an idle one 0.1 W.
const PLAIN: &str = "uncore = { active_w = 1.0, idle_w = 0.25 }\n\
    domain = [{ pes = '0-3', points = [{ ghz = 1.0, volt = 1.0 }], \
    dynamic_uw_per_mhz_v2 = 2000, static_w = 0.5, \
    idle = [{ power_w = 0.1, exit_us = 0 }] }]";

#[test]
fn one_busy_core_takes_its_power_for_its_time() {
    let apps = format!("{}, {{ name = 'waits', steps = [{{ sleep = '12s' }}] }}", hog("a", 10_000));
    let (seconds, energy) = outcome(&scenario("topology = 'pack:1 core:4 pu:1'", PLAIN, &apps));
    near("seconds", seconds, 12.0);
    near("the application", energy.applications[0], 25.0);
    near("one that only sleeps", energy.applications[1], 0.0);
    near("idle cores", energy.idle, 0.1 * (3.0 * 12.0 + 2.0));
    near("uncore", energy.uncore, 10.0 + 2.0 * 0.25);
}

#[test]
fn what_racing_to_idle_saves_depends_on_leakage() {
    // 5 s of work at 1 GHz and 1 V, or 10 s at 0.5 GHz and 0.8 V, within 10 s.
    let apps = format!("{}, {{ name = 'deadline', steps = [{{ sleep = '10s' }}] }}", hog("a", 5_000));
    let joules = |governor: &str, leakage: f64| {
        let power = format!(
            "governor = '{governor}'\ndomain = [{{ pes = '0', dynamic_uw_per_mhz_v2 = 2000, \
             points = [{{ ghz = 0.5, volt = 0.8 }}, {{ ghz = 1.0, volt = 1.0 }}], static_w = {leakage}, \
             idle = [{{ power_w = 0.1, exit_us = 0 }}] }}]"
        );
        outcome(&scenario("topology = 'core:1 pu:1'", &power, &apps)).1.total()
    };
    near("racing, little leakage", joules("performance", 0.2), 5.0 * 2.2 + 5.0 * 0.1);
    near("slow and steady, little leakage", joules("powersave", 0.2), 10.0 * (0.64 + 0.16));
    near("racing, much leakage", joules("performance", 2.0), 5.0 * 4.0 + 5.0 * 0.1);
    near("slow and steady, much leakage", joules("powersave", 2.0), 10.0 * (0.64 + 1.6));
}

/// The more cores are active, the slower: 2, 1.5, 1.25, 1 GHz.
fn turbo(transition_us: u32) -> String {
    format!(
        "domain = [{{ pes = '0-3', per = 'core', \
         points = [{{ ghz = 1.0, volt = 1.0 }}, {{ ghz = 2.0, volt = 1.2 }}], \
         turbo_ghz = [2.0, 1.5, 1.25, 1.0], dynamic_uw_per_mhz_v2 = 1000, transition_us = {transition_us} }}]"
    )
}

const TURBO_MACHINE: &str = "topology = 'pack:1 core:4 pu:1'\nghz = 2.0";

#[test]
fn few_active_cores_run_at_a_higher_clock() {
    let seconds = |apps: &[String]| outcome(&scenario(TURBO_MACHINE, &turbo(0), &apps.join(", ")));
    let (one, energy) = seconds(&[hog("a", 10_000)]);
    near("one thread", one, 5.0);
    near("its energy", energy.total(), 5.0 * 2.0 * 1.44);
    let (all, energy) = seconds(&["a", "b", "c", "d"].map(|name| hog(name, 10_000)));
    near("four threads", all, 10.0);
    near("their energy", energy.total(), 4.0 * 10.0);
    // Both at 1.5 GHz until the shorter one has ended, then one at 2 GHz.
    near("a short and a long one", seconds(&[hog("a", 10_000), hog("b", 5_000)]).0, 5.0 / 1.5 + 5.0 / 2.0);
}

#[test]
fn a_clock_changes_after_the_transition_time() {
    // The second thread starts after 1 s; the clock of 2 GHz falls to 1.5 GHz 0.1 s later.
    let apps = format!("{}, {}", hog("a", 10_000), hog("b", 50_000).replace("steps", "start = '1s', steps"));
    let sim = run(&scenario(TURBO_MACHINE, &turbo(100_000), &apps), 1);
    let (_, completions, ..) = sim.applications().next().expect("an application");
    near("the first thread", completions[0], 1.1 + (10.0 - 2.2) / 1.5);
}

#[test]
fn long_idle_times_reach_deep_states_and_cost_their_exit() {
    let power = "domain = [{ pes = '0', points = [{ ghz = 1.0, volt = 1.0 }], \
        dynamic_uw_per_mhz_v2 = 2000, idle = [\
        { power_w = 1.0, exit_us = 100 }, { power_w = 0.2, exit_us = 500, residency_us = 10000 }] }]";
    let case = |sleep: &str| {
        let app = format!(
            "{{ name = 'a', steps = [{{ repeat = {{ times = 100, steps = [\
             {{ each = {{ mcycles = 1, demand = 'int' }} }}, {{ sleep = '{sleep}' }}] }} }}] }}"
        );
        outcome(&scenario("topology = 'core:1 pu:1'", power, &app))
    };
    // The core is busy while it leaves its idle state, also at the start, and before the thread ends.
    for (sleep, idle_s, exit_s, idle_j) in
        [("5ms", 0.005, 1e-4, 0.005), ("100ms", 0.1, 5e-4, 0.01 + 0.09 * 0.2)]
    {
        let (seconds, energy) = case(sleep);
        near(sleep, seconds, 100.0 * (0.001 + idle_s) + 100.0 * exit_s + 1e-4);
        near("idle", energy.idle, 100.0 * idle_j);
        near("busy", energy.applications[0], 2.0 * (0.1 + 100.0 * exit_s + 1e-4));
    }
}

#[test]
fn energy_is_that_of_the_cores_times() {
    // 3 W while a core is active and 1 W while not, whatever runs at which clock: all follows from CPU times.
    let power = "governor = 'schedutil'\ndomain = [{ pes = '0-7', per = 'package', static_w = 3.0, \
        points = [{ ghz = 0.5, volt = 1.0 }, { ghz = 1.0, volt = 1.0 }], \
        dynamic_uw_per_mhz_v2 = 0, transition_us = 50, \
        idle = [{ power_w = 1.0, exit_us = 5 }, { power_w = 1.0, exit_us = 50, residency_us = 200 }] }]";
    let apps = format!(
        "{}, {{ name = 'team', threads = 5, wait = 'spin', steps = [{{ repeat = {{ times = 200, steps = [\
         {{ parallel = {{ mcycles = 10, demand = 'int', imbalance = 0.3 }} }}, \
         {{ sleep = '3ms' }}] }} }}] }}, \
         {{ name = 'many', copies = 3, threads = 4, steps = [{{ repeat = {{ times = 50, steps = [\
         {{ critical = {{ lock = 'l', work = {{ mcycles = 0.3, demand = 'mem' }} }} }}, \
         {{ sleep = '1ms' }}] }} }}] }}",
        hog("a", 1_000)
    );
    let sim = run(&scenario("topology = 'pack:2 l3:1 core:4 pu:1'", power, &apps), 3);
    let energy = sim.energy().expect("power is described");
    let seconds = sim.all_done().expect("it ends").as_secs_f64();
    let busy: Vec<f64> = sim.applications().map(|(_, _, cpu_ns, _)| 1e-9 * cpu_ns as f64).collect();
    for (joules, busy) in energy.applications.iter().zip(&busy) {
        near("an application", *joules, 3.0 * busy);
    }
    near("idle cores", energy.idle, 8.0 * seconds - busy.iter().sum::<f64>());
}

#[test]
fn schedutil_settles_where_the_load_is_four_fifths() {
    // 2 ms of work at the highest clock and 1 ms of sleep: 1.25 × the utilisation is the clock at half of it.
    let points: Vec<String> =
        (2..=20).map(|n| format!("{{ ghz = {}, volt = 1.0 }}", f64::from(n) / 20.0)).collect();
    let power = format!(
        "governor = 'schedutil'\ndomain = [{{ pes = '0', points = [{}], dynamic_uw_per_mhz_v2 = 1000 }}]",
        points.join(", ")
    );
    let app = "{ name = 'a', steps = [{ repeat = { times = 2000, steps = [\
        { each = { mcycles = 2, demand = 'int' } }, { sleep = '1ms' }] } }] }";
    let (seconds, energy) = outcome(&scenario("topology = 'core:1 pu:1'", &power, app));
    let clock = 4.0 / (seconds - 2.0);
    println!("mean clock {clock:.3}, known 0.5 (with the climb from the lowest clock a little less)");
    assert!((0.48..=0.56).contains(&clock), "{clock}");
    near("energy of the cycles", energy.total(), 4.0);
    // A thread that never sleeps reaches the highest clock.
    let (seconds, _) = outcome(&scenario("topology = 'core:1 pu:1'", &power, &hog("a", 10_000)));
    assert!((10.0..10.4).contains(&seconds), "{seconds}");
}

#[test]
fn spinning_takes_energy_and_sleeping_does_not() {
    let joules = |wait: &str| {
        let app = format!(
            "{{ name = 'a', threads = 4, wait = '{wait}', \
             steps = [{{ serial = {{ mcycles = 10000, demand = 'int' }} }}, \
             'barrier'] }}"
        );
        outcome(&scenario("topology = 'pack:1 core:4 pu:1'", PLAIN, &app)).1
    };
    let (spinning, sleeping) = (joules("spin"), joules("sleep"));
    near("spinning", spinning.applications[0], 4.0 * 25.0);
    near("sleeping", sleeping.applications[0], 25.0);
    near("the cores of sleepers", sleeping.idle, 3.0);
}

#[test]
fn a_second_thread_of_a_core_takes_what_it_adds() {
    let power = "domain = [{ pes = '0-1', points = [{ ghz = 1.0, volt = 1.0 }], \
        dynamic_uw_per_mhz_v2 = 2000, static_w = 1.0, further_pe = 0.25 }]";
    let machine = "topology = 'core:1 pu:2'\nunits = { issue_conflict = 0.0 }";
    let (seconds, energy) =
        outcome(&scenario(machine, power, &format!("{}, {}", hog("a", 10_000), hog("b", 5_000))));
    near("seconds", seconds, 10.0);
    near("the first", energy.applications[0], 5.0 * 1.75 + 5.0 * 3.0);
    near("the second", energy.applications[1], 5.0 * 1.75);
}

#[test]
fn memory_takes_energy_by_its_traffic() {
    // One miss of 64 bytes per 100 cycles.
    let power = "memory_w_per_gb_per_s = 0.5\n\
        domain = [{ pes = '0', points = [{ ghz = 1.0, volt = 1.0 }], dynamic_uw_per_mhz_v2 = 0 }]";
    let app = hog("a", 10_000).replace("'int'", "'mem'");
    let (seconds, energy) = outcome(&scenario("topology = 'core:1 pu:1'", power, &app));
    near("seconds", seconds, 10.0);
    near("joules", energy.total(), 0.5 * 0.64 * 10.0);
}

#[test]
fn without_a_description_no_energy_is_known() {
    let text = "name = 's'\nmachine = { name = 'm', topology = 'core:1 pu:1' }\ndemand.int = {}\n\
        application = [{ name = 'a', steps = [{ each = { mcycles = 1, demand = 'int' } }] }]";
    assert_eq!(run(&Scenario::parse(text).expect("a scenario"), 1).energy(), None);
}

#[test]
fn a_limit_of_power_slows_all_cores_that_share_it() {
    // 2.5 W at 1 GHz and 1 V, 0.36 + 0.4 V, that is 0.8 W at 0.5 GHz and 0.8 V: two of them within 3 W.
    let power = "domain = [{ pes = '0-3', limit_w = 3, \
        points = [{ ghz = 0.5, volt = 0.8 }, { ghz = 1.0, volt = 1.0 }], dynamic_uw_per_mhz_v2 = 2000, \
        static_w = 0.5 }]";
    let seconds = |apps: &str| outcome(&scenario("topology = 'pack:1 core:4 pu:1'", power, apps)).0;
    near("one core", seconds(&hog("a", 2000)), 2.0);
    // Both run for 4 s at half the clock, then the other one for 1 s at all of it.
    near("two cores", seconds(&format!("{}, {}", hog("a", 2000), hog("b", 3000))), 5.0);
}
