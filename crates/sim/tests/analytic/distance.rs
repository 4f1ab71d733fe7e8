//! What threads pay for handing data to each other, by the distance of their PEs.

use super::{all_done, check};
use corewise_sim::scenario::Scenario;

#[test]
fn threads_that_meet_often_lose_by_distance() {
    // 20,000 barriers after 1 µs of work each: the last thread to arrive takes the line from the other one,
    // and that sees the release. One latency each round, and one more for what the first one to arrive pays.
    let steps = "[{ repeat = { times = 20_000, steps = [{ each = { mcycles = 0.001, demand = 'int' } }, \
        'barrier'] } }]";
    let seconds = |topology: &str, latencies: &str, app: &str| {
        let app = format!("{{ name = 'a', threads = 2, wait = 'spin', {app} }}");
        let text = format!(
            "name = 'distance'\ndemand.int = {{}}\napplication = [{app}]\n[machine]\nname = 'm'\n\
             topology = '{topology}'\nghz = 1.0\nhand_over_ns = {{ {latencies} }}\n"
        );
        all_done(&Scenario::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}")), 1)
    };
    let barriers = format!("steps = {steps}");
    let (close, far) = ("l3:1 core:2 pu:1", "node:2 l3:1 core:1 pu:1");
    let latencies = "l3 = 40, system = 160";
    check("barriers, nothing to pay", &[seconds(close, "l3 = 0.001", &barriers)], 0.02, 0.0201);
    check("barriers below one cache", &[seconds(close, latencies, &barriers)], 0.0208, 0.0218);
    check("barriers across nodes", &[seconds(far, latencies, &barriers)], 0.0232, 0.0268);
    let critical = "{ critical = { lock = 'l', work = { mcycles = 0.001, demand = 'int' } } }";
    let locks = format!("steps = [{{ repeat = {{ times = 10_000, steps = [{critical}] }} }}]");
    // Each time the lock comes from the other PE.
    check("a lock below one cache", &[seconds(close, latencies, &locks)], 0.0206, 0.0212);
    check("a lock across nodes", &[seconds(far, latencies, &locks)], 0.0229, 0.0236);
    let parts = "steps = [{ parallel = { mcycles = 20, demand = 'int', parts = 20_000 } }]";
    check("parts below one cache", &[seconds(close, latencies, parts)], 0.0102, 0.0108);
    check("parts across nodes", &[seconds(far, latencies, parts)], 0.0112, 0.012);
    let chain = "steps = [{ repeat = { times = 10_000, steps = [{ chain = { work = { mcycles = 0.001, \
        demand = 'int' }, ring = true } }] } }]";
    check("a wave below one cache", &[seconds(close, latencies, chain)], 0.0206, 0.0212);
    check("a wave across nodes", &[seconds(far, latencies, chain)], 0.0229, 0.0236);
}
