//! The programs to which something is done: what corewise changes in them, and what may be left of it.

use super::round::Round;
use corewise_binding::runtimes::libgomp;
use corewise_binding::runtimes::loaded::{Files, Loaded};
use corewise_binding::runtimes::variable::Variable;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// What runs, and so what corewise changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Threads that are bound: the example `burn`.
    Bound,
    /// A team of OpenMP's, whose spin count is lowered.
    Team,
    /// The same in a library, which is closed; an array of the lowered spin count takes its place.
    Reuse,
    /// Two that spin and take turns, each in a session of its own.
    Turns,
}

/// The compiled programs.
pub struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// Compiles them into a directory; says why that is not possible.
    pub fn compile(directory: &Path) -> Result<Programs, String> {
        let binding = concat!(env!("CARGO_MANIFEST_DIR"), "/../binding/tests");
        let own = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/campaign");
        let library = ["-DPLUGIN", "-shared", "-fPIC", "-fopenmp"];
        for (name, source, options) in [
            ("waiting", format!("{binding}/waiting.c"), &["-fopenmp"][..]),
            ("reusing", format!("{binding}/reusing.c"), &[]),
            ("library.so", format!("{binding}/reusing.c"), &library),
            ("spinning", format!("{own}/spinning.c"), &["-pthread"]),
        ] {
            let mut compiler = Command::new("cc");
            compiler.arg("-O2").args(options).arg(source).arg("-o").arg(directory.join(name));
            let status = compiler.status();
            if !status.as_ref().is_ok_and(|status| status.success()) {
                return Err(format!("{name} cannot be compiled: {status:?}"));
            }
        }
        Ok(Programs { directory: directory.to_owned() })
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// What is run under corewise, with the options that let it change something; `None` for
    /// [`Program::Bound`].
    pub fn command(&self, program: Program) -> Option<(Vec<&'static str>, Vec<String>)> {
        let words = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
        match program {
            Program::Bound => None,
            Program::Team => Some((vec!["--waits", "spin"], vec![self.path("waiting")])),
            Program::Reuse => {
                // It outlives the command.
                let mut command = words(&["sh", "-c", "exec 3<&0; \"$0\" \"$1\" <&3 & wait"]);
                command.extend([self.path("reusing"), self.path("library.so")]);
                Some((vec!["--waits", "spin"], command))
            }
            Program::Turns => {
                let both = "exec 3<&0; setsid \"$0\" <&3 & setsid \"$0\" <&3 & wait";
                let mut command = words(&["sh", "-c", both]);
                command.push(self.path("spinning"));
                Some((vec!["--waits", "turns", "--interval", "50ms"], command))
            }
        }
    }
}

/// What is changed in a process now, apart from masks, in words.
pub fn changes(pid: u32) -> Vec<String> {
    let name = super::round::name_of(pid);
    let named = |what: &str| format!("{name} ({pid}) {what}");
    let mut changes = Vec::new();
    if has_lowered_spin_count(pid) {
        changes.push(named("has not its own spin count"));
    }
    if of_threads(pid, 41).contains(&"5".to_owned()) {
        changes.push(named("is SCHED_IDLE"));
    }
    if of_threads(pid, 19).iter().any(|nice| nice != "0") {
        changes.push(named("is not at nice level 0"));
    }
    if session_nice(pid).is_some_and(|nice| nice != 0) {
        changes.push(named("is in a session that is not at nice level 0"));
    }
    changes
}

/// Whether a copy of libgomp is there whose spin count is not the default, though nobody has decided so.
fn has_lowered_spin_count(pid: u32) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.contains("/libgomp.so") && libgomp::wish(pid).is_none() && !has_own_spin_count(pid)
}

fn has_own_spin_count(pid: u32) -> bool {
    // It costs much to look for it, and forks have it where their parents have it.
    static ADDRESSES: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    let mut addresses = ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner);
    let memory = fs::File::open(format!("/proc/{pid}/mem"));
    let stands_at = |address: &u64| {
        let mut word = [0; 8];
        memory.as_ref().is_ok_and(|memory| memory.read_exact_at(&mut word, *address).is_ok())
            && u64::from_ne_bytes(word) == libgomp::UNDECIDED
    };
    if addresses.iter().any(stands_at) {
        return true;
    }
    // A process that ends meanwhile has nothing that could be wrong.
    let mut files = Files::default();
    let Ok(loaded) = Loaded::in_process(pid, &mut files) else { return true };
    let found: Vec<Variable> = libgomp::find(&loaded, &mut files).into_iter().flatten().collect();
    addresses.extend(found.iter().map(Variable::address));
    // A library that is being loaded has not set it yet.
    found.iter().all(|variable| [0, libgomp::UNDECIDED].contains(&variable.own()))
}

/// A field of each thread (proc_pid_stat(5)): 19 is the nice level, 41 the policy, of which 5 is
/// `SCHED_IDLE`.
fn of_threads(pid: u32, field: usize) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let value = |stat: String| {
        let (_, fields) = stat.rsplit_once(')')?;
        Some(fields.split_whitespace().nth(field - 3)?.to_owned())
    };
    tasks.filter_map(|task| value(fs::read_to_string(task.path().join("stat")).ok()?)).collect()
}

fn session_nice(pid: u32) -> Option<i64> {
    let group = fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()?;
    group.trim().rsplit(' ').next()?.parse().ok()
}

impl Round<'_> {
    /// The processes that run one of the compiled programs.
    pub fn compiled(&self) -> Vec<u32> {
        let is_it =
            |pid: &u32| matches!(super::round::name_of(*pid).as_str(), "waiting" | "reusing" | "spinning");
        self.cpuset.processes().into_iter().filter(is_it).collect()
    }

    /// Whether something is changed.
    pub fn is_changed(&self) -> bool {
        self.has_bound() || !self.changes().is_empty()
    }

    /// What is changed in the compiled programs, apart from masks, in words.
    pub fn changes(&self) -> Vec<String> {
        self.compiled().into_iter().flat_map(changes).collect()
    }

    /// What the program of [`Program::Reuse`] has found in its array, if it is asked: the number of changed
    /// words.
    pub fn words_changed(&mut self) -> Option<u64> {
        self.order(b'x');
        let answer = |out: &str| out.lines().last()?.strip_suffix(" words changed")?.parse().ok();
        self.wait_for_output(answer)
    }
}
