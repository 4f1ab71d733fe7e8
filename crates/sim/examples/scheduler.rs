//! What the simulated scheduler does, in the rows of `studies/scheduler/measure.c`.
//!
//! `cargo run --release -p corewise-sim --example scheduler`. Everything that it prints is simulated.

use corewise_core::time::Time;
use corewise_sim::scenario::{Scenario, Variant};
use corewise_sim::sim::Sim;

/// Seeds of each row.
const SEEDS: u64 = 20;

fn main() {
    for queue in ["eevdf", "cfs"] {
        println!("simulated, {queue}");
        for pes in [2, 4, 8] {
            for seconds in [1, 5, 20] {
                shares(queue, pes, seconds);
            }
        }
        for threads in [2, 3, 4] {
            pairs(queue, threads);
        }
        pinned(queue);
        for nice in [5, 10] {
            let apps = format!("{}, {}", hogs("a", 1, ""), hogs("b", 1, &format!("nice = {nice},")));
            share_of_first(&format!("weights 0 {nice}"), queue, &apps, "");
        }
        let apps = format!("{}, {}", hogs("a", 1, "group = 'a',"), hogs("b", 9, "group = 'b',"));
        share_of_first("groups 1 9", queue, &apps, "group = { a = {}, b = {} }");
        let apps = format!("{}, {}", hogs("a", 4, "group = 'a',"), hogs("b", 4, "group = 'b',"));
        share_of_first(
            "groups 4 4 of weights 100 and 300",
            queue,
            &apps,
            "group = { a = {}, b = { weight = 300 } }",
        );
        let apps = hogs("a", 2, "group = 'a',");
        share_of_first("groups 2 0 with a quota of a half", queue, &apps, "group.a.quota = '50ms'");
        let apps = format!("{}, {}", hogs("a", 1, ""), hogs("b", 9, ""));
        share_of_first("sessions 9", queue, &apps, "os.autogroup = true");
    }
}

/// Threads that compute for ever.
fn hogs(name: &str, threads: u32, more: &str) -> String {
    let steps = "steps = [{ each = { mcycles = 1e6, demand = 'int' } }]";
    format!("{{ name = '{name}', threads = {threads}, {more} {steps} }}")
}

fn run(queue: &str, topology: &str, apps: &str, more: &str, until: Time, seed: u64) -> Sim {
    let text = format!(
        "name = 'study'\nos.queue = '{queue}'\n{more}\napplication = [{apps}]\n\
         demand = {{ int = {{}}, wide = {{ ipc = 4.0 }} }}\n\
         [machine]\nname = 'm'\ntopology = '{topology}'\nghz = 1.0\n"
    );
    let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let variant = Variant::policy("default".parse().expect("a policy"));
    let mut sim = scenario.simulation(&variant, seed).expect("a simulation");
    sim.run_until(until);
    sim
}

/// Mean, least and most.
fn spread(values: &[f64]) -> String {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), &x| (a.min(x), b.max(x)));
    format!("{mean:.3} ({least:.3} to {most:.3})")
}

fn cpu_times(sim: &Sim) -> Vec<f64> {
    sim.applications().map(|(_, _, cpu_ns, _)| cpu_ns as f64 / 1e9).collect()
}

fn shares(queue: &str, pes: u32, seconds: u64) {
    let apps = (0..=pes).map(|number| hogs(&format!("a{number}"), 1, "")).collect::<Vec<_>>().join(", ");
    let (mut least, mut most) = (Vec::new(), Vec::new());
    for seed in 1..=SEEDS {
        let until = Time(seconds * 1_000_000_000);
        let times = cpu_times(&run(queue, &format!("core:{pes} pu:1"), &apps, "", until, seed));
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        least.push(times.iter().fold(f64::MAX, |a, &b| a.min(b)) / mean);
        most.push(times.iter().fold(0.0, |a: f64, &b| a.max(b)) / mean);
    }
    println!("shares {} {seconds}: least {}, most {}", pes + 1, spread(&least), spread(&most));
}

/// New threads on two sockets of two cores with two PEs each; a thread that shares its core takes longer.
fn pairs(queue: &str, threads: u32) {
    let app = |number| {
        format!("{{ name = 'a{number}', steps = [{{ each = {{ mcycles = 100, demand = 'wide' }} }}] }}")
    };
    let apps = (0..threads).map(app).collect::<Vec<_>>().join(", ");
    let is_sharing = |&seed: &u64| {
        let sim = run(queue, "pack:2 l3:1 core:2 pu:2", &apps, "", Time(1_000_000_000), seed);
        sim.applications().any(|(_, times, ..)| times.iter().any(|&seconds| seconds > 0.11))
    };
    println!("pairs {threads} 0.2: {} of {SEEDS}", (1..=SEEDS).filter(is_sharing).count());
}

fn pinned(queue: &str) {
    let apps = format!("{}, {}, {}", hogs("a", 1, ""), hogs("b", 1, ""), hogs("c", 1, "cpus = '0',"));
    let (mut least, mut most) = (Vec::new(), Vec::new());
    for seed in 1..=SEEDS {
        let times = cpu_times(&run(queue, "core:2 pu:1", &apps, "", Time(20_000_000_000), seed));
        least.push(times[0].min(times[1]) / 20.0);
        most.push(times[0].max(times[1]) / 20.0);
    }
    println!("pinned 2: least {}, most {}", spread(&least), spread(&most));
}

fn share_of_first(what: &str, queue: &str, apps: &str, more: &str) {
    let share = |seed| {
        let times = cpu_times(&run(queue, "core:1 pu:1", apps, more, Time(5_000_000_000), seed));
        times[0] / 5.0
    };
    println!("{what}: {}", spread(&(1..=SEEDS).map(share).collect::<Vec<_>>()));
}
