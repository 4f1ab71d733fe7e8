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

/// The quota of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Quota {
    /// Its directory.
    pub folder: PathBuf,
    /// The number of PEs whose time it allows.
    pub pes: f64,
}

/// Returns the quotas of these groups and of those around them.
pub fn quotas(root: &Path, groups: &ControlGroups) -> Vec<Quota> {
    let folders = folders(root, "cpu", groups).into_iter();
    folders.filter_map(|folder| Some(Quota { pes: pe_quota(&folder)?, folder })).collect()
}

/// Returns the quotas of a process; none if it has ended.
pub fn quotas_of(root: &Path, pid: u32) -> Vec<Quota> {
    let groups = Proc::of_machine(root).control_groups(pid);
    groups.map_or_else(|_| Vec::new(), |groups| quotas(root, &groups))
}

/// Returns the number of PEs whose time this process may use by the quotas of its groups and of those around
/// them; `None` without a quota.
pub fn pes_permitted(root: &Path) -> Option<f64> {
    least(&quotas(root, &Proc::of_machine(root).own_control_groups()))
}

/// Returns what the quota that permits least permits.
fn least(quotas: &[Quota]) -> Option<f64> {
    quotas.iter().map(|quota| quota.pes).reduce(f64::min)
}

/// Returns the number in a file of a group, if it is one.
pub fn number(folder: &Path, file: &str) -> Option<u64> {
    std::fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()
}

/// Measures what quotas permit a process, and how long they have kept it from its PEs. The kernel reports
/// each such time when it is over, as it does for waiting times of threads.
#[derive(Debug, Default)]
pub struct Throttling {
    /// One file for each group with a quota, with its time so far; they are few, as groups that count are.
    stats: Vec<(PathBuf, File, Duration)>,
    permitted: Option<f64>,
}

impl Throttling {
    /// Starts measuring for a process; nothing is known about one that has ended.
    pub fn of(root: &Path, pid: u32) -> Throttling {
        let mut throttling = Throttling::default();
        throttling.refresh(root, pid);
        throttling
    }

    /// Looks at the groups of the process again, which may have other quotas by now, or be others. Of a new
    /// one only what comes from now on counts.
    pub fn refresh(&mut self, root: &Path, pid: u32) {
        let quotas = quotas_of(root, pid);
        self.permitted = least(&quotas);
        self.stats.retain(|(folder, ..)| quotas.iter().any(|quota| quota.folder == *folder));
        for Quota { folder, .. } in quotas {
            if self.stats.iter().any(|(known, ..)| *known == folder) {
                continue;
            }
            let Ok(stat) = File::open(folder.join("cpu.stat")) else { continue };
            let so_far = throttled(&stat).unwrap_or_default();
            self.stats.push((folder, stat, so_far));
        }
    }

    /// Returns the number of PEs whose time the process may use; `None` without a quota.
    pub fn pes_permitted(&self) -> Option<f64> {
        self.permitted
    }

    /// Returns the throttled time since the last call, summed over all PEs.
    pub fn since_last(&mut self) -> Duration {
        let new = |(_, stat, before): &mut (PathBuf, File, Duration)| {
            let now = throttled(stat)?;
            Some(now.saturating_sub(std::mem::replace(before, now)))
        };
        self.stats.iter_mut().filter_map(new).sum()
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
        assert_eq!(Throttling::of(version_2.path(), 7).pes_permitted(), Some(0.5));
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

    #[test]
    fn the_group_that_permits_least_counts_and_quotas_change_while_a_process_runs() {
        for (kind, groups, file, other) in [
            ("0::/a/b\n", "sys/fs/cgroup/", "cpu.max", None),
            ("3:cpu:/a/b\n0::/\n", "sys/fs/cgroup/cpu/", "cpu.cfs_quota_us", Some("cpu.cfs_period_us")),
        ] {
            let root = machine::root(&[("proc/7/cgroup", kind), ("proc/8/cgroup", "0::/\n")]);
            let set = |group: &str, quota_us: Option<u64>, throttled_us: u64| {
                let folder = root.path().join(groups).join(group);
                std::fs::create_dir_all(&folder).unwrap();
                let quota = match (quota_us, other) {
                    (Some(us), None) => format!("{us} 100000\n"),
                    (None, None) => "max 100000\n".to_owned(),
                    (us, Some(_)) => us.map_or("-1\n".to_owned(), |us| us.to_string()),
                };
                std::fs::write(folder.join(file), quota).unwrap();
                other.into_iter().for_each(|file| std::fs::write(folder.join(file), "100000\n").unwrap());
                let stat = format!("throttled_usec {throttled_us}\n");
                std::fs::write(folder.join("cpu.stat"), stat).unwrap();
            };
            set("a", Some(150_000), 100);
            set("a/b", None, 0);
            let mut throttling = Throttling::of(root.path(), 7);
            assert_eq!(throttling.pes_permitted(), Some(1.5), "{kind}");
            set("a/b", Some(50_000), 7_000);
            throttling.refresh(root.path(), 7);
            assert_eq!((throttling.pes_permitted(), throttling.since_last()), (Some(0.5), Duration::ZERO));
            set("a/b", Some(50_000), 7_900);
            set("a", Some(150_000), 200);
            assert_eq!(throttling.since_last(), Duration::from_micros(1000), "of both");
            set("a/b", Some(200_000), 8_000);
            throttling.refresh(root.path(), 7);
            assert_eq!(throttling.pes_permitted(), Some(1.5), "the narrowest");
            set("a", None, 200);
            set("a/b", None, 9_000);
            throttling.refresh(root.path(), 7);
            assert_eq!((throttling.pes_permitted(), throttling.since_last()), (None, Duration::ZERO));
            // It is elsewhere now.
            throttling.refresh(root.path(), 8);
            assert_eq!((throttling.pes_permitted(), throttling.stats.len()), (None, 0));
        }
    }
}
