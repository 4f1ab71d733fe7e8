//! The simulation: events, and their effects on threads and PEs.
//!
//! Problem: thousands of threads share PEs and slow each other down; stepping through time in small steps is
//! slow and inexact. Approach: nothing happens between events. Each PE has at most one pending event: the
//! time when its thread has done its work, has spun long enough, or is preempted ([`sched`]). After all
//! events of an instant, the paces of the memory nodes that are affected are recomputed
//! ([`corewise_core::machine_model::contention`]) and the pending events moved. Random numbers come from
//! seeded streams only, and ties are broken by order, so a seed determines a run. Source: the textbook event
//! list; the waiting modes are those of parallelism-aware scheduling §2.2 and §3.2. Limits: the system's own
//! work costs only what [`crate::machine::Costs`] defines.

use crate::chance::{Chance, Purpose};
use crate::decisions::Decisions;
use crate::faults::Faults;
use crate::judge::Judge;
use crate::machine::Machine;
use crate::queue::{Event, Queue};
use crate::random::Random;
use crate::thread::{Activity, App, AppPlan, Thread};
use crate::timeline::Timeline;
use crate::violation::Audit;
use corewise_core::cpuset::CpuSet;
use corewise_core::machine_model::Distance;
use corewise_core::machine_model::contention::{Channels, Pace, Share, Solver};
use corewise_core::time::Time;
use corewise_core::waits::looks::Looks;
use sched::domains::Domains;
use sched::os::Os;
use sched::queue::{Discipline, RunQueue};
use state::beside::Beside;
use state::demands::Demands;
use state::dispatching::Dispatching;
use state::gangs::Gangs;
use state::groups::Groups;
use state::lanes::{Lane, NEVER};
use state::news::News;
use state::paces::Paces;
use state::power::PowerState;
use state::queues::Shelf;
use std::collections::{BTreeMap, VecDeque};

mod audit;
mod beside;
mod dispatching;
mod faults;
mod gangs;
mod lines;
pub mod memory;
mod news;
mod paces;
pub mod power;
mod process;
mod queues;
pub mod sched;
pub(crate) mod state;
mod steps;

/// Work below this many cycles counts as done, because of rounding.
const DONE_CYCLES: f64 = 1e-3;

/// A run ends after this many events, however far it has come.
pub const EVENTS_MAX: u64 = 1_000_000_000;

/// When a simulation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// The simulation ends once every application has completed this often; until then, applications that end
    /// restart.
    pub completions: usize,
    /// The simulation ends at this time at the latest.
    pub at: Time,
}

/// A PE while the simulation runs.
#[derive(Debug, Default)]
struct Cpu {
    /// Its threads, the running one among them.
    queue: RunQueue,
    /// When its ticks come, from time 0.
    phase_ns: u64,
    /// The time up to which its thread's progress is accounted.
    settled: Time,
    /// The share that its neighbours leave to its thread, and the resulting pace.
    share: Share,
    pace: Pace,
    /// When its thread started, and how long the threads before it had the PE.
    since: Time,
    busy_ns: u64,
    /// For how long of that time it was leaving an idle state.
    waking_ns: f64,
    /// The thread that ran last, and until when.
    last: Option<(usize, Time)>,
}

impl Cpu {
    fn running(&self) -> Option<usize> {
        self.queue.running()
    }
}

/// A thread that may continue, and the thread that releases it.
#[derive(Debug, Clone, Copy)]
struct Release {
    thread: usize,
    by: Option<usize>,
}

/// The simulation.
pub struct Sim {
    pub(crate) now: Time,
    pub(crate) machine: Machine,
    pub(crate) os: Os,
    pub(crate) threads: Vec<Thread>,
    /// Threads that have not ended, or whose end was not reported.
    pub(crate) present: Vec<usize>,
    pub(crate) apps: Vec<App>,
    pub(crate) timeline: Option<Timeline>,
    pub(crate) faults: Faults,
    pub(crate) decisions: Decisions,
    /// What decides how much threads slow each other down, in place of the machine's model.
    pub(crate) judge: Option<Judge>,
    /// What chooses which thread runs next, in place of the system.
    pub(crate) dispatching: Option<Dispatching>,
    /// Whether it reports events at all, and the events to report.
    pub(crate) tells_events: bool,
    /// The relative error of the reported progress of threads; `None`: progress is not reported.
    pub(crate) progress_noise: Option<f64>,
    /// Which processes have run beside which; `None`: that is not observed.
    pub(crate) beside: Option<Beside>,
    pub(crate) news: News,
    /// Whether threads are observed by clock samples, as `corewise run` does while it handles waits, and not
    /// by hardware counters.
    pub(crate) samples: bool,
    /// When to look at processes, once that is subscribed to.
    looks: Option<Looks>,
    gangs: Gangs,
    /// The queues between applications.
    pub(crate) queues: Vec<Shelf>,
    /// The online PEs.
    pub(crate) online: CpuSet,
    cpus: Vec<Cpu>,
    lanes: Vec<Lane>,
    demands: Demands,
    /// The rules of the queues.
    rules: Box<dyn Discipline>,
    /// Frequently used sums over `cpus`: the threads of each group of PEs, and all that wait.
    domains: Domains,
    groups: Groups,
    queued: usize,
    queue: Queue,
    solver: Solver,
    /// Clocks and energy, if the machine describes them.
    power: Option<Box<PowerState>>,
    channels: Channels,
    paces: Paces,
    stop: Stop,
    pub(crate) chance: Chance,
    /// A separate random stream, so that faults change nothing but what they hit.
    fault_random: Random,
    audit: Option<Audit>,
    finished: bool,
    all_done: Option<Time>,
    /// Threads that may continue, PEs without a thread, PEs whose event may have moved.
    released: VecDeque<Release>,
    vacant: VecDeque<usize>,
    moved: Vec<usize>,
    migrations: BTreeMap<Distance, u64>,
    events: u64,
}

impl Sim {
    /// Creates a simulation that has not begun.
    pub fn new(machine: Machine, os: Os, plans: Vec<AppPlan>, stop: Stop, seed: u64) -> Self {
        let count = machine.model.pes.len();
        let mut queue = Queue::new(count);
        // The order of several applications that start at one instant, and so of their thread IDs, is random.
        let chance = Chance::new(seed);
        let mut order: Vec<(f64, usize)> = (0..plans.len())
            .map(|app| (chance.stratified(Purpose::StartOrder, &[app as u64]), app))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, app) in order {
            queue.push(plans[app].start, Event::Start { app: app as u32 });
        }
        queue.push(Time(0) + os.balance, Event::Balance);
        if let Some(rules) = os.numa_balancing {
            queue.push(Time(0) + rules.period, Event::ScanMemory);
        }
        let spread_ns = os.tick.min(os.tick_spread).as_nanos().max(1) as usize;
        let phase_ns = |pe: usize| chance.below(Purpose::TickPhase, &[pe as u64], spread_ns) as u64;
        let cpus = (0..count).map(|pe| Cpu { phase_ns: phase_ns(pe), ..Cpu::default() }).collect();
        let speeds = machine.model.pes.iter().map(|pe| pe.speed).collect();
        let power = machine.power.as_ref().map(|plan| PowerState::new(plan, speeds, plans.len()));
        let mut sim = Self {
            now: Time(0),
            os,
            threads: Vec::new(),
            present: Vec::new(),
            timeline: None,
            faults: Faults::default(),
            decisions: Decisions::FREE,
            judge: None,
            dispatching: None,
            tells_events: false,
            progress_noise: None,
            beside: None,
            news: News::default(),
            samples: false,
            looks: None,
            gangs: Gangs::default(),
            queues: Vec::new(),
            online: machine.model.topology.allowed.clone(),
            cpus,
            lanes: vec![Lane::default(); count],
            demands: Demands::new(plans.iter().map(|plan| &*plan.program)),
            apps: plans.into_iter().map(App::new).collect(),
            rules: os.discipline(),
            domains: Domains::new(&machine.model),
            groups: Groups::default(),
            queued: 0,
            queue,
            solver: Solver::default(),
            power: power.map(Box::new),
            channels: Channels::new(&machine.model),
            paces: Paces::new(&machine.model),
            stop,
            chance,
            fault_random: Random::new(seed, 2),
            audit: None,
            finished: false,
            all_done: None,
            released: VecDeque::new(),
            vacant: VecDeque::new(),
            moved: Vec::new(),
            migrations: BTreeMap::new(),
            events: 0,
            machine,
        };
        sim.start_clocks();
        sim
    }

    /// Adds faults.
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self.begin_faults();
        self
    }

    /// Advances time until `until`, until there is something to report, or until the simulation is finished;
    /// returns whether it is.
    pub fn run_until(&mut self, until: Time) -> bool {
        self.advance(until, true)
    }

    /// Advances time while a decision is made: what there is to report is reported later.
    pub(crate) fn let_pass(&mut self, until: Time) {
        self.advance(until, false);
    }

    fn advance(&mut self, until: Time, stops_for_news: bool) -> bool {
        let until = until.min(self.stop.at);
        let mut has_news = self.settle_news() && stops_for_news;
        while !self.finished
            && !has_news
            && let Some(at) = self.queue.next_at().filter(|&at| at <= until)
        {
            self.now = at;
            while let Some(event) = self.queue.pop_until(at) {
                self.take(event);
            }
            self.catch_up();
            self.audit_instant();
            has_news = self.settle_news() && stops_for_news;
        }
        if !self.finished && !has_news {
            self.now = self.now.max(until);
            self.finished = self.now >= self.stop.at;
        }
        self.finished |= self.events >= EVENTS_MAX;
        for pe in 0..self.cpus.len() {
            self.settle(pe);
        }
        self.audit_stretch();
        self.finished
    }

    /// Returns the number of moves so far, by distance.
    pub fn migrations(&self) -> &BTreeMap<Distance, u64> {
        &self.migrations
    }

    /// Returns the number of events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns when every application had completed once.
    pub fn all_done(&self) -> Option<Time> {
        self.all_done
    }

    /// Returns each application's name, durations of its completed runs in seconds, CPU time and CPU time on
    /// the fastest PEs in nanoseconds.
    pub fn applications(&self) -> impl Iterator<Item = (&str, &[f64], u64, u64)> {
        self.apps.iter().map(|app| (&*app.plan.name, app.completions.as_slice(), app.cpu_ns, app.fast_ns))
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Pe { pe } => {
                self.lanes[pe as usize].event_at = NEVER;
                self.look(pe as usize);
            }
            Event::Wake { thread } => self.release(thread as usize, None),
            Event::Start { app } => self.start(app as usize),
            Event::ReportTlp { app } => self.report_coalesced(app as usize),
            Event::Balance => {
                self.balance();
                if let Some(audit) = &mut self.audit {
                    audit.balanced = true;
                }
                let pause =
                    self.os.balance.mul_f64(0.5 + self.chance.unit(Purpose::BalancePause, &[self.now.0]));
                self.queue.push(self.now + pause, Event::Balance);
            }
            Event::Turn => self.begin_turn(),
            Event::Look => self.look_at_processes(),
            Event::Spent { group, number } => self.exhaust(group as usize, number),
            Event::Refill { group } => self.refill(group as usize),
            Event::ScanMemory => {
                if let Some(rules) = self.os.numa_balancing {
                    self.scan_memory(rules);
                    self.queue.push(self.now + rules.period, Event::ScanMemory);
                }
            }
            Event::Clock { clock } => self.clock_event(clock as usize),
            Event::Kill => self.kill_one(),
            Event::Unplug => self.unplug_one(),
            Event::Plug { pe } => self.plug(pe),
        }
        self.events += 1;
    }

    /// Returns the thread that runs on a PE.
    pub(crate) fn thread_on(&self, pe: usize) -> Option<usize> {
        self.cpus[pe].running()
    }

    /// Delays a running thread.
    pub(crate) fn delay(&mut self, thread: usize, ns: f64) {
        self.threads[thread].debt_ns += ns;
        self.moved.extend(self.running_on(thread));
        self.catch_up();
    }

    /// Takes CPU time from a PE: from an idle one, if there is one, else from the thread of another one.
    pub(crate) fn take_cpu_time(&mut self, ns: f64) {
        let busy: Vec<usize> = self.online.iter().filter_map(|pe| self.thread_on(pe.0 as usize)).collect();
        if busy.is_empty() || busy.len() < self.online.len() {
            return;
        }
        let chosen = busy[self.chance.below(Purpose::DecisionPlace, &[self.now.0], busy.len())];
        self.delay(chosen, ns);
    }

    /// Handles the event of a PE: its thread has done its work, spun long enough, or used up its slice.
    fn look(&mut self, pe: usize) {
        self.settle(pe);
        self.moved.push(pe);
        let Some(thread) = self.cpus[pe].running() else { return };
        match self.threads[thread].activity {
            Activity::Work { left, .. } if left <= DONE_CYCLES => self.proceed(thread, None),
            Activity::Work { .. } => {}
            Activity::Spin { spun_ns } => self.spun(thread, spun_ns),
        }
        self.tick(pe);
    }

    /// Lets a thread continue at this instant.
    fn release(&mut self, thread: usize, by: Option<usize>) {
        self.released.push_back(Release { thread, by });
    }

    /// Settles the state after the events of an instant: threads continue, PEs take threads, paces and
    /// pending events are updated.
    pub(crate) fn catch_up(&mut self) {
        loop {
            if let Some(Release { thread, by }) = self.released.pop_front() {
                self.proceed(thread, by);
            } else if let Some(pe) = self.vacant.pop_front() {
                self.dispatch(pe);
            } else {
                break;
            }
        }
        self.reconsider_clocks();
        self.update_paces();
    }

    /// Accounts for what the thread of a PE did since the last time.
    fn settle(&mut self, pe: usize) {
        let (cpu, lane) = (&mut self.cpus[pe], &mut self.lanes[pe]);
        lane.advance(self.now);
        let ns = self.now.0 - cpu.settled.0;
        cpu.settled = self.now;
        let Some(index) = cpu.running().filter(|_| ns > 0) else { return };
        let (work, useful_ns) = (std::mem::take(&mut lane.work), std::mem::take(&mut lane.useful_ns));
        let thread = &mut self.threads[index];
        let app = &mut self.apps[thread.app];
        let (speed, reported) = (self.machine.model.pes[pe].speed, self.machine.reported[pe]);
        thread.cpu_ns += ns;
        cpu.queue.charge(ns as i64);
        app.cpu_ns += ns;
        if let Some(power) = &mut self.power {
            power.ran(pe, thread.app, ns);
        }
        app.fast_ns += if reported == self.machine.fastest { ns } else { 0 };
        thread.counters.add_cycles(ns as f64 * self.machine.spec.ghz * speed);
        thread.debt_ns = lane.debt_ns;
        let paid = ns as f64 - useful_ns;
        if paid > 0.0 {
            cpu.waking_ns += thread.times.pay(paid);
        }
        let demand = &self.demands[thread.activity.demand()];
        thread.counters.add_work(work, demand, &cpu.pace);
        app.instructions += work * demand.ipc;
        match &mut thread.activity {
            Activity::Work { left, .. } => {
                *left = lane.left;
                thread.progress.add(work);
                app.work += work;
            }
            Activity::Spin { spun_ns } => {
                *spun_ns += useful_ns;
                thread.times.spin(useful_ns, &thread.wait);
            }
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.ran(pe, thread.app, self.now.0 - ns, self.now.0);
        }
    }

    /// Sets up the lane of a PE, of which something has changed, with its next event.
    fn schedule(&mut self, pe: usize) {
        self.settle(pe);
        let (cpu, event_at) = (&self.cpus[pe], self.lanes[pe].event_at);
        let mut lane = Lane { at: self.now, event_at, ..Lane::default() };
        if let Some(thread) = cpu.running().map(|index| &self.threads[index]) {
            (lane.debt_ns, lane.pace, lane.channel) =
                (thread.debt_ns, cpu.pace.work_per_ns, cpu.share.memory_use());
            lane.until = self.slice_end(pe).unwrap_or(NEVER);
            match thread.activity {
                Activity::Work { left, .. } => lane.left = left,
                Activity::Spin { spun_ns } => {
                    let is_contended = !cpu.queue.waiting().is_empty();
                    let ns = (thread.wait.next_ns(thread.counted, is_contended) - spun_ns).max(0.0);
                    lane.until = lane.until.min(lane.after(ns));
                }
            }
        }
        self.lanes[pe] = lane;
        self.enter(pe);
    }

    /// Enters the next event of a PE's lane, unless it is unchanged.
    fn enter(&mut self, pe: usize) {
        let next = self.lanes[pe].next();
        if next != std::mem::replace(&mut self.lanes[pe].event_at, next) {
            self.queue.set_pe(pe, Some(next).filter(|next| *next != NEVER));
        }
    }
}
