//! The threads of programs that take turns have PEs of their own.

use super::*;
use crate::observe::{
    CounterReading, Event, EventBatch, IdleWait, Observation, ProcessReading, SampleReading, ThreadReading,
};
use crate::waits::WaitChanges;

/// Returns an observation of three threads of one process; a letter in `running` stands for a running thread.
/// Each was sampled 100 times per second, and has spun in the given number of samples so far.
fn observation(at_ms: u64, running: &str, spinning: u64) -> Observation {
    let judged = at_ms / 10 - spinning;
    let reading = SampleReading { judged, spinning, ..SampleReading::default() };
    let one = observe(0, Standing::Free, Vec::new());
    let thread = |letter: char| ThreadReading {
        thread: id("abc".find(letter).unwrap()),
        pid: id(0).tid,
        cpu_ns: if running.contains(letter) { at_ms * 1_000_000 } else { 0 },
        runnable: running.contains(letter),
        counters: Some(CounterReading::Sample(reading)),
        ..one.threads[0].clone()
    };
    let (at, allowed) = (Time(at_ms * 1_000_000), CpuSet::first_n(2));
    Observation { at, threads: "abc".chars().map(thread).collect(), allowed, ..one.clone() }
}

/// Reports a process of two threads that ran for so long, and waited for so long, up to this time.
fn report(engine: &mut Engine, waits: IdleWait, at_ms: u64, [run_ms, wait_ms]: [u64; 2], other_gangs: u32) {
    let at = Time(at_ms * 1_000_000);
    let (run_ns, wait_ns) = (run_ms * 1_000_000, wait_ms * 1_000_000);
    let example = ProcessReading::example(id(0));
    let reading = ProcessReading { at, run_ns, wait_ns, waits: waits.into(), other_gangs, ..example };
    engine.react(&EventBatch { at, events: vec![Event::Process(reading)], outcomes: Vec::new() });
}

/// Where the threads are bound, by their letters; `.` is free.
fn drawn(engine: &Engine) -> String {
    let assignment = |letter: usize| engine.present().bound.get(&id(letter));
    let draw = |assignment: Option<&Assignment>| {
        assignment.map_or(".".to_owned(), |assignment| assignment.pes.to_string())
    };
    (0..3usize).map(|letter| draw(assignment(letter))).collect()
}

#[test]
fn threads_that_want_a_pe_are_spread_keep_their_pes_and_are_free_when_turns_end() {
    let waits = WaitChanges { spin: false, turns: true };
    let config = EngineConfig { waits, guard: Some(1), ..EngineConfig::default() };
    let mut engine = Engine::new(bulldozer(), policy::build("default").unwrap(), config);
    for at_ms in [0, 50, 100] {
        report(&mut engine, IdleWait::Fixed, at_ms, [at_ms, at_ms], 1);
    }
    // It spins in three of four samples.
    let mut spinning = 0;
    let mut step = |at_ms: u64, running, spins: u64| {
        spinning += spins;
        engine.step(&observation(at_ms, running, spinning));
        assert_eq!(engine.guarded(), None, "that is no placement of the policy's");
        drawn(&engine)
    };
    let before: Vec<String> = (0..10).map(|look| step(1_000 + 50 * look, "ac", 4)).collect();
    assert!(before.iter().all(|drawn| drawn == "..."), "it was not judged yet: {before:?}");
    assert_eq!(step(1_500, "ac", 4), "0.1");
    assert_eq!(step(2_500, "abc", 0), "001");
    assert_eq!(step(3_500, "ab", 0), "01.");
    assert_eq!(step(4_500, "b", 0), "...", "one thread alone is the system's matter");
    assert_eq!(step(5_500, "ab", 0), "01.");
    let after: Vec<String> = (0..40).map(|look| step(6_500 + 1_000 * look, "ab", 80)).collect();
    assert_eq!(after.last().map(String::as_str), Some("..."), "turns did not help");
}

/// Two of them on one PE would yield it to each other in vain, while they wait for the rest.
#[test]
fn threads_that_yield_are_spread_while_they_lack_pes_if_they_fill_all_pes() {
    let waits = WaitChanges { spin: false, turns: true };
    let config = EngineConfig { waits, ..EngineConfig::default() };
    let mut engine = Engine::new(bulldozer(), policy::build("default").unwrap(), config);
    engine.step(&observation(1_000, "ac", 0));
    for at_ms in [0, 250, 500, 750, 1_000] {
        report(&mut engine, IdleWait::Yield, at_ms, [at_ms, at_ms], 0);
    }
    let mut step = |at_ms, running| {
        engine.step(&observation(at_ms, running, 0));
        drawn(&engine)
    };
    assert_eq!(step(2_000, "ac"), "0.1");
    assert_eq!(step(3_000, "a"), "...", "one thread does not fill two PEs");
    assert_eq!(step(4_000, "abc"), "010");
    report(&mut engine, IdleWait::Yield, 5_000, [3_000, 1_000], 0);
    engine.step(&observation(5_000, "abc", 0));
    assert_eq!(drawn(&engine), "...", "nobody else wants the PEs");
}
