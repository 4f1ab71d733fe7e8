//! The thread teams of a command, chosen before it starts (`--adapt-team`): their size, and on machines with
//! fast and slow PEs where they run and how the parts of their loops are handed out.
//!
//! On such a machine a look at what the program imports tells whether its loops can be balanced
//! ([`openmp::Loops`]). If none can, its teams get the fast PEs only, where that is faster
//! ([`teams::fastest`]). If LLVM's library would hand out parts, were it asked to, it is asked to. A program
//! for which parts are handed out anyway keeps all PEs.
//!
//! The PEs are named to the library (`OMP_PLACES`), which binds its teams there. The mask of the command
//! stays as it is: all that it starts would inherit a smaller one and size itself by that, builds and heaps
//! too, and what outlives the command would keep it. (OpenMP's processes with such a variable count as
//! placed by their user, so policies leave them alone.)
//!
//! The schedule is `guided`: no loop waits longer for its slowest thread than with equal parts, as its parts
//! are never larger, and it hands out few. With `dynamic`, each iteration is asked for: in LLVM's library
//! that cost 0.25 µs (*measured*, libomp 19, two threads), in loops of short iterations 200 times the work.

use super::machine::Machine;
use corewise_code::openmp::{self, Loops};
use corewise_core::cpuset::CpuSet;
use corewise_core::machine_model::MachineModel;
use corewise_core::report::WaitsReport;
use corewise_core::topology::DomainKind;
use corewise_core::waits::teams::{self, Shared};
use corewise_sys::limits::Quota;
use corewise_sys::proc::Proc;
use corewise_sys::{affinity, demand, environment, limits, privileged};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// The variable by which OpenMP runtimes, OpenBLAS, MKL and others learn a size when they are loaded.
const SIZE: &str = "OMP_NUM_THREADS";

/// The variable by which OpenMP runtimes learn how to divide loops with `schedule(runtime)`.
const SCHEDULE: &str = "OMP_SCHEDULE";

/// See the module's text.
const GUIDED: &str = "guided";

/// The variables by which a user decides about sizes.
const WISHES: [&str; 11] = [
    SIZE,
    "OMP_NUM_THREADS_ALL",
    "OMP_THREAD_LIMIT",
    "OMP_THREAD_LIMIT_ALL",
    "OMP_DYNAMIC",
    "OMP_DYNAMIC_ALL",
    "OPENBLAS_NUM_THREADS",
    "OPENBLAS_DEFAULT_NUM_THREADS",
    "GOTO_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
];

/// What a command is started with; what is `None` is left to its libraries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Teams {
    /// The size of its teams.
    size: Option<u32>,
    /// The PEs of its teams.
    pes: Option<CpuSet>,
    /// How parts of loops are handed out.
    schedule: Option<&'static str>,
}

/// The command for which teams are chosen.
pub struct Subject<'a> {
    /// Its words.
    pub command: &'a [OsString],
    /// The machine.
    pub machine: &'a Machine,
    /// The policy, if the user asked for a placement by its name.
    pub policy: Option<&'a str>,
}

impl Teams {
    /// Chooses for a command that starts now, as far as the user has not decided.
    pub fn choose(subject: &Subject<'_>, notes: &mut Vec<String>) -> Teams {
        let Ok(pes) = affinity::get(0) else { return Teams::default() };
        let uneven = subject.machine.of_several_kinds(&pes);
        let program = uneven.and_then(|_| privileged::file_of(subject.command.first()?));
        let loops = program.and_then(|program| openmp::loops(&program));
        let schedule = uneven.and_then(|_| schedule(loops, notes));
        match size(&pes, notes) {
            Some(size) if size == pes.len() => {
                let fast = uneven.filter(|_| loops == Some(Loops::Equal)).and_then(|machine| {
                    let found = fast_pes(machine, &pes, subject.policy);
                    found.unwrap_or_else(|why| {
                        notes.push(format!("teams may use slow PEs, too: {why}"));
                        None
                    })
                });
                Teams { size: fast.as_ref().map(|pes| pes.len() as u32), pes: fast, schedule }
            }
            size => Teams { size: size.map(|size| size as u32), pes: None, schedule },
        }
    }

    /// Returns the variables that the command gets.
    pub fn variables(&self) -> impl Iterator<Item = (&'static str, String)> {
        let place = |pes: &CpuSet| {
            let listed: Vec<String> = pes.iter().map(|pe| pe.0.to_string()).collect();
            [("OMP_PLACES", format!("{{{}}}", listed.join(","))), ("OMP_PROC_BIND", "true".to_owned())]
        };
        let size = self.size.map(|size| (SIZE, size.to_string()));
        let schedule = self.schedule.map(|schedule| (SCHEDULE, schedule.to_owned()));
        size.into_iter().chain(self.pes.as_ref().map(place).into_iter().flatten()).chain(schedule)
    }

    /// Returns what was done about waits, with this.
    pub fn added_to(self, waits: WaitsReport) -> WaitsReport {
        let schedule = self.schedule.map(Into::into);
        WaitsReport { team_size: self.size, team_pes: self.pes, schedule, ..waits }
    }
}

/// Returns the size of a program's fair share; `None` if the user has decided.
fn size(pes: &CpuSet, notes: &mut Vec<String>) -> Option<usize> {
    let own = std::process::id();
    let wish = environment::first_set(own, &WISHES).map(|name| format!("{name} is set"));
    // Smaller teams of several programs would use the same first PEs.
    let placed = || environment::places_threads(own).then(|| "the user binds their threads".to_owned());
    if let Some(why) = wish.or_else(placed) {
        notes.push(format!("teams stay as they are: {why}"));
        return None;
    }
    let others = demand::of_others(&Proc::own(), pes);
    Some(teams::size(&shared(Path::new("/"), own, pes, &others)))
}

/// Returns what a process shares with others, of which so many threads want PEs now: the PEs, and each quota.
fn shared(root: &Path, own: u32, pes: &CpuSet, others: &BTreeMap<u32, usize>) -> Vec<Shared> {
    let quotas = limits::quotas_of(root, own);
    let of_others = others.iter().map(|(&pid, &threads)| (limits::quotas_of(root, pid), threads));
    let of_others: Vec<(Vec<Quota>, usize)> = of_others.collect();
    let in_quota = |quota: &Quota| {
        let is_in = |(quotas, _): &&(Vec<Quota>, usize)| quotas.iter().any(|of| of.folder == quota.folder);
        let others = of_others.iter().filter(is_in).map(|(_, threads)| *threads).collect();
        Shared { pes: quota.pes, others }
    };
    let of_pes = Shared { pes: pes.len() as f64, others: others.values().copied().collect() };
    [of_pes].into_iter().chain(quotas.iter().map(in_quota)).collect()
}

/// Returns the PEs for loops in equal parts; `None` if all are best, and an error if that is not known.
fn fast_pes(machine: &MachineModel, pes: &CpuSet, policy: Option<&str>) -> Result<Option<CpuSet>, String> {
    if let Some(policy) = policy {
        return Err(format!("the policy {policy} decides who gets the fast ones"));
    }
    if pes.iter().any(|pe| machine.known_speed(pe).is_none()) {
        let how = "a machine profile tells it (`corewise calibrate`, --profile)";
        return Err(format!("how much slower they are is not known; {how}"));
    }
    let fast = teams::fastest(pes, |pe| machine.known_speed(pe));
    let is_shared = |fast: &CpuSet| {
        machine.topology.domains(DomainKind::Core).any(|core| core.pes.intersection(fast).len() > 1)
    };
    if fast.as_ref().is_some_and(is_shared) {
        return Err("fast PEs share cores, and their speeds are those of each alone".to_owned());
    }
    Ok(fast)
}

/// Returns the schedule that the command's library should be asked for.
fn schedule(loops: Option<Loops>, notes: &mut Vec<String>) -> Option<&'static str> {
    if environment::first_set(std::process::id(), &[SCHEDULE]).is_some() {
        notes.push(format!("loops are divided as before: {SCHEDULE} is set"));
        return None;
    }
    (loops == Some(Loops::AsRequested)).then_some(GUIDED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::topology::{ReportedSpeed, Topology};

    /// A machine whose PEs 0 and 1 are fast, and the two others of this speed.
    fn machine(shape: &str, permille: Option<u32>) -> MachineModel {
        let mut topology = Topology::synthetic(shape).unwrap().with_stated_kinds("0-1", None).unwrap();
        for (kind, permille) in topology.kinds.iter_mut().zip([Some(1000), permille]) {
            kind.speed = permille.map(|permille| ReportedSpeed { permille, source: "test".to_owned() });
        }
        topology.into()
    }

    #[test]
    fn a_team_has_the_fast_pes_only_where_that_is_known_to_be_faster() {
        let pes = CpuSet::first_n(4);
        let found = |shape, permille, policy| fast_pes(&machine(shape, permille), &pes, policy);
        assert_eq!(found("core:4 pu:1", Some(400), None), Ok(Some(CpuSet::first_n(2))));
        assert_eq!(found("core:4 pu:1", Some(600), None), Ok(None));
        for (shape, permille, policy, why) in [
            ("core:4 pu:1", None, None, "is not known; a machine profile tells it"),
            ("core:2 pu:2", Some(400), None, "share cores"),
            ("core:4 pu:1", Some(400), Some("pa"), "the policy pa decides"),
        ] {
            let said = found(shape, permille, policy).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_quota_is_shared_by_those_in_its_group_in_both_versions_of_groups() {
        for (of, folder, files) in [
            ("0::", "sys/fs/cgroup", [("cpu.max", "400000 100000\n"), ("x", "")]),
            (
                "2:cpu:",
                "sys/fs/cgroup/cpu",
                [("cpu.cfs_quota_us", "400000"), ("cpu.cfs_period_us", "100000")],
            ),
        ] {
            let groups = [(7, "/a/b"), (8, "/a/c"), (9, "/d")];
            let mut machine: Vec<(String, String)> = Vec::new();
            machine
                .extend(groups.map(|(pid, group)| (format!("proc/{pid}/cgroup"), format!("{of}{group}\n"))));
            machine.extend(files.map(|(name, text)| (format!("{folder}/a/{name}"), text.to_owned())));
            let machine: Vec<(&str, &str)> =
                machine.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            let root = corewise_testing::machine::root(&machine);
            let others = BTreeMap::from([(8, 2), (9, 16)]);
            let shared = shared(root.path(), 7, &CpuSet::first_n(64), &others);
            let expected = [(64.0, vec![2, 16]), (4.0, vec![2])];
            assert_eq!(shared, expected.map(|(pes, others)| Shared { pes, others }), "{of}");
            assert_eq!(teams::size(&shared), 2);
        }
    }

    #[test]
    fn what_was_chosen_is_what_the_command_gets() {
        let pes = Some("0-1,3".parse().unwrap());
        let teams = Teams { size: Some(3), pes, schedule: Some(GUIDED) };
        let variables: Vec<String> =
            teams.variables().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            variables,
            ["OMP_NUM_THREADS=3", "OMP_PLACES={0,1,3}", "OMP_PROC_BIND=true", "OMP_SCHEDULE=guided"]
        );
        assert_eq!(Teams::default().variables().count(), 0);
    }
}
