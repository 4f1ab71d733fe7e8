//! What may go wrong during a run, and what is left changed afterwards: nothing. `docs/faults.md` is the
//! table.

use crate::common::{Cpuset, burn, corewise, example, masks_of, no_cpuset, shared_fpu, threads_of, wait_for};
use corewise_sys::real_time::RealTime;
use corewise_testing::{needs, or_skip, skip};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;

/// By this variable with a value of its own, every process that a test has started is found again, wherever
/// it went.
const MARK: &str = "COREWISE_FAULT_TEST";

/// When this file exists, the program starts other processes: a process that does is not bound from then on.
const FORKS: &str = "forks";

/// A run of the test program under corewise, on PEs 0 and 1 that are said to share an FPU.
struct Faulty {
    corewise: Child,
    mark: String,
    directory: TempDir,
}

impl Faulty {
    /// `before` are words before the command `corewise`, such as `setpriv`.
    fn start(before: &[&str], options: &[&str], what: &[&str]) -> Faulty {
        Faulty::start_with("", before, options, what)
    }

    /// With a script for the program's `shell`.
    fn start_with(script: &str, before: &[&str], options: &[&str], what: &[&str]) -> Faulty {
        let (directory, modules) = shared_fpu();
        std::fs::DirBuilder::new().mode(0o700).create(directory.path().join("runtime")).unwrap();
        let mark = format!("{MARK}={}", directory.path().display());
        let mut words: Vec<&str> = before.to_vec();
        words.push(env!("CARGO_BIN_EXE_corewise"));
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["run", "-q", "--report"]).arg(directory.path().join("report.json"));
        command.arg("--fpu-modules").arg(&modules).args(options).arg("--").arg(burn()).args(what);
        command.env(MARK, directory.path()).stdout(Stdio::null()).process_group(0);
        command.env("BURN_SCRIPT", script).env("XDG_RUNTIME_DIR", directory.path().join("runtime"));
        command.env("BURN_AFTER", directory.path().join(FORKS));
        let corewise = command.spawn().unwrap();
        Faulty { corewise, mark, directory }
    }

    /// The program in a session of its own, started by the command: it lives on when the command ends.
    fn start_outliving(what: &str) -> Faulty {
        let script = format!("setsid {} {what} & wait", burn());
        let (directory, modules) = shared_fpu();
        let mark = format!("{MARK}={}", directory.path().display());
        let mut command = corewise();
        command
            .args(["run", "-q", "--interval", "100ms", "--report"])
            .arg(directory.path().join("report.json"));
        command.arg("--fpu-modules").arg(&modules).args(["sh", "-c", &script]);
        command.env(MARK, directory.path()).stdout(Stdio::null()).process_group(0);
        Faulty { corewise: command.spawn().unwrap(), mark, directory }
    }

    /// Signals corewise, which ends with the command; its report.
    fn end_by(&mut self, signal: Signal) -> Value {
        kill(Pid::from_raw(self.corewise.id() as i32), signal).unwrap();
        self.end().1
    }

    /// Waits until at least so many threads are bound to one PE.
    fn wait_bound(&self, count: usize) {
        wait_for(|| (self.narrow() >= count).then_some(()));
    }

    /// Lets the program start other processes.
    fn let_fork(&self) {
        std::fs::write(self.directory.path().join(FORKS), "").unwrap();
    }

    /// Stops corewise, but not its guardian: what the program starts from now on keeps its threads' masks.
    fn stop_corewise(&self) {
        kill(Pid::from_raw(self.corewise.id() as i32), Signal::SIGSTOP).unwrap();
        let state = format!("/proc/{}/stat", self.corewise.id());
        wait_for(|| std::fs::read_to_string(&state).unwrap().contains(") T ").then_some(()));
    }

    /// The processes of the program and what they started, without corewise and its guardian.
    fn processes(&self) -> Vec<u32> {
        self.marked().into_iter().filter(|pid| !is_corewise(*pid)).collect()
    }

    fn guardian(&self) -> Option<u32> {
        self.marked().into_iter().find(|&pid| is_corewise(pid) && is_guardian(pid))
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

    fn tids(&self) -> BTreeSet<u32> {
        self.processes().into_iter().flat_map(threads_of).map(|(tid, _)| tid).collect()
    }

    /// Waits until so many threads have come and gone that one of them would have been bound.
    fn wait_for_newcomers(&self, count: usize) {
        let (known, mut new) = (self.tids(), BTreeSet::new());
        wait_for(|| {
            let now = self.tids();
            new.extend(now.difference(&known).copied());
            (new.difference(&now).count() >= count).then_some(())
        });
    }

    /// Fails unless the program lives (a dead one has no masks to look at) and has its PEs back, now or soon.
    fn wait_freed(&self) {
        wait_for(|| (self.narrow() == 0).then_some(()));
        assert!(!self.processes().is_empty(), "the program was over before");
    }

    /// Kills the program; corewise's report of it.
    fn end_killed(&mut self) -> Value {
        for pid in self.processes() {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        self.end().1
    }

    /// Kills corewise, waits for its guardian to end, and says how many threads are still bound then.
    fn killed(&mut self, kill: impl Fn(u32)) -> usize {
        let guardian = self.guardian();
        kill(self.corewise.id());
        self.corewise.wait().unwrap();
        guardian.into_iter().for_each(wait_for_end);
        self.narrow()
    }

    /// Starts corewise once more, which recovers what earlier runs have left. What it says.
    fn next_start(&self) -> String {
        let runtime = self.directory.path().join("runtime");
        let output = corewise().args(["run", "-q", "true"]).env("XDG_RUNTIME_DIR", runtime).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
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

/// A process that has ended has no memory any more, even if nobody has reaped it.
fn wait_for_end(pid: u32) {
    let is_over = || std::fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |words| words.is_empty());
    wait_for(|| is_over().then_some(()));
}

/// Else a chain of processes holds it up on some kernels. Where it is not permitted, nothing is lost.
fn runs_before_all_normal(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name may hold anything; the 41st field is the policy, 2 is `SCHED_RR`.
    let policy = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(41 - 3);
    policy == Some("2") || RealTime::enter(1).is_err()
}

fn is_guardian(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "guardian\n")
}

fn kill_9(pid: u32) {
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
}

fn bound_threads(report: &Value) -> usize {
    let threads = report["threads"].as_array().unwrap();
    threads.iter().filter(|thread| thread["bindings"] != Value::Array(vec![])).count()
}

/// The end of a run whose guardian was harmed while corewise wanted to bind threads that came and went. Only
/// the report tells whether it wanted to: if it did not, another run has more of them.
fn harmed(harm: Signal, said: &str) -> (Faulty, Value) {
    for newcomers in [6, 24, 96] {
        let mut run = Faulty::start_outliving("600 2*fp 4*churn");
        run.wait_bound(1);
        kill(Pid::from_raw(run.guardian().unwrap() as i32), harm).unwrap();
        run.wait_for_newcomers(newcomers);
        let report = run.end_by(Signal::SIGTERM);
        let refused = |d: &Value| d["outcome"].as_str().is_some_and(|outcome| outcome.contains(said));
        if report["decisions"].as_array().unwrap().iter().any(refused) {
            return (run, report);
        }
    }
    panic!("no decision says that the guardian {said}");
}

#[test]
fn without_its_guardian_corewise_stops_binding_says_so_and_gives_everything_back() {
    needs!(TwoPes);
    let (run, report) = harmed(Signal::SIGKILL, "is gone");
    assert!(report["notes"].to_string().contains("guardian"), "{:#}", report["notes"]);
    run.wait_freed();
}

#[test]
fn after_a_signal_every_mask_is_given_back() {
    needs!(TwoPes);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut run = Faulty::start_outliving("600 2*fp");
        run.wait_bound(2);
        run.end_by(signal);
        run.wait_freed();
    }
}

#[test]
fn a_stopped_guardian_delays_nothing_and_corewise_reports_that_it_stops_binding() {
    needs!(TwoPes);
    let (run, report) = harmed(Signal::SIGSTOP, "is stopped");
    run.wait_freed();
    assert!(report["notes"].to_string().contains("is stopped"), "{:#}", report["notes"]);
}

#[test]
fn the_next_start_restores_what_a_killed_corewise_and_guardian_left() {
    needs!(TwoPes);
    for guardian_first in [true, false] {
        let mut run = Faulty::start(&[], &["--interval", "50ms"], &["60", "2*fp", "forker"]);
        run.wait_bound(2);
        let mut both = [run.guardian().unwrap(), run.corewise.id()];
        if !guardian_first {
            both.reverse();
        }
        // The one that is stopped cannot do anything before it is killed.
        kill(Pid::from_raw(both[1] as i32), Signal::SIGSTOP).unwrap();
        both.into_iter().for_each(kill_9);
        run.corewise.wait().unwrap();
        wait_for(|| run.guardian().is_none().then_some(()));
        assert!(run.narrow() > 0, "nothing was left bound, so there is nothing to see");
        let said = run.next_start();
        assert!(said.contains("was killed along with its guardian"), "{said}");
        assert_eq!(run.narrow(), 0);
        assert_eq!(run.next_start(), "", "once is enough");
    }
}

#[test]
fn a_run_whose_guardian_is_stopped_when_it_is_killed_is_recovered_by_the_next_start() {
    needs!(TwoPes);
    let mut run = Faulty::start(&[], &["--interval", "50ms"], &["60", "2*fp"]);
    run.wait_bound(2);
    let guardian = run.guardian().unwrap();
    kill(Pid::from_raw(guardian as i32), Signal::SIGSTOP).unwrap();
    kill_9(run.corewise.id());
    run.corewise.wait().unwrap();
    assert!(run.narrow() > 0);
    assert!(run.next_start().contains("was killed"));
    assert_eq!(run.narrow(), 0);
    kill(Pid::from_raw(guardian as i32), Signal::SIGCONT).unwrap();
    wait_for_end(guardian);
    assert_eq!(run.narrow(), 0);
}

/// Each process of the chain lives for a millisecond or less, and starts the next before it ends. There is
/// one chain at a time: many would only starve the process that reaps the dead.
#[test]
fn a_chain_of_short_lived_processes_does_not_outrun_what_gives_masks_back() {
    needs!(TwoPes);
    let chain = "mkdir \"$XDG_RUNTIME_DIR/chain\" 2>/dev/null || exit 0; \
        end() { rmdir \"$XDG_RUNTIME_DIR/chain\" 2>/dev/null; exec sleep 60; }; \
        n=0; hop() { n=$((n+1)); [ $n -lt 900 ] || end; hop & }; hop";
    for discovery in ["bpf", "poll"] {
        for round in 0..3 {
            let options = ["--interval", "50ms", "--discovery", discovery];
            let mut run = Faulty::start_with(chain, &[], &options, &["60", "fp", "shell"]);
            run.wait_bound(2);
            assert!(runs_before_all_normal(run.guardian().unwrap()));
            run.stop_corewise();
            run.let_fork();
            wait_for(|| run.directory.path().join("runtime/chain").exists().then_some(()));
            std::thread::sleep(Duration::from_millis(20 * round));
            let left = run.killed(kill_9);
            assert_eq!(left, 0, "{discovery}, round {round}");
            // The chains go on, and at their ends a sleeper holds what they have handed down.
            wait_for(|| run.processes().iter().any(|pid| is_named(*pid, "sleep")).then_some(()));
            assert_eq!(run.narrow(), 0, "{discovery}, round {round}");
        }
    }
}

fn is_named(pid: u32, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
}

/// An orphan without an environment and with a session of its own has nothing left that says whose it is;
/// only the kernel knows.
#[test]
fn an_orphan_without_an_environment_is_given_its_pes_back() {
    needs!(TwoPes, Root);
    let trial = corewise().args(["run", "-q", "--discovery", "bpf", "true"]).output().unwrap();
    if !trial.status.success() {
        skip!(Bpf, "{}", String::from_utf8_lossy(&trial.stderr));
    }
    // Found again by its name: a length of sleep that nobody else has.
    let length = format!("300.{}", std::process::id());
    let script = format!("exec env -i setsid sh -c 'sleep {length} & sleep {length} &'");
    let options = ["--interval", "1s", "--discovery", "bpf"];
    let mut run = Faulty::start_with(&script, &[], &options, &["60", "fp", "shell"]);
    let orphans = || -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let words = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        pids.filter(|pid| words(pid) == format!("sleep\0{length}\0").as_bytes()).collect()
    };
    let is_narrow = |pid: &u32| masks_of(*pid).iter().any(|mask| mask.parse::<u32>().is_ok());
    run.wait_bound(2);
    run.stop_corewise();
    run.let_fork();
    wait_for(|| orphans().iter().any(is_narrow).then_some(()));
    let left = run.killed(kill_9);
    let narrow = orphans().iter().filter(|pid| is_narrow(pid)).count();
    orphans().into_iter().for_each(kill_9);
    assert_eq!((left, narrow), (0, 0));
}

/// A few faults of every sort by chance; `examples/kill_campaign.rs` does thousands.
#[test]
fn after_faults_by_chance_nothing_is_left_changed() {
    needs!(TwoPes);
    let mut campaign = Command::new(example("kill_campaign"));
    campaign.args([env!("CARGO_BIN_EXE_corewise"), &burn(), "1", "20"]).args([
        "kill corewise",
        "terminate corewise",
        "kill process group",
        "cpuset shrinks and grows, kill",
        "cpuset flaps, end",
        "cpuset shrinks as it dies",
        "nested, kill outer",
        "numbers come round, kill",
        "no space, kill",
        "spin, forks: end",
        "spin, daemons: kill both",
        "library reused: kill corewise",
        "turns, daemons: kill corewise",
        "journal emptied, kill corewise",
        "directory opened, kill both",
        "environment cleared, kill",
        "no descriptors*",
    ]);
    let output = campaign.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(77) => skip!(Cpuset, "{said}"),
        code => assert_eq!(code, Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[test]
fn a_kill_of_the_whole_process_group_does_not_reach_the_guardian() {
    needs!(TwoPes);
    // What left the group with a session of its own lives on, with its masks.
    let mut run = Faulty::start_outliving("60 2*fp");
    run.wait_bound(2);
    let left = run.killed(|pid| killpg(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap());
    assert!(!run.processes().is_empty(), "the program was in corewise's group after all");
    assert_eq!(left, 0);
}

#[test]
fn a_program_does_not_notice_that_corewise_cannot_go_on_watching() {
    needs!(TwoPes);
    let options = ["--interval", "100ms", "--discovery", "poll"];
    let mut run = Faulty::start(&[], &options, &["600", "2*fp", "churn"]);
    run.wait_bound(1);
    let allow_descriptors = |count: &str| {
        let pid = run.corewise.id().to_string();
        let limit = format!("--nofile={count}:");
        assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
    };
    allow_descriptors("3");
    wait_for(|| run.guardian().is_none().then_some(()));
    run.wait_freed();
    // The report needs one again.
    allow_descriptors("256");
    let report = run.end_killed();
    assert!(report["notes"].to_string().contains("no longer watched"), "{:#}", report["notes"]);
}

/// Moments of every kind: before a thread is bound, while it is, between a fork and its discovery.
#[test]
fn whenever_corewise_is_killed_no_thread_keeps_a_mask_of_its() {
    needs!(TwoPes);
    let mut were_bound = 0;
    for round in 0..20 {
        let mut run = Faulty::start(&[], &["--interval", "10ms"], &["60", "2*forker", "churn", "spawner"]);
        run.wait_bound(1);
        run.let_fork();
        std::thread::sleep(Duration::from_millis(round * 37 % 150));
        were_bound += usize::from(run.narrow() > 0);
        let left = run.killed(kill_9);
        assert_eq!(left, 0, "in round {round}");
    }
    assert!(were_bound >= 10, "only {were_bound} of 20 runs had bound threads when they were killed");
}

#[test]
fn threads_that_end_while_they_are_bound_disturb_nothing() {
    needs!(TwoPes);
    let mut run = Faulty::start(&[], &["--interval", "10ms"], &["600", "2*churn"]);
    let mut seen_bound = BTreeSet::new();
    wait_for(|| {
        let threads: Vec<_> = run.processes().into_iter().flat_map(threads_of).collect();
        let bound = threads.iter().filter(|(_, mask)| mask.parse::<u32>().is_ok());
        seen_bound.extend(bound.map(|&(tid, _)| tid));
        let ended = seen_bound.iter().filter(|&&bound| threads.iter().all(|&(tid, _)| tid != bound)).count();
        (!threads.is_empty() && ended >= 5).then_some(())
    });
    let report = run.end_killed();
    assert!(bound_threads(&report) >= 5, "{:#}", report["notes"]);
    assert!(!report["notes"].to_string().contains("no longer watched"), "{:#}", report["notes"]);
}

fn report_of_ten_thousand_threads(discovery: &str) -> Value {
    // The kernel has room for some thirty thousand.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let options = ["--interval", "250ms", "--discovery", discovery];
    let mut run = Faulty::start(&[], &options, &["6", "10000*sleep", "fp"]);
    let (status, report) = run.end();
    assert_eq!(status, Some(0), "{discovery}");
    let listed = report["threads"].as_array().unwrap().iter().filter(|t| t["name"] == "sleep").count();
    let more = report["more_threads"].as_array().unwrap().iter().filter(|group| group["name"] == "sleep");
    let seen = listed as u64 + more.map(|group| group["threads"].as_u64().unwrap()).sum::<u64>();
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
    // A thread that was refused is left alone for a while: not one decision each interval.
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for decision in decisions {
        let at_ns = decision["at_ns"].as_u64().unwrap();
        let before_ns = last.insert(decision["tid"].as_u64().unwrap(), at_ns);
        assert!(before_ns.is_none_or(|before_ns| at_ns - before_ns >= 30_000_000_000), "{decisions:#?}");
    }
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
    let remedies = ["`corewise doctor` says what is missing", "kernel.perf_event_paranoid of 2"];
    for missing in ["BPF cannot be used", "cpu-clock event", "needs FPU usage"].into_iter().chain(remedies) {
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

/// Starts a run in a cpuset.
fn start_in(cpuset: &Cpuset, interval: &str, what: &[&str]) -> Faulty {
    let enter = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", cpuset.0.display());
    Faulty::start(&["sh", "-c", &enter, "sh"], &["--interval", interval], what)
}

#[test]
fn after_a_cpuset_shrank_and_grew_no_thread_is_narrower_than_it() {
    needs!(TwoPes);
    let cpuset = or_skip!(Cpuset::create("faults"), no_cpuset);
    // corewise dies while it is small (only what the kernel remembers of our mask is left then), or after it
    // has grown again.
    for (what, small, grows_first) in [("2*fp", "0", false), ("2*fp", "1", false), ("2*fp", "0", true)] {
        cpuset.allow("0-1");
        let mut run = start_in(&cpuset, "50ms", &["60", what, "sleep"]);
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
