//! What treatments of processes permit, and what happens when they change.

use super::*;
use crate::observe::{Event, EventBatch, Input, ProcessReading, Treatment, Treatments};
use crate::plan::SettingKind;
use crate::recording::{Header, Question, Recording, to_line};
use crate::report::Sources;
use crate::waits::WaitChanges;
use std::sync::Arc;

/// The treatment of the first process.
pub(super) fn treated(treatment: Treatment) -> Arc<Treatments> {
    Arc::new([(id(0).tid, Arc::new(treatment))].into())
}

fn named(pes: &str) -> Treatment {
    Treatment { pes: Some(pes.parse().unwrap()), ..Treatment::default() }
}

/// Two threads of one kind, of which the first is treated so from these seconds on.
fn two(treatments: Vec<(u64, Treatment)>) -> Vec<ScriptedThread> {
    let mut threads = steady(&[0.9, 0.9]);
    threads[0].treatments = treatments.into_iter().map(|(at, treatment)| (second(at), treatment)).collect();
    threads
}

#[test]
fn a_process_that_is_left_alone_is_freed_and_bound_again_when_it_is_attached() {
    let left = Treatment::untouched("it was detached");
    check(
        draw(&bulldozer(), 9, two(vec![(4, left), (7, Treatment::default())])),
        "AAA...AAA
         BBBBBBBBB",
    );
}

#[test]
fn a_program_goes_to_the_pes_that_its_rule_names_and_back_when_the_rule_is_gone() {
    let drawn =
        draw(&bulldozer(), 9, two(vec![(3, named("4-7")), (6, named("6-7")), (8, Treatment::default())]));
    let rows: Vec<&str> = drawn.lines().collect();
    assert_eq!(&rows[0][..7], "AACCCDD", "{drawn}");
    assert!(rows[1].chars().all(|cell| cell == 'B'), "{drawn}");
}

#[test]
fn threads_that_no_policy_binds_are_kept_on_the_pes_of_their_rule_as_long_as_it_says_so() {
    let mut threads = two(vec![(2, named("0-1")), (5, Treatment::untouched("a test")), (7, named("0-1"))]);
    threads[0].fpu_usage = vec![(Time(0), 0.0)];
    check(
        draw(&bulldozer(), 9, threads),
        ".AAA..AAA
         AAAAAAAAA",
    );
}

#[test]
fn another_policy_places_a_program_as_soon_as_a_rule_names_it() {
    let policy = |name: &str| Treatment { policy: Some(name.into()), ..Treatment::default() };
    let threads = two(vec![(3, policy("default")), (6, Treatment::default())]);
    let machine = bulldozer();
    let by_rule = Box::new(policy::ByRule::new(policy::build("spread").unwrap()));
    check(
        draw_policy(by_rule, &machine, vec![(Time(0), machine.allowed.clone())], 9, threads),
        "AA...AAAA
         BBBBBBBBB",
    );
}

#[test]
fn the_guard_tries_the_placement_of_a_program_from_when_its_rule_says_so() {
    let config = EngineConfig { guard: Some(1), ..EngineConfig::default() };
    let mut engine = Engine::new(bulldozer(), Box::new(ToTheFirst), config);
    let mut is_guarded = |at, guard| {
        let treatments = treated(Treatment { guard, ..Treatment::default() });
        engine.step(&Observation { treatments, ..observe(at, Standing::Free, Vec::new()) });
        engine.guarded() == Some(id(0))
    };
    assert_eq!([is_guarded(1, false), is_guarded(2, true), is_guarded(3, false)], [false, true, false]);
}

/// Binds every thread to the first PE.
struct ToTheFirst;

impl Policy for ToTheFirst {
    fn name(&self) -> &str {
        "to-the-first"
    }

    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let assignment = Assignment { pes: CpuSet::single(PeId(0)), reason: "test".into() };
        let bound = scene.threads.iter().map(|subject| (subject.view.thread, assignment.clone()));
        Placement { bound: bound.collect(), ..Placement::default() }
    }
}

#[test]
fn pes_that_are_reserved_while_threads_are_bound_there_are_vacated() {
    let mut engine = Engine::new(bulldozer(), Box::new(ToTheFirst), EngineConfig::default());
    let mut is_bound = |at, reserved: &str| {
        let reserved = reserved.parse().unwrap();
        engine.step(&Observation { reserved, ..observe(at, Standing::Free, Vec::new()) });
        engine.present().bound.contains_key(&id(0))
    };
    assert_eq!([is_bound(1, ""), is_bound(2, "0-1"), is_bound(3, "1")], [true, false, true]);
    // Who reports what is allowed knows nothing of reservations, or of other runs.
    let (reserved, taken) = (CpuSet::first_n(2), CpuSet::single(PeId(2)));
    engine.step(&Observation { reserved, taken, ..observe(4, Standing::Free, Vec::new()) });
    let allowed = Event::AllowedChanged(CpuSet::first_n(4));
    engine.react(&EventBatch { at: second(4), events: vec![allowed], outcomes: Vec::new() });
    assert_eq!(*engine.intake.allowed(), CpuSet::single(PeId(3)));
}

#[test]
fn a_thread_that_is_left_alone_gets_its_own_mask_back_and_no_other() {
    let mut engine = Engine::new(bulldozer(), Box::new(ToTheFirst), EngineConfig::default());
    let treatments = treated(Treatment::untouched("a test"));
    let actions = engine.step(&Observation { treatments, ..observe(1, Standing::Inherited, Vec::new()) });
    assert!(matches!(&actions[..], [Action { change: Change::Free, .. }]), "{actions:?}");
}

/// An engine with one process, whose threads wait for a PE as long as they run.
struct Waiting(Engine);

impl Waiting {
    fn new() -> Waiting {
        let config = EngineConfig { waits: WaitChanges::ALL, ..EngineConfig::default() };
        Waiting(Engine::new(bulldozer(), Box::new(ToTheFirst), config))
    }

    fn react(&mut self, at_ms: u64, event: Event) -> Vec<Action> {
        let at = Time(at_ms * 1_000_000);
        self.0.react(&EventBatch { at, events: vec![event], outcomes: Vec::new() })
    }

    /// Reports the process ten times. Returns whether its waits are changed then.
    fn report(&mut self, from_ms: u64) -> bool {
        for at_ms in (from_ms..).step_by(20).take(10) {
            let at = Time(at_ms * 1_000_000);
            let reading =
                ProcessReading { at, run_ns: at.0, wait_ns: at.0, ..ProcessReading::example(id(0)) };
            self.react(at_ms, Event::Process(reading));
        }
        self.is_changed()
    }

    fn is_changed(&self) -> bool {
        self.0.present().settings.contains_key(&(id(0), SettingKind::SpinCount))
    }

    fn treat(&mut self, at_ms: u64, treatment: Option<Treatment>) -> Vec<Action> {
        self.react(at_ms, Event::Treated { pid: id(0).tid, treatment: treatment.map(Arc::new) })
    }
}

#[test]
fn waits_are_given_back_with_the_reason_when_a_rule_or_a_client_says_so_and_changed_again_later() {
    let turns = Treatment { waits: WaitChanges { spin: false, turns: true }, ..Treatment::default() };
    let rule = "its rule no longer permits that";
    let cases = [(turns, rule), (Treatment::untouched("it was detached"), "it was detached")];
    for (treatment, reason) in cases {
        let mut process = Waiting::new();
        assert!(process.report(100));
        let actions = process.treat(300, Some(treatment.clone()));
        let of_waits: Vec<(&Change, &str)> = actions.iter().map(|of| (&of.change, &*of.reason)).collect();
        assert_eq!(of_waits, [(&Change::Reset(SettingKind::SpinCount), reason)], "at once");
        assert!(!process.report(400), "{treatment:?}");
        assert!(process.treat(600, None).is_empty());
        assert!(process.report(700), "as if it had just begun");
        // An observation is enough.
        let at = Time(1_000_000_000);
        let treatments = treated(treatment);
        let look = Observation { at, treatments, ..observe(1, Standing::Free, Vec::new()) };
        let actions = process.0.step(&look);
        let reset = actions.iter().find(|of| of.change == Change::Reset(SettingKind::SpinCount));
        assert_eq!(reset.map(|of| &*of.reason), Some(reason), "{actions:?}");
    }
}

#[test]
fn a_thread_is_freed_with_the_reason_as_soon_as_its_process_is_detached() {
    let mut process = Waiting::new();
    let bound = process.0.step(&observe(1, Standing::Free, Vec::new()));
    let done = bound.iter().map(|action| outcome(action, OutcomeKind::Done)).collect();
    process.0.step(&observe(2, Standing::Bound, done));
    let actions = process.treat(2_100, Some(Treatment::untouched("it was detached")));
    let freed: Vec<(&Change, &str)> = actions.iter().map(|of| (&of.change, &*of.reason)).collect();
    assert_eq!(freed, [(&Change::Free, "it was detached")]);
    // Of a process with other PEs from now on no thread stays outside of them.
    let mut process = Waiting::new();
    process.0.step(&observe(1, Standing::Free, Vec::new()));
    let actions = process.treat(1_100, Some(named("2-3")));
    assert_eq!(actions[0].change, Change::Bind("2-3".parse().unwrap()), "{actions:?}");
}

#[test]
fn a_replay_decides_the_same_by_the_recorded_treatments() {
    let treatments = vec![(2, named("4-7")), (4, Treatment::untouched("a test")), (6, named("6-7"))];
    let machine = Topology::synthetic("core:4 pu:2").unwrap();
    let allowed = vec![(Time(0), machine.allowed.clone())];
    let mut world = ScriptedWorld::new(allowed, two(treatments), second(9)).with_events();
    let policy = || Box::new(policy::ByRule::new(policy::build("spread").unwrap()));
    let mut engine = Engine::new(machine, policy(), EngineConfig::default());
    let sources = Sources { discovery: String::new(), counters: String::new() };
    let mut text = to_line(&Header::of(&engine, &[], &sources, None));
    let mut decided = Vec::new();
    let Ok(()) = control_loop(&mut world, &mut engine, |input: &Input, actions, _| {
        text += &to_line(input);
        decided.push(format!("{actions:?}"));
    });
    let question = Question { machine: None, policy: policy(), fpu_threshold: None };
    let mut replay = Recording::parse(&text).unwrap().replay(question);
    let mut again = Vec::new();
    let Ok(()) = control_loop(&mut replay.world, &mut replay.engine, |_, actions, _| {
        again.push(format!("{actions:?}"));
    });
    assert_eq!(again, decided);
    assert!(
        text.contains("treated") && decided.iter().any(|actions| actions.contains("a test")),
        "{decided:?}"
    );
}
