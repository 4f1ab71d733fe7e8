//! Which programs have asked for what bound threads cannot have.
//!
//! A program is known by its name, as [`corewise_core::program`] finds it (its script or executable): the
//! next process that runs it will ask, too. Limits: this is forgotten at the end of the run, and of a program
//! that has ended before anybody looked only the name of its thread is known.

use corewise_discovery::asks::{Ask, Asked};
use corewise_sys::proc::Proc;
use std::collections::HashMap;

/// What a program was seen to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Habit {
    /// It asks how many PEs it may use while it works with several threads, or at any other time.
    Asks,
    /// It asks for `SCHED_DEADLINE`.
    NeedsAllPes,
}

impl Habit {
    /// Returns what a program has missed, and what helps.
    fn words(self, program: &str) -> String {
        let (missed, helps) = match self {
            Habit::Asks => (
                "asked how many PEs it may use while corewise had bound a thread of it, and may have too few \
                 threads for it: it is not bound any more",
                "give the number yourself (OMP_NUM_THREADS, -XX:ActiveProcessorCount, \
                 DOTNET_PROCESSOR_COUNT, UV_THREADPOOL_SIZE, GOMAXPROCS, RAYON_NUM_THREADS), or leave it \
                 alone by a rule (`leave-alone = true`)",
            ),
            Habit::NeedsAllPes => (
                "asked for SCHED_DEADLINE, and Linux refused it because corewise had bound a thread of it: \
                 it is left alone from now on",
                "start it again, or leave it alone by a rule (`leave-alone = true`)",
            ),
        };
        format!("`{program}` {missed}. To help it, {helps}")
    }
}

/// What the user should know where nobody sees what bound threads ask for.
pub const UNSEEN: &str = "whether a program asked how many PEs it may use, or for SCHED_DEADLINE, while \
    corewise had bound a thread of it was not seen: that takes BPF programs at functions of the kernel";

/// The programs with a habit, and the processes that run them.
#[derive(Debug, Default)]
pub struct Habits {
    programs: HashMap<String, Habit>,
    processes: HashMap<u32, Habit>,
}

impl Habits {
    /// Takes in what a process has asked for. Among all processes, those with its program are found. Returns
    /// what the user should know, once for each program.
    pub fn note(&mut self, ask: &Ask, processes: impl Iterator<Item = u32>) -> Option<String> {
        let habit = match ask.asked {
            Asked::Mask => Habit::Asks,
            Asked::Deadline => Habit::NeedsAllPes,
        };
        if self.of(ask.pid) >= Some(habit) {
            return None;
        }
        self.processes.insert(ask.pid, habit);
        let Some(program) = Proc::own().program_name(ask.pid) else { return Some(habit.words(&ask.name)) };
        let words = habit.words(&program);
        let is_new = self.programs.insert(program, habit) != Some(habit);
        processes.for_each(|pid| self.meet(pid));
        is_new.then_some(words)
    }

    /// Looks which program a process runs.
    pub fn meet(&mut self, pid: u32) {
        if self.programs.is_empty() {
            return;
        }
        let program = Proc::own().program_name(pid);
        match program.and_then(|program| self.programs.get(&program)) {
            Some(habit) => drop(self.processes.insert(pid, *habit)),
            None => drop(self.processes.remove(&pid)),
        }
    }

    /// Forgets a process that has ended.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    /// Returns the habit of a process's program.
    pub fn of(&self, pid: u32) -> Option<Habit> {
        self.processes.get(&pid).copied()
    }
}
