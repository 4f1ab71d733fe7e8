//! The properties of the machine that must not change while a comparison runs.

use crate::conditions;
use corewise_core::comparison::Setting;
use corewise_core::cpuset::CpuSet;
use corewise_topology::host;
use std::path::Path;

/// Reads them below a root directory.
pub fn read(root: &Path) -> Setting {
    let text = |path: &str| Some(std::fs::read_to_string(root.join(path)).ok()?.trim().to_owned());
    let online = text("sys/devices/system/cpu/online");
    let pes: CpuSet = online.as_ref().and_then(|list| list.parse().ok()).unwrap_or_default();
    let host = host::read(root);
    let allowed = text("proc/self/status").and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(line.trim().to_owned())
    });
    Setting {
        scheduler: scheduler(root, host.kernel.as_deref()),
        kernel: host.kernel,
        processor: host.processor,
        smt: text("sys/devices/system/cpu/smt/control"),
        frequency: conditions::frequency(root, &pes).0,
        online,
        allowed,
    }
}

/// The kernel does not report the name of its own scheduler; it follows from the version.
fn scheduler(root: &Path, release: Option<&str>) -> Option<String> {
    const EEVDF_SINCE: (u32, u32) = (6, 6);
    let text = |file: &str| {
        Some(std::fs::read_to_string(root.join("sys/kernel/sched_ext").join(file)).ok()?.trim().to_owned())
    };
    if text("state").is_some_and(|state| state != "disabled") {
        return Some(format!("sched_ext: {}", text("root/ops").unwrap_or_else(|| "unnamed".to_owned())));
    }
    let mut numbers = release?.split('.').map(|number| number.parse::<u32>().ok());
    let version = (numbers.next()??, numbers.next()??);
    let name = if version >= EEVDF_SINCE { "EEVDF" } else { "CFS" };
    Some(format!("{name} (by the kernel's version)"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_testing::machine::root;

    #[test]
    fn what_the_machine_reports_is_read_and_the_rest_is_not_known() {
        let machine = root(&[
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("sys/devices/system/cpu/smt/control", "off\n"),
            ("proc/sys/kernel/osrelease", "6.12.0-x\n"),
            ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t1\n"),
            ("proc/cpuinfo", "model name\t: AMD EPYC\n"),
            ("sys/kernel/sched_ext/state", "disabled\n"),
        ]);
        let setting = read(machine.path());
        assert_eq!(setting.processor.as_deref(), Some("AMD EPYC"));
        assert_eq!(setting.scheduler.as_deref(), Some("EEVDF (by the kernel's version)"));
        assert_eq!((setting.smt.as_deref(), setting.allowed.as_deref()), (Some("off"), Some("1")));
        assert_eq!(setting.frequency, None);
        std::fs::write(machine.path().join("sys/kernel/sched_ext/state"), "enabled\n").unwrap();
        let other = read(machine.path());
        assert_eq!(other.scheduler.as_deref(), Some("sched_ext: unnamed"));
        assert_eq!(other.changes_since(&setting).len(), 1);
        let old = root(&[("proc/sys/kernel/osrelease", "6.1.0\n")]);
        assert_eq!(read(old.path()).scheduler.as_deref(), Some("CFS (by the kernel's version)"));
        assert_eq!(read(root(&[]).path()), Setting::default());
    }
}
