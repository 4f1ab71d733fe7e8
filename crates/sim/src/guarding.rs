//! Evaluates the guard: random programs under harmful and under helpful policies.
//!
//! Problem: [the guard](corewise_core::guard) must revert soon what hurts and keep what helps, for any
//! programs, machines and policies. Approach: a seed makes a machine (with slow PEs, shared FPUs, caches,
//! several memory nodes, or none of these), one to three applications that run all the time in parallel and
//! serial phases, and for harmful policies one of [`Foe`]. The same seed is run for a minute without a
//! policy, with it, and with it under the guard; the progress is the mean over the applications of the
//! logarithm of their work. Source: ours. Limits: everything is simulated; programs neither sleep for long
//! nor end.

use crate::random::Random;
use crate::scenario::{GuardSpec, Scenario, ScenarioError, Variant};
use crate::world::SimWorld;
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::guard::Findings;
use corewise_core::ids::PeId;
use corewise_core::plan::{Assignment, Placement};
use corewise_core::policy::{self, Needs, Policy, PolicyError, PolicySpec, Scene};
use corewise_core::time::Time;
use corewise_core::world::control_loop;
use std::time::Duration;

/// Streams of the seed, apart from those of the simulation and of random scenarios.
const STREAM_SCENARIO: u64 = 200;
const STREAM_FOE: u64 = 201;

/// A harmful policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foe {
    /// Binds threads at random, differently each time.
    Random,
    /// Binds all to the slowest PE.
    Worst,
    /// Alternates between binding all to the slowest PE and freeing them.
    Flapping,
    /// Acts like a good policy for some time, and then does its worst.
    Turncoat,
}

impl Foe {
    /// All harmful policies.
    pub const ALL: [Foe; 4] = [Foe::Random, Foe::Worst, Foe::Flapping, Foe::Turncoat];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Foe::Random => "random",
            Foe::Worst => "worst",
            Foe::Flapping => "flapping",
            Foe::Turncoat => "turncoat",
        }
    }
}

/// Policies that help some programs on some machines.
pub const FRIENDS: [&str; 4] = ["spread", "busyfcs", "pa", "mintlp"];

/// The results of a seed's runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// The progress with the policy over that without it, less 1.
    pub unguarded: f64,
    /// The progress under the guard, likewise.
    pub guarded: f64,
    /// The findings of the guard.
    pub findings: Findings,
}

/// Why a seed could not be run: an error of the generator.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GuardingError {
    /// It wrote an invalid scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// It named an unknown policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// Runs a seed under a harmful policy.
pub fn against(seed: u64, foe: Foe, time: Duration) -> Result<Outcome, GuardingError> {
    compare(seed, time, |scenario| {
        let topology = scenario.simulation(&default(), seed)?.machine.reported_model().topology;
        let worst = topology.kinds.last().map_or(&topology.pes, |kind| &kind.pes).first().unwrap_or(PeId(0));
        let chance = Random::new(seed, STREAM_FOE);
        let friend = policy::build(FRIENDS[0])?;
        Ok(Box::new(Harmful { foe, chance, worst, friend, turns_at: None, is_bad: false }))
    })
}

/// Runs a seed under a policy that may help.
pub fn with_friend(seed: u64, name: &str, time: Duration) -> Result<Outcome, GuardingError> {
    compare(seed, time, |_| Ok(policy::build(name)?))
}

fn compare(
    seed: u64,
    time: Duration,
    make: impl Fn(&Scenario) -> Result<Box<dyn Policy>, GuardingError>,
) -> Result<Outcome, GuardingError> {
    let scenario = Scenario::parse(&scenario(seed, time))?;
    let (without, _) = run(&scenario, seed, Box::new(Nothing), false)?;
    let (with, _) = run(&scenario, seed, make(&scenario)?, false)?;
    let (guarded, findings) = run(&scenario, seed, make(&scenario)?, true)?;
    let gain = |work: &[f64]| {
        let logs = work.iter().zip(&without).map(|(work, without)| (work / without).ln());
        (logs.sum::<f64>() / work.len() as f64).exp_m1()
    };
    Ok(Outcome { unguarded: gain(&with), guarded: gain(&guarded), findings: findings.unwrap_or_default() })
}

/// Returns the work of each application, and the findings of the guard.
fn run(
    scenario: &Scenario,
    seed: u64,
    policy: Box<dyn Policy>,
    guarded: bool,
) -> Result<(Vec<f64>, Option<Findings>), GuardingError> {
    let sim = scenario.simulation(&default(), seed)?;
    let machine = sim.machine.reported_model();
    let guard = guarded.then_some(seed);
    let config = EngineConfig { guard, ..EngineConfig::with_interval(scenario.interval) };
    let mut engine = Engine::new(machine, policy, config);
    let mut world = SimWorld::new(sim, seed);
    let Ok(()) = control_loop(&mut world, &mut engine, |_, _, _| {});
    Ok((world.sim().apps.iter().map(|app| app.work).collect(), engine.findings().copied()))
}

fn default() -> Variant {
    Variant::policy(PolicySpec::from(&policy::DEFAULT))
}

/// Binds no thread.
struct Nothing;

impl Policy for Nothing {
    fn name(&self) -> &str {
        "nothing"
    }

    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn place(&mut self, _: &Scene<'_>) -> Placement {
        Placement::default()
    }
}

struct Harmful {
    foe: Foe,
    chance: Random,
    worst: PeId,
    friend: Box<dyn Policy>,
    turns_at: Option<Time>,
    is_bad: bool,
}

impl Harmful {
    /// Returns whether it does harm now.
    fn is_bad(&mut self, now: Time) -> bool {
        let (from_s, to_s) = match self.foe {
            Foe::Random | Foe::Worst => return true,
            Foe::Flapping => (0.3, 10.0),
            // Once it has turned, it stays bad.
            Foe::Turncoat if self.is_bad => return true,
            Foe::Turncoat => (3.0, 30.0),
        };
        let at = match self.turns_at {
            Some(at) if now >= at => {
                self.is_bad = !self.is_bad;
                None
            }
            at => at,
        };
        let next = || now + Duration::from_secs_f64(from_s + (to_s - from_s) * self.chance.unit());
        self.turns_at = Some(at.unwrap_or_else(next));
        self.is_bad
    }
}

impl Policy for Harmful {
    fn name(&self) -> &str {
        self.foe.name()
    }

    fn needs(&self) -> Needs {
        self.friend.needs()
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        if !self.is_bad(scene.now) {
            return if self.foe == Foe::Turncoat { self.friend.place(scene) } else { Placement::default() };
        }
        let mut placement = Placement::default();
        for subject in scene.threads.iter().filter(|subject| subject.placeable) {
            let pes = match self.foe {
                Foe::Random => {
                    let any = self.chance.below(scene.allowed.len().max(1));
                    scene.allowed.iter().nth(any).into_iter().collect()
                }
                Foe::Worst | Foe::Flapping | Foe::Turncoat => CpuSet::from_iter([self.worst]),
            };
            placement.bound.insert(subject.view.thread, Assignment { pes, reason: "to do harm".into() });
        }
        placement
    }
}

/// Returns the scenario of a seed, as a user would write it.
pub fn scenario(seed: u64, time: Duration) -> String {
    let mut chance = Random::new(seed, STREAM_SCENARIO);
    let mut from = |choices: &[&'static str]| choices[chance.below(choices.len())];
    let topology = from(&[
        "pack:1 l3:1(size=8MB) core:2 pu:1",
        "pack:1 l3:1(size=8MB) core:4 pu:1",
        "pack:1 l3:1(size=8MB) l2:4(size=2MB) module:1 core:2 pu:1",
        "pack:1 l3:1(size=8MB) l2:4(size=1MB) core:1 pu:2",
        "numa:2 pack:1 l3:1(size=8MB) core:4 pu:1",
    ]);
    let speeds = from(&["", "{ pes = '0', speed = 2.0 }", "{ pes = '0-1', speed = 1.5 }", ""]);
    let os = from(&["4ms", "20ms", "100ms"]);
    let mut text = format!(
        "name = 'guard {seed}'\ninterval = '1s'\nstop = {{ completions = 1000, time = '{}ms' }}\n\
         os = {{ balance = '{os}' }}\n\
         [machine]\nname = 'm'\ntopology = '{topology}'\nghz = 3.0\nspeeds = [{speeds}]\n\
         units = {{ fpu_conflict = 0.8 }}\nmemory = {{ memory_latency_cycles = 200 }}\n[guard]\nnoise = {}\n\
         [demand]\nint = {{ ipc = 1.5 }}\nfp = {{ fpu = 0.9 }}\n\
         mem = {{ l2_misses_per_100_cycles = 1.0, working_set_mib = 1.0 }}\n",
        time.as_millis(),
        GuardSpec::default().noise,
    );
    for app in 0..1 + chance.below(3) {
        let threads = 1 + chance.below(5);
        let mut work = |kind: &str, mcycles: f64| {
            let demand = ["int", "fp", "mem"][chance.below(3)];
            let mcycles = mcycles * (0.5 + chance.unit());
            format!("{{ {kind} = {{ mcycles = {mcycles:.3}, demand = '{demand}' }} }}")
        };
        let (each, parallel) = (work("each", 30.0), work("parallel", 60.0 * threads as f64));
        let serial = work("serial", 10.0);
        let steps = match chance.below(3) {
            0 => each,
            1 => format!("{each}, {parallel}"),
            _ => format!("{parallel}, {serial}"),
        };
        text += &format!(
            "[[application]]\nname = 'a{app}'\nthreads = {threads}\n\
             steps = [{{ repeat = {{ times = 1000000, steps = [{steps}] }} }}]\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hurts_is_taken_back_and_little_is_lost() {
        // Who has a fast PE longer is chance: some scenarios lose or gain more by it than by what is tried.
        for (first, foe) in (1..).zip(Foe::ALL) {
            let seeds = [first, first + 4, first + 8];
            let mut found = seeds.map(|seed| against(seed, foe, Duration::from_secs(20)).unwrap().guarded);
            found.sort_by(f64::total_cmp);
            assert!(found[1] > -0.03, "{foe:?}: {found:?}");
        }
        let worst = against(2, Foe::Worst, Duration::from_secs(20)).unwrap();
        assert!(worst.unguarded < -0.3, "{worst:?}");
        assert!(worst.findings.taken_back_after_seconds.is_some_and(|s| s < 5.0), "{worst:?}");
    }
}
