//! Which outcomes a processor probably predicted wrongly.
//!
//! Problem: a misprediction takes as long as tens of instructions, so code with unpredictable branches takes
//! much more time per branch than other code; but without hardware nothing says which outcomes those are.
//!
//! Approach: predict. Processors predict an outcome from those before it, as a table of contexts does: the
//! last 32, 8, 2 or 0 outcomes at any branch, the longest that was seen often enough, predict the way that
//! most often followed them. The table is made of one half of the windows and judges the other half, so that
//! no window predicts itself. Returns are never mispredicted (processors have a stack for them).
//!
//! Source: prediction by partial matching (Chen, Coffey and Mudge, "Analysis of Branch Prediction via Data
//! Compression", ASPLOS 1996), which the predictors of today's processors (TAGE; Seznec and Michaud, 2006)
//! approximate. Limits: a context that windows show seldom is predicted worse than by a processor that has
//! seen it millions of times; correlations over more than 32 outcomes are not seen.

use crate::graph::{EdgeId, Exit, Graph, SiteId};
use crate::join::Piece;
use crate::outcome::Outcome;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// The numbers of outcomes in a context, the longest first.
const ORDERS: [usize; 4] = [32, 8, 2, 0];
/// A context predicts if it was seen this often,
const SEEN_MIN: u32 = 8;
/// or this often, always with the same outcome.
const SEEN_ALIKE_MIN: u32 = 3;
/// More outcomes are not learnt: some 100 MB of tables.
const LEARNT_MAX: usize = 2_000_000;

/// What followed a context: the outcome that leads, by how much, and of how many.
#[derive(Clone, Copy)]
struct Followed {
    edge: EdgeId,
    lead: u32,
    seen: u32,
}

type Table = FxHashMap<u64, Followed>;

/// Returns for each outcome whether it was probably mispredicted.
pub(crate) fn mispredicted(graph: &Graph, windows: &[Piece], outcomes: &[Outcome]) -> Vec<bool> {
    let learn_one_in = outcomes.len().div_ceil(LEARNT_MAX).max(1);
    let half_of = |index: usize| index / learn_one_in % 2;
    let mut halves = [Table::default(), Table::default()];
    for (index, window) in windows.iter().enumerate().step_by(learn_one_in) {
        let table = &mut halves[half_of(index)];
        each_choice(graph, &outcomes[window.range.clone()], |at, site, before| {
            let edge = outcomes[window.range.start + at].edge;
            for order in ORDERS.into_iter().filter(|&order| order <= before.len()) {
                learn(table, context(site, &before[before.len() - order..]), edge);
            }
        });
    }
    let mut missed = vec![false; outcomes.len()];
    for (index, window) in windows.iter().enumerate() {
        let table = &halves[1 - half_of(index)];
        each_choice(graph, &outcomes[window.range.clone()], |at, site, before| {
            let at = window.range.start + at;
            missed[at] = predicted(table, site, before).is_some_and(|edge| edge != outcomes[at].edge);
        });
    }
    missed
}

/// Calls `each` for every outcome that needs a prediction, with its index, its site and the outcomes before.
fn each_choice(graph: &Graph, outcomes: &[Outcome], mut each: impl FnMut(usize, SiteId, &[Outcome])) {
    for (at, outcome) in outcomes.iter().enumerate() {
        let id = graph.edge_of(outcome.edge).site;
        let site = graph.site(id);
        if site.edges.len() > 1 && site.exit != Exit::Return {
            each(at, id, &outcomes[..at]);
        }
    }
}

fn context(site: SiteId, before: &[Outcome]) -> u64 {
    let mut hasher = FxHasher::default();
    // This hash does not notice zeros at the beginning.
    (u64::from(site.0) + 1, before.len()).hash(&mut hasher);
    before.iter().for_each(|outcome| outcome.edge.hash(&mut hasher));
    hasher.finish()
}

fn learn(table: &mut Table, context: u64, edge: EdgeId) {
    let followed = table.entry(context).or_insert(Followed { edge, lead: 0, seen: 0 });
    followed.seen += 1;
    if followed.edge == edge {
        followed.lead += 1;
    } else if followed.lead > 0 {
        followed.lead -= 1;
    } else {
        (followed.edge, followed.lead) = (edge, 1);
    }
}

fn predicted(table: &Table, site: SiteId, before: &[Outcome]) -> Option<EdgeId> {
    let orders = ORDERS.into_iter().filter(|&order| order <= before.len());
    let mut known = orders.filter_map(|order| table.get(&context(site, &before[before.len() - order..])));
    let is_enough = |followed: &&Followed| {
        followed.seen >= SEEN_MIN || followed.seen >= SEEN_ALIKE_MIN && followed.lead == followed.seen
    };
    known.find(is_enough).map(|followed| followed.edge)
}
