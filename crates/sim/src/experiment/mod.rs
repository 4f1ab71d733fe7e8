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
use crate::scenario::{NO_BASELINE_RUNS, Scenario, ScenarioError, Variant, merge};
use finding::{Agreement, Finding, Judgement};
use placements::PlacementsSpec;
use serde::{Deserialize, Serialize};
use sets::SetsSpec;
use worlds::outcome::Outcome;
use worlds::parameter::{Parameter, ParameterFile, ParameterSpec};
use worlds::standing::WorldsResult;
use worlds::{Worlds, WorldsRequest};

pub mod finding;
mod measure;
pub mod placements;
mod published;
mod scenario;
pub mod sets;
pub mod worlds;

pub use measure::Measure;
pub use published::{ExperimentText, Published};
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
    /// What the paper leaves open.
    #[serde(default, rename = "world")]
    pub parameters: Vec<ParameterSpec>,
    /// Files with more of that, which experiments share.
    #[serde(default)]
    pub worlds: Vec<String>,
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
    /// What the paper leaves open.
    pub parameters: Vec<Parameter>,
    /// Its scenarios as written, in the order of the specification.
    tables: Vec<toml::Table>,
    /// Its scenarios.
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
    /// A parameter of worlds is invalid.
    #[error("{file}: world `{name}`: {problem}")]
    World {
        /// The file.
        file: String,
        /// Its name.
        name: String,
        /// The problem.
        problem: String,
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
        let mut open: Vec<(&str, ParameterSpec)> =
            spec.parameters.iter().map(|parameter| (file.as_str(), parameter.clone())).collect();
        for file in &spec.worlds {
            let more: ParameterFile = toml::from_str(&text(file)?).map_err(|error| syntax(file, error))?;
            open.extend(more.worlds.into_iter().map(|parameter| (file.as_str(), parameter)));
        }
        let mut parameters = Vec::new();
        for (file, parameter) in open {
            let fault = |problem| {
                let (file, name) = (file.to_owned(), parameter.name.clone());
                ExperimentError::World { file, name, problem }
            };
            for one in parameter.expand(&all_tables(&spec, &tables)?).map_err(fault)? {
                check_parameter(&one, &spec, &tables).map_err(fault)?;
                parameters.push(one);
            }
        }
        Self::new(name, spec.clone(), tables, parameters)
    }

    fn new(
        name: &str,
        spec: ExperimentSpec,
        tables: Vec<toml::Table>,
        parameters: Vec<Parameter>,
    ) -> Result<Self, ExperimentError> {
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
                .tables(set)
                .and_then(|machines| placements.results(patterns, machines))
                .map_err(in_placements),
        };
        let (mut rows, mut placed_rows) = (Vec::new(), Vec::new());
        if let Some(asked) = &spec.sensitivity {
            for set in sets(asked) {
                rows.push(row(asked, &set)?);
                placed_rows.push(placed(&asked.scenarios, &set)?);
            }
        }
        let placed = placed(&[], &[])?;
        let name = name.to_owned();
        let experiment = Self { name, parameters, tables, scenarios, rows, placed, placed_rows, spec };
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

    /// Draws worlds.
    pub fn worlds(&self, request: WorldsRequest) -> Worlds {
        Worlds::new(request, self.parameters.clone())
    }

    /// Runs everything in one world.
    pub fn in_world(&self, worlds: &Worlds, world: usize) -> Result<Outcome, ExperimentError> {
        let fault = |(name, problem)| ExperimentError::World { file: self.name.clone(), name, problem };
        let mut results = Vec::new();
        for (table, fixed) in self.tables.iter().zip(&self.scenarios) {
            let mut table = table.clone();
            worlds.apply(world, &mut table).map_err(fault)?;
            let simulate = || {
                let mut scenario = Scenario::from_table(table, &[])?;
                scenario.runs = worlds.request.runs;
                scenario.seed = worlds.first_seed(world, scenario.seed);
                scenario.variants.extend(worlds.request.policies.iter().cloned().map(Variant::policy));
                comparison::compare(&scenario, None)
            };
            let name = fixed.name.clone();
            let comparison =
                simulate().map_err(|source| ExperimentError::Scenario { scenario: name.clone(), source })?;
            results.push(ScenarioResult { name, comparison });
        }
        if let Some(placements) = &self.spec.placements {
            let mut machines = placements.tables(&[]).map_err(in_placements)?;
            for machine in &mut machines {
                worlds.apply(world, machine).map_err(fault)?;
            }
            results.extend(placements.results(&[], machines).map_err(in_placements)?);
        }
        Ok(Outcome::of(&self.spec.findings, self.spec.measure.or_speedup(), results))
    }

    /// Returns the result from the outcomes of all worlds, in their order.
    pub fn over_worlds(&self, worlds: Worlds, outcomes: Vec<Outcome>) -> WorldsResult {
        let spec = &self.spec;
        let text = ExperimentText {
            name: self.name.clone(),
            evidence: "simulated",
            title: spec.title.clone(),
            source: spec.source.clone(),
            figure: spec.figure.clone(),
        };
        let mut result = WorldsResult::new(text, (&spec.findings, &spec.published), worlds, outcomes);
        if spec.placements.is_some() {
            // The variants are machines.
            result.policies.clear();
        }
        result
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

fn in_placements(source: ScenarioError) -> ExperimentError {
    ExperimentError::Scenario { scenario: "placements".to_owned(), source }
}

/// Returns all scenarios as written, and the machines of `[placements]`.
fn all_tables(spec: &ExperimentSpec, tables: &[toml::Table]) -> Result<Vec<toml::Table>, ExperimentError> {
    let machines = spec.placements.as_ref().map(|placements| placements.tables(&[]));
    let machines = machines.transpose().map_err(in_placements)?;
    Ok(tables.iter().cloned().chain(machines.into_iter().flatten()).collect())
}

/// Checks that both ends of a parameter's range make a valid scenario; the error describes the problem.
fn check_parameter(
    parameter: &Parameter,
    spec: &ExperimentSpec,
    tables: &[toml::Table],
) -> Result<(), String> {
    for end in [0.0, 1.0] {
        let draw = parameter.at(end);
        let changed = |table: &toml::Table| {
            let mut table = table.clone();
            parameter.apply(&mut table, &draw).map(|()| table)
        };
        if let Some(table) = tables.first() {
            Scenario::from_table(changed(table)?, &[]).map_err(|error| error.to_string())?;
        }
        let machines = spec.placements.iter().flat_map(|placements| placements.tables(&[])).flatten();
        for table in machines {
            placements::machine(changed(&table)?).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
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
