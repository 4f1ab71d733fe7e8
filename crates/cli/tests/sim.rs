//! `corewise sim` through the binary.

use assert_cmd::Command;
use corewise_testing::needs;
use std::path::PathBuf;

/// Four threads on four PEs of two kinds; a second and a half of simulated time.
const SCENARIO: &str = r#"
name = "small"
runs = 2
stop = { completions = 2 }

[machine]
name = "1FC-3SC"
topology = "pack:1 l3:1(size=2MB) core:4 pu:1"
speeds = [{ pes = "1-3", speed = 0.5 }]

[demand]
int = { ipc = 1.2 }

[[application]]
name = "serial"
steps = [{ each = { mcycles = 300, demand = "int" } }]

[[application]]
name = "loops"
threads = 3
wait = { adaptive = { block_after = "1ms" } }
steps = [{ repeat = { times = 10, steps = [{ parallel = { mcycles = 60, demand = "int" } }] } }]
"#;

fn corewise(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("corewise"));
    command.args(args);
    command
}

fn file(directory: &tempfile::TempDir, text: &str) -> String {
    let path = directory.path().join("scenario.toml");
    std::fs::write(&path, text).expect("a temporary file");
    path.into_os_string().into_string().expect("a path in UTF-8")
}

fn stdout(args: &[&str]) -> String {
    let output = corewise(args).assert().success().stderr("");
    String::from_utf8(output.get_output().stdout.clone()).expect("UTF-8")
}

fn experiment(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(name);
    path.into_os_string().into_string().expect("a path in UTF-8")
}

#[test]
fn the_largest_seed_is_a_seed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = file(&directory, SCENARIO);
    let text = stdout(&["sim", &path, "--seed", "18446744073709551615", "--html", &format!("{path}.html")]);
    assert!(text.contains("seeds 18446744073709551615 to 0\n"), "{text}");
}

#[test]
fn every_result_says_that_it_is_simulated() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = file(&directory, SCENARIO);
    let text = stdout(&["sim", &path, "--timeline"]);
    assert!(text.contains("simulated: small\non 1FC-3SC: "), "{text}");
    for words in ["\ndefault\n", "\nspread\n", "geometric mean", "PE 3 ", "A serial\nB loops\n"] {
        assert!(text.contains(words), "no `{words}` in: {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&stdout(&["sim", &path, "--json"])).expect("JSON");
    assert_eq!(json["evidence"], "simulated");
    let baseline = &json["variants"][0];
    assert_eq!((&baseline["name"], &baseline["speedup"]["value"]), (&"default".into(), &1.0.into()));
    let serial = &baseline["applications"][0];
    let seconds = serial["seconds"]["value"].as_f64().expect("it completes");
    assert!((0.3..=0.61).contains(&seconds), "300 million cycles at 0.5 to 1 GHz: {seconds}");
    assert!(serial["fast_share"]["value"].is_number(), "{serial}");
}

#[test]
fn energy_is_shown_where_power_is_described() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = file(&directory, SCENARIO);
    let plain = stdout(&["sim", &path]);
    assert!(!plain.contains("joules") && !plain.contains("energy"), "{plain}");
    let power = "machine.power={ domain = [{ pes = '0-3', points = [{ ghz = 1.0, volt = 1.0 }], \
                 dynamic_uw_per_mhz_v2 = 1000 }] }";
    let text = stdout(&["sim", &path, "--set", power]);
    assert!(text.contains("joules\n") && text.contains(" W, energy-delay product "), "{text}");
    let energy = |args: &[&str]| {
        let json: serde_json::Value = serde_json::from_str(&stdout(args)).expect("JSON");
        json["variants"][0]["energy"]["joules"]["value"].as_f64()
    };
    assert_eq!(energy(&["sim", &path, "--json"]), None);
    assert!(energy(&["sim", &path, "--set", power, "--json"]).is_some_and(|joules| joules > 0.0));
    let unknown = corewise(&["sim", &path, "--set", "machine.power={ preset = 'mine' }"]).assert().failure();
    let error = String::from_utf8_lossy(&unknown.get_output().stderr).into_owned();
    assert!(error.contains("there are: exynos5422"), "{error}");
}

#[test]
fn a_seed_fixes_every_byte() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = file(&directory, SCENARIO);
    let run = |seed: &str| stdout(&["sim", &path, "--seed", seed, "--runs", "1", "--json"]);
    assert_eq!(run("4"), run("4"));
    assert_ne!(run("4"), run("5"));
}

#[test]
fn policies_and_values_can_be_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = file(&directory, SCENARIO);
    let args = ["sim", &path, "--policy", "default", "--set", "machine.ghz=2.0", "--json"];
    let json: serde_json::Value = serde_json::from_str(&stdout(&args)).expect("JSON");
    assert_eq!(json["variants"].as_array().map(Vec::len), Some(1), "the baseline is not run twice");
    let seconds = json["variants"][0]["applications"][0]["seconds"]["value"].as_f64().expect("it completes");
    assert!((0.15..=0.31).contains(&seconds), "at twice the clock: {seconds}");
}

#[test]
fn errors_name_the_file_and_the_item() {
    let directory = tempfile::tempdir().expect("a directory");
    let good = file(&directory, SCENARIO);
    for (args, words) in [
        (vec!["sim", "no/such.toml"], "no/such.toml"),
        (vec!["sim", &good, "--policy", "best"], "there is no policy `best`"),
        (vec!["sim", &good, "--set", "runs=0"], "scenario.toml: scenario `small`: runs"),
        (vec!["sim", &good, "--set", "machine.topology='core:2'"], "machine `1FC-3SC`"),
    ] {
        let output = corewise(&args).assert().code(1).stdout("");
        let stderr = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
        assert!(stderr.starts_with("corewise: ") && stderr.contains(words), "{args:?}: {stderr}");
    }
}

/// The sign of the paper's result, with few seeds: the experiment's own file is run for the figures.
#[test]
fn bulldovers_placement_beats_the_worst_one() {
    let path = experiment("bulldover/hmmer-povray.toml");
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&["sim", &path, "--runs", "3", "--json"])).expect("JSON");
    let speedup = |name: &str| {
        let variants = json["variants"].as_array().expect("variants");
        let variant = variants.iter().find(|variant| variant["name"] == name).expect(name);
        variant["speedup"]["value"].as_f64().expect("all complete")
    };
    assert!(speedup("BulldOver") / speedup("like with like") > 1.08);
    assert!((speedup("BulldOver") / speedup("unlike together") - 1.0).abs() < 0.01);
}

#[test]
fn random_scenarios_are_tried_with_the_policies_that_are_asked_for() {
    let text = stdout(&["sim", "--fuzz", "3", "--seed", "40", "--policy", "pa", "--jobs", "2"]);
    assert!(text.starts_with("simulated: seeds 40 to 42: 0 failed; "), "{text}");
    let fails = |args: &[&str]| {
        let output = corewise(args).assert().failure().stdout("");
        String::from_utf8_lossy(&output.get_output().stderr).into_owned()
    };
    let unknown = fails(&["sim", "--fuzz", "3", "--policy", "best"]);
    assert!(unknown.contains("there is no policy `best`") && unknown.contains("wild"), "{unknown}");
    assert!(fails(&["sim"]).contains("<SCENARIO>"));
    assert!(fails(&["sim", "x.toml", "--fuzz", "3"]).contains("cannot be used with"));
}

#[test]
fn the_scenario_of_the_documentation_runs() {
    let page = include_str!("../../../docs/sim.md");
    let from = page.find("```toml\n").expect("an example") + "```toml\n".len();
    let example = &page[from..from + page[from..].find("```").expect("its end")];
    let directory = tempfile::tempdir().expect("a directory");
    let text = stdout(&["sim", &file(&directory, example), "--runs", "1"]);
    assert!(text.contains("serial on the fast core (policy default)"), "{text}");
}

#[test]
fn a_calibrated_machine_runs_scenarios_and_is_held_against_its_pairs() {
    let directory = tempfile::tempdir().expect("a directory");
    let machine = "pack:1 l3:1(size=16MB) l2:4(size=512kB) core:1 pu:1";
    let profile = directory.path().join("profile.json");
    let profile = profile.to_str().expect("a path in UTF-8");
    let kernels = "read,write,load-latency,int-add-chain";
    corewise(&["calibrate", "--quick", "--machine", machine, "--kernels", kernels, "--output", profile])
        .assert()
        .success();
    let text = stdout(&["sim", "--check-profile", profile]);
    for words in ["ghz ", "not measured: the simulator's default", "write 64 MiB", "(fitted)", "predictions"]
    {
        assert!(text.contains(words), "no `{words}` in: {text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&["sim", "--check-profile", profile, "--json"])).expect("JSON");
    assert_eq!(json["evidence"], "simulated");

    // The path is one from where the scenario lies.
    let table = "[machine]\nname = \"1FC-3SC\"\ntopology = \"pack:1 l3:1(size=2MB) core:4 pu:1\"\n\
                 speeds = [{ pes = \"1-3\", speed = 0.5 }]\n";
    let scenario = file(&directory, &SCENARIO.replace(table, "machine.profile = \"profile.json\"\n"));
    let text = stdout(&["sim", &scenario]);
    assert!(text.contains("4 PEs as calibrated"), "{text}");
    let missing = file(&directory, &SCENARIO.replace(table, "machine.profile = \"none.json\"\n"));
    let output = corewise(&["sim", &missing]).assert().code(1).get_output().clone();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("none.json") && error.contains("corewise calibrate"), "{error}");
}

/// The documentation's workload of rt-app: keys again and in order, a timer, a lock, an affinity.
fn documented_workload() -> &'static str {
    let page = include_str!("../../../docs/sim.md");
    let from = page.find("```json\n").expect("an example") + "```json\n".len();
    &page[from..from + page[from..].find("```").expect("its end")]
}

fn json_file(directory: &tempfile::TempDir, text: &str) -> String {
    let path = directory.path().join("workload.json");
    std::fs::write(&path, text).expect("a temporary file");
    path.into_os_string().into_string().expect("a path in UTF-8")
}

#[test]
fn a_workload_of_rt_app_is_simulated() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = json_file(&directory, documented_workload());
    let machine = "pack:1 l3:1(size=2MB) core:2 pu:1";
    let arguments = ["sim", &path, "--machine", machine, "--policy", "rr", "--runs", "2"];
    let text = stdout(&arguments);
    assert!(text.contains("simulated: rt-app: workload\n"), "{text}");
    for task in ["  burst", "  tick", "  locked"] {
        assert!(text.contains(task), "{text}");
    }
    let set = stdout(&[&arguments[..], &["--set", "demand.run.fpu=0.5", "--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&set).expect("JSON");
    assert_eq!(json["evidence"], "simulated");
    let tick = json["variants"][0]["applications"][1]["seconds"]["value"].as_f64().expect("it completes");
    assert!((0.9..=1.3).contains(&tick), "fifty periods of 20 ms: {tick}");
}

/// A machine of the fixtures.
fn machine(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../topology/tests/machines").join(name);
    path.into_os_string().into_string().expect("a path in UTF-8")
}

#[test]
fn a_machine_may_be_a_file_of_hwloc_or_a_recording() {
    let directory = tempfile::tempdir().expect("a directory");
    let workload = json_file(&directory, documented_workload());
    for (name, pes) in [("AMD-K8-SantaRosa-2xOpteron-2218.xml", 4), ("8em64t-2s2ca2c.tar.gz", 8)] {
        let path = machine(name);
        let timeline = ["--policy", "default", "--runs", "1", "--timeline"];
        let drawn = |text: &str, pes: usize| {
            text.contains(&format!("\nPE {} ", pes - 1)) && !text.contains(&format!("\nPE {pes} "))
        };
        let text = stdout(&[&["sim", &workload, "--machine", &path], &timeline[..]].concat());
        assert!(drawn(&text, pes), "{text}");
        let of_scenario = SCENARIO
            .replace("pack:1 l3:1(size=2MB) core:4 pu:1", &path)
            .replace("pes = \"1-3\"", "pes = \"core:1\"");
        let text = stdout(&[&["sim", &file(&directory, &of_scenario)], &timeline[..]].concat());
        assert!(drawn(&text, pes), "{text}");
    }
}

#[test]
fn slow_pes_have_the_speed_that_their_machine_reports_or_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let workload = json_file(&directory, documented_workload());
    let on = |name: &str| corewise(&["sim", &workload, "--machine", &machine(name), "--runs", "1"]);
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let reported = on("20em64t-hybrid-1p6c2t+2ca4co1t.tar.gz").assert().success();
    let output = reported.get_output();
    assert!(said(&output.stderr).contains("12-19 (slow) are simulated at 0.77 of the fastest"), "{output:?}");
    assert!(said(&output.stdout).contains("speeds by max frequency"), "{output:?}");
    let unknown = on("Intel-RaptorLake-Corei7-1370P.xml").assert().failure();
    let words = "how much slower its PEs 12-19 (slow) are than 0-11 (fast)";
    assert!(said(&unknown.get_output().stderr).contains(words), "{unknown}");
    // A scenario says it.
    let hybrid = |speeds: &str| {
        let shape = machine("Intel-RaptorLake-Corei7-1370P.xml");
        let own = "speeds = [{ pes = \"1-3\", speed = 0.5 }]";
        assert!(SCENARIO.contains(own), "{SCENARIO}");
        let text = SCENARIO.replace("pack:1 l3:1(size=2MB) core:4 pu:1", &shape).replace(own, speeds);
        corewise(&["sim", &file(&directory, &text), "--runs", "1"])
    };
    hybrid("").assert().failure();
    hybrid("speeds = [{ pes = \"slow\", speed = 0.6 }]").assert().success();
    hybrid("speeds = []").assert().success();
}

#[test]
fn a_workload_that_cannot_be_simulated_is_refused_with_its_key() {
    let directory = tempfile::tempdir().expect("a directory");
    let refused = |text: &str, arguments: &[&str], words: &str| {
        let path = json_file(&directory, text);
        let output = corewise(&[&["sim", &path], arguments].concat()).assert().failure();
        let said = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
        assert!(said.contains(words), "{said}");
    };
    let machine = ["--machine", "core:2 pu:1"];
    let workload = documented_workload();
    refused(workload, &[], "say on which machine with --machine");
    refused(workload, &["--machine", "nowhere"], "`nowhere` is neither a machine");
    refused(workload, &["--machine", "core:x"], "core:x");
    refused(&workload.replace("\"run1\"", "\"suspend\""), &machine, "tasks.tick.suspend");
    refused(&workload.replace("\"cpus\": [1]", "\"priority\": -5"), &machine, "tasks.tick.priority: -5");
    refused(&workload.replace("[1]", "[7]"), &machine, "application `tick`: cpus: ");
    refused("{ nonsense", &machine, "strict JSON");
    let scenario = file(&directory, SCENARIO);
    let output = corewise(&["sim", &scenario, "--machine", "core:2 pu:1"]).assert().failure();
    assert!(String::from_utf8_lossy(&output.get_output().stderr).contains("a machine of its own"));
}

#[test]
fn a_page_is_written_whole_or_not_at_all() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = file(&directory, SCENARIO);
    let page = directory.path().join("page.html");
    let page_name = page.to_str().expect("a path in UTF-8");
    let text = stdout(&["sim", &path, "--html", page_name, "--set", "machine.ghz=2.0"]);
    assert!(text.contains("simulated: small\n"), "{text}");
    let html = std::fs::read_to_string(&page).expect("a page");
    for words in
        ["<dd>simulated</dd>", "Speedup over the default", "# --set machine.ghz=2.0", "geometric mean"]
    {
        assert!(html.contains(words), "no `{words}` in: {html}");
    }
    corewise(&["sim", &path, "--html", "/nonexistent/page.html"]).assert().failure().stdout("");
}

/// Two cores of two PEs each that share an FPU; two threads of each kind.
const TWINS: &str = r#"
name = "twins"
runs = 4
stop = { completions = 2 }

[machine]
name = "two SMT cores"
topology = "pack:1 core:2 pu:2"
units = { fpu_conflict = 1.0 }

[demand]
fp = { fpu = 0.9 }
int = { ipc = 1.2 }

[[application]]
name = "fp"
copies = 2
steps = [{ each = { mcycles = 9000, demand = "fp" } }]

[[application]]
name = "int"
copies = 2
steps = [{ each = { mcycles = 9000, demand = "int" } }]
"#;

#[test]
fn the_example_of_another_program_as_policy_does_as_well_as_spread() {
    needs!(Python);
    let example = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/apart.py");
    let policy = format!("exec:python3 {}", example.display());
    let directory = tempfile::tempdir().expect("a directory");
    let path = file(&directory, TWINS);
    let run = || stdout(&["sim", &path, "--policy", &policy, "--policy", "spread", "--json"]);
    let text = run();
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let speedup = |variant: usize| {
        json["variants"][variant]["applications"][0]["speedup"]["value"].as_f64().expect("one")
    };
    assert_eq!(json["variants"][1]["policy"], policy);
    assert!(speedup(1) > 1.05 && (speedup(1) / speedup(2) - 1.0).abs() < 0.02, "{text}");
    assert_eq!(text, run(), "the same scenario and seed give the same bytes");
}

/// An application whose sequential phases are far shorter than an interval, beside one that never rests.
const PHASES: &str = r#"
name = "phases"
runs = 3
events = true
stop = { completions = 1 }

[machine]
name = "1FC-3SC"
topology = "pack:1 l3:1(size=2MB) core:4 pu:1"
speeds = [{ pes = "1-3", speed = 0.5 }]

[demand]
int = { ipc = 1.2 }

[[application]]
name = "phases"
threads = 3
wait = "sleep"
[[application.steps]]
repeat = { times = 50, steps = [
  { serial = { mcycles = 60, demand = "int" } },
  { parallel = { mcycles = 60, demand = "int" } },
] }

[[application]]
name = "busy"
threads = 4
steps = [{ each = { mcycles = 4000, demand = "int" } }]
"#;

#[test]
fn the_example_that_asks_for_events_catches_phases_between_two_intervals() {
    needs!(Python);
    let example = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/sequential.py");
    let policy = format!("exec:python3 {}", example.display());
    let speedup = |scenario: &str| {
        let directory = tempfile::tempdir().expect("a directory");
        let text = stdout(&["sim", &file(&directory, scenario), "--policy", &policy, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        json["variants"][1]["applications"][0]["speedup"]["value"].as_f64().expect("one")
    };
    let (informed, blind) = (speedup(PHASES), speedup(&PHASES.replace("events = true", "")));
    assert!(informed > 1.3 && blind < 1.05, "speedup {informed} with events, {blind} without");
}

#[test]
fn a_scenario_starts_commands_only_if_its_user_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = format!("{TWINS}\n[[variant]]\nname = 'v'\npolicy = 'exec:echo started >&2; exit 1'\n");
    let path = file(&directory, &text);
    let fails = |args: &[&str]| {
        let output = corewise(args).assert().failure();
        String::from_utf8(output.get_output().stderr.clone()).expect("UTF-8")
    };
    let refused = fails(&["sim", &path]);
    assert!(refused.contains("started with --commands only") && !refused.contains("started\n"), "{refused}");
    let started = fails(&["sim", &path, "--commands"]);
    assert!(started.contains("started\n") && started.contains("variant `v`: the policy exec"), "{started}");
}
