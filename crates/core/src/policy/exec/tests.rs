//! The protocol with a scripted command.

use super::*;
use crate::engine::{Engine, EngineConfig};
use crate::observe::EventBatch;
use crate::policy::PolicySpec;
use crate::time::Time;
use crate::topology::Topology;
use crate::world::scripted::{ScriptedThread, ScriptedWorld};
use crate::world::{World, control_loop};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// What was sent, and the remaining answers, each given at its exchange.
#[derive(Default)]
struct Script {
    sent: Vec<String>,
    answers: VecDeque<Result<Option<String>, String>>,
}

#[derive(Clone, Default)]
struct Scripted(Rc<RefCell<Script>>);

impl Peer for Scripted {
    fn exchange(&mut self, text: &str, _: Duration) -> Result<Option<String>, String> {
        let mut script = self.0.borrow_mut();
        script.sent.push(text.to_owned());
        script.answers.pop_front().unwrap_or(Ok(None))
    }
}

const SHORT: Duration = Duration::from_millis(50);

const GREETING: &str = r#"{"version":1}"#;

fn script(answers: &[&str]) -> Scripted {
    script_after(GREETING, answers)
}

fn script_after(greeting: &str, answers: &[&str]) -> Scripted {
    let answer = |text: &&str| match *text {
        "late" => Ok(None),
        "gone" => Err("it has ended".to_owned()),
        text => Ok(Some(text.to_owned())),
    };
    let answers = [greeting].iter().chain(answers).map(answer).collect();
    Scripted(Rc::new(RefCell::new(Script { sent: Vec::new(), answers })))
}

fn exec(peer: &Scripted) -> Result<Box<dyn Policy>, String> {
    let spec: PolicySpec = "exec:deadline=20ms,decide, please".parse().map_err(|e| format!("{e}"))?;
    let start = |command: &str| {
        assert_eq!(command, "decide, please");
        Ok(Box::new(peer.clone()) as Box<dyn Peer>)
    };
    spec.build(Some(&start)).map_err(|error| error.to_string())
}

/// Returns where two threads are bound second by second, on a machine of four PEs, and why the policy has
/// failed.
fn run(peer: &Scripted, seconds: u64) -> (Vec<String>, Option<String>) {
    let topology = Topology::synthetic("core:2 pu:2").unwrap();
    let mut pinned = ScriptedThread::steady(0.9);
    pinned.permitted = Some("0-1".parse().unwrap());
    let threads = vec![ScriptedThread::steady(0.9), pinned];
    let mut world =
        ScriptedWorld::new(vec![(Time(0), topology.allowed.clone())], threads, Time(seconds * 1_000_000_000));
    let mut engine = Engine::new(topology, exec(peer).unwrap(), EngineConfig::default());
    let mut drawn = Vec::new();
    let Ok(()) = control_loop(&mut world, &mut engine, |_, _, engine| {
        let bound = engine.present().bound.values().map(|assignment| assignment.pes.to_string());
        drawn.push(bound.collect::<Vec<_>>().join(" "));
    });
    assert_eq!(world.bound().len(), 0, "everything is given back");
    (drawn, engine.policy_failure().map(str::to_owned))
}

fn bind(step: u64, binds: &[(&str, &str)]) -> String {
    let bind = |(thread, pes): &(&str, &str)| format!(r#"{{"thread":"{thread}","pes":"{pes}"}}"#);
    let binds: Vec<String> = binds.iter().map(bind).collect();
    format!(r#"{{"step":{step},"bind":[{}]}}"#, binds.join(","))
}

#[test]
fn what_the_command_wants_is_done() {
    let first = bind(1, &[("100-0", "2"), ("101-0", "0-1")]);
    let peer = script(&[&first, &bind(2, &[("101-0", "1")]), &bind(3, &[]), &bind(4, &[])]);
    let (drawn, failure) = run(&peer, 4);
    assert_eq!((drawn, failure), (vec!["2 0-1".to_owned(), "1".into(), String::new(), String::new()], None));
}

#[test]
fn a_scene_tells_threads_machine_and_applications_in_one_line() {
    let peer = script(&[]);
    run(&peer, 1);
    let script = peer.0.borrow();
    assert_eq!(script.sent[0], "{\"version\":1}\n");
    let line = script.sent[1].strip_suffix('\n').expect("a line");
    assert!(!line.contains('\n'));
    let scene: serde_json::Value = serde_json::from_str(line).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&scene).unwrap());
}

/// Returns the events that the command receives, scene by scene, about a thread that blocks for 0.2 s and
/// another that begins after 2.2 s.
fn received_events(greeting: &str) -> Vec<String> {
    let topology = Topology::synthetic("core:2 pu:2").unwrap();
    let mut threads = vec![ScriptedThread::steady(0.9), ScriptedThread::steady(0.9)];
    threads[0].blocked = vec![Time(1_500_000_000)..Time(1_700_000_000)];
    threads[1].lives = Time(2_200_000_000)..Time(u64::MAX);
    let allowed = vec![(Time(0), topology.allowed.clone()), (Time(2_500_000_000), "0-2".parse().unwrap())];
    let mut world = ScriptedWorld::new(allowed, threads, Time(3_000_000_000)).with_events();
    let answers: Vec<String> = (1..20).map(|step| bind(step, &[])).collect();
    let peer = script_after(greeting, &answers.iter().map(String::as_str).collect::<Vec<_>>());
    let mut engine = Engine::new(topology, exec(&peer).unwrap(), EngineConfig::default());
    let Ok(()) = control_loop(&mut world, &mut engine, |_, _, _| {});
    assert_eq!(engine.policy_failure(), None);
    let of_scene = |text: &String| {
        let scene: serde_json::Value = serde_json::from_str(text).unwrap();
        scene["events"].to_string()
    };
    peer.0.borrow().sent[1..].iter().map(of_scene).collect()
}

#[test]
fn a_command_that_asks_for_events_gets_each_at_once() {
    let tlp = |count: u32, only: &str| {
        format!(r#"{{"application":0,"event":"tlp_changed","only":{only},"runnable_threads":{count}}}"#)
    };
    let started = |thread: &str| format!(r#"{{"event":"thread_started","thread":"{thread}"}}"#);
    let first = r#""100-0""#;
    let expected = [
        format!(r#"[{},{},{{"event":"allowed_changed","pes":"0-3"}}]"#, started("100-0"), tlp(1, first)),
        "[]".into(),
        format!("[{}]", tlp(0, "null")),
        format!("[{}]", tlp(1, first)),
        "[]".into(),
        format!("[{},{}]", started("101-0"), tlp(2, "null")),
        r#"[{"event":"allowed_changed","pes":"0-2"}]"#.into(),
        "[]".into(),
    ];
    assert_eq!(received_events(r#"{"version":1,"events":true}"#), expected);
    assert_eq!(
        received_events(GREETING),
        ["[]", "[]", "[]"],
        "a command that does not ask gets observations at intervals"
    );
}

#[test]
fn events_make_no_answer_later() {
    // While the answer to a scene is outstanding, hundreds of events arrive.
    let topology = Topology::synthetic("core:2 pu:2").unwrap();
    let mut thread = ScriptedThread::steady(0.9);
    thread.blocked =
        (0..20).map(|n| Time(1_200_000_000 + n * 100_000_000)).map(|from| from..from + SHORT).collect();
    let mut world =
        ScriptedWorld::new(vec![(Time(0), topology.allowed.clone())], vec![thread], Time(4_000_000_000))
            .with_events();
    let peer = script_after(r#"{"version":1,"events":true}"#, &[&bind(1, &[])]);
    let mut engine = Engine::new(topology, exec(&peer).unwrap(), EngineConfig::default());
    let Ok(()) = control_loop(&mut world, &mut engine, |_, _, _| {});
    assert_eq!(engine.policy_failure(), None);
    assert!(peer.0.borrow().sent.len() > 30, "there were many events");
}

#[test]
fn a_late_answer_changes_nothing_and_is_dropped_when_it_comes() {
    // The answer to step 2 comes in the next second, with the question for it, and is ignored.
    let answers = [
        &bind(1, &[("100-0", "2")]),
        "late",
        &bind(2, &[("100-0", "3")]),
        &bind(3, &[("100-0", "1")]),
        &bind(4, &[]),
    ];
    let peer = script(&answers);
    let (drawn, failure) = run(&peer, 4);
    assert_eq!((drawn, failure), (vec!["2".to_owned(), "2".into(), "1".into(), String::new()], None));
    let sent: Vec<bool> = peer.0.borrow().sent.iter().map(|text| text.is_empty()).collect();
    assert_eq!(sent, [false, false, false, true, false, false], "no scene while an answer is owed");
}

#[test]
fn after_five_late_answers_in_a_row_everything_is_given_back() {
    let peer = script(&[&bind(1, &[("100-0", "2")])]);
    let (drawn, failure) = run(&peer, 8);
    assert_eq!(drawn, ["2", "2", "2", "2", "2", "", "", ""]);
    let failure = failure.expect("it is given up");
    assert!(failure.contains("5 answers in a row took longer than 20ms"), "{failure}");
}

#[test]
fn an_answer_that_breaks_a_rule_ends_it_and_everything_is_given_back() {
    let good = bind(1, &[("100-0", "2")]);
    for (answer, expected) in [
        ("gone", "it has ended"),
        ("", "it answered ``"),
        ("hello", "it answered `hello`"),
        ("[]", "it answered `[]`"),
        (&bind(7, &[]), "it answered step 7 instead of step 2"),
        (&bind(2, &[("999-0", "1")]), "it binds `999-0`, which is not a thread"),
        (&bind(2, &[("100", "1")]), "it binds `100`, which is not a thread"),
        (&bind(2, &[("100-0", "")]), "to the PEs ``"),
        (&bind(2, &[("100-0", "4")]), "to the PEs `4`, of which it may use `0-3`"),
        (&bind(2, &[("101-0", "1-2")]), "to the PEs `1-2`, of which it may use `0-1`"),
        (&bind(2, &[("101-0", "9999999999")]), "is not a set of PEs"),
        (&bind(2, &[("100-0", "1"), ("100-0", "2")]), "it binds thread 100-0 twice"),
        (r#"{"step":2,"bind":[],"wish":1}"#, "unknown field `wish`"),
        (&"x".repeat(10_000), "x…`"),
    ] {
        let (drawn, failure) = run(&script(&[&good, answer]), 4);
        assert_eq!(drawn, ["2", "", "", ""], "{answer}");
        let failure = failure.expect(answer);
        assert!(failure.contains(expected) && failure.len() < 600, "{answer}: {failure}");
    }
}

#[test]
fn a_command_that_does_not_greet_is_no_policy() {
    for (greeting, expected) in [
        ("late", "no greeting came within 10s"),
        ("gone", "it has ended"),
        ("hello", "it answered `hello`"),
        (r#"{"version":2}"#, "it speaks version 2 of the protocol, corewise version 1"),
    ] {
        let peer = script(&[greeting]);
        peer.0.borrow_mut().answers.pop_front();
        let error = exec(&peer).err().expect(greeting);
        assert!(error.contains("the policy exec: `decide, please`: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_command_is_needed_and_started_only_where_that_is_possible() {
    let error = |text: &str| text.parse::<PolicySpec>().expect_err(text).to_string();
    assert!(error("exec").contains("the value must be a command"), "{}", error("exec"));
    assert!(error("exec:deadline=1s").contains("the value must be a command"));
    assert!(error("exec:deadline=1,x").contains("a time from"));
    let spec: PolicySpec = "exec:a=1,b".parse().unwrap();
    assert_eq!(spec.parameters().get("command").map(String::as_str), Some("a=1,b"));
    assert_eq!(spec.to_string(), "exec:a=1,b");
    assert!(spec.build(None).err().unwrap().to_string().contains("no command can be started here"));
    let spec: PolicySpec = "exec:deadline=1s,a b".parse().unwrap();
    assert_eq!(spec.to_string(), "exec:deadline=1s,a b");
}

/// A reading of a thread that has just started.
fn started(permitted: &str) -> Event {
    let mut world = ScriptedWorld::new(
        vec![(Time(0), "0-3".parse().unwrap())],
        vec![ScriptedThread::steady(0.9)],
        Time(1_000_000_000),
    );
    let Ok(mut observation) = world.observe();
    observation.threads[0].permitted = std::sync::Arc::new(permitted.parse().unwrap());
    Event::ThreadStarted(Box::new(observation.threads.remove(0)))
}

#[test]
fn no_scene_is_without_pes_and_no_thread_without_a_pe_is_placeable() {
    let peer = script_after(r#"{"version":1,"events":true}"#, &[&bind(1, &[]), &bind(2, &[])]);
    let topology = Topology::synthetic("core:2 pu:2").unwrap();
    let mut engine = Engine::new(topology, exec(&peer).unwrap(), EngineConfig::default());
    let mut react = |events| {
        let batch = EventBatch { at: Time(1_000_000), events, outcomes: Vec::new() };
        assert_eq!(engine.react(&batch), []);
    };
    let asked = || peer.0.borrow().sent.len() - 1;
    react(vec![started("2-3")]);
    assert_eq!(asked(), 0, "no PE is known yet");
    react(vec![Event::AllowedChanged("0-1".parse().unwrap())]);
    react(vec![Event::AllowedChanged(CpuSet::new())]);
    assert_eq!(asked(), 1);
    let scene = &peer.0.borrow().sent[1];
    assert!(scene.contains(r#""allowed_pes":"0-1""#) && scene.contains(r#""placeable":false"#), "{scene}");
}
