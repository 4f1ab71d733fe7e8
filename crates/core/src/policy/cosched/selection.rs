//! Which thread runs beside which, chosen at each dispatch as in the kernel of the paper.
//!
//! Problem: binding decides where threads wait, not which of them runs next. Approach: where the world asks
//! at each dispatch, the thread is taken that differs most in its events from those on the neighbouring PEs,
//! of the first few that wait, and no thread is passed over too often. Source: path profiling §4.1. Limits:
//! it knows only each thread's last quantum.

use super::super::dispatch::{Candidate, Dispatch, EventsPerCycle, Vacancy};
use super::super::kind;
use super::{Events, Parameters, difference};
use crate::ids::ThreadId;
use rustc_hash::FxHashMap;

/// Returns the selection with the default parameters.
pub(in super::super) fn at_dispatch() -> Box<dyn Dispatch> {
    let parameters = Parameters::new(&mut kind::Parameters::defaults());
    Box::new(Selection { parameters, skips: FxHashMap::default() })
}

/// Selects the waiting thread that differs most from those beside it.
struct Selection {
    parameters: Parameters,
    /// How often threads were passed over since they last ran.
    skips: FxHashMap<ThreadId, u32>,
}

impl Dispatch for Selection {
    fn pick(&mut self, vacancy: &Vacancy<'_>) -> usize {
        let Parameters { window, skips_max, weights, .. } = self.parameters;
        let window = &vacancy.candidates[..window.clamp(1, vacancy.candidates.len())];
        let skips = |candidate: &Candidate| self.skips.get(&candidate.thread).copied().unwrap_or_default();
        let value = |candidate: &Candidate| {
            let events = Events::from(candidate.last);
            vacancy.beside.iter().map(|a| difference(&weights, &Events::from(a.last), &events)).sum::<f64>()
        };
        let overdue = window.iter().position(|candidate| skips(candidate) >= skips_max);
        let picked = overdue.unwrap_or_else(|| {
            // Ties go to the first thread: `max_by` returns the last maximum, of the reversed window.
            let by_value = |a: &usize, b: &usize| value(&window[*a]).total_cmp(&value(&window[*b]));
            (0..window.len()).rev().max_by(by_value).unwrap_or(0)
        });
        for passed in &window[..picked] {
            *self.skips.entry(passed.thread).or_default() += 1;
        }
        self.skips.remove(&window[picked].thread);
        picked
    }
}

impl From<Option<EventsPerCycle>> for Events {
    fn from(last: Option<EventsPerCycle>) -> Self {
        Events {
            l2_misses: last.map(|last| last.l2_misses),
            fpu: last.map(|last| last.fpu),
            branches: last.map(|last| last.branches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PeId;

    fn candidate(tid: u32, fpu: f64) -> Candidate {
        let last = Some(EventsPerCycle { l2_misses: 0.0, fpu, branches: 0.1 });
        Candidate { thread: ThreadId { tid, generation: 0 }, last }
    }

    #[test]
    fn the_most_different_of_the_first_three_runs_and_none_is_passed_over_four_times() {
        let mut selection = at_dispatch();
        let candidates = [candidate(1, 0.1), candidate(2, 0.4), candidate(3, 0.3), candidate(4, 0.9)];
        let beside = [candidate(9, 0.0)];
        let vacancy = Vacancy { pe: PeId(0), candidates: &candidates, beside: &beside };
        let picks: Vec<usize> = (0..5).map(|_| selection.pick(&vacancy)).collect();
        assert_eq!(picks, [1, 1, 1, 0, 1], "the fourth is out of the window, the first is overdue");
        let alone = Vacancy { beside: &[], ..vacancy };
        assert_eq!(at_dispatch().pick(&alone), 0, "with no thread beside it the order stays");
    }

    #[test]
    fn a_thread_without_counters_goes_first() {
        let candidates = [candidate(1, 0.9), Candidate { last: None, ..candidate(2, 0.0) }];
        let beside = [candidate(9, 0.0)];
        let vacancy = Vacancy { pe: PeId(0), candidates: &candidates, beside: &beside };
        assert_eq!(at_dispatch().pick(&vacancy), 1);
    }
}
