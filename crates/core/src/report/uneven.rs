//! Loops in equal parts on fast and slow PEs: whether an application had them, and what they cost.
//!
//! Problem. A parallel loop that is divided equally gives each thread as much work as any other. The threads
//! on fast PEs have done theirs first and wait for those on slow ones, however threads are placed. The
//! remedy, to hand out parts as threads ask for them, is a word in the source that the user must know to be
//! missing.
//!
//! Approach. In each step between two observations, compare the busiest thread of an application on a fast
//! PE with its busiest one on a slow PE: which share of the step each worked (it ran or wanted to, and did
//! not spin). Only steps count in which the one on the slow PE worked all the time, but for a tenth
//! ([`UNTRIED`]): it is the one that others wait for. With equal parts the one on the fast PE works for a
//! share `s`, the speed of the slow PEs; with parts that are handed out it works all the time, too. The
//! busiest one is taken because there are threads beside a team, which do little.
//!
//! The logarithms of the ratios of all steps are [`Evidence`]: if it makes no difference to the threads on
//! which kind of PE they are, these scatter about 0. Loops in equal parts are reported if the interval
//! excludes that less than a tenth is lost, and does not exclude what the speeds explain. Programs gain more
//! or less from a fast PE than the kernel that measured the speeds, so that up to `s²` counts as explained.
//! A program with one thread that works, on a slow PE, and others that hardly do, is far below.
//!
//! Source. What equal parts cost on such machines: Saez, Castro, Prieto-Matias, arXiv 2402.07664, §2.
//!
//! Limits. A few seconds are too short ([`crate::evidence`]). Spinning is work where no samples tell it from
//! work. A thread counts where it was seen last, so threads that the system moves between the kinds within a
//! step look alike, and nothing is said. Threads with unlike work that stay where they are for the whole
//! run, most of it on a slow PE, look like equal parts. Without speeds nothing is said.

use crate::evidence::{Evidence, PAIRS_MAX};
use crate::ids::{AppId, PeId};
use crate::machine_model::MachineModel;
use crate::waits::losses::UNTRIED;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

/// What the threads of applications worked on fast and slow PEs.
#[derive(Debug, Default)]
pub struct Uneven {
    /// In the present step.
    step: BTreeMap<AppId, Busiest>,
    /// In the steps so far.
    teams: BTreeMap<AppId, Team>,
}

/// The share of a step that the busiest thread worked.
#[derive(Debug, Clone, Copy, Default)]
struct Busiest {
    on_fast: f64,
    on_slow: f64,
}

/// The steps of one application, as seconds of work, in bounded memory: several of them together if there
/// are many.
#[derive(Debug, Default)]
struct Team {
    periods: Vec<Busiest>,
    /// The number of steps of each period, but of the last one.
    steps: usize,
    /// That of the last one.
    last: usize,
}

/// What is lost to equal parts: shares of the time of the threads on fast PEs, 0..1.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Loss {
    value: f64,
    low: f64,
    high: f64,
}

impl Uneven {
    /// Takes in the share of the present step that a thread worked, and the kind of its PE.
    pub fn take(&mut self, app: AppId, is_on_fast: bool, share: f64) {
        let busiest = self.step.entry(app).or_default();
        let of = if is_on_fast { &mut busiest.on_fast } else { &mut busiest.on_slow };
        *of = of.max(share);
    }

    /// Ends a step.
    pub fn end_step(&mut self, lasted: Duration) {
        for (app, Busiest { on_fast, on_slow }) in std::mem::take(&mut self.step) {
            if on_fast > 0.0 && on_slow >= 1.0 - UNTRIED {
                let seconds = lasted.as_secs_f64();
                let worked = Busiest { on_fast: on_fast * seconds, on_slow: on_slow * seconds };
                self.teams.entry(app).or_default().push(worked);
            }
        }
    }

    /// Forgets an application.
    pub fn forget(&mut self, app: AppId) {
        self.teams.remove(&app);
    }

    /// Returns what the user should know of each application.
    pub fn notes<Name: Display>(
        &self,
        machine: &MachineModel,
        name: impl Fn(AppId) -> Option<Name>,
    ) -> Vec<String> {
        let Some(slow) = speed_of_slow(machine) else { return Vec::new() };
        let said = self.teams.iter().filter_map(|(&app, team)| Some((name(app)?, team.loss(slow)?)));
        said.map(|(name, loss)| words(&name, &loss)).collect()
    }
}

/// The speed of the slowest PEs in use as a share of that of the fastest kind.
fn speed_of_slow(machine: &MachineModel) -> Option<f64> {
    let fastest = machine.topology.kinds.first()?;
    let slowest = |pes: &mut dyn Iterator<Item = PeId>| {
        let speeds: Option<Vec<f64>> = pes.map(|pe| machine.known_speed(pe)).collect();
        speeds?.into_iter().min_by(f64::total_cmp)
    };
    let usable = &machine.topology.allowed;
    let slow = slowest(&mut usable.difference(&fastest.pes).iter())?;
    Some(slow / slowest(&mut usable.intersection(&fastest.pes).iter())?)
}

impl Team {
    fn push(&mut self, worked: Busiest) {
        match self.periods.last_mut().filter(|_| self.last < self.steps) {
            Some(period) => (*period, self.last) = (period.and(&worked), self.last + 1),
            None => {
                self.periods.push(worked);
                (self.steps, self.last) = (self.steps.max(1), 1);
            }
        }
        if self.periods.len() > PAIRS_MAX {
            // The last one of an odd number stays half as long as the others.
            let is_odd = self.periods.len() % 2 == 1;
            let both = |pair: &[Busiest]| pair.iter().skip(1).fold(pair[0], |sum, next| sum.and(next));
            self.periods = self.periods.chunks(2).map(both).collect();
            self.last += if is_odd { 0 } else { self.steps };
            self.steps *= 2;
        }
    }

    /// Returns what is lost, if equal parts on PEs of speeds 1 and `slow` explain it.
    fn loss(&self, slow: f64) -> Option<Loss> {
        let mut evidence = Evidence::default();
        self.periods.iter().for_each(|period| evidence.take((period.on_fast / period.on_slow).ln()));
        let (low, high) = evidence.interval()?;
        let is_large = high < (1.0 - UNTRIED).ln();
        let is_explained = high >= 2.0 * slow.ln();
        let lost = |log: f64| 1.0 - log.exp();
        (is_large && is_explained).then(|| Loss {
            value: lost(evidence.estimate()),
            low: lost(high),
            high: lost(low),
        })
    }
}

impl Busiest {
    fn and(&self, next: &Busiest) -> Busiest {
        Busiest { on_fast: self.on_fast + next.on_fast, on_slow: self.on_slow + next.on_slow }
    }
}

fn words(name: &impl Display, loss: &Loss) -> String {
    let percent = |share: f64| 100.0 * share;
    format!(
        "{name}: its threads on fast PEs lost {:.0} % of their time waiting for those on slow PEs (95 % \
         certain: {:.0} to {:.0} %), as in loops with equal parts for all threads; schedule(dynamic) hands \
         out parts as threads ask for them, schedule(runtime) does with --adapt-team or OMP_SCHEDULE, \
         and task pools such as TBB do by themselves (docs/team-size.md)",
        percent(loss.value),
        percent(loss.low),
        percent(loss.high),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{ReportedSpeed, Topology};

    /// Two fast PEs and two of this share of their speed.
    fn machine(permille: Option<u32>) -> MachineModel {
        let topology = Topology::synthetic("core:4 pu:1").unwrap().with_stated_kinds("0-1", None);
        let mut topology = topology.unwrap();
        for (kind, permille) in topology.kinds.iter_mut().zip([Some(1000), permille]) {
            kind.speed = permille.map(|permille| ReportedSpeed { permille, source: "test".to_owned() });
        }
        topology.into()
    }

    /// What is said of an application whose threads work so much of each step, in percent, by PE.
    fn said(permille: Option<u32>, steps: usize, threads: &[(u32, f64)]) -> Option<String> {
        let mut uneven = Uneven::default();
        for step in 0..steps {
            // No two steps are quite alike.
            let noise = [0.0, -1.5, 1.0, -0.5][step % 4];
            for &(pe, percent) in threads {
                uneven.take(AppId(1), pe < 2, (percent + noise).clamp(0.0, 100.0) / 100.0);
            }
            uneven.end_step(Duration::from_secs(1));
        }
        uneven.notes(&machine(permille), |_| Some("solver")).pop()
    }

    #[test]
    fn equal_parts_are_distinguished_from_all_else() {
        const HALF: Option<u32> = Some(500);
        let equal_parts = [(0, 50.0), (1, 51.0), (2, 100.0), (3, 99.0)];
        for (what, permille, steps, threads, expected) in [
            ("static loop", HALF, 20, &equal_parts[..], true),
            ("static loop and a helper", HALF, 20, &[(0, 50.0), (1, 0.5), (2, 100.0)], true),
            ("more from a fast PE than measured", Some(700), 20, &[(0, 55.0), (2, 100.0)], true),
            ("a static loop for an hour", HALF, 3600, &equal_parts, true),
            ("too short", HALF, 9, &equal_parts, false),
            ("dynamic loop", HALF, 60, &[(0, 100.0), (1, 99.0), (2, 100.0), (3, 99.0)], false),
            ("dynamic loop with long parts", HALF, 60, &[(0, 95.0), (1, 96.0), (2, 99.0)], false),
            ("one thread", HALF, 60, &[(2, 100.0)], false),
            ("one thread and a helper", HALF, 60, &[(2, 100.0), (0, 1.0)], false),
            ("half of the time sequential", HALF, 60, &[(0, 75.0), (2, 50.0)], false),
            ("equal speeds", Some(1000), 60, &equal_parts, false),
            ("unknown speeds", None, 60, &equal_parts, false),
        ] {
            assert_eq!(said(permille, steps, threads).is_some(), expected, "{what}");
        }
    }

    #[test]
    fn what_is_said_names_the_application_the_loss_and_the_remedy() {
        let said = said(Some(500), 60, &[(0, 50.0), (2, 100.0)]).unwrap();
        assert!(said.starts_with("solver: its threads on fast PEs lost 50 % of their time"), "{said}");
        assert!(said.contains("schedule(dynamic)") && said.contains("--adapt-team"), "{said}");
    }

    #[test]
    fn an_hour_of_steps_keeps_its_sums_in_few_periods() {
        let mut team = Team::default();
        (0..3601).for_each(|_| team.push(Busiest { on_fast: 0.5, on_slow: 1.0 }));
        assert!(team.periods.len() <= PAIRS_MAX);
        assert_eq!(team.periods.iter().map(|period| period.on_slow).sum::<f64>(), 3601.0);
        let longest = team.periods.iter().map(|period| period.on_slow).fold(0.0, f64::max);
        assert_eq!(longest, team.steps as f64);
        assert_eq!(team.periods.last().unwrap().on_slow, team.last as f64);
    }
}
