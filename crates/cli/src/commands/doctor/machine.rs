//! What files tell of a machine and of this process, below a root directory.

use corewise_bench::comparison::setting;
use corewise_bench::virtualisation;
use corewise_sys::proc::Proc;
use corewise_sys::{limits, privileged};
use std::path::{Path, PathBuf};

/// A machine, and what this process may do there.
pub struct Machine {
    pub root: PathBuf,
    pub is_root: bool,
    /// The effective capabilities, one bit each.
    pub capabilities: u64,
    pub container: Option<String>,
    /// Whether a file may give this process the capabilities that it lacks.
    may_gain: bool,
    /// The file of this program.
    program: String,
}

/// Capabilities that make up for root's rights, as setcap(8) takes them: it replaces what a file had, so
/// every remedy names all.
const CAPABILITIES: &str = "cap_bpf,cap_perfmon,cap_sys_nice+ep";

impl Machine {
    /// Reads them.
    pub fn at(root: &Path) -> Machine {
        let proc = Proc::of_machine(root);
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("corewise"));
        Machine {
            root: root.to_owned(),
            is_root: effective_user(&proc).is_some_and(|uid| uid == "0"),
            capabilities: privileged::effective(&proc),
            container: virtualisation::container(root),
            may_gain: may_gain(&proc),
            program: program.display().to_string(),
        }
    }

    /// Returns the trimmed text of a file; `None` if there is none.
    pub fn text(&self, path: &str) -> Option<String> {
        Some(std::fs::read_to_string(self.root.join(path)).ok()?.trim().to_owned())
    }

    /// Returns how this process gets the capabilities that it lacks.
    pub fn capabilities_remedy(&self) -> String {
        match (&self.is_root, &self.container) {
            // Root without them is root of a container, or of a service with a bounding set.
            (true, None) => {
                "give this service CAP_BPF, CAP_PERFMON and CAP_SYS_NICE (CapabilityBoundingSet=, \
                             see contrib/corewise.service)"
                    .to_owned()
            }
            (is_root, Some(_)) if *is_root || !self.may_gain => {
                let as_root = if *is_root { "" } else { ", as its root (--user 0)" };
                format!(
                    "start the container with --cap-add BPF --cap-add PERFMON --cap-add SYS_NICE --pid host \
                     (docker, podman){as_root}"
                )
            }
            _ => format!("sudo setcap {CAPABILITIES} {}, or be root", self.program),
        }
    }

    /// Returns how perf events of a user's own threads are permitted.
    pub fn perf_remedy(&self) -> String {
        const PERMITS: i32 = 2;
        let paranoid =
            self.text("proc/sys/kernel/perf_event_paranoid").and_then(|text| text.parse::<i32>().ok());
        match paranoid {
            None => "a kernel with CONFIG_PERF_EVENTS".to_owned(),
            Some(now) if now > PERMITS && self.container.is_none() => {
                format!("sudo sysctl kernel.perf_event_paranoid={PERMITS} (now {now})")
            }
            // Permitted, and refused nevertheless.
            Some(_) => self.capabilities_remedy(),
        }
    }

    /// Returns what the machine is, and what limits this process.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let unknown = || "unknown".to_owned();
        let setting = setting::read(&self.root);
        let surroundings = virtualisation::in_words(&self.root);
        let quota = limits::pes_permitted(&self.root);
        let quota =
            quota.map_or("none".to_owned(), |pes| format!("the time of {pes:.2} PEs (control group)"));
        vec![
            ("kernel", setting.kernel.unwrap_or_else(unknown)),
            ("scheduler", setting.scheduler.unwrap_or_else(unknown)),
            ("processor", setting.processor.unwrap_or_else(unknown)),
            ("runs on", surroundings.unwrap_or_else(|| "the bare machine".to_owned())),
            ("PEs online", setting.online.unwrap_or_else(unknown)),
            ("PEs allowed", setting.allowed.unwrap_or_else(unknown)),
            ("quota", quota),
            ("rights", self.rights()),
        ]
    }

    fn rights(&self) -> String {
        let user = match effective_user(&Proc::of_machine(&self.root)) {
            _ if self.is_root => "root".to_owned(),
            Some(uid) => format!("user {uid}"),
            None => "unknown user".to_owned(),
        };
        match privileged::names(self.capabilities).join(", ") {
            none if none.is_empty() => format!("{user}, without capabilities"),
            names => format!("{user}, {names}"),
        }
    }
}

/// Returns whether the capabilities are within what this process can ever have; containers leave some out.
fn may_gain(proc: &Proc) -> bool {
    let all = privileged::PERFMON_AND_BPF | privileged::SYS_NICE;
    proc.own_status().bits("CapBnd").is_none_or(|within| within & all == all)
}

/// Returns the number of the user whose rights this process has.
fn effective_user(proc: &Proc) -> Option<String> {
    Some(proc.own_status().field("Uid")?.split_ascii_whitespace().nth(1)?.to_owned())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use corewise_testing::machine;

    pub const STATUS: &str = "proc/self/status";
    pub const OF_USER: &str =
        "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\nCpus_allowed_list:\t0-1\n";
    pub const OF_ROOT: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-3\n";
    pub const OF_CONTAINER: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n";
    pub const PARANOID: &str = "proc/sys/kernel/perf_event_paranoid";

    fn facts(files: &[(&str, &str)]) -> String {
        let facts = Machine::at(machine::root(files).path()).facts().into_iter();
        facts.map(|(name, what)| format!("{name}: {what}\n")).collect()
    }

    #[test]
    fn a_recorded_machine_tells_what_it_is() {
        let text = facts(&[
            (STATUS, OF_USER),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("proc/sys/kernel/osrelease", "6.12.3\n"),
            ("sys/kernel/sched_ext/state", "enabled\n"),
            ("sys/kernel/sched_ext/root/ops", "rusty\n"),
            ("proc/self/cgroup", "0::/a\n"),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("run/systemd/container", "podman\n"),
        ]);
        for line in [
            "kernel: 6.12.3\n",
            "scheduler: sched_ext: rusty\n",
            "processor: unknown\n",
            "runs on: container (podman)\n",
            "PEs online: 0-3\n",
            "PEs allowed: 0-1\n",
            "quota: the time of 1.50 PEs (control group)\n",
            "rights: user 1000, without capabilities\n",
        ] {
            assert!(text.contains(line), "{line:?}: {text}");
        }
        let text = facts(&[(STATUS, OF_ROOT)]);
        assert!(text.contains("runs on: the bare machine\n") && text.contains("quota: none\n"), "{text}");
        assert!(text.contains("rights: root, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, "), "{text}");
        assert!(facts(&[]).contains("rights: unknown user, without capabilities\n"));
    }

    #[test]
    fn the_remedy_is_one_that_this_user_can_take() {
        let of = |files: &[(&str, &str)]| {
            let root = machine::root(files);
            let machine = Machine::at(root.path());
            (machine.capabilities_remedy(), machine.perf_remedy())
        };
        let (rights, perf) = of(&[(STATUS, OF_USER), (PARANOID, "4\n")]);
        assert!(rights.starts_with("sudo setcap cap_bpf,cap_perfmon,cap_sys_nice+ep /"), "{rights}");
        assert_eq!(perf, "sudo sysctl kernel.perf_event_paranoid=2 (now 4)");
        let (rights, perf) = of(&[(STATUS, OF_USER), (PARANOID, "2\n")]);
        assert_eq!(perf, rights, "it is not this setting that forbids it");
        let (rights, perf) = of(&[(STATUS, OF_CONTAINER), (".dockerenv", ""), (PARANOID, "4\n")]);
        assert!(rights.contains("--cap-add BPF") && perf == rights, "{rights}");
        let bounded = OF_USER.to_owned() + "CapBnd:\t00000000a80425fb\n";
        let (rights, _) = of(&[(STATUS, &bounded), (".dockerenv", "")]);
        assert!(rights.contains("--cap-add BPF") && rights.ends_with("as its root (--user 0)"), "{rights}");
        let (rights, perf) = of(&[(STATUS, OF_CONTAINER)]);
        assert!(rights.contains("CapabilityBoundingSet="), "{rights}");
        assert_eq!(perf, "a kernel with CONFIG_PERF_EVENTS");
    }
}
