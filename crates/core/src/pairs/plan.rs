//! What is run, and what came of it.

use crate::comparison::{self, Application, PlanError, Variant, Workload};
use crate::cpuset::CpuSet;
use crate::ids::PeId;
use serde::{Deserialize, Serialize};

/// How often every program of a run completes at least. Alone as often as in a pair: a second completion
/// finds files and processors warm, and would look like a gain.
pub const COMPLETIONS: u32 = 2;

/// What is measured, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The programs.
    pub programs: Vec<Program>,
    /// The two PEs.
    pub pes: [PeId; 2],
    /// The number of runs of each program alone and of each measured pair.
    pub runs: u32,
    /// The random seed of the order.
    pub seed: u64,
    /// Whether every pair is measured, also where it teaches nothing.
    pub every: bool,
    /// The time limit of a run, in seconds.
    pub timeout_seconds: Option<f64>,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// What runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The program of that index, on the first PE.
    Alone(usize),
    /// Two programs; the first index is not the larger one.
    Pair(usize, usize),
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// What ran.
    pub subject: Subject,
    /// The mean time of a completion of each program, in seconds.
    pub seconds: Vec<f64>,
}

impl Plan {
    /// Returns everything that can be run: each program alone, then all pairs.
    pub fn subjects(&self) -> Vec<Subject> {
        let count = self.programs.len();
        let pairs = (0..count).flat_map(|a| (a..count).map(move |b| Subject::Pair(a, b)));
        (0..count).map(Subject::Alone).chain(pairs).collect()
    }

    /// Returns what an executor of comparisons runs, in the order of [`Plan::subjects`].
    pub fn comparison(&self) -> Result<comparison::Plan, PlanError> {
        let variants = self
            .subjects()
            .into_iter()
            .map(|subject| Variant { name: self.name(subject), workload: self.workload(subject) });
        let plan = comparison::Plan {
            variants: variants.collect(),
            length: comparison::Length::Runs(self.runs),
            warmup: 0,
            seed: self.seed,
            setup: None,
            prepare: None,
            ignore_failure: false,
            same_output: false,
            timeout_seconds: self.timeout_seconds,
            printed: Vec::new(),
        };
        plan.check().map(|()| plan)
    }

    /// Returns what runs, in words.
    pub fn name(&self, subject: Subject) -> String {
        let name = |index: usize| &self.programs[index].name;
        match subject {
            Subject::Alone(a) => name(a).clone(),
            Subject::Pair(a, b) => format!("{} beside {}", name(a), name(b)),
        }
    }

    fn workload(&self, subject: Subject) -> Workload {
        let application = |index: usize, place: usize| Application {
            name: format!("{} on PE {}", self.programs[index].name, self.pes[place]),
            command: self.programs[index].command.clone(),
            start_seconds: 0.0,
            pes: Some(CpuSet::single(self.pes[place])),
        };
        let applications = match subject {
            Subject::Alone(a) => vec![application(a, 0)],
            Subject::Pair(a, b) => vec![application(a, 0), application(b, 1)],
        };
        Workload { applications, completions: COMPLETIONS, fixed_seconds: None }
    }

    /// Returns whether a record is one of this plan.
    pub fn is_of_plan(&self, record: &Record) -> bool {
        let count = self.programs.len();
        let is_known = match record.subject {
            Subject::Alone(a) => a < count && record.seconds.len() == 1,
            Subject::Pair(a, b) => a <= b && b < count && record.seconds.len() == 2,
        };
        is_known && record.seconds.iter().all(|seconds| seconds.is_finite() && *seconds > 0.0)
    }
}
