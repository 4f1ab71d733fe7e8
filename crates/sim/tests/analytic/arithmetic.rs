//! Small scenarios of many kinds whose answers can be worked out by hand.

use super::{all_done, check, first_done, run, seeds};
use corewise_sim::scenario::Scenario;

/// Threads that do nothing but work, in a process of their own.
fn work(name: &str, mcycles: &str, rest: &str) -> String {
    format!("{{ name = '{name}', steps = [{{ each = {{ mcycles = {mcycles}, demand = 'int' }} }}]{rest} }}")
}

/// Switches and wake-ups are free.
const FREE: &str = "machine.costs={ switch_us = 0, wake_us = 0, idle_exit_us = 0, migration_us = 0 }";

/// A scenario; work is in Mcycles at 1 GHz: ms. `settings` are further values, by line.
fn scenario(topology: &str, applications: &str, settings: &str) -> Scenario {
    let text = format!(
        "name = 'arithmetic'\napplication = [{applications}]\n\
         machine = {{ name = 'm', topology = '{topology}' }}\n\
         demand = {{ int = {{}}, fp = {{ fpu = 1.0 }}, wide = {{ ipc = 3.0 }}, \
         mem = {{ l2_misses_per_100_cycles = 1.0 }} }}\n"
    );
    let settings: Vec<String> = settings.lines().map(str::to_owned).collect();
    Scenario::parse_with(&text, &settings).unwrap_or_else(|error| panic!("{text}: {error}"))
}

struct Case {
    what: &'static str,
    topology: &'static str,
    apps: String,
    rest: &'static str,
    /// The last application's end, in seconds.
    known: (f64, f64),
}

fn case(
    what: &'static str,
    topology: &'static str,
    apps: String,
    rest: &'static str,
    known: (f64, f64),
) -> Case {
    Case { what, topology, apps, rest, known }
}

/// A team that works `mcycles` in a parallel region, `times` times.
fn region(threads: u32, mcycles: u32, times: u32) -> String {
    format!(
        "{{ name = 'a', threads = {threads}, steps = [{{ repeat = {{ times = {times}, steps = [\
         {{ parallel = {{ mcycles = {mcycles}, demand = 'int' }} }}] }} }}] }}"
    )
}

/// Four threads that work a million cycles under one lock and then as much `outside` it, `times` times.
fn locked(outside: &str, times: u32) -> String {
    format!(
        "{{ name = 'a', threads = 4, steps = [{{ repeat = {{ times = {times}, steps = [\
         {{ critical = {{ lock = 'l', work = {{ mcycles = 1, demand = 'int' }} }} }}{outside}] }} }}] }}"
    )
}

fn outside(mcycles: u32) -> String {
    format!(", {{ each = {{ mcycles = {mcycles}, demand = 'int' }} }}")
}

fn check_all(cases: &[Case]) {
    let mut wrong = Vec::new();
    for Case { what, topology, apps, rest, known: (least, most) } in cases {
        let scenario = scenario(topology, apps, rest);
        let found = seeds(3, |seed| all_done(&scenario, seed));
        let is_right = found.iter().all(|seconds| (least - 1e-12..=*most).contains(seconds));
        println!("{} {what}: {found:?}, known {least} to {most}", if is_right { "right" } else { "WRONG" });
        if !is_right {
            wrong.push(what);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn teams_locks_and_sleepers() {
    let phases = "{ name = 'a', threads = 4, steps = [{ parallel = { mcycles = 2000, demand = 'int' } }, \
                  { serial = { mcycles = 1000, demand = 'int' } }] }";
    let amp = "machine.speeds = [{ pes = '1-3', speed = 0.5 }]\nos.scheduler = 'capacity'\n";
    check_all(&[
        case(
            "Amdahl: 0.8 to 1 s on all, as the fast one helps, then 1 s on the fast one",
            "core:4 pu:1",
            phases.into(),
            amp,
            (1.8, 2.01),
        ),
        case("three threads of a region on two PEs", "core:2 pu:1", region(3, 300, 1), "", (0.15, 0.17)),
        case("nine threads of a region on four PEs", "core:4 pu:1", region(9, 900, 1), "", (0.225, 0.26)),
        case(
            "a thousand that sleep",
            "core:4 pu:1",
            "{ name = 'a', copies = 1000, steps = [{ repeat = { times = 100, \
            steps = [{ each = { mcycles = 0.01, demand = 'int' } }, { sleep = '10ms' }] } }] }"
                .into(),
            "",
            (1.0, 1.2),
        ),
        case("a lock that is all of the work", "core:4 pu:1", locked("", 250), FREE, (1.0, 1.005)),
        case(
            "a lock that is a quarter of the work",
            "core:4 pu:1",
            locked(&outside(3), 250),
            FREE,
            (1.0, 1.02),
        ),
        case(
            "a lock that is an eighth of the work",
            "core:4 pu:1",
            locked(&outside(7), 100),
            FREE,
            (0.8, 0.815),
        ),
    ]);
}

#[test]
fn pes_that_are_off_or_forbidden() {
    check_all(&[
        case(
            "six on two of four PEs",
            "core:4 pu:1",
            work("a", "1000", ", copies = 6, cpus = '0-1'"),
            "",
            (3.0, 3.02),
        ),
        case(
            "one of two PEs is off",
            "core:2 pu:1",
            work("a", "1000", ", copies = 2"),
            "machine.disabled = '1'\n",
            (2.0, 2.01),
        ),
        case(
            "half of the permitted PEs are off",
            "core:4 pu:1",
            work("a", "1000", ", copies = 2, cpus = '0-1'"),
            "machine.disabled = '1'\n",
            (2.0, 2.01),
        ),
        case(
            "all PEs but one unplugged at once",
            "core:4 pu:1",
            work("a", "1000", ", copies = 4"),
            "faults = { unplugs_per_s = 1e4, unplugged = '3600s' }\n",
            (4.0, 4.02),
        ),
    ]);
}

#[test]
fn large_machines() {
    check_all(&[
        case(
            "512 threads on 512 PEs",
            "numa:8 pack:1 l3:4 core:8 pu:2",
            work("a", "100", ", copies = 512"),
            "machine.units = { issue_conflict = 0.0 }\n",
            (0.1, 0.101),
        ),
        case(
            "513 threads on 512 PEs",
            "numa:8 pack:1 l3:4 core:8 pu:2",
            work("a", "100", ", copies = 513"),
            "machine.units = { issue_conflict = 0.0 }\n",
            (0.1002, 0.151),
        ),
        case(
            "one thread per socket",
            "numa:4 pack:1 l3:1 core:4 pu:1",
            work("a", "1000", ", copies = 4").replace("int", "mem"),
            "",
            (1.0, 1.005),
        ),
        case(
            "as many as PEs on four sockets",
            "numa:4 pack:1 l3:1 core:4 pu:1",
            work("a", "1000", ", copies = 16"),
            "",
            (1.0, 1.005),
        ),
        case(
            "a team over four sockets",
            "numa:4 pack:1 l3:1 core:4 pu:1",
            region(16, 16000, 1),
            "",
            (1.0, 1.005),
        ),
    ]);
}

#[test]
fn speeds_and_units() {
    check_all(&[
        case(
            "fast cores first, one thread each",
            "core:8 pu:2",
            work("a", "1000", ", copies = 4").replace("int", "wide"),
            "os.scheduler = 'capacity'\nmachine.speeds = [{ pes = '8-15', speed = 0.6 }]\n",
            (1.0, 1.005),
        ),
        case(
            "slow cores before siblings of fast ones, then 0.4 s of the rest on fast ones",
            "core:8 pu:2",
            work("a", "1000", ", copies = 8").replace("int", "wide"),
            "os.scheduler = 'capacity'\nmachine.speeds = [{ pes = '8-15', speed = 0.6 }]\n",
            (1.3, 1.5),
        ),
        case(
            "an FPU for two",
            "pack:1 l2:1 module:1 core:2 pu:1",
            work("a", "1000", ", copies = 2").replace("int", "fp"),
            "",
            (2.0, 2.01),
        ),
        case(
            "twice the speed",
            "core:2 pu:1",
            work("a", "1000", ""),
            "machine.speeds = [{ pes = '0-1', speed = 2.0 }]\n",
            (0.5, 0.501),
        ),
    ]);
}

#[test]
fn very_short_and_very_long() {
    check_all(&[
        case("one cycle", "core:2 pu:1", work("a", "1e-6", ""), FREE, (1e-9, 1.1e-9)),
        case(
            "a million seconds",
            "core:2 pu:1",
            work("a", "1e9", ""),
            "os.balance = '1000s'\nstop.time = '2000000s'\n",
            (1e6, 1e6 + 0.01),
        ),
        case("a start after 5 s", "core:2 pu:1", work("a", "1000", ", start = '5s'"), "", (6.0, 6.01)),
        case(
            "ticks of 10 s",
            "core:1 pu:1",
            work("a", "1000", ", copies = 3"),
            "os.tick = '10s'\n",
            (3.0, 3.01),
        ),
        case(
            "ticks of 10 us",
            "core:1 pu:1",
            work("a", "10", ", copies = 3"),
            "os = { tick = '10us', slice = '10us' }\nmachine.costs.switch_us = 0.0\n",
            (0.03, 0.0301),
        ),
        case(
            "loops within loops",
            "core:1 pu:1",
            "{ name = 'a', steps = [{ repeat = { times = 10, steps = [{ repeat = { times = 10, \
            steps = [{ each = { mcycles = 10, demand = 'int' } }] } }] } }] }"
                .into(),
            "",
            (1.0, 1.001),
        ),
    ]);
}

#[test]
fn threads_share_a_pe_alike() {
    let apps = format!("{}, {}", work("one", "1000", ""), work("three", "1e6", ", threads = 3"));
    for queue in ["cfs", "eevdf"] {
        let scenario = scenario("core:1 pu:1", &apps, &format!("os.queue = '{queue}'\nstop.time = '20s'"));
        check(queue, &seeds(3, |seed| first_done(&scenario, seed)), 3.95, 4.05);
    }
}

#[test]
fn a_program_that_ends_early_starts_again_until_the_last_has_ended() {
    let apps = format!("{}, {}", work("short", "1000", ", cpus = '0'"), work("long", "3000", ", cpus = '1'"));
    let sim = run(&scenario("core:2 pu:1", &apps, "stop.completions = 2"), 1);
    let counts: Vec<usize> = sim.applications().map(|(_, completions, ..)| completions.len()).collect();
    assert!(counts[0] == 5 || counts[0] == 6, "{counts:?}");
    assert_eq!(counts[1], 2);
}

#[test]
fn requests_come_whether_or_not_a_thread_is_ready() {
    let rounds = |times: u32, steps: &str, rest: &str| {
        let steps = format!("[{{ repeat = {{ times = {times}, steps = [{steps}] }} }}]");
        scenario("core:1 pu:1", &format!("{{ name = 'a', steps = {steps} }}"), rest)
    };
    let work = |ms: u32| format!("{{ each = {{ mcycles = {ms}, demand = 'int' }} }}");
    let every = "{ arrival = { every = '10ms' } }";
    // The last one comes at 100 ms.
    let found = all_done(&rounds(10, &format!("{every}, {}", work(3)), ""), 1);
    check("in time", &[found], 0.103, 0.1035);
    // From the first one on, at 10 ms, there is always one to do.
    let found = all_done(&rounds(10, &format!("{every}, {}", work(15)), ""), 1);
    check("late", &[found], 0.16, 0.1605);
    let random = "{ arrival = { every = '1ms', random = true } }";
    // The standard deviation of the sum of 1,000 is 3.2 %.
    let found = seeds(8, |seed| all_done(&rounds(1000, random, ""), seed));
    check("at random", &found, 0.88, 1.12);
    let found = seeds(8, |seed| all_done(&rounds(1000, "{ sleep_about = '1ms' }", ""), seed));
    check("sleeping at random", &found, 0.88, 1.12);
    assert!(found.windows(2).any(|pair| pair[0] != pair[1]), "each seed has its own chance");
}

#[test]
fn a_guided_loop_gives_each_its_share_of_what_is_left() {
    // 64 parts of 1 ms for a fast thread and one of half its speed. The first one takes 32 of them: 32 ms on
    // the fast PE, meanwhile the other one takes 16, and all is done after 43 ms; 64 ms on the slow PE.
    let steps = "[{ parallel = { mcycles = 64, demand = 'int', parts = 64, guided = true } }]";
    let app = format!("{{ name = 'a', threads = 2, steps = {steps} }}");
    let guided = |rest: &str| {
        let text = format!(
            "name = 'guided'\ndemand.int = {{}}\napplication = [{app}]\n\
             [machine]\nname = 'm'\ntopology = 'core:2 pu:1'\nghz = 1.0\n{rest}"
        );
        Scenario::parse(&text).expect("a scenario")
    };
    check("alike", &seeds(4, |seed| all_done(&guided(""), seed)), 0.032, 0.0325);
    let slow = |pe: u32| format!("speeds = [{{ pes = '{pe}', speed = 0.5 }}]");
    let found = [0, 1].map(|pe| all_done(&guided(&slow(pe)), 1));
    let (least, most) = (found[0].min(found[1]), found[0].max(found[1]));
    check("the fast one first", &[least], 0.043, 0.0435);
    check("the slow one first", &[most], 0.064, 0.0645);
}
