//! What is done about the waits of simulated programs while rules and clients change their minds.

use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::plan::{Action, Change, SettingKind};
use corewise_core::policy;
use corewise_core::world::control_loop;
use corewise_sim::machine::Machine;
use corewise_sim::scenario::Scenario;
use corewise_sim::world::SimWorld;

/// Two programs on two PEs whose idle threads spin, of which the first is treated so.
fn scenario(treatments: &str) -> Scenario {
    let steps = "steps = [{ repeat = { times = 100000, steps = [{ each = { mcycles = 0.3, demand = 'int' } \
                 }, 'barrier'] } }]";
    let application = |name: &str| {
        format!("[[application]]\nname = '{name}'\nthreads = 2\nwait = {{ library = {{}} }}\n{steps}\n")
    };
    let text = format!(
        "name = 'two'\ninterval = '20ms'\nstop = {{ time = '2s' }}\n\
         [machine]\nname = 'm'\ntopology = 'core:2 pu:1'\n[demand]\nint = {{ ipc = 1.0 }}\n\
         {}treatment = [{treatments}]\n{}\
         [[variant]]\nname = 'waits'\npolicy = 'default'\nwaits = 'auto'\n",
        application("a"),
        application("b")
    );
    Scenario::parse(&text).unwrap()
}

/// For each tenth of a second whether the spin count of the first program was changed in it, and why it was
/// given back.
fn drawn(treatments: &str) -> (String, Vec<String>) {
    let scenario = scenario(treatments);
    let sim = scenario.simulation(&scenario.variants[0], 1).unwrap();
    let config = EngineConfig {
        waits: scenario.variants[0].waits.changes(),
        ..EngineConfig::with_interval(scenario.interval)
    };
    let machine = scenario.believed(&Machine::new(scenario.machine.clone()).unwrap()).unwrap();
    let mut engine = Engine::new(machine, policy::build("default").unwrap(), config);
    let (mut drawn, mut reasons) = (vec!['.'; 20], Vec::new());
    let (mut first, mut last) = (None, 0);
    let Ok(()) = control_loop(&mut SimWorld::new(sim, 1), &mut engine, |input, actions, engine| {
        let observation = input.observation().and_then(|observation| observation.threads.first());
        first = first.or(observation.map(|reading| reading.thread));
        let Some(first) = first else { return };
        let is_changed = engine.present().settings.contains_key(&(first, SettingKind::SpinCount));
        let now = ((input.at().as_secs_f64() * 10.0) as usize).min(drawn.len() - 1);
        // What has begun to hold is seen at the next look.
        if is_changed && now > last {
            drawn[last..=now].fill('s');
        }
        last = now;
        let is_reset = |action: &&Action| {
            action.thread == first && action.change == Change::Reset(SettingKind::SpinCount)
        };
        reasons.extend(actions.iter().filter(is_reset).map(|action| action.reason.to_string()));
    });
    (drawn.into_iter().collect(), reasons)
}

#[test]
fn waits_change_only_while_they_may_and_are_given_back_with_the_reason() {
    let (always, _) = drawn("");
    assert!(always.trim_start_matches('.').len() > 15 && !always.trim_start_matches('.').contains('.'));
    for word in ["off", "turns"] {
        let (never, _) = drawn(&format!("{{ waits = '{word}' }}"));
        assert!(!never.contains('s'), "{word}: {never}");
    }
    let (meanwhile, reasons) = drawn(
        "{}, { from = '600ms', left_alone = 'detached', waits = 'off' }, { from = '1200ms', waits = 'spin' }",
    );
    assert!(meanwhile[..6].contains('s') && meanwhile[14..].contains('s'), "{meanwhile}");
    assert_eq!(&meanwhile[7..12], ".....", "{meanwhile}");
    assert!(reasons.contains(&"detached".to_owned()), "{reasons:?}");
}

#[test]
fn treatments_are_in_the_order_of_time_and_name_pes_that_there_are() {
    let refusal = |treatments: &str| {
        let text = format!(
            "name = 'x'\n[machine]\nname = 'm'\ntopology = 'core:2 pu:1'\n[demand]\nint = {{ ipc = 1.0 }}\n\
             [[application]]\nname = 'a'\nsteps = [{{ sleep = '1ms' }}]\ntreatment = [{treatments}]\n"
        );
        Scenario::parse(&text).unwrap_err().to_string()
    };
    let order = refusal("{ from = '2s' }, { from = '1s' }");
    assert!(order.contains("in the order of time"), "{order}");
    let pes = refusal("{ pes = '7' }");
    assert!(pes.contains("`a`: treatment: "), "{pes}");
}
