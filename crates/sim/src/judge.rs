//! Another judge: what programs cost each other by a table, with none of the predictor's equations.
//!
//! Problem: policies will predict with the equations by which the simulator works out its results
//! ([`corewise_core::machine_model::contention`]). A policy that is judged by its own model is right by
//! definition. Approach: `[judge]` holds slowdowns as they are measured, pair by pair: of a thread with one
//! demand while a thread with another one runs on a PE that shares something with its own. A thread runs as
//! fast as alone on its PE, divided by its slowdown. Counters show what they show of it alone.
//!
//! What a thread suffers from several neighbours is not in a table of pairs: the losses are added, which
//! holds for neighbours that use different resources, and for few (published measurements of more and more
//! neighbours of one kind: 9, 35 and 59 % for twice, four and eight times as many, so somewhat less than
//! their sum). Source: tables of measured pairs such as those of path profiling §5, SMiTe (MICRO'14) and
//! SMTcheck (HPCA'26). Limits: no pair that is not in the table costs anything; no thread gains by another
//! one, unless the table says so; memory on other nodes costs nothing more.

use corewise_core::ids::PeId;
use corewise_core::machine_model::contention::Demand;
use corewise_core::topology::{DomainKind, Topology};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};

/// The table as written in a scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeSpec {
    /// The measured pairs.
    pub pairs: Vec<PairSpec>,
}

/// A measured pair.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairSpec {
    /// The demand of the thread that suffers.
    pub of: String,
    /// That of the other one.
    pub beside: String,
    /// What their PEs share. Where they share several things with an entry, the closest one counts.
    pub shares: DomainKind,
    /// Its time beside the other one, relative to its time alone.
    pub slowdown: f64,
}

/// The table, for the demands and the machine of a simulation.
#[derive(Debug, Clone)]
pub(crate) struct Judge {
    /// The demands that occur in it; others cost nothing and suffer nothing.
    demands: Vec<Demand>,
    /// What a thread loses, by its demand, that of the other thread, and what they share.
    losses: HashMap<(usize, usize), Vec<(DomainKind, f64)>>,
    /// For each PE what it is part of: domains by their kinds and numbers, the closest first.
    domains: Vec<Vec<(DomainKind, usize)>>,
}

impl JudgeSpec {
    /// Returns what is wrong with it, if anything is.
    pub fn fault(&self, demands: &BTreeMap<String, Demand>) -> Option<String> {
        self.pairs.iter().find_map(|pair| {
            let unknown = [&pair.of, &pair.beside].into_iter().find(|name| !demands.contains_key(*name));
            let is_possible = pair.slowdown.is_finite() && pair.slowdown > 0.0;
            match unknown {
                Some(name) => Some(format!("pairs: there is no [demand.{name}]")),
                None if !is_possible => {
                    Some(format!("pairs: the slowdown of {} beside {} must be above 0", pair.of, pair.beside))
                }
                None => None,
            }
        })
    }

    /// Builds the table. Names without a demand were found by [`JudgeSpec::fault`].
    pub(crate) fn table(&self, demands: &BTreeMap<String, Demand>, topology: &Topology) -> Judge {
        let mut known: Vec<Demand> = Vec::new();
        let mut number = |name: &str| {
            let demand = demands.get(name).copied().unwrap_or_default();
            known.iter().position(|other| *other == demand).unwrap_or_else(|| {
                known.push(demand);
                known.len() - 1
            })
        };
        let mut losses: HashMap<(usize, usize), Vec<(DomainKind, f64)>> = HashMap::new();
        for pair in &self.pairs {
            let key = (number(&pair.of), number(&pair.beside));
            losses.entry(key).or_default().push((pair.shares, pair.slowdown - 1.0));
        }
        let place = |pe: PeId| {
            let parts = topology.domains.iter().enumerate().filter(|(_, domain)| domain.pes.contains(pe));
            let mut parts: Vec<_> = parts.map(|(number, domain)| (domain.kind, number)).collect();
            parts.sort();
            parts
        };
        Judge { demands: known, losses, domains: topology.pes.iter().map(place).collect() }
    }
}

impl Judge {
    /// Returns how many times as long as alone each thread takes: threads by their PE (its place among the
    /// machine's) and demand.
    pub(crate) fn slowdowns(&self, threads: &[(usize, Demand)]) -> Vec<f64> {
        let number = |demand: &Demand| self.demands.iter().position(|known| known == demand);
        let threads: Vec<_> = threads.iter().map(|(pe, demand)| (*pe, number(demand))).collect();
        let loss = |(pe, of): (usize, Option<usize>), (other, beside): (usize, Option<usize>)| {
            let losses = of.zip(beside).and_then(|pair| self.losses.get(&pair))?;
            let shared = self.domains[pe].iter().filter(|part| self.domains[other].contains(part));
            shared
                .filter_map(|(kind, _)| losses.iter().find(|(of, _)| of == kind))
                .next()
                .map(|(_, loss)| *loss)
        };
        let sum = |index: usize| {
            let others = threads.iter().enumerate().filter(|(other, _)| *other != index);
            others.filter_map(|(_, other)| loss(threads[index], *other)).sum::<f64>()
        };
        // Threads may help each other, but never make time stand still.
        (0..threads.len()).map(|index| (1.0 + sum(index)).max(0.1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(pairs: &[(&str, &str, DomainKind, f64)]) -> (Judge, Demand, Demand) {
        let demand = |fpu| Demand { fpu, ..Demand::default() };
        let demands = BTreeMap::from([("a".to_owned(), demand(0.1)), ("b".to_owned(), demand(0.9))]);
        let pair = |&(of, beside, shares, slowdown): &(&str, &str, DomainKind, f64)| PairSpec {
            of: of.to_owned(),
            beside: beside.to_owned(),
            shares,
            slowdown,
        };
        let spec = JudgeSpec { pairs: pairs.iter().map(pair).collect() };
        assert_eq!(spec.fault(&demands), None);
        // PEs 0 and 1 on one core, 2 and 3 on another one of the same cache.
        let topology = Topology::synthetic("l3:1 core:2 pu:2").unwrap();
        (spec.table(&demands, &topology), demand(0.1), demand(0.9))
    }

    #[test]
    fn the_closest_thing_that_is_shared_and_measured_counts() {
        let pairs = [("a", "b", DomainKind::Core, 1.5), ("a", "b", DomainKind::L3, 1.2)];
        let (judge, a, b) = judge(&pairs);
        assert_eq!(judge.slowdowns(&[(0, a), (1, b)]), [1.5, 1.0]);
        assert_eq!(judge.slowdowns(&[(0, a), (2, b)]), [1.2, 1.0]);
        assert_eq!(judge.slowdowns(&[(0, a), (1, a)]), [1.0, 1.0], "no such pair");
    }

    #[test]
    fn losses_by_several_neighbours_are_added() {
        let (judge, a, b) = judge(&[("a", "b", DomainKind::L3, 1.2), ("b", "b", DomainKind::Core, 1.9)]);
        let found = judge.slowdowns(&[(0, a), (2, b), (3, b)]);
        let expected = [1.4, 1.9, 1.9];
        assert!(
            found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-9),
            "{found:?}"
        );
    }

    #[test]
    fn a_table_with_an_unknown_demand_or_an_impossible_slowdown_is_refused() {
        let demands = BTreeMap::from([("a".to_owned(), Demand::default())]);
        let fault = |beside: &str, slowdown| {
            let (of, beside) = ("a".to_owned(), beside.to_owned());
            let pairs = vec![PairSpec { of, beside, shares: DomainKind::L2, slowdown }];
            JudgeSpec { pairs }.fault(&demands).unwrap_or_default()
        };
        assert!(fault("c", 1.0).contains("[demand.c]"));
        assert!(fault("a", 0.0).contains("above 0") && fault("a", f64::NAN).contains("above 0"));
        assert_eq!(fault("a", 0.9), "");
    }
}
