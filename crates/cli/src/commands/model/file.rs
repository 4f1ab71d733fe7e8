//! Fitted models on disk.

use super::table::TableFile;
use anyhow::{Context, Result, bail};
use corewise_core::interference::{Column, Errors, Form, Model, Term, choose, terms};
use corewise_sys::input;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::SystemTime;

const FORMAT: &str = "corewise interference model";
const VERSION: u32 = 1;

/// A model with what it was made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    format: String,
    version: u32,
    /// What it was made of.
    pub provenance: Provenance,
    /// The programs, in the model's order.
    pub programs: Vec<String>,
    /// The neighbours, in the model's order.
    pub columns: Vec<Column>,
    /// The model.
    pub model: Model,
    /// What each term is good for.
    pub terms: Vec<Term>,
    /// The values on which it was fitted, predicted by it.
    pub in_sample: Option<Errors>,
}

/// What a model was made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The file with the table.
    pub table: String,
    /// The hash of its bytes.
    pub hash: String,
    /// The number of its rows.
    pub rows: usize,
    /// When the model was fitted, in seconds since 1970.
    pub unix_seconds: u64,
    /// The version of corewise.
    pub corewise: String,
}

impl ModelFile {
    /// Chooses a form for a table and fits it.
    pub fn fit(path: &Path, file: &TableFile) -> ModelFile {
        let table = &file.table;
        let form: Form = choose(table);
        let model = Model::fit(table, &table.cells, form);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let provenance = Provenance {
            table: path.display().to_string(),
            hash: file.hash.clone(),
            rows: file.rows,
            unix_seconds: since.map_or(0, |since| since.as_secs()),
            corewise: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let own = table.cells.iter().map(|cell| {
            let (program, beside) = (&model.programs[cell.program], &model.columns[cell.column]);
            (cell.slowdown, model.slowdown(program, beside, cell.intensity))
        });
        ModelFile {
            format: FORMAT.to_owned(),
            version: VERSION,
            provenance,
            programs: table.programs.clone(),
            columns: table.columns.clone(),
            in_sample: Errors::of(own),
            terms: terms(table, form),
            model,
        }
    }
}

/// Reads a file.
pub fn read(path: &Path) -> Result<ModelFile> {
    let shown = path.display();
    let text = input::read_text(path, input::DOCUMENT_MAX)
        .with_context(|| format!("cannot read the model {shown}: `corewise model fit` makes one"))?;
    parse(&text).with_context(|| format!("{shown} is not a model: give a file of `corewise model fit`"))
}

/// Parses the text of a file, for [`read`].
pub fn parse(text: &str) -> Result<ModelFile> {
    let file: ModelFile = serde_json::from_str(text)?;
    if file.format != FORMAT || file.version != VERSION {
        bail!("its format is `{}` version {}: use the corewise that wrote it", file.format, file.version);
    }
    let (programs, columns) = (file.model.programs.len(), file.model.columns.len());
    if programs != file.programs.len() || columns != file.columns.len() {
        bail!("it names other programs and neighbours than it has: fit it again");
    }
    Ok(file)
}
