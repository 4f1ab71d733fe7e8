//! Executes the programs of threads: starts, ends, barriers, locks, sleeps.

use super::sched::queue::Entity;
use super::state::demands::Demands;
use super::state::lines::{Lines, Of};
use super::state::memory::{ProcessMemory, ThreadMemory};
use super::state::news::NewsItem;
use super::state::placement::Flips;
use super::state::process::{Process, Times, Wait};
use super::{Release, Sim};
use crate::chance::{Purpose, mix};
use crate::pmu::{Counters, Progress};
use crate::program::{Op, Work};
use crate::queue::Event;
use crate::thread::{Activity, App, AppPlan, Lock, Parallelism, Thread};
use corewise_core::ids::ThreadId;
use corewise_core::observe::EventKind;
use corewise_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

/// The first thread ID that is assigned.
const FIRST_TID: u32 = 1000;

/// The state of a thread after its last step.
enum Next {
    /// It works or busy-waits.
    Run,
    /// It blocks.
    Block,
    /// It has ended.
    End,
}

impl App {
    /// An application that has not started.
    pub fn new(plan: AppPlan) -> Self {
        let locks = (0..plan.program.locks).map(|_| Lock::default()).collect();
        Self {
            process: Process::default(),
            chains: vec![Vec::new(); plan.program.chains],
            pools: vec![0; plan.program.pools],
            lines: Lines::new(plan.program.locks, plan.program.pools),
            plan,
            alive: 0,
            arrived: Vec::new(),
            locks,
            runs: 0,
            started: Time(0),
            work_factor: 1.0,
            broken: false,
            completions: Vec::new(),
            parallelism: Parallelism::default(),
            counted_xor: 0,
            memory: ProcessMemory::default(),
            cpu_ns: 0,
            instructions: 0.0,
            work: 0.0,
            fast_ns: 0,
        }
    }

    /// Returns whether a thread need not wait for the one before it in a chain.
    fn may_follow(&self, index: usize, chain: usize, ring: bool) -> bool {
        let (number, passes) = (index - self.process.leader, &self.chains[chain]);
        match number {
            0 => !ring || passes[self.process.team - 1] >= passes[0],
            _ => passes[number - 1] > passes[number],
        }
    }
}

impl Sim {
    /// Starts or restarts an application.
    pub(super) fn start(&mut self, app: usize) {
        let plan = self.apps[app].plan.clone();
        let pid = FIRST_TID + self.threads.len() as u32;
        self.apps[app].started = self.now;
        self.apps[app].broken = false;
        let run = self.apps[app].runs;
        self.apps[app].runs += 1;
        let variation = self.chance.stream(Purpose::Variation, &[app as u64, run]).normal();
        self.apps[app].work_factor = (1.0 + plan.variation * variation).max(0.1);
        self.apps[app].memory = ProcessMemory::default();
        let all = &self.machine.model.topology.allowed;
        let permitted = Arc::new(plan.pin.as_ref().map_or_else(|| all.clone(), |pin| pin.intersection(all)));
        let team = self.team(app, &permitted);
        let starting = &mut self.apps[app];
        starting.process = Process::new(self.threads.len(), team);
        starting.alive = team;
        starting.chains.iter_mut().for_each(|passes| *passes = vec![0; team]);
        starting.pools.fill(0);
        for number in 0..team {
            let index = self.threads.len();
            self.threads.push(Thread {
                id: ThreadId { tid: FIRST_TID + index as u32, generation: 0 },
                key: mix(mix(app as u64, run), number as u64),
                works: 0,
                pauses: 0,
                arrival: self.now,
                pid,
                app,
                master: number == 0,
                ready: false,
                counted: false,
                ended: false,
                activity: Activity::Work { left: 0.0, demand: Demands::NONE },
                wait: Wait::default(),
                next_op: 0,
                rounds: vec![0; plan.program.loops],
                debt_ns: 0.0,
                permitted: permitted.clone(),
                mask: (*permitted).clone(),
                usable: (*permitted).clone(),
                pinned: plan.pin.is_some(),
                bound: false,
                pe: None,
                warm_pe: None,
                memory: ThreadMemory::default(),
                cpu_ns: 0,
                times: Times::default(),
                entity: Entity { is_batch: plan.is_batch, ..Entity::new(index, plan.weight) },
                flips: Flips::default(),
                runnable_ns: 0,
                ready_since: self.now,
                counters: Counters::default(),
                progress: Progress::default(),
            });
            self.present.push(index);
            self.news.add(EventKind::ThreadStarted, NewsItem::Started { thread: index });
            self.confine(index);
            self.release(index, None);
        }
    }

    /// Advances a thread, which another one may have released, to its next step that takes time.
    pub(super) fn proceed(&mut self, thread: usize, by: Option<usize>) {
        // A thread that was killed may still have a wake-up pending.
        if self.threads[thread].ended {
            return;
        }
        let Some(pe) = self.running_on(thread) else {
            // It needs a PE, and must have paid for getting it, to notice that it may continue.
            self.audit_work(thread);
            self.threads[thread].activity = Activity::Work { left: 0.0, demand: Demands::SPIN };
            if self.threads[thread].ready {
                self.count_while_ready(thread, true);
            } else {
                self.wake(thread, by);
            }
            return;
        };
        // Account for what it did so far, in particular a busy-wait, before it does something else.
        self.settle(pe);
        self.audit_work(thread);
        match self.next_step(thread) {
            Next::Run => {
                self.count_while_ready(thread, true);
                self.touch(pe);
            }
            Next::Block => self.leave(thread),
            Next::End => {
                self.leave(thread);
                self.end(thread);
            }
        }
    }

    /// Returns the PE on which a thread runs at this moment.
    pub(super) fn running_on(&self, thread: usize) -> Option<usize> {
        self.threads[thread].pe.filter(|&pe| self.cpus[pe].running() == Some(thread))
    }

    fn next_step(&mut self, index: usize) -> Next {
        let program = self.apps[self.threads[index].app].plan.program.clone();
        loop {
            let thread = &mut self.threads[index];
            let at = thread.next_op;
            let Some(op) = program.ops.get(at) else { return Next::End };
            thread.next_op += 1;
            match *op {
                Op::Serial(work) if thread.master => return self.begin(index, at, work, 1.0),
                Op::Serial(_) => {}
                Op::Share(work) => {
                    let threads = self.apps[thread.app].process.team as f64;
                    return self.begin(index, at, work, 1.0 / threads);
                }
                Op::Parts { work, pool, count, guided } => {
                    let app = &mut self.apps[thread.app];
                    let left = count.saturating_sub(app.pools[pool]);
                    if left > 0 {
                        let share = if guided { left.div_ceil(app.process.team as u32) } else { 1 };
                        app.pools[pool] += share;
                        thread.next_op -= 1;
                        self.write_line(index, Of::Pool(pool));
                        return self.begin(index, at, work, f64::from(share));
                    }
                }
                Op::Each(work) => return self.begin(index, at, work, 1.0),
                Op::Barrier => {
                    if !self.arrive(index) {
                        return self.wait(index);
                    }
                }
                Op::Await { chain, ring } => {
                    if !self.follow(index, chain, ring) {
                        return self.spin(index);
                    }
                }
                Op::Pass { chain } => self.pass(index, chain),
                Op::Lock(lock) => {
                    if !self.lock(index, lock) {
                        return self.wait(index);
                    }
                }
                Op::Unlock(lock) => self.unlock(index, lock),
                Op::Put(queue) => {
                    if !self.put(index, queue) {
                        return self.wait(index);
                    }
                }
                Op::Take(queue) => {
                    if !self.take_one(index, queue) {
                        return self.wait(index);
                    }
                }
                op @ (Op::Sleep(_) | Op::SleepAbout(_) | Op::Arrival { .. }) => {
                    if let Some(until) = self.pause_until(index, op) {
                        self.queue.push(until, Event::Wake { thread: index as u32 });
                        return Next::Block;
                    }
                }
                Op::Again { first, times, counter } => {
                    thread.rounds[counter] += 1;
                    if thread.rounds[counter] < times {
                        thread.next_op = first;
                    } else {
                        thread.rounds[counter] = 0;
                    }
                }
            }
        }
    }

    /// A thread arrives at the barrier; the last one releases the others. Returns whether it is that one.
    fn arrive(&mut self, index: usize) -> bool {
        self.write_line(index, Of::Barrier);
        let pe = self.threads[index].pe;
        let app = &mut self.apps[self.threads[index].app];
        if app.arrived.len() + 1 < app.alive {
            app.arrived.push(index);
            return false;
        }
        app.pools.fill(0);
        for thread in std::mem::take(&mut app.arrived) {
            self.see_from(thread, pe);
            self.released.push_back(Release { thread, by: Some(index) });
        }
        true
    }

    /// Returns whether a thread follows the one before it in a chain, or must wait for it.
    fn follow(&mut self, index: usize, chain: usize, ring: bool) -> bool {
        let app = &self.apps[self.threads[index].app];
        if !app.may_follow(index, chain, ring) {
            return false;
        }
        let number = index - app.process.leader;
        let before = app.process.leader + (number + app.process.team - 1) % app.process.team;
        if number > 0 || ring {
            self.see_from(index, self.threads[before].pe);
        }
        true
    }

    /// Returns whether a thread has got a lock, or must wait for it.
    fn lock(&mut self, index: usize, number: usize) -> bool {
        let lock = &mut self.apps[self.threads[index].app].locks[number];
        if lock.holder.is_some() {
            lock.queue.push_back(index);
            return false;
        }
        lock.holder = Some(index);
        self.write_line(index, Of::Lock(number));
        true
    }

    fn unlock(&mut self, index: usize, number: usize) {
        let lock = &mut self.apps[self.threads[index].app].locks[number];
        lock.holder = lock.queue.pop_front();
        if let Some(thread) = lock.holder {
            self.write_line(thread, Of::Lock(number));
            self.released.push_back(Release { thread, by: Some(index) });
        }
    }

    /// Returns until when a thread pauses; `None` if it need not.
    fn pause_until(&mut self, index: usize, op: Op) -> Option<Time> {
        match op {
            Op::Sleep(time) => Some(self.now + time),
            Op::SleepAbout(mean) => Some(self.now + self.random_pause(index, mean)),
            Op::Arrival { every, random } => {
                let pause = if random { self.random_pause(index, every) } else { every };
                let arrival = &mut self.threads[index].arrival;
                *arrival = *arrival + pause;
                Some(*arrival).filter(|arrival| *arrival > self.now)
            }
            _ => None,
        }
    }

    /// Returns an exponentially distributed time; the same for the same pause in every variant.
    fn random_pause(&mut self, index: usize, mean: Duration) -> Duration {
        let thread = &mut self.threads[index];
        thread.pauses += 1;
        let place = self.chance.unit(Purpose::Pause, &[thread.key, thread.pauses]);
        // At least a nanosecond: a program whose pauses take no time would never end.
        mean.mul_f64(-(1.0 - place).ln()).max(Duration::from_nanos(1))
    }

    /// Begins the work of an op.
    fn begin(&mut self, index: usize, op: usize, work: Work, share: f64) -> Next {
        let thread = &mut self.threads[index];
        thread.works += 1;
        let unequal = if work.imbalance > 0.0 {
            let place = self.chance.unit(Purpose::Imbalance, &[thread.key, thread.works]);
            1.0 + work.imbalance * (2.0 * place - 1.0)
        } else {
            1.0
        };
        let factor = self.apps[thread.app].work_factor;
        let demand = self.demands.of_op(thread.app, op);
        thread.activity = Activity::Work { left: work.cycles * share * unequal * factor, demand };
        Next::Run
    }

    fn wait(&mut self, index: usize) -> Next {
        self.threads[index].activity = Activity::Spin { spun_ns: 0.0 };
        self.begin_wait(index);
        if self.threads[index].wait.block_ns > 0.0 { Next::Run } else { Next::Block }
    }

    /// Lets a thread wait in code of its program's own.
    fn spin(&mut self, index: usize) -> Next {
        self.threads[index].activity = Activity::Spin { spun_ns: 0.0 };
        self.threads[index].wait = Wait::default();
        Next::Run
    }

    /// Notes that a thread has passed a chain. The thread that comes next may spin for that.
    fn pass(&mut self, index: usize, chain: usize) {
        let app = &mut self.apps[self.threads[index].app];
        let number = index - app.process.leader;
        app.chains[chain][number] = app.chains[chain][number].saturating_add(1);
        let next = app.process.leader + (number + 1) % app.process.team;
        let waits_at = self.threads[next].next_op.checked_sub(1).map(|op| app.plan.program.ops[op]);
        if let Some(Op::Await { chain: of, ring }) = waits_at
            && next != index
            && of == chain
            && !self.threads[next].ended
            && app.may_follow(next, chain, ring)
            && self.released.iter().all(|release| release.thread != next)
        {
            self.see_from(next, self.threads[index].pe);
            self.released.push_back(Release { thread: next, by: None });
        }
    }

    /// Lets those go on that would follow a thread in a chain that was killed.
    pub(super) fn leave_chains(&mut self, index: usize) {
        for chain in 0..self.apps[self.threads[index].app].chains.len() {
            let app = &mut self.apps[self.threads[index].app];
            app.chains[chain][index - app.process.leader] = u32::MAX;
            self.pass(index, chain);
        }
    }

    /// Sets whether a thread counts as runnable.
    pub(super) fn count(&mut self, index: usize, runnable: bool) {
        let thread = &mut self.threads[index];
        if thread.counted == runnable {
            return;
        }
        thread.counted = runnable;
        let app = &mut self.apps[thread.app];
        app.parallelism.change(self.now, runnable);
        app.counted_xor ^= index;
        self.news.note_tlp(thread.app);
    }

    /// Likewise for a thread that has a PE or waits for one: reports whether it spins.
    pub(super) fn count_while_ready(&mut self, index: usize, runnable: bool) {
        if self.threads[index].counted != runnable {
            self.count(index, runnable);
            self.news.add(EventKind::Hint, NewsItem::Hint { thread: index });
        }
    }

    /// Returns whether each application for whose end the run waits has completed so often.
    fn have_completed(&self, times: usize) -> bool {
        self.apps.iter().all(|app| app.plan.background || app.completions.len() >= times)
    }

    pub(super) fn end(&mut self, index: usize) {
        let thread = &mut self.threads[index];
        thread.ended = true;
        self.news.add(EventKind::ThreadEnded, NewsItem::Ended { thread: index });
        if self.apps[thread.app].process.leader == index {
            self.leave_gang(index);
        }
        let app = &mut self.apps[self.threads[index].app];
        app.alive -= 1;
        if app.alive > 0 {
            return;
        }
        let broken = app.broken;
        if !broken {
            app.completions.push(self.now.since(app.started).as_secs_f64());
        }
        if self.all_done.is_none() && self.have_completed(1) {
            self.all_done = Some(self.now);
        }
        self.finished = self.have_completed(self.stop.completions);
        if !self.finished && (self.stop.completions > 1 || broken) {
            let app = self.threads[index].app as u32;
            self.queue.push(self.now, Event::Start { app });
        }
    }
}
