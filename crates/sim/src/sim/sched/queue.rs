//! A PE's run queue: the threads that want it, in virtual time, and the trait of its two disciplines.
//!
//! Problem: which thread is next, when it is preempted, and when a woken one may interrupt it differ
//! between kernels; that threads are kept, counted and charged does not. Approach: one [`RunQueue`] holds
//! the threads; a [`Discipline`] decides. Virtual time is CPU time scaled by weight, so that equal virtual
//! times are fair shares. It is comparable only within a queue: a thread that changes queues takes along what
//! it is owed. Sources: `struct cfs_rq` and `struct sched_entity` in the kernel's `include/linux/sched.h` and
//! `kernel/sched/sched.h`. Limits: one level; [groups](super::groups) are part of the weights.

/// The weight of a thread of nice level 0: 64 times Linux's, for parts of a group's weight.
pub(crate) const NICE_0_WEIGHT: i64 = 64 * 1024;

/// The weight of a thread of the class `SCHED_IDLE` (`WEIGHT_IDLEPRIO`).
pub(crate) const IDLE_WEIGHT: i64 = 3 * NICE_0_WEIGHT / 1024;

/// A thread as its run queue sees it. All times are in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entity {
    /// Its index.
    pub thread: usize,
    /// Its own weight, by its nice level or class.
    pub own: i64,
    /// Its weight in its queue: twice the weight gets twice the time.
    pub weight: i64,
    /// Its virtual time.
    pub vtime: i64,
    /// The virtual time at which its present request ends; relative to `vtime` outside of a queue.
    pub deadline: i64,
    /// What it was owed when it left its last queue.
    pub lag: i64,
    /// CPU time since it was last picked.
    pub ran_ns: i64,
    /// The virtual time up to which no thread of equal standing interrupts it while it is owed time.
    pub protected: i64,
    /// Whether it is of the class `SCHED_BATCH`.
    pub is_batch: bool,
}

impl Entity {
    /// Creates a thread of its own weight that has not run.
    pub fn new(thread: usize, own: i64) -> Self {
        Self {
            thread,
            own,
            weight: own,
            vtime: 0,
            deadline: 0,
            lag: 0,
            ran_ns: 0,
            protected: 0,
            is_batch: false,
        }
    }

    fn is_idle_class(&self) -> bool {
        self.own == IDLE_WEIGHT
    }

    /// Returns the virtual time of this much CPU time.
    pub fn virtual_ns(&self, ns: i64) -> i64 {
        if self.weight == NICE_0_WEIGHT { ns } else { scale(ns, NICE_0_WEIGHT, self.weight) }
    }

    /// Returns the CPU time, rounded up, of this much virtual time.
    pub fn cpu_ns(&self, virtual_ns: i64) -> i64 {
        if self.weight == NICE_0_WEIGHT {
            return virtual_ns;
        }
        scale(virtual_ns, self.weight, NICE_0_WEIGHT) + 1
    }
}

/// Returns `a · b / c` of any size, rounded towards zero.
pub(crate) fn scale(a: i64, b: i64, c: i64) -> i64 {
    (i128::from(a) * i128::from(b) / i128::from(c)) as i64
}

/// How a thread comes to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It was created.
    New,
    /// It has slept.
    Woken,
    /// It comes from another queue, where it ran or waited.
    Moved,
    /// It comes back together with others, when their quota is filled again; the mean that they all refer to.
    Refilled(i64),
}

/// The rules by which a queue is served.
pub(crate) trait Discipline {
    /// Writes down what a thread is owed before it leaves.
    fn leave(&self, queue: &RunQueue, entity: &mut Entity);
    /// Returns the virtual time that a thread is owed which has left this queue, and arrives at one so much
    /// after the last tick.
    fn owed(&self, last: &RunQueue, entity: &Entity, arrival: Arrival, since_tick_ns: i64) -> i64;
    /// Sets the virtual time of a thread that arrives, and is owed this much.
    fn place(&self, queue: &RunQueue, entity: &mut Entity, owed: i64, arrival: Arrival);
    /// Returns the place of the waiting thread that is next; there is one.
    fn next(&self, queue: &RunQueue) -> usize;
    /// Changes the weight of a thread outside of a queue.
    fn set_weight(&self, entity: &mut Entity, weight: i64);
    /// Notes that a thread was picked.
    fn picked(&self, entity: &mut Entity);
    /// Notes that the kernel looks at how long the running thread has run.
    fn renew(&self, entity: &mut Entity);
    /// Returns the CPU time that the running thread has before a tick takes its PE, if others wait.
    fn left_ns(&self, queue: &RunQueue, running: &Entity) -> i64;
    /// Returns whether a thread that has just arrived takes the PE of the running one at once.
    fn interrupts(&self, queue: &RunQueue, running: &Entity, arrived: &Entity) -> bool;
    /// Returns the place of the waiting thread that is next when this waiting one has just yielded.
    fn next_after(&self, queue: &RunQueue, place: usize) -> usize;
    /// Notes that a thread yields.
    fn yields(&self, entity: &mut Entity);
    /// Returns the longest time for which a thread has the PE while others wait.
    fn slice_max_ns(&self) -> i64;
}

/// A PE's threads.
#[derive(Debug, Default)]
pub(crate) struct RunQueue {
    running: Option<Entity>,
    /// Those that wait, by virtual time; of equals the first to come.
    waiting: Vec<Entity>,
    /// The least virtual time so far of all threads here; it never falls.
    floor: i64,
    /// CPU time of the running thread since one last came, left or was picked.
    unseen_ns: i64,
    /// The mean virtual time when a thread was last picked.
    picked_mean: i64,
}

impl RunQueue {
    /// Returns the running thread.
    pub fn running(&self) -> Option<usize> {
        self.running.as_ref().map(|entity| entity.thread)
    }

    /// Returns the running thread as its queue sees it.
    pub fn running_entity(&self) -> Option<&Entity> {
        self.running.as_ref()
    }

    /// Returns the waiting threads.
    pub fn waiting(&self) -> &[Entity] {
        &self.waiting
    }

    /// Returns the least virtual time.
    pub fn floor(&self) -> i64 {
        self.floor
    }

    /// Returns the number of threads.
    pub fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.running.is_some())
    }

    /// Returns all threads, the running one last.
    pub fn members(&self) -> impl Iterator<Item = &Entity> {
        self.waiting.iter().chain(&self.running)
    }

    /// Returns the mean virtual time by weight, and the sum of weights; the floor of a queue without threads.
    pub fn mean(&self) -> (i64, i64) {
        let sum = |(sum, weight): (i128, i64), entity: &Entity| {
            let above = i128::from(entity.vtime - self.floor);
            (sum + i128::from(entity.weight) * above, weight + entity.weight)
        };
        let (sum, weight) = self.members().fold((0, 0), sum);
        let above = match i64::try_from(sum) {
            _ if weight == 0 => 0,
            // The division of 64-bit numbers is much faster.
            Ok(sum) => sum.div_euclid(weight),
            Err(_) => sum.div_euclid(i128::from(weight)) as i64,
        };
        (self.floor + above, weight)
    }

    /// Returns the mean virtual time when a thread was last picked.
    pub fn picked_mean(&self) -> i64 {
        self.picked_mean
    }

    /// Returns the CPU time of the running thread since the last look at the clock: when a thread came, left
    /// or was picked, or at the last tick, so much ago.
    pub fn unseen_ns(&self, since_tick_ns: i64) -> i64 {
        self.unseen_ns.min(since_tick_ns)
    }

    /// Charges the running thread for CPU time.
    pub fn charge(&mut self, ns: i64) {
        self.unseen_ns += ns;
        if let Some(running) = &mut self.running {
            running.ran_ns += ns;
            running.vtime += running.virtual_ns(ns);
            self.raise_floor();
        }
    }

    /// Adds a thread that waits, and returns whether it takes the PE of the running one at once.
    pub fn enter(&mut self, rules: &dyn Discipline, mut entity: Entity, owed: i64, arrival: Arrival) -> bool {
        self.unseen_ns = 0;
        if let Some(running) = &mut self.running {
            rules.renew(running);
        }
        rules.place(self, &mut entity, owed, arrival);
        self.insert(entity);
        self.running.as_ref().is_some_and(|running| match (running.is_idle_class(), entity.is_idle_class()) {
            (true, false) => true,
            (false, true) => false,
            _ if entity.is_batch => false,
            _ => rules.interrupts(self, running, &entity),
        })
    }

    /// Returns what a thread is owed.
    pub fn lag(&self, rules: &dyn Discipline, thread: usize) -> Option<i64> {
        let mut entity = *self.members().find(|entity| entity.thread == thread)?;
        rules.leave(self, &mut entity);
        Some(entity.lag)
    }

    /// Removes a thread.
    pub fn leave(&mut self, rules: &dyn Discipline, thread: usize) -> Option<Entity> {
        let mut entity = *self.members().find(|entity| entity.thread == thread)?;
        rules.leave(self, &mut entity);
        entity.deadline -= entity.vtime;
        match self.waiting.iter().position(|waiting| waiting.thread == thread) {
            Some(place) => drop(self.waiting.remove(place)),
            None => self.running = None,
        }
        self.unseen_ns = 0;
        self.raise_floor();
        Some(entity)
    }

    /// Lets the next thread run, and returns it; the PE must be free.
    pub fn pick(&mut self, rules: &dyn Discipline) -> Option<usize> {
        if self.waiting.is_empty() {
            return None;
        }
        let place = rules.next(self);
        self.run(rules, place)
    }

    /// Lets one of the waiting threads run, and returns it; the PE must be free.
    pub fn pick_thread(&mut self, rules: &dyn Discipline, thread: usize) -> Option<usize> {
        let place = self.waiting.iter().position(|entity| entity.thread == thread)?;
        self.run(rules, place)
    }

    /// Returns the waiting threads that are not ahead of the mean: the next one, then the others in order.
    pub fn entitled(&self, rules: &dyn Discipline) -> Vec<usize> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let (next, (mean, _)) = (rules.next(self), self.mean());
        let others = self.waiting.iter().enumerate().filter(|(place, _)| *place != next);
        let owed = others.take_while(|(_, entity)| entity.vtime <= mean).map(|(_, entity)| entity.thread);
        std::iter::once(self.waiting[next].thread).chain(owed).collect()
    }

    fn run(&mut self, rules: &dyn Discipline, place: usize) -> Option<usize> {
        self.note_pick();
        let mut entity = self.waiting.remove(place);
        entity.ran_ns = 0;
        rules.picked(&mut entity);
        self.running = Some(entity);
        Some(entity.thread)
    }

    fn note_pick(&mut self) {
        (self.unseen_ns, self.picked_mean) = (0, self.mean().0);
    }

    /// Puts the running thread back among those that wait.
    pub fn put_back(&mut self) -> Option<usize> {
        let entity = self.running.take()?;
        self.insert(entity);
        Some(entity.thread)
    }

    /// Returns the CPU time that the running thread has before a tick takes its PE; `None` if no thread
    /// waits.
    pub fn left_ns(&self, rules: &dyn Discipline) -> Option<u64> {
        let running = self.running.as_ref().filter(|_| !self.waiting.is_empty())?;
        Some(rules.left_ns(self, running).max(0) as u64)
    }

    /// Handles a tick at which the running thread's time is up: returns it if another one is next. It then
    /// waits, and the PE is free.
    pub fn tick(&mut self, rules: &dyn Discipline) -> Option<usize> {
        if let Some(running) = &mut self.running {
            rules.renew(running);
        }
        let thread = self.put_back()?;
        self.note_pick();
        let next = rules.next(self);
        if self.waiting[next].thread != thread {
            return Some(thread);
        }
        let entity = self.waiting.remove(next);
        self.running = Some(Entity { ran_ns: 0, ..entity });
        None
    }

    /// Lets the running thread yield: returns it if another one is next. It then waits, and the PE is free.
    /// In a group, only another thread of the group comes next, in the place of the one that yields: the
    /// group keeps its place (`yield_task_fair` changes nothing above the thread's own queue). Threads of
    /// another weight have other requests, and are owed another time: they cannot take that place.
    pub fn yield_to_next(
        &mut self,
        rules: &dyn Discipline,
        group: impl Fn(usize) -> Option<usize>,
    ) -> Option<usize> {
        if self.waiting.is_empty() {
            return None;
        }
        if let Some(of) = group(self.running.as_ref()?.thread) {
            let weight = self.running.as_ref()?.weight;
            let is_like = |other: &Entity| other.weight == weight && group(other.thread) == Some(of);
            let place = self.waiting.iter().position(is_like)?;
            let (next, running) = (self.waiting.remove(place), self.running?);
            let Entity { vtime, deadline, protected, ran_ns, .. } = running;
            self.running = Some(Entity {
                vtime: next.vtime,
                deadline: next.deadline,
                protected: next.protected,
                ..running
            });
            let thread = self.put_back();
            self.insert(Entity { vtime, deadline, protected, ran_ns, ..next });
            return thread;
        }
        if let Some(running) = &mut self.running {
            rules.yields(running);
        }
        let thread = self.put_back()?;
        let place = self.waiting.iter().position(|entity| entity.thread == thread)?;
        if rules.next_after(self, place) != place {
            return Some(thread);
        }
        self.running = Some(self.waiting.remove(place));
        None
    }

    /// Changes the weights of all threads. Returns by how much the sum grows; `None` if none has changed.
    pub fn reweigh(&mut self, rules: &dyn Discipline, weight: impl Fn(usize) -> i64) -> Option<i64> {
        if self.members().all(|entity| weight(entity.thread) == entity.weight) {
            return None;
        }
        let (mean, before) = self.mean();
        for entity in self.waiting.iter_mut().chain(&mut self.running) {
            let Entity { vtime, .. } = *entity;
            (entity.lag, entity.deadline, entity.protected) =
                (mean - vtime, entity.deadline - vtime, entity.protected - vtime);
            rules.set_weight(entity, weight(entity.thread));
            entity.vtime = mean - entity.lag;
            entity.deadline += entity.vtime;
            entity.protected += entity.vtime;
        }
        self.waiting.sort_by_key(|entity| entity.vtime);
        Some(self.members().map(|entity| entity.weight).sum::<i64>() - before)
    }

    fn insert(&mut self, entity: Entity) {
        let place = self.waiting.partition_point(|other| other.vtime <= entity.vtime);
        self.waiting.insert(place, entity);
    }

    fn raise_floor(&mut self) {
        let least = match (&self.running, self.waiting.first()) {
            (Some(running), Some(first)) => running.vtime.min(first.vtime),
            (Some(entity), None) | (None, Some(entity)) => entity.vtime,
            (None, None) => return,
        };
        self.floor = self.floor.max(least);
    }
}
