//! The registry and specifications of policies.

use super::*;
use crate::classify::FpuClass;
use crate::ids::{AppId, PeId, ThreadId};
use crate::losses::{Knowledge, KnownDemand};
use crate::machine_model::MachineModel;
use crate::observe::Event;
use crate::observe::{RunnableThreads, Standing};
use crate::plan::Assignment;
use crate::time::Time;
use crate::topology::{CpuKind, Topology};
use crate::view::{ApplicationView, ThreadView};
use crate::view::{Estimate, Source, Usage};
use std::collections::BTreeMap;
use std::sync::Arc;

fn error(text: &str) -> String {
    text.parse::<PolicySpec>().expect_err(text).to_string()
}

#[test]
fn an_unknown_name_or_parameter_is_reported_with_the_known_ones_and_the_nearest() {
    let unknown = error("spraed");
    assert!(unknown.starts_with("there is no policy `spraed`; there are: spread, default, "), "{unknown}");
    assert!(unknown.ends_with("the nearest is `spread`"), "{unknown}");
    let expected = "the policy pa has no parameter `hp_treshold`; it has: hp_threshold, amp_boost_ticks, \
        stay, patience; the nearest is `hp_threshold`";
    assert_eq!(error("pa:hp_treshold=3"), expected);
    assert_eq!(error("default:a=1"), "the policy default has no parameter `a`; it has: none");
}

#[test]
fn a_wrong_value_is_reported_with_the_permitted_ones() {
    for (text, expected) in [
        ("pa:hp_threshold=0", "hp_threshold=0: the value must be a whole number from 1 to 1000000"),
        ("pa:hp_threshold=1.5", "a whole number"),
        ("pa:stay=1", "stay=1: the value must be a time from 1ms to 3600s, with its unit"),
        ("rr:stay=2h", "a time from 1ms"),
        ("cosched:fixed_share_max=1.1", "a number from 0 to 1"),
        ("cosched:gain_min=nan", "a number from 0 to 1000000000"),
        ("static-ipc:ratios.a=0", "ratios.a=0: the value must be a number above 0"),
        ("static-ipc:ratios.a=x", "ratios.a=x"),
        ("static-ipc:ratios=2", "no parameter `ratios`"),
        ("pa:stay", "`stay` is not a parameter: write NAME=VALUE"),
        ("pa:stay=1s,stay=2s", "`stay=2s` is not a parameter: write NAME=VALUE, each once"),
        ("pa:stay=1s,", "`` is not a parameter"),
    ] {
        let said = error(text);
        assert!(said.contains(expected), "{text}: {said}");
    }
}

#[test]
fn defaults_are_values_that_may_be_written_and_all_policies_can_be_made() {
    for kind in KINDS.iter().filter(|kind| !kind.takes_command()) {
        let spec = PolicySpec::from(*kind);
        assert_eq!(spec.build(None).unwrap().name(), kind.name);
        assert!(kind.rule.len() > 10 && !kind.machine.is_empty() && !kind.source.is_empty());
        for Parameter { name, default, doc, .. } in kind.parameters() {
            assert!(doc.len() > 10, "{name}");
            if default.starts_with(|c: char| c.is_ascii_digit()) {
                let text = format!("{}:{name}={default}", kind.name);
                let policy = build(&text).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!((policy.name(), policy.needs()), (text.as_str(), kind.needs()));
            }
        }
    }
}

#[test]
fn names_are_unique() {
    let distinct: std::collections::BTreeSet<&str> = names().collect();
    assert_eq!(distinct.len(), KINDS.len());
    for kind in KINDS {
        let parameters = kind.parameters();
        let distinct: std::collections::BTreeSet<&str> = parameters.iter().map(|p| p.name).collect();
        assert_eq!(distinct.len(), parameters.len(), "{}", kind.name);
    }
}

#[test]
fn a_specification_is_written_as_it_is_read_and_the_same_in_files() {
    let spec: PolicySpec = "pa: stay = 500ms , hp_threshold=3".parse().unwrap();
    assert_eq!(spec.to_string(), "pa:hp_threshold=3,stay=500ms");
    assert_eq!(spec.to_string().parse(), Ok(spec.clone()));
    let from_file = |text: &str| serde_json::from_str::<PolicySpec>(text).map_err(|error| error.to_string());
    assert_eq!(from_file(r#""pa:hp_threshold=3,stay=500ms""#), Ok(spec.clone()));
    assert_eq!(from_file(r#"{"name": "pa", "hp_threshold": 3, "stay": "500ms"}"#), Ok(spec));
    let ratios = from_file(r#"{"name": "static-ipc", "ratios": {"a b": 1.5, "c": 2}}"#).unwrap();
    assert_eq!(ratios.to_string(), "static-ipc:ratios.a b=1.5,ratios.c=2");
    for (text, expected) in [
        (r#""best""#, "there is no policy `best`"),
        (r#"{"name": "pa", "stays": 1}"#, "no parameter `stays`"),
        (r#"{"stay": 1}"#, "a policy is written"),
        ("7", "a policy is written"),
    ] {
        let error = from_file(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_parameter_may_be_given_by_the_name_that_it_had_before() {
    for text in ["pa:turn=2s", "rr:turn=2s"] {
        assert_eq!(text.parse::<PolicySpec>().map(|spec| spec.to_string()), Ok(text.to_owned()));
    }
    assert!("pa:turn=2h".parse::<PolicySpec>().unwrap_err().to_string().contains("a time from 1ms"));
    let both = "pa:turn=1s,stay=2s".parse::<PolicySpec>().unwrap_err().to_string();
    assert!(both.contains("no parameter `turn`"), "{both}");
}

#[test]
fn parameters_that_are_given_win_over_common_ones() {
    let spec: PolicySpec = "pa:stay=2s".parse().unwrap();
    let common = [("stay", "1s"), ("hp_threshold", "4")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    assert_eq!(spec.or(&common).unwrap().to_string(), "pa:hp_threshold=4,stay=2s");
}

#[test]
fn the_parallelism_of_an_application_is_answered_once_and_its_rest_where_others_are_kept_away() {
    let only = |tid| Some(ThreadId { tid, generation: 0 });
    let reports = [(1, only(1)), (1, only(1)), (1, only(2)), (0, None), (1, only(2)), (0, None)];
    for (claims, expected) in [
        (Claims::Weights, [true, false, true, false, false, false]),
        (Claims::Masks, [true, false, true, true, true, true]),
    ] {
        for name in ["pa", "mintlp"] {
            let mut policy = build(name).unwrap();
            let machine = MachineModel::from(Topology::synthetic("core:2 pu:1").unwrap());
            let mut answers = |count, only| {
                let app = AppId(0);
                let exact = true;
                let runnable = Some(count);
                let view =
                    ApplicationView { tlp_mean: 1.0, sequential_fraction: None, exact, runnable, only };
                policy.answers(&Scene {
                    now: Time(0),
                    cause: Cause::Events(&[Event::TlpChanged(RunnableThreads { app, count, only })]),
                    machine: &machine,
                    knowledge: Knowledge::NONE,
                    allowed: &machine.topology.allowed,
                    claims,
                    threads: &[],
                    applications: &[(app, view)].into(),
                })
            };
            assert_eq!(reports.map(|(count, only)| answers(count, only)), expected, "{name}, {claims:?}");
        }
    }
}

#[test]
fn threads_that_are_seen_spinning_count_as_if_they_had_said_so() {
    // Three of the four threads of application 0 spin while the first works; application 1 has two threads.
    let machine = machine_of_two_kinds();
    let share = |value| Some(Estimate { value, confidence: 1.0, source: Source::Samples });
    let subject = |index: u32| {
        let spin = share(if (1..4).contains(&index) { 0.9 } else { 0.1 });
        let view = ThreadView {
            thread: ThreadId { tid: index, generation: 0 },
            app: AppId(u32::from(index >= 4)),
            runnable_share: 1.0,
            last_pe: None,
            standing: Standing::Free,
            permitted: Arc::new(machine.topology.allowed.clone()),
            usage: Usage { spin, ..Usage::default() },
        };
        Subject::example(view)
    };
    let threads: Vec<Subject> = (0..6).map(subject).collect();
    let view = |count| ApplicationView {
        tlp_mean: 1.0,
        sequential_fraction: None,
        exact: true,
        runnable: Some(count),
        only: None,
    };
    let scene = Scene {
        now: Time(0),
        cause: Cause::Interval,
        machine: &machine,
        knowledge: Knowledge::NONE,
        allowed: &machine.topology.allowed,
        claims: Claims::Weights,
        threads: &threads,
        applications: &[(AppId(0), view(4)), (AppId(1), view(2))].into(),
    };
    for name in ["pa:hp_threshold=1", "mintlp"] {
        let placement = build(name).unwrap().place(&scene);
        let bound: Vec<u32> = placement.bound.keys().map(|thread| thread.tid).collect();
        assert_eq!(bound, [0], "{name}");
    }
}

fn machine_of_two_kinds() -> MachineModel {
    let mut topology = Topology::synthetic("core:4 pu:1").unwrap();
    let kind = |name: &str, pes: &str| CpuKind {
        name: name.to_owned(),
        pes: pes.parse().unwrap(),
        evidence: Vec::new(),
        speed: None,
    };
    topology.kinds = vec![kind("fast", "0"), kind("slow", "1-3")];
    MachineModel::from(topology)
}

#[test]
fn spread_puts_a_second_thread_where_it_is_predicted_to_cost_least() {
    // Two cores of two PEs below one L3. Threads 0 and 1 have the cores; 0 fills its L2.
    // Thread 2 would, too: it belongs beside 1. Without measurements it is as good beside 0.
    let mut machine = MachineModel::from(Topology::synthetic("l3:1 l2:2 core:1 pu:2").unwrap());
    let known = |value| Some(Estimate { value, confidence: 1.0, source: Source::Counters });
    let subject = |tid: u32, misses: f64, bound: Option<&str>| {
        let usage = Usage { fpu: known(0.5), l2_misses_per_100_cycles: known(misses), ..Usage::default() };
        let view = ThreadView {
            thread: ThreadId { tid, generation: 0 },
            app: AppId(0),
            runnable_share: 1.0,
            last_pe: Some(PeId(0)),
            standing: Standing::Free,
            permitted: Arc::new(machine.topology.allowed.clone()),
            usage,
        };
        let assignment = bound.map(|pes| Assignment { pes: pes.parse().unwrap(), reason: "".into() });
        Subject {
            fpu_class: FpuClass::Intensive,
            assignment,
            name: format!("t{tid}").into(),
            ..Subject::example(view)
        }
    };
    let threads = [subject(0, 0.5, Some("0-1")), subject(1, 0.0, Some("2-3")), subject(2, 0.5, None)];
    // How large their working sets are no counter tells: earlier runs did.
    let set = KnownDemand { working_set_mib: known(0.2), ..KnownDemand::default() };
    let knowledge = Knowledge { demands: [("t0".into(), set), ("t2".into(), set)].into() };
    machine.l2_bytes = vec![Some(262144.0); machine.l2_bytes.len()];
    let placed = |machine: &MachineModel| {
        let scene = Scene {
            now: Time(0),
            cause: Cause::Interval,
            machine,
            knowledge: &knowledge,
            allowed: &machine.topology.allowed,
            claims: Claims::Weights,
            threads: &threads,
            applications: &BTreeMap::new(),
        };
        build("spread").unwrap().place(&scene).bound[&threads[2].view.thread].pes.to_string()
    };
    assert_eq!(placed(&machine), "0-1", "nearest to where it ran");
    machine.state("the test");
    assert_eq!(placed(&machine), "2-3");
}
