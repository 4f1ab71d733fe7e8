//! The fuzzed readers, each with valid inputs and the mutation to apply.

use super::mutate::Mutator;
use crate::commands::compare::{file as comparison_file, workload};
use crate::commands::model::file::ModelFile;
use crate::commands::model::{file as model_file, table as model_table};
use crate::commands::{paths, replay};
use crate::{recording_file, report_file};
use anyhow::{Context, Result, anyhow};
use corewise_code::AddressSpace;
use corewise_code::elf::ElfFile;
use corewise_code::lines::DebugLines;
use corewise_core::cpuset::CpuSet;
use corewise_core::engine::EngineConfig;
use corewise_core::ids::{AppId, PeId, ThreadId};
use corewise_core::losses::{Knowledge, KnownDemand};
use corewise_core::machine_model::MachineModel;
use corewise_core::observe::{
    ApplicationReading, CounterReading, Hints, Input, Observation, SampleReading, Standing, ThreadReading,
};
use corewise_core::policy;
use corewise_core::profile;
use corewise_core::recording::{Decider, FORMAT, Header, Question, VERSION, to_line};
use corewise_core::time::{Time, parse_duration};
use corewise_core::topology::Topology;
use corewise_core::view::{self, Estimate};
use corewise_counters::pmu::EventFile;
use corewise_render::profile::fixture;
use corewise_render::{comparison, report};
use corewise_rules::{Facts, Rules, SourceFile};
use corewise_sim::comparison::compare;
use corewise_sim::experiment::Experiment;
use corewise_sim::experiment::worlds::finished::Finished;
use corewise_sim::machine::MachineSpec;
use corewise_sim::rt_app;
use corewise_sim::scenario::Scenario;
use corewise_sim::size;
use corewise_sys::proc::Proc;
use corewise_topology as topology;
use corewise_topology::Source;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::path::Path;
use std::sync::LazyLock;

/// A fuzzed reader.
pub struct Target {
    pub name: &'static str,
    /// The number of cases that the test tries: fewer for slow targets.
    pub cases: u64,
    /// Reads a valid input.
    pub sound: fn() -> Result<()>,
    /// Reads a mutated input; its errors are ignored.
    pub run: fn(u64),
}

/// Defines a target with text input.
macro_rules! text {
    ($name:literal, $cases:literal, $sound:expr, $read:expr) => {
        Target {
            name: $name,
            cases: $cases,
            sound: || $read(&$sound),
            run: |seed| drop($read(&Mutator::new(seed).text(&$sound))),
        }
    };
}

/// Defines a target with JSON input, mutated as a tree or as text.
macro_rules! json {
    ($name:literal, $cases:literal, $sound:expr, $read:expr) => {
        Target {
            name: $name,
            cases: $cases,
            sound: || $read(&$sound),
            run: |seed| {
                let mut mutator = Mutator::new(seed);
                let text = match serde_json::from_str(&$sound) {
                    Ok(value) if seed % 4 != 0 => mutator.json(&value).to_string(),
                    _ => mutator.text(&$sound),
                };
                drop($read(&text));
            },
        }
    };
}

const MACHINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../topology/tests/machines");
/// Scenarios that are at least so many events are not run.
const SIMULATED_MAX: f64 = 1e4;

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/rules.toml");
const EXPERIMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments");

pub const TARGETS: &[Target] = &[
    Target { name: "recording", cases: 60, sound: || recording(&recorded()), run: changed_recording },
    json!("profile", 20, PROFILE, profile),
    json!("paths", 60, PATHS, paths),
    json!("comparison", 60, COMPARISON, comparison),
    json!("report", 60, REPORT, explained),
    text!("workload", 60, WORKLOAD, workload_file),
    text!("table", 10, TABLE, table),
    json!("model", 60, MODEL, model),
    Target { name: "packed", cases: 60, sound: || Ok(()), run: changed_archive_of_nothing },
    text!("scenario", 60, scenario_text(), scenario),
    json!("rt-app", 60, RT_APP, workload),
    text!("experiment", 10, experiment_text(), experiment),
    text!("worlds", 60, WORLDS, worlds),
    text!("xml", 15, XML, xml),
    Target { name: "tree", cases: 15, sound: || tree(&tar(&FILES)), run: changed_tree },
    text!("synthetic", 60, "pack:2 l3:1(size=8MB) module:2 l2:2(size=256kB) core:1 pu:2", synthetic),
    text!("cpuset", 60, "0-3,8,10-15:2/3", cpuset),
    text!("location", 60, "l3:0@core:0-1,fast", location),
    text!("duration", 60, "1.5s", duration),
    text!("events", 60, events_text(), events),
    text!(
        "fpu-modules",
        10,
        "[[machine]]\nmodel = \"Xeon\"\nfpu_modules = [\"core:0-1\", \"core:2-3\"]\n",
        modules
    ),
    text!("rules", 60, file(Path::new(RULES)), rules),
    text!("maps", 60, Proc::own().own_maps().unwrap_or_default(), maps),
    Target {
        name: "elf",
        cases: 60,
        sound: || elf(&ELF),
        run: |seed| drop(elf(&Mutator::new(seed).bytes(&ELF))),
    },
];

/// Returns a valid file of each format that commands read, with its name.
pub fn samples() -> [(&'static str, Vec<u8>); 10] {
    [
        ("recording.cwr", recorded().concat().into_bytes()),
        ("report.json", REPORT.clone().into_bytes()),
        ("profile.json", PROFILE.clone().into_bytes()),
        ("scenario.toml", scenario_text().into_bytes()),
        ("run.paths", packed(PATHS.as_bytes())),
        ("comparison.json", COMPARISON.clone().into_bytes()),
        ("rt-app.json", RT_APP.as_bytes().to_vec()),
        ("table.csv", TABLE.as_bytes().to_vec()),
        ("model.json", MODEL.as_bytes().to_vec()),
        ("workload.toml", WORKLOAD.as_bytes().to_vec()),
    ]
}

fn topology() -> Topology {
    Topology::synthetic("pack:1 l2:2 core:2 pu:1").expect("a machine")
}

/// What earlier runs have taught of one of these threads.
fn knowledge() -> Knowledge {
    let known = |value| Some(Estimate { value, confidence: 0.9, source: view::Source::Counters });
    let demand = KnownDemand { fpu: known(0.5), working_set_mib: known(3.0), ..KnownDemand::default() };
    Knowledge { demands: [("povray".into(), demand)].into() }
}

/// Three observations of three threads.
fn recorded() -> Vec<String> {
    let header = Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        topology: topology(),
        profile: Some(fixture::smt().into()),
        knowledge: knowledge().into(),
        command: vec!["povray".to_owned()],
        interval_ns: 1_000_000_000,
        decider: Some(Decider { policy: "pa".to_owned(), config: EngineConfig::default() }),
        discovery: "poll".to_owned(),
        counters: "sample".to_owned(),
        host: None,
    };
    let observations = (1..4u64).map(|second| {
        let mut observation = Observation { at: Time(second * 1_000_000_000), ..Observation::default() };
        observation.allowed = CpuSet::first_n(8);
        observation.threads = (0..3).map(|number| thread(number, second)).collect();
        observation.applications = vec![ApplicationReading {
            app: AppId(1),
            name: "povray".into(),
            runnable_thread_ns: second * 2_500_000_000,
            active_ns: second * 1_000_000_000,
            sequential_ns: second * 100_000_000,
            runnable_max: 3,
            exact: true,
            ..ApplicationReading::default()
        }];
        to_line(&Input::Observation(observation))
    });
    std::iter::once(to_line(&header)).chain(observations).collect()
}

fn thread(number: u32, second: u64) -> ThreadReading {
    let reading = SampleReading {
        judged: second * 150,
        kernel: second,
        fp: second as f64 * 100.0,
        vector: second as f64 * 10.0,
        ..SampleReading::default()
    };
    ThreadReading {
        thread: ThreadId { tid: 100 + number, generation: 7 },
        pid: 100,
        app: AppId(1),
        name: format!("worker {number}").into(),
        cpu_ns: second * 900_000_000,
        runnable_ns: Some(second * 950_000_000),
        runnable: true,
        last_pe: Some(PeId(number)),
        standing: Standing::Free,
        permitted: CpuSet::first_n(8).into(),
        counters: Some(CounterReading::Sample(reading)),
        hints: Hints::default(),
        progress: None,
        sizing: corewise_core::observe::Sizing::Fixed,
        ended: number == 2 && second == 3,
    }
}

fn recording(lines: &[String]) -> Result<()> {
    let recording = recording_file::parse(lines.concat().into_bytes())?;
    for name in ["spread", "pa"] {
        let policy = policy::build(name).expect("a policy");
        let question = Question { machine: None, policy, fpu_threshold: None };
        let report = replay::replayed(recording.clone(), question);
        let texts =
            [report::table::render(&report), report::page::render(&report), replay::describe(&report)];
        assert!(texts.iter().all(|text| !text.is_empty()));
    }
    Ok(())
}

fn changed_recording(seed: u64) {
    let mut mutator = Mutator::new(seed);
    let mut lines = recorded();
    let line = seed as usize % (lines.len() + 1);
    match lines.get(line).and_then(|line| serde_json::from_str(line).ok()) {
        Some(value) => lines[line] = mutator.json(&value).to_string() + "\n",
        None => lines = vec![mutator.text(&lines.concat())],
    }
    drop(recording(&lines));
}

static PROFILE: LazyLock<String> = LazyLock::new(|| profile::to_json(&fixture::smt()));

fn profile(text: &str) -> Result<()> {
    let profile = profile::parse(text)?;
    assert!(
        !corewise_render::profile::table::render(&profile).is_empty()
            && !corewise_render::profile::page::render(&profile).is_empty()
    );
    MachineModel::from_profile(&profile);
    Ok(())
}

/// A recording of a small program, with a valid checksum of its packed form.
static PATHS: LazyLock<String> = LazyLock::new(|| {
    static PROGRAM: LazyLock<tempfile::NamedTempFile> = LazyLock::new(|| {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&ELF).expect("it is written");
        file
    });
    let path = PROGRAM.path();
    let elf = ElfFile::open(path).expect("it is an ELF file");
    let (start, ..) = elf.code_mapping().expect("it has code");
    let at = |address: u64| serde_json::json!({"module": 0, "address": start + address});
    let transfer = |from: u64, to: u64| serde_json::json!({"from": at(from), "to": at(to)});
    let window = |tid: u32| {
        serde_json::json!({
            "tid": tid, "time_ns": tid, "start": at(64), "end": at(256), "instructions": 20, "branches": 3,
            "transfers": [transfer(80, 128), transfer(140, 64), transfer(80, 128)], "ended": "full",
        })
    };
    let modules = serde_json::json!([{"path": path, "build_id": elf.build_id()}]);
    serde_json::json!({
        "version": 1, "command": ["x"], "backend": "shadow", "period_ns": 10_000_000, "branches_max": 4,
        "modules": modules, "windows": [window(1), window(2)], "without_window": {"lost": 1}, "notes": ["n"],
    })
    .to_string()
});

fn paths(text: &str) -> Result<()> {
    paths::report_of(packed(text.as_bytes())).map(drop)
}

/// Also asks the rules about a process.
fn rules(text: &str) -> Result<()> {
    let file = SourceFile { path: "rules.toml".into(), content: Ok(text.as_bytes().to_vec()) };
    let rules = Rules::read(&[file])?;
    let facts = Facts { name: Some("x.py".to_owned()), cgroup: Some("/a/b".to_owned()), ..Facts::default() };
    let matched = rules.matching(&facts);
    drop(matched.settings.pes.map(|pes| pes.on(&topology())));
    Ok(())
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(bytes).expect("memory takes everything");
    packer.finish().expect("memory takes everything")
}

/// Reads a recording that was mutated in its packed form.
fn changed_archive_of_nothing(seed: u64) {
    let bytes = Mutator::new(seed).bytes(&packed(recorded().concat().as_bytes()));
    drop(recording_file::parse(bytes.clone()));
    drop(paths::report_of(bytes));
}

/// The example of the documentation.
fn scenario_text() -> String {
    let document = file(&Path::new(EXPERIMENTS).join("../docs/sim.md"));
    document
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap_or_default()
        .to_owned()
}

fn scenario(text: &str) -> Result<()> {
    simulated(Scenario::parse(text)?)
}

/// Also runs a scenario that is small by what it says.
fn simulated(scenario: Scenario) -> Result<()> {
    let scenario = Scenario { runs: 1, ..scenario };
    if size::most(&scenario, 1)?.events < SIMULATED_MAX {
        compare(&scenario, None)?;
    }
    Ok(())
}

const RT_APP: &str = r#"{"global": {"duration": 2, "default_policy": "SCHED_OTHER"}, "tasks": {
    "a": {"instance": 2, "loop": 4, "run": 5000, "sleep": 3000, "timer": {"ref": "unique1", "period": 20000}},
    "b": {"cpus": [1], "phases":
        {"p": {"loop": 5, "lock": "m", "run": 1000, "unlock": "m"}, "q": {"sleep": 100}}}}}"#;

fn workload(text: &str) -> Result<()> {
    let machine = MachineSpec::plain("pack:1 core:2 pu:1");
    simulated(Scenario::from_table(rt_app::scenario("fuzz", text, &machine)?, &[])?)
}

const TABLE: &str = "# slowdowns\nteam,program,injector,place,intensity,slowdown,low,high\n\
    a,p,x,close,1,1.5,1.4,1.6\na,p,y,close,2,1.2,,\na,p,z,,,1.1,,\na,q,x,close,1,1.4,1.3,1.6\n\
    b,q,y,distant,2,1.3,,\na,r,x,,1,2.5,,\na,r,z,,,1.0,,\nb,s,x,close,1,1.6,,\na,s,y,close,1,0.9,,\n";

static MODEL: LazyLock<String> = LazyLock::new(|| {
    let file = model_table::parse(TABLE).expect("it is a table");
    serde_json::to_string(&ModelFile::fit(Path::new("table.csv"), &file)).expect("names and numbers")
});

fn table(text: &str) -> Result<()> {
    let file = model_table::parse(text)?;
    drop(ModelFile::fit(Path::new("table.csv"), &file));
    Ok(())
}

fn model(text: &str) -> Result<()> {
    let model = model_file::parse(text)?;
    assert!(!crate::commands::model::described(&model).is_empty());
    Ok(())
}

const WORKLOAD: &str = "completions = 2\nenvironment = { A = '1' }\n[[application]]\nname = 'a'\n\
                        command = \"prog 'x y'\"\ncopies = 2\nstart = '500ms'\n";

fn workload_file(text: &str) -> Result<()> {
    workload::parse(text).map(drop)
}

/// Also uses every view of the result.
fn comparison(text: &str) -> Result<()> {
    let comparison = comparison_file::parse(text)?;
    let found = comparison.findings();
    comparison::table::render(&comparison, &found);
    comparison::page::render(&comparison, &found);
    comparison::csv::write(&comparison);
    Ok(())
}

/// Four blocks of two variants.
static COMPARISON: LazyLock<String> = LazyLock::new(|| {
    let mut comparison = comparison::fixture::comparison();
    comparison.trials.truncate(12);
    comparison_file::write(&comparison, &comparison.findings())
});

/// Also explains the report.
fn explained(text: &str) -> Result<()> {
    let report = report_file::parse(text.as_bytes())?;
    report::explanation::of_run(&report);
    report.threads.iter().for_each(|thread| drop(report::explanation::of_thread(&report, thread.tid)));
    Ok(())
}

static REPORT: LazyLock<String> =
    LazyLock::new(|| serde_json::to_string(&report::fixture::pair()).expect("numbers and texts"));

fn experiment_text() -> String {
    file(&Path::new(EXPERIMENTS).join("amp-single/experiment.toml"))
}

fn experiment(text: &str) -> Result<()> {
    let read = |file: &str| match file {
        "amp-single/experiment.toml" => Ok(text.to_owned()),
        // Files that an experiment names are below its directory, and have readers of their own.
        other if !other.contains("..") => {
            std::fs::read_to_string(Path::new(EXPERIMENTS).join(other)).map_err(|error| error.to_string())
        }
        other => Err(format!("{other} is elsewhere")),
    };
    Experiment::load("amp-single", read)?;
    Ok(())
}

const WORLDS: &str = r#"{"corewise":"0","experiments":["a"],"worlds":1,"seed":1,"runs":4,"policies":[]}
{"experiment":0,"world":0,"outcome":{"claims":[{"holds":true,"figure":0.5}],"scenarios":[]}}
"#;

fn worlds(text: &str) -> Result<()> {
    let (finished, _) = Finished::parse(text)?;
    finished.asked.request()?;
    finished.of_experiment(0, 1)?;
    Ok(())
}

static XML: LazyLock<String> =
    LazyLock::new(|| file(&Path::new(MACHINES).join("AMD-K8-SantaRosa-2xOpteron-2218.xml")));

fn file(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Loads the topology of a file with this content.
fn loaded(suffix: &str, content: &[u8], source: fn(std::path::PathBuf) -> Source) -> Result<Topology> {
    let file = tempfile::Builder::new().suffix(suffix).tempfile()?;
    std::fs::write(file.path(), content)?;
    Ok(topology::load(&source(file.path().to_owned()), None)?)
}

fn xml(text: &str) -> Result<()> {
    let topology = loaded(".xml", text.as_bytes(), Source::Xml)?;
    assert_eq!(topology.check(), Ok(()));
    assert!(!topology.draw().is_empty() && !topology.summary().to_string().is_empty());
    Ok(())
}

/// A recorded machine's files: path and content.
type Files = Vec<(String, String)>;

static FILES: LazyLock<Files> = LazyLock::new(|| {
    let packed = std::fs::File::open(Path::new(MACHINES).join("8em64t-2s2ca2c.tar.gz")).expect("a machine");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.ok().filter(|entry| entry.header().entry_type().is_file())?;
        let path = entry.path().ok()?.to_str()?.to_owned();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text).ok()?;
        Some((path, text))
    };
    archive.entries().expect("an archive").filter_map(read).collect()
});

fn tar(files: &[(String, String)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        // Leave out paths that an archive cannot represent.
        let _ = archive.append_data(&mut header, path, text.as_bytes());
    }
    archive.into_inner().and_then(GzEncoder::finish).expect("memory takes everything")
}

fn tree(archive: &[u8]) -> Result<()> {
    loaded(".tar.gz", archive, Source::Root).map(drop)
}

fn changed_tree(seed: u64) {
    let mut mutator = Mutator::new(seed);
    let mut files = FILES.clone();
    match seed % 8 {
        // The archive before compression.
        0 => {
            let mut bytes = Vec::new();
            let archive = tar(&files);
            let mut unpacker = flate2::read::GzDecoder::new(archive.as_slice());
            std::io::Read::read_to_end(&mut unpacker, &mut bytes).expect("it was just packed");
            return drop(tree(&packed(&mutator.bytes(&bytes))));
        }
        1 => {
            let number = mutator.below(files.len());
            files[number].0 = mutator.text(&files[number].0);
        }
        _ => {
            for _ in 0..10 {
                let number = mutator.below(files.len());
                files[number].1 = mutator.text(&files[number].1);
            }
        }
    }
    drop(tree(&tar(&files)));
}

fn synthetic(text: &str) -> Result<()> {
    let topology = Topology::synthetic(text)?;
    topology.check()?;
    Ok(())
}

fn cpuset(text: &str) -> Result<()> {
    let set: CpuSet = text.parse().map_err(|error| anyhow!("{error}"))?;
    assert_eq!(set.to_string().parse::<CpuSet>().ok(), Some(set));
    Ok(())
}

fn location(text: &str) -> Result<()> {
    topology()
        .locate(text)
        .map(drop)
        .or_else(|_| topology().locate("core:0-1").map(drop))
        .context("no location")
}

fn duration(text: &str) -> Result<()> {
    parse_duration(text).map(drop).map_err(|error| anyhow!("{error}"))
}

fn events_text() -> String {
    file(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../counters/events/amd_zen4.toml"))
}

fn events(text: &str) -> Result<()> {
    EventFile::parse("fuzz", None, text)?;
    Ok(())
}

fn modules(text: &str) -> Result<()> {
    let list = tempfile::NamedTempFile::new()?;
    std::fs::write(list.path(), text)?;
    let machine = Path::new(MACHINES).join("Intel-Nehalem-2xXeon-X5550.xml");
    topology::load(&Source::Xml(machine), Some(list.path()))?;
    Ok(())
}

fn maps(text: &str) -> Result<()> {
    AddressSpace::from_maps(text).find(0x7f00_0000_0000);
    Ok(())
}

/// A small program with symbols, unwind tables and debug information.
static ELF: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("program");
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-g", "-O2", "-nostdlib", "-x", "c", "-", "-o"]).arg(&path).stdin(std::process::Stdio::piped());
    let mut child = gcc.spawn().expect("gcc is there");
    let source = b"static int f(int x) { return x > 3 ? x * f(x - 1) : 1; }\nvoid _start(void) { f(9); }\n";
    child.stdin.take().expect("a pipe").write_all(source).expect("gcc reads");
    assert!(child.wait().expect("gcc ends").success());
    std::fs::read(path).expect("gcc wrote it")
});

fn elf(bytes: &[u8]) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), bytes)?;
    let elf = ElfFile::open(file.path())?;
    elf.code_mapping();
    elf.segments().address(u64::MAX / 2);
    elf.segments().offset(u64::MAX);
    let functions = elf.functions()?;
    assert!(functions.is_sorted_by(|a, b| a.end <= b.start));
    let lines = DebugLines::open(file.path())?;
    corewise_paths::export::source::Lines::frames(&lines, at(0x1000));
    Ok(())
}

fn at(address: u64) -> corewise_paths::window::Location {
    corewise_paths::window::Location { module: corewise_paths::window::ModuleId(0), address }
}
