//! Checks of the simulator's own state after every instant while [invariants](crate::invariants) are checked.

use super::sched::queue::Entity;
use super::{DONE_CYCLES, Sim};
use crate::thread::Activity;
use crate::violation::{Audit, Rule, Violation};
use corewise_core::ids::{PeId, ThreadId};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// By how much the sum of what threads move may be above the bandwidth: paces are found by iteration.
const BANDWIDTH_TOLERANCE: f64 = 0.02;

/// The rounding of sums of shares.
const ROUNDING: f64 = 1e-6;

/// The number of threads up to which a slice is no longer for each of them (of CFS; other queues have one
/// length of slice).
const CROWD: usize = 8;

/// The result of one check: nothing, or a violated rule and its description.
type Finding = Result<(), (Rule, String)>;

impl Sim {
    /// Starts the checks.
    pub(crate) fn begin_audit(&mut self) {
        self.audit = Some(Audit::default());
    }

    /// Returns the first violation, once.
    pub(crate) fn take_violation(&mut self) -> Option<Violation> {
        self.audit.as_mut().and_then(|audit| audit.violation.take())
    }

    /// Checks the state after an instant.
    pub(super) fn audit_instant(&mut self) {
        let Some(audit) = &mut self.audit else { return };
        let balanced = std::mem::take(&mut audit.balanced);
        let mut found = self.audit_places();
        // Expensive checks only run after the balancer.
        if balanced {
            found = found
                .and_then(|()| self.audit_counts())
                .and_then(|()| self.audit_idle())
                .and_then(|()| self.audit_memory())
                .and_then(|()| self.audit_units());
            found = found.and_then(|()| self.audit_shares());
        }
        self.note(found);
    }

    /// Checks the state after a stretch of time, when all is settled.
    pub(super) fn audit_stretch(&mut self) {
        if self.audit.is_some() {
            let found = self.audit_time();
            self.note(found);
        }
    }

    /// Checks when a thread continues that its work is done, and was done only once.
    pub(super) fn audit_work(&mut self, index: usize) {
        if self.audit.is_none() {
            return;
        }
        if let Activity::Work { left, .. } = self.threads[index].activity {
            // The end of an op is rounded up to a nanosecond twice: for its own time, and for that with its
            // debt.
            let rounding = 2.0 * self.machine.spec.ghz * self.machine.fastest.max(1.0);
            let in_range = (-rounding - DONE_CYCLES..=DONE_CYCLES).contains(&left);
            let problem = || format!("thread {} goes on with {left} cycles left", self.threads[index].id);
            let found = if in_range { Ok(()) } else { Err((Rule::Work, problem())) };
            self.note(found);
        }
    }

    fn note(&mut self, found: Finding) {
        let at = self.now;
        if let (Some(audit), Err((rule, detail))) = (&mut self.audit, found) {
            audit.violation.get_or_insert(Violation { at, rule, detail });
        }
    }

    /// Checks that a thread is in one place exactly while it is ready, and only where it may be.
    fn audit_places(&self) -> Finding {
        for (pe, cpu) in self.cpus.iter().enumerate() {
            if cpu.running().is_none() && cpu.queue.len() > 0 {
                return Err((Rule::Idle, format!("PE {pe} is idle with a queue")));
            }
            for index in cpu.queue.members().map(|entity| entity.thread) {
                let thread = &self.threads[index];
                if thread.pe != Some(pe) || !thread.ready {
                    return Err((Rule::Places, format!("thread {} on PE {pe} is not there", thread.id)));
                }
                let id = PeId(pe as u32);
                if !thread.mask.contains(id) || !self.online.contains(id) {
                    let problem = format!("thread {} of mask {} is on PE {pe}", thread.id, thread.mask);
                    return Err((Rule::AllowedPes, format!("{problem}, online: {}", self.online)));
                }
            }
        }
        Ok(())
    }

    /// Checks that incrementally updated sums are correct.
    fn audit_counts(&self) -> Finding {
        let busy = self.cpus.iter().filter(|cpu| cpu.running().is_some()).count();
        let queued: usize = self.cpus.iter().map(|cpu| cpu.queue.waiting().len()).sum();
        let ready = self.present.iter().filter(|&&index| self.threads[index].ready).count();
        for level in self.domains.levels() {
            let load = |pes: &[usize]| pes.iter().map(|&pe| self.cpus[pe].queue.len()).sum::<usize>();
            if let Some(group) = level.groups.iter().find(|group| group.load != load(&group.pes)) {
                let problem = format!("the load of PEs {:?} is not {}", group.pes, group.load);
                return Err((Rule::Places, problem));
            }
        }
        let idle = self.online.iter().filter(|pe| self.cpus[pe.0 as usize].queue.len() == 0).count();
        if queued != self.queued || ready != busy + queued + self.groups.held() || idle != self.domains.idle()
        {
            let problem = format!("{busy} threads have a PE, {queued} wait, {idle} PEs are idle");
            let sums = format!("{} wait and {} are idle in the sums", self.queued, self.domains.idle());
            return Err((Rule::Places, format!("{problem}; {sums}; {ready} threads are ready")));
        }
        if !self.power_counts(busy) {
            let problem =
                format!("cores, packages and clocks do not count the {busy} threads that have a PE");
            return Err((Rule::Places, problem));
        }
        let mut counted = vec![0; self.apps.len()];
        for thread in self.present.iter().map(|&index| &self.threads[index]) {
            counted[thread.app] += u32::from(thread.counted);
            if (thread.counted && !thread.ready) || (thread.ended && thread.ready) || thread.debt_ns < 0.0 {
                return Err((Rule::Places, format!("the state of thread {} contradicts itself", thread.id)));
            }
        }
        for (app, counted) in self.apps.iter().zip(counted) {
            let runnable = app.parallelism.runnable;
            if runnable != counted {
                let problem = format!("{counted} threads of {} are runnable, not {runnable}", app.plan.name);
                return Err((Rule::Places, problem));
            }
        }
        Ok(())
    }

    /// Checks after a round of the balancer that no PE is idle that could take a waiting thread.
    fn audit_idle(&self) -> Finding {
        for (pe, _) in self.cpus.iter().enumerate().filter(|(_, cpu)| cpu.running().is_none()) {
            let mut waiting =
                self.cpus.iter().flat_map(|cpu| cpu.queue.waiting()).map(|entity| entity.thread);
            if let Some(index) = waiting.find(|&index| self.may_use(index, pe)) {
                let problem = format!("PE {pe} is idle, thread {} waits", self.threads[index].id);
                return Err((Rule::Idle, problem));
            }
        }
        Ok(())
    }

    /// Checks that threads move no more data than the channel of each node can.
    fn audit_memory(&self) -> Finding {
        let model = &self.machine.model;
        let mut moved = vec![0.0; model.nodes.len()];
        let users = self.cpus.iter().zip(&self.lanes);
        for (cpu, lane) in users.filter(|(cpu, _)| cpu.pace.memory_bytes_per_work > 0.0) {
            let Some(thread) = cpu.running() else { continue };
            let bytes = lane.pace * cpu.pace.memory_bytes_per_work;
            let homes = self.threads[thread].memory.homes();
            moved.iter_mut().enumerate().for_each(|(node, moved)| *moved += bytes * homes.share(node));
        }
        let most = model.memory.bandwidth_gb_per_s * (1.0 + BANDWIDTH_TOLERANCE);
        match moved.into_iter().find(|moved| *moved > most && self.judge.is_none()) {
            Some(moved) => Err((Rule::Work, format!("threads move {moved} GB/s, their node {most}"))),
            None => Ok(()),
        }
    }

    /// Checks that no FPU does more than it can: one operation at a time, or as many as its conflict permits.
    /// A thread that waits for memory has its intensity for less than all of its time.
    fn audit_units(&self) -> Finding {
        let model = &self.machine.model;
        let mut used = BTreeMap::<usize, (f64, f64)>::new();
        for (pe, cpu) in self.cpus.iter().enumerate().filter(|_| self.judge.is_none()) {
            let Some(thread) = cpu.running() else { continue };
            let demand = &self.demands[self.threads[thread].activity.demand()];
            if !demand.uses_memory() {
                let intensity = demand.fpu_intensity.unwrap_or(demand.fpu);
                let cycles = cpu.pace.work_per_ns / (model.ghz * model.pes[pe].speed);
                let (threads, busy) = used.entry(model.pes[pe].fpu).or_default();
                (*threads, *busy) = (*threads + 1.0, *busy + intensity * cycles);
            }
        }
        let at_once = (1.0 - model.units.fpu_conflict).max(0.0);
        let is_above = |(threads, busy): &(f64, f64)| *busy > 1.0 + at_once * (threads - 1.0) + ROUNDING;
        match used.into_values().find(is_above) {
            Some((threads, busy)) => {
                Err((Rule::Work, format!("{threads} threads use an FPU for {busy} of the time")))
            }
            None => Ok(()),
        }
    }

    /// Checks that threads share each PE fairly: where none has come, gone or yielded, no two get further
    /// apart in virtual time than a slice of each, or than they were.
    fn audit_shares(&mut self) -> Finding {
        let Some(mut audit) = self.audit.take() else { return Ok(()) };
        audit.apart.resize(self.cpus.len(), None);
        let mut found = Ok(());
        for (cpu, apart) in self.cpus.iter().zip(&mut audit.apart) {
            let now = self.spread_of(cpu);
            let first = *apart.get_or_insert(now);
            let crowd = cpu.queue.len().div_ceil(CROWD) as i64;
            let slice = crowd * self.os.slice_max().as_nanos() as i64;
            let slices = cpu.queue.members().map(|entity| entity.virtual_ns(slice)).max().unwrap_or(0);
            if now > first.max(2 * slices) && self.dispatching.is_none() {
                let detail = format!("virtual times are {now} ns apart, slices are {slices} ns");
                found = Err((Rule::Shares, detail));
            }
        }
        self.audit = Some(audit);
        found
    }

    /// Returns how far the virtual times of a PE's threads are apart.
    fn spread_of(&self, cpu: &super::Cpu) -> i64 {
        let ran = |entity: &Entity| match cpu.running() {
            Some(thread) if thread == entity.thread => (self.now.0 - cpu.settled.0) as i64,
            _ => 0,
        };
        let times = || cpu.queue.members().map(|entity| entity.vtime + entity.virtual_ns(ran(entity)));
        times().max().unwrap_or(0) - times().min().unwrap_or(0)
    }

    /// Notes that a thread has come to a PE, gone or yielded, or that weights there have changed.
    pub(super) fn unsettle(&mut self, pe: usize) {
        if let Some(audit) = &mut self.audit
            && let Some(apart) = audit.apart.get_mut(pe)
        {
            *apart = None;
        }
    }

    /// Returns the weights of all threads that have not ended, and the part of a PE that quotas leave each.
    pub(crate) fn standings(&self) -> HashMap<ThreadId, (f64, f64)> {
        let standing = |&index: &usize| {
            let thread = &self.threads[index];
            let group = self.apps[thread.app].plan.group;
            let weight = self.groups.weight(group, thread.entity.own) as f64;
            let quota = self.groups.quotas(group).fold(1.0, |least: f64, (_, quota)| least.min(quota));
            (thread.id, (weight, quota))
        };
        self.present.iter().map(standing).collect()
    }

    /// Returns the longest period of a quota.
    pub(crate) fn quota_period_max(&self) -> Duration {
        let periods = self.groups.all.iter().filter_map(|group| Some(group.budget.as_ref()?.period));
        periods.max().unwrap_or_default()
    }

    /// Checks that no time is lost or counted twice: PEs were busy for as long as threads had them.
    fn audit_time(&self) -> Finding {
        let running = |cpu: &super::Cpu| cpu.running().map_or(0, |_| self.now.0 - cpu.since.0);
        let busy: u64 = self.cpus.iter().map(|cpu| cpu.busy_ns + running(cpu)).sum();
        let by_apps: u64 = self.apps.iter().map(|app| app.cpu_ns).sum();
        if busy != by_apps {
            let problem = format!("PEs were busy for {busy} ns, applications ran for {by_apps} ns");
            return Err((Rule::Work, problem));
        }
        Ok(())
    }
}
