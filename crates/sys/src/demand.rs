//! Which other programs want PEs at this moment.
//!
//! Approach. Threads that are runnable at two moments [`APART`] want a PE for longer than a moment: the many
//! that wake up for some microseconds are sorted out. A machine on which nobody else runs costs one read.
//! Threads that have a higher nice level than this process leave the PEs to it, so they do not count.
//!
//! Limits. A look takes [`COST_MAX`] of CPU time at most; programs that were not found by then do not count.
//! Neither do those of other containers, whose processes `/proc` does not show.

use crate::clock::own_cpu_time;
use crate::proc::{Proc, Stat};
use corewise_core::cpuset::CpuSet;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time between the two moments.
const APART: Duration = Duration::from_millis(5);

/// CPU time that the first look may take. One process takes some 10 µs, the newest ones come first.
const COST_MAX: Duration = Duration::from_millis(10);

/// Returns for each other process that wants some of these PEs how many of its threads want one.
pub fn of_others(proc: &Proc, pes: &CpuSet) -> BTreeMap<u32, usize> {
    // The caller is one of them.
    if proc.runnable().is_some_and(|all| all <= 1) {
        return BTreeMap::new();
    }
    let mut wanting = runnable(proc, pes);
    if !wanting.is_empty() {
        std::thread::sleep(APART);
    }
    wanting.retain(|&(pid, tid)| matches!(proc.stat(pid, tid), Ok(Some(stat)) if is_runnable(&stat)));
    let mut threads = BTreeMap::new();
    wanting.into_iter().for_each(|(pid, _)| *threads.entry(pid).or_default() += 1);
    threads
}

/// The threads of other processes that are runnable now, each with its process.
fn runnable(proc: &Proc, pes: &CpuSet) -> Vec<(u32, u32)> {
    let (began, own) = (own_cpu_time(), std::process::id());
    let nice = proc.stat(own, own).ok().flatten().map_or(0, |stat| stat.nice);
    let counts = |tid: u32, stat: &Stat| is_runnable(stat) && stat.nice <= nice && may_use(proc, tid, pes);
    let mut found = Vec::new();
    for pid in proc.latest_first().unwrap_or_default() {
        if own_cpu_time() - began > COST_MAX {
            break;
        }
        // A process that has ended, or is hidden, is left out.
        let Ok(Some(first)) = proc.stat(pid, pid) else { continue };
        if pid == own || first.is_kernel_thread() {
            continue;
        }
        if first.threads == 1 {
            found.extend(counts(pid, &first).then_some((pid, pid)));
            continue;
        }
        for tid in proc.threads(pid).ok().flatten().unwrap_or_default() {
            let stat = proc.stat(pid, tid).ok().flatten();
            found.extend(stat.filter(|stat| counts(tid, stat)).map(|_| (pid, tid)));
        }
    }
    found
}

fn is_runnable(stat: &Stat) -> bool {
    stat.state == 'R'
}

/// Whether a thread may use some of these PEs.
fn may_use(proc: &Proc, tid: u32, pes: &CpuSet) -> bool {
    let status = proc.status(tid).ok().flatten();
    let mask = status.and_then(|status| status.field("Cpus_allowed_list")?.parse::<CpuSet>().ok());
    mask.is_some_and(|mask| !mask.intersection(pes).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::machine::root;

    /// A thread of a process with so many threads; 0x200000: one of the kernel's.
    fn stat(tid: u32, state: char, flags: u32, nice: i32, threads: u32) -> String {
        let rest = "0 ".repeat(30);
        format!("{tid} (a b) {state} 1 1 1 0 -1 {flags} 0 0 0 0 5 5 0 0 20 {nice} {threads} 0 77 {rest}")
    }

    /// What others want of PEs 0 and 1 on a machine with these threads of theirs: process, thread, `stat`,
    /// mask.
    fn wanted(runnable: u64, threads: &[(u32, u32, String, &str)]) -> Vec<usize> {
        let mut files = vec![("proc/loadavg".to_owned(), format!("0 0 0 {runnable}/9 99"))];
        for (pid, tid, stat, mask) in threads {
            files.push((format!("proc/{pid}/task/{tid}/stat"), stat.clone()));
            files.push((format!("proc/{tid}/status"), format!("Cpus_allowed_list:\t{mask}\n")));
        }
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        of_others(&Proc::of_machine(root(&files).path()), &CpuSet::first_n(2)).into_values().collect()
    }

    #[test]
    fn each_program_wants_as_many_pes_as_it_has_runnable_threads() {
        let one = |pid, state| (pid, pid, stat(pid, state, 0, 0, 1), "0-3");
        let of_team = |tid, state| (20, tid, stat(tid, state, 0, 0, 3), "0-3");
        let all = [one(10, 'R'), one(11, 'S'), of_team(20, 'R'), of_team(21, 'S'), of_team(22, 'R')];
        assert_eq!(wanted(4, &all), [1, 2]);
        assert_eq!(wanted(1, &all), [0; 0], "only the caller runs");
    }

    #[test]
    fn threads_that_do_not_compete_for_these_pes_do_not_count() {
        let nicer = (10, 10, stat(10, 'R', 0, 19, 1), "0-1");
        let elsewhere = (11, 11, stat(11, 'R', 0, 0, 1), "2-3");
        let kernel = (12, 12, stat(12, 'R', 0x20_0000, 0, 1), "0-1");
        let own = std::process::id();
        let itself = (own, own, stat(own, 'R', 0, 0, 1), "0-1");
        assert_eq!(wanted(5, &[nicer, elsewhere, kernel, itself]), [0; 0]);
    }
}
