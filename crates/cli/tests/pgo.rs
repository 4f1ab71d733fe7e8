//! `corewise pgo` through the binary, on a small program with a Makefile. That it gets faster is no fact that
//! a test could wait for; that the compiler reads the profile, and what is left at the end, are.

use assert_cmd::Command;
use corewise_testing::{needs, skip};
use serde_json::Value;
use std::path::PathBuf;

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static unsigned seed = 1;
__attribute__((noinline)) static unsigned step(unsigned x) {
    switch (x % 7) {
    case 0: return x / 5;
    case 1: return x ^ 5;
    default: return x + 1;
    }
}
int main(int argc, char **argv) {
    unsigned sum = 0;
    for (long i = atol(argv[1]); i > 0; i--) {
        seed = seed * 1103515245u + 12345u;
        sum += step(seed >> 16);
    }
    printf("%u\n", sum);
}
"#;

const GO_PROGRAM: &str = r#"package main
import ("fmt"; "os"; "strconv")
//go:noinline
func step(x uint32) uint32 { if x%7 == 0 { return x / 5 }; return x ^ 5 }
func main() {
	n, _ := strconv.Atoi(os.Args[1])
	seed, sum := uint32(1), uint32(0)
	for ; n > 0; n-- { seed = seed*1103515245 + 12345
		sum += step(seed >> 16)
	}
	fmt.Println(sum)
}
"#;

const RUST_PROGRAM: &str = r#"
#[inline(never)]
fn step(x: u32) -> u32 { match x % 7 { 0 => x / 5, 1 => x ^ 5, _ => x.wrapping_add(1) } }
fn main() {
    let iterations: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let (mut seed, mut sum) = (1u32, 0u32);
    for _ in 0..iterations {
        seed = seed.wrapping_mul(1103515245).wrapping_add(12345);
        sum = sum.wrapping_add(step(seed >> 16));
    }
    println!("{sum}");
}
"#;

const MAKEFILE: &str = "
prog: prog.o
\t$(CC) -o $@ prog.o $(LDFLAGS)
prog.o: prog.c
\t$(CC) $(CFLAGS) -c prog.c
clean:
\trm -f prog prog.o
";

const BUILD: &str = r#"make clean && make CC={cc} CFLAGS="-O2 {flags}" LDFLAGS="{ldflags}""#;
const RUN: &str = "./prog 20000000";

struct Project {
    folder: tempfile::TempDir,
}

impl Project {
    fn new() -> Project {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("prog.c"), PROGRAM).unwrap();
        std::fs::write(folder.path().join("Makefile"), MAKEFILE).unwrap();
        Project { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    fn pgo(&self, build: &str, options: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("corewise"));
        command.current_dir(self.folder.path()).args(["pgo", "--build", build, "--run", RUN]);
        command.args(["--record-max", "1s", "--runs", "6"]).args(options);
        command
    }

    fn outcome(&self, build: &str, options: &[&str]) -> Value {
        let output = self.pgo(build, options).arg("--json").assert().success();
        serde_json::from_slice(&output.get_output().stdout).unwrap()
    }

    fn check_error(&self, build: &str, options: &[&str], words: &[&str]) {
        let output = self.pgo(build, options).assert().code(1);
        let stderr = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
        for word in words {
            assert!(stderr.contains(word), "no `{word}` in: {stderr}");
        }
    }
}

#[test]
fn a_program_is_built_by_its_profile_measured_and_one_variant_kept() {
    let project = Project::new();
    let build = BUILD.replace("-O2", "-O2 -Rpass-analysis=sample-profile");
    let outcome = project.outcome(&build, &[]);
    let remarks = String::from_utf8(project.read("corewise-pgo/build-sample.log")).unwrap();
    assert!(remarks.contains("samples from profile"), "{remarks}");
    assert!(!remarks.contains("warning:"), "{remarks}");

    let variants = outcome["variants"].as_array().unwrap();
    let names: Vec<&str> = variants.iter().map(|variant| variant["name"].as_str().unwrap()).collect();
    assert_eq!(names[..2], ["baseline", "sample"], "{outcome}");
    assert!(variants.iter().all(|variant| variant["cpu_s"].as_f64().unwrap() > 0.0), "{outcome}");
    assert!(variants[0]["gain"].is_null() && variants[1]["gain"]["value"].is_number(), "{outcome}");
    let kept = outcome["kept"].as_str().unwrap();
    assert!(names.contains(&kept), "{outcome}");
    assert!(project.read("prog") == project.read(&format!("corewise-pgo/{kept}")));
    assert_eq!(outcome["build"].is_null(), kept == "baseline", "{outcome}");
}

#[test]
fn gcc_finds_the_hot_function_in_its_profile() {
    let project = Project::new();
    let build = "make clean && make CC=gcc CFLAGS='-O2 {gccflags} -fdump-tree-optimized -dumpdir dump-' \
                 LDFLAGS='{ldflags}'";
    let outcome = project.outcome(build, &["--bolt", "off"]);
    assert_eq!(outcome["variants"][1]["name"], "sample", "{outcome}");
    let files = project.folder.path().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut dumps = files.filter(|file| file.extension().is_some_and(|extension| extension == "optimized"));
    let dump = std::fs::read_to_string(dumps.next().expect("GCC has written what it did")).unwrap();
    let of_step = dump.lines().find(|line| line.starts_with(";; Function step ")).unwrap();
    assert!(of_step.ends_with("(hot)"), "{of_step}");
}

#[test]
fn go_reads_how_often_functions_call_each_other() {
    needs!(Go);
    let project = Project::new();
    std::fs::write(project.path("go.mod"), "module prog\n").unwrap();
    std::fs::write(project.path("prog.go"), GO_PROGRAM).unwrap();
    let outcome = project.outcome("go build {goflags} -o prog prog.go", &[]);
    assert_eq!(outcome["variants"][1]["name"], "sample", "{outcome}");
    let mut reader = std::process::Command::new("go");
    reader.args(["tool", "preprofile", "-i"]).arg(project.path("corewise-pgo/sample.pprof"));
    let output = reader.output().unwrap();
    let read = String::from_utf8_lossy(&output.stdout);
    // That many lines below the first one of `main`.
    assert!(read.contains("main.main\nmain.step\n4 "), "{read} {output:?}");
}

/// What the build says of its compiler counts, not what corewise sees.
#[test]
fn rustc_takes_profiles_where_the_build_allows_it() {
    let project = Project::new();
    std::fs::write(project.path("prog.rs"), RUST_PROGRAM).unwrap();
    let build = "rustc -O {rustflags} -o prog prog.rs";
    let words = ["stable rustc takes no sample profile", "RUSTC_BOOTSTRAP=1"];
    project.check_error(build, &["--bolt", "off"], &words);
    let outcome = project.outcome(&format!("RUSTC_BOOTSTRAP=1 {build}"), &["--bolt", "off"]);
    assert_eq!(outcome["variants"][1]["name"], "sample", "{outcome}");
}

#[test]
fn where_nothing_is_gained_the_baseline_stays() {
    let project = Project::new();
    // The measured command succeeds with the baseline only.
    let options = ["--bolt", "off", "--measure", "cmp prog corewise-pgo/baseline"];
    let outcome = project.outcome(BUILD, &options);
    assert_eq!(outcome["kept"], "baseline");
    assert!(outcome["build"].is_null(), "{outcome}");
    assert!(outcome["notes"].to_string().contains("sample is left out"), "{outcome}");
    assert!(project.read("prog") == project.read("corewise-pgo/baseline"));
    assert!(project.read("prog") != project.read("corewise-pgo/sample"));
}

#[test]
fn a_build_that_fails_is_shown_and_the_baseline_comes_back() {
    let project = Project::new();
    let build = format!("{BUILD} && if test -e corewise-pgo/sample.prof; then echo it broke; exit 3; fi");
    project.check_error(&build, &["--bolt", "off"], &["it broke", "exit status: 3", "build-sample.log"]);
    assert!(project.read("prog") == project.read("corewise-pgo/baseline"));
}

#[test]
fn a_recording_that_the_user_has_makes_the_profile() {
    let project = Project::new();
    project.outcome(BUILD, &["--bolt", "off"]);
    let of_baseline = project.path("baseline.cwp");
    std::fs::rename(project.path("corewise-pgo/baseline-0.cwp"), &of_baseline).unwrap();
    std::fs::copy(project.path("corewise-pgo/sample"), project.path("prog")).unwrap();
    let options = ["--bolt", "off", "--from", "baseline.cwp"];
    project.check_error(BUILD, &options, &["no recording of --from is of", "put the recorded build there"]);
    assert!(project.read("prog") == project.read("corewise-pgo/sample"));

    std::fs::copy(project.path("corewise-pgo/baseline"), project.path("prog")).unwrap();
    // Sources that have changed since.
    std::fs::write(project.path("prog.c"), format!("{PROGRAM}\n int more;")).unwrap();
    let build = BUILD.replace("-O2", "-O2 -Rpass-analysis=sample-profile");
    let output = project.pgo(&build, &options).assert().success();
    let stderr = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(!stderr.contains("recording baseline"), "{stderr}");
    let remarks = String::from_utf8(project.read("corewise-pgo/build-sample.log")).unwrap();
    assert!(remarks.contains("samples from profile"), "{remarks}");
    assert!(remarks.contains("-mllvm -salvage-stale-profile"), "the compiler allows for it: {remarks}");
}

/// Asks corewise to end once a command has written its process into the file `here`.
fn check_ended(options: &[&str]) {
    let project = Project::new();
    std::fs::write(project.path("prog"), "the user's").unwrap();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("corewise"));
    command.current_dir(project.folder.path()).args(["pgo", "--bolt", "off", "--record-max", "1s"]);
    command.args(["--binary", "prog"]).args(options);
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let waiting = loop {
        match std::fs::read_to_string(project.path("here")) {
            Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
            _ => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    };
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{options:?}: {stderr}");
    for words in ["prog is as it was before", "ended by a signal"] {
        assert!(stderr.contains(words), "{options:?}: no `{words}` in: {stderr}");
    }
    assert_eq!(project.read("prog"), b"the user's", "{options:?}");
    assert!(!PathBuf::from(format!("/proc/{waiting}")).exists(), "{options:?}: it is still there");
}

#[test]
fn after_ctrl_c_the_program_is_what_it_was_before() {
    let waits = "{ echo $$ > here; sleep 1000; }";
    let half = format!("{{ echo half > prog; {waits}; }}");
    let second = format!("{BUILD} && if test -e corewise-pgo/sample.prof; then {half}; fi");
    check_ended(&["--build", &format!("{half} # {{flags}}"), "--run", RUN]);
    check_ended(&["--build", BUILD, "--run", &format!("{RUN}; {waits}")]);
    check_ended(&["--build", &second, "--run", RUN]);
    check_ended(&["--build", BUILD, "--run", RUN, "--measure", waits]);
}

/// Optimises a program on a disk of its own that this step fills. Checks the exit status with what lies in
/// the place of the program at the end, and what corewise says.
fn check_on_a_disk_that_is_full_after(step: &str, expected: &[&str], words: &str) {
    const FILL: &str = "head -c 64M /dev/zero > fill 2>/dev/null";
    let fills = |name: &str, then: &str| format!("{then}; [ $S != {name} ] || {FILL}; true");
    let project = Project::new();
    for (program, option) in [("baseline", "-O1"), ("sample", "-O2")] {
        let mut gcc = std::process::Command::new("gcc");
        gcc.current_dir(project.folder.path()).args(["-g", option, "prog.c", "-o", program]);
        assert!(gcc.status().unwrap().success());
    }
    let (first, second) = (fills("first", "cp ../baseline prog"), fills("second", "cp ../sample prog"));
    let build = format!(": {{gccflags}}; if test -e d/sample.gcov; then {second}; else {first}; fi");
    let disk = project.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=16m none disk || exit 99; cd disk && echo \"the user's\" > prog; \
         [ $S != start ] || {FILL}; \"$@\" >&2; echo $?; \
         if cmp -s prog ../baseline; then echo baseline; \
         elif cmp -s prog ../sample; then echo sample; else cat prog; fi"
    );
    let mut command = std::process::Command::new("unshare");
    command.current_dir(project.folder.path()).env("S", step);
    command.args(["--mount", "sh", "-c", &script, "sh"]).arg(assert_cmd::cargo::cargo_bin!("corewise"));
    command.args(["pgo", "--dir", "d", "--binary", "prog", "--build", &build, "--runs", "6"]);
    command.args(["--run", &fills("run", RUN), "--measure", &fills("measure", RUN), "--record-max", "1ms"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(99) {
        skip!(Mount, "{said}");
    }
    let left = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(expected.contains(&left.as_str()) && said.contains(words), "{step}: {left}{said}");
}

#[test]
fn a_full_disk_does_not_cost_the_program() {
    for step in ["start", "first", "run", "second"] {
        check_on_a_disk_that_is_full_after(step, &["1\nthe user's\n"], "disk/prog is as it was before");
    }
    // The variant itself is put there, if there is no room for a copy.
    for step in ["measure", "never"] {
        check_on_a_disk_that_is_full_after(step, &["0\nbaseline\n", "0\nsample\n"], "d/aside until the end");
    }
}

/// The build ends when its progress is shown.
#[test]
fn a_terminal_shows_how_long_a_build_takes() {
    let project = Project::new();
    let shown = "until grep -aq 'build-baseline: [0-9]* s' screen; do sleep .1; done";
    let build = format!("timeout 60 sh -c \"{shown}\" && exit 5 # {{gccflags}}");
    std::fs::write(project.path("build"), &build).unwrap();
    let pgo = format!(
        "{} pgo --build \"$(cat build)\" --run ./prog",
        assert_cmd::cargo::cargo_bin!("corewise").display()
    );
    let mut script = std::process::Command::new("script");
    script.current_dir(project.folder.path()).args(["-qefc", &pgo, "screen"]);
    assert_eq!(script.output().unwrap().status.code(), Some(1));
    let screen = String::from_utf8_lossy(&project.read("screen")).into_owned();
    assert!(screen.contains("exit status: 5"), "{screen}");
    project.check_error("echo {gccflags}; exit 5", &[], &["exit status: 5"]);
}

#[test]
fn a_build_that_no_profile_reaches_is_an_error_with_the_remedy() {
    let project = Project::new();
    let without_clean = BUILD.replace("make clean && ", "");
    project.check_error(&without_clean, &["--bolt", "off"], &["gave the same program", "make clean && make"]);
    let lost = BUILD.replace("CFLAGS", "NOBODYS_FLAGS");
    project.check_error(&lost, &[], &["no debug information", "{flags} reaches the compiler"]);
    project.check_error("make", &[], &["--build has no {flags}", "CFLAGS=\"-O2 {flags}\""]);
    project.check_error(BUILD, &["--binary", "other"], &["--build made no", "other", "--binary"]);
}

#[test]
fn a_program_that_is_not_run_is_an_error() {
    let project = Project::new();
    let build = format!("{BUILD} && cp prog other");
    project.check_error(&build, &["--binary", "other"], &["no window lies in", "other", "--binary"]);
}

#[test]
fn a_missing_compiler_is_named_and_a_dry_run_does_nothing() {
    let project = Project::new();
    let empty = project.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let output = project.pgo(BUILD, &[]).env("PATH", &empty).assert().code(1);
    assert!(String::from_utf8_lossy(&output.get_output().stderr).contains("apt-get install clang-19"));
    std::fs::remove_dir(&empty).unwrap();

    let output = project.pgo(BUILD, &["--dry-run"]).assert().success();
    let script = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    for words in ["CFLAGS=\"-O2 -gline-tables-only", "corewise paths record", "-fprofile-sample-use="] {
        assert!(script.contains(words), "no `{words}` in: {script}");
    }
    assert_eq!(project.folder.path().read_dir().unwrap().count(), 2);
}
