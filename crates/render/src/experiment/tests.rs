use super::{index, table};
use crate::page::browser;
use corewise_sim::comparison::Run;
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
