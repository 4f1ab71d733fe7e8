//! How fast the running threads are, brought up to date where something changed.
//!
//! Problem: whenever a thread gets a PE or another demand, the speeds of all that share something with it may
//! change, thousands of times per simulated second. Approach: the model is asked only as far as a change
//! reaches.
//!
//! - A PE whose thread asks for the same as the last one changes nothing for others.
//! - *Units*: a change concerns the threads on the same core or module.
//! - *Caches*: where a thread uses them, all of its cluster that do are asked about. Few states come back
//!   often, and the model keeps their solutions ([`corewise_core::machine_model::cache`]).
//! - *Channels*: a node's waits follow from what threads, wherever they run, ask of it. They are solved only
//!   if that changed ([`corewise_core::machine_model::channel`]). Its users then go on at another pace:
//!   they are many, so that they do it in their [lanes](super::state::lanes).
//!
//! Limits: threads whose memory is spread over nodes connect these, so that each event concerns the users of
//! all of them.

use super::Sim;
use super::state::paces::Wants;
use crate::judge::Judge;
use corewise_core::machine_model::contention::{CacheUser, Common, Demand, Homes, Load, Pace, Use};

impl Sim {
    /// Notes that something about the thread of a PE changed, so that there may be new paces.
    pub(super) fn touch(&mut self, pe: usize) {
        self.paces.stale.push(pe);
    }

    /// Brings paces and pending events up to date after the events of an instant.
    pub(super) fn update_paces(&mut self) {
        if let Some(judge) = self.judge.take() {
            self.judge_paces(&judge);
            self.judge = Some(judge);
            return;
        }
        self.share();
        self.channels.solve();
        let users = self.channels.changed().iter().flat_map(|&node| self.channels.users(node));
        users.for_each(|&pe| self.paces.slower.add(pe));
        let mut moved = std::mem::take(&mut self.moved);
        moved.drain(..).for_each(|pe| self.paces.changed.add(pe));
        self.moved = moved;
        for word in 0..self.paces.changed.words() {
            while let Some((pe, is_changed)) = self.paces.next(word) {
                if is_changed { self.change(pe) } else { self.change_wait(pe) }
            }
        }
    }

    /// Does the same by another judge, for all threads.
    fn judge_paces(&mut self, judge: &Judge) {
        let demand = |pe: usize| {
            let thread = &self.threads[self.cpus[pe].running()?];
            Some((pe, self.demands[thread.activity.demand()]))
        };
        let running: Vec<(usize, Demand)> = (0..self.cpus.len()).filter_map(demand).collect();
        let slowdowns = judge.slowdowns(&running);
        let mut slowdowns = running.iter().zip(slowdowns).peekable();
        let (mut stale, mut moved) = (std::mem::take(&mut self.paces.stale), std::mem::take(&mut self.moved));
        stale.drain(..).chain(moved.drain(..)).for_each(|pe| self.paces.changed.add(pe));
        (self.paces.stale, self.moved) = (stale, moved);
        for pe in 0..self.cpus.len() {
            let mut pace = Pace::default();
            if let Some(((_, demand), slowdown)) = slowdowns.next_if(|((at, _), _)| *at == pe) {
                let alone = Load::new(pe, *demand);
                self.cpus[pe].share = self.solver.share(&self.machine.model, &[alone])[0];
                pace = self.cpus[pe].share.pace(0.0);
                pace.work_per_ns /= slowdown;
            }
            if self.paces.changed.take(pe) || pace != self.cpus[pe].pace {
                self.settle(pe);
                self.cpus[pe].pace = pace;
                self.set_power(pe);
                self.schedule(pe);
            }
        }
    }

    /// Updates what threads leave each other of units and caches.
    fn share(&mut self) {
        let mut stale = std::mem::take(&mut self.paces.stale);
        for &pe in &stale {
            self.look_at(pe);
        }
        while let Some(pe) = self.paces.units.pop() {
            self.share_units(pe);
        }
        while let Some(pe) = self.paces.caches.pop() {
            self.share_caches(pe);
        }
        for pe in stale.drain(..) {
            self.paces.changed.add(pe);
            self.paces.otherwise.push(pe);
            if self.power.is_some() {
                // The threads of a core share its power.
                self.paces.mates[pe].iter().for_each(|&mate| self.paces.changed.add(mate));
            }
        }
        while let Some(pe) = self.paces.otherwise.pop() {
            self.ask(pe);
        }
        self.paces.stale = stale;
    }

    /// Looks at what the thread of a PE wants, and notes what it concerns if that is something else.
    fn look_at(&mut self, pe: usize) {
        let speed = self.machine.model.pes[pe].speed;
        let wants = self.cpus[pe].running().map(|thread| {
            let thread = &self.threads[thread];
            let demand = thread.activity.demand();
            let uses_caches = self.demands[demand].uses_memory();
            let node = self.machine.model.pes[pe].node;
            let remote = if uses_caches { 1.0 - thread.memory.homes().share(node) } else { 0.0 };
            let share = self.apps[thread.app].plan.memory.shared;
            let has_common = uses_caches && share > 0.0;
            let common = if has_common { Common { process: thread.app, share } } else { Common::default() };
            Wants { demand, uses_caches, remote, common, speed }
        });
        let before = std::mem::replace(&mut self.paces.wants[pe], wants);
        let of_units = |wants: Wants| (wants.demand, wants.speed);
        if before.map(of_units) != wants.map(of_units) {
            self.paces.units.push(pe);
        }
        let of_caches = |wants: Wants| wants.uses_caches.then_some((wants.demand, wants.common));
        if before.and_then(of_caches) != wants.and_then(of_caches) {
            self.paces.caches.push(pe);
        }
    }

    /// Updates what the threads beside a PE leave each other of units.
    fn share_units(&mut self, pe: usize) {
        let Self { paces, machine, solver, demands, .. } = self;
        paces.sharers.clear();
        for &mate in &paces.mates[pe] {
            let Some(wants) = paces.wants[mate] else { continue };
            paces.sharers.push(Load::new(mate, demands[wants.demand]));
        }
        let shares = solver.share_units(&machine.model, &paces.sharers);
        for (load, share) in paces.sharers.iter().zip(shares) {
            if std::mem::replace(&mut paces.of_units[load.pe], *share) != *share {
                paces.otherwise.push(load.pe);
            }
        }
    }

    /// Updates what the threads of a PE's cluster have of their caches.
    fn share_caches(&mut self, pe: usize) {
        let Self { paces, machine, solver, demands, .. } = self;
        paces.users.clear();
        for &other in &machine.model.clusters[machine.model.pes[pe].cluster] {
            if let Some(wants) = paces.wants[other].filter(|wants| wants.uses_caches) {
                let Wants { demand, common, .. } = wants;
                paces.users.push(CacheUser { pe: other as u32, demand, common });
            }
        }
        let shares = solver.share_caches(&machine.model, &paces.users, demands.all());
        for (user, share) in paces.users.iter().zip(shares) {
            let pe = user.pe as usize;
            if std::mem::replace(&mut paces.of_caches[pe], *share) != *share {
                paces.otherwise.push(pe);
            }
        }
    }

    /// Puts together what a thread has, and asks the channels for what it needs with that.
    fn ask(&mut self, pe: usize) {
        let Self { paces, cpus, threads, machine, channels, demands, .. } = self;
        let (Some(wants), Some(thread)) = (paces.wants[pe], cpus[pe].running()) else {
            channels.ask(pe, Use::default(), Homes::One(0));
            return;
        };
        let mut share = paces.of_units[pe];
        if wants.uses_caches {
            let (demand, misses) = (&demands[wants.demand], paces.of_caches[pe]);
            share = share.with_misses(&machine.model, (pe, wants.remote), demand, misses);
        }
        channels.ask(pe, share.memory_use(), threads[thread].memory.homes());
        if cpus[pe].share != share {
            self.settle(pe);
            self.cpus[pe].share = share;
            self.paces.changed.add(pe);
        }
    }

    /// Lets the thread of a PE of which something has changed go on.
    fn change(&mut self, pe: usize) {
        self.settle(pe);
        self.cpus[pe].pace = self.cpus[pe].share.pace(self.channels.wait_of(pe));
        self.set_power(pe);
        self.schedule(pe);
    }

    /// Lets the thread of a PE go on whose lines wait for longer, or less long, than before.
    fn change_wait(&mut self, pe: usize) {
        if self.power.is_some() {
            // Power follows from more than a lane knows.
            return self.change(pe);
        }
        let lane = &mut self.lanes[pe];
        lane.advance(self.now);
        lane.pace = lane.channel.pace(self.channels.wait_of(pe));
        self.enter(pe);
    }
}
