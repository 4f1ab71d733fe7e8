//! The programs of a run: eight processes of one script are one program.

use crate::terminal::Name;
use corewise_core::report::{Report, ThreadReport};
use std::collections::{BTreeMap, BTreeSet};

/// A program with all its processes.
pub struct Program<'a> {
    /// The name of its script or executable.
    pub name: &'a str,
    /// The IDs of its processes.
    pub processes: BTreeSet<u32>,
    /// Its threads, busiest first.
    pub threads: Vec<&'a ThreadReport>,
}

impl Program<'_> {
    /// Returns the CPU time of its threads.
    pub fn cpu_seconds(&self) -> f64 {
        self.threads.iter().map(|thread| thread.cpu_seconds).sum()
    }

    /// Returns a rate of its threads, weighted by their CPU time; `None` if it is known of none.
    pub fn mean(&self, rate: impl Fn(&ThreadReport) -> Option<f64>) -> Option<f64> {
        let known = || self.threads.iter().filter_map(|thread| Some((rate(thread)?, thread.cpu_seconds)));
        let weight: f64 = known().map(|(_, seconds)| seconds).sum();
        (weight > 0.0).then(|| known().map(|(rate, seconds)| rate * seconds).sum::<f64>() / weight)
    }

    /// Returns its name with the number of its processes, if there are several.
    pub fn label(&self) -> String {
        match self.processes.len() {
            1 => Name(self.name).to_string(),
            count => format!("{} ×{count}", Name(self.name)),
        }
    }
}

/// Returns the programs of the listed threads, those with the most CPU time first.
pub fn of(report: &Report) -> Vec<Program<'_>> {
    let mut programs: BTreeMap<&str, Program<'_>> = BTreeMap::new();
    for thread in &report.threads {
        let name = name_of(thread);
        let empty = || Program { name, processes: BTreeSet::new(), threads: Vec::new() };
        let program = programs.entry(name).or_insert_with(empty);
        program.processes.insert(thread.pid);
        program.threads.push(thread);
    }
    let mut programs: Vec<_> = programs.into_values().collect();
    programs.sort_by(|a, b| b.cpu_seconds().total_cmp(&a.cpu_seconds()));
    programs
}

fn name_of(thread: &ThreadReport) -> &str {
    thread.program.as_deref().unwrap_or(&thread.name)
}

/// What threads are called: by their program, and by their own name if they have one.
pub struct Labels<'a> {
    /// The names of the first threads of processes: other threads have them until they are given their own.
    leaders: BTreeMap<u32, &'a str>,
}

impl<'a> Labels<'a> {
    /// Of the threads of a report.
    pub fn of(report: &'a Report) -> Labels<'a> {
        let leaders = report.threads.iter().filter(|thread| thread.tid == thread.pid);
        Labels { leaders: leaders.map(|leader| (leader.pid, &*leader.name)).collect() }
    }

    /// Returns what a thread is called. Untrusted.
    pub fn label(&self, thread: &ThreadReport) -> String {
        let program = name_of(thread);
        match self.leaders.get(&thread.pid) {
            Some(leader) if *leader != &*thread.name => format!("{program} {}", thread.name),
            Some(_) | None => program.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{report, thread};

    fn of_program(tid: u32, pid: u32, name: &str, program: &str) -> ThreadReport {
        ThreadReport { pid, program: Some(program.into()), ..thread(tid, name, &[], &[]) }
    }

    #[test]
    fn workers_of_one_script_are_one_program() {
        let workers = (1..=8).map(|pid| of_program(pid, pid, "python3", "train.py"));
        let others = [of_program(91, 90, "t", "eval.py"), of_program(90, 90, "python3", "eval.py")];
        let report = report(workers.chain(others).collect(), Vec::new());
        let shown: Vec<_> = of(&report)
            .iter()
            .map(|program| (program.label(), program.threads.len(), program.cpu_seconds()))
            .collect();
        assert_eq!(shown, [("train.py ×8".to_owned(), 8, 60.0), ("eval.py".to_owned(), 2, 15.0)]);
        let labels = Labels::of(&report);
        let labels: Vec<_> = report.threads[7..].iter().map(|thread| labels.label(thread)).collect();
        assert_eq!(labels, ["train.py", "eval.py t", "eval.py"], "a thread may have a name of its own");
    }

    #[test]
    fn a_mean_is_weighted_by_cpu_time() {
        let with = |tid, usage, cpu_seconds| ThreadReport {
            fpu_usage: usage,
            cpu_seconds,
            ..of_program(tid, tid, "a", "a")
        };
        let report =
            report(vec![with(1, Some(0.8), 3.0), with(2, Some(0.4), 1.0), with(3, None, 9.0)], vec![]);
        let mean = of(&report)[0].mean(|thread| thread.fpu_usage).unwrap();
        assert!((mean - 0.7).abs() < 1e-9, "{mean}");
        assert_eq!(of(&report)[0].mean(|thread| thread.ipc), None);
    }
}
