//! Faults of threads and PEs as events; [`crate::faults`] describes them.

use super::state::news::NewsItem;
use super::{Release, Sim};
use crate::queue::Event;
use crate::thread::Activity;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::observe::EventKind;
use std::sync::Arc;
use std::time::Duration;

impl Sim {
    /// Schedules the first faults.
    pub(super) fn begin_faults(&mut self) {
        self.enter_fault(self.faults.kills_per_s, Event::Kill);
        self.enter_fault(self.faults.unplugs_per_s, Event::Unplug);
    }

    /// Schedules the next fault of a kind, at independent random times.
    fn enter_fault(&mut self, per_s: f64, event: Event) {
        if per_s > 0.0 {
            let wait = Duration::from_secs_f64((self.exponential() / per_s).min(1e9));
            self.queue.push(self.now + wait, event);
        }
    }

    /// Returns an exponentially distributed random number of mean 1.
    fn exponential(&mut self) -> f64 {
        -(1.0 - self.fault_random.unit()).ln()
    }

    /// Kills a thread, and schedules the next kill.
    pub(super) fn kill_one(&mut self) {
        let alive: Vec<usize> =
            self.present.iter().copied().filter(|&thread| !self.threads[thread].ended).collect();
        if !alive.is_empty() {
            let victim = alive[self.fault_random.below(alive.len())];
            self.kill(victim);
        }
        self.enter_fault(self.faults.kills_per_s, Event::Kill);
    }

    /// Ends a thread in the midst of its work. Threads that wait for it no longer do.
    pub(crate) fn kill(&mut self, index: usize) {
        let release = |thread| Release { thread, by: None };
        if self.threads[index].ready {
            self.leave(index);
        }
        // Its remaining work is dropped.
        self.threads[index].activity = Activity::Spin { spun_ns: 0.0 };
        let app = &mut self.apps[self.threads[index].app];
        app.broken = true;
        app.arrived.retain(|&waiting| waiting != index);
        for lock in &mut app.locks {
            lock.queue.retain(|&waiting| waiting != index);
            if lock.holder == Some(index) {
                lock.holder = lock.queue.pop_front();
                self.released.extend(lock.holder.map(release));
            }
        }
        self.leave_queues(index);
        self.leave_chains(index);
        self.end(index);
        let app = &mut self.apps[self.threads[index].app];
        if app.arrived.len() == app.alive {
            self.released.extend(app.arrived.drain(..).map(release));
        }
    }

    /// Unplugs a PE, and schedules the next unplugging. The last PE stays.
    pub(super) fn unplug_one(&mut self) {
        if self.online.len() > 1 {
            let online: Vec<PeId> = self.online.iter().collect();
            let pe = online[self.fault_random.below(online.len())];
            self.online.remove(pe);
            self.domains.plug(pe.0 as usize, false);
            self.follow_online_pes();
            let away = self.faults.unplugged.mul_f64(self.exponential());
            self.queue.push(self.now + away, Event::Plug { pe: pe.0 });
        }
        self.enter_fault(self.faults.unplugs_per_s, Event::Unplug);
    }

    /// Plugs a PE in again.
    pub(super) fn plug(&mut self, pe: u32) {
        self.online.insert(PeId(pe));
        self.domains.plug(pe as usize, true);
        self.follow_online_pes();
        self.vacant.push_back(pe as usize);
    }

    fn follow_online_pes(&mut self) {
        self.news.add(EventKind::AllowedChanged, NewsItem::Online);
        for place in 0..self.present.len() {
            let thread = self.present[place];
            if !self.threads[thread].ended {
                self.confine(thread);
            }
        }
    }

    /// Keeps a thread within the online PEs of its mask. A mask without any is widened permanently.
    pub(super) fn confine(&mut self, index: usize) {
        let thread = &mut self.threads[index];
        thread.usable = thread.mask.intersection(&self.online);
        if thread.usable.is_empty() {
            let everywhere = Arc::new(self.machine.model.topology.pes.clone());
            thread.mask = CpuSet::clone(&everywhere);
            thread.usable = self.online.clone();
            (thread.bound, thread.pinned, thread.permitted) = (false, false, everywhere);
        }
        if let Some(pe) = self.threads[index].pe
            && self.threads[index].ready
            && !self.may_use(index, pe)
        {
            self.relocate(index);
        }
    }
}
