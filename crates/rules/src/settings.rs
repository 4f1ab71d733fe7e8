//! What rules and the table `[daemon]` set.

use corewise_core::cpuset::CpuSet;
use corewise_core::policy::{DEFAULT, PolicySpec};
use corewise_core::topology::Topology;
use corewise_core::waits::WaitChanges;
use serde::{Serialize, Serializer};
use std::time::Duration;

/// The shortest interval between two decisions.
pub const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// What a rule writes for the policy that leaves threads where Linux puts them.
pub const NONE: &str = "none";

/// What holds for the processes of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Settings {
    /// It is not watched, and nothing of it is changed.
    pub leave_alone: bool,
    /// The PEs that it may use; `None`: all that it may use without corewise.
    pub pes: Option<PeChoice>,
    /// What may be changed about its waits; `None`: as without a rule.
    #[serde(serialize_with = "as_word")]
    pub waits: Option<WaitChanges>,
    /// The policy that places it; `None`: the daemon's.
    #[serde(serialize_with = "as_written")]
    pub policy: Option<PolicySpec>,
    /// Whether its placement is tried, and reverted if it does not help; `None`: as without a rule.
    pub guard: Option<bool>,
    /// Whether `corewise run` starts it with thread teams of its fair share of the PEs.
    pub adapt_team: bool,
}

/// Some of the PEs of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PeChoice {
    /// Those of these kinds.
    Kinds(Vec<String>),
    /// These, by the OS's index.
    List(CpuSet),
}

/// What holds for the whole daemon. `None`: no file says so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DaemonSettings {
    /// The policy.
    pub policy: Option<PolicySpec>,
    /// The time between two decisions.
    pub interval: Option<Duration>,
    /// Whether placements are tried, and reverted if they do not help.
    pub guard: Option<bool>,
    /// What may be changed about waits of programs of which no rule says it.
    pub waits: Option<WaitChanges>,
    /// Which programs are watched.
    pub watch: Option<Watch>,
    /// What an application is.
    pub applications: Option<Applications>,
    /// What happens while the machine saves power.
    pub power_saver: Option<PowerSaver>,
}

/// What a daemon does while the machine saves power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PowerSaver {
    /// It leaves all threads where the kernel puts them.
    #[default]
    LeaveAlone,
    /// The same as otherwise.
    Ignore,
}

/// What a daemon takes for one application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Applications {
    /// A service, a container or a desktop application; elsewhere each program that is executed.
    #[default]
    Unit,
    /// Each program that is executed; the parts that a launcher starts are one.
    Program,
    /// Each process that executes a program.
    Process,
}

/// Which programs a daemon watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Watch {
    /// All except those that are left alone.
    #[default]
    All,
    /// Only those that a rule matches, and that are not left alone.
    Matched,
}

impl PeChoice {
    /// Returns these PEs on a machine; `None` if it has none of them: the choice was made for another one,
    /// and does not hold here.
    pub fn on(&self, machine: &Topology) -> Option<CpuSet> {
        let pes = match self {
            PeChoice::Kinds(names) => {
                let kinds = machine.kinds.iter().filter(|kind| names.contains(&kind.name));
                kinds.fold(CpuSet::new(), |all, kind| all.union(&kind.pes))
            }
            PeChoice::List(list) => list.intersection(&machine.pes),
        };
        (!pes.is_empty()).then_some(pes)
    }
}

impl DaemonSettings {
    /// Takes from another file what is not set yet.
    pub(crate) fn or(self, other: DaemonSettings) -> DaemonSettings {
        DaemonSettings {
            policy: self.policy.or(other.policy),
            interval: self.interval.or(other.interval),
            guard: self.guard.or(other.guard),
            waits: self.waits.or(other.waits),
            watch: self.watch.or(other.watch),
            applications: self.applications.or(other.applications),
            power_saver: self.power_saver.or(other.power_saver),
        }
    }
}

fn as_word<S: Serializer>(waits: &Option<WaitChanges>, serializer: S) -> Result<S::Ok, S::Error> {
    waits.map(WaitChanges::word).serialize(serializer)
}

fn as_written<S: Serializer>(policy: &Option<PolicySpec>, serializer: S) -> Result<S::Ok, S::Error> {
    policy.as_ref().map(policy_word).serialize(serializer)
}

/// Returns how a policy is written in a rule.
pub fn policy_word(policy: &PolicySpec) -> String {
    if policy.name() == DEFAULT.name { NONE.to_owned() } else { policy.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corewise_core::topology::CpuKind;

    #[test]
    fn a_choice_that_a_machine_cannot_fulfil_does_not_hold_there() {
        let mut machine = Topology::synthetic("pack:1 core:4 pu:1").unwrap();
        let kinds = |names: &[&str]| PeChoice::Kinds(names.iter().map(|&name| name.to_owned()).collect());
        let list = |list: &str| PeChoice::List(list.parse().unwrap());
        assert_eq!(kinds(&["fast"]).on(&machine), None);
        let kind = |name: &str, pes: &str| CpuKind {
            name: name.to_owned(),
            pes: pes.parse().unwrap(),
            evidence: Vec::new(),
            speed: None,
        };
        machine.kinds = vec![kind("fast", "0"), kind("mid1", "1"), kind("slow", "2-3")];
        let on = |choice: PeChoice| choice.on(&machine).map(|pes| pes.to_string());
        assert_eq!(on(kinds(&["mid1", "slow"])).as_deref(), Some("1-3"));
        assert_eq!(on(list("3-9")).as_deref(), Some("3"));
        assert_eq!(on(list("8")), None);
    }
}
