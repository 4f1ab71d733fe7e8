//! The conditions of a measurement: which PEs may be used, the load by others, virtualisation, and the
//! control of the clock.
//!
//! Everything is read below a root directory, so that recorded machines serve as tests. Conditions that
//! falsify figures are a [`Refusal`]; conditions that a reader should merely know are notes.

use super::{cgroup, kernels, virtualisation};
use corewise_core::cpuset::CpuSet;
use corewise_core::ids::PeId;
use corewise_core::profile::Circumstances;
use corewise_sys::proc::Proc;
use corewise_sys::proc::pe_times::PeTimes;
use corewise_topology::host;
use corewise_topology::kernel;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The share of a PE's time above which the load by others is not noise any more but part of the measurement.
const BUSY_SHARE_MAX: f64 = 0.10;

/// The steal time of a hypervisor from which a note is added; affected repetitions are discarded anyway.
const STEAL_SHARE_NOTED: f64 = 0.01;

/// How long to watch the load by others. `/proc/stat` counts in steps of 10 ms, so this resolves 3 %.
pub const WATCH: Duration = Duration::from_millis(300);

/// Why a machine should not be measured now.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// None of the online PEs is allowed.
    #[error("no PE to be measured is online and allowed to this process: widen its affinity mask or cpuset")]
    NoPe,
    /// Other processes use the PEs.
    #[error(
        "PE {pe} is {:.0} % busy with other work, so its figures would be wrong: end that work (`top` shows \
         it), wait for its end (--when-quiet), leave the PE out (--pes), or measure the machine \
         as it \
         is (--under-load)",
        .share * 100.0
    )]
    Load {
        /// The busiest PE.
        pe: PeId,
        /// The share of its time that other processes use, 0..1.
        share: f64,
    },
    /// A control group throttles the process.
    #[error(
        "the control group allows {quota} PEs' worth of time but {pes} PEs are to be measured, so the kernel \
         would stop them now and then: raise the quota (cpu.max, `docker update --cpus`), measure on fewer \
         PEs (--pes), or measure the machine as it is (--under-load)"
    )]
    Quota {
        /// The quota, in PEs.
        quota: f64,
        /// The usable PEs.
        pes: usize,
    },
    /// Real-time scheduling was requested and is not permitted.
    #[error(
        "real-time scheduling is not permitted: raise the limit (`ulimit -r 1`, RLIMIT_RTPRIO), give \
         CAP_SYS_NICE, or measure without it"
    )]
    RealTime,
}

/// The conditions before the start.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// The online PEs that this process may use.
    pub usable: CpuSet,
    /// The times of the usable PEs while they were watched.
    pub loads: BTreeMap<PeId, PeTimes>,
    /// The quota of a control group, in PEs; `None` without a limit.
    pub quota: Option<f64>,
    /// Whether a hypervisor may take time.
    pub is_virtual: bool,
    /// The circumstances for the profile: the machine and the notes. Fields about the measurement are left
    /// empty.
    pub circumstances: Circumstances,
}

/// Examines a machine for the time `watch`, in which the caller should be idle.
pub fn examine(root: &Path, watch: Duration) -> Result<Conditions, Refusal> {
    let proc = Proc::of_machine(root);
    let before = proc.pe_times();
    std::thread::sleep(watch);
    judge(root, &before, &proc.pe_times())
}

/// Judges by two readings of `/proc/stat` and the other files.
fn judge(
    root: &Path,
    before: &BTreeMap<PeId, PeTimes>,
    after: &BTreeMap<PeId, PeTimes>,
) -> Result<Conditions, Refusal> {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let set = |path: &str| text(path).and_then(|list| list.trim().parse::<CpuSet>().ok());
    let passed = |(&pe, times): (&PeId, &PeTimes)| Some((pe, times.since(before.get(&pe)?)));
    let all_loads: BTreeMap<PeId, PeTimes> = after.iter().filter_map(passed).collect();

    let online = set("sys/devices/system/cpu/online").unwrap_or_else(|| after.keys().copied().collect());
    let facts = kernel::read(root, &online);
    let usable = facts.affinity.as_ref().map_or(online.clone(), |affinity| online.intersection(affinity));
    if usable.is_empty() {
        return Err(Refusal::NoPe);
    }
    let (frequency, mut notes) = frequency(root, &usable);
    let offline = set("sys/devices/system/cpu/present").unwrap_or_default().difference(&online);
    if !offline.is_empty() {
        notes.push(format!("PEs {offline} are offline"));
    }
    let others = online.difference(&usable);
    if !others.is_empty() {
        notes.push(format!("PEs {others} may not be used by this process (its affinity mask or cpuset)"));
    }
    notes.extend(load_notes(&all_loads, &usable));
    let loads = all_loads.into_iter().filter(|(pe, _)| usable.contains(*pe)).collect();
    let host = host::read(root);
    Ok(Conditions {
        usable,
        loads,
        quota: cgroup::pe_quota(root),
        is_virtual: virtualisation::hypervisor(root).is_some(),
        circumstances: Circumstances {
            corewise: env!("CARGO_PKG_VERSION").to_owned(),
            unix_time: host.unix_time,
            processor: host.processor,
            kernel: host.kernel,
            virtualisation: virtualisation::in_words(root),
            frequency,
            vector_unit: kernels::vector_unit().map(str::to_owned),
            notes,
            ..Circumstances::default()
        },
    })
}

impl Conditions {
    /// Excludes all other PEs.
    pub fn limit_to(&mut self, pes: &CpuSet) -> Result<(), Refusal> {
        self.usable = self.usable.intersection(pes);
        self.loads.retain(|&pe, _| pes.contains(pe));
        if self.usable.is_empty() { Err(Refusal::NoPe) } else { Ok(()) }
    }

    /// Refuses a machine whose figures would be wrong because of other load or a quota.
    pub fn check_load(&self) -> Result<(), Refusal> {
        let shares = self.loads.iter().filter_map(|(&pe, times)| Some((pe, times.busy_share()?)));
        let busiest = shares.max_by(|(_, a), (_, b)| a.total_cmp(b));
        if let Some((pe, share)) = busiest.filter(|&(_, share)| share > BUSY_SHARE_MAX) {
            return Err(Refusal::Load { pe, share });
        }
        match self.quota {
            Some(quota) if quota < self.usable.len() as f64 => {
                Err(Refusal::Quota { quota, pes: self.usable.len() })
            }
            _ => Ok(()),
        }
    }
}

/// Returns notes about the load by others and the hypervisor's share.
fn load_notes(loads: &BTreeMap<PeId, PeTimes>, usable: &CpuSet) -> Vec<String> {
    let mut notes = Vec::new();
    for (&pe, times) in loads {
        let busy = times.busy_share().unwrap_or(0.0);
        let steal = times.steal_share().unwrap_or(0.0);
        let percent = |share: f64| (share * 100.0).round();
        if busy > BUSY_SHARE_MAX {
            let whose = if usable.contains(pe) { "" } else { ", which may not be used," };
            notes.push(format!("PE {pe}{whose} was {} % busy with other work at the start", percent(busy)));
        }
        if steal > STEAL_SHARE_NOTED {
            notes.push(format!("the hypervisor took {} % of PE {pe}'s time at the start", percent(steal)));
        }
    }
    notes
}

/// Returns governor, limits and boost in words, and notes about them.
pub(crate) fn frequency(root: &Path, pes: &CpuSet) -> (Option<String>, Vec<String>) {
    let cpu = root.join("sys/devices/system/cpu");
    let text = |path: &str| Some(std::fs::read_to_string(cpu.join(path)).ok()?.trim().to_owned());
    let ghz = |path: String| Some(text(&path)?.parse::<f64>().ok()? / 1e6);
    let mut groups: BTreeMap<String, CpuSet> = BTreeMap::new();
    let mut notes = Vec::new();
    for pe in pes.iter() {
        let file = |name: &str| format!("cpu{pe}/cpufreq/{name}");
        let Some(governor) = text(&file("scaling_governor")) else { continue };
        let limits = ghz(file("scaling_min_freq")).zip(ghz(file("scaling_max_freq")));
        let limits = limits.map_or(String::new(), |(low, high)| format!(", {low:.2} to {high:.2} GHz"));
        groups.entry(format!("governor {governor}{limits}")).or_default().insert(pe);
    }
    if groups.is_empty() {
        return (None, notes);
    }
    if groups.keys().any(|words| !words.starts_with("governor performance")) {
        notes.push(
            "the frequency governor may change clocks while measuring: `cpupower frequency-set -g \
             performance` prevents it"
                .to_owned(),
        );
    }
    let boost = match (text("cpufreq/boost").as_deref(), text("intel_pstate/no_turbo").as_deref()) {
        (Some("1"), _) | (_, Some("0")) => ", boost on",
        (Some("0"), _) | (_, Some("1")) => ", boost off",
        _ => "",
    };
    let several = groups.len() > 1;
    let words = |(words, pes): (&String, &CpuSet)| {
        if several { format!("PEs {pes}: {words}") } else { words.clone() }
    };
    let words = groups.iter().map(words).collect::<Vec<_>>().join("; ");
    (Some(words + boost), notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_sys::proc::pe_times::parse;
    use corewise_testing::machine::root;

    const ONLINE: (&str, &str) = ("sys/devices/system/cpu/online", "0-2\n");
    const PRESENT: (&str, &str) = ("sys/devices/system/cpu/present", "0-3\n");
    const STATUS: (&str, &str) = ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t1-3\n");
    const STAT: &str = "cpu 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\ncpu1 5 0 0 9 0 0 0 0\ncpu2 0 0 0 0 0 0 0 0\n";

    #[test]
    fn half_a_container_and_offline_pes_are_noted() {
        let quiet = "cpu0 30 0 0 0 0 0 0 0\ncpu1 6 0 0 36 0 0 0 2\ncpu2 0 0 0 30 0 0 0 0\n";
        let found = judge(root(&[ONLINE, PRESENT, STATUS]).path(), &parse(STAT), &parse(quiet)).unwrap();
        assert_eq!(found.usable, "1-2".parse().unwrap());
        assert_eq!(
            found.circumstances.notes,
            [
                "PEs 3 are offline",
                "PEs 0 may not be used by this process (its affinity mask or cpuset)",
                "PE 0, which may not be used, was 100 % busy with other work at the start",
                "the hypervisor took 7 % of PE 1's time at the start",
            ]
        );
        assert_eq!(found.check_load(), Ok(()));
    }

    #[test]
    fn a_machine_under_load_is_refused() {
        let busy = "cpu0 0 0 0 30\ncpu1 20 0 0 24\ncpu2 24 0 0 6\n";
        let found = judge(root(&[ONLINE, PRESENT]).path(), &parse(STAT), &parse(busy)).unwrap();
        let refusal = found.check_load().unwrap_err();
        assert_eq!(refusal, Refusal::Load { pe: PeId(2), share: 0.8 });
        assert!(refusal.to_string().starts_with("PE 2 is 80 % busy with other work"), "{refusal}");
    }

    #[test]
    fn a_quota_below_the_pes_is_refused() {
        let quota = |max: &str| {
            let group = [ONLINE, ("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.max", max)];
            examine(root(&group).path(), Duration::ZERO).unwrap().check_load()
        };
        assert_eq!(quota("150000 100000"), Err(Refusal::Quota { quota: 1.5, pes: 3 }));
        assert_eq!(quota("300000 100000"), Ok(()));
        assert_eq!(quota("max 100000"), Ok(()));
    }

    #[test]
    fn without_a_usable_pe_nothing_is_measured() {
        let elsewhere = ("proc/self/status", "Cpus_allowed_list:\t3\n");
        assert_eq!(examine(root(&[ONLINE, elsewhere]).path(), Duration::ZERO), Err(Refusal::NoPe));
    }

    #[test]
    fn processor_and_clock_are_described_in_words() {
        let x86 = root(&[
            ("sys/devices/system/cpu/online", "0-1"),
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu\n"),
            ("proc/sys/kernel/osrelease", "6.18.5\n"),
            ("sys/devices/system/cpu/cpufreq/boost", "1\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_min_freq", "800000\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "3400000\n"),
            ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
        ]);
        let found = examine(x86.path(), Duration::ZERO).unwrap().circumstances;
        assert_eq!(found.processor.as_deref(), Some("AMD EPYC"));
        assert_eq!(found.kernel.as_deref(), Some("6.18.5"));
        let words = "PEs 0: governor performance, 0.80 to 3.40 GHz; PEs 1: governor powersave, boost on";
        assert_eq!(found.frequency.as_deref(), Some(words));
        assert!(found.notes[0].starts_with("the frequency governor may change clocks"));

        let arm = root(&[
            ("sys/devices/system/cpu/online", "0"),
            ("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n"),
        ]);
        let found = examine(arm.path(), Duration::ZERO).unwrap().circumstances;
        assert_eq!((found.processor.as_deref(), found.frequency), (Some("Cortex-A76"), None));
    }
}
