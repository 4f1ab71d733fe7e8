use super::fixture::comparison;
use super::{csv, json, table};
use serde_json::Value;

/// What hyperfine's own scripts read of its export (scripts/plot_*.py, advanced_statistics.py).
#[derive(serde::Deserialize)]
struct HyperfineExport {
    results: Vec<HyperfineResult>,
}

#[derive(serde::Deserialize)]
struct HyperfineResult {
    command: String,
    mean: f64,
    stddev: Option<f64>,
    median: f64,
    user: f64,
    system: f64,
    min: f64,
    max: f64,
    times: Vec<f64>,
    exit_codes: Vec<Option<i32>>,
}

#[test]
fn what_reads_hyperfines_export_reads_ours() {
    let comparison = comparison();
    let text = json::write(&comparison, &comparison.findings());
    let export: HyperfineExport = serde_json::from_str(&text).unwrap();
    let [baseline, other] = export.results.as_slice() else { panic!("two variants") };
    assert_eq!((baseline.command.as_str(), baseline.times.len()), ("prog 'a b'", 20));
    assert_eq!((other.times.len(), other.exit_codes.len()), (10, 10));
    assert!(other.min <= other.median && other.median <= other.max && other.stddev.unwrap() > 0.0);
    assert!((other.mean / baseline.mean - 1.1).abs() < 0.01);
    assert_eq!((other.user, other.system), (0.5, 0.0));
}

#[test]
fn a_file_is_read_as_it_was_written_and_a_changed_one_is_refused() {
    let comparison = comparison();
    let text = json::write(&comparison, &comparison.findings());
    assert_eq!(json::parse(&text).unwrap(), comparison);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["corewise"]["evidence"], "measured");
    assert_eq!(document["corewise"]["comparison"]["trials"][0]["energy_joules"], Value::Null, "not 0");
    assert_eq!(document["results"][1]["effects"]["wall"]["verdict"], "more");
    let refused = |pointer: &str, value: Value, words: &str| {
        let mut document = document.clone();
        *document.pointer_mut(pointer).unwrap() = value;
        let error = format!("{:#}", json::parse(&document.to_string()).unwrap_err());
        assert!(error.contains(words), "no `{words}` in {error}");
    };
    refused("/corewise/version", 9.into(), "use the corewise that wrote it");
    refused("/corewise/comparison/plan/variants", Value::Array(Vec::new()), "nothing to run");
    refused("/corewise/comparison/trials/3/arm", 99.into(), "run 4 is not the one");
    refused("/corewise/comparison/trials", "x".into(), "give a file of `corewise compare --json`");
}

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
