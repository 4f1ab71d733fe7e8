use super::influence::influences;
use super::outcome::{ClaimOutcome, Outcome, ScenarioOutcome};
use super::parameter::{Draw, Parameter, ParameterFile};
use super::policies::policies;
use super::split::condition;
use super::*;

const SCENARIO: &str = "
[machine.memory]
remote_factor = 1.4
memory_latency_ns = 60
[demand.a]
ipc = 1.0
[demand.b]
ipc = 0.5
fpu = 0.5
";

fn parameters(text: &str) -> Result<Vec<Parameter>, String> {
    let file: ParameterFile = toml::from_str(text).map_err(|error| error.to_string())?;
    let scenario: Table = toml::from_str(SCENARIO).expect("a scenario");
    file.worlds.iter().try_fold(Vec::new(), |mut all, one| {
        all.extend(one.expand(std::slice::from_ref(&scenario))?);
        Ok(all)
    })
}

/// Parameters `a` and so on from 0 to 1, and draws of them.
fn unit(names: &[&str], count: usize) -> (Vec<Parameter>, Vec<Vec<Draw>>) {
    let one = |name: &&str| {
        format!("[[world]]\nname = '{name}'\nset = ['os.{name}']\nuniform = [0, 1]\nsource = 's'\n")
    };
    let parameters = parameters(&names.iter().map(one).collect::<String>()).expect("parameters");
    let draws = hypercube::draw(&parameters, count, 1);
    (parameters, draws)
}

fn slices(draws: &[Vec<Draw>]) -> Vec<&[Draw]> {
    draws.iter().map(Vec::as_slice).collect()
}

#[test]
fn factors_apply_to_what_is_stated_and_stars_to_every_name() {
    let parameters = parameters(
        "world = [
            { name = 'latency', set = ['machine.memory.memory_latency_ns'], times = [0.5, 2],
              source = 's' },
            { name = 'use', set = ['demand.*.fpu'], own = true, times = [0.5, 2.0], source = 's' },
            { name = 'speed', set = ['demand.*.ipc'], log = [0.1, 10.0], source = 's' },
            { name = 'pause', set = ['os.balance'], log = ['16ms', '1000s'], source = 's' },
            { name = 'queue', set = ['os.queue'], values = ['cfs', 'eevdf'], source = 's' },
        ]",
    )
    .unwrap();
    let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["latency", "use of b", "speed", "pause", "queue"], "a states no FPU usage");
    let mut scenario: Table = toml::from_str(SCENARIO).unwrap();
    for (parameter, at) in parameters.iter().zip([0.0, 1.0, 0.5, 0.5, 0.6]) {
        parameter.apply(&mut scenario, &parameter.at(at)).unwrap();
    }
    let expected = "
        [machine.memory]
        remote_factor = 1.4
        memory_latency_ns = 30.0
        [demand.a]
        ipc = 1.0
        [demand.b]
        ipc = 1.0
        fpu = 1.0
        [os]
        balance = '4s'
        queue = 'eevdf'
    ";
    assert_eq!(scenario, toml::from_str::<Table>(expected).unwrap());
    assert_eq!(parameters[0].at(0.75).text, "1.414 times");
    assert_eq!(parameters[3].at(0.0).text, "16ms");
    assert_eq!(parameters[4].range, "\"cfs\" or \"eevdf\"");
}

#[test]
fn a_wrong_range_says_what_to_change() {
    let path = "machine.memory.remote_factor";
    for (path, range, words) in [
        (path, "uniform = [2, 1]", "uniform: the range is empty"),
        (path, "uniform = [1, 1]", "uniform: the range is empty"),
        (
            path,
            "uniform = [1, '2s']",
            "uniform: the range is empty: write the lower end first, both in the same unit",
        ),
        (path, "uniform = [1, '2']", "uniform: write two numbers, or two times with their units"),
        (path, "log = [0, 1]", "log: both ends must be above 0"),
        (path, "times = ['1s', '2s']", "times: write two factors without a unit"),
        (path, "values = [1]", "values: write two or more"),
        (path, "values = [1, 2]\nlog = [1, 2]", "give one of uniform, log, times and values"),
        (path, "", "give one of uniform, log, times and values"),
        (path, "uniform = [1, 2]\nfrom = 's'", "unknown field `from`"),
        (path, "uniform = [1]", "invalid length 1"),
        ("demand.c.ipc", "log = [1, 2]", "no scenario has `demand.c.ipc`"),
        ("demands.*.ipc", "log = [1, 2]", "no scenario has `demands.*.ipc`"),
        ("machine.memory.latency", "times = [1, 2]", "no scenario has `machine.memory.latency`"),
    ] {
        let text = format!("[[world]]\nname = 'x'\nset = ['{path}']\nsource = 's'\n{range}\n");
        let error = parameters(&text).expect_err(range);
        assert!(error.contains(words), "{range}: {error}");
    }
}

#[test]
fn a_planted_condition_is_found_with_its_bound() {
    let (parameters, draws) = unit(&["a", "b", "c"], 200);
    // Nine of ten where b is above 0.3, one of ten elsewhere.
    let holds = |(world, draws): (usize, &Vec<Draw>)| (draws[1].number > 0.3) != (world % 10 == 0);
    let holds: Vec<bool> = draws.iter().enumerate().map(holds).collect();
    let found = condition(&parameters, &slices(&draws), &holds).expect("a condition");
    assert_eq!((found.parameter.as_str(), found.values.as_str()), ("b", "is above 0.3"), "{found:?}");
    assert!(found.worlds == 140 && (found.share - 0.9).abs() < 0.05, "{found:?}");
    assert!(found.share_of_others < 0.2 && found.chance <= 0.005, "{found:?}");
    let opposite: Vec<bool> = holds.iter().map(|holds| !holds).collect();
    let found = condition(&parameters, &slices(&draws), &opposite).expect("a condition");
    assert_eq!(found.values, "is at most 0.3");
}

#[test]
fn no_condition_is_named_where_chance_decides() {
    let (parameters, draws) = unit(&["a", "b", "c", "d", "e"], 100);
    let named = (0..40).filter(|&seed| {
        let mut random = crate::random::Random::new(seed, 9);
        let holds: Vec<bool> = draws.iter().map(|_| random.below(2) == 1).collect();
        condition(&parameters, &slices(&draws), &holds).is_some()
    });
    // One of twenty by definition: more than 6 of 40 would happen in one of a hundred.
    assert!(named.count() <= 6);
}

#[test]
fn influences_are_those_that_were_planted() {
    let (parameters, draws) = unit(&["a", "b", "c", "d"], 400);
    let alone: Vec<bool> = draws.iter().map(|draws| draws[0].number > 0.5).collect();
    let found = influences(&parameters, &slices(&draws), &alone);
    let first = &found.parameters[0];
    assert!(first.parameter == "a" && first.first_order > 0.9 && first.total > 0.9, "{found:?}");
    assert!(found.explained > 0.9 && found.parameters[1].total < 0.05, "{found:?}");
    // Both alike or both different: neither of two explains anything by itself.
    let together: Vec<bool> =
        draws.iter().map(|draws| (draws[1].number > 0.5) == (draws[2].number > 0.35)).collect();
    let found = influences(&parameters, &slices(&draws), &together);
    let of = |name| found.parameters.iter().find(|one| one.parameter == name).expect(name);
    assert!(of("b").total > 0.5 && of("c").total > 0.5, "{found:?}");
    assert!(of("b").first_order < 0.15 && of("a").total < 0.1, "{found:?}");
}

fn outcome(effects: &[(&str, f64)]) -> Outcome {
    let variants = effects.iter().map(|(name, effect)| ((*name).to_owned(), Some(*effect))).collect();
    let scenarios = vec![ScenarioOutcome { name: "s".to_owned(), variants }];
    Outcome { claims: vec![ClaimOutcome { holds: Some(true), figure: Some(0.0) }], scenarios }
}

#[test]
fn policies_are_judged_by_share_regret_and_worst_case() {
    let outcomes = [outcome(&[("p", 0.2), ("q", 0.1)]), outcome(&[("p", -0.3), ("q", 0.1)])];
    let found = policies(&outcomes);
    let names: Vec<&str> = found.iter().map(|policy| policy.name.as_str()).collect();
    assert_eq!(names, ["default", "p", "q"]);
    let [_, p, q] = &found[..] else { panic!("{found:?}") };
    assert_eq!((p.best, p.not_below_default, q.best, q.not_below_default), (0.5, 0.5, 0.5, 1.0));
    assert!((p.regret - 0.2).abs() < 1e-9 && (p.regret_most - 0.4).abs() < 1e-9, "{p:?}");
    assert_eq!((p.worst, p.worst_in.clone()), (-0.3, ("s".to_owned(), 2)));
}
