//! Changes of waits are undone where all runs have agreed on that, whatever the rules say.

use super::*;
use crate::board::{Agreed, Ask, Board, Note};
use crate::guard::waits::{EPOCH, TAKEN_BACK};
use crate::observe::{Event, EventBatch, ProcessReading};
use crate::plan::SettingKind;
use crate::waits::WaitChanges;

/// The second of the common clock in which the run begins.
const AHEAD: u64 = 7_000;

/// The engine, and which reasons its actions have had.
struct Run {
    engine: Engine,
    reasons: Vec<String>,
}

impl Run {
    fn step(&mut self, at_ms: u64, notes: &[(u32, Note)]) -> bool {
        let clock = Time((AHEAD * 1000 + at_ms) * 1_000_000);
        let board = Some(Board { clock, notes: notes.to_vec() });
        let at = Time(at_ms * 1_000_000);
        let observation = Observation { at, board, ..observe(0, Standing::Free, Vec::new()) };
        let actions = self.engine.step(&observation);
        self.take(&actions)
    }

    /// Reports that its threads have waited for a PE as long as they ran.
    fn report(&mut self, at_ms: u64) -> bool {
        let at = Time(at_ms * 1_000_000);
        let reading = ProcessReading { at, run_ns: at.0, wait_ns: at.0, ..ProcessReading::example(id(0)) };
        let events = vec![Event::Process(reading)];
        let actions = self.engine.react(&EventBatch { at, events, outcomes: Vec::new() });
        self.take(&actions)
    }

    /// Whether waits are changed now.
    fn take(&mut self, actions: &[Action]) -> bool {
        self.reasons.extend(actions.iter().map(|action| action.reason.to_string()));
        self.engine.present().settings.contains_key(&(id(0), SettingKind::SpinCount))
    }
}

fn run() -> Run {
    let waits = WaitChanges { spin: true, turns: false };
    let config = EngineConfig { waits, guard: Some(1), ..EngineConfig::default() };
    Run { engine: Engine::new(bulldozer(), policy::build("default").unwrap(), config), reasons: Vec::new() }
}

#[test]
fn in_an_epoch_that_another_run_has_asked_for_waits_are_as_without_corewise() {
    let mut run = run();
    assert!((0..10).any(|look| run.report(100 + 10 * look)));
    let note = Note { asks: vec![Ask { second: AHEAD + 1, off_ms: 24 }], changes: true, ..Note::default() };
    assert!(run.step(500, &[(3, note.clone())]));
    let changed: String = (1000..1100)
        .step_by(4)
        .map(|at| if run.step(at, &[(3, note.clone())]) { '#' } else { '.' })
        .collect();
    assert!(changed == "##########..........#####" || changed == "..........###############", "{changed}");
    assert!(run.reasons.iter().any(|reason| reason == EPOCH), "{:?}", run.reasons);
}

#[test]
fn what_all_runs_have_taken_back_stays_so_until_another_run_ends() {
    let mut run = run();
    assert!((0..10).any(|look| run.report(100 + 10 * look)));
    let verdict = Agreed { second: AHEAD, is_off: true };
    let others = [(3, Note { verdict, ..Note::default() })];
    assert!(!run.step(500, &others));
    assert!(!run.report(600) && !run.step(1500, &others));
    assert_eq!(run.reasons.last().map(String::as_str), Some(TAKEN_BACK));
    assert!(run.engine.note().is_some_and(|note| note.changes && note.verdict == verdict));
    assert!(run.step(2500, &[]));
}
