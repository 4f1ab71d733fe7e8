//! The threads of programs that take turns have PEs of their own.

use super::*;
use crate::observe::{
    CounterReading, Event, EventBatch, Observation, ProcessDelay, SampleReading, ThreadReading,
};
use crate::waits::Mitigations;

/// Returns an observation of three threads of one process; a letter in `running` stands for a running thread.
/// Each was sampled 100 times per second, and has spun in the given number of samples so far.
fn observation(at_s: u64, running: &str, spinning: u64) -> Observation {
    let judged = 100 * at_s - spinning;
    let reading = SampleReading { judged, spinning, ..SampleReading::default() };
    let one = observe(at_s, Standing::Free, Vec::new());
    let thread = |letter: char| ThreadReading {
        thread: id("abc".find(letter).unwrap()),
        pid: id(0).tid,
        cpu_ns: if running.contains(letter) { at_s * 1_000_000_000 } else { 0 },
        runnable: running.contains(letter),
        counters: Some(CounterReading::Sample(reading)),
        ..one.threads[0].clone()
    };
    let allowed = CpuSet::first_n(2);
    Observation { threads: "abc".chars().map(thread).collect(), allowed, ..one.clone() }
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
    let mitigations = Mitigations { spin: false, turns: true };
    let config = EngineConfig { mitigations, guard: Some(1), ..EngineConfig::default() };
    let mut engine = Engine::new(bulldozer(), policy::build("default").unwrap(), config);
    let delay = ProcessDelay { elapsed_ns: 100_000_000, adaptable: false, ..ProcessDelay::example(id(0)) };
    engine.react(&EventBatch { at: second(1), events: vec![Event::Delayed(delay)], outcomes: Vec::new() });
    let mut step = |at_s, running, spinning| {
        engine.step(&observation(at_s, running, spinning));
        assert_eq!(engine.guarded(), None, "that is no placement of the policy's");
        drawn(&engine)
    };
    assert_eq!(step(2, "ac", 180), "...", "it was not judged yet");
    assert_eq!(step(3, "ac", 270), "0.1");
    assert_eq!(step(4, "abc", 290), "001");
    assert_eq!(step(5, "ab", 310), "01.");
    assert_eq!(step(6, "b", 330), "...", "one thread alone is the system's matter");
    assert_eq!(step(7, "ab", 350), "01.");
    assert_eq!(step(8, "ab", 440), "...", "turns did not help");
}

/// Two of them on one PE would give it to each other in vain, while they wait for the rest.
#[test]
fn threads_that_give_way_are_spread_while_they_are_held_up_if_they_fill_all_pes() {
    let mitigations = Mitigations { spin: false, turns: true };
    let mut engine = Engine::new(
        bulldozer(),
        policy::build("default").unwrap(),
        EngineConfig { mitigations, ..EngineConfig::default() },
    );
    let delay = |ms: u64, wait_ns| {
        let example = ProcessDelay::example(id(0));
        let delay = ProcessDelay { adaptable: false, gives_way: true, wait_ns, ..example };
        let delay = ProcessDelay { elapsed_ns: ms * 1_000_000, run_ns: ms * 1_000_000, ..delay };
        Event::Delayed(delay)
    };
    let batch = |at_s, event| EventBatch { at: second(at_s), events: vec![event], outcomes: Vec::new() };
    engine.step(&observation(1, "ac", 0));
    engine.react(&batch(1, delay(250, 250_000_000)));
    let mut step = |at_s, running| {
        engine.step(&observation(at_s, running, 0));
        drawn(&engine)
    };
    assert_eq!(step(2, "ac"), "0.1");
    assert_eq!(step(3, "a"), "...", "one thread does not fill two PEs");
    assert_eq!(step(4, "abc"), "010");
    engine.react(&batch(5, delay(1000, 0)));
    engine.step(&observation(5, "abc", 0));
    assert_eq!(drawn(&engine), "...", "nobody else wants the PEs");
}
