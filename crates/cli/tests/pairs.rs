//! `corewise pairs` through the binary, on commands that take moments.

use corewise_store::Store;
use corewise_testing::needs;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn pairs(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corewise"));
    command.arg("pairs").args(arguments);
    command
}

fn success(mut command: Command) -> String {
    let output = command.output().expect("corewise starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn path(directory: &tempfile::TempDir, name: &str) -> String {
    directory.path().join(name).to_str().expect("a path in UTF-8").to_owned()
}

fn records(store: &str) -> Vec<String> {
    let store = Store::open(Path::new(store), "corewise pairs").expect("a store");
    store.records().expect("records")
}

#[test]
fn pairs_are_measured_bound_and_written_in_every_form() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().expect("a directory");
    let [csv, html, masks] = ["s.csv", "p.html", "masks"].map(|name| path(&directory, name));
    let shows = format!("grep Cpus_allowed_list /proc/self/status >> {masks}; sleep 0.1");
    let arguments = ["--runs", "1", "--json", "--csv", &csv, "--html", &html, &shows, "sleep 0.2"];
    let found: Value = serde_json::from_str(&success(pairs(&arguments))).expect("JSON");
    let pairs = found["findings"]["pairs"].as_array().expect("pairs");
    assert_eq!(pairs.len(), 3);
    assert!(pairs.iter().all(|pair| pair["measured"] == true && pair["gain"]["value"].is_f64()));
    let table = std::fs::read_to_string(&csv).expect("a table");
    assert_eq!(table.lines().count(), 1 + 4, "{table}");
    assert!(std::fs::read_to_string(&html).expect("a page").contains("beside sleep 0.2"));
    // Alone and first on one PE, in a pair of two copies also on the other.
    let masks = std::fs::read_to_string(&masks).expect("masks");
    let masks: std::collections::BTreeSet<&str> = masks.lines().collect();
    let pes: Vec<String> =
        found["plan"]["pes"].as_array().expect("PEs").iter().map(Value::to_string).collect();
    let expected = pes.iter().map(|pe| masks.iter().any(|mask| mask.ends_with(&format!("\t{pe}"))));
    assert!(masks.len() == 2 && expected.into_iter().all(|is| is), "{masks:?} instead of {pes:?}");
}

#[test]
fn killed_it_keeps_every_finished_run_and_goes_on_later() {
    needs!(TwoPes);
    let directory = tempfile::tempdir().expect("a directory");
    let store = path(&directory, "pairs.sqlite");
    let arguments = ["--runs", "2", "--store", &store, "sleep 0.05", "sleep 0.06"];
    let mut child = pairs(&arguments).spawn().expect("corewise starts");
    let end = Instant::now() + Duration::from_secs(120);
    while !Path::new(&store).exists() || records(&store).len() < 3 {
        assert!(Instant::now() < end, "three runs: not within two minutes");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    let before = records(&store);
    success(pairs(&arguments));
    let after = records(&store);
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.len(), 2 * (2 + 3));
    success(pairs(&arguments));
    assert_eq!(records(&store), after, "nothing is left to do");
    let other = pairs(&["--store", &store, "true"]).output().expect("corewise starts");
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(!other.status.success() && said.contains("other programs or PEs: name another file"), "{said}");
}
