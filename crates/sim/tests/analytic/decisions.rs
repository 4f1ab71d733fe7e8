//! Decisions: what they cost, what they are based on, and those at dispatch.

use super::check;
use corewise_sim::comparison::{Comparison, compare};
use corewise_sim::scenario::Scenario;

fn compared(text: &str) -> Comparison {
    compare(&Scenario::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")), None)
        .expect("a comparison")
}

/// A program of 2 s on each of two PEs, with a policy that changes nothing but decides every 10 ms.
fn deciding(applications: &str, decisions: &str) -> f64 {
    let found = compared(&format!(
        "name = 's'\nruns = 2\ninterval = '10ms'\ndemand.int = {{}}\n{decisions}\n\
         application = [{applications}]\nvariant = [{{ name = 'spread', policy = 'spread' }}]\n\
         [machine]\nname = 'm'\nghz = 1.0\ntopology = 'core:2 pu:1'\n"
    ));
    found.variants[1].speedup.expect("it completes").value
}

#[test]
fn decisions_take_a_pe_s_time() {
    let hog = |name: &str| {
        format!("{{ name = '{name}', steps = [{{ each = {{ mcycles = 2000, demand = 'int' }} }}] }}")
    };
    let two = format!("{}, {}", hog("a"), hog("b"));
    // 200 µs of each 10 ms, of one of the two PEs: 1 % of both.
    let costly = "decisions = { latency = '0s', cpu_us = 180.0, cpu_per_thread_us = 10.0 }";
    check("two threads on two PEs", &[1.0 / deciding(&two, costly)], 1.0095, 1.0105);
    check("an idle PE decides", &[deciding(&hog("a"), costly)], 0.9999, 1.0001);
    let free =
        "decisions = { latency = '0s', cpu_us = 0.0, cpu_per_thread_us = 0.0, cpu_per_event_us = 0.0 }";
    check("free decisions", &[deciding(&two, free)], 0.9999, 1.0001);
    // 100 µs and 2 µs a thread, as measured: 104 of each 10,000.
    check("as measured", &[1.0 / deciding(&two, "")], 1.0048, 1.0056);
}

#[test]
fn a_decision_takes_effect_after_its_latency() {
    // Alone on the slow PE until PA's first decision, at 100 ms and the latency, moves it: it has done 50
    // Mcycles then, and half of what it does in the latency.
    let text = |latency: u32| {
        format!(
            "name = 's'\nruns = 1\ninterval = '100ms'\ndemand.int = {{}}\n\
             decisions = {{ latency = '{latency}ms', cpu_us = 0.0, cpu_per_thread_us = 0.0 }}\n\
             application = [{{ name = 'a', steps = [{{ each = {{ mcycles = 1000, demand = 'int' }} }}] }}]\n\
             variant = [{{ name = 'pa', policy = 'pa' }}]\n\
             [machine]\nname = 'm'\nghz = 1.0\ntopology = 'core:2 pu:1'\n\
             speeds = [{{ pes = '1', speed = 0.5 }}]\n"
        )
    };
    let seconds = |latency: u32, seed: u64| {
        let mut scenario = Scenario::parse(&text(latency)).expect("a scenario");
        scenario.seed = seed;
        let found = compare(&scenario, None).expect("a comparison");
        found.variants[1].all_done_seconds.expect("it is done").value
    };
    // One of two consecutive seeds begins on the slow PE.
    let slower = |latency| seconds(latency, 1).max(seconds(latency, 2));
    check("at once", &[slower(0)], 1.049, 1.052);
    check("after 80 ms", &[slower(80)], 1.089, 1.092);
}

#[test]
fn policies_may_believe_in_another_machine() {
    let text = |predictor: &str| {
        format!(
            "name = 's'\nruns = 2\ninterval = '10ms'\ndemand.int = {{}}\n{predictor}\n\
             application = [{{ name = 'a', steps = [{{ each = {{ mcycles = 1000, demand = 'int' }} }}] }}]\n\
             variant = [{{ name = 'pa', policy = 'pa' }}]\n\
             [machine]\nname = 'm'\nghz = 1.0\ntopology = 'core:2 pu:1'\n\
             speeds = [{{ pes = '1', speed = 0.5 }}]\n"
        )
    };
    let seconds =
        |predictor: &str| compared(&text(predictor)).variants[1].all_done_seconds.expect("it is done").value;
    check("the truth", &[seconds("")], 1.0, 1.02);
    let wrong = "predictor.speeds = [{ pes = '0', speed = 0.5 }]";
    check("the slow PE is believed to be the fast one", &[seconds(wrong)], 1.98, 2.02);
    let error =
        Scenario::parse(&text("predictor.topology = 'core:4 pu:1'")).expect_err("other PEs").to_string();
    assert!(error.contains("the PEs that there are"), "{error}");
}

#[test]
fn what_threads_cost_each_other_may_be_judged_by_measured_pairs() {
    // The model knows of nothing that these demands share. Measured: beside `b` on the same L3 `a` takes 1.5
    // times as long, for as long as `b` runs: 600 ms and, after 1 s of `b`, what is left at full speed.
    let text = |judge: &str, topology: &str| {
        format!(
            "name = 's'\nruns = 1\ndemand = {{ a = {{ fpu = 0.1 }}, b = {{ fpu = 0.2 }} }}\n{judge}\n\
             variant = [{{ name = 'default', policy = 'default' }}]\n\
             application = [{{ name = 'a', steps = [{{ each = {{ mcycles = 1000, demand = 'a' }} }}] }},\n\
             {{ name = 'b', steps = [{{ each = {{ mcycles = 900, demand = 'b' }} }}] }}]\n\
             [machine]\nname = 'm'\nghz = 1.0\ntopology = '{topology}'\n"
        )
    };
    let seconds = |judge: &str, topology: &str, app: usize| {
        compared(&text(judge, topology)).variants[0].applications[app].seconds.expect("it is done").value
    };
    let judge = "judge.pairs = [{ of = 'a', beside = 'b', shares = 'l3', slowdown = 1.5 }]";
    let (close, far) = ("l3:1 core:2 pu:1", "l3:2 core:1 pu:1");
    check("by the model", &[seconds("", close, 0)], 0.999, 1.001);
    check("by the pairs, the one that suffers", &[seconds(judge, close, 0)], 1.299, 1.301);
    check("by the pairs, the other one", &[seconds(judge, close, 1)], 0.899, 0.901);
    check("apart", &[seconds(judge, far, 0)], 0.999, 1.001);
    let unknown = text("judge.pairs = [{ of = 'c', beside = 'b', shares = 'l3', slowdown = 1.5 }]", close);
    let error = Scenario::parse(&unknown).expect_err("an unknown demand").to_string();
    assert!(error.contains("[demand.c]"), "{error}");
}

#[test]
fn a_choice_at_dispatch_sets_unlike_threads_beside_each_other() {
    // Two of each kind alternate on the two PEs of a core. Likes beside each other take twice as long for
    // the one kind; the system's queues meet by chance.
    let found = compared(
        "name = 's'\nruns = 16\ninterval = '100ms'\nstop = { time = '20s', completions = 1_000_000 }\n\
         os = { slice = '100ms' }\n\
         demand = { int = { fpu = 0.0 }, fp = { fpu = 1.0 } }\n\
         application = [\n\
           { name = 'fp', copies = 4, steps = [{ each = { mcycles = 1e6, demand = 'fp' } }] },\n\
           { name = 'int', copies = 4, steps = [{ each = { mcycles = 1e6, demand = 'int' } }] },\n\
         ]\n\
         variant = [{ name = 'chosen', policy = 'default', dispatch = 'cosched' }]\n\
         [machine]\nname = 'm'\nghz = 1.0\ntopology = 'l2:1 core:1 pu:2'\n\
         units = { fpu_conflict = 1.0, issue_conflict = 0.0 }\n",
    );
    let gain = found.variants[1].weighted_speedup_over_default.expect("it runs");
    println!("chosen at dispatch, over the default: {gain:?}");
    assert!(gain.low > Some(1.0), "{gain:?}");
    // Nobody gets less time for it.
    let progress = |variant: usize, app: usize| {
        found.variants[variant].applications[app].progress.expect("it runs").value
    };
    for app in 0..2 {
        assert!(
            progress(1, app) > 0.97 * progress(0, app),
            "{app}: {} {}",
            progress(1, app),
            progress(0, app)
        );
    }
}

#[test]
fn a_claim_by_weight_comes_before_threads_that_no_mask_keeps_away() {
    // Three free threads share the two PEs with the one that has the claim, which would have half a PE alone
    // by its binding. Fifteen nice levels give it 88761 parts of 88761 + 1024 beside one of them.
    let found = |seed: u64| {
        compared(&format!(
            "name = 's'\nseed = {seed}\nruns = 1\ninterval = '10ms'\nclaims = 'weights'\ndemand.int = {{}}\n\
             variant = [{{ name = 'mintlp', policy = 'mintlp' }}]\n\
             application = [{{ name = 'a', steps = [{{ each = {{ mcycles = 1000, demand = 'int' }} }}] }},\n\
             {{ name = 'b', threads = 3, steps = [{{ each = {{ mcycles = 4000, demand = 'int' }} }}] }}]\n\
             [machine]\nname = 'm'\nghz = 1.0\ntopology = 'core:2 pu:1'\n\
             speeds = [{{ pes = '1', speed = 0.5 }}]\n"
        ))
    };
    let seconds = |seed| found(seed).variants[1].applications[0].seconds.expect("it is done").value;
    check("the thread with the claim", &super::seeds(4, seconds), 1.0, 1.06);
    assert_eq!(found(1).variants[1].settings["weight"].value, 1.0);
}
