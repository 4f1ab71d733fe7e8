//! Bounded queues between applications.

use crate::{all_done, check, scenario};

fn app(name: &str, times: u32, steps: &str) -> String {
    format!("{{ name = '{name}', steps = [{{ repeat = {{ times = {times}, steps = [{steps}] }} }}] }}")
}

fn work(ms: u32) -> String {
    format!("{{ each = {{ mcycles = {ms}, demand = 'int' }} }}")
}

#[test]
fn a_pipeline_is_as_fast_as_its_slowest_part() {
    let maker = app("maker", 100, &format!("{}, {{ put = 'jobs' }}", work(1)));
    let user = |ms| app("user", 100, &format!("{{ take = 'jobs' }}, {}", work(ms)));
    let seconds = |pes: u32, ms, capacity: u32| {
        let rest = format!("queue.jobs.capacity = {capacity}");
        all_done(&scenario(&format!("core:{pes} pu:1"), &format!("{maker}, {}", user(ms)), &rest), 1)
    };
    // The first job is there after 1 ms; each of 100 then takes 3.
    check("a slow user", &[seconds(2, 3, 2)], 0.301, 0.304);
    check("a fast user", &[seconds(2, 1, 2)], 0.101, 0.103);
    check("both on one PE", &[seconds(1, 3, 2)], 0.4, 0.41);
}

#[test]
fn a_full_queue_stops_the_thread_that_fills_it() {
    // The maker is done when the user has taken all but what the queue holds, and one that waits to be put.
    let maker = app("maker", 10, &format!("{}, {{ put = 'jobs' }}", work(1)));
    let user = app("user", 10, &format!("{{ take = 'jobs' }}, {}", work(10)));
    let first = |capacity: u32| {
        let rest = format!("queue.jobs.capacity = {capacity}");
        crate::first_done(&scenario("core:2 pu:1", &format!("{maker}, {user}"), &rest), 1)
    };
    check("a queue of 1", &[first(1)], 0.081, 0.0815);
    check("a queue of 4", &[first(4)], 0.051, 0.0515);
    check("a queue of 20", &[first(20)], 0.01, 0.0101);
}

#[test]
fn a_queue_with_one_thing_is_a_lock_between_applications() {
    let holds = format!("{{ take = 'lock' }}, {}, {{ put = 'lock' }}", work(1));
    let apps: Vec<String> = (0..3).map(|number| app(&format!("a{number}"), 50, &holds)).collect();
    let rest = "queue.lock = { capacity = 1, filled = 1 }";
    check("3 of 50 ms", &[all_done(&scenario("core:4 pu:1", &apps.join(", "), rest), 1)], 0.15, 0.151);
}
