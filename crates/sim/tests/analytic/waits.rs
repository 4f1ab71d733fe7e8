//! Cases with answers that arithmetic gives: how programs wait, and what corewise changes about that. Ranges
//! are as wide as what is not determined.

use super::check;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::machine_model::MachineModel;
use corewise_core::plan::SettingKind;
use corewise_core::time::Time;
use corewise_core::world::{World, control_loop};
use corewise_sim::machine::Machine;
use corewise_sim::scenario::{Scenario, Variant, WaitsSpec};
use corewise_sim::world::SimWorld;

/// A scenario on so many PEs.
fn on(pes: u32, applications: &str) -> Scenario {
    let rest = "stop = { time = '60s' }\nos = { slice = '1500us' }";
    super::scenario(&format!("core:{pes} pu:1"), applications, rest)
}

/// Steps that are done so often.
fn repeat(times: u32, steps: &str) -> String {
    format!("steps = [{{ repeat = {{ times = {times}, steps = [{steps}] }} }}]")
}

/// A program of regions of so many ms of work for each of its threads.
fn team(name: &str, threads: u32, wait: &str, regions: u32, ms: f64) -> String {
    let work = ms * f64::from(threads);
    let steps = repeat(regions, &format!("{{ parallel = {{ mcycles = {work}, demand = 'int' }} }}"));
    format!("{{ name = '{name}', threads = {threads}, wait = {wait}, {steps} }}")
}

fn hog(ms: u32) -> String {
    format!("{{ name = 'hog', steps = [{{ each = {{ mcycles = {ms}, demand = 'int' }} }}] }}")
}

fn model(scenario: &Scenario) -> MachineModel {
    Machine::new(scenario.machine.clone()).expect("a machine").reported_model()
}

/// What a run showed.
struct Found {
    /// When each application was done, in seconds.
    done: Vec<f64>,
    spin_counts: u64,
    turns: u64,
    world: SimWorld,
}

fn run_with(scenario: &Scenario, waits: WaitsSpec, adapt_team: bool, seed: u64) -> Found {
    let default = Variant::policy("default".parse().expect("a policy"));
    let variant = Variant { waits, adapt_team, ..default };
    let sim = scenario.simulation(&variant, seed).expect("a simulation");
    let config = EngineConfig { waits: waits.changes(), ..EngineConfig::default() };
    let policy = variant.policy.build(None).expect("a policy");
    let mut engine = Engine::new(model(scenario), policy, config);
    let mut world = SimWorld::new(sim, seed);
    let Ok(()) = control_loop(&mut world, &mut engine, |_, _, _| {});
    let changes = |kind| world.changed().get(&kind).copied().unwrap_or(0);
    Found {
        done: world.sim().applications().map(|(_, runs, ..)| runs.first().copied().unwrap_or(60.0)).collect(),
        spin_counts: changes(SettingKind::SpinCount),
        turns: changes(SettingKind::Turns),
        world,
    }
}

fn run(scenario: &Scenario, waits: WaitsSpec, seed: u64) -> Found {
    run_with(scenario, waits, false, seed)
}

fn last(found: &Found) -> f64 {
    found.done.iter().copied().fold(0.0, f64::max)
}

fn seeds(figure: impl Fn(u64) -> f64) -> Vec<f64> {
    super::seeds(4, figure)
}

#[test]
fn spinning_then_blocking_costs_what_each_costs_in_a_serial_phase() {
    // 100 times: one of two threads works for 10 ms. The other one spins for 300,000 iterations of 25 ns,
    // 7.5 ms, and blocks; or it blocks at once.
    let phases = |wait: &str| {
        let steps = repeat(100, "{ serial = { mcycles = 10, demand = 'int' } }");
        on(2, &format!("{{ name = 'a', threads = 2, wait = {wait}, {steps} }}"))
    };
    for (wait, least, most) in
        [("{ library = {} }", 1.75, 1.76), ("'sleep'", 1.0, 1.01), ("'spin'", 2.0, 2.01)]
    {
        let cpu = |seed| {
            let found = run(&phases(wait), WaitsSpec::Off, seed);
            found.world.sim().applications().map(|(_, _, cpu_ns, _)| cpu_ns as f64 / 1e9).sum()
        };
        check(&format!("CPU time with {wait}"), &seeds(cpu), least, most);
        // A wait of 10 ms is then a block and a wake-up longer.
        check("time", &seeds(|seed| last(&run(&phases(wait), WaitsSpec::Off, seed))), 1.0, 1.002);
    }
}

#[test]
fn the_serial_phase_of_a_spinning_team_occupies_pes() {
    // A thread works alone for 200 times 5 ms, and its partner spins meanwhile, beside a hog of 1 s on two
    // PEs: 3 s of CPU time on 2 PEs, and no more than 2 s if the partner sleeps.
    let apps = |wait: &str| {
        let steps = repeat(200, "{ serial = { mcycles = 5, demand = 'int' } }");
        on(2, &format!("{{ name = 'a', threads = 2, wait = {wait}, {steps} }}, {}", hog(1000)))
    };
    let time = |wait: &str| seeds(|seed| last(&run(&apps(wait), WaitsSpec::Off, seed)));
    check("spinning", &time("'spin'"), 1.35, 1.75);
    check("sleeping", &time("'sleep'"), 1.0, 1.06);
}

#[test]
fn spinning_then_blocking_beside_a_hog_follows_its_closed_form() {
    // On one PE: one of two threads works for 10 ms at a time, the other one spins for B ms and blocks, and
    // a hog wants the PE. While all three want it, each has a third of it, then two have a half: a phase
    // takes 3 B + 2 (10 - B) ms.
    for (iterations, b) in [(0, 0.0), (100_000, 2.5), (200_000, 5.0), (300_000, 7.5), (1_000_000, 10.0)] {
        let steps = repeat(50, "{ serial = { mcycles = 10, demand = 'int' } }");
        let wait = format!("{{ library = {{ spin_count = {iterations} }} }}");
        let team = format!("{{ name = 'a', threads = 2, wait = {wait}, {steps} }}");
        let scenario = on(1, &format!("{team}, {}", hog(10_000)));
        let expected = 0.05 * (20.0 + b);
        let found = seeds(|seed| run(&scenario, WaitsSpec::Off, seed).done[0]);
        check(&format!("{iterations} iterations"), &found, 0.94 * expected, 1.06 * expected);
    }
}

#[test]
fn spinning_teams_take_turns_for_about_the_sum_of_their_times() {
    // Two waves of two threads that hand work of 50 us to each other 20,000 times: 2 s alone, in which one
    // thread spins. Unchanged they spin on the PEs that the other's threads need.
    let chain = "{ chain = { work = { mcycles = 0.05, demand = 'int' }, ring = true } }";
    let wave = |name: &str| format!("{{ name = '{name}', threads = 2, {} }}", repeat(20_000, chain));
    let alone = on(2, &wave("a"));
    check("alone", &seeds(|seed| last(&run(&alone, WaitsSpec::Off, seed))), 2.0, 2.01);
    let both = on(2, &format!("{}, {}", wave("a"), wave("b")));
    let unchanged = seeds(|seed| last(&run(&both, WaitsSpec::Off, seed)));
    check("unchanged", &unchanged, 4.0, 60.0);
    let turns = seeds(|seed| {
        let found = run(&both, WaitsSpec::Auto, seed);
        assert!(found.turns >= 2 && found.spin_counts == 0, "{} {}", found.turns, found.spin_counts);
        last(&found)
    });
    check("in turns", &turns, 4.0, 6.0);
}

#[test]
fn a_short_spin_count_beside_a_second_copy_is_about_as_good_as_passive() {
    // Regions of 200 us, long enough that blocks cost little: twice the time alone.
    let copies = |wait: &str| {
        on(2, &format!("{}, {}", team("a", 2, wait, 5_000, 0.2), team("b", 2, wait, 5_000, 0.2)))
    };
    let passive = seeds(|seed| last(&run(&copies("'sleep'"), WaitsSpec::Off, seed)));
    check("passive", &passive, 2.0, 2.3);
    let unchanged = seeds(|seed| last(&run(&copies("{ library = {} }"), WaitsSpec::Off, seed)));
    check("unchanged, on average", &[unchanged.iter().sum::<f64>() / 4.0], 2.5, 60.0);
    let adapted = seeds(|seed| {
        let found = run(&copies("{ library = {} }"), WaitsSpec::Auto, seed);
        assert!(found.spin_counts > 0);
        last(&found)
    });
    check("with short spin counts", &adapted, 2.0, 2.7);
}

#[test]
fn the_spin_count_is_restored_when_the_other_program_has_ended() {
    let short = team("b", 2, "{ library = {} }", 1_500, 0.2);
    let scenario = on(2, &format!("{}, {short}", team("a", 2, "{ library = {} }", 20_000, 0.2)));
    for seed in 1..=2 {
        let variant =
            Variant { waits: WaitsSpec::Spin, ..Variant::policy("default".parse().expect("a policy")) };
        let sim = scenario.simulation(&variant, seed).expect("a simulation");
        let config = EngineConfig { waits: WaitsSpec::Spin.changes(), ..EngineConfig::default() };
        let policy = variant.policy.build(None).expect("a policy");
        let mut engine = Engine::new(model(&scenario), policy, config);
        let mut world = SimWorld::new(sim, seed);
        let (mut ended, mut restored) = (None, None);
        let Ok(()) = control_loop(&mut world, &mut engine, |input, actions, _| {
            if let Some(observation) = input.observation() {
                let has_ended = |name: &str| observation.threads.iter().any(|t| t.ended && &*t.name == name);
                if has_ended("b") {
                    ended.get_or_insert(input.at());
                }
            }
            if actions.iter().any(|action| action.change.gives_back()) {
                restored = Some(input.at());
            }
        });
        let (ended, restored): (Time, Time) = (ended.expect("it ends"), restored.expect("it is restored"));
        // Seen within a second, or 50 ms; calm for a tenth of a second, or twice that after a relapse.
        let after = restored.0 as f64 / 1e9 - ended.0 as f64 / 1e9;
        check("restored after", &[after], -1.0, 0.5);
        assert!(world.now() > restored);
    }
}

#[test]
fn a_team_that_adapts_has_its_fair_share_of_the_pes() {
    // The second of two programs of 8 threads on 8 PEs finds 8 threads that want PEs: it starts with 4.
    let scenario =
        on(8, &format!("{}, {}", team("a", 8, "'sleep'", 100, 10.0), team("b", 8, "'sleep'", 100, 10.0)));
    for seed in 1..=2 {
        let found = run_with(&scenario, WaitsSpec::Off, true, seed);
        let mut threads: Vec<usize> =
            ["a", "b"].map(|name| found.world.sim().team_of(name).expect("it is there")).to_vec();
        threads.sort_unstable();
        assert_eq!(threads, [4, 8]);
        // 12 threads on 8 PEs do 16 s of work.
        check("both", &[last(&found)], 2.0, 3.1);
    }
}

#[test]
fn a_thread_that_yields_keeps_its_sessions_turn() {
    let waits = team("yields", 2, "{ yield = {} }", 100, 1.0);
    let rest = "stop = { time = '60s' }\nos = { slice = '1500us', autogroup = true }";
    let scenario = super::scenario("core:1 pu:1", &format!("{waits}, {}", hog(2000)), rest);
    // The two threads hand the PE to each other, and have half of it: 200 ms of work take 400 ms.
    let done = seeds(|seed| run(&scenario, WaitsSpec::Off, seed).done[0]);
    check("two threads that yield beside a hog", &done, 0.36, 0.48);
}
