//! What a process's surroundings say: its environment about the placement of its threads, its ancestors about
//! nesting.

use crate::launch::NESTED_VARIABLE;
use crate::task;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

/// Whether the user of this process placed its threads by an environment variable. Such a wish wins: libgomp,
/// LLVM's and Intel's OpenMP follow it at a time of their own choosing.
pub fn places_threads(pid: u32) -> bool {
    // A process that ended, or belongs to somebody else, is not placed anyway.
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| wishes(&environ))
}

/// The first of these variables that is set for a process, and not empty.
pub fn first_set(pid: u32, names: &[&'static str]) -> Option<&'static str> {
    first_set_in(&std::fs::read(format!("/proc/{pid}/environ")).ok()?, names)
}

fn first_set_in(environ: &[u8], names: &[&'static str]) -> Option<&'static str> {
    let is_set = |name: &&&str| {
        let value = |entry: &[u8]| {
            let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            (!value.is_empty()).then_some(())
        };
        environ.split(|&byte| byte == 0).any(|entry| value(entry).is_some())
    };
    names.iter().find(is_set).copied()
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

/// The corewise that places a process, as its environment says (where `/proc` is `proc`); inherited by all
/// that descend from it.
pub fn started_by(proc: &Path, pid: u32) -> Option<u32> {
    let environ = std::fs::read(proc.join(format!("{pid}/environ"))).ok()?;
    let name = format!("{NESTED_VARIABLE}=");
    let value = environ.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(name.as_bytes()))?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The outermost corewise that this one runs inside of, by its process id. Its variable in the environment
/// says so, and where that was cleared (by sudo, for instance) the program that an ancestor runs. As it was
/// when this was first asked: ancestors end.
pub fn outer_corewise() -> Option<u32> {
    static OUTER: OnceLock<Option<u32>> = OnceLock::new();
    *OUTER.get_or_init(find_outer_corewise)
}

fn find_outer_corewise() -> Option<u32> {
    let named: Option<u32> = std::env::var(NESTED_VARIABLE).ok().and_then(|pid| pid.parse().ok());
    let ancestors = std::iter::successors(parent_of(std::process::id()), |&pid| parent_of(pid));
    ancestors.take_while(|&pid| pid > 0).filter(|&pid| named == Some(pid) || runs_corewise(pid)).last()
}

/// Whether a process is a `corewise run`, of the file that this one runs or another build of it. The other
/// commands (`compare`, `pgo`) start programs, too, but place no threads.
pub fn runs_corewise(pid: u32) -> bool {
    let first_argument = std::fs::read(format!("/proc/{pid}/cmdline"));
    // Where it may not be read, the name decides.
    let may_place =
        first_argument.map_or(true, |line| line.split(|&byte| byte == 0).nth(1) == Some(b"run".as_slice()));
    may_place && is_corewise(pid)
}

fn is_corewise(pid: u32) -> bool {
    let file = |pid: &str| std::fs::metadata(format!("/proc/{pid}/exe")).map(|file| (file.dev(), file.ino()));
    if let (Ok(theirs), Ok(ours)) = (file(&pid.to_string()), file("self"))
        && theirs == ours
    {
        return true;
    }
    match std::fs::read_link(format!("/proc/{pid}/exe")) {
        // The kernel adds to the path of a file that was removed, as by an upgrade.
        Ok(path) => path.to_string_lossy().trim_end_matches(" (deleted)").ends_with("/corewise"),
        // Another user's program may not be looked at, but it has a name.
        Err(_) => std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "corewise\n"),
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    Some(task::facts(pid).ok()??.parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_is_named() {
        let first = |environ: &str| first_set_in(environ.as_bytes(), &["OMP_NUM_THREADS", "OMP_DYNAMIC"]);
        assert_eq!(first("PATH=/bin\0OMP_DYNAMIC=true\0OMP_NUM_THREADS=4\0"), Some("OMP_NUM_THREADS"));
        assert_eq!(first("MY_OMP_NUM_THREADS=4\0OMP_NUM_THREADS=\0OMP_DYNAMIC=1"), Some("OMP_DYNAMIC"));
        assert_eq!(first("OMP_NUM_THREADS_X=4\0"), None);
    }

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
