use super::{index, table, worlds};
use crate::page::browser;
use corewise_sim::comparison::Run;
use corewise_sim::experiment::worlds::WorldsRequest;
use corewise_sim::experiment::worlds::standing::likeliest;
use corewise_sim::experiment::{Experiment, ExperimentResult};

const EXPERIMENT: &str = "
title = 'A <small> one'
source = 'nobody'
figure = 'Fig. 0'
about = 'a'
runs = 3
common = { machine = { name = 'm', topology = 'core:2 pu:1' }, demand = { int = {} } }
[[scenario]]
name = 'two'
[scenario.with]
application = [{ name = 'a', copies = 2, steps = [{ each = { mcycles = 90, demand = 'int' } }] }]
variant = [{ name = 'one PE', policy = 'default', pin = { a = ['0', '0'] } }]
[[finding]]
claim = 'one PE is slower'
paper = 'half'
check = { within = { variants = ['one PE'], lowest = -0.6, highest = -0.4 } }
[[finding]]
claim = 'one PE is faster'
check = { ahead = { variants = ['one PE'], of = ['default'] } }
";

fn result() -> ExperimentResult {
    let experiment = Experiment::load("small", |_| Ok(EXPERIMENT.to_owned())).expect("an experiment");
    let runs: Vec<Run> = experiment.jobs().iter().map(|job| job.run().expect("a run")).collect();
    experiment.result(&runs)
}

#[test]
fn the_index_shows_each_claim_of_each_experiment() {
    let page = index::render(&[result()]);
    browser::check_self_contained(&page);
    for words in [
        "<a href=\"small.html\">small</a>",
        "A &lt;small&gt; one",
        "1 of 2 agree",
        "one PE is slower",
        "half",
        "±",
        "does not agree",
        "simulated",
    ] {
        assert!(page.contains(words), "no `{words}` in {page}");
    }
}

#[test]
fn the_table_of_all_begins_with_the_counts() {
    let text = table::render_claims(&[result(), result()]);
    assert!(text.contains("\nsimulated: the claims of 2 experiments\n"), "{text}");
    for words in ["  all    2 of 4 agree", "agrees          one PE is slower", "paper: half", "ours:  -"] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
}

#[test]
fn a_claim_that_depends_is_shown_with_its_condition() {
    let world = "
[[published]]
scenario = 'two'
variant = 'one PE'
lowest = -0.5
highest = -0.5
[[world]]
name = 'the cost of a switch'
set = ['machine.costs.switch_us']
uniform = [0, 3000]
source = 'no source'
";
    let text = format!("{}{world}", EXPERIMENT.replace("lowest = -0.6", "lowest = -0.7"));
    let experiment = Experiment::load("small", |_| Ok(text.clone())).expect("an experiment");
    let request = WorldsRequest { count: 40, seed: 1, runs: 1, policies: Vec::new() };
    let worlds = experiment.worlds(request);
    let outcomes: Vec<_> =
        (0..40).map(|world| experiment.in_world(&worlds, world).expect("a world")).collect();
    let result = experiment.over_worlds(worlds, outcomes);
    let text = worlds::render(&result) + &worlds::best(&likeliest(std::slice::from_ref(&result)));
    for words in [
        "small: 40 worlds (seed 1; runs in each: 1); 0 of 2 hold, 1 depend, 1 do not hold\n",
        "the cost of a switch  0 to 3000  no source",
        "holds where the cost of a switch is at most ",
        "(in 100 % of these ",
        "depends on: the cost of a switch ",
        "the paper's numbers among ours\n  two, one PE  paper -50.0 %  ours -6",
        "one PE ",
        "\n  the cost of a switch  ",
        "not small: one PE is faster",
    ] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
    assert!(worlds::render_all(&[result], &[]).contains("all    0 of 2 hold, 1 depend"), "{text}");
}
