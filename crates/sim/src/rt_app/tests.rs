use super::*;
use crate::scenario::{Scenario, Variant};

fn machine() -> MachineSpec {
    MachineSpec { ghz: 2.0, ..MachineSpec::plain("core:2 pu:1") }
}

fn imported(text: &str) -> Result<Scenario, String> {
    let table = scenario("test", text, &machine()).map_err(|error| error.to_string())?;
    Scenario::from_table(table, &[]).map_err(|error| error.to_string())
}

/// When every task has ended, in seconds.
fn seconds(text: &str) -> f64 {
    let scenario = imported(text).unwrap_or_else(|error| panic!("{error}"));
    let mut sim =
        scenario.simulation(&Variant::policy("default".parse().expect("a policy")), 1).expect("a simulation");
    sim.run_until(corewise_core::time::Time(u64::MAX));
    sim.all_done().expect("it ends").as_secs_f64()
}

fn task(events: &str) -> String {
    format!("{{\"tasks\": {{\"t\": {{{events}}}}}, \"global\": {{\"duration\": 2}}}}")
}

#[test]
fn runs_sleeps_and_timers_take_their_time() {
    let close = |events: &str, expected: f64| {
        let took = seconds(&task(events));
        assert!((took / expected - 1.0).abs() < 0.01, "{events}: {took}, not {expected}");
    };
    close(r#""loop": 10, "run": 5000, "sleep": 15000"#, 0.2);
    // The same key again, and with a suffix, in this order.
    close(r#""loop": 10, "run": 5000, "sleep": 5000, "run": 3000, "run1": 2000"#, 0.15);
    close(r#""loop": 10, "run": 5000, "timer": {"ref": "a", "period": 20000}"#, 0.2);
    close(r#""loop": 4, "phases": {"p": {"loop": 5, "run": 1000}, "q": {"sleep": 5000}}"#, 0.04);
    close(r#""delay": 500000, "loop": 1, "runtime": 100000"#, 0.6);
    // For ever: as many loops as the duration has room for.
    close(r#""run": 5000, "sleep": 15000"#, 2.0);
    // Three threads with one lock, on two PEs.
    close(r#""instance": 3, "loop": 10, "lock": "m", "run": 4000, "run": 1000, "unlock": "m""#, 0.15);
    close(r#""instance": 2, "loop": 10, "run": 5000, "barrier": "b""#, 0.05);
    close(r#""instance": 2, "cpus": [1], "loop": 10, "run": 5000"#, 0.1);
}

#[test]
fn what_cannot_be_simulated_is_refused_by_name() {
    for (text, words) in [
        ("{", "strict JSON"),
        ("[]", "the file: a list stands where an object must"),
        (r#"{"global": {}}"#, "tasks: it is missing"),
        (r#"{"tasks": {}, "colour": 1}"#, "colour: there is no such key"),
        (&task(r#""run": 5, "resume": "x""#), "tasks.t.resume: the event `resume` cannot be simulated"),
        (&task(r#""suspend": "t", "run": 5"#), "tasks.t.suspend"),
        (&task(r#""priority": -19, "run": 5"#), "tasks.t.priority: -19: the simulator has no priorities"),
        (&task(r#""policy": "SCHED_FIFO", "run": 5"#), "tasks.t.policy: `SCHED_FIFO`"),
        (&task(r#""phases": {"p": {"cpus": [0], "run": 5}}"#), "tasks.t.phases.p.cpus"),
        (&task(r#""phases": {"p": {"run": 5}}, "run": 5"#), "tasks.t.run: it stands beside `phases`"),
        (&task(r#""run": -5"#), "tasks.t.run: -5 must be a whole number"),
        (&task(r#""membind_nodes": [0], "run": 5"#), "tasks.t.membind_nodes"),
        (&task(r#""util_min": 5, "run": 5"#), "tasks.t.util_min"),
        (&task(r#""taskgroup": "/a", "run": 5"#), "tasks.t.taskgroup"),
        (&task(r#""lock": "m", "run": 5"#), "the lock `m` is held beyond the phase"),
        (&task(r#""lock": "m", "sleep": 5, "unlock": "m""#), "tasks.t.sleep: under the lock `m`"),
        (&task(r#""unlock": "m", "run": 5"#), "tasks.t.unlock: the lock `m` is not held"),
        (&task(r#""cpus": [], "run": 5"#), "tasks.t.cpus: it is empty"),
        (&task(r#""instance": 2, "timer": {"ref": "a", "period": 5}"#), "share the timer `a`"),
        (&task(r#""timer": {"period": 5}"#), "tasks.t.timer: it has no `ref`"),
        (r#"{"tasks": {"t": {"run": 5}}}"#, "tasks.t: it loops for ever"),
        (r#"{"tasks": {}, "global": {"calibration": "CPU7"}}"#, "`CPU7` is not a PE"),
        (r#"{"tasks": {}, "global": {"default_policy": "SCHED_RR"}}"#, "global.default_policy"),
        (
            r#"{"tasks": {"a": {"loop": 1, "lock": "m", "run": 1, "unlock": "m"},
                "b": {"loop": 1, "lock": "m", "run": 1, "unlock": "m"}}}"#,
            "tasks.b.lock: the lock `m` is shared with tasks.a",
        ),
    ] {
        let error = imported(text).expect_err(text);
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn a_run_is_as_much_work_as_on_the_calibrated_cpu() {
    let slow = r#"{ pes = "1", speed = 0.5 }"#;
    let speeds = toml::from_str::<Table>(&format!("speeds = [{slow}]")).expect("TOML");
    let speeds = speeds["speeds"].clone().try_into().expect("speeds");
    let machine = MachineSpec { speeds, ..machine() };
    let mcycles = |cpu: &str| {
        let text = format!(
            "{{\"tasks\": {{\"t\": {{\"loop\": 1, \"run\": 1000}}}}, \"global\": {{\"calibration\": {cpu}}}}}"
        );
        let table = scenario("test", &text, &machine).expect("a scenario");
        table["application"][0]["steps"][0]["each"]["mcycles"].as_float()
    };
    assert_eq!((mcycles("\"CPU0\""), mcycles("\"CPU1\""), mcycles("90")), (Some(2.0), Some(1.0), Some(2.0)));
    // PE 0 is not used: the first that is takes its place.
    let without_first = MachineSpec { disabled: Some("0".to_owned()), ..machine.clone() };
    let table = scenario("test", &task("\"loop\": 1, \"run\": 1000"), &without_first).expect("a scenario");
    assert_eq!(table["application"][0]["steps"][0]["each"]["mcycles"].as_float(), Some(1.0));
    let text = r#"{"tasks": {}, "global": {"calibration": "CPU7"}}"#;
    let error = scenario("test", text, &without_first).expect_err("no such PE").to_string();
    assert!(error.ends_with("`CPU7` is not a PE of the machine: write CPU1"), "{error}");
    let error = scenario("test", &task("\"runtime\": 5"), &machine).expect_err("no amount of work");
    assert!(error.to_string().contains("tasks.t.runtime"), "{error}");
}
