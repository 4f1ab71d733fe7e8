//! `corewise model`: what programs cost each other, fitted to measured slowdowns and judged by unseen ones.

pub mod file;
pub mod table;

use crate::outputs::{JsonOutput, OutputFile};
use crate::whole_file;
use anyhow::Result;
use corewise_core::interference::{Answer, Check, Errors, FACTORS_MAX, Factors, Known, Question, check};
use corewise_render::table::Table;
use corewise_render::terminal::Name;
use file::ModelFile;
use std::path::PathBuf;

/// Fit what programs cost each other, and judge that by programs it has not seen.
///
/// A table is CSV with the columns program, injector, slowdown (the time beside the injector over the time
/// alone), and optionally team or machine, place, intensity, low, high. Lines that begin with # are comments.
#[derive(Debug, clap::Args)]
pub struct Model {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Choose a form by cross-validation, and fit it to a table
    Fit {
        /// The table of slowdowns
        #[arg(value_name = "TABLE")]
        table: PathBuf,
        /// Write the model, with what it was made of
        #[arg(long, short, value_name = "FILE")]
        output: Option<OutputFile>,
        #[command(flatten)]
        json: JsonOutput,
    },
    /// Show the terms of a model, and what dropping each costs
    Show {
        /// The model
        #[arg(value_name = "MODEL")]
        model: PathBuf,
        #[command(flatten)]
        json: JsonOutput,
    },
    /// Leave out each program, injector and cell of a table, and predict it from the rest
    Check {
        /// The table of slowdowns
        #[arg(value_name = "TABLE")]
        table: PathBuf,
        #[command(flatten)]
        json: JsonOutput,
    },
}

impl Model {
    /// Fits, shows or judges a model; returns the exit status.
    pub fn execute(self) -> Result<u8> {
        match self.action {
            Action::Fit { table: path, output, json } => {
                let table = table::read(&path)?;
                let fitted = ModelFile::fit(&path, &table);
                if let Some(output) = &output {
                    whole_file::write(output, (serde_json::to_string_pretty(&fitted)? + "\n").as_bytes())?;
                }
                if output.is_none_or(|output| !output.is_stdout()) {
                    json.show(&fitted, || described(&fitted))?;
                }
            }
            Action::Show { model, json } => {
                let model = file::read(&model)?;
                json.show(&model, || described(&model))?;
            }
            Action::Check { table: path, json } => {
                let check = check(&table::read(&path)?.table);
                json.show(&check, || judged(&check))?;
            }
        }
        Ok(0)
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn figures(errors: &Errors) -> [String; 4] {
    let count = errors.predictions.to_string();
    [count, percent(errors.mean), percent(errors.p90), format!("{:.2}", errors.r_squared)]
}

/// The heading of [`figures`].
const FIGURES: [&str; 4] = ["predicted", "error", "90th percentile", "R²"];

fn judged(check: &Check) -> String {
    let mut table = Table::new("<<>>>><");
    table.words(&format!(
        "{} cells: {} programs beside {} neighbours{}; chosen for all of them: {}\n",
        check.cells,
        check.programs,
        check.neighbours,
        if check.teams > 1 { format!(", medians of {} teams", check.teams) } else { String::new() },
        check.form
    ));
    let [count, error, p90, r_squared] = FIGURES;
    table.row(["left out", "known of it", count, error, p90, r_squared, "form chosen without it"]);
    let mut row = |what: &str, known: String, errors: &Errors, form: String| {
        let [count, error, p90, r_squared] = figures(errors);
        table.row([what.to_owned(), known, count, error, p90, r_squared, form]);
    };
    if let Some(errors) = &check.in_sample {
        row("nothing", "all".to_owned(), errors, check.form.to_string());
    }
    for answer in &check.answers {
        row(left_out(answer.left_out), known(answer), &answer.errors, answer.form.to_string());
    }
    if let Some(errors) = &check.ceiling {
        row("a team", "the mean of the other teams".to_owned(), errors, String::new());
    }
    table.to_string()
}

fn left_out(question: Question) -> &'static str {
    match question {
        Question::Program => "a program",
        Question::Injector => "an injector",
        Question::Cell => "a cell",
    }
}

fn known(answer: &Answer) -> String {
    let cells = |count: usize| match count {
        0 => "nothing".to_owned(),
        1 => "1 cell".to_owned(),
        _ => format!("{count} cells"),
    };
    match answer.known {
        Known::Any(0) => cells(0),
        Known::Any(count) => format!("any {}", cells(count)),
        Known::Best(count) => {
            let names: Vec<String> = answer.best.iter().map(|name| Name(name).to_string()).collect();
            format!("the best {}, mostly {}", cells(count), names.join(" and "))
        }
        Known::Others => "the others".to_owned(),
    }
}

/// Returns the description of a model for people.
pub fn described(file: &ModelFile) -> String {
    let of = &file.provenance;
    let mut table = Table::new("<>>>>");
    table.words(&format!(
        "{}\nfitted to {} rows of {} ({}), {} s after 1970, by corewise {}\n",
        file.model.form,
        of.rows,
        Name(&of.table),
        Name(&of.hash),
        of.unix_seconds,
        Name(&of.corewise)
    ));
    table.words("errors without a term: programs that are left out, of which two cells are known");
    let [count, error, p90, r_squared] = FIGURES;
    table.row(["dropped", count, error, p90, r_squared]);
    for term in &file.terms {
        let [count, error, p90, r_squared] = figures(&term.errors);
        table.row([Name(&term.dropped).to_string(), count, error, p90, r_squared]);
    }
    if let Some(errors) = &file.in_sample {
        let [count, error, p90, r_squared] = figures(errors);
        table.row(["(in sample)".to_owned(), count, error, p90, r_squared]);
    }
    let factors = match file.model.form.factors {
        Factors::None => 0,
        Factors::Alike => 1,
        Factors::Several(count) => count.min(FACTORS_MAX),
    };
    let shown = |name: &str, values: &[f64]| {
        let values = values.iter().map(|value| format!("{value:+.3}"));
        [Name(name).to_string()].into_iter().chain(values).collect::<Vec<_>>()
    };
    table.words("\nneighbours: the base, then the pressure of each factor");
    for (column, pressure) in file.columns.iter().zip(&file.model.columns) {
        let values = [&[pressure.base], &pressure.factors[..factors]].concat();
        table.row(shown(&column.to_string(), &values));
    }
    table.words("\nprograms: the sensitivity by each factor");
    for (program, sensitivity) in file.programs.iter().zip(&file.model.programs) {
        table.row(shown(program, &sensitivity.factors[..factors]));
    }
    table.to_string()
}
