//! `corewise paths` through the binary: record, report, export, truth, accuracy.

use assert_cmd::Command;
use corewise_testing::needs;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A program with two functions and a branch that is taken now and then. Its argument says how long it runs.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static unsigned seed = 1;
__attribute__((noinline)) unsigned classify(unsigned x) {
    if (x % 3 == 0) return 1;
    if (x % 5 == 0) return 2;
    return 0;
}
__attribute__((noinline)) unsigned work(unsigned n) {
    unsigned sum = 0;
    for (unsigned i = 0; i < n; i++) {
        seed = seed * 1103515245u + 12345u;
        sum += classify(seed >> 16);
    }
    return sum;
}
int main(int argc, char **argv) {
    unsigned sum = 0;
    for (int i = atoi(argv[1]); i > 0; i--) sum += work(1000000);
    printf("%u\n", sum);
    return 7;
}
"#;

/// Rounds that take some tenths of a second of CPU time on any machine of today.
const ROUNDS: &str = "40";

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let fixture = Fixture { folder: tempfile::tempdir().unwrap() };
        fixture.compile(PROGRAM);
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn compile(&self, source: &str) {
        self.compile_with(source, &["-g", "-gno-as-locview-support", "-Wl,--build-id"]);
    }

    fn compile_with(&self, source: &str, flags: &[&str]) {
        std::fs::write(self.path("program.c"), source).unwrap();
        let mut compiler = std::process::Command::new("cc");
        compiler.arg("-O1").args(flags).arg(self.path("program.c"));
        let status = compiler.arg("-o").arg(self.path("program")).status().expect("a C compiler");
        assert!(status.success());
    }

    fn corewise(&self, args: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("corewise"));
        command.current_dir(self.folder.path()).arg("paths").args(args);
        command
    }

    /// The program, recorded; its own exit status is 7.
    fn record(&self, file: &str, rounds: &str) {
        let args = ["record", "--rate", "500", "--branches", "16", "-o", file, "--", "./program", rounds];
        let output = self.corewise(&args).assert().code(7);
        let stderr = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
        assert!(stderr.contains(" windows by "), "{stderr}");
    }

    fn stdout(&self, args: &[&str]) -> String {
        let output = self.corewise(args).assert().success();
        String::from_utf8(output.get_output().stdout.clone()).unwrap()
    }

    /// The page shows the source, and that one of three numbers is divisible by three.
    fn check_page(&self, printed: &str) {
        assert_eq!(printed, "");
        let page = std::fs::read_to_string(self.path("run.html")).unwrap();
        for part in ["if (x % 3 == 0) return 1;", "program.c:6", "classify</code>", "imul", "<rect"] {
            assert!(page.contains(part), "no {part} in {page}");
        }
        let taken: Vec<f64> = page
            .split("class=\"ways\"><i style=\"width:")
            .skip(1)
            .map(|rest| rest.split('%').next().unwrap().parse().unwrap())
            .collect();
        let is_a_third = |share: &f64| (share - 33.3).abs() < 8.0 || (share - 66.7).abs() < 8.0;
        assert!(taken.iter().any(is_a_third), "{taken:?}");
    }

    fn check_error(&self, args: &[&str], status: i32, words: &[&str]) {
        let output = self.corewise(args).assert().code(status);
        let stderr = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
        for word in words {
            assert!(stderr.contains(word), "{args:?}: no `{word}` in: {stderr}");
        }
    }
}

/// The sum of the last column.
fn counts(text: &str, separator: char) -> u64 {
    text.lines().filter_map(|line| line.rsplit_once(separator)?.1.trim().parse::<u64>().ok()).sum()
}

#[test]
fn a_recording_becomes_a_report_and_every_profile() {
    let fixture = Fixture::new();
    fixture.record("run.cwp", ROUNDS);

    let report: Value = serde_json::from_str(&fixture.stdout(&["report", "--json", "run.cwp"])).unwrap();
    assert!(report["windows"].as_u64().unwrap() >= 20, "{report}");
    assert_eq!(report["contradicting"], 0);
    let names = |list: &str, field: &str| {
        let entries = report[list].as_array().unwrap().iter();
        entries.map(|entry| entry[field].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(names("functions", "name").contains(&"classify".to_owned()), "{report}");
    assert!(names("paths", "function").contains(&"classify".to_owned()), "{report}");
    assert!(fixture.stdout(&["report", "run.cwp"]).contains("hot paths"));
    fixture.check_page(&fixture.stdout(&["report", "run.cwp", "--html", "run.html"]));

    let export = |format: &str| fixture.stdout(&["export", "run.cwp", "--format", format]);
    let profgen = export("llvm-profgen");
    let ranges: usize = profgen.lines().next().unwrap().parse().unwrap();
    let branches: usize = profgen.lines().nth(ranges + 1).unwrap().parse().unwrap();
    assert_eq!(profgen.lines().count(), ranges + branches + 2);
    let bolt = export("bolt");
    assert!(bolt.lines().all(|line| ["B ", "F ", "f "].iter().any(|kind| line.starts_with(kind))), "{bolt}");
    assert!(export("perf-script").starts_with("PERF_RECORD_MMAP2 "));
    let autofdo = export("autofdo");
    // One of three numbers is divisible by three: the line after that test has two thirds of its counts.
    assert!(autofdo.contains("classify:") && autofdo.contains(" classify:"), "{autofdo}");
    let folded = export("folded");
    assert!(folded.lines().any(|line| line.starts_with("work;classify ")), "{folded}");
    assert!(counts(&folded, ' ') > 1000, "{folded}");
    let firefox: Value = serde_json::from_str(&export("firefox")).unwrap();
    assert_eq!(firefox["meta"]["product"], "corewise");

    fixture.stdout(&["export", "run.cwp", "-f", "bolt", "-o", "run.bolt", "--module", "program"]);
    assert_eq!(std::fs::read_to_string(fixture.path("run.bolt")).unwrap(), bolt);

    let twice = fixture.stdout(&["export", "run.cwp", "run.cwp", "--format", "bolt"]);
    assert!(counts(&twice.replace(" 0\n", "\n"), ' ') > counts(&bolt.replace(" 0\n", "\n"), ' '));
}

/// Runs a tool of LLVM 19 that must succeed, and what it prints.
fn llvm(fixture: &Fixture, tool: &str, args: &[&str]) -> String {
    let mut command = std::process::Command::new(Path::new("/usr/lib/llvm-19/bin").join(tool));
    let output = command.current_dir(fixture.folder.path()).args(args).output().unwrap();
    let printed = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{tool}: {printed:?}");
    printed.concat()
}

#[test]
fn the_tools_that_read_profiles_find_the_hot_functions_in_them() {
    needs!(Llvm);
    let fixture = Fixture::new();
    fixture.compile_with(PROGRAM, &["-g", "-gno-as-locview-support", "-Wl,--build-id,--emit-relocs"]);
    fixture.record("run.cwp", ROUNDS);
    let export = |format: &str| fixture.stdout(&["export", "run.cwp", "-f", format, "-o", format]);
    ["llvm-profgen", "perf-script", "bolt", "autofdo"].into_iter().for_each(|format| _ = export(format));
    let branches = ["--binary=program", "--unsymbolized-profile=llvm-profgen", "--use-offset=0"];
    llvm(&fixture, "llvm-profgen", &[&branches[..], &["--output=branches"]].concat());
    let stacks = ["--binary=program", "--perfscript=perf-script", "--output=stacks"];
    llvm(&fixture, "llvm-profgen", &stacks);
    for profile in ["branches", "stacks", "autofdo"] {
        let shown = llvm(&fixture, "llvm-profdata", &["show", "--sample", profile]);
        assert!(shown.contains("Function: classify: "), "{profile}: {shown}");
    }
    let printed = llvm(&fixture, "perf2bolt", &["program", "-pa", "-p", "bolt", "-o", "fdata"]);
    assert!(printed.contains("mismatching disassembled function contents: 0 "), "{printed}");
    let fdata = std::fs::read_to_string(fixture.path("fdata")).unwrap();
    assert!(fdata.contains("classify"), "{fdata}");
}

#[test]
fn a_profile_that_is_worth_less_than_it_looks_says_why() {
    let fixture = Fixture::new();
    let warnings = |format: &str| {
        let output =
            fixture.corewise(&["export", "run.cwp", "-f", format, "-o", "profile"]).assert().success();
        String::from_utf8_lossy(&output.get_output().stderr).into_owned()
    };
    fixture.compile_with(PROGRAM, &["-Wl,--build-id=none"]);
    fixture.record("run.cwp", "3");
    let profgen = warnings("llvm-profgen");
    for words in ["are few for a profile: record a longer run", "-gline-tables-only", "-Wl,--build-id"] {
        assert!(profgen.contains(words), "no `{words}` in: {profgen}");
    }
    assert!(warnings("bolt").contains("-Wl,--emit-relocs"));
    fixture.check_error(&["export", "run.cwp", "-f", "autofdo"], 1, &["no debug information", "-g"]);
    // Go's linker is not that of C.
    let go = format!("{PROGRAM}\n__attribute__((section(\".go.buildinfo\"))) int info = 1;");
    fixture.compile_with(&go, &["-Wl,--build-id=none"]);
    fixture.record("go.cwp", "3");
    let output = fixture.corewise(&["export", "go.cwp", "-f", "pprof", "-o", "profile"]).assert();
    let profile = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(profile.contains("-ldflags=-B=gobuildid") && !profile.contains("-Wl,--build-id"), "{profile}");

    fixture.compile_with(PROGRAM, &["-g", "-Wl,--build-id", "-Wl,--emit-relocs"]);
    fixture.record("run.cwp", "3");
    for format in ["llvm-profgen", "bolt"] {
        let warnings = warnings(format);
        assert!(warnings.contains("few for a profile"), "{warnings}");
        assert!(
            ["-gline", "build id", "--emit-relocs"].iter().all(|word| !warnings.contains(word)),
            "{warnings}"
        );
    }
}

/// The counts of a profile for BOLT, by what is counted.
fn counts_in(profile: &str) -> BTreeMap<String, f64> {
    let count = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        (words[..3].join(" "), words[3].parse().unwrap())
    };
    profile.lines().map(count).collect()
}

#[test]
fn recordings_of_two_builds_are_one_and_the_build_that_is_there_is_exported() {
    let fixture = Fixture::new();
    fixture.record("old.cwp", ROUNDS);
    fixture.compile_with(PROGRAM, &["-g", "-O2", "-Wl,--build-id"]);
    fixture.record("new.cwp", ROUNDS);
    let output = fixture.corewise(&["merge", "old.cwp", "new.cwp", "-o", "all.cwp"]).assert().success();
    let stderr = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(stderr.contains("of 2 recordings") && stderr.contains("was recorded in 2 builds"), "{stderr}");

    let args = ["export", "all.cwp", "-f", "bolt", "--module", "program"];
    let output = fixture.corewise(&args).assert().success();
    let stderr = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(stderr.contains("windows of another build are left out"), "{stderr}");
    let of_all = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    let new = fixture.stdout(&["export", "new.cwp", "-f", "bolt", "--module", "program"]);
    // A window in which the first program was still being loaded is one of the loader's present build. It
    // belongs to the recording, and so to the scale of all counts.
    let (of_all, of_new) = (counts_in(&of_all), counts_in(&new));
    assert!(of_all.keys().eq(of_new.keys()), "{of_all:?} {of_new:?}");
    let is_same = |(of_all, of_new): (&f64, &f64)| (of_all - of_new).abs() < 0.1 * of_new + 2.0;
    assert!(of_all.values().zip(of_new.values()).all(is_same), "{of_all:?} {of_new:?}");
    fixture.check_error(&["export", "old.cwp", "-f", "bolt"], 1, &["program", "build id"]);
    fixture.check_error(&["merge", "all.cwp", "none.cwp", "-o", "x.cwp"], 1, &["none.cwp"]);
}

#[test]
fn the_truth_judges_recordings() {
    let fixture = Fixture::new();
    fixture.corewise(&["truth", "-o", "truth.cwt", "--", "./program", "1"]).assert().code(7);
    fixture.record("one.cwp", ROUNDS);
    fixture.record("two.cwp", ROUNDS);
    let args =
        ["accuracy", "--truth", "truth.cwt", "one.cwp", "two.cwp", "--json", "--html", "accuracy.html"];
    let study: Value = serde_json::from_str(&fixture.stdout(&args)).unwrap();
    let rows = study["by_runs"].as_array().unwrap();
    let best = rows.last().unwrap();
    assert_eq!((best["runs"].as_u64(), best["branches"].as_u64()), (Some(2), Some(16)));
    assert!(best["agreement"]["accuracy"].as_f64().unwrap() > 0.95, "{best}");
    assert!(best["agreement"]["edge_overlap"].as_f64().unwrap() > 0.8, "{best}");
    let page = std::fs::read_to_string(fixture.path("accuracy.html")).unwrap();
    assert!(page.contains("<polyline") && page.contains("Unique paths"));
    let table = fixture.stdout(&["accuracy", "--truth", "truth.cwt", "one.cwp"]);
    assert!(table.lines().any(|line| line.trim_start().starts_with("16 ")), "{table}");
}

#[test]
fn a_running_process_is_recorded_and_goes_on() {
    let fixture = Fixture::new();
    let mut program = std::process::Command::new(fixture.path("program"));
    let mut child = program.arg("4000").stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    let args = ["record", "--pid", &pid, "--duration", "1s", "--rate", "500", "-o", "run.cwp"];
    fixture.corewise(&args).assert().success();
    assert_eq!(child.try_wait().unwrap(), None, "it runs on");
    child.kill().unwrap();
    child.wait().unwrap();
    let report: Value = serde_json::from_str(&fixture.stdout(&["report", "--json", "run.cwp"])).unwrap();
    assert!(report["windows"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn what_cannot_be_recorded_is_said() {
    let fixture = Fixture::new();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id().to_string();
    child.wait().unwrap();
    fixture.check_error(&["record", "-p", &pid, "-o", "x"], 125, &["no process", &pid]);
    fixture.check_error(&["record", "-o", "x", "--", "./no-such-program"], 127, &["no-such-program"]);
    fixture.check_error(&["record", "-o", "no/such/x", "--", "./program", "1"], 125, &["no/such/x"]);
    fixture.check_error(&["record", "-o", "x"], 2, &["COMMAND"]);
    fixture.check_error(&["record", "--rate", "0", "-o", "x", "--", "./program"], 2, &["not a rate"]);
}

#[test]
fn a_process_of_somebody_else_is_refused() {
    // Others must be able to reach and execute the program, and to write the recording.
    let fixture = Fixture::new();
    let everybody = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(fixture.folder.path(), everybody).unwrap();
    let corewise = fixture.path("corewise");
    std::fs::copy(assert_cmd::cargo::cargo_bin!("corewise"), &corewise).unwrap();
    let mut command = std::process::Command::new(&corewise);
    command.current_dir(fixture.folder.path()).args(["paths", "record", "-p", "1", "-o", "x"]);
    if is_root() {
        command.uid(65534).gid(65534);
    }
    let output = Command::from_std(command).assert().code(125);
    let stderr = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(stderr.contains("may not be followed") || stderr.contains("refused"), "{stderr}");
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0
}

#[test]
fn what_cannot_be_read_is_said() {
    let fixture = Fixture::new();
    fixture.record("run.cwp", "10");
    let whole = std::fs::read(fixture.path("run.cwp")).unwrap();
    std::fs::write(fixture.path("cut.cwp"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(fixture.path("text.cwp"), "hello").unwrap();
    std::fs::write(fixture.path("future.cwp"), r#"{"version": 99}"#).unwrap();
    fixture.check_error(&["report", "no.cwp"], 1, &["cannot read", "no.cwp"]);
    fixture.check_error(&["report", "cut.cwp"], 1, &["cut.cwp", "damaged"]);
    fixture.check_error(&["report", "text.cwp"], 1, &["text.cwp", "not a recording"]);
    fixture.check_error(&["report", "future.cwp"], 1, &["format 99", "up to 2"]);
    let old = r#"{"version": 1, "command": [], "backend": "shadow", "period_ns": 1, "branches_max": 2,
        "modules": [], "windows": [], "without_window": {}, "notes": []}"#;
    std::fs::write(fixture.path("old.cwp"), old).unwrap();
    fixture.stdout(&["merge", "old.cwp", "-o", "new.cwp"]);
    fixture.check_error(&["export", "run.cwp", "--format", "word"], 2, &["word", "llvm-profgen"]);
    let other = ["export", "run.cwp", "-f", "bolt", "--module", "libnone.so"];
    fixture.check_error(&other, 1, &["no module libnone.so", "program"]);

    fixture.compile(&PROGRAM.replace("x % 5", "x % 7"));
    assert!(Path::exists(&fixture.path("program")));
    // Of so short a recording, most may be of a library.
    let changed = ["export", "run.cwp", "-f", "bolt", "--module", "program"];
    fixture.check_error(&changed, 1, &["changed since the recording", "build id"]);
}
