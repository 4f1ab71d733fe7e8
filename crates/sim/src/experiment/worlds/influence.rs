//! How much of whether a claim holds is each parameter's doing.
//!
//! Problem: worlds differ in all parameters at once, and in chance. Approach: of each parameter two shares
//! of the variance of "it holds" (1 or 0). The *first-order* share is what the parameter explains alone: the
//! variance between groups of worlds with similar values of it over the whole variance (the correlation
//! ratio), less what groups of that size differ by chance (ω², W. Hays, "Statistics for Psychologists",
//! 1963). It needs nothing but the worlds. The *total* share includes what the parameter does together with
//! others; from independent draws it cannot be read off directly, so a forest of regression trees is fitted
//! to the worlds (L. Breiman, "Random forests", Machine Learning 45, 2001), and asked: by how much does its
//! answer change when this parameter alone takes the value of another world (M. Jansen, "Analysis of
//! variance designs for model output", Computer Physics Communications 117, 1999)? Limits: total shares are
//! those of the forest, not of the simulation. `explained`, the share of the variance that its trees predict
//! in worlds that they have not seen, says how far to trust them: what is left is chance, and what the
//! forest misses. With 200 worlds a first-order share below some 5 % is noise.

use super::parameter::{Draw, Parameter};
use crate::random::Random;
use serde::Serialize;

/// Worlds of a group.
const GROUP: usize = 20;
const TREES: u64 = 100;
/// Worlds of a leaf, at least.
const LEAF: usize = 5;
/// Other worlds from which each world takes one parameter's value.
const EXCHANGES: usize = 8;

/// What a claim depends on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Influences {
    /// One per parameter, those with the largest total share first.
    pub parameters: Vec<Influence>,
    /// The share of the variance that the forest predicts in worlds it has not seen, 0..1.
    pub explained: f64,
}

/// The influence of one parameter, as shares of the variance, 0..1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Influence {
    /// Its name.
    pub parameter: String,
    /// Alone.
    pub first_order: f64,
    /// Together with the others.
    pub total: f64,
}

/// Returns the influence of each parameter. `draws` and `holds` are those of the same worlds.
pub fn influences(parameters: &[Parameter], draws: &[&[Draw]], holds: &[bool]) -> Influences {
    let outcome: Vec<f64> = holds.iter().map(|&holds| f64::from(u8::from(holds))).collect();
    let columns: Vec<Vec<f64>> =
        (0..parameters.len()).map(|at| draws.iter().map(|draws| draws[at].number).collect()).collect();
    let forest = Forest::grow(&columns, &outcome);
    let totals = forest.totals(&columns);
    let influence = |(at, parameter): (usize, &Parameter)| Influence {
        parameter: parameter.name.clone(),
        first_order: first_order(&groups(&columns[at], parameter.is_list()), &outcome),
        total: totals[at],
    };
    let mut parameters: Vec<Influence> = parameters.iter().enumerate().map(influence).collect();
    parameters.sort_by(|a, b| b.total.total_cmp(&a.total));
    Influences { parameters, explained: forest.explained(&columns, &outcome) }
}

/// Returns the worlds in groups of similar values.
fn groups(column: &[f64], is_list: bool) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..column.len()).collect();
    order.sort_by(|&a, &b| column[a].total_cmp(&column[b]));
    if is_list {
        return order.chunk_by(|&a, &b| column[a] == column[b]).map(<[usize]>::to_vec).collect();
    }
    let count = (column.len() / GROUP).max(2);
    let end = |group: usize| group * column.len() / count;
    (0..count).map(|group| order[end(group)..end(group + 1)].to_vec()).collect()
}

fn first_order(groups: &[Vec<usize>], outcome: &[f64]) -> f64 {
    let all: Vec<usize> = (0..outcome.len()).collect();
    let whole = squares(&all, outcome);
    let within: f64 = groups.iter().map(|group| squares(group, outcome)).sum();
    let free = outcome.len().saturating_sub(groups.len());
    if whole == 0.0 || free == 0 {
        return 0.0;
    }
    let noise = within / free as f64;
    ((whole - within - (groups.len() - 1) as f64 * noise) / (whole + noise)).max(0.0)
}

fn mean(worlds: &[usize], outcome: &[f64]) -> f64 {
    worlds.iter().map(|&world| outcome[world]).sum::<f64>() / worlds.len().max(1) as f64
}

/// Returns the sum of the squared distances from the mean.
fn squares(worlds: &[usize], outcome: &[f64]) -> f64 {
    let mean = mean(worlds, outcome);
    worlds.iter().map(|&world| (outcome[world] - mean).powi(2)).sum()
}

enum Tree {
    Leaf(f64),
    Node { column: usize, bound: f64, below: Box<Tree>, above: Box<Tree> },
}

struct Forest {
    /// Each with the worlds that it has not seen.
    trees: Vec<(Tree, Vec<usize>)>,
}

impl Tree {
    fn grow(columns: &[Vec<f64>], outcome: &[f64], worlds: &[usize]) -> Tree {
        let leaf = Tree::Leaf(mean(worlds, outcome));
        let Some((column, bound)) = cut(columns, outcome, worlds) else { return leaf };
        let (below, above): (Vec<usize>, Vec<usize>) =
            worlds.iter().partition(|&&world| columns[column][world] <= bound);
        let grown = |worlds: &[usize]| Box::new(Tree::grow(columns, outcome, worlds));
        Tree::Node { column, bound, below: grown(&below), above: grown(&above) }
    }

    /// Returns the prediction for a world whose value in each column is given.
    fn predict(&self, value: &impl Fn(usize) -> f64) -> f64 {
        match self {
            Tree::Leaf(mean) => *mean,
            Tree::Node { column, bound, below, above } => {
                if value(*column) <= *bound {
                    below.predict(value)
                } else {
                    above.predict(value)
                }
            }
        }
    }
}

/// Returns the column and the bound that part the worlds best, if any does.
fn cut(columns: &[Vec<f64>], outcome: &[f64], worlds: &[usize]) -> Option<(usize, f64)> {
    let count = worlds.len() as f64;
    let all: f64 = worlds.iter().map(|&world| outcome[world]).sum();
    let mut best = (1e-9, None);
    for (column, values) in columns.iter().enumerate() {
        let mut order = worlds.to_vec();
        order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
        let mut sum = 0.0;
        for first in 1..order.len() {
            sum += outcome[order[first - 1]];
            let bound = values[order[first - 1]];
            if first < LEAF || order.len() - first < LEAF || bound == values[order[first]] {
                continue;
            }
            let (below, above) = (sum / first as f64, (all - sum) / (count - first as f64));
            let gain = first as f64 * (count - first as f64) / count * (below - above).powi(2);
            if gain > best.0 {
                best = (gain, Some((column, bound)));
            }
        }
    }
    best.1
}

impl Forest {
    /// Grows each tree on as many worlds as there are, drawn with replacement.
    fn grow(columns: &[Vec<f64>], outcome: &[f64]) -> Forest {
        let count = outcome.len();
        let tree = |number: u64| {
            let mut random = Random::new(number, 0);
            let worlds: Vec<usize> = (0..count).map(|_| random.below(count)).collect();
            let unseen = (0..count).filter(|world| !worlds.contains(world)).collect();
            (Tree::grow(columns, outcome, &worlds), unseen)
        };
        Forest { trees: (0..TREES).map(tree).collect() }
    }

    fn predict(&self, value: &impl Fn(usize) -> f64) -> f64 {
        self.trees.iter().map(|(tree, _)| tree.predict(value)).sum::<f64>() / self.trees.len() as f64
    }

    /// Returns of each column half the mean square of the change when it alone changes, over the variance.
    fn totals(&self, columns: &[Vec<f64>]) -> Vec<f64> {
        let count = columns.first().map_or(0, Vec::len);
        let worlds: Vec<usize> = (0..count).collect();
        let own: Vec<f64> = worlds.iter().map(|&world| self.predict(&|at| columns[at][world])).collect();
        let variance = squares(&worlds, &own) / count.max(1) as f64;
        let mut order = worlds.clone();
        Random::new(2, 0).shuffle(&mut order);
        let total = |column: usize| {
            let change = |shift: usize, place: usize| {
                let (world, other) = (order[place], order[(place + shift) % count]);
                let value = |at: usize| columns[at][if at == column { other } else { world }];
                (self.predict(&value) - own[world]).powi(2)
            };
            let all = (1..=EXCHANGES).flat_map(|shift| (0..count).map(move |place| (shift, place)));
            let mean =
                all.map(|(shift, place)| change(shift, place)).sum::<f64>() / (EXCHANGES * count) as f64;
            // Half the mean square of a difference is the variance but for chance.
            if variance > 1e-12 { (mean / (2.0 * variance)).min(1.0) } else { 0.0 }
        };
        (0..columns.len()).map(total).collect()
    }

    /// Returns the share of the variance that trees predict in worlds that they have not seen.
    fn explained(&self, columns: &[Vec<f64>], outcome: &[f64]) -> f64 {
        let (mut sums, mut counts) = (vec![0.0; outcome.len()], vec![0.0; outcome.len()]);
        for (tree, unseen) in &self.trees {
            for &world in unseen {
                sums[world] += tree.predict(&|at| columns[at][world]);
                counts[world] += 1.0;
            }
        }
        let worlds: Vec<usize> = (0..outcome.len()).filter(|&world| counts[world] > 0.0).collect();
        let missed: f64 =
            worlds.iter().map(|&world| (outcome[world] - sums[world] / counts[world]).powi(2)).sum();
        let whole = squares(&worlds, outcome);
        if whole > 0.0 { (1.0 - missed / whole).max(0.0) } else { 0.0 }
    }
}
