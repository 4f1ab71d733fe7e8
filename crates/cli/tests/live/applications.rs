//! `corewise run --applications`: programs that a command executes are applications of their own.

use crate::common::{burn, corewise};
use corewise_testing::needs;
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::process::Stdio;

/// The applications in the report of a script that starts a single-threaded and a parallel program, and
/// twice more the first one.
fn applications(arguments: &[&str]) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    for name in ["single", "parallel"] {
        symlink(burn(), directory.path().join(name)).unwrap();
    }
    let report = directory.path().join("report.json");
    let script = "$0/single 0.5 int & $0/parallel 1 3*int & wait; $0/single 0.1 int; $0/single 0.1 int";
    let mut command = corewise();
    command.args(["run", "-q", "--interval", "100ms", "--report"]).arg(&report).args(arguments);
    command.args(["--", "sh", "-c", script]).arg(directory.path()).stdout(Stdio::null());
    assert!(command.status().unwrap().success());
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    report["applications"].as_array().unwrap().clone()
}

/// Whether this is the class of a program whose threads work at the same time. It is exact by BPF; an
/// estimate may take some more than 7 % of the time for that of one thread.
fn is_parallel(source: &str, class: &Value) -> bool {
    *class == "HP" || source == "poll" && *class == "PS"
}

fn each_program_has_its_own_parallelism(source: &str) {
    let mut applications = applications(&["--discovery", source]);
    // Where the end of a program is seen after the start of the next one of its name, that is another one.
    applications.retain(|app| !app["name"].as_str().unwrap().starts_with("single #"));
    let names: Vec<_> = applications.iter().map(|app| (&app["name"], &app["executed_by"])).collect();
    let (sh, nobody) = (Value::from("sh"), Value::Null);
    assert_eq!(
        names,
        [(&sh, &nobody), (&"parallel".into(), &sh), (&"single".into(), &sh)],
        "{applications:#?}"
    );
    let cpu: Vec<f64> = applications.iter().map(|app| app["cpu_seconds"].as_f64().unwrap()).collect();
    // The shell has what was not watched.
    assert!(cpu[0] < 0.5 && cpu[1] > 2.5 && cpu[1] < 3.5 && cpu[2] > 0.4 && cpu[2] < 1.0, "{cpu:?}");
    assert!(is_parallel(source, &applications[1]["parallelism_class"]), "{applications:#?}");
    assert_eq!(applications[2]["parallelism_class"], "ST");
    let most: Vec<u64> = applications.iter().map(|app| app["runnable_max"].as_u64().unwrap()).collect();
    assert!(most[1] >= 3 && most[2] <= 2, "{most:?}");
}

#[test]
fn two_programs_of_a_script_are_applications_with_their_own_parallelism() {
    each_program_has_its_own_parallelism("poll");
    needs!(Root);
    each_program_has_its_own_parallelism("bpf");
}

/// The names and classes of the applications of a script that starts one executable twice at once: with one
/// thread, and with eight, so that the last of these to end is alone for a small part of the time only.
fn copies(arguments: &[&str]) -> Vec<(String, String)> {
    let directory = tempfile::tempdir().unwrap();
    symlink(burn(), directory.path().join("sim")).unwrap();
    let report = directory.path().join("report.json");
    let script = "$0/sim 0.5 int & $0/sim 1 8*int & wait";
    let mut command = corewise();
    command.args(["run", "-q", "--interval", "100ms", "--report"]).arg(&report).args(arguments);
    command.args(["--", "sh", "-c", script]).arg(directory.path()).stdout(Stdio::null());
    assert!(command.status().unwrap().success());
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let text = |app: &Value, key: &str| app[key].as_str().unwrap_or_default().to_owned();
    let of = report["applications"].as_array().unwrap().iter();
    let mut of: Vec<_> = of.map(|app| (text(app, "name"), text(app, "parallelism_class"))).collect();
    of.retain(|(name, _)| name.starts_with("sim"));
    of.sort_by_key(|(_, class)| class.clone());
    of
}

#[test]
fn copies_of_one_executable_that_a_shell_starts_are_applications_with_their_own_parallelism() {
    let check = |source: &str| {
        let of = copies(&["--discovery", source]);
        let [(parallel, first), (single, second)] = &of[..] else { panic!("{of:?}") };
        let is_parallel = is_parallel(source, &first.as_str().into());
        assert!(is_parallel && second == "ST" && parallel != single, "{of:?}");
    };
    check("poll");
    needs!(Root);
    check("bpf");
}

#[test]
fn everything_below_a_command_is_one_application_on_request() {
    let applications = applications(&["--applications", "command"]);
    assert_eq!(applications.len(), 1, "{applications:#?}");
    assert!(applications[0]["cpu_seconds"].as_f64().unwrap() > 3.5, "{applications:#?}");
    assert!(applications[0]["runnable_max"].as_u64().unwrap() >= 3, "{applications:#?}");
}
