//! The text is OpenMetrics, and everything that is written about the metrics names those that there are.

use super::*;
use crate::exposition::Metric;
use crate::treatments::Treatments;
use corewise_core::engine::{Engine, EngineConfig};
use corewise_core::policy;
use corewise_core::report::Sources;
use corewise_core::time::Time;
use corewise_core::topology::Topology;
use corewise_core::world::control_loop;
use corewise_core::world::scripted::{ScriptedThread, ScriptedWorld};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// What a daemon exposes that has watched a machine with two modules, on which `count` threads run.
fn exposed(count: usize, format: Format) -> String {
    let machine = Topology::synthetic("module:2 core:2 pu:1").unwrap();
    let treatments = Rc::new(RefCell::new(Treatments::read(Vec::new(), machine.clone()).unwrap()));
    let sources = Sources { discovery: "bpf".to_owned(), counters: "a \"b\"\n\\".to_owned() };
    let mut known = Known::new((sources, Vec::new()), treatments, true);
    let mut tally = Tally::new();
    let threads = vec![ScriptedThread::steady(0.9); count];
    let end = Time(0) + Duration::from_secs(12);
    let mut world = ScriptedWorld::new(vec![(Time(0), "0-3".parse().unwrap())], threads, end);
    let mut engine = Engine::new(machine, policy::build("spread").unwrap(), EngineConfig::default());
    let (mut looks, mut text) = (0, String::new());
    let Ok(()) = control_loop(&mut world, &mut engine, |input, actions, engine| {
        known.top.take(input, actions, engine);
        tally.take(input, engine);
        looks += u32::from(input.observation().is_some());
        if looks == 10 {
            let http = BTreeMap::from([("200", 2)]);
            let answers = Answers { clients: 3, cpu: Duration::from_millis(1500), http };
            text = super::text(&known, &tally, &answers, format, &[]);
        }
    });
    text
}

/// Checks a text by the rules of OpenMetrics that concern it, and returns the values of its series.
fn check(text: &str) -> HashMap<String, f64> {
    let mut series = HashMap::new();
    let mut families = BTreeSet::new();
    let (mut family, mut kind) = (String::new(), "");
    let body = text.strip_suffix("# EOF\n").expect("it ends with its mark");
    for line in body.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').expect("a help has words").0.to_owned();
            assert!(families.insert(family.clone()), "{family} is in one place");
            continue;
        }
        if let Some(of) = line.strip_prefix("# TYPE ") {
            kind = of.strip_prefix(&*family).expect("help and type are of one family").trim_start();
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert!(!family.ends_with("_total"), "{line}");
            continue;
        }
        let (id, value) = line.rsplit_once(' ').expect("a series has a value");
        let name = id.split('{').next().unwrap();
        let end = if kind == "counter" { "_total" } else { "" };
        assert_eq!(name, format!("{family}{end}"), "{line}");
        assert!(id == name || is_label_set(&id[name.len()..]), "{line}");
        let value: f64 = value.parse().unwrap();
        assert!(value.is_finite() && (kind != "counter" || value >= 0.0), "{line}");
        assert_eq!(series.insert(id.to_owned(), value), None, "{line} stands once");
    }
    series
}

/// Whether a text is `{name="value",…}` with escaped values.
fn is_label_set(text: &str) -> bool {
    let Some(mut rest) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) else { return false };
    loop {
        let Some((name, value)) = rest.split_once("=\"") else { return false };
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let mut characters = value.char_indices();
        let end = loop {
            match characters.next() {
                Some((_, '\\')) => match characters.next() {
                    Some((_, '\\' | '"' | 'n')) => {}
                    _ => return false,
                },
                Some((at, '"')) => break at,
                Some((_, '\n')) | None => return false,
                Some(_) => {}
            }
        };
        match (is_name, &value[end + 1..]) {
            (true, "") => return true,
            (true, more) if more.starts_with(',') => rest = &more[1..],
            _ => return false,
        }
    }
}

#[test]
fn the_text_is_openmetrics_and_says_what_the_daemon_does() {
    let series = check(&exposed(3, Format::OpenMetrics));
    let value = |id: &str| *series.get(id).unwrap_or_else(|| panic!("{id} in {series:#?}"));
    assert_eq!(value("corewise_threads{fpu=\"intensive\",class=\"HP\"}"), 3.0);
    assert_eq!(value("corewise_threads_placed{fpu=\"intensive\",class=\"HP\"}"), 3.0);
    assert_eq!(value("corewise_rule_threads{rule=\"no rule\"}"), 3.0);
    assert_eq!(value("corewise_threads_standing{standing=\"bound\"}"), 3.0);
    assert_eq!(value("corewise_changes_total{what=\"pes\",outcome=\"done\"}"), 3.0);
    assert_eq!(value("corewise_guard_verdicts_total{about=\"placement\",verdict=\"kept\"}"), 0.0);
    assert_eq!(value("corewise_applications{class=\"HP\",intensity=\"unknown\"}"), 1.0);
    assert_eq!((value("corewise_pes"), value("corewise_looks_total")), (4.0, 10.0));
    assert!((value("corewise_pes_busy") - 3.0).abs() < 0.2);
    assert_eq!(value("corewise_clients_cpu_seconds_total"), 1.5);
    assert_eq!((value("corewise_clients"), value("corewise_http_requests_total{code=\"200\"}")), (3.0, 2.0));
    assert_eq!(value("corewise_policy_info{policy=\"spread\"}"), 1.0);
    assert!(value("corewise_resident_memory_bytes") > 1e6);
}

#[test]
fn more_threads_make_no_more_series() {
    assert_eq!(
        check(&exposed(20, Format::OpenMetrics)).len(),
        check(&exposed(60, Format::OpenMetrics)).len()
    );
}

#[test]
fn files_have_the_older_format() {
    let text = exposed(3, Format::Prometheus);
    assert!(text.contains("# TYPE corewise_looks_total counter\ncorewise_looks_total 10\n"), "{text}");
    assert!(!text.contains("# EOF"));
}

fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

#[test]
fn the_page_lists_the_metrics() {
    let page = file("docs/metrics.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `corewise_")).collect();
    let expected = ALL.iter().map(|metric| {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} |", metric.sample_name(), labels.join(", "), metric.help)
    });
    assert_eq!(rows, expected.collect::<Vec<_>>());
}

/// Checks that every metric and label that an expression names is there.
fn check_expression(expression: &str) {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let mut named: Vec<&&Metric> = Vec::new();
    for word in words.filter(|word| word.starts_with("corewise_")) {
        let metric = ALL.iter().find(|metric| metric.sample_name() == word);
        named.push(metric.unwrap_or_else(|| panic!("there is no {word}: {expression}")));
    }
    // Prometheus itself says whether a daemon answers.
    assert!(!named.is_empty() || expression.starts_with("up{"), "{expression}");
    let knows = |label: &str| named.iter().any(|metric| metric.labels.contains(&label));
    let grouped =
        expression.split("by (").skip(1).flat_map(|rest| rest.split(')').next().unwrap().split(", "));
    let chosen = expression.split('{').skip(1).flat_map(|rest| rest.split('}').next().unwrap().split(", "));
    let chosen = chosen.map(|choice| choice.split(['=', '!']).next().unwrap());
    for label in grouped.chain(chosen) {
        assert!(["instance", "job"].contains(&label) || knows(label), "no label {label}: {expression}");
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_there_are() {
    let dashboard: Value = serde_json::from_str(&file("contrib/grafana-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets: Vec<&Value> = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()).collect();
    assert!(targets.len() >= panels.len());
    targets.iter().for_each(|target| check_expression(target["expr"].as_str().unwrap()));
}

#[test]
fn the_alerts_ask_for_metrics_that_there_are() {
    let text = file("contrib/prometheus-alerts.yml");
    let expressions = text.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    assert_eq!(expressions.map(check_expression).count(), text.matches("- alert: ").count());
    assert!(
        text.contains("- alert: CorewiseGuardTakesBackOften") && text.contains("- alert: CorewiseOwnCost")
    );
}
