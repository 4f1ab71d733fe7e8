//! The limits that control groups impose on this process, in both versions of their hierarchy.

use corewise_sys::limits::{self, number};
use corewise_sys::proc::Proc;
use std::path::{Path, PathBuf};

/// Returns how many bytes may still be allocated before a group's limit; `None` without a limit. Recently
/// unused pages of files count as free, since the kernel drops them first.
pub fn memory_left(root: &Path) -> Option<u64> {
    let left = |folder: &PathBuf| {
        let limit = number(folder, "memory.max").or(number(folder, "memory.limit_in_bytes"))?;
        let used = number(folder, "memory.current").or(number(folder, "memory.usage_in_bytes"))?;
        let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        // Version 1 has a sum over the subgroups besides the group's own figure.
        let of_stat = |name: &str| {
            stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok())
        };
        let droppable = of_stat("total_inactive_file").or(of_stat("inactive_file")).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(droppable)))
    };
    folders(root, "memory").iter().filter_map(left).min()
}

/// Returns the number of PEs whose time the process may use by its groups' quotas (`docker run --cpus`);
/// `None` without a quota.
pub fn pe_quota(root: &Path) -> Option<f64> {
    limits::pes_permitted(root)
}

fn folders(root: &Path, controller: &str) -> Vec<PathBuf> {
    limits::folders(root, controller, &Proc::of_machine(root).own_control_groups())
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::machine::root;

    #[test]
    fn the_narrowest_limit_of_all_levels_counts() {
        let version_2 = root(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "700\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 200\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "100\n"),
            ("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "max 100000\n"),
        ]);
        assert_eq!(memory_left(version_2.path()), Some(500));
        assert_eq!(pe_quota(version_2.path()), Some(1.5));
        let version_1 = root(&[
            ("proc/self/cgroup", "4:memory:/of/the/host\n1:cpu,cpuacct:/c\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4000"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 10"),
            ("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "50000"),
            ("sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1"),
        ]);
        assert_eq!(memory_left(version_1.path()), Some(1010));
        assert_eq!(pe_quota(version_1.path()), Some(0.5));
        let none = root(&[("proc/self/cgroup", "0::/\n")]);
        assert_eq!((memory_left(none.path()), pe_quota(none.path())), (None, None));
    }
}
