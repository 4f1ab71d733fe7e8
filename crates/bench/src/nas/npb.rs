//! Runs a user's own NPB binaries, OpenMP or serial, on chosen PEs.
//!
//! Binaries are named as in NPB's makefiles: `cg.A.x`, or `cg.A`, in lower or upper case. Threads are placed
//! by `OMP_PLACES`, one on each PE, and by an affinity mask, which also works without OpenMP. The binary runs
//! in an empty directory, so that no `*.input` file changes the problem. It prints its own time and
//! verification result.

use corewise_core::calibrate::NasRun;
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::kernels::{Nas, ProblemClass};
use corewise_sys::launch::{Launch, LaunchError, Running, Stream};
use nix::errno::Errno;
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// The maximum length of the output that is read, in bytes.
const OUTPUT_MAX: u64 = 1 << 20;

/// The number of characters from the end of the output that an error contains.
const TAIL_MAX: usize = 300;

/// Why a binary gave no result.
#[derive(Debug, thiserror::Error)]
pub enum NpbError {
    /// There is no such binary.
    #[error("{} holds none of {}: build it with NPB's `make {} CLASS={class:?}`", directory.display(),
        names.join(", "), nas.name())]
    Missing {
        /// The searched directory.
        directory: PathBuf,
        /// The possible names.
        names: Vec<String>,
        /// The benchmark.
        nas: Nas,
        /// Its size.
        class: ProblemClass,
    },
    /// It could not be started.
    #[error("{0}; is it built for this machine, and are its PEs usable?")]
    Start(#[from] LaunchError),
    /// It could not be waited for.
    #[error("cannot wait for {}: {errno}", path.display())]
    Wait {
        /// The binary.
        path: PathBuf,
        /// The system's error.
        errno: Errno,
    },
    /// There is no place for its output.
    #[error("cannot make a temporary directory: {0}: set TMPDIR to one that can be written")]
    Temporary(std::io::Error),
    /// It did not end in time, and was killed.
    #[error("{} ran longer than {limit:?}: allow more time, or take a smaller class", path.display())]
    TimeLimit {
        /// The binary.
        path: PathBuf,
        /// The time limit.
        limit: Duration,
    },
    /// It failed.
    #[error("{} failed ({status}); its output ends: {tail}", path.display())]
    Failed {
        /// The binary.
        path: PathBuf,
        /// Its exit status.
        status: ExitStatus,
        /// The end of its output.
        tail: String,
    },
    /// It ended successfully, but printed no time or no verification result.
    #[error("{} printed no line `{line}`: is it an NPB binary? Its output ends: {tail}", path.display())]
    Garbage {
        /// The binary.
        path: PathBuf,
        /// What was missing.
        line: &'static str,
        /// The end of its output.
        tail: String,
    },
    /// It printed a time of 0.00 seconds.
    #[error("{} ends sooner than its clock can tell: take a larger class", path.display())]
    TooShort {
        /// The binary.
        path: PathBuf,
    },
}

/// Runs a benchmark from a directory of NPB binaries with one thread on each of the PEs.
pub fn run(
    directory: &Path,
    nas: Nas,
    class: ProblemClass,
    pes: &[PeId],
    limit: Duration,
) -> Result<NasRun, NpbError> {
    let path = find(directory, nas, class)?;
    let scratch = tempfile::tempdir().map_err(NpbError::Temporary)?;
    let output = scratch.path().join("output");
    let file = File::create(&output).map_err(NpbError::Temporary)?;
    let status = execute(&path, pes, scratch.path(), file, limit)?;
    let mut printed = Vec::new();
    let file = File::open(&output).map_err(NpbError::Temporary)?;
    file.take(OUTPUT_MAX).read_to_end(&mut printed).map_err(NpbError::Temporary)?;
    let printed = String::from_utf8_lossy(&printed);
    match parse(&printed) {
        // The exit status of a program whose main function returns nothing is arbitrary.
        Ok((elapsed, verified)) if status.signal().is_none() => match elapsed.is_zero() {
            true => Err(NpbError::TooShort { path }),
            false => Ok(NasRun { elapsed, verified }),
        },
        Err(line) if status.success() => Err(NpbError::Garbage { path, line, tail: tail(&printed) }),
        _ => Err(NpbError::Failed { path, status, tail: tail(&printed) }),
    }
}

/// Returns the binary of a benchmark in a directory.
pub fn find(directory: &Path, nas: Nas, class: ProblemClass) -> Result<PathBuf, NpbError> {
    let (upper, lower) = (nas.name(), nas.name().to_lowercase());
    let names =
        [&lower, upper].map(|name| [format!("{name}.{class:?}.x"), format!("{name}.{class:?}")]).concat();
    let found = names.iter().map(|name| directory.join(name)).find(|path| path.is_file());
    // The binary runs in another directory, where a relative path would be wrong.
    let absolute = found.and_then(|path| path.canonicalize().ok());
    absolute.ok_or_else(|| NpbError::Missing { directory: directory.into(), names, nas, class })
}

/// Runs a binary to its end, or to the limit.
fn execute(
    path: &Path,
    pes: &[PeId],
    scratch: &Path,
    output: File,
    limit: Duration,
) -> Result<ExitStatus, NpbError> {
    let cannot_wait = |errno| NpbError::Wait { path: path.into(), errno };
    let errors = output.try_clone().map_err(NpbError::Temporary)?;
    let places: Vec<String> = pes.iter().map(|pe| format!("{{{pe}}}")).collect();
    let mask = pes.iter().fold(CpuSet::new(), |mask, &pe| mask.union(&CpuSet::single(pe)));
    let launch = || {
        let environment = [
            ("OMP_NUM_THREADS", pes.len().to_string()),
            ("OMP_PLACES", places.join(",")),
            ("OMP_PROC_BIND", "true".to_owned()),
            ("OMP_DYNAMIC", "false".to_owned()),
        ];
        let launch = Launch::of([path])?.pes(mask).ending_with_corewise().directory(scratch)?;
        // They would take precedence over OMP_PLACES.
        let launch = launch.without_variable("GOMP_CPU_AFFINITY").without_variable("KMP_AFFINITY");
        let launch =
            environment.iter().try_fold(launch, |launch, (name, value)| launch.variable(name, value))?;
        launch.input(Stream::null()?).output(output).error(errors).start()
    };
    let mut child = Killed(launch()?);
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.0.try_wait().map_err(cannot_wait)? {
            return Ok(status);
        }
        // The binary measures its own time, so noticing its end late only costs waiting time.
        std::thread::sleep((start.elapsed() / 20).clamp(Duration::from_millis(1), Duration::from_millis(50)));
    }
    Err(NpbError::TimeLimit { path: path.into(), limit })
}

/// A child that does not outlive this.
struct Killed(Running);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the printed time and verification result, or the line that is missing.
fn parse(output: &str) -> Result<(Duration, bool), &'static str> {
    let (mut elapsed, mut verified) = (None, None);
    for line in output.lines() {
        let line = line.trim().to_ascii_lowercase();
        if let Some(seconds) = line.strip_prefix("time in seconds") {
            let seconds = seconds.trim_start_matches([' ', '=']).parse().ok();
            elapsed = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        }
        if let Some(result) = line.strip_prefix("verification") {
            match result.trim_start_matches([' ', '=']) {
                "successful" => verified = Some(true),
                "unsuccessful" | "failed" | "not performed" => verified = Some(false),
                // "Verification being performed for class S" and its like.
                _ => {}
            }
        }
    }
    Ok((elapsed.ok_or("Time in seconds =")?, verified.ok_or("Verification =")?))
}

/// Returns the end of an output on one line.
fn tail(output: &str) -> String {
    let line = output.split_whitespace().collect::<Vec<_>>().join(" ");
    let skipped = line.chars().count().saturating_sub(TAIL_MAX);
    if line.is_empty() { "(nothing)".into() } else { line.chars().skip(skipped).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_sys::affinity;
    use std::process::Command;
    use tempfile::TempDir;

    /// Returns a directory with a shell script as a binary.
    fn stand_in(name: &str, script: &str) -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        let text = directory.path().join("script");
        std::fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        // Another process writes the executable: one that this process has had open for writing may be busy,
        // as a fork in another thread keeps it open for a moment.
        let installed = Command::new("install").arg(&text).arg(directory.path().join(name)).status();
        assert!(installed.unwrap().success());
        directory
    }

    fn pe() -> PeId {
        affinity::get(0).unwrap().last().unwrap()
    }

    fn run_script(script: &str, limit: Duration) -> Result<NasRun, NpbError> {
        run(stand_in("bt.S.x", script).path(), Nas::Bt, ProblemClass::S, &[pe(), pe()], limit)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_binary_gets_its_threads_and_places_and_is_confined() {
        let pe = pe();
        let script = format!(
            r#"[ "$OMP_NUM_THREADS $OMP_PLACES $OMP_PROC_BIND" = "2 {{{pe}}},{{{pe}}} true" ] || exit 1
               grep -q "^Cpus_allowed_list:.{pe}$" /proc/self/status || exit 2
               [ "$(ls)" = output ] || exit 3
               echo " Time in seconds =                     1.25"
               echo " Verification    =               SUCCESSFUL""#
        );
        let run = run_script(&script, LONG).unwrap();
        assert_eq!(run, NasRun { elapsed: Duration::from_millis(1250), verified: true });
    }

    #[test]
    fn every_failure_is_reported() {
        let check = |script: &str, limit, expected: &str| {
            let error = run_script(script, limit).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let result = "echo Time in seconds = 2; echo Verification = SUCCESSFUL;";
        check("echo out of memory; exit 3", LONG, "failed (exit status: 3); its output ends: out of memory");
        check(&format!("{result} kill -SEGV $$"), LONG, "signal: 11");
        check("echo hello", LONG, "no line `Time in seconds =`");
        check("echo Time in seconds = 2", LONG, "no line `Verification =`");
        check(
            "echo Time in seconds = -2; echo Verification = SUCCESSFUL",
            LONG,
            "no line `Time in seconds =`",
        );
        check("echo Time in seconds = 0.00; echo Verification = SUCCESSFUL", LONG, "take a larger class");
        check("exec sleep 60", Duration::from_millis(50), "ran longer than 50ms");
        // An exit status counts only where the result is missing.
        assert!(run_script(&format!("{result} exit 9"), LONG).is_ok());
    }

    #[test]
    fn binaries_are_found_by_their_names() {
        for name in ["ua.B.x", "ua.B", "UA.B.x", "UA.B"] {
            let directory = stand_in(name, "");
            assert!(find(directory.path(), Nas::Ua, ProblemClass::B).unwrap().ends_with(name));
            let error = find(directory.path(), Nas::Ua, ProblemClass::A).unwrap_err().to_string();
            assert!(
                error.contains("ua.A.x, ua.A, UA.A.x, UA.A: build it with NPB's `make UA CLASS=A`"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_file_that_is_no_program_cannot_be_started() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("lu.W.x"), "not executable").unwrap();
        let error = run(directory.path(), Nas::Lu, ProblemClass::W, &[pe()], LONG).unwrap_err();
        assert!(matches!(error, NpbError::Start(_)), "{error}");
    }

    #[test]
    fn both_forms_of_the_result_are_understood() {
        let check = |text: &str, expected| assert_eq!(parse(text), expected, "{text}");
        let second = Duration::from_secs(1);
        check(" Time in seconds = 1.00\n Verification    =               SUCCESSFUL\n", Ok((second, true)));
        check(" Time in seconds = 1.00\n Verification    =             UNSUCCESSFUL\n", Ok((second, false)));
        check(" Verification Successful\n Time in seconds = 1E0\n", Ok((second, true)));
        check(" Verification failed\n Time in seconds = 1\n", Ok((second, false)));
        check(" Verification being performed for class S\n Time in seconds = 1\n", Err("Verification ="));
        check(" Verification = SUCCESSFUL\n Time in seconds = *****\n", Err("Time in seconds ="));
        check("", Err("Time in seconds ="));
    }
}
