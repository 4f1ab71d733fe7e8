//! A thread that works and sleeps by turns beside hogs takes as long a round as on Linux: the cases that
//! `studies/scheduler/wakeups` measures, and prints beside what this simulates.

use crate::{check, run, scenario, seeds};

const CASES: &str = include_str!("../../../../studies/scheduler/wakeups.csv");

/// What a round may take longer or less than the longest and the shortest one measured, in milliseconds and
/// as a part: a real wake-up takes up to a tenth of a millisecond even on an idle PE, and ticks have other
/// phases.
const TOLERANCE: (f64, f64) = (0.1, 0.05);

/// That part where groups compete: queues are flat, so that a group's thread is compared with single threads
/// of the other group.
const OF_GROUPS: f64 = 0.2;

/// A line of the table.
struct Case {
    what: String,
    scenario: String,
    topology: String,
    rest: &'static str,
    tolerance: f64,
    rounds: f64,
    /// Milliseconds of a round: least, median, most.
    measured: [f64; 3],
}

fn cases() -> Vec<Case> {
    CASES.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).map(case).collect()
}

fn case(line: &str) -> Case {
    let cells: Vec<&str> = line.split(',').collect();
    let [pes, hogs, work, sleep, nice, groups, rounds, least, median, most] = cells[..] else {
        panic!("ten columns: {line}")
    };
    let number = |cell: &str| cell.parse::<f64>().unwrap_or_else(|error| panic!("{line}: {error}"));
    let (in_a, in_b, rest, tolerance) = match groups {
        "yes" => {
            ("group = 'a',", "group = 'b',", "group = { a = {}, b = {} }\nos.slice = '1400us'", OF_GROUPS)
        }
        _ => ("", "", "os.slice = '1400us'", TOLERANCE.1),
    };
    let steps = format!(
        "[{{ repeat = {{ times = {rounds}, steps = [{{ each = {{ mcycles = {}, demand = 'int' }} }}, \
         {{ sleep = '{sleep}us' }}] }} }}]",
        number(work) / 1e3
    );
    let scenario = format!(
        "{{ name = 'duty', nice = {nice}, {in_a} start = '500ms', steps = {steps} }}, \
         {{ name = 'hog', threads = {hogs}, background = true, {in_b} \
         steps = [{{ each = {{ mcycles = 1e7, demand = 'int' }} }}] }}"
    );
    Case {
        what: format!(
            "{work} us of work, {sleep} us of sleep, nice {nice}, beside {hogs} on {pes}, groups: {groups}"
        ),
        scenario,
        topology: format!("core:{pes} pu:1"),
        rest,
        tolerance,
        rounds: number(rounds),
        measured: [least, median, most].map(number),
    }
}

#[test]
fn wake_ups_beside_hogs_take_as_long_as_measured() {
    for Case { what, scenario: apps, topology, rest, tolerance, rounds, measured: [least, median, most] } in
        cases()
    {
        let scenario = scenario(&topology, &apps, rest);
        let found = seeds(10, |seed| {
            let sim = run(&scenario, seed);
            let (_, completions, ..) = sim.applications().next().expect("the duty");
            completions.first().expect("it ends") * 1e3 / rounds
        });
        let mean = found.iter().sum::<f64>() / found.len() as f64;
        println!("measured {median:.3} ({least:.3} to {most:.3}), simulated {mean:.3}:");
        check(
            &what,
            &[mean],
            least * (1.0 - tolerance) - TOLERANCE.0,
            most * (1.0 + tolerance) + TOLERANCE.0,
        );
    }
}
