use super::fixture::comparison;
use super::{csv, table};

#[test]
fn csv_has_a_line_for_each_run_with_its_columns() {
    let mut comparison = comparison();
    comparison.plan.variants[1].name = "a, \"b\"".to_owned();
    let text = csv::write(&comparison);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 31);
    let columns = lines[0].split(',').count();
    assert!(lines[1..].iter().all(|line| line.replace("a, ", "a ").split(',').count() == columns), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("1,\"a, \"\"b\"\"\",false,1.1,")), "{text}");
}

#[test]
fn the_table_says_what_follows() {
    let comparison = comparison();
    let text = table::render(&comparison, &comparison.findings());
    insta::assert_snapshot!(text);
}
