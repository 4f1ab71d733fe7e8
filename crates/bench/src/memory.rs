//! How much memory can be allocated without displacing other processes.

use super::cgroup;
use std::path::Path;

/// The share of available memory that is left free, as availability changes while we measure.
const KEPT_SHARE: f64 = 0.1;

/// Returns the bytes that may be allocated; `None` if the machine does not report it.
pub(super) fn allowance(root: &Path) -> Option<u64> {
    let meminfo = std::fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let of_machine = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    let of_machine = of_machine.map(|kib| kib * 1024);
    let available = of_machine.into_iter().chain(cgroup::memory_left(root)).min()?;
    Some((available as f64 * (1.0 - KEPT_SHARE)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::machine::root;

    #[test]
    fn the_group_may_allow_less_than_the_machine_has() {
        let meminfo = ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:     1000 kB\n");
        let group = ("proc/self/cgroup", "0::/\n");
        let limit = ("sys/fs/cgroup/memory.max", "512000\n");
        let used = ("sys/fs/cgroup/memory.current", "0\n");
        assert_eq!(allowance(root(&[meminfo]).path()), Some(921_600));
        assert_eq!(allowance(root(&[meminfo, group, limit, used]).path()), Some(460_800));
        assert_eq!(allowance(root(&[]).path()), None);
    }
}
