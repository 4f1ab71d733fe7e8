//! The identity of the computer and the present time, for reports.

use crate::kernel;
use corewise_core::report::Host;
use std::path::Path;
use std::time::SystemTime;

/// Reads the files below a root directory; what cannot be read stays unknown.
pub fn read(root: &Path) -> Host {
    let line = |path: &str| Some(std::fs::read_to_string(root.join(path)).ok()?.trim().to_owned());
    Host {
        name: line("proc/sys/kernel/hostname"),
        processor: processor(root),
        kernel: line("proc/sys/kernel/osrelease"),
        unix_time: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok().map(|d| d.as_secs()),
    }
}

/// x86 and others have a name in `/proc/cpuinfo`; ARM has only numbers there, or a board's name.
fn processor(root: &Path) -> Option<String> {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let online = text("sys/devices/system/cpu/online").and_then(|list| list.trim().parse().ok());
    let facts = kernel::read(root, &online.unwrap_or_default());
    let named = text("proc/cpuinfo").and_then(|cpuinfo| {
        let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let mut designs: Vec<&str> =
        facts.midr.values().filter_map(|&midr| Some(kernel::arm_design(midr)?.0)).collect();
    designs.sort_unstable();
    designs.dedup();
    named.or((!designs.is_empty()).then(|| designs.join(" and "))).or_else(|| {
        let board = text("proc/device-tree/model")?;
        Some(board.trim_end_matches('\0').to_owned())
    })
}
