//! One run, one fault, and what it leaves.

use super::cpuset::Cpuset;
use super::kinds::{Kind, SCRIPTS, Wrap};
use corewise_core::random::Random;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The programs, and a machine profile by which PE 0 is faster than PE 1: policies then bind whoever runs.
pub struct Tools {
    corewise: String,
    burn: String,
    profile: PathBuf,
    _directory: TempDir,
}

/// What faults of one kind came to.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// How many.
    pub faults: usize,
    /// How many of them found a bound thread.
    pub bound: usize,
    /// The threads that lived on.
    pub threads: usize,
    /// Those that were left narrow, in words.
    pub narrow: Vec<String>,
    /// Threads that had pinned themselves and were given more.
    pub widened: usize,
}

impl Outcome {
    /// Adds another.
    pub fn add(&mut self, other: Outcome) {
        self.faults += other.faults;
        self.bound += other.bound;
        self.threads += other.threads;
        self.narrow.extend(other.narrow);
        self.widened += other.widened;
    }
}

impl Tools {
    /// Makes the profile; says why where there can be no campaign.
    pub fn new(corewise: String, burn: String) -> Result<Tools, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("it needs root".to_owned());
        }
        let name = format!("corewise-campaign-{}", std::process::id());
        drop(Cpuset::create(&name).map_err(|error| format!("no cpuset can be made: {error}"))?);
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let profile = directory.path().join("profile.json");
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let last = online.trim().rsplit('-').next().and_then(|last| last.parse::<u32>().ok()).unwrap_or(0);
        let machine = format!("pack:1 core:{} pu:1", last + 1);
        let calibrate = ["calibrate", "--synthetic", &machine, "--discover", "--kernels", "int-add", "-o"];
        let output = Command::new(&corewise).args(calibrate).arg(&profile).output();
        if !output.as_ref().is_ok_and(|output| output.status.success()) || last == 0 {
            return Err(format!("no profile of {machine}: {output:?}"));
        }
        let text = fs::read_to_string(&profile).map_err(|error| error.to_string())?;
        let mut value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let estimate =
            |value: f64| serde_json::json!({"value": value, "low": value, "high": value, "repetitions": 9});
        let speed = |pe: u32| {
            let relative = estimate(if pe == 0 { 1.0 } else { 0.5 });
            serde_json::json!({"pe": pe, "kernel": "int-add", "relative": relative})
        };
        value["speeds"] = (0..=last).map(speed).collect();
        fs::write(&profile, value.to_string()).map_err(|error| error.to_string())?;
        Ok(Tools { corewise, burn, profile, _directory: directory })
    }
}

/// A run of the test program under corewise.
pub struct Round<'a> {
    tools: &'a Tools,
    pub cpuset: Cpuset,
    directory: TempDir,
    starter: Child,
    /// What happens by chance.
    pub chance: Random,
}

/// Starts a run, does what the kind says, and looks at what lives on.
pub fn carry_out(tools: &Tools, kind: &Kind, chance: Random) -> Outcome {
    let mut round = Round::start(tools, kind, chance);
    // Until a thread is bound and has started something, or the kind does not let it come so far.
    let bound = wait_for(Duration::from_secs(5), || round.has_started() && round.has_bound());
    round.pause(150);
    (kind.act)(&mut round);
    round.cpuset.allow("0-1");
    // A chain of processes may be between two of them: it is looked at several times.
    let (mut narrow, mut widened) = (Vec::new(), 0);
    for _ in 0..3 {
        (narrow, widened) = round.narrow();
        if !narrow.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    let threads = round.threads().len();
    if !narrow.is_empty() {
        narrow[0] += &format!(" (of {threads}; said: {})", round.said());
    }
    Outcome { faults: 1, bound: usize::from(bound), threads, narrow, widened }
}

impl<'a> Round<'a> {
    fn start(tools: &'a Tools, kind: &Kind, mut chance: Random) -> Round<'a> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("corewise-campaign-{}-{number}", std::process::id());
        let cpuset = Cpuset::create(&name).expect("one could be made before");
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("runtime")).expect("a directory can be made");
        fs::set_permissions(path("runtime"), fs::Permissions::from_mode(0o700)).expect("it is ours");
        let interval = format!("{}ms", 10 + 5 * chance.below(5));
        // Only BPF knows of orphans without an environment, and only outside of a namespace.
        let discovery = match (kind.discovery, chance.below(2)) {
            (Some(only), _) => only,
            (None, by_chance) => ["bpf", "poll"][by_chance],
        };
        let script = kind.script.unwrap_or(SCRIPTS[chance.below(SCRIPTS.len())]);
        let enter = format!("echo $$ > {}/cgroup.procs; {}", cpuset.0.display(), before(kind.wrap));
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &enter,
            "sh",
            &tools.corewise,
            "run",
            "-q",
            "--counters",
            "none",
            "--policy",
            "rr",
        ]);
        command
            .args(["--interval", &interval, "--discovery", discovery, "--profile"])
            .arg(&tools.profile)
            .arg("--");
        if kind.wrap == Wrap::Nested {
            let path = format!("PATH={}", std::env::var("PATH").unwrap_or_default());
            let script = format!("BURN_SCRIPT={script}");
            command.args(["env", "-i", &path, &script, &tools.corewise, "run", "-q", "--counters", "none"]);
            command
                .args(["--policy", "rr", "--interval", &interval, "--profile"])
                .arg(&tools.profile)
                .arg("--");
        }
        command
            .args([&tools.burn, "600", "int", "shell"])
            .arg(["int", "churn", "spawner", "pin"][chance.below(4)]);
        command.env("BURN_SCRIPT", script).env("XDG_RUNTIME_DIR", path("runtime"));
        let said = fs::File::create(path("said")).expect("a file can be made");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).process_group(0);
        let starter = command.spawn().expect("there is a shell");
        Round { tools, cpuset, directory, starter, chance }
    }

    /// Waits for a random time up to so many milliseconds.
    pub fn pause(&mut self, ms: usize) {
        std::thread::sleep(Duration::from_micros(self.chance.below(1 + ms * 1000) as u64));
    }

    /// The processes that run corewise: as this subcommand or helper, oldest first.
    pub fn corewise(&self, role: &str) -> Vec<u32> {
        let is_it = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let subcommand = words.split(|&byte| byte == 0).nth(1);
            is_corewise(*pid) && (subcommand == Some(role.as_bytes()) || name_of(*pid) == role)
        };
        let mut found: Vec<u32> = self.cpuset.processes().into_iter().filter(is_it).collect();
        // Not by their numbers, which come round.
        found.sort_by_key(|&pid| start_of(pid));
        found
    }

    /// The outer and the inner of two corewises, the inner with what is within it.
    pub fn nested(&self) -> (u32, Vec<u32>) {
        let both = || self.corewise("run").len() > 1;
        assert!(wait_for(Duration::from_secs(60), both), "no inner corewise; said: {}", self.said());
        let found = self.corewise("run");
        (found[0], found[1..].to_vec())
    }

    /// What corewise has said.
    fn said(&self) -> String {
        fs::read_to_string(self.directory.path().join("said")).unwrap_or_default().trim().to_owned()
    }

    /// The processes of the program.
    pub fn program(&self) -> Vec<u32> {
        self.cpuset.processes().into_iter().filter(|pid| name_of(*pid) == "burn").collect()
    }

    /// Whether the program has started other processes.
    fn has_started(&self) -> bool {
        let is_other = |pid: u32| matches!(name_of(pid).as_str(), "sh" | "sleep" | "tail" | "taskset");
        !self.program().is_empty() && self.cpuset.processes().into_iter().any(is_other)
    }

    /// Sends a signal to all of these.
    pub fn send(&self, pids: &[u32], signal: Signal) {
        for &pid in pids {
            let _ = kill(Pid::from_raw(pid as i32), signal);
        }
    }

    /// Ends whatever corewise is left in an orderly way.
    pub fn end(&self) {
        let ended = wait_for(Duration::from_secs(60), || {
            self.send(&self.corewise("run"), Signal::SIGTERM);
            self.corewise("run").is_empty()
        });
        assert!(ended, "corewise did not end; said: {}", self.said());
        self.wait_alone();
    }

    /// Waits until neither corewise nor its guardian is there.
    pub fn wait_alone(&self) {
        let alone = || !self.cpuset.processes().into_iter().any(is_corewise);
        assert!(wait_for(Duration::from_secs(60), alone), "a guardian did not end");
    }

    /// Waits until this process of corewise's has ended.
    pub fn wait_ended(&self, pid: u32) {
        let ended = || !is_corewise(pid);
        assert!(wait_for(Duration::from_secs(60), ended), "corewise did not end");
    }

    /// Waits until no guardian is there.
    pub fn wait_for_guardian(&self) {
        let ended = || self.corewise("guardian").is_empty();
        assert!(wait_for(Duration::from_secs(60), ended), "a guardian did not end");
    }

    /// Lets corewise itself use either PE only.
    pub fn narrow_corewise(&mut self) {
        let mut one = CpuSet::new();
        one.set(self.chance.below(2)).expect("a set has room for more than two PEs");
        for pid in self.corewise("run") {
            let _ = sched_setaffinity(Pid::from_raw(pid as i32), &one);
        }
    }

    /// Starts corewise once more, which gives back what others have left.
    pub fn next_start(&self) {
        let mut command = Command::new(&self.tools.corewise);
        command.args(["run", "-q", "true"]).env("XDG_RUNTIME_DIR", self.directory.path().join("runtime"));
        let said = fs::File::options().append(true).open(self.directory.path().join("said"));
        let status = command.stderr(said.expect("it was made at the start")).status();
        assert!(status.expect("corewise can be started").success());
    }

    /// Limits what the running corewise may do.
    pub fn limit(&self, limit: &str) {
        for pid in self.corewise("run") {
            let _ = Command::new("prlimit").args(["--pid", &pid.to_string(), limit]).status();
        }
    }

    /// Name and mask of every thread.
    fn threads(&self) -> Vec<(String, String)> {
        self.cpuset.processes().into_iter().flat_map(threads_of).collect()
    }

    /// Whether a thread of the program or of what it has started is narrow, be it by its own wish.
    fn has_bound(&self) -> bool {
        let others = self.cpuset.processes().into_iter().filter(|&pid| !is_corewise(pid));
        others.flat_map(threads_of).any(|(name, mask)| mask != "0-1" && !has_own_wish(&name))
    }

    /// Who is narrow but not by its own wish, and how many that pinned themselves are not.
    fn narrow(&self) -> (Vec<String>, usize) {
        let (pinned, others): (Vec<_>, Vec<_>) =
            self.threads().into_iter().partition(|(name, _)| has_own_wish(name));
        let narrow = others.into_iter().filter(|(_, mask)| mask != "0-1");
        let widened = pinned.iter().filter(|(name, mask)| name != "taskset" && mask == "0-1").count();
        (narrow.map(|(name, mask)| format!("{name} has {mask}")).collect(), widened)
    }
}

/// Whether a thread of this name has pinned itself, or was pinned by who has started it.
fn has_own_wish(name: &str) -> bool {
    matches!(name, "pin" | "tail" | "taskset")
}

/// The starter and what it started must not outlive the round.
impl Drop for Round<'_> {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.cpuset.processes().is_empty() && Instant::now() < end {
            self.send(&self.cpuset.processes(), Signal::SIGKILL);
            let _ = self.starter.try_wait();
        }
        let _ = self.starter.wait();
    }
}

/// What the shell does before it becomes corewise.
fn before(wrap: Wrap) -> &'static str {
    match wrap {
        Wrap::None | Wrap::Nested => "exec \"$@\"",
        Wrap::Namespace => "exec unshare -pf --mount-proc sh -c '\"$@\"; sleep 60' sh \"$@\"",
        Wrap::FullDisk => {
            "exec unshare -m sh -c 'mount -t tmpfs -o size=16k,mode=700 none $XDG_RUNTIME_DIR && \
             head -c 6k /dev/zero > $XDG_RUNTIME_DIR/fill; exec \"$@\"' sh \"$@\""
        }
        Wrap::SmallFiles => "ulimit -f 4; exec \"$@\"",
        Wrap::NoDirectory => "chmod 777 $XDG_RUNTIME_DIR; exec \"$@\"",
    }
}

fn is_corewise(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path.ends_with("corewise"))
}

/// In clock ticks since boot.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn threads_of(pid: u32) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| thread(&task.path())).collect()
}

/// `None` for one that has ended: it has given its memory back, even if its state does not say so yet, or
/// nobody has asked for its status.
fn thread(task: &Path) -> Option<(String, String)> {
    let status = fs::read_to_string(task.join("status")).ok()?;
    let field = |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
    let ended = matches!(field("State:")?.chars().next()?, 'Z' | 'X') || field("VmSize:").is_none();
    (!ended).then_some((field("Name:")?, field("Cpus_allowed_list:")?))
}

fn wait_for(within: Duration, mut ask: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + within;
    while Instant::now() < end {
        if ask() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}
