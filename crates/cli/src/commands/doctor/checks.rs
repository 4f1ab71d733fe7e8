//! What corewise uses of a machine, one function each.
//!
//! A function that tries something takes the outcome as an argument, so that each outcome is tested anywhere.

use super::machine::Machine;
use crate::commands::calibrate;
use crate::profile_file;
use anyhow::Result;
use corewise_binding::actuators;
use corewise_binding::group::Group;
use corewise_binding::runtime_directory::Directory;
use corewise_core::cpuset::CpuSet;
use corewise_core::topology::Topology;
use corewise_counters::pmu::{DetectError, Metric, Ready, Reason};
use corewise_counters::progress::{self, MeterError};
use corewise_counters::{Choice, CountersError, Subjects};
use corewise_daemon::client::{Connection, candidates};
use corewise_discovery as discovery;
use corewise_discovery::bpf::may_load;
use corewise_discovery::{DiscoveryError, Extent};
use corewise_sys::cgroup::{GroupError, Hierarchy};
use corewise_sys::privileged;
use corewise_sys::proc::Proc;
use corewise_topology as topology;
use corewise_topology::{LoadError, Source};
use nix::unistd::{AccessFlags, access};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// One thing that corewise uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    #[serde(flatten)]
    pub finding: Finding,
}

/// Whether it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Finding {
    /// It is, in words.
    Here { what: String },
    /// It is not: why, what corewise cannot do without it, and the line that gives it.
    Missing { what: String, costs: String, remedy: String },
    /// The same of something without which corewise cannot work at all.
    Needed { what: String, costs: String, remedy: String },
}

impl Finding {
    /// Returns that of something missing.
    pub fn missing(what: impl ToString, costs: &str, remedy: impl ToString) -> Finding {
        let (what, costs, remedy) = (what.to_string(), costs.to_owned(), remedy.to_string());
        Finding::Missing { what, costs, remedy }
    }

    fn needed(what: impl ToString, remedy: impl ToString) -> Finding {
        let costs = "corewise does not work".to_owned();
        Finding::Needed { what: what.to_string(), costs, remedy: remedy.to_string() }
    }

    /// Returns that of something that is there.
    pub fn here(what: impl ToString) -> Finding {
        Finding::Here { what: what.to_string() }
    }
}

/// Examines everything that corewise uses of this machine.
pub fn all(machine: &Machine) -> Vec<Check> {
    let loaded = topology::load(&Source::Live, None);
    let pes = loaded.as_ref().map(|topology| topology.allowed.clone()).unwrap_or_default();
    let kinds = kinds(&loaded);
    [
        ("processes", processes(Proc::own().is_of_this_namespace(), Proc::own().hides(1))),
        ("topology", shared(loaded)),
        ("kinds of PEs", kinds),
        ("threads by BPF", threads(machine, open_bpf())),
        ("clock samples", samples(machine, open_samples(&pes))),
        ("hardware counters", counters(machine, Ready::available(Path::new("/")))),
        ("points of progress", points(machine, progress::try_out())),
        ("weights and turns", weights(machine, actuators::may_change_weights())),
        ("other programs' memory", memory(machine)),
        ("control groups", groups(Hierarchy::mounted().map(drop))),
        ("parts of groups", parts(machine, std::process::id())),
        ("runtime directory", runtime_directory(machine, Directory::to_write().map(|d| d.path().to_owned()))),
        ("daemon", daemon(machine, Connection::open(&candidates(None)).is_ok())),
        ("machine profile", profile(calibrate::default_path())),
    ]
    .map(|(name, finding)| Check { name, finding })
    .into()
}

/// `hides` is whether `/proc` hides the first process, which belongs to root and is always there.
fn processes(is_ours: std::io::Result<bool>, hides: bool) -> Finding {
    match is_ours {
        Ok(true) if hides => Finding::missing(
            "your own only: /proc is mounted with hidepid",
            "the processes of others are neither listed nor matched by rules",
            "ask root, who sees all, for a daemon of the machine",
        ),
        Ok(true) => Finding::here("those of this PID namespace"),
        Ok(false) => Finding::needed(
            "/proc belongs to another PID namespace",
            "mount -t proc proc /proc, inside the namespace",
        ),
        Err(error) => Finding::needed(format_args!("there is no /proc: {error}"), "mount -t proc proc /proc"),
    }
}

fn shared(loaded: Result<Topology, LoadError>) -> Finding {
    match loaded {
        Ok(topology) => {
            let counts = topology.summary().to_string();
            Finding::here(format_args!("by hwloc: {}", counts.lines().next().unwrap_or_default()))
        }
        Err(error) => Finding::needed(error, "sudo apt install libhwloc15, and mount /sys"),
    }
}

/// One kind is nothing missing, unless the machine merely does not tell.
fn kinds(loaded: &Result<Topology, LoadError>) -> Finding {
    let kinds = loaded.as_ref().map(|topology| topology.summary().kinds).unwrap_or_default();
    let reported: Vec<String> = kinds
        .iter()
        .map(|kind| format!("{} {} ({})", kind.name, kind.pes, kind.evidence.join("; ")))
        .collect();
    let unknown = kinds.is_empty() || kinds.iter().any(|kind| kind.name == "unknown");
    match (unknown, reported) {
        (false, reported) => Finding::here(reported.join(", ")),
        (true, reported) => Finding::missing(
            if reported.is_empty() { "the machine does not tell".to_owned() } else { reported.join(", ") },
            "all PEs are taken to be equally fast: policies for fast and slow PEs place nothing",
            "corewise run --fast 0-3 says which are fast; corewise calibrate measures their speeds",
        ),
    }
}

fn open_bpf() -> Result<(), DiscoveryError> {
    let options = discovery::Options {
        roots: Vec::new(),
        excluded: Vec::new(),
        proc: Proc::own(),
        extent: Extent::Program,
        choice: discovery::Choice::Bpf,
    };
    discovery::open(&options).map(drop)
}

fn threads(machine: &Machine, opened: Result<(), DiscoveryError>) -> Finding {
    let Err(error) = opened else { return Finding::here("each is seen at once, with exact times") };
    let remedy = if !may_load(machine.capabilities) || machine.container.is_some() {
        machine.capabilities_remedy()
    } else if !machine.root.join("sys/kernel/btf/vmlinux").exists() {
        "a kernel with CONFIG_DEBUG_INFO_BTF".to_owned()
    } else {
        "a kernel of 5.12 or later with CONFIG_BPF_SYSCALL, without lockdown".to_owned()
    };
    Finding::missing(
        error,
        "threads are found by polling /proc: short ones are missed, times and parallelism are estimates",
        remedy,
    )
}

fn open_samples(pes: &CpuSet) -> Result<(), CountersError> {
    let own = [std::process::id()];
    corewise_counters::open(Choice::Sample, Subjects::Running(&own), pes, None).map(drop)
}

fn samples(machine: &Machine, opened: Result<(), CountersError>) -> Finding {
    match opened {
        Ok(()) => Finding::here("FPU usage is estimated from sampled code"),
        Err(error) => Finding::missing(
            error,
            "FPU usage and busy waiting are unknown, unless hardware counters tell them",
            machine.perf_remedy(),
        ),
    }
}

fn counters(machine: &Machine, tried: Result<Ready, Reason>) -> Finding {
    const COSTS: &str =
        "FPU usage is estimated from clock samples instead of counted; IPC and L2 misses are unknown";
    let elsewhere = || {
        "a machine that has them; a virtual one has them from its hypervisor (QEMU: -cpu host,pmu=on)"
            .to_owned()
    };
    match tried {
        Ok(ready) if ready.gives(Metric::FpuBusyCycles) => Finding::here(ready.files()),
        Ok(ready) => Finding::missing(
            format_args!("{} tells no FPU usage", ready.files()),
            "FPU usage is estimated from clock samples instead of counted",
            "an event file with its formula (docs/counters.md)",
        ),
        Err(reason) => {
            let remedy = match &reason {
                Reason::Denied { .. } => machine.perf_remedy(),
                Reason::Pfm(_) => "sudo apt install libpfm4".to_owned(),
                Reason::Files(_) => "mend that file".to_owned(),
                Reason::Detect(DetectError::UnknownCpu { .. }) => {
                    "an event file for it (docs/counters.md)".to_owned()
                }
                Reason::Detect(_) | Reason::Refused { .. } | Reason::Silent { .. } | Reason::Trial { .. } => {
                    elsewhere()
                }
            };
            Finding::missing(reason, COSTS, remedy)
        }
    }
}

fn points(machine: &Machine, tried: Result<(), MeterError>) -> Finding {
    match tried {
        Ok(()) => Finding::here("uprobes count how fast programs advance"),
        Err(error) => Finding::missing(
            error,
            "the guard cannot tell whether a placement helps, unless hardware counters or the program \
             itself tell; `corewise progress` does not work",
            match machine.capabilities & privileged::SYS_ADMIN {
                0 => "be root with CAP_SYS_ADMIN: sudo corewise run …",
                _ => "a kernel with CONFIG_UPROBE_EVENTS",
            },
        ),
    }
}

fn weights(machine: &Machine, may_change: bool) -> Finding {
    match may_change {
        true => Finding::here("may be changed, and changed back (CAP_SYS_NICE)"),
        false => Finding::missing(
            "changing them back is not permitted (CAP_SYS_NICE)",
            "programs that spin in their own code take no turns; claims to fast PEs are enforced by masks",
            machine.capabilities_remedy(),
        ),
    }
}

/// Spin counts are in the memory of programs. Those that corewise starts are its own descendants.
fn memory(machine: &Machine) -> Finding {
    const FILE: &str = "proc/sys/kernel/yama/ptrace_scope";
    let scope = machine.text(FILE).and_then(|text| text.parse::<u8>().ok()).unwrap_or(0);
    if scope == 0 || scope < 3 && machine.capabilities & privileged::SYS_PTRACE != 0 {
        return Finding::here("may be read and written, of programs of this user");
    }
    let what = format!("restricted: kernel.yama.ptrace_scope is {scope}");
    let remedy = match scope {
        // Only the next boot ends it.
        3 => "kernel.yama.ptrace_scope=0 in /etc/sysctl.d, then boot",
        _ => "sudo sysctl kernel.yama.ptrace_scope=0",
    };
    let costs = match scope {
        1 => {
            "spin counts of programs that corewise did not start stay as they are, and only its guardian \
             gives back those that it changed"
        }
        _ => "spin counts stay as they are",
    };
    Finding::missing(what, costs, remedy)
}

fn groups(mounted: Result<(), GroupError>) -> Finding {
    match mounted {
        Ok(()) => Finding::here("version 2"),
        Err(error) => Finding::missing(
            error,
            "--cgroup, --unit and rules about control groups find nothing",
            "boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 none /sys/fs/cgroup",
        ),
    }
}

/// The kernel divides the PEs among groups of processes before it divides them among threads.
fn parts(machine: &Machine, pid: u32) -> Finding {
    const COSTS: &str = "turns among programs of different groups are uneven";
    const SESSIONS: &str = "proc/sys/kernel/sched_autogroup_enabled";
    match Group::of(&machine.root, pid) {
        Some(Group::Session(_)) => Finding::here("those of sessions may be changed"),
        Some(Group::Cgroup(folder)) if access(&folder.join("cpu.weight"), AccessFlags::W_OK).is_ok() => {
            Finding::here("those of control groups may be changed")
        }
        Some(Group::Cgroup(folder)) => Finding::missing(
            format_args!("{} may not be changed", folder.join("cpu.weight").display()),
            COSTS,
            "systemd-run --user --scope -p Delegate=yes corewise run …, or be root",
        ),
        None if machine.text(SESSIONS).is_some_and(|enabled| enabled != "0") => Finding::missing(
            "those of sessions may not be changed (CAP_SYS_ADMIN)",
            COSTS,
            "sudo sysctl kernel.sched_autogroup_enabled=0",
        ),
        None => Finding::here("the kernel divides PEs among threads alone"),
    }
}

fn runtime_directory(machine: &Machine, found: Result<PathBuf, String>) -> Finding {
    match found {
        Ok(path) => Finding::here(path.display()),
        Err(why) => Finding::missing(
            why,
            "runs do not know of each other; what a `kill -9` of corewise and its guardian leaves stays",
            if machine.container.is_some() {
                "mkdir -pm 700 /tmp/run-$(id -u); export XDG_RUNTIME_DIR=/tmp/run-$(id -u)"
            } else {
                "sudo loginctl enable-linger $USER; export XDG_RUNTIME_DIR=/run/user/$(id -u)"
            },
        ),
    }
}

fn daemon(machine: &Machine, runs: bool) -> Finding {
    match runs {
        true => Finding::here("runs: `corewise status` asks it"),
        false => Finding::missing(
            "does not run",
            "only programs under `corewise run` are watched and placed",
            if machine.is_root {
                "systemctl start corewise, or corewise daemon"
            } else {
                "corewise daemon &"
            },
        ),
    }
}

fn profile(path: Result<PathBuf>) -> Finding {
    const COSTS: &str = "what sharing costs is assumed, not measured";
    match path {
        Ok(path) if path.exists() => match profile_file::read(&path) {
            Ok(_) => Finding::here(format_args!("{} (use it with --profile)", path.display())),
            Err(error) => Finding::missing(format_args!("{error:#}"), COSTS, "corewise calibrate"),
        },
        Ok(path) => Finding::missing(
            format_args!("there is no {}", path.display()),
            COSTS,
            format_args!("corewise calibrate, then --profile {}", path.display()),
        ),
        Err(_) => Finding::missing("no home directory", COSTS, "corewise calibrate --output FILE"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{OF_CONTAINER, OF_ROOT, OF_USER, PARANOID, STATUS};
    use super::*;
    use anyhow::anyhow;
    use corewise_testing::machine;
    use std::io::{Error, ErrorKind};

    const YAMA: &str = "proc/sys/kernel/yama/ptrace_scope";

    fn on<T>(files: &[(&str, &str)], examine: impl Fn(&Machine) -> T) -> T {
        let root = machine::root(files);
        examine(&Machine::at(root.path()))
    }

    /// What to do about something missing.
    fn remedy(finding: Finding) -> String {
        match finding {
            Finding::Here { what } => panic!("it is here: {what}"),
            Finding::Missing { what, costs, remedy } | Finding::Needed { what, costs, remedy } => {
                assert!(!what.is_empty() && !costs.is_empty(), "{remedy}");
                remedy
            }
        }
    }

    fn is_here(finding: Finding) -> bool {
        matches!(finding, Finding::Here { .. })
    }

    fn denied() -> Error {
        ErrorKind::PermissionDenied.into()
    }

    #[test]
    fn the_remedy_for_bpf_depends_on_what_is_in_its_way() {
        let refused = || Err(DiscoveryError::Bpf { reason: "no".to_owned() });
        let of = |files: &[(&str, &str)]| remedy(on(files, |machine| threads(machine, refused())));
        assert!(of(&[(STATUS, OF_USER)]).contains("setcap"));
        assert!(of(&[(STATUS, OF_ROOT), (".dockerenv", "")]).contains("--pid host"));
        assert!(of(&[(STATUS, OF_CONTAINER)]).contains("CapabilityBoundingSet="));
        assert!(of(&[(STATUS, OF_ROOT)]).contains("CONFIG_DEBUG_INFO_BTF"));
        assert!(of(&[(STATUS, OF_ROOT), ("sys/kernel/btf/vmlinux", "")]).contains("CONFIG_BPF_SYSCALL"));
        assert!(is_here(on(&[], |machine| threads(machine, Ok(())))));
    }

    #[test]
    fn the_remedy_for_hardware_counters_depends_on_why_they_do_not_count() {
        let of = |reason| {
            let root = machine::root(&[(STATUS, OF_USER), (PARANOID, "3")]);
            remedy(counters(&Machine::at(root.path()), Err(reason)))
        };
        let none = || Reason::Detect(DetectError::NoPmu { path: "/sys".into() });
        assert!(of(none()).contains("-cpu host,pmu=on"));
        assert!(of(Reason::Silent { device: "cpu".to_owned() }).contains("-cpu host,pmu=on"));
        let paranoid = "3".to_owned();
        assert_eq!(
            of(Reason::Denied { paranoid, error: denied() }),
            "sudo sysctl kernel.perf_event_paranoid=2 (now 3)"
        );
        let cpu = corewise_counters::pmu::Cpu::Arm { implementer: 1, part: 2 };
        let unknown = DetectError::UnknownCpu { cpu, device: "cpu".to_owned() };
        assert!(of(Reason::Detect(unknown)).contains("docs/counters.md"));
    }

    #[test]
    fn perf_events_are_permitted_by_the_level_that_each_use_needs() {
        let files = [(STATUS, OF_USER), (PARANOID, "3")];
        let probe = || Err(MeterError::Probe(denied()));
        assert!(remedy(on(&files, |machine| points(machine, probe()))).contains("CAP_SYS_ADMIN"));
        assert!(is_here(on(&files, |machine| points(machine, Ok(())))));
        let sample = || {
            let error = corewise_counters::sample::events::SampleError::Wakeups(denied());
            Err(CountersError::Sample(error))
        };
        assert!(remedy(on(&files, |machine| samples(machine, sample()))).contains("paranoid=2"));
        assert!(is_here(on(&files, |machine| samples(machine, Ok(())))));
    }

    #[test]
    fn memory_of_programs_is_restricted_by_yama_alone() {
        let of = |user, scope| on(&[(STATUS, user), (YAMA, scope)], memory);
        assert!(is_here(of(OF_USER, "0")) && is_here(of(OF_ROOT, "1")) && is_here(on(&[], memory)));
        assert!(remedy(of(OF_USER, "1")).contains("ptrace_scope=0"));
        assert!(remedy(of(OF_ROOT, "3")).contains("boot"));
    }

    #[test]
    fn parts_of_groups_are_reported_by_what_the_kernel_divides_among() {
        let autogroup = [("proc/7/autogroup", "/autogroup-5 nice 0\n"), ("proc/7/cgroup", "0::/\n")];
        let of = |more: &[(&str, &str)]| on(&[&autogroup, more].concat(), |machine| parts(machine, 7));
        const SESSIONS: &str = "proc/sys/kernel/sched_autogroup_enabled";
        assert!(is_here(of(&[(STATUS, OF_USER), (SESSIONS, "0\n")])));
        assert!(is_here(of(&[(STATUS, OF_ROOT), (SESSIONS, "1\n")])));
        assert!(remedy(of(&[(STATUS, OF_USER), (SESSIONS, "1\n")])).contains("autogroup_enabled=0"));
        let group = [("proc/7/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/cpu.weight", "100\n")];
        assert!(is_here(on(&group, |machine| parts(machine, 7))));
        let root = machine::root(&group);
        let file = root.path().join("sys/fs/cgroup/a/cpu.weight");
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
        // Root may write it nevertheless.
        if !nix::unistd::geteuid().is_root() {
            assert!(remedy(parts(&Machine::at(root.path()), 7)).contains("Delegate=yes"));
        }
    }

    #[test]
    fn whatever_else_is_missing_has_a_remedy() {
        let user = machine::root(&[(STATUS, OF_USER)]);
        let machine = Machine::at(user.path());
        assert!(remedy(weights(&machine, false)).contains("cap_sys_nice"));
        assert!(remedy(groups(Err(GroupError::NotMounted))).contains("cgroup2"));
        let directory = |machine: &Machine| remedy(runtime_directory(machine, Err("none".to_owned())));
        assert!(directory(&machine).contains("loginctl"));
        let container = machine::root(&[(STATUS, OF_USER), (".dockerenv", "")]);
        assert!(directory(&Machine::at(container.path())).contains("mkdir"), "no logind there");
        assert!(remedy(daemon(&machine, false)).contains("corewise daemon"));
        assert!(remedy(profile(Err(anyhow!("none")))).contains("--output"));
        let path = user.path().join("profile.json");
        assert!(remedy(profile(Ok(path.clone()))).contains("corewise calibrate, then --profile /"));
        std::fs::write(&path, "{").unwrap();
        assert_eq!(remedy(profile(Ok(path))), "corewise calibrate");
        for is_ours in [Ok(false), Err(denied())] {
            let finding = processes(is_ours, false);
            assert!(matches!(finding, Finding::Needed { .. }));
            assert!(remedy(finding).starts_with("mount "));
        }
    }

    #[test]
    fn kinds_are_missing_only_where_they_are_unknown() {
        let of = |line: &str| Ok(Topology::synthetic(line).unwrap());
        let mut two = Topology::synthetic("core:4 pu:1").unwrap();
        two = two.with_stated_kinds("0-1", None).unwrap();
        assert!(is_here(kinds(&Ok(two))));
        assert!(is_here(shared(of("core:2 pu:1"))));
        let mut unknown = Topology::synthetic("core:2 pu:1").unwrap();
        unknown.kinds.clear();
        assert!(remedy(kinds(&Ok(unknown))).contains("--fast"));
    }
}
