use super::*;

#[test]
fn settings_replace_values_by_path() {
    let with = |setting: &str| Scenario::parse_with(GOOD, &[setting.to_owned()]);
    assert_eq!(with("runs=3").unwrap().runs, 3);
    let scenario = with("machine.units.fpu_conflict = 0.25").unwrap();
    assert_eq!(scenario.machine.units.fpu_conflict, 0.25);
    for (setting, words) in [
        ("runs", "setting `runs`: write PATH=VALUE"),
        ("name=x y", "texts need quotes"),
        ("name.x=1", "not a table"),
        ("machine.colour=1", "unknown field `colour`"),
        ("machine.units.fpu_conflict=-2", "fpu_conflict is -2"),
    ] {
        let error = with(setting).expect_err(setting).to_string();
        assert!(error.contains(words), "{setting}: {error}");
    }
}

const GOOD: &str = "name = 's'\nmachine = { name = 'm', topology = 'core:2 pu:1' }\ndemand.int = {}\n\
    application = [{ name = 'a', steps = [{ each = { mcycles = 1, demand = 'int' } }] }]\n";

#[test]
fn a_short_scenario_has_defaults_for_the_rest() {
    let scenario = Scenario::parse(GOOD).unwrap();
    assert_eq!(scenario.variants, [Variant::policy(PolicySpec::from(&policy::SPREAD))]);
    assert_eq!((scenario.runs, scenario.stop.completions), (10, 1));
}

#[test]
fn applications_can_name_programs_and_texts_can_be_put_together() {
    let table = |text: &str| toml::from_str::<toml::Table>(text).unwrap();
    let mut base = table(GOOD);
    merge(
        &mut base,
        table(
            "machine.ghz = 2.0\n[program.p]\nwait = 'spin'\n\
             steps = [{ serial = { mcycles = 4, demand = 'int' } }]\n\
             [[application]]\nname = 'p'\nthreads = 2\n[[application]]\nname = 'b'\nprogram = 'p'\n",
        ),
    );
    let settings = ["scale = { work = 0.5, serial = 3.0 }".to_owned()];
    let scenario = Scenario::from_table(base, &settings).unwrap();
    assert_eq!((scenario.machine.ghz, scenario.machine.name.as_str()), (2.0, "m"));
    let sim = scenario.simulation(&scenario.variants[0], 1).unwrap();
    assert_eq!(sim.apps.len(), 2);
    for app in &sim.apps {
        assert_eq!(app.plan.waiting, Waiting::Spin);
        assert!(matches!(app.plan.program.ops[0], crate::program::Op::Serial(work) if work.cycles == 6e6));
    }
}

#[test]
fn errors_name_the_item() {
    for (text, words) in [
        ("runs = 0", "scenario `s`: runs"),
        (
            "variant = [{ name = 'v', policy = 'best' }]",
            "there is no policy `best`; there are: spread, default, ",
        ),
        ("policy.pa = { stays = '1s' }", "the nearest is `stay`"),
        ("policy.pa = { stay = '1w' }", "the value must be a time from 1ms to 3600s"),
        ("variant = [{ name = 'v', policy = 'default', pin = { b = ['0'] } }]", "pins `b`"),
        ("variant = [{ name = 'v', policy = 'default', pin = { a = ['0', '1'] } }]", "2 pins for 1 copies"),
        ("variant = [{ name = 'v', policy = 'default', pin = { a = ['7'] } }]", "`7`"),
        ("scale = { serial = 0 }", "factors of scale"),
        (
            "machine.disabled = '1'\nvariant = [{ name = 'v', policy = 'default', pin = { a = ['1'] } }]",
            "disabled",
        ),
        ("demand.fp = { fpu = 2.0 }", "demand `fp`: fpu must be 0 to 1"),
        ("stop = { completions = 0 }", "stop.completions"),
        ("faults = { kills_per_s = -1.0 }", "faults `kills_per_s`: must be 0 to 1000000"),
        ("colour = 'red'", "unknown field `colour`"),
    ] {
        let error = Scenario::parse(&format!("{GOOD}{text}")).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}
