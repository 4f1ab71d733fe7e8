//! What a process's surroundings say: its environment about the placement of its threads, its ancestors about
//! nesting.

use crate::launch::NESTED_VARIABLE;

/// Whether the user of this process placed its threads by an environment variable. Such a wish wins: libgomp,
/// LLVM's and Intel's OpenMP follow it at a time of their own choosing.
pub fn places_threads(pid: u32) -> bool {
    // A process that ended, or belongs to somebody else, is not placed anyway.
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| wishes(&environ))
}

fn wishes(environ: &[u8]) -> bool {
    environ.split(|&byte| byte == 0).any(|entry| {
        let text = String::from_utf8_lossy(entry);
        let Some((name, value)) = text.split_once('=') else { return false };
        let value = value.trim().to_ascii_lowercase();
        match name {
            "OMP_PLACES" | "GOMP_CPU_AFFINITY" => !value.is_empty(),
            "OMP_PROC_BIND" => !matches!(value.as_str(), "" | "false"),
            "KMP_AFFINITY" => !value.is_empty() && !value.contains("none") && !value.contains("disabled"),
            _ => false,
        }
    })
}

/// The corewise that a process was started by, as its environment says; inherited by all that descend from
/// it.
pub fn started_by(pid: u32) -> Option<u32> {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let name = format!("{NESTED_VARIABLE}=");
    let value = environ.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(name.as_bytes()))?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Whether a process is an ancestor of this one.
pub fn is_ancestor(pid: u32) -> bool {
    let mut process = std::process::id();
    while process > 1 {
        let Some(parent) = parent_of(process) else { return false };
        if parent == pid {
            return true;
        }
        process = parent;
    }
    false
}

/// The parent of a process, `None` if the process has ended.
pub fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and parentheses; the fields after the last parenthesis are plain.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wish_counts() {
        let check = |environ: &str, expected| assert_eq!(wishes(environ.as_bytes()), expected, "{environ:?}");
        check("", false);
        check("PATH=/bin\0OMP_NUM_THREADS=4\0", false);
        check("PATH=/bin\0OMP_PLACES=cores\0", true);
        check("OMP_PLACES=\0", false);
        check("GOMP_CPU_AFFINITY=0-3", true);
        check("KMP_AFFINITY=granularity=fine,compact\0", true);
        check("KMP_AFFINITY=verbose,none\0", false);
        check("OMP_PROC_BIND=false\0", false);
        check("OMP_PROC_BIND=close\0", true);
        check("MY_OMP_PLACES=cores\0OMP_PLACES_X=1\0", false);
    }
}
