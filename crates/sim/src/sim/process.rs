//! Processes and their waits: how idle threads wait, what corewise sees of that, and what it can change.
//!
//! Problem: corewise gains most by changing how unmodified programs wait, so its rules must run here on
//! what they would see on a real machine. Approach: each run of an application is a process of one team. A
//! thread that waits for another one checks again and again until its count is used up ([`Waiting`]), as
//! its runtime library lets it at the beginning of the wait; in a chain it spins in code of its own, which
//! nothing can change. What the kernel's `schedstat` shows is kept: time on a PE, time in a queue (known
//! when it is over), and how often a thread was given a PE. From these the times of each process are
//! reported at the times at which a real run looks ([`corewise_core::waits::looks`]), with the idle time of
//! its PEs while its waits are changed. Clock samples of 199 Hz of a thread's CPU time tell what it did, as
//! the counter source `sample` does. Sources: `libgomp/config/linux/wait.h` (`do_spin` reads the count
//! once), `kernel/sched/stats.h` (`sched_info_arrive`), `kmp_wait_release.h` of LLVM's OpenMP. Limits: all
//! spinning is recognised as such; one engine sees all applications, as if they were started under one
//! `corewise run`, so that all are looked at in the same moments; looking and changing cost nothing.

use super::Sim;
use super::state::news::NewsItem;
use super::state::process::Wait;
use crate::program::Waiting;
use crate::queue::Event;
use crate::thread::{App, Thread};
use corewise_core::cpuset::CpuSet;
use corewise_core::observe::{EventKind, IdleWait, IdleWaits, ProcessReading};
use corewise_core::plan::OutcomeKind;
use corewise_core::waits::looks::{IDLE_EVERY, Look, Looks};
use corewise_core::waits::teams::{self, Shared};

impl Sim {
    /// Returns the size of an application's team that is about to start.
    pub(super) fn team(&self, app: usize, permitted: &CpuSet) -> usize {
        let plan = &self.apps[app].plan;
        if !plan.adapt_team {
            return plan.threads;
        }
        let wants = |thread: &&Thread| !thread.ended && (thread.ready || thread.next_op == 0);
        let wanting = |app: &App| self.threads[app.process.threads()].iter().filter(wants).count();
        let others = |shares: &dyn Fn(&App) -> bool| -> Vec<usize> {
            let apps = self.apps.iter().filter(|app| shares(app));
            apps.map(wanting).filter(|&threads| threads > 0).collect()
        };
        let pes = permitted.intersection(&self.online).len() as f64;
        let of_pes = Shared { pes, others: others(&|_| true) };
        let quotas = self.groups.quotas(plan.group).map(|(group, pes)| {
            let is_in = |app: &App| self.groups.path(app.plan.group).any(|of| of == group);
            Shared { pes, others: others(&is_in) }
        });
        let shared: Vec<Shared> = [of_pes].into_iter().chain(quotas).collect();
        plan.threads.min(teams::size(&shared))
    }

    /// Returns the size of the team of an application's present or last run.
    pub fn team_of(&self, name: &str) -> Option<usize> {
        self.apps.iter().find(|app| &*app.plan.name == name).map(|app| app.process.team)
    }

    /// Begins a wait as the thread's runtime library lets it.
    pub(super) fn begin_wait(&mut self, thread: usize) {
        let app = &self.apps[self.threads[thread].app];
        self.threads[thread].wait = Wait::new(app.plan.waiting, &app.process);
    }

    /// Continues a wait in which a thread has spun for so long: it yields, reports, or blocks.
    pub(super) fn spun(&mut self, thread: usize, spun_ns: f64) {
        let wait = &mut self.threads[thread].wait;
        let (is_over, is_notice) = (spun_ns >= wait.block_ns, spun_ns >= wait.notify_ns);
        let yields = spun_ns >= wait.yield_ns;
        if yields {
            wait.yield_ns = spun_ns + wait.yield_every_ns;
        }
        if is_over {
            self.leave(thread);
            return;
        }
        if is_notice {
            self.count_while_ready(thread, false);
        }
        if yields {
            self.yield_pe(thread);
        }
    }

    /// Returns the application whose process a thread leads.
    fn led_by(&self, leader: usize) -> Result<usize, OutcomeKind> {
        let app = self.threads[leader].app;
        let process = &self.apps[app].process;
        let is_over = process.leader != leader || self.apps[app].alive == 0 || self.threads[leader].ended;
        if is_over { Err(OutcomeKind::Gone) } else { Ok(app) }
    }

    /// Sets the spin count of the process that a thread leads, or restores its library's own.
    pub(crate) fn set_spin_count(&mut self, leader: usize, count: Option<u64>) -> OutcomeKind {
        let app = match self.led_by(leader) {
            Ok(app) => app,
            Err(gone) => return gone,
        };
        if !self.is_adaptable(app) {
            return OutcomeKind::Refused("no runtime library whose waits can be changed".to_owned());
        }
        let process = &mut self.apps[app].process;
        process.spin_count = count;
        process.idle_read = None;
        OutcomeKind::Done
    }

    /// Lets the process that a thread leads take turns, or ends that.
    pub(crate) fn set_turns(&mut self, leader: usize, takes_turns: bool) -> OutcomeKind {
        match (self.led_by(leader), takes_turns) {
            (Ok(_), true) => self.join_gang(leader),
            (Err(gone), true) => return gone,
            (_, false) if self.leave_gang(leader) => {}
            (_, false) => return OutcomeKind::NotOurs,
        }
        self.catch_up();
        OutcomeKind::Done
    }

    fn is_adaptable(&self, app: usize) -> bool {
        self.idle_waits(app).is_adaptable()
    }

    fn idle_waits(&self, app: usize) -> IdleWaits {
        match self.apps[app].plan.waiting {
            Waiting::Library { .. } => IdleWait::Adaptable.into(),
            Waiting::Yield { .. } => IdleWait::Yield.into(),
            _ => IdleWaits::default(),
        }
    }

    /// Schedules the first look at processes, once their times are subscribed to.
    pub(crate) fn begin_looks(&mut self) {
        if self.news.wants(EventKind::Process) && self.looks.is_none() {
            let looks = self.looks.insert(Looks::new(self.now));
            let within = looks.take(self.now, &[]);
            self.queue.push(self.now + within, Event::Look);
        }
    }

    /// Looks at all processes with several threads, reports what is worth it, and schedules the next look.
    pub(super) fn look_at_processes(&mut self) {
        let teams: Vec<usize> = (0..self.apps.len()).filter(|&app| self.has_team(app)).collect();
        // A running thread's time up to now.
        (0..self.cpus.len()).for_each(|pe| self.settle(pe));
        let looks: Vec<Look> = teams.into_iter().filter_map(|app| self.look_at_process(app)).collect();
        let now = self.now;
        let within = self.looks.as_mut().map(|of| of.take(now, &looks));
        within.into_iter().for_each(|within| self.queue.push(now + within, Event::Look));
    }

    /// Returns nothing at the first look at a process.
    fn look_at_process(&mut self, app: usize) -> Option<Look> {
        let reading = self.read_process(app);
        let waits = reading.waits;
        let process = &mut self.apps[app].process;
        let Some(before) = process.read.replace(reading) else {
            if let Some(looks) = &mut self.looks {
                looks.note_team(self.now);
            }
            return None;
        };
        let (is_changed, was_reported) = (process.is_changed(), process.was_reported);
        let look = Look { times: reading.since(&before), waits, is_changed, was_reported };
        process.was_reported = look.waits_or_is_throttled();
        if look.is_reported() {
            self.news.add(EventKind::Process, NewsItem::Process(reading));
        }
        Some(look)
    }

    fn has_team(&self, app: usize) -> bool {
        let app = &self.apps[app];
        app.process.team > 1 && app.alive > 0 && !self.threads[app.process.leader].ended
    }

    /// Returns the time for which the PEs that a process may use have been idle so far, summed over them.
    fn idle_ns(&self, app: usize) -> u64 {
        let permitted = &self.threads[self.apps[app].process.leader].permitted;
        let idle = |pe: usize| {
            let cpu = &self.cpus[pe];
            let running = cpu.running().map_or(0, |_| self.now.0 - cpu.since.0);
            self.now.0.saturating_sub(cpu.busy_ns + running) + cpu.waking_ns as u64
        };
        permitted.iter().map(|pe| idle(pe.0 as usize)).sum()
    }

    fn read_process(&mut self, app: usize) -> ProcessReading {
        let process = &self.apps[app].process;
        let (leader, members) = (process.leader, process.threads());
        let (mut run_ns, mut wait_ns, mut throttled_ns, mut timeslices) = (0, 0, 0, 0);
        let mut wanted_ns = Vec::with_capacity(members.len());
        let held_ns: Vec<u64> = self.threads[members.clone()].iter().map(|of| of.times.held_ns).collect();
        for thread in &self.threads[members] {
            let ran_ns = thread.times.run_ns(thread.cpu_ns);
            wanted_ns.push(ran_ns + thread.times.wait_ns + thread.times.held_ns);
            run_ns += ran_ns;
            wait_ns += thread.times.wait_ns;
            throttled_ns += thread.times.held_ns;
            timeslices += thread.times.timeslices;
        }
        let is_due = process.idle_read.is_none_or(|at| self.now.since(at) >= IDLE_EVERY);
        let idle_ns = (process.is_changed() && is_due).then(|| self.idle_ns(app));
        let before = std::mem::replace(&mut self.apps[app].process.wanted_ns, wanted_ns);
        let permitted = self.groups.quotas(self.apps[app].plan.group).map(|(_, pes)| pes).reduce(f64::min);
        let process = &mut self.apps[app].process;
        if idle_ns.is_some() {
            process.idle_read = Some(self.now);
        }
        let held_before = process.held_ns.iter().copied().chain(std::iter::repeat(0));
        let longest_ns = held_ns.iter().zip(held_before).map(|(now, before)| now - before).max();
        process.stopped_ns += longest_ns.unwrap_or(0);
        process.held_ns = held_ns;
        let stopped_ns = (process.stopped_ns > 0).then_some(process.stopped_ns);
        let before = before.into_iter().chain(std::iter::repeat(0));
        let threads = process.wanted_ns.iter().zip(before).filter(|(now, before)| **now > *before).count();
        ProcessReading {
            leader: self.threads[leader].id,
            at: self.now,
            threads: threads as u32,
            pes: self.threads[leader].permitted.intersection(&self.online).len() as u32,
            run_ns,
            wait_ns,
            throttled_ns,
            stopped_ns,
            quota_permille: permitted.map(|pes| (1e3 * pes).round() as u32),
            timeslices: Some(timeslices),
            idle_ns,
            waits: self.idle_waits(app),
            other_gangs: self.gangs.beside(leader, &self.threads),
        }
    }

    /// Returns the processes with several threads as they were last read.
    pub(crate) fn process_readings(&self) -> Vec<ProcessReading> {
        let teams = (0..self.apps.len()).filter(|&app| self.has_team(app));
        teams.filter_map(|app| self.apps[app].process.read).collect()
    }
}
