//! What a program tells of its threads through `libcorewise`, under the real command.

use crate::common::{corewise, report_of, wait_for};
use flate2::read::MultiGzDecoder;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A program that tells of its threads, and a policy that writes down what it hears.
struct Telling {
    corewise: Child,
    directory: TempDir,
}

impl Telling {
    fn start(interval: &str) -> Telling {
        let directory = tempfile::tempdir().unwrap();
        let (root, program) = (Path::new(env!("CARGO_MANIFEST_DIR")), directory.path().join("telling"));
        let built = Path::new(env!("CARGO_BIN_EXE_corewise")).parent().unwrap().join("deps/libcorewise.so");
        let library = directory.path().join("libcorewise.so.0");
        std::fs::copy(built, &library).unwrap();
        let mut compiler = Command::new("cc");
        compiler.arg("-O2").arg("-I").arg(root.join("../rt/include")).arg(root.join("../rt/tests/telling.c"));
        compiler.arg(&library).args(["-lpthread", "-o"]).arg(&program);
        assert!(compiler.status().unwrap().success());
        let script = format!(
            "read greeting; echo '{{\"version\":1,\"events\":true}}'; n=0; while read scene; do \
             echo \"$scene\" >> {}; n=$((n+1)); echo \"{{\\\"step\\\":$n,\\\"bind\\\":[]}}\"; done",
            directory.path().join("scenes").display()
        );
        let policy = format!("exec:deadline=5s,{script}");
        let mut command = corewise();
        command.args(["run", "--quiet", "--counters", "none", "--interval", interval, "--policy", &policy]);
        command.arg("--record").arg(directory.path().join("run.cwr")).arg("--").arg(program);
        let corewise =
            command.env("LD_LIBRARY_PATH", directory.path()).stdin(Stdio::piped()).spawn().unwrap();
        Telling { corewise, directory }
    }

    /// Waits until this was reported.
    fn await_report(&self, text: &str) {
        let scenes = self.directory.path().join("scenes");
        wait_for(|| std::fs::read_to_string(&scenes).unwrap_or_default().contains(text).then_some(()));
    }
}

#[test]
fn hints_reach_a_policy_at_once_also_from_the_child_of_a_fork() {
    // No look at the end of an interval falls into the test.
    let mut telling = Telling::start("3600s");
    telling.await_report("\"spins\":true,\"is_master\":false,\"phase\":null");
    telling.await_report("\"spins\":false,\"is_master\":true,\"phase\":7");
    telling.corewise.stdin.as_mut().unwrap().write_all(b"f").unwrap();
    telling.await_report("\"spins\":false,\"is_master\":true,\"phase\":9");
    drop(telling.corewise.stdin.take());
    assert!(telling.corewise.wait().unwrap().success());
}

#[test]
fn reported_work_is_the_progress_of_a_program() {
    let mut telling = Telling::start("50ms");
    telling.await_report("\"is_master\":true");
    // Some looks later: those without an event.
    let scenes = telling.directory.path().join("scenes");
    let is_look = |scene: &&str| scene.contains("\"events\":[]");
    let count = || std::fs::read_to_string(&scenes).unwrap().lines().filter(is_look).count();
    let before = count();
    wait_for(|| (count() > before + 3).then_some(()));
    drop(telling.corewise.stdin.take());
    assert!(telling.corewise.wait().unwrap().success());
    let mut recording = String::new();
    let file = File::open(telling.directory.path().join("run.cwr")).unwrap();
    MultiGzDecoder::new(file).read_to_string(&mut recording).unwrap();
    // A batch of events tells later of what was read before.
    let lines = recording.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let threads =
        lines.flat_map(|line| line["observation"]["threads"].as_array().cloned().unwrap_or_default());
    let reported = threads.map(|thread| thread["progress"].clone()).filter(|progress| !progress.is_null());
    let reported = reported.map(|progress| {
        assert_eq!(progress["source"], "heartbeat");
        progress["work"].as_u64().unwrap()
    });
    let work: Vec<u64> = reported.collect();
    let grows = work.windows(2).all(|pair| pair[0] <= pair[1]) && work.first() < work.last();
    assert!(grows && work.iter().all(|work| work % 1000 == 0), "{work:?}");
}

#[test]
fn wrong_reports_do_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rt/tests/garbage.c");
    for options in [&[][..], &["-DNOWHERE"]] {
        let program = directory.path().join("garbage");
        let mut compiler = Command::new("cc");
        assert!(compiler.args(options).arg(&source).arg("-o").arg(&program).status().unwrap().success());
        let report = report_of(&["--interval", "50ms", "--policy", "pa"], &[program.to_str().unwrap()]);
        assert_eq!(report["threads"].as_array().unwrap().len(), 1, "{report:#}");
        let complains = report["notes"].to_string().contains("reports of 1023 threads at a time");
        assert_eq!(complains, options.is_empty(), "{report:#}");
    }
}
