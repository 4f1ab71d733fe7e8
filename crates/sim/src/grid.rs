//! Programs that share machines of many sizes: the cells of a grid, and what happens in one of them.
//!
//! Problem: rules for waits that are right on the one machine at hand may be wrong on a larger one, or beside
//! another program. Approach: a [`Cell`] is one or two programs on a machine ([`Shape`]) under a
//! [`Condition`]; it is run in several [ways](Way), with several seeds. A program has as many threads as the
//! machine has PEs, each with as much work as on the machine that it was written for. The figure of a run is
//! the time until all copies of the programs have ended; what goes on beside them does not count. What takes
//! longer than the limit counts as the limit. Source: the conditions are those of `studies/waits/measure`
//! (copies, pairs, `--quota`, `--beside corewise emulate-slow`). Limits: a process has one team of threads,
//! so that a program with two libraries cannot be expressed; a run-queue and a barrier cost the same on all
//! machines.

use crate::machine::SpeedSpec;
use crate::program::{Step, Waiting, WorkSpec};
use crate::scenario::{AppSpec, Scenario};
use crate::sim::sched::groups::{Class, GroupSpec, Quota};
use std::fmt;
use std::time::Duration;

mod run;

pub use run::{Changed, Outcome, run};

/// For how long a disturbance takes its PE, and then leaves it.
const DISTURBED_FOR: Duration = Duration::from_millis(5);

/// The same of another guest of a virtual machine: half of the period of `corewise emulate-slow`.
const STOLEN_FOR: Duration = Duration::from_millis(1);

/// CPU time of setting up samples (docs/waits.md, "Cost").
const SETUP: Duration = Duration::from_millis(40);

/// The period of quotas, which is Linux's.
const PERIOD: Duration = Duration::from_millis(100);

/// A machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// The number of its PEs.
    pub pes: usize,
    /// Its synthetic topology.
    pub topology: &'static str,
    /// The PEs that run at half of the speed.
    pub slow: Option<&'static str>,
}

const fn shape(name: &'static str, pes: usize, topology: &'static str) -> Shape {
    Shape { name, pes, topology, slow: None }
}

/// The machines: five sizes with one cache, two sockets, SMT, and two speeds.
pub const SHAPES: [Shape; 8] = [
    shape("2", 2, "pack:1 l3:1(size=32MB) core:2 pu:1"),
    shape("4", 4, "pack:1 l3:1(size=32MB) core:4 pu:1"),
    shape("16", 16, "pack:1 l3:1(size=32MB) core:16 pu:1"),
    shape("64", 64, "pack:1 l3:1(size=32MB) core:64 pu:1"),
    shape("256", 256, "pack:1 l3:1(size=32MB) core:256 pu:1"),
    shape("2x8", 16, "pack:2 l3:1(size=32MB) core:8 pu:1"),
    shape("8smt", 16, "pack:1 l3:1(size=32MB) core:8 pu:2"),
    Shape { slow: Some("4-7"), ..shape("4+4", 8, "pack:1 l3:1(size=32MB) core:8 pu:1") },
];

/// What else there is on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// So many copies of the program; one is alone.
    Copies(usize),
    /// A thread that always works, on the first PE.
    Hog,
    /// Something that takes the first PE for half of the time.
    Disturbed,
    /// Another guest of a virtual machine, which takes all PEs away for half of the time.
    Stolen,
    /// Nothing, but the program has half a PE in each period of its quota.
    HalfAPe,
    /// Nothing, but the program has half of the PEs' time.
    HalfThePes,
    /// Nothing, but the program has the time of four PEs, as in a container on a large machine.
    FourPes,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Copies(1) => f.write_str("alone"),
            Condition::Copies(copies) => write!(f, "x{copies}"),
            Condition::Hog => f.write_str("hog"),
            Condition::Disturbed => f.write_str("disturbed"),
            Condition::Stolen => f.write_str("stolen"),
            Condition::HalfAPe => f.write_str("half-a-pe"),
            Condition::HalfThePes => f.write_str("half-the-pes"),
            Condition::FourPes => f.write_str("four-pes"),
        }
    }
}

/// How programs wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// As they do on their own.
    Unchanged,
    /// They block at once where their libraries can, as with `OMP_WAIT_POLICY=passive`.
    Passive,
    /// Each has one thread, as with `OMP_NUM_THREADS=1`.
    OneThread,
    /// As corewise lets them.
    Corewise,
}

/// Programs on a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The machine.
    pub shape: Shape,
    /// The names of the programs.
    pub programs: Vec<String>,
    /// What else there is.
    pub condition: Condition,
    /// What is simulated; all that the run does not wait for is in the background.
    scenario: Scenario,
}

impl fmt::Display for Cell {
    /// Writes the cell's name, such as `cg+coarse 16 x2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { shape, programs, condition, .. } = self;
        write!(f, "{} {} ", programs.join("+"), shape.name)?;
        match condition {
            Condition::Copies(1) if programs.len() > 1 => f.write_str("together"),
            _ => condition.fmt(f),
        }
    }
}

impl Cell {
    /// Returns the cell of programs, each the first application of its scenario, which are that part as long
    /// as written. All scenarios have the same machine but for its shape, and further applications stand for
    /// what the system does on each PE.
    pub fn new(programs: &[&Scenario], shape: Shape, condition: Condition, part: f64) -> Option<Self> {
        let mut scenario = Scenario::clone(programs.first()?);
        let system = scenario.applications.split_off(1);
        scenario.applications = programs.iter().filter_map(|of| of.applications.first()).cloned().collect();
        for program in &mut scenario.applications {
            let larger = shape.pes as f64 / program.threads as f64;
            program.threads = shape.pes;
            grow(&mut program.steps, larger);
            let as_long = if has_ring(&program.steps) { 1.0 / larger } else { 1.0 };
            shorten(&mut program.steps, part * as_long);
        }
        let names = scenario.applications.iter().map(|program| program.name.clone()).collect();
        scenario.machine.topology = shape.topology.to_owned();
        scenario.machine.speeds.extend(slow(&shape));
        scenario.applications.extend(system_on_each_pe(&system, shape.pes));
        scenario.add(condition, programs.len(), shape.pes);
        Some(Self { shape, programs: names, condition, scenario })
    }

    /// Returns the cell with another limit of its time.
    pub fn at_most(mut self, limit: Duration) -> Self {
        self.scenario.stop.time = limit;
        self
    }

    /// Returns what corewise does to set up its samples, for each copy of a program, where threads are
    /// delayed.
    fn setup(&self) -> AppSpec {
        let programs = self.scenario.applications.iter().filter(|app| !app.background);
        let steps =
            vec![Step::Each(work(SETUP, self.scenario.machine.ghz, &self.scenario.applications[0].steps))];
        let start = self.scenario.decisions.samples_after;
        let copies = programs.map(|program| program.copies).sum();
        AppSpec { copies, start, cpus: None, ..background("corewise", 0, steps) }
    }

    /// Returns how long its runs take at most.
    pub fn limit(&self) -> Duration {
        self.scenario.stop.time
    }

    /// Returns the scenario whose programs wait in this way.
    fn scenario(&self, way: Way) -> Scenario {
        let mut scenario = self.scenario.clone();
        for program in scenario.applications.iter_mut().filter(|program| !program.background) {
            match (way, program.wait) {
                (Way::Passive, Some(Waiting::Library { .. } | Waiting::Yield { .. })) => {
                    program.wait = Some(Waiting::Sleep);
                }
                (Way::OneThread, _) => program.threads = 1,
                (Way::Unchanged | Way::Passive | Way::Corewise, _) => {}
            }
        }
        // Alone, it would wait for longer than that for idle PEs; a quota leaves some.
        let has_idle_pes = matches!(
            self.condition,
            Condition::Copies(1) | Condition::HalfAPe | Condition::HalfThePes | Condition::FourPes
        );
        if way == Way::Corewise && (!has_idle_pes || self.programs.len() > 1) {
            scenario.applications.push(self.setup());
        }
        scenario
    }
}

impl Scenario {
    /// Adds what else there is to the first applications, which are the programs.
    fn add(&mut self, condition: Condition, programs: usize, pes: usize) {
        let of_a_pe = |time: Duration| work(time, self.machine.ghz, &self.applications[0].steps);
        let takes = |time: Duration| {
            let half = vec![Step::Each(of_a_pe(time)), Step::Sleep(time)];
            Step::Repeat { times: u32::MAX, steps: half }
        };
        let quota = |time: Duration| GroupSpec { quota: Some(Quota(time)), ..GroupSpec::default() };
        match condition {
            Condition::Copies(copies) => {
                self.applications[..programs].iter_mut().for_each(|program| program.copies = copies);
            }
            Condition::Hog => {
                let steps = vec![Step::Each(of_a_pe(self.stop.time * 2))];
                self.applications.push(background("hog", 0, steps));
            }
            Condition::Disturbed => {
                let steps = vec![takes(DISTURBED_FOR)];
                self.applications.push(background("disturbance", 0, steps));
            }
            Condition::Stolen => {
                let steps = vec![takes(STOLEN_FOR)];
                let guest = |pe| AppSpec { nice: -20, ..background("guest", pe, steps.clone()) };
                self.applications.extend((0..pes).map(guest));
            }
            Condition::HalfAPe => self.limit_programs(programs, quota(PERIOD / 2)),
            Condition::HalfThePes => self.limit_programs(programs, quota(PERIOD * pes as u32 / 2)),
            Condition::FourPes => self.limit_programs(programs, quota(PERIOD * 4)),
        }
    }

    fn limit_programs(&mut self, programs: usize, group: GroupSpec) {
        self.groups.insert("limited".to_owned(), group);
        for program in &mut self.applications[..programs] {
            program.group = Some("limited".to_owned());
        }
    }
}

/// Returns what keeps a PE of speed 1 busy for that time.
fn work(time: Duration, ghz: f64, like: &[Step]) -> WorkSpec {
    let demand = demand_of(like).unwrap_or_default();
    WorkSpec { mcycles: time.as_secs_f64() * ghz * 1e3, demand, imbalance: 0.0, parts: 0, guided: false }
}

fn demand_of(steps: &[Step]) -> Option<String> {
    steps.iter().find_map(|step| match step {
        Step::Serial(work) | Step::Parallel(work) | Step::Each(work) => Some(work.demand.clone()),
        Step::Critical { work, .. } | Step::Chain { work, .. } => Some(work.demand.clone()),
        Step::Repeat { steps, .. } => demand_of(steps),
        Step::Barrier | Step::Put(_) | Step::Take(_) => None,
        Step::Sleep(_) | Step::SleepAbout(_) | Step::Arrival { .. } => None,
    })
}

fn background(name: &str, pe: usize, steps: Vec<Step>) -> AppSpec {
    AppSpec {
        name: name.to_owned(),
        copies: 1,
        threads: 1,
        start: Duration::ZERO,
        cpus: Some(pe.to_string()),
        nice: 0,
        class: Class::Normal,
        group: None,
        background: true,
        program: None,
        wait: None,
        variation: None,
        memory: None,
        treatments: Vec::new(),
        steps,
    }
}

fn slow(shape: &Shape) -> Option<SpeedSpec> {
    shape.slow.map(|pes| SpeedSpec { pes: pes.to_owned(), speed: 0.5, reported: None })
}

/// Returns what the system does on its own, on so many PEs.
fn system_on_each_pe(system: &[AppSpec], pes: usize) -> Vec<AppSpec> {
    let of_pe = |(pe, of): (usize, &AppSpec)| AppSpec {
        cpus: Some(pe.to_string()),
        background: true,
        ..AppSpec::clone(of)
    };
    system.iter().cycle().take(if system.is_empty() { 0 } else { pes }).enumerate().map(of_pe).collect()
}

/// Gives a team that is larger by that factor as much work for each of its threads, in tasks of the same
/// size.
fn grow(steps: &mut [Step], factor: f64) {
    for step in steps {
        match step {
            Step::Parallel(work) | Step::Chain { work, divided: true, .. } => {
                work.mcycles *= factor;
                work.parts = (f64::from(work.parts) * factor).round() as u32;
            }
            Step::Repeat { steps, .. } => grow(steps, factor),
            _ => {}
        }
    }
}

/// Lets the outermost loops end after that part of their iterations, where there are many.
fn shorten(steps: &mut [Step], part: f64) {
    for step in steps {
        if let Step::Repeat { times, .. } = step
            && *times >= 100
        {
            *times = (f64::from(*times) * part).ceil() as u32;
        }
    }
}

/// Returns whether one thread works at a time, so that a larger team takes longer.
fn has_ring(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::Chain { ring, .. } => *ring,
        Step::Repeat { steps, .. } => has_ring(steps),
        _ => false,
    })
}
