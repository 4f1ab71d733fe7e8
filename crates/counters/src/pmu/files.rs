//! Event files: what to count on which processor, and how usage is computed from it.
//!
//! One TOML file per microarchitecture in `crates/counters/events`, compiled in. A file of the same name in
//! `/usr/share/corewise/events`, `/etc/corewise/events` or the user's `corewise/events` (XDG) replaces it; a
//! file of a new name is asked before those that come with corewise. `docs/counters.md` says how to write
//! one.

use super::formula::{Formula, FormulaError};
use corewise_sys::input;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        /// The files that come with corewise: name and text.
        const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../events/", $name, ".toml")))),*];
    };
}

built_in![
    "amd_fam15h",
    "amd_zen2",
    "amd_zen3",
    "amd_zen4",
    "amd_zen5",
    "arm_cortex_a510",
    "arm_cortex_a55",
    "arm_cortex_a76",
    "arm_neoverse_n1",
    "arm_neoverse_n2",
    "arm_neoverse_v1",
    "arm_neoverse_v2",
    "intel_crestmont",
    "intel_golden_cove",
    "intel_gracemont",
    "intel_ice_lake",
    "intel_ice_lake_x",
    "intel_lion_cove",
    "intel_redwood_cove",
    "intel_sapphire_rapids",
    "intel_skylake",
    "intel_skylake_x",
    "intel_skymont",
];

/// What a formula computes: a field of [`corewise_core::observe::PmuReading`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Core cycles.
    Cycles,
    /// Retired instructions.
    Instructions,
    /// Cycles in which the FPU was busy.
    FpuBusyCycles,
    /// Cycles in which the shared vector unit was busy, with floating-point or integer work.
    VectorBusyCycles,
    /// L2 misses.
    L2Misses,
    /// Retired branches.
    Branches,
    /// Mispredicted retired branches.
    BranchMisses,
}

impl Metric {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// All, in the order of their discriminants.
    pub const ALL: [Metric; Self::COUNT] = [
        Metric::Cycles,
        Metric::Instructions,
        Metric::FpuBusyCycles,
        Metric::VectorBusyCycles,
        Metric::L2Misses,
        Metric::Branches,
        Metric::BranchMisses,
    ];
}

/// What is counted and computed on one microarchitecture.
#[derive(Debug, Clone, PartialEq)]
pub struct EventFile {
    /// The file's name without `.toml`, for reports.
    pub name: Arc<str>,
    /// The processors, for people.
    pub title: String,
    /// Where it was read from; `None` for one that comes with corewise.
    pub path: Option<PathBuf>,
    /// Where events and formulas are documented that do not say otherwise.
    pub source: String,
    /// The PMU by libpfm4's name, for events that have a libpfm4 name.
    pub pmu: Option<String>,
    /// Counters that one thread may use at once, besides those of fixed purpose.
    pub counters: u32,
    /// The processors it is for.
    pub cpus: Vec<CpuMatch>,
    /// What to count, the most important first.
    pub events: Vec<Event>,
    /// What to compute. `cycles` is always there.
    pub formulas: BTreeMap<Metric, MetricFormula>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its name in formulas.
    pub name: String,
    /// How the kernel names it.
    pub code: EventCode,
    /// Counters that it takes: 0 where one of fixed purpose serves, 2 where the kernel pairs two.
    pub takes: u32,
}

/// How an event is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventCode {
    /// By libpfm4's name, without the PMU.
    Pfm(String),
    /// By the value of `perf_event_attr.config` for the PMU's device.
    Raw {
        /// The value.
        config: u64,
        /// The event's name in the source.
        is: String,
        /// Where that is documented.
        source: String,
    },
}

/// One formula with its standing.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricFormula {
    /// The text.
    pub text: String,
    /// The text, parsed.
    pub formula: Formula,
    /// How far it can be trusted, 0..1; 1: the events count just this.
    pub confidence: f32,
    /// What it really is, in a sentence.
    pub note: String,
    /// Where it comes from.
    pub source: String,
}

/// Which processors a file is for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum CpuMatch {
    /// x86, by CPUID.
    X86(X86Match),
    /// ARM, by MIDR.
    Arm(ArmMatch),
}

/// x86 processors as `/proc/cpuinfo` names them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct X86Match {
    /// `vendor_id`.
    pub vendor: String,
    /// `cpu family`, decimal.
    pub family: u32,
    /// Models in hexadecimal, with ranges: `4e 5e a5-a6`.
    pub models: String,
    /// Names of the PMU's device under `/sys/bus/event_source/devices`; empty: any. On processors with two
    /// kinds of core it tells the kinds apart (`cpu_core`, `cpu_atom`).
    #[serde(default)]
    pub devices: Vec<String>,
}

/// ARM processors by the fields of MIDR_EL1.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmMatch {
    /// Implementer code: 0x41 is Arm.
    pub implementer: u32,
    /// Part number.
    pub part: u32,
}

impl X86Match {
    /// The ranges of models.
    pub fn model_ranges(&self) -> Option<Vec<(u32, u32)>> {
        let range = |word: &str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let ends = (u32::from_str_radix(first, 16).ok()?, u32::from_str_radix(last, 16).ok()?);
            (ends.0 <= ends.1).then_some(ends)
        };
        self.models.split_whitespace().map(range).collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
    }
}

/// Why an event file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EventFileError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// It is no TOML, or not of the form of an event file.
    #[error("event file {file}: {source}")]
    Form {
        /// The file.
        file: String,
        /// The parser's answer, with line and column.
        source: Box<toml::de::Error>,
    },
    /// A formula is wrong.
    #[error("event file {file}: {source}")]
    Formula {
        /// The file.
        file: String,
        /// What is wrong.
        source: FormulaError,
    },
    /// The form is right and the content is not.
    #[error("event file {file}: {problem}")]
    Content {
        /// The file.
        file: String,
        /// What is wrong.
        problem: String,
    },
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    title: String,
    source: String,
    pmu: Option<String>,
    counters: u32,
    cpu: Vec<CpuMatch>,
    event: Vec<EventEntry>,
    formula: BTreeMap<Metric, FormulaEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventEntry {
    name: String,
    pfm: Option<String>,
    raw: Option<u64>,
    is: Option<String>,
    #[serde(default = "one")]
    takes: u32,
    source: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FormulaEntry {
    is: String,
    confidence: f32,
    note: String,
    source: Option<String>,
}

fn one() -> u32 {
    1
}

impl EventFile {
    /// Reads the text of an event file. `path` says where it was found, for errors and reports.
    pub fn parse(name: &str, path: Option<&Path>, text: &str) -> Result<Self, EventFileError> {
        let file = path.map_or_else(|| name.to_owned(), |path| path.display().to_string());
        let document: Document = toml::from_str(text)
            .map_err(|source| EventFileError::Form { file: file.clone(), source: Box::new(source) })?;
        let content = |problem| EventFileError::Content { file: file.clone(), problem };
        for cpu in &document.cpu {
            if let CpuMatch::X86(x86) = cpu
                && x86.model_ranges().is_none()
            {
                return Err(content(format!("`{}` is no list of hexadecimal models", x86.models)));
            }
        }
        let events = document
            .event
            .into_iter()
            .map(|entry| Event::check(entry, &document.pmu, &document.source))
            .collect::<Result<Vec<_>, _>>()
            .map_err(&content)?;
        let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        let mut formulas = BTreeMap::new();
        for (metric, entry) in document.formula {
            let formula = Formula::parse(&entry.is, &names)
                .map_err(|source| EventFileError::Formula { file: file.clone(), source })?;
            formulas
                .insert(metric, MetricFormula::check(entry, formula, &document.source).map_err(&content)?);
        }
        check_whole(&names, &events, document.counters, &formulas).map_err(&content)?;
        Ok(Self {
            name: name.into(),
            title: document.title,
            path: path.map(Path::to_owned),
            source: document.source,
            pmu: document.pmu,
            counters: document.counters,
            cpus: document.cpu,
            events,
            formulas,
        })
    }
}

impl Event {
    fn check(entry: EventEntry, pmu: &Option<String>, source: &str) -> Result<Self, String> {
        let EventEntry { name, pfm, raw, is, takes, source: own_source } = entry;
        let code = match (pfm, raw, is) {
            (Some(_), None, None) if pmu.is_none() => {
                return Err(format!("event `{name}` has a libpfm4 name, but the file names no `pmu`"));
            }
            (Some(pfm), None, None) => EventCode::Pfm(pfm),
            (None, Some(config), Some(is)) => {
                let source = own_source.unwrap_or_else(|| source.to_owned());
                EventCode::Raw { config, is, source }
            }
            _ => return Err(format!("event `{name}` needs either `pfm`, or `raw` and `is`")),
        };
        Ok(Self { name, code, takes })
    }
}

impl MetricFormula {
    fn check(entry: FormulaEntry, formula: Formula, source: &str) -> Result<Self, String> {
        let FormulaEntry { is: text, confidence, note, source: own_source } = entry;
        if !(0.0..=1.0).contains(&confidence) {
            return Err(format!("the confidence {confidence} of `{text}` is not within 0 and 1"));
        }
        if note.trim().is_empty() {
            return Err(format!("`{text}` has no note that says what it really is"));
        }
        let source = own_source.unwrap_or_else(|| source.to_owned());
        Ok(Self { text, formula, confidence, note, source })
    }
}

/// What can be judged only when everything is read.
fn check_whole(
    names: &[&str],
    events: &[Event],
    counters: u32,
    formulas: &BTreeMap<Metric, MetricFormula>,
) -> Result<(), String> {
    match formulas.get(&Metric::Cycles) {
        None => return Err("there is no formula for `cycles`, which everything is a share of".into()),
        Some(cycles) if events.is_empty() || !cycles.formula.needs(0) => {
            return Err("the first event is not the one that `cycles` needs".into());
        }
        Some(_) => {}
    }
    for (index, event) in events.iter().enumerate() {
        if names[..index].contains(&event.name.as_str()) {
            return Err(format!("event `{}` is given twice", event.name));
        }
        if event.takes > counters {
            return Err(format!("event `{}` takes {} of {counters} counters", event.name, event.takes));
        }
        if !formulas.values().any(|formula| formula.formula.needs(index)) {
            return Err(format!("event `{}` is in no formula", event.name));
        }
    }
    Ok(())
}

/// The directories of overriding files, the strongest first, on the machine under `root`.
pub fn override_dirs(root: &Path) -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".config")));
    let system = ["etc/corewise/events", "usr/share/corewise/events"].map(|dir| root.join(dir));
    // A recorded machine has no user: the files of the present user are not its own.
    let user = user.filter(|_| root == Path::new("/")).map(|dir| dir.join("corewise/events"));
    user.into_iter().chain(system).collect()
}

/// Every event file in force, in the order in which they are asked: those of `dirs` in that order, then those
/// that come with corewise and were not replaced.
pub fn events_table(dirs: &[PathBuf]) -> Result<Vec<Arc<EventFile>>, EventFileError> {
    let mut table: Vec<Arc<EventFile>> = Vec::new();
    let known = |table: &[Arc<EventFile>], name: &str| table.iter().any(|file| &*file.name == name);
    for dir in dirs {
        for path in files_in(dir)? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if !known(&table, &name) {
                let text = input::read_text(&path, input::DOCUMENT_MAX)
                    .map_err(|source| EventFileError::Read { path: path.clone(), source })?;
                table.push(Arc::new(EventFile::parse(&name, Some(&path), &text)?));
            }
        }
    }
    for (name, text) in BUILT_IN {
        if !known(&table, name) {
            table.push(Arc::new(EventFile::parse(name, None, text)?));
        }
    }
    Ok(table)
}

/// The `.toml` files of a directory by name; none if there is no such directory, or if it is somebody else's
/// (the home of the user before `sudo -u`).
fn files_in(dir: &Path) -> Result<Vec<PathBuf>, EventFileError> {
    let failed = |source| EventFileError::Read { path: dir.to_owned(), source };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(failed(error)),
    };
    let mut paths = entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect::<Result<Vec<_>, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_directory_is_compiled_in_and_valid() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("events");
        let on_disk = files_in(&dir).unwrap();
        let stems: Vec<_> = on_disk.iter().map(|path| path.file_stem().unwrap().to_str().unwrap()).collect();
        let compiled: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        assert_eq!(stems, compiled);
        let table = events_table(&[]).unwrap();
        assert!(table.iter().all(|file| file.formulas.contains_key(&Metric::L2Misses)));
    }

    #[test]
    fn the_documentation_lists_every_file() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/counters.md");
        let text = std::fs::read_to_string(path).unwrap();
        for file in events_table(&[]).unwrap() {
            let usage = file.formulas.get(&Metric::FpuBusyCycles);
            let cell =
                usage.map_or("unknown".into(), |usage| usage.confidence.to_string().replace('1', "exact"));
            let row = text.lines().find(|line| line.starts_with(&format!("| `{}` |", file.name)));
            let fpu_busy = row.and_then(|row| row.split(" | ").nth(2)).unwrap_or_default();
            assert!(fpu_busy.ends_with(&cell), "{}: {cell} against {row:?}", file.name);
        }
    }

    #[test]
    fn exactness_is_claimed_only_for_the_papers_processor() {
        for file in events_table(&[]).unwrap() {
            for metric in [Metric::FpuBusyCycles, Metric::VectorBusyCycles] {
                let Some(formula) = file.formulas.get(&metric) else { continue };
                let exact = &*file.name == "amd_fam15h";
                assert_eq!(formula.confidence == 1.0, exact, "{} {metric:?}", file.name);
                assert_eq!(formula.note.starts_with("Exact"), exact, "{} {metric:?}", file.name);
            }
        }
    }

    /// The study's programs: BulldOver's Table I and the share of FP instructions among clock samples.
    const STUDY: [(&str, f64, f64); 19] = [
        ("perl", 0.01, 0.00),
        ("bzip2", 0.01, 0.00),
        ("gcc", 0.08, 0.00),
        ("mcf", 0.01, 0.00),
        ("gobmk", 0.03, 0.03),
        ("hmmer", 0.03, 0.01),
        ("h264ref", 0.15, 0.00),
        ("soplex", 0.79, 0.16),
        ("bwaves", 0.92, 0.24),
        ("milc", 0.91, 0.25),
        ("povray", 0.72, 0.21),
        ("gromacs", 0.94, 0.32),
        ("gamess", 0.76, 0.16),
        ("sphinx3", 0.75, 0.09),
        ("FFT", 0.86, 0.35),
        ("SOR", 0.99, 0.83),
        ("Monte Carlo", 0.87, 0.27),
        ("sparse", 0.99, 0.10),
        ("LU", 0.97, 0.23),
    ];

    #[test]
    fn the_window_estimate_comes_near_the_papers_table() {
        let table = events_table(&[]).unwrap();
        let skylake = table.iter().find(|file| &*file.name == "intel_skylake").unwrap();
        let usage = |share: f64| {
            let count = |event: &Event| match event.name.as_str() {
                "cycles" => Some(3e6),
                "instructions" => Some(1e6),
                "fp" => Some(share * 1e6),
                _ => None,
            };
            let counts: Vec<_> = skylake.events.iter().map(count).collect();
            skylake.formulas[&Metric::FpuBusyCycles].formula.value(&counts).unwrap() / 3e6
        };
        let squares: f64 = STUDY.iter().map(|(_, paper, share)| (usage(*share) - paper).powi(2)).sum();
        let error = (squares / STUDY.len() as f64).sqrt();
        assert!((0.12..0.13).contains(&error), "root mean square error {error}, docs/counters.md says 0.124");
        let of = |floating: bool| {
            STUDY.iter().filter(move |row| (row.1 > 0.5) == floating).map(|row| usage(row.2))
        };
        let (highest_integer, lowest_floating) =
            (of(false).fold(0.0, f64::max), of(true).fold(1.0, f64::min));
        assert!(lowest_floating - highest_integer > 0.3, "{lowest_floating} {highest_integer}");
    }

    const SMALL: &str = r#"
        title = "a test"
        source = "nowhere"
        counters = 2
        cpu = [{ implementer = 1, part = 2 }]
        event = [{ name = "cycles", raw = 1, is = "CYCLES" }]
        formula.cycles = { is = "cycles", confidence = 1, note = "Exact." }
    "#;

    #[test]
    fn errors_say_what_is_wrong() {
        EventFile::parse("small", None, SMALL).unwrap();
        for (from, to, expected) in [
            ("title", "titel", "unknown field `titel`"),
            ("is = \"cycles\"", "is = \"7\"", "the first event is not the one"),
            (
                " }]\n        formula",
                " }, { name = \"b\", raw = 2, is = \"B\" }]\n        formula",
                "`b` is in no formula",
            ),
            (
                " }]\n        formula",
                " }, { name = \"cycles\", raw = 2, is = \"B\" }]\n        formula",
                "given twice",
            ),
            ("is = \"cycles\"", "is = \"cycle\"", "no event is named `cycle`"),
            ("confidence = 1", "confidence = 2", "confidence 2 of `cycles`"),
            ("Exact.", " ", "`cycles` has no note"),
            (", is = \"CYCLES\"", "", "needs either `pfm`, or `raw` and `is`"),
            ("raw = 1, is", "pfm = \"X\", is", "needs either `pfm`, or `raw` and `is`"),
            ("raw = 1, is = \"CYCLES\"", "pfm = \"X\"", "names no `pmu`"),
            ("formula.cycles", "formula.branches", "no formula for `cycles`"),
            ("formula.cycles", "formula.happiness", "happiness"),
            ("is = \"CYCLES\"", "is = \"CYCLES\", takes = 3", "takes 3 of 2 counters"),
            (
                "implementer = 1, part = 2",
                "vendor = \"V\", family = 6, models = \"8-7\"",
                "hexadecimal models",
            ),
        ] {
            let text = SMALL.replace(from, to);
            let error = EventFile::parse("small", None, &text).unwrap_err().to_string();
            assert!(error.contains("small") && error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn a_file_of_the_administrator_replaces_the_built_in_one_and_a_new_one_is_asked_first() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("amd_zen4.toml"), SMALL).unwrap();
        std::fs::write(dir.path().join("mine.toml"), SMALL).unwrap();
        std::fs::write(dir.path().join("README"), "no event file").unwrap();
        let table = events_table(&[dir.path().to_owned(), dir.path().join("missing")]).unwrap();
        assert_eq!(table.len(), BUILT_IN.len() + 1);
        assert_eq!((&*table[0].name, &*table[0].title), ("amd_zen4", "a test"));
        assert_eq!(&*table[1].name, "mine");
        assert_eq!(table[1].path.as_deref(), Some(&*dir.path().join("mine.toml")));
        std::fs::write(dir.path().join("bad.toml"), "title = 1").unwrap();
        let error = events_table(&[dir.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains("bad.toml"), "{error}");
    }

    #[test]
    fn models_are_hexadecimal_ranges() {
        let models = |text: &str| {
            let models = text.to_owned();
            X86Match { vendor: String::new(), family: 6, models, devices: vec![] }.model_ranges()
        };
        assert_eq!(models("4e a5-a6"), Some(vec![(0x4e, 0x4e), (0xa5, 0xa6)]));
        for wrong in ["", "a6-a5", "x", "1-", "-1"] {
            assert_eq!(models(wrong), None, "{wrong}");
        }
    }
}
