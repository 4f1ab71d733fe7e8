//! What is watched and changed: the threads that come and go, the processes and applications that they
//! form, and how these are treated. Treatments and onlookers decide which processes are followed and read.

use crate::applications::Applications;
use crate::changing::Changing;
use crate::error::LiveError;
use crate::events::Events;
use crate::onlooker::Trees;
use crate::reading::Reading;
use crate::treatments::Treated;
use corewise_core::ids::ThreadId;
use corewise_core::observe::{EventKind, ThreadReading, Treatments};
use corewise_core::plan::{Action, Change};
use corewise_counters::CounterSource;
use corewise_counters::progress::WorkMeter;
use corewise_discovery::continued::Continued;
use corewise_discovery::{Discovery, FollowError, NewThread, News};
use corewise_sys::proc::Proc;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// What is watched and changed.
pub struct Followed {
    /// How it is read.
    pub reading: Reading,
    /// How it is changed.
    pub changing: Changing,
    /// What belongs together.
    pub applications: Applications,
    /// What happens between two observations.
    pub events: Events,
    /// How processes are treated.
    pub treated: Treated,
}

impl Followed {
    /// Nothing has happened yet.
    pub fn new(reading: Reading, changing: Changing, applications: Applications) -> Followed {
        let (events, treated) = (Events::default(), Treated::default());
        Followed { reading, changing, applications, events, treated }
    }

    /// Registers a thread that has appeared.
    pub fn meet(&mut self, thread: &NewThread) {
        self.reading.meet(thread);
        // Waits are those of several threads, and most processes have one and end soon.
        let leads = thread.tid == thread.pid;
        let is_read = leads || self.treated.is_read(thread.pid);
        self.changing.meet(thread, is_read);
    }

    /// Takes in what is new, unless events are left alone for now.
    pub fn refresh(&mut self) -> Result<(), LiveError> {
        if self.events.rests_for().is_zero() {
            self.events.begin();
            let starts = self.reading.discovery.starts();
            self.changing.actuators.give_back_to(&starts);
            self.changing.take_asks(&mut *self.reading.discovery);
            let news = self.reading.discovery.refresh()?;
            self.take_news(news);
        }
        Ok(())
    }

    fn take_news(&mut self, mut news: News) {
        self.judge_anew(&news);
        self.changing.actuators.note_starters(&news.starters);
        let comes_or_goes = !news.appeared.is_empty() || !news.ended.is_empty();
        // What came and went since the last time needs nothing more.
        let ended: HashSet<ThreadId> = news.ended.iter().copied().collect();
        news.appeared.retain(|NewThread { tid, generation, .. }| {
            !ended.contains(&ThreadId { tid: *tid, generation: *generation })
        });
        news.appeared.iter().for_each(|thread| self.meet(thread));
        news.ended.iter().for_each(|thread| self.reading.reports.of_programs.forget(thread.tid));
        self.changing.forget(&news.ended);
        self.changing.actuators.act_in_time();
        let hints = self.reading.reports.look();
        let Followed { reading, changing, events, treated, .. } = self;
        events.note((news, hints), reading, changing, treated);
        self.reading.drain_in_time(comes_or_goes);
    }

    /// Forgets what was found out about processes that have begun, have executed another program, or have
    /// ended: whatever a program did, the next one is judged by its own facts.
    fn judge_anew(&mut self, news: &News) {
        // A process has the ID of its first thread.
        let begun = news.appeared.iter().filter(|thread| thread.tid == thread.pid).map(|thread| thread.tid);
        // Most programs that are executed have ended by now, and `/proc` has nothing of them.
        let ended: HashSet<ThreadId> = news.ended.iter().copied().collect();
        let executed = news.executed.iter().filter(|thread| !ended.contains(thread)).map(|thread| thread.tid);
        for pid in begun.chain(executed.clone()) {
            self.changing.actuators.note_program(pid);
        }
        executed.clone().for_each(|pid| self.applications.programs.forget(pid));
        // Rules may ask for the name of what has no other.
        let others = news.renamed.iter().map(|(thread, _)| thread).chain(&news.ended).chain(&news.executed);
        let begun = news.appeared.iter().map(|thread| thread.tid);
        self.treated.forget(begun.chain(others.map(|thread| thread.tid)));
        // Others are treated when their beginning is reported.
        executed.for_each(|pid| self.treat_anew(pid));
    }

    /// Goes on with the heavier sources in place of the light ones.
    pub fn continue_with(
        &mut self,
        discovery: Box<dyn Discovery>,
        appeared: Vec<NewThread>,
        counters: Box<dyn CounterSource>,
        work: Option<WorkMeter>,
    ) -> Result<(), LiveError> {
        let first = &mut *self.reading.discovery;
        let (mut discovery, threads) = Continued::after(first, discovery, appeared, &Proc::own())?;
        if self.events.has(EventKind::TlpChanged) {
            discovery.report_tlp();
        }
        if let Some(followed) = discovery.followed() {
            self.changing.actuators.follow(followed);
        }
        (self.reading.discovery, self.reading.counters) = (Box::new(discovery), counters);
        for taken in threads {
            match taken.is_new {
                true => self.meet(&taken.thread),
                false => self.reading.counters.watch(&taken.thread),
            }
        }
        self.reading.work = work;
        Ok(())
    }

    /// Reads everything: all threads, and how their processes are treated.
    pub fn all(&mut self) -> Result<(Vec<ThreadReading>, Arc<Treatments>), LiveError> {
        self.changing.actuators.begin_look(&self.reading.baseline);
        let facts = self.reading.discovery.threads()?;
        let processes: HashSet<u32> = facts.iter().filter(|f| !f.ended).map(|f| f.pid).collect();
        self.changing.actuators.retain_processes(&processes);
        self.reading.reports.of_programs.retain(&processes);
        self.reading.reports.look();
        self.applications.take_members(&facts);
        let threads = self.reading.all(facts, &mut self.changing, &self.applications);
        let treatments = self.treatments(&processes);
        self.events.drop_observed(&threads);
        self.applications.look_at_programs(&threads, &processes);
        Ok((threads, treatments))
    }

    /// Carries out actions.
    pub fn apply(&mut self, actions: &[Action]) {
        // A process may end before the next observation, and the report is to name its program.
        for action in actions.iter().filter(|action| changes_process(&action.change)) {
            if let Some(facts) = self.reading.discovery.facts(action.thread.tid) {
                self.applications.programs.look(facts.id(), &facts.name);
            }
        }
        self.changing.apply(actions);
    }

    /// Returns how these processes, which are all, are treated; reads from now on those whose waits may be
    /// changed.
    fn treatments(&mut self, processes: &HashSet<u32>) -> Arc<Treatments> {
        let treatments = self.treated.all(processes);
        self.treated.unread.retain(|pid| processes.contains(pid));
        let may_wait = |pid: &u32| treatments.get(pid).is_none_or(|treatment| treatment.waits.any());
        let again: Vec<u32> = self.treated.unread.iter().copied().filter(may_wait).collect();
        again.into_iter().for_each(|pid| self.read_again(pid));
        treatments.keys().filter(|pid| !may_wait(pid)).for_each(|pid| self.leave(*pid));
        treatments
    }

    /// Looks anew at how a process is treated.
    fn treat_anew(&mut self, pid: u32) {
        self.events.note_treatment(pid, &mut self.treated);
        let was_unread = self.treated.unread.remove(&pid);
        match self.treated.is_read(pid) {
            true if was_unread => self.read_again(pid),
            true => {}
            false => self.leave(pid),
        }
    }

    /// Reads the threads of a process no more.
    fn leave(&mut self, pid: u32) {
        let processes = self.changing.processes.as_mut();
        if processes.and_then(|processes| processes.leave(pid)).is_some() {
            self.treated.unread.insert(pid);
        }
    }

    /// Reads all threads of a process from now on. Of one that began without that only the first is known.
    fn read_again(&mut self, pid: u32) {
        self.treated.unread.remove(&pid);
        let Some(processes) = &mut self.changing.processes else { return };
        processes.leave(pid);
        // What has ended has no threads.
        for tid in Proc::own().threads(pid).ok().flatten().unwrap_or_default() {
            let facts = self.reading.discovery.facts(tid).filter(|facts| facts.pid == pid);
            let Some(facts) = facts else { continue };
            processes.meet(&NewThread {
                tid,
                pid,
                creator_tid: None,
                generation: facts.generation,
                created: Instant::now(),
            });
        }
    }
}

impl Trees for Followed {
    fn follows(&self, pid: u32) -> bool {
        self.reading.discovery.facts(Proc::own().shown_by(pid)).is_some()
    }

    fn attach(&mut self, pid: u32) -> Result<(), FollowError> {
        self.reading.discovery.attach(pid)
    }

    fn reconsider(&mut self, pids: &[u32]) {
        pids.iter().for_each(|pid| self.treat_anew(*pid));
    }
}

fn changes_process(change: &Change) -> bool {
    matches!(change, Change::Set(setting) if setting.kind().is_of_process())
}
