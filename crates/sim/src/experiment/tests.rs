use super::worlds::standing::{Standing, likeliest};
use super::*;
use crate::comparison::{BySeed, Comparison, VariantResult};

const BASE: &str = "
stop = { completions = 2 }
machine = { name = '1FC-1SC', topology = 'core:2 pu:1', speeds = [{ pes = '1', speed = 0.5 }] }
demand.int = {}
variant = [
  { name = 'rr', policy = 'rr' }, { name = 'pa', policy = 'pa' }, { name = 'static', policy = 'static-ipc' }
]
[program.a]
steps = [{ each = { mcycles = 900, demand = 'int' } }]
";

const EXPERIMENT: &str = "
title = 't'
source = 's'
figure = 'f'
about = 'a'
runs = 3
files = ['base.toml']
common = { interval = '100ms' }
[[scenario]]
name = 'alone'
with = { application = [{ name = 'a' }] }
[[scenario]]
name = 'two'
with = { application = [{ name = 'a' }, { name = 'b', program = 'a' }] }
[[finding]]
claim = 'pa gains for one'
scenarios = ['al*']
check = { within = { variants = ['pa'], lowest = 0.0, highest = 1.0 } }
[[finding]]
claim = 'nobody doubles'
check = { ahead = { variants = ['pa'], of = ['rr'], by = 1.0 } }
[sensitivity]
scenarios = ['two']
runs = 2
setting = [{ name = 'equal', set = ['machine.speeds=[]'] }]
";

fn load(experiment: &str) -> Result<Experiment, String> {
    let read = |file: &str| match file {
        "e/experiment.toml" => Ok(experiment.to_owned()),
        "base.toml" => Ok(BASE.to_owned()),
        _ => Err("there is none".to_owned()),
    };
    Experiment::load("e", read).map_err(|error| error.to_string())
}

#[test]
fn claims_are_judged_by_their_scenarios_and_settings_change_them() {
    let experiment = load(EXPERIMENT).unwrap();
    let jobs = experiment.jobs();
    // One or two alone, the baseline and 3 variants with 3 seeds; two rows of the table with 2 seeds.
    assert_eq!(jobs.len(), (1 + 12) + (2 + 12) + 2 * (2 + 8));
    let runs: Vec<Run> = jobs.iter().map(|job| job.run().unwrap()).collect();
    let result = experiment.result(&runs);
    assert_eq!(result.evidence, "simulated");
    let agreements: Vec<Agreement> = result.findings.iter().map(|judgement| judgement.agreement).collect();
    assert_eq!(agreements, [Agreement::Undecided, Agreement::Disagrees], "{:?}", result.findings);
    assert!(result.findings[1].ours.starts_with("0 of 2: "), "{}", result.findings[1].ours);
    let alone = &result.scenarios[0].comparison.variants[0];
    assert_eq!(Measure::Speedup.of(alone), Some(Estimate::exact(0.0)));
    let progress = alone.applications[0].progress.unwrap();
    assert_eq!(progress, alone.weighted_speedup.unwrap(), "there is one application");
    let table = result.sensitivity.as_ref().unwrap();
    assert_eq!((table.scenarios.join(" "), table.variants.join(" ")), ("two".into(), "rr pa static".into()));
    assert_eq!(table.rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["as fixed", "equal"]);
    assert_eq!(
        (table.rows[0].agree, table.rows[0].undecided, table.rows[0].checked),
        (0, 0, 1),
        "the first is about another scenario"
    );
    let on_equal_pes = table.rows[1].means[1].unwrap();
    assert!(on_equal_pes.value.abs() < 1e-3, "there is nothing to gain: {on_equal_pes:?}");
}

const WORLD: &str = "
[[world]]
name = 'slow speed'
set = ['machine.speeds']
values = [[{ pes = '1', speed = 0.4 }], [{ pes = '1', speed = 1.0 }]]
source = 's'
[[world]]
name = 'work'
set = ['scale.work']
log = [0.5, 2.0]
source = 's'
";

/// Returns the outcomes of those worlds in that order, and the result.
fn in_worlds(count: u32, order: impl Iterator<Item = usize>) -> WorldsResult {
    let experiment = load(&format!("{EXPERIMENT}{WORLD}")).unwrap();
    let request = WorldsRequest { count, seed: 1, runs: 1, policies: vec!["mintlp".parse().unwrap()] };
    let worlds = experiment.worlds(request);
    let mut outcomes: Vec<Option<Outcome>> = vec![None; count as usize];
    for world in order {
        outcomes[world] = Some(experiment.in_world(&worlds, world).unwrap());
    }
    experiment.over_worlds(worlds, outcomes.into_iter().map(Option::unwrap).collect())
}

#[test]
fn claims_and_policies_are_judged_in_all_worlds() {
    let result = in_worlds(8, 0..8);
    assert_eq!(result.parameters.len(), 2);
    let [gains, doubles] = &result.claims[..] else { panic!("{result:?}") };
    assert_eq!(doubles.standing, Standing::DoesNotHold, "{doubles:?}");
    assert_eq!((gains.checked, gains.standing), (8, Standing::Holds), "{gains:?}");
    let of = |name: &str| result.policies.iter().find(|policy| policy.name == name).expect(name);
    assert!(of("mintlp").not_below_default > 0.0 && of("default").best > 0.0, "{:?}", result.policies);
    let [likeliest] = &likeliest(std::slice::from_ref(&result))[..] else { panic!("one paper") };
    assert_eq!((likeliest.held, likeliest.checked, likeliest.missing.len()), (1, 2, 1), "{likeliest:?}");
    assert_eq!(result, in_worlds(8, (0..8).rev()), "the order of the work does not matter");
}

#[test]
fn errors_of_worlds_name_file_and_parameter() {
    for (from, to, words) in [
        ("scale.work", "scale.works", "e/experiment.toml: world `work`: unknown field `works`"),
        ("[0.5, 2.0]", "[-1.0, 2.0]", "e/experiment.toml: world `work`: log: both ends must be above 0"),
        (
            "log = [0.5, 2.0]",
            "uniform = [0.0, 2.0]",
            "world `work`: scenario `alone`: the factors of scale must",
        ),
        ("source = 's'\n[[world]]", "[[world]]", "missing field `source`"),
        ("log =", "logs =", "e/experiment.toml: "),
    ] {
        let text = format!("{EXPERIMENT}{WORLD}").replace(from, to);
        assert!(text.contains(to), "{from}");
        let error = load(&text).expect_err(to);
        assert!(error.contains(words), "{to}: {error}");
    }
}

#[test]
fn neither_claims_nor_settings_are_needed() {
    let text = EXPERIMENT.split("[[finding]]").next().unwrap();
    let experiment = load(text).unwrap();
    let runs: Vec<Run> = experiment.jobs().iter().map(|job| job.run().unwrap()).collect();
    assert_eq!(runs.len(), (1 + 12) + (2 + 12));
    let result = experiment.result(&runs);
    assert_eq!((result.findings.len(), result.scenarios.len()), (0, 2));
    assert_eq!(result.sensitivity, None);
}

#[test]
fn errors_say_which_name_is_wrong() {
    for (from, to, words) in [
        ("['al*']", "['one']", "finding `pa gains for one` names `one`, which is not a scenario"),
        ("of = ['rr']", "of = ['r']", "finding `nobody doubles` names `r`, which is not a variant"),
        (
            "['base.toml']",
            "['no.toml']",
            "no.toml, which experiment `e` names, cannot be read: there is none",
        ),
        ("runs = 3\nfiles", "runs = 3\nbaseline_runs = 9\nfiles", "remove baseline_runs: the default runs"),
        ("runs = 3", "run = 3", "e/experiment.toml: "),
        ("program = 'a'", "program = 'c'", "scenario `two`: application `b`: it has no steps"),
        ("machine.speeds=[]", "machine.x=1", "scenario `two`: "),
    ] {
        let text = EXPERIMENT.replace(from, to);
        assert_ne!(text, EXPERIMENT);
        let error = load(&text).expect_err(to);
        assert!(error.contains(words), "{to}: {error}");
    }
}

/// A result whose variants have those speedups over the default, in three seeds off by this much.
fn scenario(name: &str, off: f64, speedups: &[(&str, f64)]) -> ScenarioResult {
    let variant = |&(name, speedup): &(&str, f64)| VariantResult {
        name: name.to_owned(),
        policy: "default".to_owned(),
        applications: Vec::new(),
        speedup: Some(Estimate::exact(speedup)),
        all_done_seconds: None,
        all_done_speedup: None,
        weighted_speedup: None,
        weighted_speedup_over_default: None,
        fairness: None,
        energy: None,
        migrations: std::collections::BTreeMap::new(),
        settings: std::collections::BTreeMap::new(),
        by_seed: BySeed {
            speedup: [-off, 0.0, off]
                .map(|off| if name == "default" { 1.0 } else { speedup * off.exp() })
                .to_vec(),
            weighted_speedup_over_default: vec![speedup; 3],
            ..BySeed::default()
        },
        guard: None,
        timeline: String::new(),
        timeline_seconds: 0.0,
    };
    let comparison = Comparison {
        scenario: name.to_owned(),
        evidence: "simulated",
        machine: String::new(),
        seed: 1,
        runs: 3,
        variants: speedups.iter().map(variant).collect(),
    };
    ScenarioResult { name: name.to_owned(), comparison }
}

/// Returns the agreement and our words.
fn judge(check: &str, results: &[ScenarioResult]) -> (Agreement, String) {
    let finding: Finding = toml::from_str(&format!("claim = 'c'\n[check]\n{check}")).expect(check);
    let judgement = finding.judge(results);
    (judgement.agreement, judgement.ours)
}

#[test]
fn every_kind_of_claim_can_hold_and_fail() {
    let results = [
        scenario("x", 0.0, &[("default", 1.0), ("a", 1.1), ("b", 1.2), ("c", 1.4)]),
        scenario("y", 0.0, &[("default", 1.0), ("a", 1.0), ("b", 1.1), ("c", 0.8)]),
    ];
    for (check, expected, ours) in [
        ("ahead = { variants = ['b'], of = ['a'] }", true, "2 of 2: +9.1 ±0.0 % to +10.0 ±0.0 %"),
        (
            "ahead = { variants = ['b'], of = ['a', 'c'] }",
            false,
            "1 of 2: -14.3 ±0.0 % to +10.0 ±0.0 %; not -14.3 ±0.0 % (x)",
        ),
        ("ahead = { variants = ['b'], of = ['a'], by = 0.095 }", false, "1 of 2: "),
        (
            "within = { variants = ['a', 'b'], lowest = -0.01, highest = 0.21 }",
            true,
            "4 of 4: +0.0 ±0.0 % to",
        ),
        ("within = { variants = ['a'], lowest = 0.05 }", false, "; not +0.0 ±0.0 % (y, a)"),
        ("within = { variants = ['b'], over = 'a', lowest = 0.09 }", true, "+9.1 ±0.0 % to +10.0 ±0.0 %"),
        ("within = { variants = ['c'], take = 'most', lowest = 0.3 }", true, "+40.0 ±0.0 % (x, c)"),
        ("within = { variants = ['c'], take = 'least', lowest = 0.0 }", false, "-20.0 ±0.0 % (y, c)"),
        ("within = { variants = ['a', 'b', 'c'], take = 'median', lowest = 0.09 }", true, "+10.0 ±0.0 % ("),
        (
            "within = { variants = ['b'], measure = 'weighted-speedup', lowest = 0.09 }",
            true,
            "+10.0 ±0.0 % to +20.0",
        ),
        ("within = { variants = ['c'], take = 'mean', lowest = 0.09, highest = 0.11 }", true, "(on average)"),
        (
            "falling = { variants = ['c', 'b', 'a'] }",
            false,
            "1 of 2: -30.0 ±0.0 % to +30.0 ±0.0 %; not +30.0",
        ),
        ("falling = { variants = ['b', 'a'] }", true, "2 of 2: -10.0 ±0.0 % to -10.0"),
        (
            "falling = { variants = ['a', 'a'] }",
            false,
            "0 of 2: +0.0 ±0.0 % to +0.0 ±0.0 %; not +0.0 ±0.0 % (x)",
        ),
        ("falling = { variants = ['b', 'a'], slack = 0.15 }", false, "0 of 2: -10.0 ±0.0 %"),
        ("falling = { variants = ['b', 'a'], slack = -0.05 }", true, "2 of 2: "),
        ("falling = { variants = ['c', 'b', 'a'], slack = -0.15 }", false, "0 of 2: "),
        (
            "steadier = { variants = ['a', 'b'], than = ['b', 'c'] }",
            true,
            "at most 10.0 ±0.0 % apart, the others",
        ),
        (
            "drop = { variants = ['a', 'b'], from = 'x', to = 'y', by = 0.05 }",
            true,
            "2 of 2: +10.0 ±0.0 % to",
        ),
        ("drop = { variants = ['a', 'c'], from = 'x', to = 'y', by = 0.2 }", false, "; not +10.0 ±0.0 % (a)"),
        ("within = { variants = ['c'], measure = 'delta', lowest = -0.2 }", false, "not -25.0 ±0.0 % (y, c)"),
        ("steadier = { variants = ['b', 'c'], than = ['a', 'b'] }", false, "at most 37.5 ±0.0 % apart"),
    ] {
        let (agreement, found) = judge(check, &results);
        assert_eq!(
            agreement,
            if expected { Agreement::Agrees } else { Agreement::Disagrees },
            "{check}: {found}"
        );
        assert!(found.contains(ours), "{check}: {found}");
    }
}

#[test]
fn a_claim_agrees_only_if_its_interval_does() {
    // Three seeds that vary by 1 %: an interval of ±2.5 % of 1.1. Both variants vary alike, so that their
    // ratio does not vary.
    let results = [scenario("x", 0.01, &[("default", 1.0), ("a", 1.1), ("b", 1.11)])];
    for (check, expected, ours) in [
        (
            "within = { variants = ['a'], lowest = 0.05, highest = 0.15 }",
            Agreement::Agrees,
            "+10.0 ±2.8 % (x, a)",
        ),
        ("within = { variants = ['a'], lowest = 0.09 }", Agreement::Undecided, "+10.0 ±2.8 %"),
        ("within = { variants = ['a'], lowest = 0.2 }", Agreement::Disagrees, "+10.0 ±2.8 %"),
        ("ahead = { variants = ['b'], of = ['a'] }", Agreement::Agrees, "+0.9 ±0.0 % (x)"),
        ("ahead = { variants = ['a'], of = ['default'], by = 0.09 }", Agreement::Undecided, "+10.0 ±"),
        ("within = { variants = ['a'], measure = 'all-done' }", Agreement::NotChecked, "cannot be checked"),
    ] {
        let (agreement, found) = judge(check, &results);
        assert_eq!(agreement, expected, "{check}: {found}");
        assert!(found.contains(ours), "{check}: {found}");
    }
    let one_seed = [scenario("x", 0.0, &[("default", 1.0), ("a", 1.1)])].map(|mut result| {
        result.comparison.variants.iter_mut().for_each(|variant| variant.by_seed.speedup.truncate(1));
        result
    });
    let (agreement, ours) = judge("within = { variants = ['a'], lowest = 0.0 }", &one_seed);
    assert_eq!((agreement, ours.as_str()), (Agreement::Undecided, "+10.0 % (x, a)"));
}

#[test]
fn sets_are_drawn_by_chance_and_again_the_same() {
    let steps = "{ steps = [{ each = { mcycles = 9, demand = 'int' } }] }";
    let programs = format!("{{ program = {{ b = {steps}, c = {steps} }}, interval");
    let text = EXPERIMENT
        .replace("[sensitivity]", "[sets]\ncount = 12\nsize = 2\n[sensitivity]")
        .replace("{ interval", &programs);
    let experiment = load(&text).unwrap();
    let drawn: Vec<Vec<String>> = experiment.scenarios[2..]
        .iter()
        .map(|scenario| scenario.applications.iter().map(|app| app.name.clone()).collect())
        .collect();
    assert_eq!((drawn.len(), experiment.scenarios[2].name.as_str()), (12, "set 01"));
    assert!(drawn.iter().all(|set| set.len() == 2 && set[0] != set[1]), "no program twice: {drawn:?}");
    let different: std::collections::BTreeSet<&Vec<String>> = drawn.iter().collect();
    assert_eq!(different.len(), 3, "all of the 3 possible sets come up: {drawn:?}");
    assert_eq!(load(&text).unwrap().spec, experiment.spec);
    let error = load(&text.replace("size = 2", "size = 4")).unwrap_err();
    assert!(error.contains("sets of 4 of 3 programs"), "{error}");
}

const PLACEMENTS: &str = "
title = 't'
source = 's'
figure = 'f'
about = 'a'
measure = 'delta'
runs = 1
[placements]
machine = [
  { name = 'module', topology = 'pack:1 l2:2(size=2MB) module:1 core:2 pu:1' },
  { name = 'plain', topology = 'pack:1 l2:4(size=1MB) core:1 pu:1' },
]
kernel = [
  { name = 'divisions', kernels = ['fp-div', 'fp-div'] },
  { name = 'read', kernels = ['read', 'read'], region_kib = 4 },
  { name = 'EP', nas = ['EP', 'S'] },
]
[[finding]]
claim = 'half as fast'
scenarios = ['divisions']
check = { within = { variants = ['module'], measure = 'delta', lowest = -1.01, highest = -0.99 } }
[[finding]]
claim = 'less than its extreme part'
check = { drop = { variants = ['module'], from = 'EP', to = 'divisions', measure = 'delta' } }
[sensitivity]
scenarios = ['divisions']
runs = 1
setting = [{ name = 'half', set = ['machine.units.fpu_conflict=0.5'] }]
";

#[test]
fn placements_are_rows_by_kernel_and_columns_by_machine() {
    let experiment = load(PLACEMENTS).unwrap();
    assert!(experiment.jobs().is_empty());
    let result = experiment.result(&[]);
    assert_eq!(count(&result.findings, Agreement::Agrees), 2, "{:?}", result.findings);
    let delta = |row: usize, name: &str| Measure::Delta.of(result.scenarios[row].variant(name).unwrap());
    assert!(delta(0, "plain").unwrap().value.abs() < 1e-9, "nothing is shared");
    let table = result.sensitivity.as_ref().unwrap();
    assert_eq!(
        (table.variants.join(" "), table.scenarios.join(" ")),
        ("module plain".into(), "divisions".into())
    );
    assert!((table.rows[1].means[0].unwrap().value + 0.5).abs() < 0.01, "{:?}", table.rows);
    for (from, to, words) in [
        ("['divisions']\ncheck", "['division']\ncheck", "names `division`, which is not a scenario"),
        ("from = 'EP'", "from = 'FT'", "names `FT`, which is not a scenario"),
        ("variants = ['module'], from", "variants = ['m'], from", "names `m`, which is not a variant"),
        ("region_kib = 4", "region_kib = 5", "kernel `read`: "),
        (", nas = ['EP', 'S']", "", "kernel `EP`: give either `kernels` or `nas`"),
        ("machine.units.fpu_conflict=0.5", "machine.units.fpu=0.5", "unknown field `fpu`"),
    ] {
        let text = PLACEMENTS.replace(from, to);
        assert_ne!(text, PLACEMENTS);
        let error = load(&text).expect_err(to);
        assert!(error.contains(words), "{to}: {error}");
    }
}
