//! Experiments: several scenarios, the findings of a paper, and whether the simulation agrees.
//!
//! Problem: a published figure summarises many runs under many conditions, with a claim about them ("ahead in
//! every workload with a highly parallel application"). Approach: an experiment is a text that names its
//! scenarios (files merged over each other, then values of its own), the claims in a checkable form
//! ([`finding`]), the paper's numbers, and settings that show how much the outcome depends on assumptions.
//! Scenarios and their parameters are fixed first; claims cannot change them. Source: the format is ours,
//! described in docs/experiments.md. All variants run with the same seeds, and a claim agrees only if the 95
//! % interval of its figure does. Limits: each claim is judged by itself; of twenty that are true by a hair
//! one may be missed by chance.

use crate::comparison::{self, Run, Task};
use crate::estimate::Estimate;
use crate::scenario::{NO_BASELINE_RUNS, Scenario, ScenarioError, merge};
use finding::{Agreement, Finding, Judgement};
use placements::PlacementsSpec;
use serde::{Deserialize, Serialize};
use sets::SetsSpec;

pub mod finding;
mod measure;
pub mod placements;
mod scenario;
pub mod sets;

pub use measure::Measure;
pub use scenario::{ScenarioResult, ScenarioSpec};

/// An experiment as written in its file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentSpec {
    /// What it shows.
    pub title: String,
    /// The publication.
    pub source: String,
    /// The figure or section in it.
    pub figure: String,
    /// A description of what is run, for the reader.
    pub about: String,
    /// The number of seeds per scenario.
    pub runs: u32,
    /// Of former versions.
    baseline_runs: Option<u32>,
    /// The figure that is shown for each variant.
    #[serde(default)]
    pub measure: Measure,
    /// Files that make up every scenario, later ones over earlier ones.
    #[serde(default)]
    pub files: Vec<String>,
    /// Values of every scenario, over the files.
    #[serde(default)]
    pub common: toml::Table,
    /// The scenarios.
    #[serde(default, rename = "scenario")]
    pub scenarios: Vec<ScenarioSpec>,
    /// Randomly drawn scenarios, after the others.
    pub sets: Option<SetsSpec>,
    /// Kernels on two PEs of several machines, after the others: kernels are scenarios, machines variants.
    pub placements: Option<PlacementsSpec>,
    /// Numbers of the paper that are shown beside ours.
    #[serde(default)]
    pub published: Vec<Published>,
    /// The findings of the paper.
    #[serde(default, rename = "finding")]
    pub findings: Vec<Finding>,
    /// Other values of assumptions.
    pub sensitivity: Option<SensitivitySpec>,
}

/// A number of the paper, as an effect over the default: 0.4 is 40 % faster.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The scenario.
    pub scenario: String,
    /// The variant.
    pub variant: String,
    /// The number, or the lower end of a range.
    pub lowest: f64,
    /// The upper end.
    pub highest: f64,
}

/// Variations that show how the outcome depends on assumptions.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensitivitySpec {
    /// The scenarios that are varied; all if left out. `*` stands for any text.
    #[serde(default)]
    pub scenarios: Vec<String>,
    /// The number of seeds.
    pub runs: u32,
    /// Of former versions.
    baseline_runs: Option<u32>,
    /// The settings.
    #[serde(rename = "setting")]
    pub settings: Vec<Setting>,
}

/// One row of the sensitivity table.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Its name in words.
    pub name: String,
    /// The values, as for `corewise sim --set`.
    pub set: Vec<String>,
}

/// An experiment that is ready to run.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// The specification.
    pub spec: ExperimentSpec,
    /// Its scenarios, in the order of the specification.
    scenarios: Vec<Scenario>,
    /// For each row of the sensitivity table, its scenarios with their index in `scenarios`.
    rows: Vec<Vec<(usize, Scenario)>>,
    /// The results of `[placements]`, and for each row of the table those that it selects.
    placed: Vec<ScenarioResult>,
    placed_rows: Vec<Vec<ScenarioResult>>,
}

/// The result of an experiment. Everything in it is simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExperimentResult {
    /// Its name.
    pub name: String,
    /// Always `simulated`.
    pub evidence: &'static str,
    /// What it shows.
    pub title: String,
    /// The publication.
    pub source: String,
    /// The figure or section in it.
    pub figure: String,
    /// What was run.
    pub about: String,
    /// The figure that is shown for each variant.
    pub measure: Measure,
    /// Each claim and its result.
    pub findings: Vec<Judgement>,
    /// Each scenario.
    pub scenarios: Vec<ScenarioResult>,
    /// Numbers of the paper.
    pub published: Vec<Published>,
    /// The sensitivity to assumptions; `null` if the experiment does not test it.
    pub sensitivity: Option<Sensitivity>,
}

/// How much the outcome depends on assumptions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The scenarios that were run.
    pub scenarios: Vec<String>,
    /// The number of seeds.
    pub runs: u32,
    /// The variants: the columns.
    pub variants: Vec<String>,
    /// One row per setting.
    pub rows: Vec<SensitivityRow>,
}

/// The outcome with other values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SensitivityRow {
    /// The setting in words.
    pub name: String,
    /// The values set.
    pub set: Vec<String>,
    /// Mean of the experiment's measure over the scenarios, by variant; `null` where one did not complete.
    pub means: Vec<Option<Estimate>>,
    /// The number of claims that agree on these scenarios.
    pub agree: usize,
    /// How many are undecided.
    pub undecided: usize,
    /// How many could be checked.
    pub checked: usize,
}

/// Why a text is not a valid experiment.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ExperimentError {
    /// The text cannot be parsed.
    #[error("{file}: {problem}")]
    Syntax {
        /// The file.
        file: String,
        /// The problem.
        problem: String,
    },
    /// A file is missing.
    #[error("{file}, which experiment `{experiment}` names, cannot be read: {problem}")]
    Missing {
        /// The experiment.
        experiment: String,
        /// The file.
        file: String,
        /// The problem.
        problem: String,
    },
    /// A scenario is invalid.
    #[error("scenario `{scenario}`: {source}")]
    Scenario {
        /// Its name.
        scenario: String,
        /// The problem.
        source: ScenarioError,
    },
    /// A name does not refer to a scenario or variant.
    #[error("{place} names `{name}`, which is not a {kind}")]
    NoSuch {
        /// Where it is used.
        place: String,
        /// The name.
        name: String,
        /// What it should be.
        kind: &'static str,
    },
}

/// One run that an experiment needs.
#[derive(Debug)]
pub struct Job<'a> {
    scenario: &'a Scenario,
    task: Task,
}

impl Job<'_> {
    /// Executes the run.
    pub fn run(&self) -> Result<Run, ScenarioError> {
        self.task.run(self.scenario, None)
    }
}

impl Experiment {
    /// Reads the experiment of a directory. `read` returns the text of a file, whose path is relative to the
    /// directory of all experiments.
    pub fn load(name: &str, read: impl Fn(&str) -> Result<String, String>) -> Result<Self, ExperimentError> {
        let file = format!("{name}/experiment.toml");
        let text = |file: &str| {
            read(file).map_err(|problem| ExperimentError::Missing {
                experiment: name.to_owned(),
                file: file.to_owned(),
                problem,
            })
        };
        let syntax = |file: &str, error: toml::de::Error| ExperimentError::Syntax {
            file: file.to_owned(),
            problem: error.to_string(),
        };
        let mut spec: ExperimentSpec = toml::from_str(&text(&file)?).map_err(|error| syntax(&file, error))?;
        let asked = spec.sensitivity.iter().map(|asked| asked.baseline_runs);
        if asked.chain([spec.baseline_runs]).flatten().next().is_some() {
            return Err(ExperimentError::Syntax { file, problem: NO_BASELINE_RUNS.to_owned() });
        }
        let table = |file: &str| toml::from_str::<toml::Table>(&text(file)?).map_err(|e| syntax(file, e));
        let mut common = toml::Table::new();
        for file in &spec.files {
            merge(&mut common, table(file)?);
        }
        merge(&mut common, spec.common.clone());
        if let Some(sets) = &spec.sets {
            let drawn = sets.scenarios(&common);
            let file = file.clone();
            spec.scenarios.extend(drawn.map_err(|problem| ExperimentError::Syntax { file, problem })?);
        }
        if spec.scenarios.is_empty() && spec.placements.is_none() {
            let problem = "it has no [[scenario]], no [sets] and no [placements]".to_owned();
            return Err(ExperimentError::Syntax { file, problem });
        }
        let mut tables = Vec::new();
        for scenario in &spec.scenarios {
            let mut own = common.clone();
            for file in &scenario.files {
                merge(&mut own, table(file)?);
            }
            merge(&mut own, scenario.with.clone());
            own.insert("name".to_owned(), scenario.name.clone().into());
            tables.push(own);
        }
        Self::new(name, spec, &tables)
    }

    fn new(name: &str, spec: ExperimentSpec, tables: &[toml::Table]) -> Result<Self, ExperimentError> {
        let scenario = |index: usize, runs: u32, set: &[String]| {
            let read = Scenario::from_table(tables[index].clone(), set);
            let name = spec.scenarios[index].name.clone();
            let mut scenario = read.map_err(|source| ExperimentError::Scenario { scenario: name, source })?;
            scenario.runs = runs;
            Ok(scenario)
        };
        let all = || 0..spec.scenarios.len();
        let scenarios: Vec<Scenario> =
            all().map(|index| scenario(index, spec.runs, &[])).collect::<Result<_, _>>()?;
        let as_fixed: &[String] = &[];
        let sets = |asked: &SensitivitySpec| -> Vec<Vec<String>> {
            let settings = asked.settings.iter().map(|setting| setting.set.as_slice());
            std::iter::once(as_fixed).chain(settings).map(<[String]>::to_vec).collect()
        };
        let row = |asked: &SensitivitySpec, set: &[String]| {
            let chosen = all().filter(|&index| finding::names(&asked.scenarios, &spec.scenarios[index].name));
            chosen
                .map(|index| Ok((index, scenario(index, asked.runs, set)?)))
                .collect::<Result<Vec<_>, ExperimentError>>()
        };
        let placed = |patterns: &[String], set: &[String]| match &spec.placements {
            None => Ok(Vec::new()),
            Some(placements) => placements
                .results(patterns, set)
                .map_err(|source| ExperimentError::Scenario { scenario: "placements".to_owned(), source }),
        };
        let (mut rows, mut placed_rows) = (Vec::new(), Vec::new());
        if let Some(asked) = &spec.sensitivity {
            for set in sets(asked) {
                rows.push(row(asked, &set)?);
                placed_rows.push(placed(&asked.scenarios, &set)?);
            }
        }
        let placed = placed(&[], &[])?;
        let experiment = Self { name: name.to_owned(), scenarios, rows, placed, placed_rows, spec };
        experiment.check_names()?;
        Ok(experiment)
    }

    /// Returns the experiment with another number of seeds for everything.
    pub fn with_runs(mut self, runs: u32) -> Self {
        let rows = self.rows.iter_mut().flatten().map(|(_, scenario)| scenario);
        for scenario in self.scenarios.iter_mut().chain(rows) {
            scenario.runs = runs;
        }
        self.spec.sensitivity.iter_mut().for_each(|asked| asked.runs = runs);
        self
    }

    /// Returns the runs that it needs, in the order that [`Self::result`] expects.
    pub fn jobs(&self) -> Vec<Job<'_>> {
        let of = |scenario| comparison::tasks(scenario).into_iter().map(move |task| Job { scenario, task });
        self.all_scenarios().flat_map(of).collect()
    }

    fn all_scenarios(&self) -> impl Iterator<Item = &Scenario> {
        self.scenarios.iter().chain(self.rows.iter().flatten().map(|(_, scenario)| scenario))
    }

    /// Returns the result from the results of all its jobs.
    pub fn result(&self, runs: &[Run]) -> ExperimentResult {
        let mut rest = runs;
        let mut compare = |scenario: &Scenario| {
            let (own, others) = rest.split_at(comparison::tasks(scenario).len());
            rest = others;
            ScenarioResult { name: scenario.name.clone(), comparison: comparison::combine(scenario, own) }
        };
        let mut scenarios: Vec<ScenarioResult> = self.scenarios.iter().map(&mut compare).collect();
        scenarios.extend(self.placed.iter().cloned());
        let rows = self.rows.iter().zip(&self.placed_rows).map(|(row, placed)| {
            let own = row.iter().map(|(_, scenario)| compare(scenario));
            own.chain(placed.iter().cloned()).collect()
        });
        let rows: Vec<Vec<ScenarioResult>> = rows.collect();
        let spec = &self.spec;
        ExperimentResult {
            name: self.name.clone(),
            evidence: "simulated",
            title: spec.title.clone(),
            source: spec.source.clone(),
            figure: spec.figure.clone(),
            about: spec.about.split_whitespace().collect::<Vec<_>>().join(" "),
            measure: spec.measure,
            findings: spec.findings.iter().map(|finding| finding.judge(&scenarios)).collect(),
            published: spec.published.clone(),
            sensitivity: spec.sensitivity.as_ref().map(|asked| self.sensitivity(asked, &rows)),
            scenarios,
        }
    }

    fn sensitivity(&self, asked: &SensitivitySpec, rows: &[Vec<ScenarioResult>]) -> Sensitivity {
        let spec = &self.spec;
        let variants = variant_names(rows.iter().flatten());
        let words = std::iter::once(("as fixed", Vec::new()))
            .chain(asked.settings.iter().map(|s| (s.name.as_str(), s.set.clone())));
        let row = |((name, set), results): ((&str, Vec<String>), &Vec<ScenarioResult>)| {
            let mean = |variant: &String| measure::mean_over(spec.measure, results.iter(), variant);
            let judged: Vec<Judgement> = spec.findings.iter().map(|finding| finding.judge(results)).collect();
            SensitivityRow {
                name: name.to_owned(),
                set,
                means: variants.iter().map(mean).collect(),
                agree: count(&judged, Agreement::Agrees),
                undecided: count(&judged, Agreement::Undecided),
                checked: judged.len() - count(&judged, Agreement::NotChecked),
            }
        };
        Sensitivity {
            scenarios: rows[0].iter().map(|result| result.name.clone()).collect(),
            runs: asked.runs,
            rows: words.zip(rows).map(row).collect(),
            variants,
        }
    }

    /// Checks that every name in claims and numbers refers to a scenario or variant.
    fn check_names(&self) -> Result<(), ExperimentError> {
        let fail = |place: String, name: &str, kind| {
            Err(ExperimentError::NoSuch { place, name: name.to_owned(), kind })
        };
        let is_scenario = |name: &str| {
            let pattern = [name.to_owned()];
            let simulated = self.spec.scenarios.iter().map(|scenario| &scenario.name);
            let mut all = simulated.chain(self.placed.iter().map(|result| &result.name));
            all.any(|name| finding::names(&pattern, name))
        };
        let machines: Vec<&str> = self.spec.placements.iter().flat_map(PlacementsSpec::machines).collect();
        let is_variant = |name: &str| {
            let mut variants = self.scenarios.iter().flat_map(|scenario| &scenario.variants);
            name == "default" || machines.contains(&name) || variants.any(|variant| variant.name == name)
        };
        let mut used: Vec<(String, Vec<&String>, Vec<&String>)> = Vec::new();
        for finding in &self.spec.findings {
            let place = format!("finding `{}`", finding.claim);
            let scenarios = finding.scenarios.iter().chain(finding.check.scenarios()).collect();
            used.push((place, scenarios, finding.check.variants()));
        }
        for number in &self.spec.published {
            used.push(("published".to_owned(), vec![&number.scenario], vec![&number.variant]));
        }
        let asked = self.spec.sensitivity.iter().flat_map(|asked| &asked.scenarios);
        used.push(("sensitivity".to_owned(), asked.collect(), Vec::new()));
        for (place, scenarios, variants) in used {
            if let Some(name) = scenarios.iter().find(|name| !is_scenario(name)) {
                return fail(place, name, "scenario");
            }
            if let Some(name) = variants.iter().find(|name| !is_variant(name)) {
                return fail(place, name, "variant");
            }
        }
        Ok(())
    }
}

/// Returns how many claims were checked with this result.
pub fn count(judged: &[Judgement], agreement: Agreement) -> usize {
    judged.iter().filter(|judgement| judgement.agreement == agreement).count()
}

/// Returns the names of the variants of several scenarios, each once, in order, without the baseline.
pub fn variant_names<'a>(results: impl Iterator<Item = &'a ScenarioResult>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for variant in results.flat_map(|result| result.comparison.variants.iter().skip(1)) {
        if !names.contains(&variant.name) {
            names.push(variant.name.clone());
        }
    }
    names
}

#[cfg(test)]
mod tests;
