//! Continues windows that ended early by others.
//!
//! A window ends early before an instruction that the sampler cannot follow: mostly a system call. The code
//! after it is then in few windows, and the code before it in too many: an execution soon after a system call
//! can only be in windows that begin between the two. Instead of correcting every weight for that, the
//! windows are completed: one that stopped in a straight line is continued by one that begins further down
//! the same line. Those that begin there have seen, with equal probability, what follows such a stop, and are
//! used alternately. (Statistics knows this as hot-deck imputation.) It is assumed that what follows does not
//! depend on what came before the stop; no window can show that.
//!
//! A window is continued to the length that it would have had. Recordings have windows of two lengths, and
//! one that stopped early does not tell which; so the same share of them as of the whole ones becomes long.

use crate::graph::{BlockId, Graph, SiteId};
use crate::outcome::Outcome;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// One window's outcomes.
#[derive(Debug, Clone)]
pub(crate) struct Piece {
    /// Where it begins.
    pub first: BlockId,
    /// Where its sample was taken, uniformly in time: the site that ends that straight line.
    pub sampled: SiteId,
    /// The range of its outcomes among all.
    pub range: Range<usize>,
    /// The time that it represents, in the common unit.
    pub time: f64,
    /// If it stopped early, where in which line: the instruction that it did not execute.
    pub stopped: Option<(SiteId, u64)>,
}

/// The length to which windows are continued if none is whole.
const LENGTH_MAX: usize = 256;

/// The lengths that windows have if they do not stop early.
struct Lengths {
    usual: usize,
    long: usize,
    /// One in this many is long.
    long_one_in: usize,
}

impl Lengths {
    fn of(pieces: &[Piece]) -> Lengths {
        let whole = pieces.iter().filter(|piece| piece.stopped.is_none());
        let mut whole: Vec<usize> = whole.map(|piece| piece.range.len()).collect();
        whole.sort_unstable();
        let (Some(&usual), Some(&long)) = (whole.get(whole.len() / 2), whole.last()) else {
            let longest = pieces.iter().map(|piece| piece.range.len()).max().unwrap_or(0).min(LENGTH_MAX);
            return Lengths { usual: longest, long: longest, long_one_in: 1 };
        };
        let longer = whole.len() - whole.partition_point(|&length| length <= usual);
        Lengths { usual, long, long_one_in: whole.len().checked_div(longer).unwrap_or(usize::MAX) }
    }
}

/// Returns the same windows and outcomes, with those that stopped early continued.
pub(crate) fn joined(graph: &Graph, pieces: &[Piece], outcomes: &[Outcome]) -> (Vec<Piece>, Vec<Outcome>) {
    let lengths = Lengths::of(pieces);
    let mut stopped_early = 0;
    let mut beginning_in: FxHashMap<SiteId, Vec<(u64, usize)>> = FxHashMap::default();
    for (index, piece) in pieces.iter().enumerate() {
        let block = graph.block(piece.first);
        beginning_in.entry(block.site).or_default().push((block.start.address, index));
    }
    beginning_in.values_mut().for_each(|windows| windows.sort_unstable());
    let mut visits: FxHashMap<(SiteId, u64), usize> = FxHashMap::default();
    let mut next = |stop: (SiteId, u64)| {
        let (site, address) = stop;
        let windows = beginning_in.get(&site)?;
        let behind = &windows[windows.partition_point(|&(begin, _)| begin < address)..];
        let visit = visits.entry(stop).or_default();
        *visit += 1;
        Some(&pieces[behind.get(*visit % behind.len().max(1))?.1])
    };
    let mut all = Vec::with_capacity(outcomes.len());
    let mut whole = Vec::with_capacity(pieces.len());
    for piece in pieces {
        let begin = all.len();
        all.extend_from_slice(&outcomes[piece.range.clone()]);
        let mut stopped = piece.stopped;
        stopped_early += usize::from(stopped.is_some() && piece.range.len() <= lengths.usual);
        let is_long = piece.range.len() > lengths.usual || stopped_early % lengths.long_one_in == 0;
        let branches_max = if is_long { lengths.long } else { lengths.usual };
        while let (Some(stop), true) = (stopped, all.len() - begin < branches_max) {
            let Some(following) = next(stop) else { break };
            let missing = branches_max - (all.len() - begin);
            all.extend(outcomes[following.range.clone()].iter().take(missing));
            stopped = following.stopped;
        }
        whole.push(Piece { range: begin..all.len(), stopped: None, ..piece.clone() });
    }
    (whole, all)
}
