//! How much there is to simulate, known before it begins.
//!
//! Problem: a scenario is short, and may still take years to simulate (`loop: 1e9`). Approach: count what its
//! programs do at least, with the repetitions, up to the end of the run, and what the system does meanwhile:
//! it balances, a governor follows the load, and threads that share a PE alternate. What takes longer
//! because threads wait for each other is not counted; [`crate::sim::EVENTS_MAX`] limits each run in any
//! case.

use crate::machine::Machine;
use crate::program::Step;
use crate::scenario::{AppSpec, Scenario, ScenarioError};
use corewise_core::machine_model::power::Plan;

/// The most events that a comparison may have: some minutes.
pub const EVENTS_MAX: f64 = 1e9;

/// What one thread does at least.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Size {
    events: f64,
    cycles: f64,
    /// Time spent asleep.
    seconds: f64,
}

impl Size {
    fn of(steps: &[Step], threads: f64) -> Size {
        let one = |events, mcycles| Size { events, cycles: mcycles * 1e6, seconds: 0.0 };
        let sizes = steps.iter().map(|step| match step {
            // The others do not work meanwhile.
            Step::Serial(_) => one(2.0, 0.0),
            Step::Parallel(work) => {
                one(2.0 + f64::from(work.parts) / threads, work.mcycles / threads * (1.0 - work.imbalance))
            }
            Step::Chain { work, divided, .. } => {
                let share = if *divided { work.mcycles / threads } else { work.mcycles };
                one(2.0, share * (1.0 - work.imbalance))
            }
            Step::Each(work) => one(1.0, work.mcycles * (1.0 - work.imbalance)),
            Step::Critical { work, .. } => one(3.0, work.mcycles * (1.0 - work.imbalance)),
            Step::Barrier | Step::Put(_) | Step::Take(_) => one(1.0, 0.0),
            Step::SleepAbout(time) | Step::Arrival { every: time, .. } | Step::Sleep(time) => {
                Size { events: 1.0, cycles: 0.0, seconds: time.as_secs_f64() }
            }
            Step::Repeat { times, steps } => Size::of(steps, threads).times(f64::from(*times)),
        });
        sizes.fold(Size::default(), |sum, size| Size {
            events: sum.events + size.events,
            cycles: sum.cycles + size.cycles,
            seconds: sum.seconds + size.seconds,
        })
    }

    fn times(self, times: f64) -> Size {
        Size { events: self.events * times, cycles: self.cycles * times, seconds: self.seconds * times }
    }
}

/// What makes most of the events of some runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Most {
    item: &'static str,
    name: String,
    /// How many events it makes at least.
    pub events: f64,
}

/// Returns an error if that many runs of a scenario are too much.
pub fn check(scenario: &Scenario, runs: usize) -> Result<(), ScenarioError> {
    let Most { item, name, events } = most(scenario, runs)?;
    if events <= EVENTS_MAX {
        return Ok(());
    }
    let problem = format!(
        "{runs} runs are at least {events:.1e} events, and {EVENTS_MAX:.0e} are permitted: give it fewer \
         repetitions (rt-app: loop, global.duration), less work, an earlier end (stop.time), or fewer --runs"
    );
    Err(ScenarioError::Item { item, name, problem })
}

/// Returns what makes most of the events of that many runs.
pub fn most(scenario: &Scenario, runs: usize) -> Result<Most, ScenarioError> {
    let machine = Machine::new(scenario.machine.clone())?;
    let fastest = machine.model.pes.iter().map(|pe| pe.speed).fold(0.0, f64::max);
    let cycles_per_second = scenario.machine.ghz * 1e9 * fastest;
    let end = scenario.stop.time.as_secs_f64();
    let pes = machine.model.topology.allowed.len();
    let (mut longest, mut busy, mut threads): (f64, f64, usize) = (0.0, 0.0, 0);
    let mut most: Option<Most> = None;
    for app in &scenario.applications {
        let size = size_of(scenario, app)?;
        // Each thread is given a PE once or more.
        let cpu_seconds = size.cycles / cycles_per_second + 1e-6 * scenario.machine.costs.switch_us;
        let seconds = cpu_seconds + size.seconds;
        let start = app.start.as_secs_f64();
        let part = if start + seconds > end { ((end - start) / seconds).max(0.0) } else { 1.0 };
        let events = part * size.events * (app.threads * app.copies * runs) as f64;
        if most.as_ref().is_none_or(|most| events > most.events) {
            most = Some(Most { item: "application", name: app.name.clone(), events });
        }
        longest = longest.max((start + seconds).min(end));
        busy += cpu_seconds * (app.threads * app.copies) as f64;
        threads += app.threads * app.copies;
    }
    longest = longest.max((busy / pes as f64).min(end));
    // The system balances, governors and policies decide, whatever happens. Where threads share PEs they
    // alternate.
    let is_pinned = scenario.applications.iter().any(|app| app.cpus.is_some())
        || scenario.variants.iter().any(|variant| !variant.pin.is_empty());
    let shared = threads.saturating_sub(if is_pinned { 1 } else { pes }).min(pes) as f64;
    let ticking = machine.power.as_ref().map_or(0, Plan::ticking);
    let periods = longest / scenario.os.balance.as_secs_f64()
        + longest / scenario.interval.as_secs_f64()
        + ticking as f64 * (longest / scenario.os.tick.as_secs_f64())
        + shared * longest / scenario.os.slice_min().as_secs_f64()
        + scenario.groups.values().map(|group| 2.0 * longest / group.period.as_secs_f64()).sum::<f64>();
    let of_time = Most { item: "scenario", name: scenario.name.clone(), events: periods * runs as f64 };
    Ok(most.filter(|most| most.events > of_time.events).unwrap_or(of_time))
}

/// What a thread of an application does until the application has completed as often as it must.
fn size_of(scenario: &Scenario, app: &AppSpec) -> Result<Size, ScenarioError> {
    let size = Size::of(&scenario.program_of(app)?.steps, app.threads as f64);
    let size = Size { cycles: size.cycles * scenario.scale.work, ..size };
    Ok(size.times(scenario.stop.completions as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::compare;

    fn scenario(rest: &str) -> Scenario {
        let machine = "name = 's'\nmachine.name = 'm'\nmachine.topology = 'core:2 pu:1'\ndemand.int = {}\n";
        Scenario::parse(&format!("{machine}{rest}")).unwrap()
    }

    fn app(steps: &str) -> String {
        format!("application = [{{ name = 'a', threads = 2, steps = [{steps}] }}]\n")
    }

    const WORK: &str = "{ each = { mcycles = 3, demand = 'int' } }";

    #[test]
    fn what_would_take_for_ever_is_refused_before_it_begins() {
        let often = format!("{{ repeat = {{ times = 4000000000, steps = [{WORK}, 'barrier'] }} }}");
        let long = "{ each = { mcycles = 3e18, demand = 'int' } }";
        for (text, item) in [
            (format!("stop.time = '8000000000s'\n{}", app(&often)), "application `a`: "),
            (format!("stop.time = '8000000000s'\n{}", app("{ sleep = '7000000000s' }")), "scenario `s`: "),
            (format!("stop.time = '8000000000s'\n{}", app(long)), "scenario `s`: "),
        ] {
            let error = compare(&scenario(&text), None).expect_err(&text).to_string();
            assert!(error.starts_with(item) && error.contains("fewer repetitions"), "{error}");
        }
    }

    #[test]
    fn the_system_s_own_events_count() {
        let events = |rest: &str| most(&scenario(&format!("stop.time = '100s'\n{rest}")), 1).unwrap().events;
        let long = |threads: u32| {
            let step = "{ each = { mcycles = 1e9, demand = 'int' } }";
            format!("application = [{{ name = 'a', threads = {threads}, steps = [{step}] }}]\n")
        };
        // 100 rounds of the policy, 6,250 of the balancer, and 25,000 slices on each of the two PEs.
        assert_eq!(events(&long(2)).round(), 6350.0);
        assert_eq!(events(&long(4)).round(), 56_350.0);
        assert!(events(&format!("os.tick = '1us'\nos.slice = '1us'\n{}", long(3))) > 1e8);
        // A switch that never ends makes the run as long as it may be.
        assert_eq!(events(&format!("machine.costs.switch_us = 1e15\n{}", app(WORK))).round(), 6350.0);
    }

    #[test]
    fn what_ends_early_may_be_long() {
        let often = format!("{{ repeat = {{ times = 4000000000, steps = [{WORK}] }} }}");
        // 2 threads, 30 runs of a second, each step a millisecond.
        check(&scenario(&format!("stop.time = '1s'\n{}", app(&often))), 30).unwrap();
        check(&scenario(&app(WORK)), 1000).unwrap();
    }
}
