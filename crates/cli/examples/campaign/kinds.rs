//! What is done to a run.

use super::changes::Orders;
use super::program::Program;
use super::round::Round;
use nix::sys::signal::Signal;
use nix::sys::signal::Signal::{SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGSTOP, SIGTERM};

/// One kind of fault.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// What is around corewise.
    pub wrap: Wrap,
    /// What runs, if that is not left to chance.
    pub program: Option<Program>,
    /// What it is ordered to do before the fault.
    pub orders: Orders,
    /// Whether corewise may leave something changed, if it names the processes.
    pub may_be_lost: bool,
    /// What the threads of [`Program::Bound`] start, if that is not left to chance.
    pub script: Option<&'static str>,
    /// How corewise finds threads, if that is not left to chance.
    pub discovery: Option<&'static str>,
    /// Whether others on the machine are touched: it is done only where it is asked for by its name.
    pub touches_others: bool,
    /// What is done. Afterwards no process may be left that binds or restores: neither a guardian nor a
    /// corewise that is not within another.
    pub act: fn(&mut Round),
}

/// What says whether PE 1 is there, and changes it.
const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";

impl Kind {
    /// Why it cannot be done here.
    pub fn why_not(&self) -> Option<String> {
        let open = || std::fs::File::options().write(true).open(ONLINE);
        let error = open().err().filter(|_| self.touches_others)?;
        Some(format!("not possible: {ONLINE}: {error}"))
    }
}

/// What is around corewise.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wrap {
    /// Nothing.
    None,
    /// Another corewise, which has cleared the environment.
    Nested,
    /// Process ids of its own, in which they come round fast.
    Namespace,
    /// A runtime directory without space.
    FullDisk,
    /// A limit on the size of files.
    SmallFiles,
    /// A runtime directory that anybody may write to.
    NoDirectory,
    /// Without the right to change other users' threads, and to raise limits.
    FewRights,
    /// Standard error is a full pipe that nobody reads.
    UnreadLog,
}

const CHAIN: &str = "n=0; hop() { n=$((n+1)); [ $n -lt 900 ] || exec sleep 9; hop & }; hop";
const CLEARED: &str = "exec env -i setsid sh -c 'sleep 9 & sleep 9 &'";
const OTHER_USER: &str = "setpriv --reuid=65534 --clear-groups sleep 9 &";
const REUSE: &str = "echo 20 > /proc/sys/kernel/ns_last_pid; sleep .3 & sleep 9 &";

/// What the program's threads start, again and again.
pub const SCRIPTS: [&str; 6] = [
    "sleep 9 &",
    "setsid sleep 9 &",
    "exec sh -c 'exec sh -c \"sleep 9 & exec sleep .1\"'",
    "taskset -c 0 tail -f /dev/null & sleep .1",
    "(sleep .02; sleep .02; exec sleep 9) &",
    CHAIN,
];

/// A fault while threads are bound.
pub const fn kind(name: &'static str, act: fn(&mut Round)) -> Kind {
    Kind {
        name,
        wrap: Wrap::None,
        program: Some(Program::Bound),
        orders: Orders(b""),
        may_be_lost: false,
        script: None,
        discovery: None,
        touches_others: false,
        act,
    }
}

const fn within(name: &'static str, wrap: Wrap, act: fn(&mut Round)) -> Kind {
    Kind { wrap, ..kind(name, act) }
}

const fn with(name: &'static str, script: &'static str, act: fn(&mut Round)) -> Kind {
    Kind { script: Some(script), ..kind(name, act) }
}

const fn offline(name: &'static str, act: fn(&mut Round)) -> Kind {
    Kind { touches_others: true, ..kind(name, act) }
}

/// All kinds.
pub fn all() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().chain(&super::changes::KINDS).chain(&super::still::KINDS)
}

/// Those while threads are bound.
static KINDS: [Kind; 42] = [
    kind("kill corewise", |round| signal(round, "run", SIGKILL)),
    kind("stop, then kill corewise", |round| {
        round.send(&round.corewise("run"), SIGSTOP);
        round.pause(50);
        signal(round, "run", SIGKILL);
    }),
    kind("terminate corewise", |round| round.end()),
    kind("interrupt corewise", |round| {
        round.send(&round.corewise("run"), SIGINT);
        round.end();
    }),
    kind("kill guardian", |round| {
        round.send(&round.corewise("guardian"), SIGKILL);
        round.pause(100);
        round.end();
    }),
    kind("terminate guardian", |round| {
        round.send(&round.corewise("guardian"), SIGTERM);
        round.send(&round.corewise("guardian"), SIGHUP);
        signal(round, "run", SIGKILL);
    }),
    kind("stop guardian, end", |round| {
        let guardian = round.corewise("guardian");
        round.send(&guardian, SIGSTOP);
        round.pause(100);
        round.send(&round.corewise("run"), SIGTERM);
        round.pause(100);
        round.send(&guardian, SIGCONT);
        round.end();
    }),
    kind("stop guardian, kill, continue", |round| {
        let guardian = round.corewise("guardian");
        round.send(&guardian, SIGSTOP);
        round.pause(100);
        round.send(&round.corewise("run"), SIGKILL);
        round.pause(50);
        round.send(&guardian, SIGCONT);
        round.wait_alone();
    }),
    kind("stop guardian, kill, next start", |round| {
        let guardian = round.corewise("guardian");
        round.send(&guardian, SIGSTOP);
        round.send(&round.corewise("run"), SIGKILL);
        round.pause(50);
        next_start(round);
        round.send(&guardian, SIGKILL);
        round.wait_alone();
    }),
    kind("kill corewise, then guardian", |round| {
        let guardian = round.corewise("guardian");
        round.send(&round.corewise("run"), SIGKILL);
        round.send(&guardian, SIGKILL);
        next_start(round);
    }),
    kind("kill guardian, then corewise", |round| {
        round.send(&round.corewise("guardian"), SIGKILL);
        round.pause(50);
        round.send(&round.corewise("run"), SIGKILL);
        next_start(round);
    }),
    kind("kill command", |round| {
        round.send(&round.program(), SIGKILL);
        round.end();
    }),
    kind("stop command, kill corewise", |round| {
        round.send(&round.program(), SIGSTOP);
        round.pause(50);
        signal(round, "run", SIGKILL);
    }),
    kind("kill process group", |round| {
        // All of the program and corewise, in the order in which the system finds them.
        let mut both = round.program();
        both.extend(round.corewise("run"));
        round.chance.shuffle(&mut both);
        round.send(&both, SIGKILL);
        round.wait_alone();
    }),
    kind("cpuset shrinks, kill", |round| {
        shrink(round);
        round.pause(40);
        signal(round, "run", SIGKILL);
    }),
    kind("cpuset shrinks and grows, kill", |round| {
        shrink(round);
        round.pause(40);
        round.cpuset.allow("0-1");
        round.pause(20);
        signal(round, "run", SIGKILL);
    }),
    kind("cpuset flaps, end", |round| {
        for _ in 0..10 {
            shrink(round);
            round.pause(10);
            round.cpuset.allow("0-1");
            round.pause(10);
        }
        round.end();
    }),
    kind("cpuset shrinks as it dies", |round| {
        round.send(&round.corewise("run"), SIGKILL);
        shrink(round);
        round.wait_alone();
    }),
    offline("PE offline, kill, online", |round| {
        take_pe(round, "0");
        round.pause(40);
        signal(round, "run", SIGKILL);
        take_pe(round, "1");
    }),
    offline("PE offline and online, kill", |round| {
        take_pe(round, "0");
        round.pause(40);
        take_pe(round, "1");
        round.pause(20);
        signal(round, "run", SIGKILL);
    }),
    kind("narrow corewise, kill", |round| {
        round.narrow_corewise();
        round.pause(100);
        signal(round, "run", SIGKILL);
    }),
    kind("narrow corewise, end", |round| {
        round.narrow_corewise();
        round.pause(100);
        round.end();
    }),
    with("chain, kill", CHAIN, |round| signal(round, "run", SIGKILL)),
    with("chain, end", CHAIN, |round| round.end()),
    Kind {
        discovery: Some("bpf"),
        ..with("environment cleared, kill", CLEARED, |round| signal(round, "run", SIGKILL))
    },
    within("nested, kill outer", Wrap::Nested, |round| {
        round.send(&[round.nested().0], SIGKILL);
        round.end();
    }),
    within("nested, kill outer, go on", Wrap::Nested, |round| {
        let outer = round.nested().0;
        round.send(&[outer], SIGKILL);
        round.wait_ended(outer);
        round.wait_for_guardian();
    }),
    within("nested, kill inner", Wrap::Nested, |round| {
        round.send(&round.nested().1, SIGKILL);
        round.end();
    }),
    Kind {
        wrap: Wrap::Namespace,
        discovery: Some("poll"),
        ..with("numbers come round, kill", REUSE, |round| signal(round, "run", SIGKILL))
    },
    within("no space, kill", Wrap::FullDisk, |round| signal(round, "run", SIGKILL)),
    within("small files, kill", Wrap::SmallFiles, |round| signal(round, "run", SIGKILL)),
    within("no space, end", Wrap::FullDisk, |round| round.end()),
    within("no descriptors", Wrap::NoDirectory, |round| {
        no_descriptors(round, &["run"]);
        signal(round, "run", SIGKILL);
    }),
    kind("no descriptors, end", |round| {
        no_descriptors(round, &["run"]);
        round.end();
    }),
    kind("no descriptors for both, end", |round| {
        no_descriptors(round, &["run", "guardian"]);
        round.end();
        round.next_start();
    }),
    kind("no descriptors for both, kill", |round| {
        no_descriptors(round, &["run", "guardian"]);
        signal(round, "run", SIGKILL);
        // They may lack the right to raise their limits.
        round.next_start();
    }),
    kind("no memory, end", |round| {
        no_memory(round, &["run"]);
        round.end();
    }),
    kind("no memory for both, end", |round| {
        no_memory(round, &["run", "guardian"]);
        next_start(round);
        round.wait_alone();
    }),
    kind("no file may grow, end", |round| {
        round.limit("run", "--fsize=0:");
        round.pause(100);
        round.end();
    }),
    with("programs of another user, kill", OTHER_USER, |round| signal(round, "run", SIGKILL)),
    Kind {
        may_be_lost: true,
        wrap: Wrap::FewRights,
        ..with("few rights, another user, end", OTHER_USER, |round| round.end())
    },
    Kind {
        may_be_lost: true,
        wrap: Wrap::FewRights,
        ..with("few rights, another user, kill", OTHER_USER, |round| signal(round, "run", SIGKILL))
    },
];

/// Some of corewise's processes may open nothing more, for now or for good.
pub fn no_descriptors(round: &mut Round, roles: &[&str]) {
    let limit = ["--nofile=3:", "--nofile=3:3"][round.chance.below(2)];
    roles.iter().for_each(|role| round.limit(role, limit));
    round.pause(100);
}

/// They get no more memory.
pub fn no_memory(round: &mut Round, roles: &[&str]) {
    let limit = ["--as=4096:", "--as=4096:4096"][round.chance.below(2)];
    roles.iter().for_each(|role| round.limit(role, limit));
    round.pause(200);
    // What does not notice is ended.
    roles.iter().for_each(|role| round.send(&round.corewise(role), SIGTERM));
}

fn signal(round: &Round, subcommand: &str, signal: Signal) {
    round.send(&round.corewise(subcommand), signal);
    round.wait_alone();
}

/// Either PE is left.
fn shrink(round: &mut Round) {
    let left = ["0", "1"][round.chance.below(2)];
    round.cpuset.allow(left);
}

/// Switches PE 1 off or on, as a machine may do any time. Its cpuset gets it back only when its file is
/// written again.
fn take_pe(round: &Round, online: &str) {
    std::fs::write(ONLINE, online).expect("it could be opened before");
    if online == "1" {
        round.cpuset.allow("0-1");
    }
}

/// The killed must be dead before anybody can know of it.
pub fn next_start(round: &mut Round) {
    while !round.corewise("run").is_empty() {
        round.pause(1);
    }
    round.next_start();
}
