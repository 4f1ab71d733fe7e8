//! Random scenarios, checked by the [invariants](crate::invariants).
//!
//! Problem: nobody thinks of every machine, program and mishap that a policy will meet. Approach: a seed
//! makes a scenario: the machine's shape, speeds and parameters, the system's scheduler, programs with
//! all kinds of steps and waits, nice levels, groups and quotas, pins and faults. A second stream of the
//! same seed draws the policy, so that another choice of policies leaves the scenario as it was. The
//! scenario is written out as TOML and read like a user's own. One policy, [`WILD`], makes invalid
//! requests that must be rejected. Source: the simulation testing of FoundationDB ("Testing Distributed
//! Systems w/ Deterministic Simulation", Wilson, 2014): a failure is a seed. Limits: a run is checked
//! for what must never happen, not for performance. What the generator does not draw is not tried, such
//! as working sets so large that refilling caches takes longer than a step.

use crate::invariants::{Checked, Checker, Violation};
use crate::random::Random;
use crate::scenario::{Scenario, ScenarioError};
use crate::world::SimWorld;
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::ids::{PeId, ThreadId};
use corewise_core::plan::{Assignment, Placement};
use corewise_core::policy::{self, Needs, Policy, Scene};
use corewise_core::topology::Topology;
use corewise_core::world::control_loop;
use std::cell::RefCell;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The policy that makes invalid requests; only used here.
pub const WILD: &str = "wild";

/// Statistics of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// The number of decisions of the engine.
    pub steps: u64,
    /// The number of events of the simulation.
    pub events: u64,
    /// The simulated time, in nanoseconds.
    pub simulated_ns: u64,
    /// A hash of everything that happened.
    pub fingerprint: u64,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FuzzError {
    /// An invariant was violated.
    #[error(transparent)]
    Broken(#[from] Violation),
    /// The generator wrote an invalid scenario.
    #[error("the generator is at fault: {0}")]
    Scenario(#[from] ScenarioError),
    /// The policy does not exist.
    #[error("there is no policy `{0}`")]
    Policy(String),
}

/// Returns the policies to draw from if none are given.
pub fn policies() -> Vec<&'static str> {
    let chosen = policy::KINDS.iter().filter(|kind| !kind.takes_command()).map(|kind| kind.name);
    chosen.chain([WILD]).collect()
}

/// Returns the policy that a seed draws from a list, which must not be empty.
pub fn policy_of<'a>(seed: u64, names: &[&'a str]) -> &'a str {
    names[Random::new(seed, STREAM_POLICY).below(names.len())]
}

/// Runs the scenario of a seed with a policy.
pub fn run(seed: u64, policy: &str) -> Result<Tally, FuzzError> {
    let scenario = Scenario::parse(&scenario(seed))?;
    let sim = scenario.simulation(&scenario.variants[0], seed)?;
    let machine = sim.machine.reported_model();
    let policy =
        by_name(policy, seed, &machine.topology).ok_or_else(|| FuzzError::Policy(policy.to_owned()))?;
    let interval = scenario.interval;
    let waits = scenario.variants[0].waits.changes();
    let guard = scenario.guard.map(|_| seed);
    let claims = scenario.claims;
    let config = EngineConfig { claims, waits, guard, ..EngineConfig::with_interval(interval) };
    let mut engine = Engine::new(machine, policy, config);
    let checker = RefCell::new(Checker::new(interval));
    let mut world = Checked::new(SimWorld::new(sim, seed), &checker);
    let mut steps = 0;
    let Ok(()) = control_loop(&mut world, &mut engine, |input, _, engine| {
        // The engine cannot know what happened to a thread since the last observation.
        if input.observation().is_some() {
            checker.borrow_mut().compare(engine.present());
        }
        steps += 1;
    });
    let sim = world.sim();
    checker.borrow_mut().compare_with_start(sim);
    let mut hasher = DefaultHasher::new();
    for (name, completions, cpu_ns, fast_ns) in sim.applications() {
        let completions: Vec<u64> = completions.iter().map(|seconds| seconds.to_bits()).collect();
        (name, completions, cpu_ns, fast_ns).hash(&mut hasher);
    }
    sim.migrations().hash(&mut hasher);
    world.changes().hash(&mut hasher);
    let tally = Tally { steps, events: sim.events(), simulated_ns: sim.now.0, fingerprint: hasher.finish() };
    drop(world);
    checker.into_inner().result()?;
    Ok(tally)
}

fn by_name(name: &str, seed: u64, topology: &Topology) -> Option<Box<dyn Policy>> {
    match name {
        WILD => Some(Box::new(Wild { chance: Random::new(seed, STREAM_WILD), pes: topology.pes.len() })),
        name => policy::build(name).ok(),
    }
}

// Streams of the seed; the simulation has those from 0 on.
const STREAM_SCENARIO: u64 = 100;
const STREAM_POLICY: u64 = 101;
const STREAM_WILD: u64 = 102;
const STREAM_POWER: u64 = 103;
const STREAM_TREATMENTS: u64 = 104;
const STREAM_WEIGHTS: u64 = 105;
const STREAM_SIZE: u64 = 106;

/// The PEs of the largest machine that is drawn.
const PES_MAX: usize = 256;

/// Binds arbitrary threads to arbitrary PEs, including threads and PEs that do not exist.
struct Wild {
    chance: Random,
    pes: usize,
}

impl Wild {
    fn assignment(&mut self) -> Assignment {
        let share = self.chance.unit();
        // Two more PEs than exist.
        let pes: CpuSet = (0..self.pes as u32 + 2).map(PeId).filter(|_| self.chance.unit() < share).collect();
        Assignment { pes, reason: "for no reason".into() }
    }
}

impl Policy for Wild {
    fn name(&self) -> &str {
        WILD
    }

    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let present = scene.threads.iter().filter_map(|s| Some((s.view.thread, s.assignment.clone()?)));
        let mut placement = Placement { bound: present.collect(), ..Placement::default() };
        let restless = self.chance.unit();
        let nobody = ThreadId { tid: 1, generation: 9 };
        let threads = scene.threads.iter().map(|subject| subject.view.thread);
        for thread in threads.chain([nobody]) {
            if self.chance.unit() < restless {
                placement.bound.insert(thread, self.assignment());
            } else if self.chance.unit() < 0.1 {
                placement.bound.remove(&thread);
            }
        }
        placement
    }
}

/// Returns the scenario of a seed, as a user would write it.
pub fn scenario(seed: u64) -> String {
    let mut writer =
        Writer { chance: Random::new(seed, STREAM_SCENARIO), text: String::new(), pes: 0, kills: false };
    // Writing to a string cannot fail.
    let _ = writer.scenario(seed);
    writer.chance = Random::new(seed, STREAM_POWER);
    if writer.happens(0.5) {
        let _ = writer.power();
    }
    weigh(&treat(&writer.text, seed), seed)
}

/// Writes nice levels, groups with quotas, sessions and a choice at dispatch into the scenario of a seed.
fn weigh(text: &str, seed: u64) -> String {
    let mut writer =
        Writer { chance: Random::new(seed, STREAM_WEIGHTS), text: String::new(), pes: 0, kills: false };
    if !writer.happens(0.3) {
        return text.to_owned();
    }
    let groups = writer.chance.below(4);
    let mut weighed = String::new();
    for line in text.lines() {
        if line.starts_with("os = {") && writer.happens(0.3) {
            weighed += &line.replacen('{', "{ autogroup = true,", 1);
        } else {
            weighed += line;
        }
        weighed.push('\n');
        if line.starts_with("steps = ") {
            if writer.happens(0.5) {
                weighed += &format!("nice = {}\n", writer.from(&[-10, -5, -1, 1, 5, 10]));
            }
            if writer.happens(0.3) {
                weighed += &format!("class = '{}'\n", writer.from(&["batch", "idle"]));
            }
            if groups > 0 && writer.happens(0.7) {
                weighed += &format!("group = 'g{}'\n", writer.chance.below(groups));
            }
        }
        if line.starts_with("policy = 'default'") && writer.happens(0.3) {
            weighed += "dispatch = 'cosched'\n";
        }
    }
    (0..groups).for_each(|group| weighed += &writer.group(group));
    weighed
}

/// Writes treatments of applications, as rules and clients of a daemon would change them, into the scenario
/// of a seed.
fn treat(text: &str, seed: u64) -> String {
    let mut writer =
        Writer { chance: Random::new(seed, STREAM_TREATMENTS), text: String::new(), pes: 0, kills: false };
    if !writer.happens(0.3) {
        return text.to_owned();
    }
    let mut treated = String::new();
    for line in text.lines() {
        treated += &format!("{line}\n");
        if line.starts_with("steps = ") && writer.happens(0.7) {
            treated += &writer.treatments();
        }
    }
    treated
}

struct Writer {
    chance: Random,
    text: String,
    /// The PEs of its machine.
    pes: usize,
    /// Whether threads may be killed; one that holds what others wait for would keep it.
    kills: bool,
}

impl Writer {
    fn from<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.chance.below(choices.len())]
    }

    fn happens(&mut self, share: f64) -> bool {
        self.chance.unit() < share
    }

    /// Returns a number that is uniform between two numbers, with three digits.
    fn within(&mut self, low: f64, high: f64) -> f64 {
        let value = low + (high - low) * self.chance.unit();
        (value * 1e3).round() / 1e3
    }

    /// Returns 0 in half of the cases, else a number up to `high`.
    fn seldom(&mut self, high: f64) -> f64 {
        if self.happens(0.5) { 0.0 } else { self.within(0.001, high) }
    }

    fn scenario(&mut self, seed: u64) -> std::fmt::Result {
        let (interval_ms, completions) = (self.from(&[10, 20, 50, 200, 1000]), 1 + self.chance.below(2));
        let (scheduler, slice_ms) = (self.from(&["fair", "capacity"]), self.from(&[1, 4, 10]));
        let (balance_ms, queue) = (self.from(&[4, 16, 100]), self.from(&["cfs", "eevdf"]));
        let events = !seed.is_multiple_of(2);
        let claims = if seed % 4 < 2 { "weights" } else { "masks" };
        writeln!(
            self.text,
            "name = 'seed {seed}'\nqueue.lock = {{ capacity = 1, filled = 1 }}\nevents = {events}\n\
             claims = '{claims}'\ninterval = '{interval_ms}ms'"
        )?;
        let faulty = self.happens(0.67);
        self.kills = faulty;
        let pages = self.from(&["", "", "numa_balancing = { period = '30ms', page_us = 0.1 }, "]);
        // Without faults all programs must complete; where threads are killed some never do.
        let time = if faulty { "10s" } else { "10min" };
        writeln!(self.text, "stop = {{ completions = {completions}, time = '{time}' }}")?;
        writeln!(
            self.text,
            "os = {{ queue = '{queue}', scheduler = '{scheduler}', slice = '{slice_ms}ms', {pages}\
             balance = '{balance_ms}ms' }}"
        )?;
        if self.happens(0.25) {
            writeln!(self.text, "guard = {{ noise = 0.02 }}")?;
        }
        if faulty {
            self.faults()?;
        }
        let is_large = Random::new(seed, STREAM_SIZE).unit() < 0.02;
        let pes = self.machine(is_large)?;
        self.pes = pes;
        self.demands()?;
        let mut pins = String::new();
        for app in 0..1 + self.chance.below(4) {
            let copies = self.application(app)?;
            if self.happens(0.15) {
                let each: Vec<String> = (0..copies)
                    .map(|_| {
                        let (a, b) = (self.chance.below(pes), self.chance.below(pes));
                        format!("'{}-{}'", a.min(b), a.max(b))
                    })
                    .collect();
                write!(pins, "a{app} = [{}], ", each.join(", "))?;
            }
        }
        let pins = pins.trim_end_matches(", ");
        let (waits, adapt) = (self.from(&["auto", "auto", "spin", "turns", "off"]), self.happens(0.2));
        writeln!(
            self.text,
            "[[variant]]\nname = 'fuzz'\npolicy = 'default'\npin = {{ {pins} }}\nwaits = '{waits}'\n\
             adapt_team = {adapt}"
        )
    }

    fn faults(&mut self) -> std::fmt::Result {
        let shares = ["lost_readings", "refused_binds", "late_binds", "late_looks", "clock_jumps"];
        writeln!(self.text, "[faults]")?;
        for (name, most) in shares.into_iter().zip([1.0, 0.5, 0.05, 0.3, 0.2]) {
            let share = self.seldom(most);
            writeln!(self.text, "{name} = {share:?}")?;
        }
        let (kills, unplugs) = (self.seldom(3.0), self.seldom(20.0));
        writeln!(self.text, "kills_per_s = {kills:?}\nunplugs_per_s = {unplugs:?}")?;
        for name in ["unplugged", "late", "clock_jump"] {
            let ms = self.from(&[1, 30, 200, 3000]);
            writeln!(self.text, "{name} = '{ms}ms'")?;
        }
        Ok(())
    }

    /// Writes the machine; returns the number of its PEs.
    fn machine(&mut self, is_large: bool) -> Result<usize, std::fmt::Error> {
        let (numa, l3) = (1 + self.chance.below(2), 1 + self.chance.below(2));
        let (l2, core, pu) = (1 + self.chance.below(3), 1 + self.chance.below(2), 1 + self.chance.below(2));
        let module = self.from(&["", "module:1 "]);
        let (l3_mib, l2_kib) = (self.from(&[2, 8, 32]), self.from(&[256, 512, 2048]));
        let pack = if is_large { PES_MAX / (numa * l3 * l2 * core * pu) } else { 1 };
        let pes = numa * pack * l3 * l2 * core * pu;
        let mut speeds = Vec::new();
        for _ in 0..self.chance.below(3) {
            let (a, b) = (self.chance.below(pes), self.chance.below(pes));
            let speed = self.within(0.25, 2.0);
            speeds.push(format!("{{ pes = '{}-{}', speed = {speed:?} }}", a.min(b), a.max(b)));
        }
        let conflict = [self.within(0.0, 1.5), self.within(0.0, 1.5)];
        let smt_cost = self.seldom(0.5);
        let (gb_per_s, overlap) = (self.within(2.0, 40.0), self.within(0.0, 0.95));
        let (switch_us, migration_us) = (self.seldom(20.0), self.seldom(50.0));
        let (wake_us, idle_exit_us) = (self.seldom(5.0), self.seldom(50.0));
        let (noise, counting) = (self.seldom(0.3), self.within(0.1, 1.0));
        let far_ns = self.from(&[0.001, 160.0, 2000.0]);
        writeln!(
            self.text,
            "[machine]\nname = 'm'\n\
             topology = 'numa:{numa} pack:{pack} l3:{l3}(size={l3_mib}MB) l2:{l2}(size={l2_kib}kB) \
             {module}core:{core} pu:{pu}'\n\
             speeds = [{}]\n\
             units = {{ fpu_conflict = {:?}, issue_conflict = {:?}, smt_cost = {smt_cost:?} }}\n\
             memory = {{ bandwidth_gb_per_s = {gb_per_s:?}, overlap = {overlap:?} }}\n\
             costs = {{ switch_us = {switch_us:?}, wake_us = {wake_us:?}, \
             idle_exit_us = {idle_exit_us:?}, migration_us = {migration_us:?} }}\n\
             pmu = {{ noise = {noise:?}, counting = {counting:?} }}\n\
             hand_over_ns = {{ node = {:?}, system = {far_ns:?} }}",
            speeds.join(", "),
            conflict[0],
            conflict[1],
            far_ns / 2.0,
        )?;
        Ok(pes)
    }

    /// Writes clocks, idle states and powers.
    fn power(&mut self) -> std::fmt::Result {
        let governor = self.from(&["performance", "schedutil", "powersave"]);
        let per = self.from(&["core", "module", "package", "all"]);
        let transition_us = self.from(&[0, 20, 5000]);
        let limit = self.from(&["", "", "limit_w = 6.0\n"]);
        let turbo = self.from(&["", "3.0", "3.0, 2.0, 1.5", "1.0, 3.0"]);
        let (exit_us, residency_us) = (self.from(&[0, 100]), self.from(&[1, 500, 100_000]));
        writeln!(
            self.text,
            "[machine.power]\ngovernor = '{governor}'\nuncore = {{ active_w = 3.0, idle_w = 1.0 }}\n\
             [[machine.power.domain]]\npes = '0-{}'\nper = '{per}'\ntransition_us = {transition_us}\n\
             points = [{{ ghz = 1.0, volt = 0.7 }}, {{ ghz = 2.2, volt = 0.9 }}, \
             {{ ghz = 3.0, volt = 1.1 }}]\n\
             {limit}turbo_ghz = [{turbo}]\ndynamic_uw_per_mhz_v2 = 1000\nstatic_w = 0.5\nfurther_pe = 0.2\n\
             idle = [{{ power_w = 0.5, exit_us = 1 }}, \
             {{ power_w = 0.1, exit_us = {exit_us}, residency_us = {residency_us} }}]",
            self.pes - 1
        )
    }

    fn demands(&mut self) -> std::fmt::Result {
        let (divider, window, prefetched) = (self.seldom(1.0), self.seldom(1.0), self.seldom(1.0));
        writeln!(
            self.text,
            "[demand]\nint = {{ ipc = 1.5, divider = {divider:?}, window = {window:?} }}\n\
             fp = {{ fpu = 0.9 }}"
        )?;
        let (misses, mib) = (self.within(0.1, 4.0), self.within(0.1, 2.0));
        let (exponent, fpu) = (self.from(&[0.3, 0.5, 2.0]), self.seldom(1.0));
        let (accesses, ratio) = (self.within(0.0, 6.0), self.within(0.0, 1.0));
        writeln!(
            self.text,
            "mem = {{ l2_misses_per_100_cycles = {misses:?}, working_set_mib = {mib:?}, \
             miss_exponent = {exponent:?}, fpu = {fpu:?}, prefetched = {prefetched:?} }}\n\
             curve = {{ l2_accesses_per_100_cycles = {accesses:?}, \
             miss_ratio = [[{mib:?}, {ratio:?}], [{:?}, 0.0]] }}",
            2.0 * mib
        )
    }

    /// Writes an application; returns the number of its copies.
    fn application(&mut self, app: usize) -> Result<usize, std::fmt::Error> {
        let (copies, threads) = (1 + self.chance.below(3), 1 + self.chance.below(6));
        let wait = self.from(&[
            "'sleep'",
            "'spin'",
            "{ adaptive = { block_after = '2ms' } }",
            "{ adaptive = { block_after = '50us' } }",
            "{ spin_then_notify = { notify_after = '1ms', block_after = '6ms' } }",
            "{ spin_then_notify = { notify_after = '5ms', block_after = '1ms' } }",
            "{ library = {} }",
            "{ library = { spin_count = 30000, iteration = '50ns' } }",
            "{ yield = {} }",
            "{ yield = { every = '20us', block_after = '3ms' } }",
        ]);
        let (start_ms, variation) = (self.from(&[0, 0, 7, 400]), self.seldom(0.3));
        let shared = self.from(&[0.0, 0.0, 0.25, 1.0]);
        let placed = self.from(&["first-touch", "first-touch", "interleave"]);
        // Give every thread some work, so that no program ends immediately and restarts without end.
        let steps = format!("{{ each = {{ mcycles = 3, demand = 'int' }} }}, {}", self.steps(2));
        writeln!(
            self.text,
            "[[application]]\nname = 'a{app}'\ncopies = {copies}\nthreads = {threads}\nwait = {wait}\n\
             start = '{start_ms}ms'\nvariation = {variation:?}\n\
             memory = {{ private = {:?}, shared = {shared:?}, policy = '{placed}' }}\n\
             steps = [{steps}]",
            1.0 - shared
        )?;
        Ok(copies)
    }

    /// Returns a group; it may be in an earlier one.
    fn group(&mut self, number: usize) -> String {
        let mut text = format!("[group.g{number}]\nweight = {}\n", self.from(&[20, 100, 100, 300]));
        if self.happens(0.4) {
            let (quota_ms, period_ms) = (self.from(&[5, 20, 50, 400]), self.from(&[20, 100]));
            text += &format!("quota = '{quota_ms}ms'\nperiod = '{period_ms}ms'\n");
        }
        if number > 0 && self.happens(0.4) {
            text += &format!("parent = 'g{}'\n", self.chance.below(number));
        }
        text
    }

    fn treatments(&mut self) -> String {
        let mut from_ms = 0;
        let treatments = (0..1 + self.chance.below(4)).map(|_| {
            let what = self.from(&[
                "",
                "left_alone = 'it was detached', waits = 'off'",
                "left_alone = 'to save power'",
                "pes = '0'",
            ]);
            let (waits, guard) = (self.from(&["auto", "spin", "turns", "off"]), self.happens(0.7));
            let waits = if what.contains("waits") { String::new() } else { format!(", waits = '{waits}'") };
            let what = if what.is_empty() { String::new() } else { format!(", {what}") };
            let treatment = format!("{{ from = '{from_ms}ms'{what}{waits}, guard = {guard} }}");
            from_ms += self.from(&[5, 60, 500, 2000]);
            treatment
        });
        let treatments: Vec<String> = treatments.collect();
        format!("treatment = [{}]\n", treatments.join(", "))
    }

    fn steps(&mut self, depth: usize) -> String {
        let steps: Vec<String> = (0..1 + self.chance.below(4)).map(|_| self.step(depth)).collect();
        steps.join(", ")
    }

    fn step(&mut self, depth: usize) -> String {
        match self.chance.below(if depth > 0 { 9 } else { 7 }) {
            0 => self.work("serial"),
            1 => self.work("parallel"),
            2 => self.work("each"),
            3 => {
                let lock = self.from(&["l", "m"]);
                let work = self.amount();
                if !self.kills && self.happens(0.3) {
                    return format!("{{ take = 'lock' }}, {{ each = {work} }}, {{ put = 'lock' }}");
                }
                format!("{{ critical = {{ lock = '{lock}', work = {work} }} }}")
            }
            4 => "'barrier'".to_owned(),
            5 => {
                let (work, divided, ring) = (self.amount(), self.happens(0.5), self.happens(0.5));
                format!("{{ chain = {{ work = {work}, divided = {divided}, ring = {ring} }} }}")
            }
            6 => self.pause(),
            _ => {
                let times = 2 + self.chance.below(5);
                format!("{{ repeat = {{ times = {times}, steps = [{}] }} }}", self.steps(depth - 1))
            }
        }
    }

    fn work(&mut self, kind: &str) -> String {
        let amount = self.amount();
        let parts = if kind == "parallel" { self.from(&[0, 0, 7]) } else { 0 };
        let guided = parts > 0 && self.happens(0.5);
        format!("{{ {kind} = {}, parts = {parts}, guided = {guided} }} }}", amount.trim_end_matches(" }"))
    }

    fn pause(&mut self) -> String {
        let us = self.from(&[10, 700, 5_000, 60_000]);
        match self.chance.below(3) {
            0 => format!("{{ sleep = '{us}us' }}"),
            1 => format!("{{ sleep_about = '{us}us' }}"),
            _ => format!("{{ arrival = {{ every = '{us}us', random = {} }} }}", self.happens(0.5)),
        }
    }

    fn amount(&mut self) -> String {
        let mcycles = self.from(&[0.02, 0.3, 2.0, 10.0, 30.0]);
        let (demand, imbalance) = (self.from(&["int", "fp", "mem", "curve"]), self.seldom(0.9));
        format!("{{ mcycles = {mcycles:?}, demand = '{demand}', imbalance = {imbalance:?} }}")
    }
}

#[cfg(test)]
mod tests;
