//! The limits that control groups (cgroups(7)) impose on a process, in both versions of their hierarchy.

use crate::proc::{ControlGroups, Proc};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The groups around each other that count, from the outside: a container in a container has some ten. A user
/// may nest a thousand.
const DEPTH_MAX: usize = 16;

/// Returns the directories of these groups, for one controller, of each hierarchy from its root on.
pub fn folders(root: &Path, controller: &str, groups: &ControlGroups) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for (controllers, group) in groups.all() {
        let mount = match controllers {
            "" => "sys/fs/cgroup".to_owned(),
            list if list.split(',').any(|name| name == controller) => format!("sys/fs/cgroup/{list}"),
            _ => continue,
        };
        // In a container, a group's path may be the one outside, which does not exist here. Its ancestors do
        // not exist either, except for the mount itself, which is the container's own group.
        let group = Path::new(group.trim_start_matches('/'));
        let groups: Vec<&Path> = group.ancestors().collect();
        folders.extend(groups.iter().rev().take(DEPTH_MAX).map(|group| root.join(&mount).join(group)));
    }
    folders
}

/// Returns the number of PEs whose time a group's quota allows (`docker run --cpus`); `None` without a quota.
pub fn pe_quota(folder: &Path) -> Option<f64> {
    if let Ok(text) = std::fs::read_to_string(folder.join("cpu.max")) {
        let (quota, period) = text.trim().split_once(' ')?;
        return Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?);
    }
    // Version 1 has -1 if there is no quota, which does not parse as an unsigned number.
    let quota = number(folder, "cpu.cfs_quota_us")?;
    Some(quota as f64 / number(folder, "cpu.cfs_period_us")? as f64)
}

/// Returns the number of PEs whose time this process may use by the quotas of its groups and of those around
/// them; `None` without a quota.
pub fn pes_permitted(root: &Path) -> Option<f64> {
    let groups = Proc::of_machine(root).own_control_groups();
    folders(root, "cpu", &groups).iter().filter_map(|folder| pe_quota(folder)).reduce(f64::min)
}

/// Returns the number in a file of a group, if it is one.
pub fn number(folder: &Path, file: &str) -> Option<u64> {
    std::fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
}

/// Measures how long quotas have kept a process from its PEs. The kernel reports each such time when it is
/// over, as it does for waiting times of threads.
#[derive(Debug, Default)]
pub struct Throttling {
    /// One file for each group with a quota; they are few, as groups that count are.
    stats: Vec<File>,
    so_far: Duration,
}

impl Throttling {
    /// Starts measuring for a process. Groups without a quota are left out, even if they get one later;
    /// nothing is known about a process that has ended.
    pub fn of(root: &Path, pid: u32) -> Throttling {
        let groups = Proc::of_machine(root).control_groups(pid);
        let folders = groups.map_or_else(|_| Vec::new(), |groups| folders(root, "cpu", &groups));
        let limited = folders.iter().filter(|folder| pe_quota(folder).is_some());
        let stats = limited.filter_map(|folder| File::open(folder.join("cpu.stat")).ok()).collect();
        let mut throttling = Throttling { stats, so_far: Duration::ZERO };
        throttling.since_last();
        throttling
    }

    /// Returns the throttled time since the last call, summed over all PEs.
    pub fn since_last(&mut self) -> Duration {
        let so_far: Duration = self.stats.iter().filter_map(throttled).sum();
        so_far.saturating_sub(std::mem::replace(&mut self.so_far, so_far))
    }
}

/// Returns the throttled time from `cpu.stat`; `None` once the group is gone.
fn throttled(stat: &File) -> Option<Duration> {
    let mut buffer = [0; 1024];
    let length = stat.read_at(&mut buffer, 0).ok()?;
    let text = std::str::from_utf8(&buffer[..length]).ok()?;
    text.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", us) => us.parse().ok().map(Duration::from_micros),
        // Version 1.
        ("throttled_time", ns) => ns.parse().ok().map(Duration::from_nanos),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::machine;

    #[test]
    fn a_process_in_or_below_a_group_with_a_quota_is_throttled() {
        let version_2 = machine::root(&[
            ("proc/7/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/cpu.stat", "usage_usec 5\n"),
            ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/a/cpu.stat", "usage_usec 5\nnr_throttled 9\nthrottled_usec 1000\nnr_bursts 0\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/b/cpu.stat", "usage_usec 5\nthrottled_usec 70\n"),
        ]);
        let mut throttling = Throttling::of(version_2.path(), 7);
        assert_eq!(throttling.since_last(), Duration::ZERO, "only what comes from now on");
        let stat = version_2.path().join("sys/fs/cgroup/a/cpu.stat");
        std::fs::write(&stat, "usage_usec 6\nthrottled_usec 3500\n").unwrap();
        assert_eq!(throttling.since_last(), Duration::from_micros(2500));
        assert_eq!(throttling.since_last(), Duration::ZERO);
        assert_eq!(Throttling::of(version_2.path(), 8).stats.len(), 0, "it has ended");
        let nested = format!("0::/a{}\n", "/b".repeat(1000));
        let groups = folders(version_2.path(), "cpu", &ControlGroups::new(&nested));
        assert!(groups.len() == DEPTH_MAX && groups[1].ends_with("sys/fs/cgroup/a"), "{}", groups.len());

        let version_1 = machine::root(&[
            ("proc/7/cgroup", "1:cpu,cpuacct:/c\n0::/\n"),
            ("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "50000"),
            ("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000"),
            ("sys/fs/cgroup/cpu,cpuacct/c/cpu.stat", "nr_periods 2\nthrottled_time 10\n"),
        ]);
        let mut throttling = Throttling::of(version_1.path(), 7);
        let stat = version_1.path().join("sys/fs/cgroup/cpu,cpuacct/c/cpu.stat");
        std::fs::write(&stat, "nr_periods 3\nthrottled_time 4010\n").unwrap();
        assert_eq!(throttling.since_last(), Duration::from_nanos(4000));
    }
}
