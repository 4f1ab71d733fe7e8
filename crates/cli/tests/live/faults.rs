//! What may go wrong during a run, and what is left changed afterwards: nothing. `docs/faults.md` is the
//! table.

use crate::common::{burn, corewise, example, masks_of, shared_fpu, wait_for};
use corewise_testing::{Capability, is_refusal, needs, or_skip, skip};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// By this variable with a value of its own, every process that a test has started is found again, wherever
/// it went.
const MARK: &str = "COREWISE_FAULT_TEST";

/// A run of the test program under corewise, on PEs 0 and 1 that are said to share an FPU.
struct Faulty {
    corewise: Child,
    mark: String,
    directory: TempDir,
}

impl Faulty {
    /// `before` are words before the command `corewise`, such as `setpriv`.
    fn start(before: &[&str], options: &[&str], what: &[&str]) -> Faulty {
        let (directory, modules) = shared_fpu();
        let mark = format!("{MARK}={}", directory.path().display());
        let mut words: Vec<&str> = before.to_vec();
        words.push(env!("CARGO_BIN_EXE_corewise"));
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["run", "-q", "--report"]).arg(directory.path().join("report.json"));
        command.arg("--fpu-modules").arg(&modules).args(options).arg("--").arg(burn()).args(what);
        command.env(MARK, directory.path()).stdout(Stdio::null()).process_group(0);
        let corewise = command.spawn().unwrap();
        Faulty { corewise, mark, directory }
    }

    /// Waits until at least so many threads are bound to one PE.
    fn wait_bound(&self, count: usize) {
        wait_for(|| (self.narrow() >= count).then_some(()));
    }

    /// The processes of the program and what they started, without corewise and its guardian.
    fn processes(&self) -> Vec<u32> {
        self.marked().into_iter().filter(|pid| !is_corewise(*pid)).collect()
    }

    fn guardian(&self) -> Option<u32> {
        self.marked().into_iter().find(|&pid| is_corewise(pid) && pid != self.corewise.id())
    }

    fn marked(&self) -> Vec<u32> {
        let has_mark = |pid: &u32| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|&byte| byte == 0).any(|entry| entry == self.mark.as_bytes())
        };
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has_mark).collect()
    }

    /// How many of the program's threads may use one PE only.
    fn narrow(&self) -> usize {
        let masks = self.processes().into_iter().flat_map(masks_of);
        masks.filter(|mask| mask.parse::<u32>().is_ok()).count()
    }

    /// Kills corewise, waits for its guardian to end, and says how many threads are still bound then.
    fn killed(&mut self, kill: impl Fn(u32)) -> usize {
        let guardian = self.guardian();
        kill(self.corewise.id());
        self.corewise.wait().unwrap();
        wait_for(|| guardian.is_none_or(|pid| !Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
        self.narrow()
    }

    /// Waits for the end; corewise's exit status and report.
    fn end(&mut self) -> (Option<i32>, Value) {
        let status = self.corewise.wait().unwrap().code();
        let report = std::fs::read(self.directory.path().join("report.json")).unwrap_or_default();
        (status, serde_json::from_slice(&report).unwrap_or(Value::Null))
    }
}

/// Nothing outlives its test.
impl Drop for Faulty {
    fn drop(&mut self) {
        for pid in self.marked() {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        let _ = self.corewise.wait();
    }
}

fn is_corewise(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|path| path.ends_with("corewise"))
}

fn kill_9(pid: u32) {
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
}

fn bound_threads(report: &Value) -> usize {
    let threads = report["threads"].as_array().unwrap();
    threads.iter().filter(|thread| thread["bindings"] != Value::Array(vec![])).count()
}

#[test]
fn without_its_guardian_corewise_stops_binding_says_so_and_gives_everything_back() {
    needs!(TwoPes);
    let mut run = Faulty::start(&[], &["--interval", "100ms"], &["2", "2*fp", "churn"]);
    run.wait_bound(1);
    kill_9(run.guardian().unwrap());
    let (status, report) = run.end();
    assert_eq!(status, Some(0));
    assert!(report["notes"].to_string().contains("guardian"), "{:#}", report["notes"]);
    assert_eq!(run.narrow(), 0);
}

#[test]
fn a_kill_of_the_whole_process_group_does_not_reach_the_guardian() {
    needs!(TwoPes);
    // What left the group with a session of its own lives on, with its masks.
    let script = format!("setsid {} 60 2*fp & wait", burn());
    let (directory, modules) = shared_fpu();
    let mark = format!("{MARK}={}", directory.path().display());
    let mut command = corewise();
    command.args(["run", "-q", "--interval", "100ms", "--fpu-modules"]).arg(&modules);
    command.args(["sh", "-c", &script]).env(MARK, directory.path()).stdout(Stdio::null()).process_group(0);
    let mut run = Faulty { corewise: command.spawn().unwrap(), mark, directory };
    run.wait_bound(2);
    let left = run.killed(|pid| killpg(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap());
    assert!(!run.processes().is_empty(), "the program was in corewise's group after all");
    assert_eq!(left, 0);
}

#[test]
fn where_corewise_cannot_go_on_watching_the_program_does_not_notice() {
    needs!(TwoPes);
    let mut run =
        Faulty::start(&[], &["--interval", "100ms", "--discovery", "poll"], &["2", "2*fp", "churn"]);
    run.wait_bound(1);
    let allow_descriptors = |count: &str| {
        let pid = run.corewise.id().to_string();
        let limit = format!("--nofile={count}:");
        assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
    };
    allow_descriptors("3");
    wait_for(|| run.guardian().is_none().then_some(()));
    assert_eq!(run.narrow(), 0);
    assert!(!run.processes().is_empty(), "the program was over before");
    // The report needs one again.
    allow_descriptors("256");
    let (status, report) = run.end();
    assert_eq!(status, Some(0));
    assert!(report["notes"].to_string().contains("no longer watched"), "{:#}", report["notes"]);
}

/// Moments of every kind: before a thread is bound, while it is, between a fork and its discovery.
#[test]
fn whenever_corewise_is_killed_no_thread_keeps_a_mask_of_its() {
    needs!(TwoPes);
    let mut were_bound = 0;
    for turn in 0..20 {
        let mut run = Faulty::start(&[], &["--interval", "10ms"], &["60", "2*forker", "churn", "spawner"]);
        run.wait_bound(1);
        std::thread::sleep(Duration::from_millis(turn * 37 % 150));
        were_bound += usize::from(run.narrow() > 0);
        let left = run.killed(kill_9);
        assert_eq!(left, 0, "in turn {turn}");
    }
    assert!(were_bound >= 10, "only {were_bound} of 20 runs had bound threads when they were killed");
}

#[test]
fn threads_that_end_while_they_are_bound_disturb_nothing() {
    needs!(TwoPes);
    let mut run = Faulty::start(&[], &["--interval", "10ms"], &["3", "2*churn"]);
    let (status, report) = run.end();
    assert_eq!(status, Some(0));
    assert!(bound_threads(&report) > 0, "no thread was bound: {:#}", report["notes"]);
    let lives = report["threads"].as_array().unwrap().len();
    assert!(lives > 10, "only {lives} threads were seen");
}

fn report_of_ten_thousand_threads(discovery: &str) -> Value {
    let options = ["--interval", "250ms", "--discovery", discovery];
    let mut run = Faulty::start(&[], &options, &["4", "10000*sleep", "fp"]);
    let (status, report) = run.end();
    assert_eq!(status, Some(0), "{discovery}");
    let seen = report["threads"].as_array().unwrap().iter().filter(|t| t["name"] == "sleep").count();
    assert!(seen >= 9_500, "{discovery}: {seen} seen, {:#}", report["notes"]);
    report
}

#[test]
fn ten_thousand_threads_within_a_second_are_seen_by_polling() {
    report_of_ten_thousand_threads("poll");
}

#[test]
fn ten_thousand_threads_within_a_second_are_seen_by_bpf() {
    let report = report_of_ten_thousand_threads("auto");
    if report["notes"].to_string().contains("BPF cannot be used: not permitted") {
        skip!(Bpf, "{}", report["notes"]);
    }
    assert_eq!(report["sources"]["discovery"], "bpf", "{:#}", report["notes"]);
}

/// A user without privileges, as `nobody`, with a copy of both programs that everybody may execute.
#[test]
fn without_privileges_a_users_own_program_is_sampled_and_bound() {
    needs!(TwoPes, Root);
    let report = as_nobody(&[]);
    assert_eq!(report["sources"]["discovery"], "poll", "{report:#}");
    assert_eq!(report["sources"]["counters"], "sample", "{report:#}");
    assert!(report["notes"].to_string().contains("BPF cannot be used"), "{:#}", report["notes"]);
    assert_eq!(bound_threads(&report), 2, "{report:#}");
}

fn as_nobody(before: &[&str]) -> Value {
    let (directory, modules) = shared_fpu();
    let path = |name: &str| directory.path().join(name);
    std::fs::copy(env!("CARGO_BIN_EXE_corewise"), path("corewise")).unwrap();
    std::fs::copy(burn(), path("burn")).unwrap();
    for opened in [directory.path(), &path("corewise"), &path("burn")] {
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(opened, everybody).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(before);
    command.arg(path("corewise")).args(["run", "-q", "--interval", "250ms", "--report"]);
    command.arg(path("report.json")).arg("--fpu-modules").arg(&modules).arg(path("burn")).args(["2", "2*fp"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&std::fs::read(path("report.json")).unwrap()).unwrap()
}

/// corewise may not place what belongs to another user: here root without the capability for it.
#[test]
fn a_refusal_to_bind_is_reported_and_not_fatal() {
    needs!(TwoPes, Root);
    let script = format!("setpriv --reuid 65534 --regid 65534 --clear-groups {} 2 2*fp", burn());
    let (directory, modules) = shared_fpu();
    let file = directory.path().join("report.json");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_nice", env!("CARGO_BIN_EXE_corewise"), "run", "-q", "--interval"]);
    command.arg("250ms").arg("--report").arg(&file).arg("--fpu-modules").arg(&modules);
    assert!(command.args(["sh", "-c", &script]).stdout(Stdio::null()).status().unwrap().success());
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let decisions = report["decisions"].as_array().unwrap();
    assert!(
        decisions.iter().any(|d| d["outcome"] == "refused: EPERM: Operation not permitted"),
        "{report:#}"
    );
    assert_eq!(bound_threads(&report), 0);
    // A thread that was refused is left alone for a while: one decision each, not one each interval.
    assert!(decisions.len() <= 4, "{decisions:#?}");
}

#[test]
fn without_counters_and_bpf_the_program_runs_and_the_report_says_what_was_missing() {
    let refused = example("refused");
    let before = [refused.as_str(), "bpf,perf_event_open"];
    let mut run = Faulty::start(&before, &["--interval", "250ms"], &["1", "2*fp"]);
    let (status, report) = run.end();
    assert_eq!(status, Some(0));
    assert_eq!(report["sources"], serde_json::json!({"discovery": "poll", "counters": "none"}));
    let notes = report["notes"].to_string();
    for missing in ["BPF cannot be used", "cpu-clock event", "needs FPU usage"] {
        assert!(notes.contains(missing), "{missing}: {notes}");
    }
    assert_eq!(bound_threads(&report), 0);
}

/// A disk of its own for the run alone, with an older report and no space for another.
#[test]
fn a_full_disk_costs_no_older_report() {
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=64k none \"$1\" || exit 1; cd \"$1\" && echo older > r.json; \
                  cat /dev/zero > fill 2>&-; \"$2\" run -q --report r.json --record r.cwr -- sh -c 'exit 3'; \
                  echo $?; cat r.json; ls";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(directory.path());
    let output = command.arg(env!("CARGO_BIN_EXE_corewise")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() && said.to_lowercase().contains("permi") {
        skip!(Mount, "{said}");
    }
    assert!(output.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "3\nolder\nfill\nr.cwr\nr.json\n", "{said}");
    assert!(said.contains("cannot write the recording r.cwr"), "{said}");
}

/// A cpuset for a test alone; removed afterwards.
struct Cpuset(PathBuf);

impl Cpuset {
    fn create() -> std::io::Result<Cpuset> {
        let roots = ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"].map(PathBuf::from);
        let is_root = |root: &PathBuf| {
            ["cpuset.cpus.effective", "cpuset.cpus"].iter().any(|name| root.join(name).exists())
        };
        let root = roots.into_iter().find(is_root).ok_or(std::io::ErrorKind::NotFound)?;
        let own = Cpuset(root.join(format!("corewise-test-{}", std::process::id())));
        let mems = std::fs::read_to_string(root.join("cpuset.mems.effective"))
            .or_else(|_| std::fs::read_to_string(root.join("cpuset.mems")));
        std::fs::create_dir(&own.0)?;
        std::fs::write(own.0.join("cpuset.mems"), mems?.trim())?;
        std::fs::write(own.0.join("cpuset.cpus"), "0-1")?;
        Ok(own)
    }

    fn allow(&self, pes: &str) {
        std::fs::write(self.0.join("cpuset.cpus"), pes).unwrap();
    }

    /// Starts a run in it.
    fn start(&self, interval: &str, what: &[&str]) -> Faulty {
        let enter = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", self.0.display());
        Faulty::start(&["sh", "-c", &enter, "sh"], &["--interval", interval], what)
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

#[test]
fn after_a_cpuset_shrank_and_grew_no_thread_is_narrower_than_it() {
    needs!(TwoPes);
    let refused = |error: &std::io::Error| is_refusal(error).then_some(Capability::Cpuset);
    let cpuset = or_skip!(Cpuset::create(), refused);
    // corewise dies while it is small (only what the kernel remembers of our mask is left then), or after it
    // has grown again.
    for (what, small, grows_first) in [("2*fp", "0", false), ("fp", "1", false), ("2*fp", "0", true)] {
        cpuset.allow("0-1");
        let mut run = cpuset.start("50ms", &["60", what, "sleep"]);
        run.wait_bound(1);
        cpuset.allow(small);
        std::thread::sleep(Duration::from_millis(300));
        assert!(run.corewise.try_wait().unwrap().is_none(), "corewise did not survive the change");
        if grows_first {
            cpuset.allow("0-1");
        }
        run.killed(kill_9);
        cpuset.allow("0-1");
        assert_eq!(run.narrow(), 0, "{what} on {small}, grown first: {grows_first}");
    }
}
