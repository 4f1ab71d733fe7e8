//! Per-thread counter readings from one of three sources: hardware counters ([`pmu`]), clock samples of the
//! instruction pointer ([`sample`]), or none.

pub mod delays;
pub mod descriptors;
pub mod none;
pub mod pmu;
pub mod progress;
pub mod reports;
pub mod sample;
mod source;

pub use source::CounterSource;

use corewise_core::cpuset::CpuSet;
use descriptors::DescriptorLimit;
use pmu::Metric;
use sample::SampleSource;
use sample::events::Filter;
use std::path::Path;

/// Which source of counters to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// Hardware counters where they work and measure FPU usage, else clock samples, else hardware counters
    /// that do not measure it, else none.
    #[default]
    Auto,
    /// Hardware counters or nothing.
    Pmu,
    /// Clock samples or nothing.
    Sample,
    /// No counters.
    None,
}

impl Choice {
    /// The words that users give for them, as the help shows them.
    pub const WORDS: &str = "auto|pmu|sample|none";

    /// Each word with its choice, in the order of [`Choice::WORDS`].
    const ALL: [(&str, Choice); 4] =
        [("auto", Choice::Auto), ("pmu", Choice::Pmu), ("sample", Choice::Sample), ("none", Choice::None)];

    /// Whether the user wants just this source, and no other in its place.
    pub fn is_demanded(self) -> bool {
        !matches!(self, Choice::Auto | Choice::None)
    }
}

impl std::str::FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let choice = Choice::ALL.into_iter().find(|(word, _)| *word == text);
        let none = || format!("`{text}` is none of {}", Choice::WORDS.replace('|', ", "));
        choice.map(|(_, choice)| choice).ok_or_else(none)
    }
}

/// Why the source that was asked for cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    /// Hardware counters cannot.
    #[error("hardware counters cannot be used: {0}")]
    Pmu(#[from] pmu::Reason),
    /// Hardware counters work, but none is known that measures FPU usage.
    #[error("hardware counters ({files}) do not measure FPU usage here")]
    NoFpuUsage {
        /// The event files in use.
        files: String,
    },
    /// Clock samples cannot.
    #[error("clock samples cannot be taken: {0}")]
    Sample(#[from] sample::events::SampleError),
}

/// What is counted from the start on; what descends from it is, too.
#[derive(Debug, Clone, Copy)]
pub enum Subjects<'a> {
    /// A process that has not executed its program yet.
    Waiting(u32),
    /// Processes that run already.
    Running(&'a [u32]),
}

/// Opens the source that `choice` asks for, on processes that run on `pes`. Clock samples are taken through
/// `filter`, where there is one. Returns with it why a better one is not used.
pub fn open(
    choice: Choice,
    subjects: Subjects<'_>,
    pes: &CpuSet,
    filter: Option<Filter<'_>>,
) -> Result<(Box<dyn CounterSource>, Vec<String>), CountersError> {
    let sample = || -> Result<Box<dyn CounterSource>, CountersError> {
        let source = match subjects {
            Subjects::Waiting(pid) => SampleSource::new(pid, pes, sample::RATE_HZ, filter)?,
            Subjects::Running(pids) => SampleSource::attach(pids, pes, sample::RATE_HZ, filter)?,
        };
        Ok(Box::new(source.within_budget()))
    };
    let mut why_not = Vec::new();
    let source = match choice {
        Choice::Pmu => open_pmu(false)?,
        Choice::Sample => sample()?,
        Choice::None => Box::new(none::NoCounters),
        Choice::Auto => open_pmu(true)
            .or_else(|error: CountersError| {
                why_not.push(error.to_string());
                sample()
            })
            .or_else(|error: CountersError| {
                why_not.push(error.to_string());
                open_pmu(false)
            })
            .unwrap_or_else(|_| Box::new(none::NoCounters)),
    };
    Ok((source, why_not))
}

fn open_pmu(must_tell_fpu_usage: bool) -> Result<Box<dyn CounterSource>, CountersError> {
    let ready = pmu::Ready::available(Path::new("/"))?;
    if must_tell_fpu_usage && !ready.gives(Metric::FpuBusyCycles) {
        return Err(CountersError::NoFpuUsage { files: ready.files() });
    }
    // A limit that cannot be raised is as good as it is; threads beyond it are reported.
    let descriptors = DescriptorLimit::raise().map_or(512, |limit| limit.now / 2);
    Ok(Box::new(pmu::PmuSource::new(ready, descriptors as usize)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_shows_every_word() {
        assert_eq!(Choice::ALL.map(|(word, _)| word).join("|"), Choice::WORDS);
        assert_eq!("pmu".parse(), Ok(Choice::Pmu));
        let error = "pnu".parse::<Choice>().unwrap_err();
        assert_eq!(error, "`pnu` is none of auto, pmu, sample, none");
    }
}
