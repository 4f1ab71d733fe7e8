//! Programs: what the threads of an application do, step by step.
//!
//! Every thread of an application runs the same list of steps; the first thread is the master. A fork-join
//! loop is a `parallel` step, a serial part a `serial` one; both end in a barrier of all threads. Work is
//! given in millions of cycles of the machine's clock, as it takes when run alone at speed 1. Threads wait
//! at barriers and locks as their runtime library lets them ([`Waiting`]), and in a `chain` in code of their
//! own: they spin, whatever the library does.

use crate::sim::state::queues::QueueSpec;
use corewise_core::machine_model::contention::Demand;
use corewise_core::time::parse_duration;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::time::Duration;

/// One step as written in a scenario.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// The master works, the others wait.
    Serial(WorkSpec),
    /// The work is divided among all threads, which wait for the last one.
    Parallel(WorkSpec),
    /// Each thread does this much, without waiting for others.
    Each(WorkSpec),
    /// Each thread does this much while it holds the lock.
    Critical {
        /// Name of the lock.
        lock: String,
        /// The work under the lock.
        work: WorkSpec,
    },
    /// Each thread works when the one before it has done the same, which it waits for by spinning in code of
    /// its own; it then goes on without waiting for the next one. A wave that runs through the team.
    Chain {
        /// The work of each thread.
        work: WorkSpec,
        /// Whether the work is divided among the threads.
        #[serde(default)]
        divided: bool,
        /// Whether the first thread waits for the last one of the wave before.
        #[serde(default)]
        ring: bool,
    },
    /// All threads wait for each other.
    Barrier,
    /// Each thread sleeps: for input, output, or lack of work.
    Sleep(#[serde(deserialize_with = "duration")] Duration),
    /// The same for a random time with this mean (exponentially distributed): answers, think times.
    SleepAbout(#[serde(deserialize_with = "duration")] Duration),
    /// Each thread waits for the next of its arrivals, such as requests. They come whether or not it is
    /// ready: one that is late goes on at once, until it has caught up.
    Arrival {
        /// The time between two arrivals.
        #[serde(deserialize_with = "duration")]
        every: Duration,
        /// Whether that is the mean of random times (a Poisson process).
        #[serde(default)]
        random: bool,
    },
    /// Each thread puts something into the queue of this name, once there is room.
    Put(String),
    /// Each thread takes something from it, once there is something.
    Take(String),
    /// Steps done several times.
    Repeat {
        /// How often.
        times: u32,
        /// The steps.
        steps: Vec<Step>,
    },
}

/// An amount of work.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkSpec {
    /// Millions of cycles.
    pub mcycles: f64,
    /// Name of the demand that it makes.
    pub demand: String,
    /// The inequality of the threads' shares: each is up to this fraction larger or smaller.
    #[serde(default)]
    pub imbalance: f64,
    /// Of a parallel step: the number of equal parts that threads take as they come, as tasks and dynamic
    /// loops do; 0 gives each thread its share.
    #[serde(default)]
    pub parts: u32,
    /// With `parts`: whether a thread takes several at a time, as many as would be its share of what is left,
    /// as guided loops do (OpenMP: `schedule(guided)`, in which a part is the chunk size).
    #[serde(default)]
    pub guided: bool,
}

/// How a thread waits at a lock or barrier. Durations are CPU time spent spinning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Waiting {
    /// Busy-waits to the end.
    Spin,
    /// Blocks at once.
    #[default]
    Sleep,
    /// Busy-waits, then blocks.
    Adaptive {
        /// When it blocks.
        #[serde(deserialize_with = "duration")]
        block_after: Duration,
    },
    /// Busy-waits, then notifies the system of that, then blocks: from the notification on it does not count
    /// as runnable (parallelism-aware scheduling §2.2.1).
    SpinThenNotify {
        /// When it notifies.
        #[serde(deserialize_with = "duration")]
        notify_after: Duration,
        /// When it blocks.
        #[serde(deserialize_with = "duration")]
        block_after: Duration,
    },
    /// Busy-waits for so many rounds of a loop, then blocks, as the idle threads of GNU's OpenMP do; their
    /// spin count is the only one that can be changed from outside.
    Library {
        /// The number of rounds; the default is libgomp's.
        #[serde(default = "spin_count")]
        spin_count: u64,
        /// The time of an iteration.
        #[serde(default = "iteration_time", alias = "turn", deserialize_with = "duration")]
        iteration: Duration,
    },
    /// Busy-waits and yields the PE now and then, then blocks, as the idle threads of LLVM's OpenMP do.
    Yield {
        /// The time between two yields.
        #[serde(default = "yield_every", deserialize_with = "duration")]
        every: Duration,
        /// When it blocks; the default is that of `KMP_BLOCKTIME`.
        #[serde(default = "block_time", deserialize_with = "duration")]
        block_after: Duration,
    },
}

fn spin_count() -> u64 {
    300_000
}

/// A PAUSE takes 40 to 140 cycles on the processors of the last years ([`corewise_core::waits`]).
fn iteration_time() -> Duration {
    Duration::from_nanos(25)
}

/// 256 rounds (`KMP_NEXT_WAIT` over 2, a round counts twice), in `openmp/runtime/src/kmp.h`.
fn yield_every() -> Duration {
    256 * iteration_time()
}

fn block_time() -> Duration {
    Duration::from_millis(200)
}

/// Parses a duration with its unit.
pub fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

/// One step in executable form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    /// The master works, the others continue.
    Serial(Work),
    /// Works its share.
    Share(Work),
    /// Takes one part of the work after the other from a pool that holds so many, until it is empty.
    Parts {
        /// A part.
        work: Work,
        /// The pool.
        pool: usize,
        /// The number of parts.
        count: u32,
        /// Whether as many are taken as are a thread's share of what is left.
        guided: bool,
    },
    /// Waits until the thread before it has passed the chain one more time than itself.
    Await {
        /// The chain.
        chain: usize,
        /// Whether the first thread waits for the last one.
        ring: bool,
    },
    /// Passes the chain.
    Pass {
        /// The chain.
        chain: usize,
    },
    /// Works.
    Each(Work),
    /// Waits for all.
    Barrier,
    /// Takes the lock.
    Lock(usize),
    /// Releases the lock.
    Unlock(usize),
    /// Puts something into a queue of the scenario.
    Put(usize),
    /// Takes something from it.
    Take(usize),
    /// Sleeps.
    Sleep(Duration),
    /// Sleeps for a random time with this mean.
    SleepAbout(Duration),
    /// Waits for its next arrival.
    Arrival {
        /// The time between two arrivals.
        every: Duration,
        /// Whether that is the mean of random times.
        random: bool,
    },
    /// Jumps back to an earlier step a number of times; the loop's own number selects its counter.
    Again {
        /// The first step of the loop.
        first: usize,
        /// The number of iterations.
        times: u32,
        /// The counter.
        counter: usize,
    },
}

/// Work of one op.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Cycles.
    pub cycles: f64,
    /// Its demand.
    pub demand: Demand,
    /// The inequality of shares.
    pub imbalance: f64,
}

impl Op {
    /// Returns its work, if it has some.
    pub(crate) fn work(&self) -> Option<&Work> {
        match self {
            Op::Serial(work) | Op::Share(work) | Op::Each(work) | Op::Parts { work, .. } => Some(work),
            _ => None,
        }
    }
}

/// A program, ready to run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// The steps.
    pub ops: Vec<Op>,
    /// Number of its locks.
    pub locks: usize,
    /// Number of its chains.
    pub chains: usize,
    /// Number of its pools.
    pub pools: usize,
    /// Number of its loops.
    pub loops: usize,
}

/// Why steps are not a valid program.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProgramError {
    /// A step names an unknown demand.
    #[error("there is no [demand.{demand}]; there are: {}", known.join(", "))]
    NoSuchDemand {
        /// The name.
        demand: String,
        /// The known demands.
        known: Vec<String>,
    },
    /// A step names an unknown queue.
    #[error("there is no [queue.{0}] that holds 1 or more, and no more at first")]
    NoSuchQueue(String),
    /// A number is out of its range.
    #[error("{field} is {value}, it must be {range}")]
    Range {
        /// The parameter.
        field: &'static str,
        /// Its value.
        value: f64,
        /// The permitted range.
        range: &'static str,
    },
    /// Nothing in the steps takes time, so the program would never end, or end at once.
    #[error("the steps hold no work and no sleep")]
    Empty,
}

impl Program {
    /// Creates the program of a list of steps.
    pub fn new(
        steps: &[Step],
        demands: &BTreeMap<String, Demand>,
        queues: &BTreeMap<String, QueueSpec>,
    ) -> Result<Self, ProgramError> {
        let mut builder = Builder { program: Program::default(), locks: BTreeMap::new(), demands, queues };
        builder.steps(steps)?;
        let takes_time = |op: &Op| match op {
            Op::Serial(_) | Op::Share(_) | Op::Parts { .. } | Op::Each(_) => true,
            Op::Sleep(_) | Op::SleepAbout(_) | Op::Arrival { .. } => true,
            Op::Barrier
            | Op::Await { .. }
            | Op::Pass { .. }
            | Op::Lock(_)
            | Op::Unlock(_)
            | Op::Put(_)
            | Op::Take(_)
            | Op::Again { .. } => false,
        };
        if !builder.program.ops.iter().any(takes_time) {
            return Err(ProgramError::Empty);
        }
        Ok(builder.program)
    }

    /// Multiplies all work by a factor, and that of serial steps by a second one.
    pub fn scale(&mut self, work: f64, serial: f64) {
        for op in &mut self.ops {
            match op {
                Op::Serial(part) => part.cycles *= work * serial,
                Op::Share(part) | Op::Each(part) | Op::Parts { work: part, .. } => part.cycles *= work,
                Op::Barrier
                | Op::Await { .. }
                | Op::Pass { .. }
                | Op::Lock(_)
                | Op::Unlock(_)
                | Op::Put(_)
                | Op::Take(_)
                | Op::Sleep(_)
                | Op::SleepAbout(_)
                | Op::Arrival { .. }
                | Op::Again { .. } => {}
            }
        }
    }
}

struct Builder<'a> {
    program: Program,
    locks: BTreeMap<String, usize>,
    demands: &'a BTreeMap<String, Demand>,
    queues: &'a BTreeMap<String, QueueSpec>,
}

impl Builder<'_> {
    fn steps(&mut self, steps: &[Step]) -> Result<(), ProgramError> {
        for step in steps {
            match step {
                Step::Serial(work) => {
                    let op = Op::Serial(self.work(work)?);
                    self.program.ops.extend([op, Op::Barrier]);
                }
                Step::Parallel(work) => {
                    let op = self.parallel(work)?;
                    self.program.ops.extend([op, Op::Barrier]);
                }
                Step::Each(work) => {
                    let op = Op::Each(self.work(work)?);
                    self.program.ops.push(op);
                }
                Step::Critical { lock, work } => {
                    let op = Op::Each(self.work(work)?);
                    let next = self.locks.len();
                    let lock = *self.locks.entry(lock.clone()).or_insert(next);
                    self.program.locks = self.locks.len();
                    self.program.ops.extend([Op::Lock(lock), op, Op::Unlock(lock)]);
                }
                Step::Chain { work, divided, ring } => {
                    let (chain, work) = (self.program.chains, self.work(work)?);
                    self.program.chains += 1;
                    let op = if *divided { Op::Share(work) } else { Op::Each(work) };
                    self.program.ops.extend([Op::Await { chain, ring: *ring }, op, Op::Pass { chain }]);
                }
                Step::Barrier => self.program.ops.push(Op::Barrier),
                Step::Sleep(time) => {
                    above_0("sleep", *time)?;
                    self.program.ops.push(Op::Sleep(*time));
                }
                Step::SleepAbout(mean) => {
                    above_0("sleep_about", *mean)?;
                    self.program.ops.push(Op::SleepAbout(*mean));
                }
                Step::Arrival { every, random } => {
                    above_0("arrival.every", *every)?;
                    self.program.ops.push(Op::Arrival { every: *every, random: *random });
                }
                Step::Put(name) => self.program.ops.push(Op::Put(self.queue(name)?)),
                Step::Take(name) => self.program.ops.push(Op::Take(self.queue(name)?)),
                Step::Repeat { times, steps } => {
                    in_range("times", f64::from(*times), *times > 0, "1 or more")?;
                    let (first, counter) = (self.program.ops.len(), self.program.loops);
                    self.program.loops += 1;
                    self.steps(steps)?;
                    self.program.ops.push(Op::Again { first, times: *times, counter });
                }
            }
        }
        Ok(())
    }

    fn queue(&self, name: &str) -> Result<usize, ProgramError> {
        let mut queues = self.queues.iter();
        let place = queues
            .position(|(other, queue)| other == name && queue.capacity > 0 && queue.filled <= queue.capacity);
        place.ok_or_else(|| ProgramError::NoSuchQueue(name.to_owned()))
    }

    fn parallel(&mut self, spec: &WorkSpec) -> Result<Op, ProgramError> {
        let work = self.work(spec)?;
        if spec.parts == 0 {
            return Ok(Op::Share(work));
        }
        let (pool, part) = (self.program.pools, work.cycles / f64::from(spec.parts));
        self.program.pools += 1;
        let work = Work { cycles: part, ..work };
        Ok(Op::Parts { work, pool, count: spec.parts, guided: spec.guided })
    }

    fn work(&self, spec: &WorkSpec) -> Result<Work, ProgramError> {
        let demand = self.demands.get(&spec.demand).ok_or_else(|| ProgramError::NoSuchDemand {
            demand: spec.demand.clone(),
            known: self.demands.keys().cloned().collect(),
        })?;
        let is_guided = f64::from(u8::from(spec.guided));
        in_range("guided", is_guided, !spec.guided || spec.parts > 0, "false without parts")?;
        in_range("mcycles", spec.mcycles, spec.mcycles > 0.0 && spec.mcycles.is_finite(), "above 0")?;
        in_range("imbalance", spec.imbalance, (0.0..1.0).contains(&spec.imbalance), "0 to below 1")?;
        Ok(Work { cycles: spec.mcycles * 1e6, demand: *demand, imbalance: spec.imbalance })
    }
}

fn above_0(field: &'static str, time: Duration) -> Result<(), ProgramError> {
    in_range(field, time.as_secs_f64(), !time.is_zero(), "above 0")
}

fn in_range(field: &'static str, value: f64, holds: bool, range: &'static str) -> Result<(), ProgramError> {
    if holds { Ok(()) } else { Err(ProgramError::Range { field, value, range }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Steps {
        steps: Vec<Step>,
        #[serde(default)]
        wait: Waiting,
    }

    fn program(steps: &str) -> Result<Program, String> {
        let steps: Steps = toml::from_str(&format!("steps = [{steps}]")).map_err(|e| e.to_string())?;
        let demands = BTreeMap::from([("int".to_owned(), Demand::default())]);
        let queues = BTreeMap::from([("q".to_owned(), QueueSpec { capacity: 1, filled: 2 })]);
        Program::new(&steps.steps, &demands, &queues).map_err(|error| error.to_string())
    }

    #[test]
    fn steps_become_ops() {
        let work = "{ mcycles = 2.0, demand = 'int' }";
        let program = program(&format!(
            "{{ repeat = {{ times = 3, steps = [{{ serial = {work} }}, {{ critical = {{ lock = 'a', \
            work = {work} }} }}] }} }}, 'barrier', {{ sleep = '5ms' }}"
        ))
        .unwrap();
        assert_eq!((program.locks, program.loops, program.ops.len()), (1, 1, 8));
        assert!(matches!(program.ops[0], Op::Serial(Work { cycles: 2e6, .. })));
        assert_eq!(program.ops[5], Op::Again { first: 0, times: 3, counter: 0 });
        assert_eq!(program.ops[7], Op::Sleep(Duration::from_millis(5)));
    }

    #[test]
    fn every_way_to_wait_can_be_written() {
        for (text, expected) in [
            ("'spin'", Waiting::Spin),
            ("'sleep'", Waiting::Sleep),
            (
                "{ library = {} }",
                Waiting::Library { spin_count: 300_000, iteration: Duration::from_nanos(25) },
            ),
            (
                "{ library = { turn = '9ns' } }",
                Waiting::Library { spin_count: 300_000, iteration: Duration::from_nanos(9) },
            ),
            (
                "{ yield = { every = '10us' } }",
                Waiting::Yield { every: Duration::from_micros(10), block_after: Duration::from_millis(200) },
            ),
            (
                "{ adaptive = { block_after = '1ms' } }",
                Waiting::Adaptive { block_after: Duration::from_millis(1) },
            ),
            (
                "{ spin_then_notify = { notify_after = '10us', block_after = '1s' } }",
                Waiting::SpinThenNotify {
                    notify_after: Duration::from_micros(10),
                    block_after: Duration::from_secs(1),
                },
            ),
        ] {
            let steps: Steps = toml::from_str(&format!("steps = []\nwait = {text}")).expect(text);
            assert_eq!(steps.wait, expected);
        }
    }

    #[test]
    fn errors_say_what_may_be_written() {
        for (steps, words) in [
            ("{ each = { mcycles = 1, demand = 'fp' } }", "[demand.fp]; there are: int"),
            ("{ each = { mcycles = 0, demand = 'int' } }", "mcycles is 0, it must be above 0"),
            ("{ each = { mcycles = 1, demand = 'int', imbalance = 1.0 } }", "imbalance is 1"),
            ("{ repeat = { times = 0, steps = [] } }", "times is 0"),
            ("{ repeat = { times = 9, steps = ['barrier'] } }", "hold no work"),
            ("{ put = 'q' }", "no [queue.q] that holds 1 or more, and no more"),
            ("{ sleep = '5' }", "`5` is not a duration"),
            ("{ wait = 1 }", "unknown variant"),
        ] {
            let error = program(steps).expect_err(steps);
            assert!(error.contains(words), "{steps}: {error}");
        }
    }
}
