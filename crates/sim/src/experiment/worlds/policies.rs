//! Policies, and other variants, judged in all worlds.
//!
//! In a world a variant is as good as the mean of its effects over the scenarios. The share of worlds in
//! which it is the best says how often it is right; its regret, what the best variant of that world and
//! scenario would have gained more, says what it costs where it is not; the worst case says how much it can
//! harm.

use super::outcome::{Outcome, ScenarioOutcome};
use serde::Serialize;

/// Effects that differ by less are alike.
const ALIKE: f64 = 0.001;

/// A variant over all worlds. Effects are relative to the default: 0.1 is 10 % faster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyResult {
    /// Its name.
    pub name: String,
    /// The worlds in which it is known for all scenarios that have it.
    pub worlds: usize,
    /// The share of these in which no other is better; the default is one of them.
    pub best: f64,
    /// The share in which it is not worse than the default.
    pub not_below_default: f64,
    /// Its mean effect.
    pub mean: f64,
    /// The mean of what the best one gains more, over all worlds and scenarios.
    pub regret: f64,
    /// The most that the best one gains more.
    pub regret_most: f64,
    /// Its worst effect.
    pub worst: f64,
    /// The scenario and the number of the world in which that is.
    pub worst_in: (String, usize),
}

/// Returns each variant over all worlds, the default first.
pub fn policies(outcomes: &[Outcome]) -> Vec<PolicyResult> {
    let mut names = vec!["default"];
    for (name, _) in
        outcomes.iter().flat_map(|outcome| &outcome.scenarios).flat_map(|scenario| &scenario.variants)
    {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.iter().filter_map(|name| policy(name, &names, outcomes)).collect()
}

/// Returns the effect of a variant; 0 of the default.
fn effect(scenario: &ScenarioOutcome, name: &str) -> Option<f64> {
    if name == "default" {
        return Some(0.0);
    }
    scenario.variants.iter().find(|(other, _)| other == name)?.1
}

/// Returns the mean effect in a world.
fn mean(outcome: &Outcome, name: &str) -> Option<f64> {
    let effects: Vec<f64> = outcome.scenarios.iter().filter_map(|scenario| effect(scenario, name)).collect();
    (!effects.is_empty()).then(|| effects.iter().sum::<f64>() / effects.len() as f64)
}

fn policy(name: &str, names: &[&str], outcomes: &[Outcome]) -> Option<PolicyResult> {
    let (mut means, mut best, mut not_below) = (Vec::new(), 0, 0);
    let (mut regrets, mut worst) = (Vec::new(), (f64::INFINITY, (String::new(), 0)));
    for (world, outcome) in outcomes.iter().enumerate() {
        let Some(own) = mean(outcome, name) else { continue };
        means.push(own);
        let most = names.iter().filter_map(|other| mean(outcome, other)).fold(own, f64::max);
        best += usize::from(own > most - ALIKE);
        not_below += usize::from(own > -ALIKE);
        for scenario in &outcome.scenarios {
            let Some(own) = effect(scenario, name) else { continue };
            let most = names.iter().filter_map(|other| effect(scenario, other)).fold(own, f64::max);
            regrets.push(most - own);
            if own < worst.0 {
                worst = (own, (scenario.name.clone(), world + 1));
            }
        }
    }
    let worlds = means.len();
    let share = |count: usize| count as f64 / worlds as f64;
    (worlds > 0).then(|| PolicyResult {
        name: name.to_owned(),
        worlds,
        best: share(best),
        not_below_default: share(not_below),
        mean: means.iter().sum::<f64>() / worlds as f64,
        regret: regrets.iter().sum::<f64>() / regrets.len() as f64,
        regret_most: regrets.iter().copied().fold(0.0, f64::max),
        worst: worst.0,
        worst_in: worst.1,
    })
}
