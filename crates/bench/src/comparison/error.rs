//! Why a run could not be made, or does not count.

use super::difference::Difference;
use corewise_core::comparison::figure::Ambiguous;
use corewise_sys::launch::LaunchError;
use nix::errno::Errno;
use std::process::ExitStatus;

/// Why a run could not be made, or does not count.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A command cannot be started.
    #[error(transparent)]
    Start(#[from] LaunchError),
    /// A command failed.
    #[error(
        "`{command}` of {of} {}{said}; run it alone to see why, or count such runs with --ignore-failure",
        ended(*.status)
    )]
    Failed {
        /// Program and arguments.
        command: String,
        /// What it belongs to: a variant, or the preparation.
        of: String,
        /// Its exit status.
        status: ExitStatus,
        /// The end of its standard error, with introductory words.
        said: String,
    },
    /// A variant printed something other than the first run.
    #[error("the variant `{variant}` prints something other than `{baseline}` did: {difference}")]
    Output {
        /// The variant.
        variant: String,
        /// The first variant that was run.
        baseline: String,
        /// The first difference.
        difference: Difference,
    },
    /// A run took too long.
    #[error(
        "a run of the variant `{variant}` took longer than {seconds} s and was ended: set a longer \
         --timeout, or count such runs with --ignore-failure"
    )]
    TooLong {
        /// The variant.
        variant: String,
        /// The timeout.
        seconds: f64,
    },
    /// An application did not complete within the fixed time.
    #[error(
        "an application of the variant `{variant}` has not completed once within {seconds} s: give it a \
         longer --duration"
    )]
    NotOnce {
        /// The variant.
        variant: String,
        /// The fixed time.
        seconds: f64,
    },
    /// A pattern is not a regular expression.
    #[error("the pattern of `{name}` is not a regular expression: {source}")]
    Pattern {
        /// The figure that it is for.
        name: String,
        /// The parser's error.
        source: regex::Error,
    },
    /// A pattern matches nothing in the output.
    #[error(
        "`{application}` of the variant `{variant}` prints nothing that the pattern of `{name}` matches and \
         that is a number or a time with its unit: try the pattern with grep -E on what it prints"
    )]
    NotPrinted {
        /// The figure that it is for.
        name: String,
        /// The application.
        application: String,
        /// The variant.
        variant: String,
    },
    /// A printed number has two readings.
    #[error("`{name}`: {source}")]
    Ambiguous {
        /// The figure.
        name: String,
        /// The number.
        source: Ambiguous,
    },
    /// The machine has changed.
    #[error(
        "the machine has changed ({}), so figures from before and after cannot be compared: undo that and \
         continue with --resume, or start again",
        .0.join("; ")
    )]
    Changed(Vec<String>),
    /// The process beside corewise cannot be started.
    #[error("cannot start the process that stops the commands when corewise is stopped: {0}")]
    Attendant(std::io::Error),
    /// A system call failed that should never fail.
    #[error("cannot watch processes: {0}")]
    System(#[from] Errno),
    /// The output of the commands cannot be stored.
    #[error("cannot store what the commands print: {0}; check space and permission of TMPDIR")]
    Keep(#[from] std::io::Error),
}

fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(signal) => format!("was killed by signal {signal}"),
        None => format!("ended with exit status {}", status.code().unwrap_or_default()),
    }
}
