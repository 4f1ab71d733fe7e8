//! `corewise pgo record` through the binary, on a program that never ends, and what others make of the store.

use assert_cmd::cargo::cargo_bin;
use corewise_code::elf::ElfFile;
use corewise_testing::{needs, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PROGRAM: &str = r#"
#include <stdio.h>
static unsigned seed = 1;
__attribute__((noinline)) static unsigned step(unsigned x) {
    if (x % 3 == 0) return x / 5;
    return x ^ 5;
}
int main(void) {
    for (volatile unsigned sum = 0;; sum += step(seed >> 16)) seed = seed * 1103515245u + 12345u;
}
"#;

/// How long a test waits for a fact that is sure to come.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that is killed at the end, whatever becomes of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Waits until it has used more CPU time than now.
    fn is_going_on(&mut self) -> bool {
        let used = |pid: &str| fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        let before = used(&self.pid());
        wait_for("the program goes on", || {
            self.0.try_wait().unwrap().is_some() || used(&self.pid()) != before
        });
        self.0.try_wait().unwrap().is_none()
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}: waited for in vain");
        sleep(Duration::from_millis(20));
    }
}

struct Project(tempfile::TempDir);

impl Project {
    fn new() -> Project {
        let project = Project(tempfile::tempdir().unwrap());
        project.compile(PROGRAM);
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A build of the program in its own file.
    fn compile(&self, source: &str) {
        fs::write(self.path("program.c"), source).unwrap();
        let mut compiler = Command::new("cc");
        compiler.current_dir(self.0.path()).args(["-O1", "-g", "-Wl,--build-id", "program.c", "-o", "new"]);
        assert!(compiler.status().expect("a C compiler").success());
        fs::rename(self.path("new"), self.path("program")).unwrap();
    }

    fn run(&self) -> Running {
        Running(Command::new(self.path("program")).spawn().unwrap())
    }

    fn corewise(&self, args: &[&str]) -> Output {
        let mut command = Command::new(cargo_bin!("corewise"));
        command.current_dir(self.0.path()).args(args).output().unwrap()
    }

    fn recorder(&self, target: &[&str]) -> Running {
        let mut command = Command::new(cargo_bin!("corewise"));
        command.current_dir(self.0.path()).args(["pgo", "record", "--store", "store"]).args(target);
        command.args(["--period", "1s", "--rate", "200"]).stderr(Stdio::piped());
        Running(command.spawn().unwrap())
    }

    /// The recordings of the program's build as it is now.
    fn recordings(&self) -> Vec<PathBuf> {
        let program = ElfFile::open(&self.path("program")).unwrap();
        let id = program.build_id().expect("a build id");
        let files = fs::read_dir(self.path("store").join(id)).into_iter().flatten().flatten();
        let is_whole = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "cwp");
        files.map(|file| file.path()).filter(is_whole).collect()
    }

    /// Waits until there are that many. Returns the recorder's output if it ended before, because it may not
    /// record.
    fn wait_for_recordings(&self, count: usize, recorder: &mut Running) -> Option<String> {
        wait_for("recordings", || self.recordings().len() >= count || has_ended(recorder));
        has_ended(recorder).then(|| stderr_of(recorder))
    }

    /// Returns how often windows contain a taken branch of the program.
    fn counts(&self) -> u64 {
        let exported = self.corewise(&["paths", "export", "store", "--module", "program", "-f", "bolt"]);
        assert!(exported.status.success(), "{exported:?}");
        let text = String::from_utf8(exported.stdout).unwrap();
        text.lines().filter_map(|line| line.rsplit_once(' ')?.1.trim().parse::<u64>().ok()).sum()
    }
}

fn has_ended(running: &mut Running) -> bool {
    running.0.try_wait().unwrap().is_some()
}

fn stderr_of(running: &mut Running) -> String {
    let mut text = String::new();
    std::io::Read::read_to_string(running.0.stderr.as_mut().unwrap(), &mut text).unwrap();
    text
}

/// Ends it as Ctrl-C does; what it said.
fn ended(mut recorder: Running) -> String {
    kill(Pid::from_raw(recorder.0.id() as i32), Signal::SIGINT).unwrap();
    let status = recorder.0.wait().unwrap();
    let printed = stderr_of(&mut recorder);
    assert_eq!(status.code(), Some(0), "{printed}");
    printed
}

fn check_error(output: &Output, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "no `{word}` in: {stderr}");
    }
}

#[test]
fn a_process_that_always_runs_fills_a_store_whatever_ends_the_recorder() {
    let project = Project::new();
    let mut program = project.run();
    let mut killed = project.recorder(&["--pid", &program.pid()]);
    assert_eq!(project.wait_for_recordings(1, &mut killed), None);
    drop(killed);
    let first = project.recordings().len();
    assert!(program.is_going_on() && project.counts() > 0);

    let mut recorder = project.recorder(&["--pid", &program.pid()]);
    assert_eq!(project.wait_for_recordings(first + 1, &mut recorder), None);
    let printed = ended(recorder);
    assert!(printed.contains(" windows of ") && printed.contains("corewise pgo --from store"), "{printed}");
    assert!(program.is_going_on());

    // The recorder ends with the program.
    let mut recorder = project.recorder(&["--pid", &program.pid()]);
    let before = project.recordings().len();
    assert_eq!(project.wait_for_recordings(before + 1, &mut recorder), None);
    drop(program);
    wait_for("the recorder ends", || has_ended(&mut recorder));
    assert_eq!(recorder.0.wait().unwrap().code(), Some(0), "{}", stderr_of(&mut recorder));
}

#[test]
fn what_a_store_lacks_is_said() {
    let project = Project::new();
    let program = project.run();
    let mut recorder = project.recorder(&["--pid", &program.pid()]);
    assert_eq!(project.wait_for_recordings(1, &mut recorder), None);
    ended(recorder);
    let export =
        |options: &[&str]| project.corewise(&[&["paths", "export", "store", "-f", "bolt"], options].concat());
    check_error(&export(&[]), &["store is a profile store", "--module", "program ("]);
    project.compile(&PROGRAM.replace("x / 5", "x / 6"));
    let words = ["has no recording of program as it is now", "of 1 other builds of it"];
    check_error(&export(&["--module", "program"]), &words);
    let build = "make CC={cc} CFLAGS='{flags}'";
    let pgo = ["pgo", "--from", "store", "--build", build, "--run", "./program", "--bolt", "off"];
    check_error(&project.corewise(&pgo), &["of 1 other builds of it"]);
}

#[test]
fn what_cannot_be_recorded_is_said() {
    let project = Project::new();
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let record = |args: &[&str]| project.corewise(&[&["pgo", "record"], args].concat());
    let pid = gone.id().to_string();
    check_error(&record(&["--store", "s", "--pid", &pid]), &["no process", &pid]);
    check_error(&record(&["--store", "s", "--service", "a/b"]), &["a/b"]);
    fs::write(project.path("file"), "").unwrap();
    check_error(&record(&["--store", "file", "--pid", "1"]), &["cannot make the profile store file"]);
    for args in [
        &[][..],
        &["--system", "--pid", "1"],
        &["--system", "--period", "10ms"],
        &["--system", "--rate", "0"],
    ] {
        assert_eq!(record(args).status.code(), Some(2), "{args:?}");
    }
    let both = ["pgo", "--build", "make", "record", "--system"];
    assert_eq!(project.corewise(&both).status.code(), Some(2));
}

#[test]
fn the_whole_system_is_recorded_by_builds() {
    needs!(Root);
    let project = Project::new();
    let mut program = project.run();
    let mut recorder = project.recorder(&["--system"]);
    if let Some(printed) = project.wait_for_recordings(1, &mut recorder) {
        assert!(
            printed.contains("is recorded by preempting its threads, which is not possible here"),
            "{printed}"
        );
        skip!(Bpf, "{printed}");
    }
    ended(recorder);
    assert!(program.is_going_on() && project.counts() > 0);
}

/// A control group that is removed at the end.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_service_is_recorded_also_after_it_is_started_again() {
    needs!(Root);
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let Some(root) = mounts.into_iter().find(|root| root.join("cgroup.procs").exists()) else {
        skip!(Cpuset, "there are no control groups of version 2");
    };
    let unit = format!("corewise-test-{}.service", std::process::id());
    let group = root.join(&unit);
    let start = |project: &Project| -> std::io::Result<_> {
        fs::create_dir(&group)?;
        let (group, program) = (Group(group.clone()), project.run());
        fs::write(group.0.join("cgroup.procs"), program.pid()).map(|()| (program, group))
    };
    let project = Project::new();
    let service = match start(&project) {
        Ok(service) => service,
        Err(error) => skip!(Cpuset, "{error}"),
    };
    let mut recorder = project.recorder(&["--service", unit.trim_end_matches(".service")]);
    if let Some(printed) = project.wait_for_recordings(1, &mut recorder) {
        assert!(
            printed.contains("is recorded by preempting its threads, which is not possible here"),
            "{printed}"
        );
        skip!(Bpf, "{printed}");
    }
    drop(service);
    wait_for("the group is gone", || !group.exists() || fs::remove_dir(&group).is_ok());
    project.compile(&PROGRAM.replace("x / 5", "x / 6"));
    let _service = start(&project).unwrap();
    assert_eq!(project.wait_for_recordings(1, &mut recorder), None);
    ended(recorder);
}
