//! How processes are treated, where not as everything else.
//!
//! Somebody outside makes the treatments ([`MakeTreatments`]); the world reports them with each observation,
//! and as an event when one has changed in between. It draws no conclusions, but for its own cost: the
//! threads of a process whose waits may not be changed are not read.

use corewise_core::cpuset::CpuSet;
use corewise_core::observe::{Event, Treatment, Treatments};
use corewise_sys::proc::Proc;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Says how processes are treated.
pub trait MakeTreatments {
    /// Returns the PEs that are reserved for others now.
    fn reserved(&mut self) -> CpuSet;

    /// Returns how a process is treated; `None`: as everything else. What has not changed is shared, not made
    /// anew.
    fn treatment(&mut self, pid: u32) -> Option<Arc<Treatment>>;

    /// The process has begun, executed another program, or ended: what was found out about it holds no more.
    fn forget(&mut self, pid: u32);
}

/// Who makes the treatments, and what was reported of them.
#[derive(Default)]
pub(crate) struct Treated {
    by: Option<Box<dyn MakeTreatments>>,
    reported: Arc<Treatments>,
    /// The processes whose threads are not read, as their waits may not be changed.
    pub unread: BTreeSet<u32>,
    /// The users whose rights processes had when they were looked at last.
    owners: HashMap<u32, u32>,
}

impl Treated {
    pub fn by(by: Box<dyn MakeTreatments>) -> Treated {
        Treated { by: Some(by), ..Treated::default() }
    }

    pub fn reserved(&mut self) -> CpuSet {
        self.by.as_mut().map_or_else(CpuSet::new, |by| by.reserved())
    }

    /// What was found out about these processes holds no more.
    pub fn forget(&mut self, pids: impl Iterator<Item = u32>) {
        if let Some(by) = &mut self.by {
            pids.for_each(|pid| by.forget(pid));
        }
    }

    fn of(&mut self, pid: u32) -> Option<Arc<Treatment>> {
        self.by.as_mut()?.treatment(pid)
    }

    /// Returns whether the threads of a process are to be read: whether its waits may be changed.
    pub fn is_read(&mut self, pid: u32) -> bool {
        let is_read = self.of(pid).is_none_or(|treatment| treatment.waits.any());
        if !is_read {
            self.unread.insert(pid);
        }
        is_read
    }

    /// Returns the event that a process is treated in another way than was reported.
    pub fn news(&mut self, pid: u32) -> Option<Event> {
        let treatment = self.of(pid);
        if treatment.as_ref() == self.reported.get(&pid) {
            return None;
        }
        let reported = Arc::make_mut(&mut self.reported);
        match &treatment {
            Some(treatment) => drop(reported.insert(pid, Arc::clone(treatment))),
            None => drop(reported.remove(&pid)),
        }
        Some(Event::Treated { pid, treatment })
    }

    /// A process that has got or dropped rights, with or without executing a program, is another user's. (One
    /// that is new may have done so since it was judged first.)
    fn look_for_other_rights(&mut self, processes: &HashSet<u32>) {
        let owner = |pid: &u32| Some((*pid, Proc::own().owner(*pid).ok()?));
        let owners: HashMap<u32, u32> = processes.iter().filter_map(owner).collect();
        let is_other = |(pid, owner): &(&u32, &u32)| self.owners.get(pid) != Some(*owner);
        let others: Vec<u32> = owners.iter().filter(is_other).map(|(pid, _)| *pid).collect();
        self.owners = owners;
        self.forget(others.into_iter());
    }

    /// Returns the treatments of all of these processes.
    pub fn all(&mut self, processes: &HashSet<u32>) -> Arc<Treatments> {
        if self.by.is_some() {
            self.look_for_other_rights(processes);
            let treatments = processes.iter().filter_map(|&pid| Some((pid, self.of(pid)?)));
            let treatments: Treatments = treatments.collect();
            if treatments != *self.reported {
                self.reported = Arc::new(treatments);
            }
        }
        Arc::clone(&self.reported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::waits::WaitChanges;
    use std::sync::Mutex;

    /// Treatments that the test changes, and the processes that were forgotten.
    #[derive(Default, Clone)]
    struct Made(Arc<Mutex<(Treatments, Vec<u32>)>>);

    impl MakeTreatments for Made {
        fn reserved(&mut self) -> CpuSet {
            CpuSet::single(corewise_core::ids::PeId(3))
        }

        fn treatment(&mut self, pid: u32) -> Option<Arc<Treatment>> {
            self.0.lock().unwrap().0.get(&pid).cloned()
        }

        fn forget(&mut self, pid: u32) {
            self.0.lock().unwrap().1.push(pid);
        }
    }

    impl Made {
        fn treat(&self, pid: u32, treatment: Treatment) {
            self.0.lock().unwrap().0.insert(pid, Arc::new(treatment));
        }
    }

    fn left_alone() -> Treatment {
        Treatment { left_alone: Some("a rule".into()), ..Treatment::default() }
    }

    #[test]
    fn a_treatment_is_news_once_and_again_when_it_has_changed() {
        let made = Made::default();
        let mut treated = Treated::by(Box::new(made.clone()));
        assert_eq!(treated.news(7), None, "as everything else");
        made.treat(7, left_alone());
        let treatment = Some(Arc::new(left_alone()));
        assert_eq!(treated.news(7), Some(Event::Treated { pid: 7, treatment }));
        assert_eq!(treated.news(7), None);
        made.0.lock().unwrap().0.clear();
        assert_eq!(treated.news(7), Some(Event::Treated { pid: 7, treatment: None }));
        assert_eq!(treated.news(7), None);
    }

    #[test]
    fn what_an_observation_reports_is_no_news_afterwards() {
        let made = Made::default();
        made.treat(7, left_alone());
        let mut treated = Treated::by(Box::new(made));
        let all = treated.all(&HashSet::from([7, 8]));
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [7]);
        assert_eq!(treated.news(7), None);
        assert!(Arc::ptr_eq(&all, &treated.all(&HashSet::from([7, 8]))), "what is the same is shared");
        assert!(treated.all(&HashSet::from([8])).is_empty(), "it has ended");
    }

    #[test]
    fn threads_are_read_where_waits_may_be_changed() {
        let made = Made::default();
        made.treat(7, Treatment { waits: WaitChanges::NONE, ..Treatment::default() });
        let mut treated = Treated::by(Box::new(made));
        assert!(treated.is_read(8) && !treated.is_read(7));
        assert_eq!(treated.unread, BTreeSet::from([7]));
    }

    #[test]
    fn a_process_that_is_met_with_other_rights_is_judged_anew() {
        let made = Made::default();
        let mut treated = Treated::by(Box::new(made.clone()));
        let own = std::process::id();
        treated.all(&HashSet::from([own]));
        treated.all(&HashSet::from([own]));
        assert_eq!(made.0.lock().unwrap().1, [own], "once, as its owner was not known");
        treated.owners.insert(own, u32::MAX);
        treated.all(&HashSet::from([own]));
        assert_eq!(made.0.lock().unwrap().1, [own, own]);
    }

    #[test]
    fn without_a_maker_everything_is_treated_alike() {
        let mut treated = Treated::default();
        assert!(treated.all(&HashSet::from([7])).is_empty() && treated.reserved().is_empty());
        assert!(treated.is_read(7) && treated.news(7).is_none());
    }
}
