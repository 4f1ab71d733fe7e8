//! Tables of slowdowns, as CSV.

use anyhow::{Context, Result, bail};
use corewise_core::interference::{Row, Table};
use corewise_sys::input;
use std::path::Path;

/// The columns that a table may have. The last three of the first row are needed.
const COLUMNS: [&str; 9] =
    ["program", "injector", "slowdown", "team", "machine", "place", "intensity", "low", "high"];

/// A table with what identifies its file.
#[derive(Debug)]
pub struct TableFile {
    /// The table.
    pub table: Table,
    /// The number of rows.
    pub rows: usize,
    /// FNV-1a of the file's bytes, in 64 bits.
    pub hash: String,
}

/// Reads a file.
pub fn read(path: &Path) -> Result<TableFile> {
    let shown = path.display();
    let text = input::read_text(path, input::DOCUMENT_MAX).with_context(|| {
        format!("cannot read the table {shown}: give a CSV file `program,injector,slowdown`")
    })?;
    parse(&text).with_context(|| format!("{shown} is not a table of slowdowns"))
}

/// Parses the text of a file, for [`read`].
pub fn parse(text: &str) -> Result<TableFile> {
    let mut reader =
        csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers()?.clone();
    if let Some(unknown) = header.iter().find(|name| !COLUMNS.contains(name)) {
        bail!("the column `{unknown}` is unknown: there are {}", COLUMNS.join(", "));
    }
    if let Some(absent) = COLUMNS[..3].iter().find(|name| !header.iter().any(|there| there == **name)) {
        bail!("there is no column `{absent}`: write a first line such as `program,injector,slowdown`");
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.context("write as many fields as in the first line")?;
        let line = record.position().map_or(0, csv::Position::line);
        rows.push(row(&header, &record).with_context(|| format!("line {line}"))?);
    }
    Ok(TableFile { table: Table::new(&rows)?, rows: rows.len(), hash: hash(text.as_bytes()) })
}

fn row(header: &csv::StringRecord, record: &csv::StringRecord) -> Result<Row> {
    let field = |name: &str| {
        let index = header.iter().position(|column| column == name)?;
        record.get(index).filter(|value| !value.is_empty())
    };
    let text = |name: &str| field(name).map(str::to_owned);
    let number = |name: &str| {
        let parsed = |value: &str| {
            value.parse().ok().with_context(|| format!("{name} is `{value}`: write a number such as 1.25"))
        };
        field(name).map(parsed).transpose()
    };
    let empty = |name: &str| format!("{name} is empty: write one in each line");
    Ok(Row {
        team: text("team").or(text("machine")),
        program: text("program").with_context(|| empty("the program"))?,
        injector: text("injector").with_context(|| empty("the injector"))?,
        place: text("place"),
        intensity: number("intensity")?,
        slowdown: number("slowdown")?.with_context(|| empty("the slowdown"))?,
        low: number("low")?,
        high: number("high")?,
    })
}

/// Returns FNV-1a of bytes (G. Fowler, L. C. Noll, K.-P. Vo).
fn hash(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("fnv1a64:{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &str) -> String {
        let rows = ["a", "b", "c", "d"]
            .iter()
            .flat_map(|program| ["x", "y", "z"].map(|injector| format!("{program},{injector},1.5\n")));
        format!("# a comment\nprogram,injector,slowdown\n{}{lines}", rows.collect::<String>())
    }

    #[test]
    fn a_table_has_comments_and_quoted_names() {
        let file = parse(&table("\"gzip -1, twice\", x, 2\n")).unwrap();
        assert_eq!((file.rows, file.table.cells.len()), (13, 13));
        assert_eq!(file.table.programs[4], "gzip -1, twice");
        assert_eq!(hash(b"a"), "fnv1a64:af63dc4c8601ec8c", "a published value");
    }

    #[test]
    fn errors_name_line_and_remedy() {
        for (text, words) in [
            ("program,injector\na,b\n".to_owned(), "there is no column `slowdown`: write"),
            ("program,injector,slow\n".to_owned(), "`slow` is unknown: there are program,"),
            ("program,injector,slowdown\na,b,1.5\n".to_owned(), "1 programs beside 1 neighbours: give"),
            (table("a,x,fast\n"), "line 15: slowdown is `fast`: write a number"),
            (table("a,x\n"), "write as many fields"),
            (table("a,,2\n"), "line 15: the injector is empty: write"),
            (table("a,x,-1\n"), "a beside x: the slowdown is -1: write a number from"),
        ] {
            let error = format!("{:#}", parse(&text).unwrap_err());
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
