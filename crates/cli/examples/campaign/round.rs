//! One run, one fault, and what it leaves.

use super::cpuset::Cpuset;
use super::freezer::Freezer;
use super::kinds::{Kind, SCRIPTS, Wrap};
use super::program::{Program, Programs, changes};
use corewise_core::random::Random;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The programs, and a machine profile by which PE 0 is faster than PE 1: policies then bind every thread
/// that runs.
pub struct Tools {
    corewise: String,
    burn: String,
    profile: PathBuf,
    programs: Programs,
    _directory: TempDir,
}

/// What faults of one kind came to.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// How many.
    pub faults: usize,
    /// How many of them found something changed.
    pub changed: usize,
    /// The threads that lived on.
    pub threads: usize,
    /// What was left changed or was otherwise wrong, in words.
    pub left: Vec<String>,
    /// How much of what could not be known any more was left, but said.
    pub said: usize,
    /// Threads that had pinned themselves and were given more.
    pub widened: usize,
}

impl Outcome {
    /// Adds another.
    pub fn add(&mut self, other: Outcome) {
        self.faults += other.faults;
        self.changed += other.changed;
        self.threads += other.threads;
        self.left.extend(other.left);
        self.said += other.said;
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
        let programs = Programs::compile(directory.path())?;
        let profile = directory.path().join("profile.json");
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let last = online.trim().rsplit('-').next().and_then(|last| last.parse::<u32>().ok()).unwrap_or(0);
        let machine = format!("pack:1 core:{} pu:1", last + 1);
        let calibrate = ["calibrate", "--machine", &machine, "--discover", "--kernels", "int-add", "-o"];
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
        Ok(Tools { corewise, burn, profile, programs, _directory: directory })
    }
}

/// A run of a program under corewise.
pub struct Round<'a> {
    tools: &'a Tools,
    program: Program,
    pub cpuset: Cpuset,
    directory: TempDir,
    starter: Child,
    /// Other processes that need the PEs.
    crowd: Option<Child>,
    /// What happens by chance.
    pub chance: Random,
    /// What corewise did wrong while it lived.
    wrong: Vec<String>,
    freezer: Option<Freezer>,
}

/// Starts a run, does what the kind says, and looks at what lives on.
pub fn carry_out(tools: &Tools, kind: &Kind, chance: Random) -> Outcome {
    let mut round = Round::start(tools, kind, chance);
    // Until something is changed, or the kind does not let it come so far.
    let mut changed = match round.program {
        Program::Bound => wait_for(Duration::from_secs(5), || round.has_started() && round.is_changed()),
        _ => wait_for(Duration::from_secs(20), || round.is_changed()),
    };
    round.give_orders(kind.orders.0);
    round.pause(if round.program == Program::Bound { 150 } else { 60 });
    // The array of a closed library is proof enough.
    if round.program != Program::Reuse {
        changed = round.is_changed();
    }
    (kind.act)(&mut round);
    round.cpuset.allow("0-1");
    // A chain of processes may be between two of them, so this looks several times.
    let (mut left, mut widened) = (Vec::new(), 0);
    for _ in 0..3 {
        (left, widened) = round.narrow();
        if !left.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    left.extend(round.left_changed());
    let threads = round.threads().len();
    let mut said = 0;
    if kind.may_be_lost {
        // Where the journal is damaged, what cannot be known must be named.
        let (known, unknown): (Vec<String>, Vec<String>) =
            left.into_iter().partition(|what| round.has_named(what));
        (said, left) = (known.len(), unknown);
    }
    left.append(&mut round.wrong);
    if !left.is_empty() {
        left[0] += &format!(" (of {threads}; said: {})", round.said());
    }
    Outcome { faults: 1, changed: usize::from(changed), threads, left, said, widened }
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
        let program = kind.program.unwrap_or_else(|| {
            [Program::Bound, Program::Bound, Program::Team, Program::Team, Program::Turns][chance.below(5)]
        });
        // Only BPF knows of orphans without an environment, and only outside of a namespace.
        let discovery = match (kind.discovery, chance.below(2)) {
            (Some(only), _) => only,
            (None, by_chance) => ["bpf", "poll"][by_chance],
        };
        let enter = format!("echo $$ > {}/cgroup.procs; ", cpuset.0.display());
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{enter}{}", before(kind.wrap)), "sh", &tools.corewise, "run"]);
        // What is not quiet says more.
        command.args((kind.wrap != Wrap::UnreadLog).then_some("-q"));
        command.args(["--discovery", discovery]);
        let mut crowd = None;
        match tools.programs.command(program) {
            None => bound_command(tools, kind, &mut chance, &mut command),
            Some((options, words)) => {
                command.args(options);
                // With a report, everything is ready before the start.
                if program == Program::Turns || chance.below(2) == 0 {
                    command.arg("--report").arg(path("report.json"));
                }
                command.arg("--").args(words).env_remove("OMP_WAIT_POLICY");
                if program != Program::Turns {
                    let mut busy = Command::new("sh");
                    busy.args(["-c", &format!("{enter}exec \"$@\""), "sh", &tools.burn, "600", "2*int"]);
                    crowd = busy.stdin(Stdio::null()).stdout(Stdio::null()).spawn().ok();
                }
            }
        }
        command.env("XDG_RUNTIME_DIR", path("runtime"));
        let output = |name: &str| fs::File::create(path(name)).expect("a file can be made");
        command.stdin(Stdio::piped()).stdout(output("out")).stderr(output("said")).process_group(0);
        let starter = command.spawn().expect("there is a shell");
        Round { tools, program, cpuset, directory, starter, crowd, chance, wrong: Vec::new(), freezer: None }
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

    /// Gives the program these orders, if it lives. By chance it has time to begin with them.
    fn give_orders(&mut self, orders: &[u8]) {
        let before = self.compiled().len();
        orders.iter().for_each(|&order| self.order(order));
        if orders.is_empty() || (self.program != Program::Reuse && self.chance.below(4) == 0) {
            return;
        }
        if self.program != Program::Reuse {
            wait_for(Duration::from_secs(2), || self.compiled().len() > before);
        } else {
            let filled = self.wait_for_output(|out| Some(out.lines().last()? == "filled"));
            // `filled, unchanged before` shows nothing.
            assert!(filled.is_some(), "it does not close its library; said: {}", self.said());
        }
    }

    /// Gives the program an order.
    pub fn order(&mut self, order: u8) {
        // It may have ended.
        let _ = self.starter.stdin.as_mut().map(|input| input.write_all(&[order]));
    }

    /// Waits until the program's output answers a question.
    pub fn wait_for_output<T>(&self, ask: impl Fn(&str) -> Option<T>) -> Option<T> {
        let path = self.directory.path().join("out");
        let mut answer = None;
        wait_for(Duration::from_secs(20), || {
            answer = ask(&fs::read_to_string(&path).unwrap_or_default());
            answer.is_some()
        });
        answer
    }

    /// The command: the program, the shell of both programs and these, or the shell of one that outlives it.
    pub fn command(&self) -> Vec<u32> {
        let mut first = self.compiled();
        first.sort_by_key(|&pid| start_of(pid));
        first.truncate(match self.program {
            Program::Bound | Program::Team => 1,
            Program::Turns => 2,
            Program::Reuse => 0,
        });
        let shells = self.cpuset.processes().into_iter().filter(|&pid| name_of(pid) == "sh");
        shells.chain(first).collect()
    }

    /// Where the journals are.
    pub fn journal_directory(&self) -> PathBuf {
        self.directory.path().join("runtime/corewise")
    }

    /// The journals, by their names: boot, namespace and process.
    pub fn journals(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.journal_directory()).into_iter().flatten().flatten();
        let is_journal = |path: &PathBuf| path.to_str().is_some_and(|path| path.contains('@'));
        files.map(|entry| entry.path()).filter(is_journal).collect()
    }

    /// Locks what is far from all places that programs have.
    pub fn lock_turns(&mut self) -> fs::File {
        let file = fs::File::options().read(true).write(true).open(self.journal_directory().join("turns"));
        let file = file.expect("programs take turns");
        let (l_type, l_whence) = (nix::libc::F_WRLCK as i16, nix::libc::SEEK_SET as i16);
        let rest = nix::libc::flock { l_type, l_whence, l_start: 1 << 40, l_len: 0, l_pid: 0 };
        let lock = match self.chance.below(2) {
            0 => FcntlArg::F_SETLK(&rest),
            _ => FcntlArg::F_OFD_SETLK(&rest),
        };
        fcntl(&file, lock).expect("nobody else has it");
        file
    }

    /// Corewise must have said this.
    pub fn must_have_said(&mut self, text: &str) {
        if !self.said().contains(text) {
            self.wrong.push(format!("it did not say `{text}`"));
        }
    }

    /// Corewise must not have ended.
    pub fn must_run(&mut self) {
        if self.corewise("run").is_empty() {
            self.wrong.push("corewise ended of itself".to_owned());
        }
    }

    /// Everything must be given back soon, though corewise has not ended.
    pub fn must_be_given_back(&mut self, when: &str) {
        let left = |round: &Round| [round.narrow().0, round.changes()].concat();
        if !wait_for(Duration::from_secs(30), || left(self).is_empty()) {
            self.wrong.push(format!("{when}: {}", left(self).join(", ")));
        }
    }

    /// Freezes corewise in this role.
    pub fn freeze(&mut self, role: &str) {
        let name = format!("corewise-campaign-{}-frozen", std::process::id());
        let freezer = Freezer::create(&name, Some(&self.cpuset.0)).expect("there are control groups");
        self.corewise(role).into_iter().for_each(|pid| freezer.freeze(pid).expect("it is ours"));
        self.freezer = Some(freezer);
    }

    /// Lets what is frozen go on.
    pub fn thaw(&mut self) {
        self.freezer = None;
    }

    /// Nobody may wait for a turn any more soon.
    pub fn must_end_turns(&mut self) {
        if !wait_for(Duration::from_secs(5), || self.changes().is_empty()) {
            let changes = self.changes().join(", ");
            self.wrong.push(format!("while corewise was stopped: {changes}"));
        }
    }

    /// What is still changed, apart from masks, and not only for a moment.
    fn left_changed(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        wait_for(Duration::from_millis(300), || {
            left = self.cpuset.processes().into_iter().flat_map(changes).collect();
            left.is_empty()
        });
        if self.program == Program::Reuse {
            match self.words_changed() {
                Some(0) => {}
                Some(count) => left.push(format!("{count} words outside of the library were written")),
                None => left.push("the program did not answer".to_owned()),
            }
        }
        left
    }

    /// Whether corewise has named the process of something that was left (`name (pid) ...`), or the process
    /// has been started since by one of those that it named: its environment tells the run.
    fn has_named(&self, left: &str) -> bool {
        let pid = left.split(['(', ')']).nth(1).unwrap_or_default();
        let said = self.said();
        let mut numbers = said.split(|character: char| !character.is_ascii_digit());
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut run =
            environment.split(|&byte| byte == 0).filter_map(|entry| entry.strip_prefix(b"COREWISE_PID="));
        let is_of =
            |run: &[u8]| said.contains(&format!("the run of process {} ", String::from_utf8_lossy(run)));
        let is_named = ["is damaged", "does not permit"].iter().any(|reason| said.contains(reason));
        is_named && (numbers.any(|number| number == pid) || run.any(is_of))
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

    /// Limits what the processes of corewise in this role may do.
    pub fn limit(&self, role: &str, limit: &str) {
        for pid in self.corewise(role) {
            let _ = Command::new("prlimit").args(["--pid", &pid.to_string(), limit]).status();
        }
    }

    /// Name, process and mask of every thread.
    fn threads(&self) -> Vec<(String, u32, String)> {
        self.cpuset.processes().into_iter().flat_map(threads_of).collect()
    }

    /// Whether a thread of the program or of what it has started is narrow, be it by its own wish.
    pub fn has_bound(&self) -> bool {
        let others = self.cpuset.processes().into_iter().filter(|&pid| !is_corewise(pid));
        others.flat_map(threads_of).any(|(name, _, mask)| mask != "0-1" && !has_own_wish(&name))
    }

    /// Threads that are narrow but not by their own wish, and how many that pinned themselves are not.
    fn narrow(&self) -> (Vec<String>, usize) {
        let (pinned, others): (Vec<_>, Vec<_>) =
            self.threads().into_iter().partition(|(name, ..)| has_own_wish(name));
        let narrow = others.into_iter().filter(|(.., mask)| mask != "0-1");
        let widened = pinned.iter().filter(|(name, _, mask)| name != "taskset" && mask == "0-1").count();
        (narrow.map(|(name, pid, mask)| format!("{name} ({pid}) has {mask}")).collect(), widened)
    }
}

/// Whether a thread of this name has pinned itself, or was pinned by the program that started it.
fn has_own_wish(name: &str) -> bool {
    matches!(name, "pin" | "tail" | "taskset")
}

/// The starter and what it started must not outlive the round.
impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.thaw();
        let end = Instant::now() + Duration::from_secs(20);
        while !self.cpuset.processes().is_empty() && Instant::now() < end {
            self.send(&self.cpuset.processes(), Signal::SIGKILL);
            let _ = self.starter.try_wait();
            let _ = self.crowd.as_mut().map(Child::try_wait);
        }
        let _ = self.starter.wait();
        let _ = self.crowd.as_mut().map(Child::wait);
    }
}

/// The rest of the command of a run that binds threads all the time.
fn bound_command(tools: &Tools, kind: &Kind, chance: &mut Random, command: &mut Command) {
    let interval = format!("{}ms", 10 + 5 * chance.below(5));
    let script = kind.script.unwrap_or(SCRIPTS[chance.below(SCRIPTS.len())]);
    let options = ["--counters", "none", "--policy", "rr", "--interval", &interval, "--profile"];
    command.args(options).arg(&tools.profile).arg("--");
    if kind.wrap == Wrap::Nested {
        let path = format!("PATH={}", std::env::var("PATH").unwrap_or_default());
        let script = format!("BURN_SCRIPT={script}");
        command.args(["env", "-i", &path, &script, &tools.corewise, "run", "-q"]);
        command.args(options).arg(&tools.profile).arg("--");
    }
    // A process that starts others is not bound again: a second one that starts none stays bound.
    let both = "\"$0\" 600 int churn & exec \"$0\" 600 int shell \"$1\"";
    command.args(["sh", "-c", both, &tools.burn, ["int", "churn", "spawner", "pin"][chance.below(4)]]);
    command.env("BURN_SCRIPT", script);
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
        Wrap::FewRights => "exec setpriv --bounding-set=-sys_nice,-sys_resource --inh-caps=-all \"$@\"",
        Wrap::UnreadLog => {
            "mkfifo $XDG_RUNTIME_DIR/log; exec 3<> $XDG_RUNTIME_DIR/log; \
             timeout 1 cat /dev/zero >&3; exec \"$@\" 2>&3 3>&-"
        }
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

pub fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn threads_of(pid: u32) -> Vec<(String, u32, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| thread(&task.path())).map(|(name, mask)| (name, pid, mask)).collect()
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
