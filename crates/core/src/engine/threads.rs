//! The state of each thread, built from what the world reports of it.

use super::config::EngineConfig;
use super::treatments::InForce;
use super::windows::ThreadWindow;
use crate::classify::FpuClass;
use crate::cpuset::CpuSet;
use crate::ids::ThreadId;
use crate::observe::{Program, Standing, ThreadReading, Treatment};
use crate::policy::Subject;
use crate::time::Time;
use crate::view::ThreadView;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// All threads.
#[derive(Debug, Default)]
pub struct Threads {
    /// Every living thread, in the order of the last observation.
    pub subjects: Vec<Subject>,
    /// For each subject, what it shows of itself.
    shown: Vec<Shown>,
    known: FxHashMap<ThreadId, Thread>,
    /// The last class of the threads that ended in the last step.
    ended: FxHashMap<ThreadId, FpuClass>,
}

#[derive(Debug, Default)]
struct Thread {
    /// Boxed so that lookups of `index` do not have to skip over all windows.
    window: Box<ThreadWindow>,
    /// Its index among the subjects, until its end is reported.
    index: Option<usize>,
}

/// What a thread shows of itself, whatever its process's treatment.
#[derive(Debug)]
struct Shown {
    pid: u32,
    standing: Standing,
    permitted: Arc<CpuSet>,
    /// Whether it wanted a PE for half of the last window.
    wanted_recently: bool,
}

impl Threads {
    /// An observation of so many threads begins.
    pub fn begin(&mut self, count: usize) {
        self.ended.clear();
        self.subjects.clear();
        self.shown.clear();
        self.subjects.reserve(count);
        self.known.reserve(count.saturating_sub(self.known.len()));
    }

    /// Takes in which programs processes run now: what they ran before says nothing of these.
    pub fn take_programs(&mut self, programs: &[Program]) {
        for leader in programs.iter().map(|program| program.leader) {
            self.known.get_mut(&leader).into_iter().for_each(|thread| thread.window.begin_anew());
        }
    }

    /// Takes in the reading of a living thread, which was read `before`, too. Whether the thread may be
    /// bound is decided elsewhere.
    pub fn take(
        &mut self,
        reading: &ThreadReading,
        (before, now): (Time, Time),
        treatments: &mut InForce,
        config: &EngineConfig,
    ) -> &mut Subject {
        let index = self.subjects.len();
        let thread = self.known.entry(reading.thread).or_default();
        thread.index = Some(index);
        let window = &mut thread.window;
        if let Some(counters) = &reading.counters {
            window.take_counters(counters, config.fpu_threshold, now, config.window);
        }
        let demand = window.take_demand(reading, before, now, config.window);
        self.subjects.push(Subject {
            view: ThreadView {
                thread: reading.thread,
                app: reading.app,
                runnable_share: demand.share,
                last_pe: reading.last_pe,
                standing: reading.standing,
                permitted: reading.permitted.clone(),
                usage: window.usage(),
            },
            name: reading.name.clone(),
            runnable: demand.runnable,
            hints: reading.hints,
            treatment: None,
            pid: reading.pid,
            sizing: reading.sizing,
            fpu_class: window.class(),
            placeable: false,
            resident: false,
            assignment: None,
        });
        self.shown.push(Shown {
            pid: reading.pid,
            standing: reading.standing,
            permitted: Arc::clone(&reading.permitted),
            wanted_recently: demand.runnable,
        });
        self.settle(index, treatments);
        &mut self.subjects[index]
    }

    /// Works out who decides about a thread, and which PEs it may use, by what it shows and its treatment.
    fn settle(&mut self, index: usize, treatments: &mut InForce) {
        let (subject, shown) = (&mut self.subjects[index], &self.shown[index]);
        subject.treatment = treatments.of(shown.pid).cloned();
        let treatment = subject.treatment.as_deref();
        let is_left_alone = treatment.is_some_and(|treatment| treatment.left_alone.is_some());
        subject.view.standing = match shown.standing {
            Standing::Free | Standing::Bound if is_left_alone => Standing::LeftAlone,
            standing => standing,
        };
        subject.view.permitted = match treatment.and_then(|treatment| treatment.pes.as_ref()) {
            Some(pes) => treatments.narrow(&shown.permitted, pes),
            None => Arc::clone(&shown.permitted),
        };
    }

    /// A process is treated in another way from now on. Returns its threads.
    pub fn treat(
        &mut self,
        pid: u32,
        treatment: Option<&Arc<Treatment>>,
        treatments: &mut InForce,
    ) -> Vec<ThreadId> {
        treatments.set(pid, treatment);
        let indices = self.shown.iter().enumerate().filter(|(_, shown)| shown.pid == pid);
        let indices: Vec<usize> = indices.map(|(index, _)| index).collect();
        indices.iter().for_each(|&index| self.settle(index, treatments));
        indices.into_iter().map(|index| self.subjects[index].view.thread).collect()
    }

    /// Another mask than before is shown by a thread.
    pub fn show(&mut self, thread: ThreadId, standing: Standing, treatments: &mut InForce) {
        if let Some(index) = self.index(thread) {
            self.shown[index].standing = standing;
            self.settle(index, treatments);
        }
    }

    /// Classifies an ended thread by its last reading, for reports, and forgets the thread.
    pub fn take_end(&mut self, reading: &ThreadReading, now: Time, config: &EngineConfig) {
        let mut window = self.known.remove(&reading.thread).unwrap_or_default().window;
        if let Some(counters) = &reading.counters {
            window.take_counters(counters, config.fpu_threshold, now, config.window);
        }
        self.ended.insert(reading.thread, window.class());
    }

    /// Removes a thread that has ended; its last reading is still to come.
    pub fn remove(&mut self, thread: ThreadId) {
        let Some(index) = self.known.get_mut(&thread).and_then(|thread| thread.index.take()) else {
            return;
        };
        self.subjects.swap_remove(index);
        self.shown.swap_remove(index);
        if let Some(moved) = self.subjects.get(index).and_then(|s| self.known.get_mut(&s.view.thread)) {
            moved.index = Some(index);
        }
    }

    /// Returns every thread for modification, with whether it wanted a PE for half of the last window.
    pub fn with_demand(&mut self) -> impl Iterator<Item = (&mut Subject, bool)> {
        self.subjects.iter_mut().zip(self.shown.iter().map(|shown| shown.wanted_recently))
    }

    /// Returns the threads that wanted a PE during the last window but rest at this instant.
    pub fn resting(&self) -> impl Iterator<Item = &Subject> {
        let subjects = self.subjects.iter().zip(&self.shown);
        subjects.filter(|(s, shown)| shown.wanted_recently && !s.runnable).map(|(subject, _)| subject)
    }

    /// Returns a living thread.
    pub fn subject(&self, thread: ThreadId) -> Option<&Subject> {
        self.index(thread).map(|index| &self.subjects[index])
    }

    /// Returns a living thread for modification.
    pub fn subject_mut(&mut self, thread: ThreadId) -> Option<&mut Subject> {
        self.index(thread).map(|index| &mut self.subjects[index])
    }

    fn index(&self, thread: ThreadId) -> Option<usize> {
        self.known.get(&thread).and_then(|thread| thread.index)
    }

    /// Returns the last FPU class of a thread. For a thread that ended in the last step, this is the class
    /// from its last reading.
    pub fn fpu_class(&self, thread: ThreadId) -> FpuClass {
        let living = self.known.get(&thread).map(|thread| thread.window.class());
        living.or_else(|| self.ended.get(&thread).copied()).unwrap_or_default()
    }
}
