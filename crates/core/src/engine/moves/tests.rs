//! Which threads are moved, and when: a line is one thread, a column one second. `m` is a move, a digit the
//! PE it is bound to, `.` a thread that is not bound and stays as it is.

use crate::cpuset::CpuSet;
use crate::engine::{Engine, EngineConfig};
use crate::ids::{AppId, PeId};
use crate::observe::{Input, Sizing, Standing, Treatment};
use crate::plan::{Action, Change};
use crate::policy::{self, Claims};
use crate::time::Time;
use crate::topology::{CpuKind, Domain, DomainKind, Topology};
use crate::world::control_loop;
use crate::world::scripted::{Interference, ScriptedThread, ScriptedWorld, id};
use std::collections::HashMap;

fn second(n: u64) -> Time {
    Time(n * 1_000_000_000)
}

/// Two PEs with one cache; PE 0 is fast.
fn machine() -> Topology {
    let pes = CpuSet::first_n(2);
    let kind = |name: &str, pe| CpuKind {
        name: name.to_owned(),
        pes: CpuSet::single(PeId(pe)),
        evidence: Vec::new(),
        speed: None,
    };
    let cache = Domain {
        kind: DomainKind::L3,
        logical: 0,
        os: Some(0),
        pes: pes.clone(),
        bytes: None,
        forbidden: false,
    };
    Topology {
        origin: "test".to_owned(),
        pes: pes.clone(),
        allowed: pes,
        domains: vec![cache],
        kinds: vec![kind("fast", 0), kind("slow", 1)],
        notes: Vec::new(),
    }
}

/// A thread of a process and application of this number that may ask.
fn thread(process: u32) -> ScriptedThread {
    ScriptedThread {
        app: AppId(process),
        pid: Some(process),
        sizing: Sizing::MayAsk,
        ..ScriptedThread::steady(0.0)
    }
}

fn world_of(threads: Vec<ScriptedThread>, seconds: u64) -> ScriptedWorld {
    let allowed = vec![(Time(0), CpuSet::first_n(2))];
    ScriptedWorld::new(allowed, threads, second(seconds)).with_slow(CpuSet::single(PeId(1))).with_weights()
}

fn engine_of(policy: &str) -> Engine {
    let config = EngineConfig { claims: Claims::Weights, ..EngineConfig::default() };
    Engine::new(machine(), policy::build(policy).unwrap(), config)
}

fn draw(policy: &str, seconds: u64, threads: Vec<ScriptedThread>) -> String {
    let mut rows = vec![String::new(); threads.len()];
    let (mut world, mut engine) = (world_of(threads, seconds), engine_of(policy));
    let (mut bound, mut moved, mut began, mut seconds_drawn) = (HashMap::new(), Vec::new(), None, 0);
    control_loop(&mut world, &mut engine, |input, actions, _| {
        for action in actions {
            match &action.change {
                Change::Bind(pes) => drop(bound.insert(action.thread, pes.to_string())),
                Change::Move(_) => {
                    bound.remove(&action.thread);
                    moved.push(action.thread);
                }
                Change::Free => drop(bound.remove(&action.thread)),
                Change::Set(_) | Change::Reset(_) => {}
            }
        }
        // A thread that has strayed is looked at between two seconds, too.
        let Input::Observation(seen) = input else { return };
        let from = *began.get_or_insert(seen.at);
        if seconds_drawn > seen.at.since(from).as_secs() {
            return;
        }
        for (index, row) in rows.iter_mut().enumerate() {
            let cell = bound.get(&id(index)).map_or(".", String::as_str);
            row.push_str(if moved.contains(&id(index)) { "m" } else { cell });
        }
        moved.clear();
        seconds_drawn += 1;
    })
    .unwrap();
    rows.join(" ")
}

#[test]
fn a_thread_that_works_alone_is_moved_once_and_keeps_its_mask() {
    for policy in ["busyfcs", "rr", "mintlp", "pa"] {
        // Beside a program with a team, whose threads want the fast PE, too.
        let team = ScriptedThread { sizing: Sizing::Fixed, ..thread(2) };
        let drawn = draw(policy, 4, vec![thread(1), team.clone(), team]);
        assert!(drawn.starts_with("m...") || drawn.starts_with(".m.."), "{policy}: {drawn}");
    }
}

#[test]
fn a_program_that_does_not_look_at_masks_is_bound() {
    let fixed = ScriptedThread { sizing: Sizing::Fixed, ..thread(1) };
    assert_eq!(draw("busyfcs", 4, vec![fixed]), "0000");
}

#[test]
fn a_thread_that_strays_is_moved_again() {
    let strays = |at| (second(at), Interference::Strays);
    let stays_on_slow = ScriptedThread { interference: vec![strays(2), strays(4)], ..thread(2) };
    // The first thread is blocked: the second one would run on PE 1 by itself.
    let blocked = ScriptedThread { blocked: vec![second(0)..second(9)], ..thread(1) };
    // The looks after the first stray are a tenth of a second later.
    assert_eq!(draw("busyfcs", 6, vec![blocked, stays_on_slow]), "...... m.mm..");
}

#[test]
fn a_thread_that_has_strayed_is_looked_at_as_soon_as_it_may_be_moved_again() {
    let strays = |ms: u64| (Time(ms * 1_000_000), Interference::Strays);
    let interference = vec![strays(1_990), strays(2_050)];
    let blocked = ScriptedThread { blocked: vec![second(0)..second(9)], ..thread(1) };
    let mut world = world_of(vec![blocked, ScriptedThread { interference, ..thread(2) }], 4);
    let mut engine = engine_of("busyfcs");
    let mut moves = Vec::new();
    control_loop(&mut world, &mut engine, |input, actions, _| {
        let is_move = |action: &&Action| matches!(action.change, Change::Move(_));
        let seen = input.observation().into_iter();
        moves.extend(seen.flat_map(|seen| actions.iter().filter(is_move).map(|_| seen.at.0 / 1_000_000)));
    })
    .unwrap();
    assert_eq!(moves[1..], [2_000, 2_100], "after the first one");
}

#[test]
fn a_thread_that_strays_all_the_time_is_moved_ever_more_rarely() {
    let interference = (1..100).map(|at| (second(at), Interference::Strays)).collect();
    let blocked = ScriptedThread { blocked: vec![second(0)..second(999)], ..thread(1) };
    let drawn = draw("busyfcs", 100, vec![blocked, ScriptedThread { interference, ..thread(2) }]);
    let moves = drawn.split(' ').nth(1).unwrap();
    assert!(moves.starts_with("mm"), "{moves}");
    assert!(moves.matches('m').count() < 15, "{moves}");
}

#[test]
fn threads_are_bound_as_soon_as_there_is_a_team_and_given_back_when_one_works_alone_again() {
    let second_one =
        ScriptedThread { blocked: vec![second(0)..second(2), second(4)..second(9)], ..thread(1) };
    let drawn = draw("busyfcs", 7, vec![thread(1), second_one]);
    assert_eq!(drawn, "m.00m.. .......");
}

#[test]
fn a_program_that_has_asked_for_the_mask_of_a_bound_thread_is_not_bound_again() {
    let asks = ScriptedThread { sizing: Sizing::Asks, ..thread(1) };
    let drawn = draw("busyfcs", 3, vec![asks.clone(), asks]);
    assert_eq!(drawn, "m.. ...");
}

#[test]
fn a_program_that_needs_all_pes_is_left_alone() {
    let deadline = ScriptedThread { standing: Standing::NeedsAllPes, ..thread(1) };
    let drawn = draw("busyfcs", 3, vec![deadline]);
    assert_eq!(drawn, "...");
}

#[test]
fn where_a_rule_names_the_pes_a_program_sees_all_of_these_and_no_others() {
    let drawn = ["0-1", "1"].map(|pes| {
        let treatment = Treatment { pes: Some(pes.parse().unwrap()), ..Treatment::default() };
        draw("busyfcs", 2, vec![ScriptedThread { treatments: vec![(Time(0), treatment)], ..thread(1) }])
    });
    assert_eq!(drawn, ["0-10-1", "11"]);
}
