//! What the tests of the command share: the command itself, the test program, reports.

use corewise_sys::proc::Proc;
use corewise_testing::{Capability, is_refusal};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The `corewise` command. It knows nothing of those of other tests: it has a runtime directory of its own,
/// and no daemon.
pub fn corewise() -> Command {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let runtime = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("runtime-{run}"));
    std::fs::create_dir_all(&runtime).unwrap();
    std::fs::set_permissions(&runtime, Permissions::from_mode(0o700)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_corewise"));
    command.env("COREWISE_SOCKET", runtime.join("no-daemon")).env("XDG_RUNTIME_DIR", runtime);
    command
}

/// The test program `examples/burn.rs`.
pub fn burn() -> String {
    example("burn")
}

/// A program of `examples`, which cargo builds along with the tests.
pub fn example(name: &str) -> String {
    let directory = Path::new(env!("CARGO_BIN_EXE_corewise")).parent().expect("a file is in a directory");
    let program = directory.join("examples").join(name);
    program.to_str().expect("the target directory has a plain name").to_owned()
}

/// A directory with a file that says that the PEs 0 and 1 share an FPU, so that `spread` acts on any machine.
pub fn shared_fpu() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fpu-modules.toml");
    std::fs::write(&file, "[[machine]]\nfpu_modules = [\"0-1\"]\n").unwrap();
    (directory, file)
}

/// A policy that binds all threads to PE 0, once it has seen them ten times: a program that only asks where
/// it may run has ended by then.
const BINDS_ALL: &str = "
import json, sys
json.loads(sys.stdin.readline())
print(json.dumps({'version': 1}), flush=True)
seen = {}
for line in sys.stdin:
    scene = json.loads(line)
    may_use_0 = [thread for thread in scene['threads'] if thread['may_use_pes'].startswith('0')]
    threads = [thread['thread'] for thread in may_use_0 if thread['placeable']]
    seen = {thread: seen.get(thread, 0) + 1 for thread in threads}
    often = [thread for thread in threads if seen[thread] > 10]
    bind = [{'thread': thread, 'pes': '0', 'reason': 'to do harm'} for thread in often]
    print(json.dumps({'step': scene['step'], 'bind': bind}), flush=True)
";

/// Writes [`BINDS_ALL`] and returns how `--policy` names it. It may be slow: the machine may be busy.
pub fn binds_all(directory: &Path) -> String {
    let policy = directory.join("binds_all.py");
    std::fs::write(&policy, BINDS_ALL).unwrap();
    format!("exec:deadline=60s,python3 {}", policy.display())
}

/// The threads of a process with their masks, as lists.
pub fn threads_of(pid: u32) -> Vec<(u32, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let thread = |task: std::fs::DirEntry| {
        let tid = task.file_name().to_str()?.parse().ok()?;
        Some((tid, mask_in(&std::fs::read_to_string(task.path().join("status")).ok()?)?))
    };
    tasks.filter_map(thread).collect()
}

/// The masks of a process's threads, as lists.
pub fn masks_of(pid: u32) -> Vec<String> {
    threads_of(pid).into_iter().map(|(_, mask)| mask).collect()
}

fn mask_in(status: &str) -> Option<String> {
    status.lines().find_map(|line| Some(line.strip_prefix("Cpus_allowed_list:")?.trim().to_owned()))
}

/// Runs corewise and reads the report that it writes.
pub fn report_of(arguments: &[&str], command: &[&str]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    let output = corewise()
        .arg("run")
        .arg("--report")
        .arg(&file)
        .args(arguments)
        .arg("--")
        .args(command)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap()
}

/// Asks again and again until there is an answer. Machines may be slow: it gives up after two minutes.
pub fn wait_for<T>(ask: impl FnMut() -> Option<T>) -> T {
    wait_for_every(Duration::from_millis(10), ask)
}

/// The same, with the time between two questions.
pub fn wait_for_every<T>(pause: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "what was waited for did not happen within two minutes");
        std::thread::sleep(pause);
    }
}

/// A process that ends with the test, as does what it has started: what a failed test left running would
/// delay every later one.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return;
        }
        let proc = Proc::own();
        let known = |pid: u32| (pid == self.0.id()).then_some(());
        let processes = proc.processes().unwrap_or_default();
        for pid in proc.descendants(&processes, known, &[]).unwrap_or_default().into_keys() {
            // It may have ended; then there is nobody to kill.
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cpuset for a test alone; removed afterwards.
pub struct Cpuset(pub PathBuf);

impl Cpuset {
    /// A new one of the PEs 0 and 1.
    pub fn create(name: &str) -> std::io::Result<Cpuset> {
        let roots = ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"].map(PathBuf::from);
        let is_root = |root: &PathBuf| {
            ["cpuset.cpus.effective", "cpuset.cpus"].iter().any(|name| root.join(name).exists())
        };
        let root = roots.into_iter().find(is_root).ok_or(std::io::ErrorKind::NotFound)?;
        let own = Cpuset(root.join(format!("corewise-test-{}-{name}", std::process::id())));
        let mems = std::fs::read_to_string(root.join("cpuset.mems.effective"))
            .or_else(|_| std::fs::read_to_string(root.join("cpuset.mems")));
        std::fs::create_dir(&own.0)?;
        std::fs::write(own.0.join("cpuset.mems"), mems?.trim())?;
        std::fs::write(own.0.join("cpuset.cpus"), "0-1")?;
        Ok(own)
    }

    /// Lets what is in it use these PEs.
    pub fn allow(&self, pes: &str) {
        std::fs::write(self.0.join("cpuset.cpus"), pes).unwrap();
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What the machine lacks if a cpuset cannot be made.
pub fn no_cpuset(error: &std::io::Error) -> Option<Capability> {
    is_refusal(error).then_some(Capability::Cpuset)
}
