//! Tables for spreadsheets and scripts, in the format of RFC 4180.

/// Returns a heading and its rows, which all have the same number of cells.
pub(crate) fn table<'a, Row: IntoIterator<Item = String>>(
    heading: impl IntoIterator<Item = &'a str>,
    rows: impl IntoIterator<Item = Row>,
) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let memory = "memory takes everything, and all rows have as many cells";
    writer.write_record(heading).expect(memory);
    rows.into_iter().for_each(|row| writer.write_record(row).expect(memory));
    String::from_utf8(writer.into_inner().expect(memory)).expect("it was made of texts")
}
