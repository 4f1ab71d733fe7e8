//! Policies side by side: each thread is placed by the one that rules name for it.

use super::*;
use crate::observe::Treatment;
use crate::policy::{ByRule, Claims};
/// Two fast PEs and two slow ones.
fn two_fast() -> Topology {
    let kind = |name: &str, pes: &str| CpuKind {
        name: name.to_owned(),
        pes: pes.parse().unwrap(),
        evidence: Vec::new(),
        speed: None,
    };
    let kinds = vec![kind("fast", "0-1"), kind("slow", "2-3")];
    Topology { kinds, ..machine(DomainKind::Core, 4, 1) }
}

/// A thread that computes in floating point for all of its time, by the policy of this rule.
fn by(order: u32, policy: &str, app: u32) -> ScriptedThread {
    let treatment = Treatment { policy: Some(policy.into()), order, ..Treatment::default() };
    ScriptedThread { app: AppId(app), treatments: vec![(Time(0), treatment)], ..ScriptedThread::steady(0.9) }
}

fn timeline(own: &str, seconds: u64, threads: Vec<ScriptedThread>) -> String {
    let config = EngineConfig { claims: Claims::Weights, ..EngineConfig::default() };
    let policy = Box::new(ByRule::new(policy::build(own).unwrap()));
    let machine = two_fast();
    draw_with(config, policy, &machine, vec![(Time(0), machine.allowed.clone())], seconds, threads)
}

#[test]
fn threads_whose_policy_leaves_them_stay_free_and_the_others_are_placed() {
    let own = || ScriptedThread::steady(0.9);
    check(
        timeline("spread", 3, vec![own(), by(0, "default", 1), own()]),
        "000
         ...
         111",
    );
}

#[test]
fn policies_choose_in_the_order_of_the_rules_and_the_runs_own_last() {
    // A thread within the fast PEs holds one of them, and the other one is left.
    let own = || ScriptedThread { app: AppId(7), ..ScriptedThread::steady(0.9) };
    let mintlp_first = "111
                        222
                        ***";
    check(timeline("spread", 3, vec![own(), own(), by(0, "mintlp", 1)]), mintlp_first);
    let in_order = |spread, mintlp| {
        let threads = vec![by(spread, "spread", 1), by(spread, "spread", 1), by(mintlp, "mintlp", 2)];
        timeline("default", 3, threads)
    };
    check(in_order(1, 0), mintlp_first);
    check(
        in_order(0, 1),
        "000
         111
         ...",
    );
}

#[test]
fn a_policy_takes_the_pes_that_an_earlier_one_leaves_when_its_threads_rest() {
    let mut first = by(0, "mintlp", 1);
    first.blocked = vec![second(3)..second(6)];
    check(
        timeline("spread", 9, vec![first, ScriptedThread::steady(0.9), ScriptedThread::steady(0.8)]),
        "***...***
         111111111
         222000222",
    );
}

#[test]
fn the_same_specification_is_one_policy() {
    // With a ranking of its own, each application would be the least parallel one.
    let threads = || vec![by(0, "mintlp", 1), by(0, "mintlp", 2), by(0, "mintlp", 2)];
    let one_ranking = "+++
                       ***
                       ...";
    check(timeline("default", 3, threads()), one_ranking);
    check(timeline("mintlp", 3, threads()), one_ranking);
}

/// A thread that a rule keeps on the fast PEs.
fn confined(thread: ScriptedThread, policy: Option<&str>) -> ScriptedThread {
    let pes = Some("0-1".parse().unwrap());
    let treatment = Treatment { pes, policy: policy.map(Into::into), ..Treatment::default() };
    ScriptedThread { treatments: vec![(Time(0), treatment)], ..thread }
}

#[test]
fn a_confined_thread_stays_on_its_pes_whether_or_not_a_policy_binds_it() {
    let (intensive, light) = (|| ScriptedThread::steady(0.9), || ScriptedThread::steady(0.0));
    let threads =
        vec![confined(intensive(), None), confined(light(), None), confined(intensive(), Some("default"))];
    check(
        timeline("spread", 3, threads),
        "000
         ***
         ***",
    );
}

#[test]
fn a_thread_that_starts_programs_is_not_confined() {
    let thread = ScriptedThread { standing: Standing::StartsPrograms, ..ScriptedThread::steady(0.0) };
    check(timeline("spread", 3, vec![confined(thread, None)]), "...");
}

proptest! {
    /// However threads come and go: where rules name one policy for all of them, it decides as it would as
    /// the run's own.
    #[test]
    fn a_policy_that_rules_name_for_all_decides_as_the_runs_own_would(
        drawn in proptest::collection::vec((0.0f64..1.0, 0u64..4, 1u64..6, 0u32..3, 0u64..6), 1..10),
    ) {
        let threads = |by: Option<&str>| -> Vec<ScriptedThread> {
            let thread = |&(usage, from, long, app, rests): &(f64, u64, u64, u32, u64)| {
                let named = |policy: &str| Treatment { policy: Some(policy.into()), ..Treatment::default() };
                ScriptedThread {
                    lives: second(from)..second(from + long),
                    app: AppId(app),
                    blocked: vec![second(rests)..second(rests + 1)],
                    treatments: by.map(|policy| (Time(0), named(policy))).into_iter().collect(),
                    ..ScriptedThread::steady(usage)
                }
            };
            drawn.iter().map(thread).collect()
        };
        for name in policy::names().filter(|name| *name != "exec") {
            let named = timeline("default", 8, threads(Some(name)));
            prop_assert_eq!(named, timeline(name, 8, threads(None)), "{}", name);
        }
    }
}
