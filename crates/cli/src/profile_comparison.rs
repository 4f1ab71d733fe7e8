//! What the Δs of a profile compare: the series of its figures.

use crate::profile_words as words;
use corewise_core::profile::{Estimate, MachineProfile, Subject, Verdict};

/// With more series than this nobody tells their colours apart.
const SERIES_MAX: usize = 6;

/// Close against distant, or together against alone.
pub struct Comparison {
    /// `same core against same L3`.
    pub name: String,
    /// Whether it is against running alone.
    pub alone: bool,
    /// One entry for each thing that was run.
    pub cells: Vec<Cell>,
}

/// One Δ.
pub struct Cell {
    /// What was run.
    pub subject: Subject,
    /// The Δ.
    pub delta: Estimate,
    /// What it says; `None` against running alone, where nobody has a choice.
    pub verdict: Option<Verdict>,
}

impl Cell {
    /// Whether the noise is larger than the value.
    pub fn is_uncertain(&self) -> bool {
        self.verdict == Some(Verdict::Unknown)
    }
}

impl Comparison {
    /// The Δ of one thing.
    pub fn cell(&self, subject: Subject) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.subject == subject)
    }
}

/// The comparisons of neighbouring classes first; against running alone where there is no Δ between classes.
pub fn comparisons(profile: &MachineProfile) -> Vec<Comparison> {
    let mut pairs: Vec<(usize, usize)> = profile.deltas.iter().map(|d| (d.close, d.distant)).collect();
    pairs.sort_by_key(|&(close, distant)| (distant.saturating_sub(close), close));
    pairs.dedup();
    if pairs.is_empty() {
        let all = (0..profile.classes.len()).map(|class| against_alone(profile, class));
        return all.filter(|comparison| !comparison.cells.is_empty()).collect();
    }
    pairs.into_iter().take(SERIES_MAX).map(|(close, distant)| between(profile, close, distant)).collect()
}

fn between(profile: &MachineProfile, close: usize, distant: usize) -> Comparison {
    let of_pair = profile.deltas.iter().filter(|d| (d.close, d.distant) == (close, distant));
    Comparison {
        name: format!("{} against {}", words::class(profile, close), words::class(profile, distant)),
        alone: false,
        cells: of_pair
            .map(|d| Cell { subject: d.subject, delta: d.delta, verdict: Some(d.verdict) })
            .collect(),
    }
}

fn against_alone(profile: &MachineProfile, class: usize) -> Comparison {
    let of_class = profile.pairs.iter().filter(|pair| pair.class == class);
    Comparison {
        name: format!("{} against alone", words::class(profile, class)),
        alone: true,
        cells: of_class
            .filter_map(|pair| {
                let subject = Subject::Workload(pair.workload);
                Some(Cell { subject, delta: pair.delta_alone?, verdict: None })
            })
            .collect(),
    }
}
