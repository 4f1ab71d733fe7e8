//! The condition under which a claim holds: one bound of one parameter.
//!
//! Problem: a claim holds in some worlds and not in others; which worlds are those? Approach: of all bounds
//! of all parameters, the one that separates the two best: by the fall of the variance of "it holds", as at
//! the root of a classification tree (L. Breiman et al., "Classification and Regression Trees", 1984). Each
//! side has at least a tenth of the worlds. The best of many bounds separates something by chance alone, so
//! the same search is made in worlds whose outcomes are shuffled; a condition is named only if at most one
//! of twenty of those is as good (E. Edgington, "Randomization Tests", 1980). Limits: one bound of one
//! parameter. Where a claim needs two at once, the condition that is named is the more important of both.

use super::parameter::{Draw, Parameter};
use crate::random::Random;
use serde::Serialize;

/// Shuffles that a condition is compared with.
const SHUFFLES: usize = 199;

/// The largest chance of a condition that is named.
const CHANCE_MAX: f64 = 0.05;

/// A condition: a claim holds in more of the worlds that meet it than in the others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Condition {
    /// The parameter.
    pub parameter: String,
    /// The values, in words that follow its name: `is above 1.3`.
    pub values: String,
    /// The worlds that meet it.
    pub worlds: usize,
    /// The share of these in which the claim holds.
    pub share: f64,
    /// The share of the others.
    pub share_of_others: f64,
    /// The share of shuffled outcomes that a condition separates as well.
    pub chance: f64,
}

/// The worlds in the order of one parameter.
struct Order<'a> {
    parameter: &'a Parameter,
    worlds: Vec<usize>,
    numbers: Vec<f64>,
}

/// A bound after the first `first` worlds of an order.
#[derive(Clone, Copy)]
struct Split {
    order: usize,
    first: usize,
    gain: f64,
}

/// Returns the condition that separates the worlds in which a claim holds best from the others, if one does
/// so better than chance. `draws` and `holds` are those of the same worlds.
pub fn condition(parameters: &[Parameter], draws: &[&[Draw]], holds: &[bool]) -> Option<Condition> {
    let orders: Vec<Order> = parameters.iter().enumerate().map(|(at, of)| order(of, draws, at)).collect();
    let split = best(&orders, holds)?;
    let mut random = Random::new(1, 0);
    let mut shuffled = holds.to_vec();
    let as_good = (0..SHUFFLES).filter(|_| {
        random.shuffle(&mut shuffled);
        best(&orders, &shuffled).is_some_and(|other| other.gain >= split.gain)
    });
    let chance = (1 + as_good.count()) as f64 / (1 + SHUFFLES) as f64;
    (chance <= CHANCE_MAX).then(|| described(&orders[split.order], split, holds, chance))
}

fn order<'a>(parameter: &'a Parameter, draws: &[&[Draw]], at: usize) -> Order<'a> {
    let mut worlds: Vec<usize> = (0..draws.len()).collect();
    worlds.sort_by(|&a, &b| draws[a][at].number.total_cmp(&draws[b][at].number));
    let numbers = worlds.iter().map(|&world| draws[world][at].number).collect();
    Order { parameter, worlds, numbers }
}

fn best(orders: &[Order], holds: &[bool]) -> Option<Split> {
    let count = holds.len();
    let least = (count / 10).max(5);
    let all = holds.iter().filter(|holds| **holds).count() as f64;
    let mut found: Option<Split> = None;
    for (order, Order { worlds, numbers, .. }) in orders.iter().enumerate() {
        let mut held = 0.0;
        for first in 1..count {
            held += f64::from(u8::from(holds[worlds[first - 1]]));
            if first < least || count - first < least || numbers[first - 1] == numbers[first] {
                continue;
            }
            let (below, above) = (held / first as f64, (all - held) / (count - first) as f64);
            // The variance between both sides, times the number of worlds.
            let gain = first as f64 * (count - first) as f64 / count as f64 * (below - above).powi(2);
            if gain > 0.0 && found.is_none_or(|best| gain > best.gain) {
                found = Some(Split { order, first, gain });
            }
        }
    }
    found
}

fn described(order: &Order, split: Split, holds: &[bool], chance: f64) -> Condition {
    let (below, above) = order.worlds.split_at(split.first);
    let share =
        |worlds: &[usize]| worlds.iter().filter(|&&world| holds[world]).count() as f64 / worlds.len() as f64;
    let bound = order.parameter.bound(order.numbers[split.first - 1], order.numbers[split.first]);
    let is_above = share(above) > share(below);
    let (inside, outside) = if is_above { (above, below) } else { (below, above) };
    Condition {
        parameter: order.parameter.name.clone(),
        values: order.parameter.side(bound, is_above),
        worlds: inside.len(),
        share: share(inside),
        share_of_others: share(outside),
        chance,
    }
}
