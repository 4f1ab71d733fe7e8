//! Policies and engine on the scripted machine: each test draws where threads are bound, step by step.
//!
//! A line of the drawing is one thread, a column one second: the PE it is bound to (a hexadecimal digit), the
//! domain (`A` for the first of its kind), `*` for all fast PEs or `s` for another set of several, `.` while
//! it is free, a blank while it does not live.

use super::*;
use crate::cpuset::CpuSet;
use crate::ids::{AppId, PeId};
use crate::observe::Standing;
use crate::plan::{Assignment, Change, Outcome, OutcomeKind};
use crate::policy::{self, Needs, Scene};
use crate::time::Time;
use crate::topology::{CpuKind, Domain, DomainKind};
use crate::world::scripted::{Interference, ScriptedRates, ScriptedThread, ScriptedWorld, id};
use crate::world::{World, control_loop};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

mod amp;
mod by_rule;
mod cosched;
mod epochs;
mod events;
mod fights;
mod gangs;
mod guarded;
mod replay;
mod settings;
mod treatments;

/// A machine of `units` domains of one kind with `width` neighbouring PEs each.
fn machine(kind: DomainKind, units: u32, width: u32) -> Topology {
    let domain = |unit: u32| Domain {
        kind,
        logical: unit,
        os: Some(unit),
        pes: (unit * width..(unit + 1) * width).map(PeId).collect(),
        bytes: None,
        forbidden: false,
    };
    let pes = CpuSet::first_n(units * width);
    Topology {
        origin: "test".to_owned(),
        pes: pes.clone(),
        allowed: pes,
        domains: (0..units).map(domain).collect(),
        kinds: Vec::new(),
        notes: Vec::new(),
    }
}

/// The paper's machine: 4 modules of 2 cores.
fn bulldozer() -> Topology {
    machine(DomainKind::Module, 4, 2)
}

fn second(n: u64) -> Time {
    Time(n * 1_000_000_000)
}

/// Runs the threads under `spread` and draws their bindings.
fn draw(topology: &Topology, seconds: u64, threads: Vec<ScriptedThread>) -> String {
    let allowed = vec![(Time(0), topology.allowed.clone())];
    draw_within(topology, allowed, seconds, threads)
}

fn draw_within(
    topology: &Topology,
    allowed: Vec<(Time, CpuSet)>,
    seconds: u64,
    threads: Vec<ScriptedThread>,
) -> String {
    draw_policy(policy::build("spread").unwrap(), topology, allowed, seconds, threads)
}

/// Runs the threads under a policy and draws their bindings.
fn draw_policy(
    policy: Box<dyn Policy>,
    topology: &Topology,
    allowed: Vec<(Time, CpuSet)>,
    seconds: u64,
    threads: Vec<ScriptedThread>,
) -> String {
    draw_with(EngineConfig::default(), policy, topology, allowed, seconds, threads)
}

/// The same with other parameters of the engine. Threads with a larger weight are drawn as `+`.
fn draw_with(
    config: EngineConfig,
    policy: Box<dyn Policy>,
    topology: &Topology,
    allowed: Vec<(Time, CpuSet)>,
    seconds: u64,
    threads: Vec<ScriptedThread>,
) -> String {
    let lives: Vec<_> = threads.iter().map(|thread| thread.lives.clone()).collect();
    let slow = topology.kinds.last().map_or(CpuSet::new(), |kind| kind.pes.clone());
    let mut world = ScriptedWorld::new(allowed, threads, second(seconds)).with_slow(slow).with_weights();
    let mut engine = Engine::new(topology.clone(), policy, config);
    let mut rows = vec![String::new(); lives.len()];
    let mut bound: HashMap<ThreadId, String> = HashMap::new();
    let mut weighed: HashSet<ThreadId> = HashSet::new();
    control_loop(&mut world, &mut engine, |input, actions, _| {
        for action in actions {
            match &action.change {
                Change::Bind(pes) | Change::Move(pes) => bound.insert(action.thread, cell(topology, pes)),
                Change::Free => bound.remove(&action.thread),
                Change::Set(_) => weighed.insert(action.thread).then(String::new),
                Change::Reset(_) => weighed.remove(&action.thread).then(String::new),
            };
        }
        for (index, row) in rows.iter_mut().enumerate() {
            let alive = lives[index].contains(&input.at());
            let bound = bound.get(&id(index)).map_or(".", String::as_str);
            let cell = if weighed.contains(&id(index)) { "+" } else { bound };
            row.push_str(if alive { cell } else { " " });
        }
    })
    .unwrap();
    assert!(world.bound().is_empty(), "everything is given back at the end");
    rows.iter().map(|row| row.trim_end()).collect::<Vec<_>>().join("\n")
}

fn cell(topology: &Topology, pes: &CpuSet) -> String {
    match (pes.first(), topology.domains.iter().find(|domain| domain.pes == *pes)) {
        (Some(pe), _) if pes.len() == 1 => format!("{:x}", pe.0),
        (_, Some(domain)) => char::from(b'A' + domain.logical as u8).to_string(),
        _ if topology.kinds.first().is_some_and(|fast| fast.pes == *pes) => "*".to_owned(),
        _ => "s".to_owned(),
    }
}

#[track_caller]
fn check(drawn: String, expected: &str) {
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let drawn: Vec<&str> = drawn.lines().map(str::trim).collect();
    assert_eq!(drawn, expected);
}

fn steady(usages: &[f64]) -> Vec<ScriptedThread> {
    usages.iter().map(|&usage| ScriptedThread::steady(usage)).collect()
}

#[test]
fn fpu_intensive_threads_get_a_module_each_and_the_others_stay_free() {
    // Figure 1 of the paper: four floating-point threads among eight.
    check(
        draw(&bulldozer(), 4, steady(&[0.9, 0.02, 0.8, 0.01, 0.95, 0.0, 0.85, 0.1])),
        "AAAA
         ....
         BBBB
         ....
         CCCC
         ....
         DDDD
         ....",
    );
}

#[test]
fn the_second_group_shares_the_modules_and_the_rest_is_left_free() {
    let usages = [0.99, 0.98, 0.97, 0.96, 0.80, 0.79, 0.78, 0.77, 0.60, 0.59];
    check(
        draw(&bulldozer(), 3, steady(&usages)),
        "AAA
         CCC
         BBB
         DDD
         CCC
         AAA
         DDD
         BBB
         ...
         ...",
    );
}

#[test]
fn a_thread_that_stays_in_its_group_is_not_moved() {
    // Thread 1 overtakes thread 0, but both stay among the first four: no thread moves.
    let mut threads = steady(&[0.8, 0.7, 0.9]);
    threads[1].fpu_usage.push((second(3), 1.0));
    check(
        draw(&bulldozer(), 8, threads),
        "AAAAAAAA
         CCCCCCCC
         BBBBBBBB",
    );
}

#[test]
fn a_thread_that_stops_computing_is_freed_and_its_place_is_taken() {
    let mut threads = steady(&[0.9, 0.9, 0.9, 0.9, 0.8]);
    threads[0].fpu_usage.push((second(4), 0.0));
    let drawn = draw(&bulldozer(), 9, threads);
    let rows: Vec<&str> = drawn.lines().collect();
    assert_eq!(rows[0], "AAAA.....");
    assert!(rows[4].starts_with("CCCC") && rows[4].ends_with("AAAA"), "{drawn}");
}

#[test]
fn threads_of_one_unit_never_change_places() {
    // One module, two threads; the second wants more from the fourth second on.
    let mut threads = steady(&[0.9, 0.6]);
    threads[0].fpu_usage.push((second(4), 0.5));
    threads[1].fpu_usage.push((second(4), 1.0));
    check(
        draw(&machine(DomainKind::Module, 1, 2), 9, threads),
        "000000000
         111111111",
    );
}

#[test]
fn a_thread_that_shares_a_unit_takes_one_that_becomes_free() {
    let mut threads = steady(&[0.9, 0.8, 0.7]);
    threads[0].lives = Time(0)..second(5);
    check(
        draw(&machine(DomainKind::Module, 2, 2), 9, threads),
        "AAAA
         BBBBBBBBB
         BBBBAAAAA",
    );
}

#[test]
fn ended_threads_free_their_place() {
    let mut threads = steady(&[0.9, 0.9]);
    threads[0].lives = Time(0)..second(3);
    threads[1].lives = second(3)..second(9);
    let drawn = draw(&machine(DomainKind::Core, 2, 2), 7, threads);
    check(
        drawn,
        "AA
         .AAAA",
    );
}

#[test]
fn threads_that_others_placed_are_left_alone() {
    let mut threads = steady(&[0.9, 0.9, 0.9]);
    threads[0].standing = Standing::SelfPinned;
    threads[1].standing = Standing::UserPlaced;
    check(
        draw(&bulldozer(), 3, threads),
        "...
         ...
         BBB",
    );
}

#[test]
fn a_narrowed_thread_is_only_bound_within_its_limits() {
    let mut threads = steady(&[0.9, 0.8]);
    threads[0].permitted = Some("2-3".parse().unwrap());
    threads[1].permitted = Some("2-3".parse().unwrap());
    check(
        draw(&bulldozer(), 3, threads),
        "BBB
         BBB",
    );
}

#[test]
fn when_a_pe_goes_away_its_thread_moves() {
    let allowed = vec![(Time(0), CpuSet::first_n(8)), (second(3), "2-7".parse().unwrap())];
    let drawn = draw_within(&bulldozer(), allowed, 6, steady(&[0.9, 0.8]));
    check(
        drawn,
        "AACCCC
         BBBBBB",
    );
}

#[test]
fn a_refusal_is_not_repeated_at_once() {
    let mut threads = steady(&[0.9, 0.9]);
    threads[0].refuses = Some(OutcomeKind::Refused("EPERM".to_owned()));
    let topology = bulldozer();
    let allowed = vec![(Time(0), topology.allowed.clone())];
    let mut world = ScriptedWorld::new(allowed, threads, second(40));
    let policy = policy::build("spread").unwrap();
    let mut engine = Engine::new(topology, policy, EngineConfig::default());
    let mut tries = Vec::new();
    control_loop(&mut world, &mut engine, |input, actions, _| {
        tries.extend(actions.iter().filter(|a| a.thread == id(0)).map(|_| input.at()));
    })
    .unwrap();
    assert_eq!(tries, [second(1), second(32)]);
}

/// Returns an observation of one thread with this standing.
fn observe(second_: u64, standing: Standing, outcomes: Vec<Outcome>) -> Observation {
    let allowed = CpuSet::first_n(8);
    let reading = ThreadReading {
        thread: id(0),
        pid: id(0).tid,
        app: AppId(0),
        name: "test".into(),
        cpu_ns: second_ * 1_000_000_000,
        runnable_ns: None,
        runnable: true,
        last_pe: None,
        standing,
        permitted: std::sync::Arc::new(allowed.clone()),
        ..ThreadReading::example(100)
    };
    Observation { at: second(second_), allowed, threads: vec![reading], outcomes, ..Observation::default() }
}

#[test]
fn pes_taken_by_another_run_are_left_to_it_while_others_are_free() {
    for (taken, bound) in [(CpuSet::new(), true), (CpuSet::first_n(2), false), (CpuSet::first_n(8), true)] {
        let mut engine = Engine::new(bulldozer(), Box::new(Wander), EngineConfig::default());
        let observation = Observation { taken, ..observe(1, Standing::Free, Vec::new()) };
        assert_eq!(!engine.step(&observation).is_empty(), bound, "{:?}", observation.taken);
    }
}

#[test]
fn nothing_is_placed_while_no_pe_is_allowed() {
    let mut engine = Engine::new(bulldozer(), Box::new(Wander), EngineConfig::default());
    let allowed = CpuSet::new();
    let observation = Observation { allowed, ..observe(1, Standing::Free, Vec::new()) };
    assert_eq!(engine.step(&observation), []);
}

#[test]
fn answers_to_clients_make_no_look_rarer() {
    for (answers_cpu_ns, expected) in [(0, 2), (1_000_000_000, 1)] {
        let config = EngineConfig { own_cost: Some(0.005), ..EngineConfig::default() };
        let mut engine = Engine::new(bulldozer(), Box::new(Wander), config);
        engine.step(&observe(0, Standing::Free, Vec::new()));
        let now = observe(4, Standing::Free, Vec::new());
        engine.step(&Observation { own_cpu_ns: 1_000_000_000, answers_cpu_ns, ..now });
        assert_eq!(engine.interval(), Duration::from_secs(expected));
    }
}

/// Binds every thread to the PE whose number is the second of the step.
struct Wander;

impl Policy for Wander {
    fn name(&self) -> &str {
        "wander"
    }

    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn place(&mut self, scene: &crate::policy::Scene<'_>) -> Placement {
        let pes = CpuSet::single(PeId(scene.now.as_secs_f64() as u32 / 2));
        let assignment = Assignment { pes, reason: "".into() };
        let threads = scene.threads.iter().map(|subject| (subject.view.thread, assignment.clone()));
        Placement { bound: threads.collect(), ..Placement::default() }
    }
}

fn outcome(action: &Action, result: OutcomeKind) -> Outcome {
    Outcome { thread: action.thread, change: action.change.clone(), result }
}

#[test]
fn a_thread_that_was_refused_another_pe_is_given_back_the_mask_it_still_has() {
    let mut engine = Engine::new(bulldozer(), Box::new(Wander), EngineConfig::default());
    let first = engine.step(&observe(1, Standing::Free, Vec::new()));
    let second = engine.step(&observe(2, Standing::Bound, vec![outcome(&first[0], OutcomeKind::Done)]));
    assert_eq!(second[0].change, Change::Bind(CpuSet::single(PeId(1))));
    let refused = outcome(&second[0], OutcomeKind::Refused("EPERM".to_owned()));
    let third = engine.step(&observe(3, Standing::Bound, vec![refused]));
    assert_eq!(third.iter().map(|action| &action.change).collect::<Vec<_>>(), [&Change::Free]);
    let freed = vec![outcome(&third[0], OutcomeKind::Done)];
    assert!(engine.step(&observe(4, Standing::Free, freed)).is_empty(), "left alone for a while");
    assert!(engine.release_all().is_empty());
}

#[test]
fn a_thread_whose_mask_the_system_widened_is_bound_again() {
    let mut engine = Engine::new(bulldozer(), Box::new(Wander), EngineConfig::default());
    let first = engine.step(&observe(2, Standing::Free, Vec::new()));
    let done = vec![outcome(&first[0], OutcomeKind::Done)];
    let second = engine.step(&observe(3, Standing::Free, done));
    assert_eq!(second.len(), 1, "the same PE, but it no longer has it");
    assert_eq!(second[0].change, first[0].change);
}

#[test]
fn where_nothing_is_shared_nothing_is_bound() {
    let topology = machine(DomainKind::L2, 4, 1);
    let mut engine = Engine::new(topology.clone(), policy::build("spread").unwrap(), EngineConfig::default());
    let mut world =
        ScriptedWorld::new(vec![(Time(0), topology.allowed.clone())], steady(&[0.9, 0.9]), second(2));
    control_loop(&mut world, &mut engine, |_, actions, _| assert!(actions.is_empty())).unwrap();
    assert!(engine.nothing_to_gain().unwrap().contains("gains nothing"));
}

#[test]
fn the_closest_shared_unit_is_the_domain() {
    let check_kind =
        |kind, expected: &str| check(draw(&machine(kind, 2, 2), 3, steady(&[0.9, 0.8])), expected);
    for kind in [DomainKind::Module, DomainKind::Core, DomainKind::L2] {
        check_kind(kind, "AAA\nBBB");
    }
    for kind in [DomainKind::L3, DomainKind::Package] {
        check_kind(kind, "...\n...");
    }
}

/// A machine of one line with kinds.
fn machine_of_kinds(text: &str, kinds: &[(&str, &str)]) -> Topology {
    let kind = |&(name, pes): &(&str, &str)| CpuKind {
        name: name.to_owned(),
        pes: pes.parse().unwrap(),
        evidence: Vec::new(),
        speed: None,
    };
    Topology { kinds: kinds.iter().map(kind).collect(), ..Topology::synthetic(text).unwrap() }
}

#[test]
fn threads_are_spread_over_nodes_then_caches_then_cores() {
    // Two nodes with two L3 of two SMT cores each: A and B, C and D on the first, E to H on the second. All
    // threads begin on the first.
    let topology = Topology::synthetic("numa:2 l3:2 core:2 pu:2").unwrap();
    let mut threads = steady(&[0.9, 0.9, 0.9, 0.9, 0.9, 0.9]);
    threads[4].lives = second(3)..second(20);
    threads[5].lives = second(3)..second(20);
    check(
        draw(&topology, 8, threads),
        "AAAAAAAA
         EEEEEEEE
         CCCCCCCC
         GGGGGGGG
          .DDDDD
          .FFFFF",
    );
}

#[test]
fn no_thread_is_on_a_slow_pe_while_a_fast_one_is_free() {
    // Two fast SMT cores (A, B) and four slow PEs without siblings.
    let mut topology = machine_of_kinds("core:8 pu:1", &[("fast", "0-3"), ("slow", "4-7")]);
    let fast = ["0-1", "2-3"].map(|pes| Domain::new(DomainKind::Core, pes.parse().unwrap()));
    topology.domains.retain(|domain| domain.kind != DomainKind::Core);
    topology.domains.extend(fast);
    let topology = topology.arranged().unwrap();
    // Two threads for two fast cores; the others go to slow PEs rather than beside them. Threads 0 and 1 end,
    // and threads from slow PEs take their places at the next step.
    let mut threads = steady(&[0.9, 0.85, 0.8, 0.75]);
    threads[0].lives = Time(0)..second(4);
    threads[1].lives = Time(0)..second(5);
    check(
        draw(&topology, 9, threads),
        "AAA
         BBBB
         444AAAAAA
         5555BBBBB",
    );
}

#[test]
fn fast_pes_come_first_where_nothing_else_is_shared() {
    let topology = machine_of_kinds("core:4 pu:1", &[("fast", "2-3"), ("slow", "0-1")]);
    check(
        draw(&topology, 4, steady(&[0.9, 0.8, 0.7])),
        "2222
         3333
         0000",
    );
}

#[test]
fn a_thread_that_hardly_runs_is_judged_once_enough_is_known() {
    let mut threads = steady(&[0.9]);
    threads[0].cpu_share = 0.06;
    let drawn = draw(&bulldozer(), 8, threads);
    assert_eq!(drawn, ".AAAAAAA");
}

#[test]
fn a_thread_freed_by_the_last_step_is_free() {
    let mut threads = steady(&[0.9]);
    threads[0].fpu_usage.push((second(4), 0.0));
    let topology = bulldozer();
    for seconds in 5..9 {
        draw(&topology, seconds, threads.clone());
    }
}

#[test]
fn an_heir_is_given_back_its_own_mask() {
    let mut threads = steady(&[0.0]);
    threads[0].standing = Standing::Inherited;
    let topology = bulldozer();
    let mut world = ScriptedWorld::new(vec![(Time(0), topology.allowed.clone())], threads, second(3));
    let mut engine = Engine::new(topology, policy::build("default").unwrap(), EngineConfig::default());
    let mut frees = 0;
    control_loop(&mut world, &mut engine, |_, actions, _| {
        frees += actions.iter().filter(|action| action.change == Change::Free).count();
    })
    .unwrap();
    assert_eq!(frees, 1);
}

/// Two fast and two slow SMT cores, so that every policy has something to do.
fn every_policys_machine() -> Topology {
    let kind = |name: &str, pes: &str| CpuKind {
        name: name.to_owned(),
        pes: pes.parse().unwrap(),
        evidence: Vec::new(),
        speed: None,
    };
    let kinds = vec![kind("fast", "0-3"), kind("slow", "4-7")];
    Topology { kinds, ..machine(DomainKind::Core, 4, 2) }
}

proptest! {
    /// However threads come and go, no unit has more threads than PEs, no unit has a second thread while
    /// another is empty, and no slow unit has a thread while a fast one is empty.
    #[test]
    fn units_are_filled_evenly_and_fast_ones_first(
        drawn in proptest::collection::vec((0.5f64..1.0, 0u64..6, 2u64..8), 1..12),
    ) {
        let topology = every_policys_machine();
        let threads: Vec<ScriptedThread> = drawn
            .iter()
            .map(|&(usage, from, long)| {
                let lives = second(from)..second(from + long);
                ScriptedThread { lives, ..ScriptedThread::steady(usage) }
            })
            .collect();
        let allowed = vec![(Time(0), topology.allowed.clone())];
        let mut world = ScriptedWorld::new(allowed, threads, second(12));
        let mut engine =
            Engine::new(topology.clone(), policy::build("spread").unwrap(), EngineConfig::default());
        control_loop(&mut world, &mut engine, |_, _, engine| {
            let bound = engine.present().bound.values();
            let of_unit = |unit: &Domain| bound.clone().filter(|a| a.pes == unit.pes).count();
            let units: Vec<usize> = topology.domains(DomainKind::Core).map(of_unit).collect();
            assert_eq!(units.iter().sum::<usize>(), bound.len(), "each is bound to a whole core");
            let (fast, slow) = units.split_at(2);
            let (least, most) = (units.iter().min().unwrap(), *units.iter().max().unwrap());
            assert!(most <= 2 && (most < 2 || *least > 0 || bound.len() <= 2), "{units:?}");
            assert!(slow.iter().all(|unit| *unit == 0) || fast.iter().all(|unit| *unit > 0), "{units:?}");
        }).unwrap();
    }

    /// However threads come and go, sleep and wake, and whatever is allowed: no bind of any policy leaves the
    /// limits, and at the end nothing is bound.
    #[test]
    fn no_bind_ever_leaves_the_limits(
        drawn in proptest::collection::vec(
            (0.0f64..1.0, 0u64..6, 1u64..8, 1u8..255, (0u32..4, 0u64..10, 0u64..4), 0.0f64..3.0),
            1..24,
        ),
        late in 1u8..255,
    ) {
        let set = |mask: u8| CpuSet::from_words(&[u64::from(mask)]);
        let threads: Vec<ScriptedThread> = drawn
            .iter()
            .map(|&(usage, from, long, mask, (app, sleeps, slept), misses)| ScriptedThread {
                lives: second(from)..second(from + long),
                permitted: Some(set(mask)),
                app: AppId(app),
                blocked: vec![second(sleeps)..second(sleeps + slept)],
                rates: vec![(Time(0), ScriptedRates {
                    ipc: 1.0 + usage,
                    ipc_on_slow: 1.0,
                    l2_misses_per_100_cycles: misses,
                    branches: 0.1,
                })],
                ..ScriptedThread::steady(usage)
            })
            .collect();
        for name in policy::names().filter(|name| *name != "exec") {
            let allowed = vec![(Time(0), CpuSet::first_n(8)), (second(4), set(late))];
            let mut world = ScriptedWorld::new(allowed, threads.clone(), second(10)).with_events();
            let policy = policy::build(name).unwrap();
            let mut engine = Engine::new(every_policys_machine(), policy, EngineConfig::default());
            control_loop(&mut world, &mut engine, |input, actions, _| {
                for action in actions {
                    if let Change::Bind(pes) = &action.change {
                        let index = (action.thread.tid - 100) as usize;
                        assert!(!pes.is_empty());
                        let allowed = input.observation().map(|observation| &observation.allowed);
                        assert!(allowed.is_none_or(|allowed| pes.is_subset(allowed)));
                        assert!(pes.is_subset(threads[index].permitted.as_ref().unwrap()));
                    }
                }
            }).unwrap();
            prop_assert!(world.bound().is_empty());
            prop_assert_eq!(world.now(), second(10));
        }
    }
}
