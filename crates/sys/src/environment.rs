//! Reads a process's environment for thread placement by the user and for a surrounding corewise.

use crate::proc::{Environment, Proc};
use crate::shortage::unless_short;
use corewise_core::cpuset::CpuSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

/// The variable that tells a nested corewise the process ID of the one that places threads.
const NESTED_VARIABLE: &str = "COREWISE_PID";

/// The variable that tells the command of a `corewise emulate-slow` which PEs are slow, and their speed.
const SLOW_VARIABLE: &str = "COREWISE_SLOW";

/// Returns whether the user of this process placed its threads by an environment variable. Such a wish takes
/// precedence: libgomp, LLVM's and Intel's OpenMP apply it at some later time.
pub fn places_threads(pid: u32) -> bool {
    // A process that ended, or belongs to another user, is not placed anyway.
    Proc::own().environment(pid).is_ok_and(|environment| wishes(&environment))
}

/// Returns the first of these variables that is set for a process, and not empty.
pub fn first_set(pid: u32, names: &[&'static str]) -> Option<&'static str> {
    first_set_in(&Proc::own().environment(pid).ok()?, names)
}

fn first_set_in(environment: &Environment, names: &[&'static str]) -> Option<&'static str> {
    names.iter().find(|name| environment.get(name).is_some_and(|value| !value.is_empty())).copied()
}

fn wishes(environment: &Environment) -> bool {
    environment.variables().any(|(name, value)| {
        let value = value.trim().to_ascii_lowercase();
        match name.as_str() {
            "OMP_PLACES" | "GOMP_CPU_AFFINITY" => !value.is_empty(),
            "OMP_PROC_BIND" => !matches!(value.as_str(), "" | "false"),
            "KMP_AFFINITY" => !value.is_empty() && !value.contains("none") && !value.contains("disabled"),
            _ => false,
        }
    })
}

/// Returns the corewise that places a process, from the environment that all its descendants inherit; `None`
/// if that does not name one, or cannot be read.
pub fn started_by(proc: &Proc, pid: u32) -> io::Result<Option<u32>> {
    let environment = unless_short(proc.environment(pid))?;
    Ok(environment.and_then(|environment| environment.get(NESTED_VARIABLE)?.parse().ok()))
}

/// Returns the environment variable for a command whose threads are placed; with it, a corewise inside only
/// watches.
pub fn placed() -> (&'static str, String) {
    (NESTED_VARIABLE, outer_corewise().unwrap_or_else(std::process::id).to_string())
}

/// Returns the environment variable for a command beside which these PEs have this share of their speed.
pub fn slowed_down(pes: &CpuSet, speed: f64) -> (&'static str, String) {
    (SLOW_VARIABLE, format!("{pes}@{speed}"))
}

/// Returns which PEs a surrounding `corewise emulate-slow` slows down, and to which share of their speed.
pub fn slow_pes() -> Option<(CpuSet, f64)> {
    slow_pes_in(&std::env::var(SLOW_VARIABLE).ok()?)
}

fn slow_pes_in(value: &str) -> Option<(CpuSet, f64)> {
    let (pes, speed) = value.split_once('@')?;
    let speed = speed.parse().ok().filter(|speed| (0.0..1.0).contains(speed))?;
    Some((pes.parse().ok()?, speed))
}

/// Returns the process ID of the outermost corewise around this one. It is found by the variable in the
/// environment or, if that was cleared (for instance by sudo), by the programs of the ancestors. The first
/// result is kept, as ancestors end.
pub fn outer_corewise() -> Option<u32> {
    static OUTER: OnceLock<Option<u32>> = OnceLock::new();
    *OUTER.get_or_init(find_outer_corewise)
}

fn find_outer_corewise() -> Option<u32> {
    let named: Option<u32> = std::env::var(NESTED_VARIABLE).ok().and_then(|pid| pid.parse().ok());
    let ancestors = std::iter::successors(parent_of(std::process::id()), |&pid| parent_of(pid));
    ancestors.take_while(|&pid| pid > 0).filter(|&pid| named == Some(pid) || runs_corewise(pid)).last()
}

/// Returns whether a process is a `corewise run`, of the same executable or another build. The other commands
/// (`compare`, `pgo`) start programs, too, but place no threads.
pub fn runs_corewise(pid: u32) -> bool {
    // If the arguments cannot be read, the name decides.
    let may_place = Proc::own()
        .arguments(pid)
        .map_or(true, |line| line.split(|&byte| byte == 0).nth(1) == Some(b"run".as_slice()));
    may_place && is_corewise(pid)
}

fn is_corewise(pid: u32) -> bool {
    let proc = Proc::own();
    let file = |pid| proc.program_file(pid).map(|file| (file.dev(), file.ino()));
    if let (Ok(theirs), Ok(ours)) = (file(pid), file(std::process::id()))
        && theirs == ours
    {
        return true;
    }
    match proc.executable(pid) {
        Ok(path) => path.ends_with("corewise"),
        // Another user's program cannot be read, but it has a name.
        Err(_) => proc.name(pid).is_ok_and(|name| name == "corewise"),
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    Some(Proc::own().task(pid).ok()??.parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_is_named() {
        let first = |environ: &str| {
            first_set_in(&Environment::new(environ.into()), &["OMP_NUM_THREADS", "OMP_DYNAMIC"])
        };
        assert_eq!(first("PATH=/bin\0OMP_DYNAMIC=true\0OMP_NUM_THREADS=4\0"), Some("OMP_NUM_THREADS"));
        assert_eq!(first("MY_OMP_NUM_THREADS=4\0OMP_NUM_THREADS=\0OMP_DYNAMIC=1"), Some("OMP_DYNAMIC"));
        assert_eq!(first("OMP_NUM_THREADS_X=4\0"), None);
    }

    #[test]
    fn slow_pes_are_reported_to_the_command() {
        let pes: CpuSet = "1,4-7".parse().unwrap();
        assert_eq!(slow_pes_in(&slowed_down(&pes, 0.25).1), Some((pes, 0.25)));
        assert_eq!(["", "1", "1@fast", "1@2", "x@0.5"].map(slow_pes_in), [const { None }; 5]);
    }

    #[test]
    fn only_a_wish_counts() {
        let check = |environ: &str, expected| {
            assert_eq!(wishes(&Environment::new(environ.into())), expected, "{environ:?}");
        };
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
