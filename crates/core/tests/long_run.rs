//! The memory of a run does not grow with its length: a million steps in which threads come and go. (A month
//! has two and a half million seconds; it differs in nothing but time.)

use cap::Cap;
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::observe::{
    ApplicationReading, CounterReading, Event, EventBatch, Hints, IdleWait, Input, Observation,
    ProcessReading, RunnableThreads, SampleReading, Sizing, Standing, ThreadReading,
};
use corewise_core::plan::{Action, Assignment, Change, Outcome, OutcomeKind, Placement};
use corewise_core::policy::{self, Needs, Policy, Scene};
use corewise_core::report::ReportBuilder;
use corewise_core::time::Time;
use corewise_core::topology::Topology;
use corewise_core::waits::WaitChanges;
use std::alloc::System;
use std::collections::HashSet;
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Threads that live as long as the run.
const LASTING: u32 = 2;
/// Observations and batches of events that a second has.
const STEPS_PER_SECOND: u64 = 10;
const STEPS: u64 = 1_000_000;

/// A thread that begins each second and lives for more than one. Numbers come round, as the kernel's do.
fn short(born: u64) -> ThreadId {
    ThreadId { tid: 100 + (born % 30_000) as u32, generation: born }
}

/// Binds each thread to a PE of its own choice, which changes, and costs next to nothing.
struct ByNumber;

impl Policy for ByNumber {
    fn name(&self) -> &str {
        "by-number"
    }

    fn needs(&self) -> Needs {
        Needs::NONE
    }

    fn answers(&mut self, _: &Scene<'_>) -> bool {
        false
    }

    fn place(&mut self, scene: &Scene<'_>) -> Placement {
        let second = scene.now.0 / 1_000_000_000;
        let assignment = |thread: ThreadId| {
            let pe = PeId(((u64::from(thread.tid) + second / 5) % 8) as u32);
            (thread, Assignment { pes: CpuSet::single(pe), reason: format!("second {second}").into() })
        };
        let bound = scene.threads.iter().map(|subject| assignment(subject.view.thread));
        Placement { bound: bound.collect(), ..Placement::default() }
    }
}

/// A run, with what its world remembers.
struct Run {
    engine: Engine,
    report: ReportBuilder,
    everywhere: Arc<CpuSet>,
    outcomes: Vec<Outcome>,
    bound: HashSet<ThreadId>,
    actions: u64,
}

impl Run {
    fn new(policy: Box<dyn Policy>) -> Run {
        let topology = Topology::synthetic("pack:1 module:4 core:2 pu:1").unwrap();
        let config = EngineConfig {
            waits: WaitChanges { spin: true, turns: true },
            guard: Some(1),
            ..EngineConfig::default()
        };
        Run {
            everywhere: Arc::new(topology.allowed.clone()),
            engine: Engine::new(topology, policy, config),
            report: ReportBuilder::default(),
            outcomes: Vec::new(),
            bound: HashSet::new(),
            actions: 0,
        }
    }

    fn reading(&self, thread: ThreadId, second: u64, ended: bool) -> ThreadReading {
        let lived = second - thread.generation;
        let (judged, fp) = (100 * lived, 90.0 * lived as f64);
        let sample = SampleReading { judged, fp, vector: fp, ..SampleReading::default() };
        ThreadReading {
            thread,
            pid: thread.tid,
            app: AppId(0),
            name: "worker".into(),
            cpu_ns: lived * 1_000_000_000,
            runnable_ns: Some(lived * 1_000_000_000),
            runnable: !ended,
            last_pe: Some(PeId((second % 8) as u32)),
            standing: if self.bound.contains(&thread) { Standing::Bound } else { Standing::Free },
            permitted: self.everywhere.clone(),
            counters: Some(CounterReading::Sample(sample)),
            progress: None,
            hints: Hints::default(),
            sizing: if thread.tid.is_multiple_of(2) { Sizing::MayAsk } else { Sizing::Fixed },
            ended,
        }
    }

    fn observation(&mut self, second: u64) -> Input {
        let lasting = (0..LASTING).map(|tid| ThreadId { tid, generation: 0 });
        let mut threads: Vec<_> = lasting.map(|thread| self.reading(thread, second, false)).collect();
        threads.extend((second > 1).then(|| self.reading(short(second - 1), second, false)));
        threads.extend((second > 2).then(|| self.reading(short(second - 2), second, true)));
        let application = ApplicationReading { app: AppId(0), name: "run".into(), ..Default::default() };
        Input::Observation(Observation {
            at: Time(second * 1_000_000_000),
            allowed: CpuSet::clone(&self.everywhere),
            threads,
            applications: vec![application],
            outcomes: std::mem::take(&mut self.outcomes),
            ..Observation::default()
        })
    }

    /// What happens before this step of a second.
    fn events(&mut self, second: u64, step: u64) -> Input {
        let (old, new) = (short(second.saturating_sub(1)), short(second));
        let tlp = |count| Event::TlpChanged(RunnableThreads { app: AppId(0), count, only: None });
        let events = match step {
            1 => vec![Event::ThreadStarted(Box::new(self.reading(new, second, false))), tlp(LASTING + 2)],
            2 => {
                let hints = Hints { phase: Some(second as u32), ..Hints::default() };
                let (run_ns, wait_ns) = (10_000_000, 90_000_000);
                let at = Time(second * 1_000_000_000);
                let reading = ProcessReading {
                    leader: new,
                    at,
                    threads: 2,
                    pes: 2,
                    run_ns,
                    wait_ns,
                    throttled_ns: 0,
                    stopped_ns: None,
                    quota_permille: None,
                    timeslices: None,
                    idle_ns: None,
                    waits: IdleWait::Adaptable.into(),
                    other_gangs: 0,
                };
                let name = format!("worker {second}").into();
                let renamed = Event::ThreadRenamed { thread: new, name };
                vec![Event::Hint { thread: new, hints }, renamed, Event::Process(reading)]
            }
            3 => vec![Event::ThreadEnded(old), tlp(LASTING + 1)],
            _ => vec![tlp((step % 3) as u32)],
        };
        let at = Time(second * 1_000_000_000 + step * 1_000_000_000 / STEPS_PER_SECOND);
        Input::Events(EventBatch { at, events, outcomes: std::mem::take(&mut self.outcomes) })
    }

    fn step(&mut self, number: u64) {
        let (second, step) = (1 + number / STEPS_PER_SECOND, number % STEPS_PER_SECOND);
        let input = if step == 0 { self.observation(second) } else { self.events(second, step) };
        let actions = match &input {
            Input::Observation(observation) => self.engine.step(observation),
            Input::Events(batch) => self.engine.react(batch),
        };
        self.bound.remove(&short(second.saturating_sub(2)));
        self.carry_out(&actions);
        self.report.watch(&input, &actions, &self.engine);
    }

    fn carry_out(&mut self, actions: &[Action]) {
        self.actions += actions.len() as u64;
        for Action { thread, change, .. } in actions {
            match change {
                Change::Bind(_) => drop(self.bound.insert(*thread)),
                Change::Move(_) | Change::Free => drop(self.bound.remove(thread)),
                Change::Set(_) | Change::Reset(_) => {}
            }
            let (thread, change) = (*thread, change.clone());
            self.outcomes.push(Outcome { thread, change, result: OutcomeKind::Done });
        }
    }
}

/// The most bytes that a run holds in its first steps, and in the rest of them.
fn most_bytes(mut run: Run, first: u64, steps: u64) -> (usize, usize) {
    let before = ALLOCATOR.allocated();
    let (mut early, mut late) = (0, 0);
    for number in 0..steps {
        run.step(number);
        let most = if number < first { &mut early } else { &mut late };
        *most = (*most).max(ALLOCATOR.allocated().saturating_sub(before));
    }
    assert!(run.actions > steps / 100, "{} actions", run.actions);
    (early, late)
}

/// One test, as others would allocate beside it.
#[test]
fn memory_does_not_grow_with_the_length_of_a_run() {
    let (early, late) = most_bytes(Run::new(Box::new(ByNumber)), STEPS / 10, STEPS);
    assert!(late <= early + early / 10, "{early} bytes, then {late}");
    assert!(late < 32 << 20, "{late} bytes");
    for kind in policy::KINDS.iter().filter(|kind| !kind.takes_command()) {
        let mut run = Run::new(policy::build(kind.name).unwrap());
        let mut held = Vec::with_capacity(9_000);
        for number in 0..9_000 {
            run.step(number);
            run.report = ReportBuilder::default();
            held.push(ALLOCATOR.allocated());
        }
        let most = |of: &[usize]| of.iter().copied().max().unwrap_or(0);
        let (early, late) = (most(&held[1_000..3_000]), most(&held[3_000..]));
        assert!(late <= early + (64 << 10), "{}: {early} bytes, then {late}", kind.name);
    }
}
